// Requests to the model, which a worker of this page computes instead of a server.

const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
const waiting = new Map(); // number of a request -> the functions that settle its promise
const listeners = [];
let count = 0;

/** Call `listener` with {loaded, total}, {ready} or {failed} while the model is downloaded. */
export function onProgress(listener) { listeners.push(listener); }

function answered({ data }) {
  if (data.id === undefined) {
    listeners.forEach((listener) => listener(data));
    return;
  }
  const promise = waiting.get(data.id);
  waiting.delete(data.id);
  if (data.error === undefined) promise?.resolve(data.found);
  else promise?.reject(new Error(data.error));
}

worker.addEventListener("message", answered);
worker.addEventListener("error", (event) => {
  event.preventDefault();
  const failed = `This browser cannot run the model${event.message ? `: ${event.message}` : "."}`;
  listeners.forEach((listener) => listener({ failed }));
});

/** Return the response of a path to `body`. Throw an Error with a message for the user. */
export function ask(path, body, signal) {
  count += 1;
  const id = count;
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject });
    signal?.addEventListener("abort", () => {
      worker.postMessage({ drop: id });
      if (waiting.delete(id)) reject(new DOMException("A newer request replaced this one.", "AbortError"));
    });
    worker.postMessage({ id, path, body });
  });
}
