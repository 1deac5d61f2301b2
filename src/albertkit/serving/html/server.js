// Requests to the server, with the key; errors become messages.

const KEY = "albertkit-key";
const listeners = [];

/** Call `listener` if the server needs a key, or rejects the key. */
export function onKeyWanted(listener) { listeners.push(listener); }

/** Keep a key, only in this tab. */
export function useKey(key) { sessionStorage.setItem(KEY, key); }

/** Return the response of a path, with `body` as POST. Throw an Error with a message for the user. */
export async function ask(path, body, signal) {
  const key = sessionStorage.getItem(KEY);
  const headers = key === null ? {} : { Authorization: `Bearer ${key}` };
  const request = { signal, headers, cache: "no-store" };
  if (body !== undefined) {
    Object.assign(request, { method: "POST", body: JSON.stringify(body) });
    headers["Content-Type"] = "application/json";
  }
  let response, found;
  try {
    response = await fetch(path, request);
    found = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is it still running?");
  }
  if (response.status === 401) {
    listeners.forEach((listener) => listener());
    throw new Error(key === null ? "This server needs a key." : "This is not the key of this server.");
  }
  if (!response.ok) throw new Error(found.error?.message ?? `The server answers with status ${response.status}.`);
  return found;
}
