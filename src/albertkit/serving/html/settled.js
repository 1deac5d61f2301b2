// Panels that send requests while the user types: only the last request is shown.

/** Return a function that runs `work(signal)` after no call for `pause` ms, and aborts earlier work.
 *
 * The panel shows that it waits (aria-busy). Its status shows an error or the result of `work`: words for
 * screen readers, or {note} for all users.
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

/** Return the note on truncated tokens, for all users; null if there are none. */
export const cutNote = (cut) => (cut
  ? { note: cut === 1 ? "1 token beyond the maximum was not read." : `${cut} tokens beyond the maximum were not read.` }
  : null);
