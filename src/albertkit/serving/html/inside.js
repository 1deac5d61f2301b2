// The sentence inside the model: attention by layer and head, and how the hidden states change by layer.

import { keep, state } from "./address.js";
import { PAUSE, find } from "./panels.js";
import { ask } from "./server.js";
import { settled } from "./settled.js";
import {
  MEAN, attentionOf, choices, colors, cosinePlot, depth, make, mean, percent, picture, shade, sharing, unpack,
} from "./shared.js";

let figures = null; // the response of the server, with the attention unpacked
let hovered = { piece: null, cell: null }; // shown for as long as the mouse is there; a cell is [layer, head]
let model = null;

const cell = () => hovered.cell ?? [Number(state.layer), Number(state.head)];
const shown = () => figures.pieces.filter((piece) => state.special || !figures.special[piece]);

/** Return the token whose attention is shown: under the mouse, selected, or the first of the text. */
function current() {
  const pieces = shown();
  const wanted = [hovered.piece, state.piece === "" ? null : Number(state.piece)];
  return wanted.find((one) => pieces.includes(one)) ?? pieces.find((one) => !figures.special[one]) ?? 0;
}

/** Show a change while the mouse is on `target`. */
function previews(target, change) {
  const names = Object.keys(change);
  target.addEventListener("pointerenter", ({ pointerType }) => {
    if (pointerType === "mouse") { Object.assign(hovered, change); update(); }
  });
  target.addEventListener("pointerleave", () => {
    names.forEach((name) => { if (hovered[name] === change[name]) hovered[name] = null; });
    update();
  });
}

function take(found) {
  const count = found.tokens.length;
  const layers = found.layers.map((layer) => ({ ...layer, parts: unpack(layer.attention, found.scale) }));
  figures = { ...found, layers, count, pieces: found.tokens.map((_, piece) => piece) };
  hovered = { piece: null, cell: null };
  if (!layers[state.layer - 1]?.heads.includes(Number(state.head)) && Number(state.head) !== MEAN) {
    Object.assign(state, { head: String(MEAN) });
  }
  if (!layers[state.layer - 1]) Object.assign(state, { layer: "1" });
}

/** Show a grid of all layers and heads: radio buttons with a picture each. */
function showHeads() {
  const most = Math.max(...figures.layers.flatMap((layer) => layer.heads));
  const names = [MEAN, ...Array.from({ length: most }, (_, head) => head + 1)];
  const grid = make("div", { className: "cells" });
  grid.style.setProperty("--heads", most);
  grid.classList.toggle("small", figures.count <= 48);
  const title = (words) => make("span", { className: "title", "aria-hidden": "true" }, words);
  grid.append(title(""), ...names.map((head) => title(head === MEAN ? "mean" : String(head))));
  figures.layers.forEach((layer, place) => {
    grid.append(title(String(place + 1)));
    for (const head of names) {
      if (head !== MEAN && !layer.heads.includes(head)) { grid.append(title("")); continue; } // pruned
      const values = attentionOf(layer, head, figures.count);
      const top = values.reduce((one, other) => Math.max(one, other), 0);
      const canvas = picture(figures.pieces, (row, column) => values[row * figures.count + column], top);
      const input = make("input", { type: "radio", name: "head", value: `${place + 1} ${head}` });
      input.setAttribute("aria-label", `layer ${place + 1}, ${head === MEAN ? "mean of all heads" : `head ${head}`}`);
      input.addEventListener("change", () => {
        keep({ layer: String(place + 1), head: String(head) });
        update();
      });
      const label = make("label", {}, input, make("span", {}, canvas));
      previews(label, { cell: [place + 1, head] });
      grid.append(label);
    }
  });
  find("heads").querySelector(".cells")?.remove();
  find("heads").append(grid);
}

/** Scroll to the selected head, if there are many. */
function showChosenHead() {
  const box = find("heads");
  box.scrollLeft = box.querySelector("input:checked").parentElement.offsetLeft - box.clientWidth / 2;
}

function showPieces() {
  find("looks").querySelectorAll("label").forEach((one) => one.remove());
  for (const piece of figures.pieces) {
    const input = make("input", { type: "radio", name: "look" });
    input.addEventListener("change", () => { keep({ piece: String(piece) }); update(); });
    const written = make("span", { dir: "auto" }, figures.tokens[piece]);
    const label = make("label", {}, input, make("span", {}, written, make("small")));
    previews(label, { piece });
    find("looks").append(label);
  }
}

/** Show the state, and the item under the mouse, in all parts of the panels. */
function update() {
  if (!figures) return;
  const { count, tokens } = figures;
  const [layer, head] = cell();
  const forward = !state.by;
  const matrix = attentionOf(figures.layers[layer - 1], head, count);
  const share = (row, column) => matrix[row * count + column];
  const pieces = shown();
  const here = current();
  const between = (piece) => (forward ? share(here, piece) : share(piece, here));
  const most = pieces.reduce((one, row) => pieces.reduce((two, column) => Math.max(two, share(row, column)), one), 0);
  const { isStrong } = colors();

  for (const input of find("heads").querySelectorAll("input")) {
    input.checked = input.value === `${state.layer} ${state.head}`;
    input.parentElement.classList.toggle("current", input.value === `${layer} ${head}`);
  }
  [...find("looks").querySelectorAll("label")].forEach((label, piece) => {
    label.hidden = !pieces.includes(piece);
    label.classList.toggle("current", piece === here);
    if (hovered.piece === null) label.querySelector("input").checked = piece === here;
    label.querySelector("small").textContent = percent(between(piece));
    shade(label.querySelector("input + span"), depth(between(piece), most), isStrong);
  });
  const strongest = pieces.reduce((one, other) => (between(other) > between(one) ? other : one));
  const bold = (piece) => make("b", {}, make("span", { dir: "auto" }, tokens[piece]));
  find("readout").replaceChildren(
    `Layer ${layer}, ${head === MEAN ? "mean of all heads" : `head ${head}`}: `, bold(here),
    forward ? " attends most to " : " is most attended to by ", bold(strongest), `, ${percent(between(strongest))}`);
  showDepth(here);
}

function showDepth(here) {
  const toLast = Boolean(state.last);
  const values = toLast ? figures.cosine_to_last : figures.cosine_to_previous;
  find("sharing").textContent = `${sharing(figures.layers)} If the cosine is near 1, a further layer changes little.`;
  find("plot").replaceChildren(cosinePlot({
    means: values.map(mean),
    ones: values.map((row) => row[here]),
    name: `${figures.tokens[here]} (${here + 1})`,
    first: toLast ? 0 : 1,
    toLast,
    width: Math.min(find("plot").clientWidth, 760),
  }));
}

/** Move between layers with the keys up and down. The browser moves between heads with left and right. */
function moveBetweenLayers(event) {
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const [layer, head] = event.target.value.split(" ").map(Number);
  const wanted = `${layer + step} ${head}`;
  const found = [...find("heads").querySelectorAll("input")].find((one) => one.value === wanted);
  found?.focus();
  found?.click();
}

export function insidePanels() {
  const clear = () => {
    figures = null;
    find("heads").querySelector(".cells")?.remove();
    find("looks").querySelectorAll("label").forEach((one) => one.remove());
    find("readout").replaceChildren();
    find("plot").replaceChildren();
  };
  const changed = settled(find("attention"), PAUSE, async (signal) => {
    if (!state.text.trim()) { clear(); return ""; }
    const body = { model: model.id, input: state.text, masks: true, truncation: true };
    const [found] = (await ask("v1/inspect", body, signal)).results;
    take(found);
    showHeads();
    showPieces();
    update();
    showChosenHead();
    return found.cut ? { note: `The last ${found.cut} tokens are not shown.` } : "";
  });
  find("heads").addEventListener("keydown", moveBetweenLayers);
  find("special").addEventListener("change", ({ target }) => {
    keep({ special: target.checked ? "1" : "" });
    update();
  });
  const redraw = () => { if (figures) { showHeads(); update(); } };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let width = 0;
  new ResizeObserver(([{ contentRect }]) => {
    if (contentRect.width !== width) { width = contentRect.width; update(); }
  }).observe(find("plot"));
  return {
    changed,
    use(one) {
      model = one;
      find("special").checked = Boolean(state.special);
      choices(find("directions"), [["", ["attends to"]], ["1", ["is attended to by"]]], state.by,
        (by) => { keep({ by }); update(); });
      choices(find("measures"), [["", ["the one before it"]], ["1", ["the one after the last layer"]]], state.last,
        (last) => { keep({ last }); update(); });
    },
  };
}
