// Asking the server: the key, errors as messages, and only the answer to what was typed last.

const KEY = "albertkit-key";
const listeners = [];

/** Call `listener` when the server refuses the key, or its absence. */
export function onKeyWanted(listener) { listeners.push(listener); }

/** Keep a key in this tab alone. */
export function useKey(key) { sessionStorage.setItem(KEY, key); }

/** The answer of a path, to `body` where there is one; an Error with a message for people. */
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
    throw new Error(key === null ? "This server asks for a key." : "That is not the key of this server.");
  }
  if (!response.ok) throw new Error(found.error?.message ?? `The server answers with status ${response.status}.`);
  return found;
}

/** A function that runs `work(signal)` once nobody has called it for `pause` ms; what ran before is dropped.
 *
 * The panel says that it waits (aria-busy) and, in its status, what went wrong or what `work` returns:
 * words for screen readers, or {note} for everybody.
 */
export function settled(panel, pause, work) {
  const status = panel.querySelector(".status");
  let timer = 0, running = new AbortController();
  const say = (words, kind = "") => { // only errors and notes are seen; all is spoken
    status.textContent = words;
    status.className = `status ${kind}`;
    panel.classList.toggle("stale", kind === "error");
  };
  const start = async () => {
    const { signal } = running;
    try {
      const words = await work(signal);
      if (!signal.aborted) say(words.note ?? words, words.note ? "note" : "");
    } catch (error) {
      if (!signal.aborted) say(error.message, "error");
    } finally {
      if (!signal.aborted) panel.removeAttribute("aria-busy");
    }
  };
  return (now = false) => {
    clearTimeout(timer);
    running.abort();
    running = new AbortController();
    panel.setAttribute("aria-busy", "true");
    if (now) start();
    else timer = setTimeout(start, pause);
  };
}
