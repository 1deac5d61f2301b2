// Panels that only this page has: labels of words, and similarities of texts.

import { state } from "./address.js";
import { PAUSE, bind, characters, find, showBars } from "./panels.js";
import { ask } from "./server.js";
import { cutNote, settled } from "./settled.js";
import { make, percent } from "./shared.js";

const OUTSIDE = "O";

export function tagPanel() {
  const asks = settled(find("tag"), PAUSE, async (signal) => {
    const { tagged: text } = state;
    if (!text.trim()) { find("tags").replaceChildren(); return ""; }
    const { words, cut } = (await ask("v1/tag", { input: text }, signal)).results[0];
    const from = characters(text);
    let end = 0;
    find("tags").replaceChildren(...words.flatMap(({ start, end: stop, label, score }) => {
      const before = from(end, start);
      end = stop;
      if (label === OUTSIDE) return [before, from(start, stop)];
      const title = `${label}, ${percent(score)}`;
      return [before, make("span", { className: "tagged", title }, from(start, stop), make("small", {}, label))];
    }), from(end));
    const named = words.filter(({ label }) => label !== OUTSIDE);
    const spoken = named.map((one) => `${from(one.start, one.end)}: ${one.label}`).join(", ");
    return cutNote(cut) ?? (spoken || "No word has a label other than O.");
  });
  const show = bind("tagged", "tagged", () => asks());
  return () => { show(); asks(true); };
}

const product = (one, other) => one.reduce((sum, value, place) => sum + value * other[place], 0);

export function vectorPanel() {
  const asks = settled(find("vectors"), PAUSE, async (signal) => {
    const texts = state.others.split("\n").map((line) => line.trim()).filter(Boolean);
    if (!state.compared.trim() || !texts.length) { find("cosines").replaceChildren(); return ""; }
    const { data } = await ask("v1/embeddings", { input: [state.compared, ...texts] }, signal);
    const [first, ...vectors] = data.map(({ embedding }) => embedding);
    const cosines = vectors.map((one) => product(first, one) / Math.sqrt(product(first, first) * product(one, one)));
    const rows = texts.map((name, place) => ({ name, score: cosines[place] }));
    rows.sort((one, other) => other.score - one.score);
    showBars(find("cosines"), rows.map(({ name, score }) => ({ name, score: Math.max(score, 0) })));
    const cut = data.reduce((sum, one) => sum + one.cut, 0);
    return cutNote(cut) ?? `Nearest: ${rows[0].name}, ${percent(rows[0].score)}`;
  });
  const shows = [["compared", "compared"], ["others", "others"]].map(([id, name]) => bind(id, name, () => asks()));
  return () => {
    shows.forEach((show) => show());
    asks(true);
  };
}
