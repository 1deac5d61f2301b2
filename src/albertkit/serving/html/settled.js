// Panels that ask while somebody types: only the last question is answered.

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
