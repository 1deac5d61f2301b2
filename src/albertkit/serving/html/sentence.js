// The sentence: candidates for its masks, its words as buttons, its tokens.

import { keep, state } from "./address.js";
import { PAUSE, bind, characters, chooseModel, find, offerSamples, showBars } from "./panels.js";
import { ask } from "./server.js";
import { cutNote, settled } from "./settled.js";
import { make, percent } from "./shared.js";

const MASK = "[MASK]";
const WORDS = /[\p{L}\p{N}\p{M}]+(?:['’-][\p{L}\p{N}\p{M}]+)*/gu;
const TOP = 6;

/** Return words, masks and the text between them: {text, kind: "word" | "mask" | ""}. */
function cutIntoWords(text) {
  const plain = (part) => {
    if (globalThis.Intl?.Segmenter) { // also finds the words of languages without spaces
      return [...new Intl.Segmenter(undefined, { granularity: "word" }).segment(part)]
        .map(({ segment, isWordLike }) => ({ text: segment, kind: isWordLike ? "word" : "" }));
    }
    const found = [];
    let end = 0;
    for (const { 0: word, index } of part.matchAll(WORDS)) {
      found.push({ text: part.slice(end, index), kind: "" }, { text: word, kind: "word" });
      end = index + word.length;
    }
    return [...found, { text: part.slice(end), kind: "" }];
  };
  return text.split(MASK).flatMap((part, place) => [
    ...(place ? [{ text: MASK, kind: "mask" }] : []), ...plain(part).filter((one) => one.text)]);
}

/** Set up the panels of a sentence. `models` have those with masks first. */
export function sentencePanels(models, inside) {
  const [fill, pieces] = [find("fill"), find("pieces")];
  let covered = []; // the words that masks replaced, in order; null if unknown
  let best = []; // the first candidate for each mask
  let model = null;

  const changed = (now = false) => {
    showWords();
    guess(now);
    cut(now);
    inside.changed(now);
  };
  const show = bind("text", "text", changed);
  const chosen = chooseModel(fill, models, "model", () => refresh());
  const offer = offerSamples(fill, [["text", "text", "text"]], () => refresh());

  /** Replace a part by `text`, and keep the focus on it. */
  const replace = (parts, place, text) => {
    parts[place] = { text };
    keep({ text: parts.map((one) => one.text).join("") });
    show();
    changed(true);
    const buttons = [...find("words").children].filter((one) => one.tagName === "BUTTON");
    const before = parts.slice(0, place).filter((one) => one.kind).length;
    buttons[Math.min(before, buttons.length - 1)]?.focus();
  };

  function showWords() {
    const parts = cutIntoWords(state.text);
    const masks = parts.filter((one) => one.kind === "mask").length;
    if (covered.length !== masks) covered = Array(masks).fill(null);
    let mask = -1;
    find("words").replaceChildren(...parts.map(({ text, kind }, place) => {
      if (!kind) return text;
      if (kind === "mask") mask += 1;
      const number = mask; // of this mask, or of the last one before this word
      const toggle = () => {
        if (kind === "word") covered.splice(number + 1, 0, text);
        const back = kind === "mask" ? covered.splice(number, 1)[0] ?? best[number] ?? "" : MASK;
        replace(parts, place, back);
      };
      return make("button", { type: "button", "aria-pressed": String(kind === "mask"), onclick: toggle }, text);
    }));
  }

  const guess = settled(fill, PAUSE, async (signal) => {
    const box = find("candidates");
    if (!model.tasks.includes("fill-mask") || !state.text.includes(MASK)) {
      best = [];
      const hint = "Click a word to mask it, and see the model's predictions.";
      box.replaceChildren(make("p", { className: "quiet hint" }, hint));
      return "";
    }
    const body = { model: model.id, input: state.text, top_k: TOP };
    const { results: [masks], cut: left } = await ask("v1/fill-mask", body, signal); // a server truncates nothing
    const named = masks.map((one) => one.map(({ token_str, score }) => ({ name: token_str.trim() || "▁", score })));
    best = named.map(([first]) => first.name);
    showCandidates(box, named);
    return cutNote(left) ?? named.map(([{ name, score }], place) =>
      `Best for mask ${place + 1}: ${name}, ${percent(score)}.`).join(" ");
  });

  function showCandidates(box, masks) {
    if (box.querySelectorAll("ol").length !== masks.length) {
      box.replaceChildren(...masks.map((_, place) => {
        const title = masks.length === 1 ? "Candidates" : `Candidates for mask ${place + 1}`;
        return make("div", {}, make("h3", {}, title), make("ol", { className: "bars" }));
      }));
    }
    masks.forEach((rows, number) => showBars(box.children[number].lastChild, rows, {
      most: rows[0].score,
      choose: (word) => {
        const parts = cutIntoWords(state.text);
        const places = parts.flatMap((one, place) => (one.kind === "mask" ? [place] : []));
        if (number >= places.length) return; // typed away meanwhile
        covered.splice(number, 1);
        replace(parts, places[number], word);
      },
    }));
  }

  const cut = settled(pieces, PAUSE, async (signal) => {
    if (!state.text.trim()) {
      find("cuts").replaceChildren();
      find("ids").replaceChildren();
      return "";
    }
    const { text } = state;
    const body = { model: model.id, input: text, masks: true };
    const [found] = (await ask("v1/tokenize", body, signal)).results;
    const from = characters(text);
    let end = 0, shaded = false;
    find("cuts").replaceChildren(...found.offsets.flatMap(([start, stop]) => {
      if (stop <= start || start < end) return [];
      const before = from(end, start);
      end = stop;
      shaded = !shaded;
      return [before, make("span", { className: shaded ? "one" : "other" }, from(start, stop))];
    }), from(end));
    find("ids").replaceChildren(...found.tokens.map((piece, place) => {
      const [start, stop] = found.offsets[place];
      return make("li", { className: start === stop ? "special" : "" },
        make("b", { dir: "auto" }, piece),
        make("span", { className: "id" }, make("span", { className: "unseen" }, "id "),
          String(found.input_ids[place])),
        make("span", { className: "place" }, start === stop ? "–" : `${start}–${stop}`));
    }));
    return `${found.tokens.length} tokens.`;
  });

  function refresh() {
    model = chosen();
    const masks = model.tasks.includes("fill-mask");
    find("fill-title").textContent = masks ? "Fill the blank" : "Look inside the model";
    find("text").labels[0].textContent = masks ? "Sentence; [MASK] stands for a word to predict" : "Sentence";
    find("candidates").hidden = find("masking").hidden = !masks;
    if (models[0].tasks.includes("fill-mask")) offer(model);
    if (!masks) fill.querySelector(".samples").hidden = true;
    show();
    inside.use(model);
    changed(true);
  }
  return refresh;
}
