// The parts of the page. Uses shared.js, figures.js and drawing.js; the page combines them into one script.

const find = (id) => document.getElementById(id);

/** Show radio buttons that update the page. */
function switches(fieldset, options, chosen, choose) {
  choices(fieldset, options, chosen, (value) => { choose(value); update(); });
}

const written = (piece) => make("span", { dir: "auto" }, data.tokens[piece]);
const numbered = (piece) => [written(piece), make("small", {}, String(piece + 1))]; // a token can occur several times
const bold = (piece) => make("b", {}, ...numbered(piece));
const rowHead = (piece) => make("th", { scope: "row" }, ...numbered(piece));

/** Show a token while the mouse is on `target`. */
function previews(target, piece) {
  target.addEventListener("pointerenter", (event) => {
    if (event.pointerType === "mouse") { state.hovered = piece; update(); }
  });
  target.addEventListener("pointerleave", () => {
    if (state.hovered === piece) { state.hovered = null; update(); }
  });
}

// --- the parts of the page -------------------------------------------------------------------------

function showHeads() {
  const layer = layers[state.layer - 1];
  if (!layer.heads.includes(state.head)) state.head = MEAN;
  const options = [MEAN, ...layer.heads].map((head) => {
    const values = attentionOf(layer, head, count);
    const most = values.reduce((one, other) => Math.max(one, other), 0);
    const canvas = picture(everything, (row, column) => values[row * count + column], most);
    canvas.classList.toggle("small", count <= 48);
    return head === MEAN ? [head, [canvas, "mean"], "mean of all heads"]
      : [head, [canvas, String(head)], `head ${head}`];
  });
  switches(find("heads"), options, state.head, (head) => { state.head = head; });
}

function showPieces(most) {
  const visible = new Set(shown());
  const { isStrong } = colors();
  for (const label of find("pieces").querySelectorAll("label")) {
    const piece = Number(label.dataset.piece);
    const value = between(current(), piece);
    label.hidden = !visible.has(piece);
    label.classList.toggle("current", piece === current());
    label.querySelector("input").checked = piece === state.pinned;
    label.querySelector("small").textContent = percent(value);
    shade(label.querySelector("input + span"), depth(value, most), isStrong);
  }
}

function showStrongest() {
  const found = shown().map((piece) => [piece, between(current(), piece)]);
  found.sort(([, one], [, other]) => other - one);
  const rows = found.slice(0, 12).map(([piece, value]) => {
    const bar = make("span", { className: "bar" });
    bar.style.width = `${(100 * value) / (found[0][1] || 1)}%`;
    return make("tr", {}, rowHead(piece), make("td", {}, bar), make("td", {}, percent(value)));
  });
  const table = find("strongest");
  table.caption.replaceChildren(
    bold(current()), state.forward ? " attends to" : " is attended to by", ", most first");
  table.tBodies[0].replaceChildren(...rows);
}

function showLegend(most) {
  const parts = [0, 0.25, 0.5, 0.75, 1]; // the inverse of `depth` returns the share of a color
  find("ticks").replaceChildren(...parts.map((part) => make("span", {}, percent(most * part * part))));
}

function showReadout() {
  const head = state.head === MEAN ? "mean of all heads" : `head ${state.head}`;
  const where = `Layer ${state.layer}, ${head}: `;
  if (state.cell) {
    const [row, column] = state.cell;
    find("readout").replaceChildren(
      where, bold(row), " attends to ", bold(column), `, ${percent(share(row, column))}`);
    return;
  }
  const value = (piece) => between(current(), piece);
  const strongest = shown().reduce((one, other) => (value(other) > value(one) ? other : one));
  find("readout").replaceChildren(
    where, bold(current()), state.forward ? " attends most to " : " is most attended to by ",
    bold(strongest), `, ${percent(value(strongest))}`);
}

function showCosines() {
  const { values, first } = cosines();
  const { isStrong } = colors();
  const furthest = Math.max(1e-9, ...values.flat().map((value) => 1 - value));
  const cells = (numbers) => numbers.map((value) => {
    const cell = make("td", { className: "shaded" }, value.toFixed(3));
    shade(cell, (1 - value) / furthest, isStrong);
    return cell;
  });
  const rows = shown().map((piece) => {
    const row = make("tr", {}, rowHead(piece), ...cells(values.map((one) => one[piece])));
    row.dataset.piece = piece;
    previews(row, piece);
    return row;
  });
  const heads = ["layer", ...values.map((_, place) => String(first + place))];
  const average = make("th", { scope: "row" }, "mean");
  const table = find("cosines");
  table.tHead.replaceChildren(make("tr", {}, ...heads.map((name) => make("th", { scope: "col" }, name))));
  table.tBodies[0].replaceChildren(
    make("tr", { className: "mean" }, average, ...cells(values.map(mean))), ...rows);
}

// --- one change, all parts -------------------------------------------------------------------------

let drawn = {}; // the state that the slower parts show

function update() {
  const pieces = shown();
  if (!pieces.includes(state.pinned)) state.pinned = pieces[0];
  if (state.layer !== drawn.layer) showHeads();
  if (state.layer !== drawn.layer || state.head !== drawn.head) {
    matrix = attentionOf(layers[state.layer - 1], state.head, count);
  }
  const most = Math.max(...pieces.map((row) => Math.max(...pieces.map((column) => share(row, column)))));
  showPieces(most);
  showStrongest();
  showReadout();
  drawHeat(most);
  showLegend(most);
  if (state.toLast !== drawn.toLast || state.special !== drawn.special) showCosines();
  for (const row of find("cosines").querySelectorAll("[data-piece]")) {
    row.classList.toggle("current", Number(row.dataset.piece) === current());
  }
  drawPlot();
  drawn = { ...state };
}

function pointAt(cell) {
  if (String(state.cell) === String(cell)) return;
  state.cell = cell;
  state.hovered = cell && cell[state.forward ? 0 : 1];
  update();
}

function listenToHeat() {
  const canvas = find("heat");
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  const cellAt = (event) => {
    const found = [event.offsetY, event.offsetX].map(
      (offset) => map.pieces[Math.floor((offset - map.margin) / map.cell)]);
    return found.includes(undefined) ? null : found;
  };
  canvas.addEventListener("pointermove", (event) => pointAt(cellAt(event)));
  canvas.addEventListener("pointerleave", () => pointAt(null));
  canvas.addEventListener("blur", () => pointAt(null));
  canvas.addEventListener("click", (event) => {
    const cell = cellAt(event);
    if (cell) { state.pinned = cell[state.forward ? 0 : 1]; update(); }
  });
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in steps)) return;
    event.preventDefault(); // the page must not scroll
    const last = map.pieces.length - 1;
    const move = (piece, by) => map.pieces[Math.max(0, Math.min(last, map.pieces.indexOf(piece) + by))];
    const start = state.cell ?? [current(), current()];
    pointAt(start.map((piece, axis) => move(piece, steps[event.key][axis])));
  });
}

function buildPieces() {
  everything.forEach((piece) => {
    const begins = piece === 0 || data.segments[piece] !== data.segments[piece - 1];
    if (data.text_pair !== null && begins) {
      const side = data.segments[piece] ? "second text" : "first text";
      find("pieces").append(make("span", { className: "side" }, side));
    }
    const input = make("input", { type: "radio", name: "pieces" });
    input.addEventListener("change", () => { state.pinned = piece; update(); });
    const label = make("label", {}, input, make("span", {}, written(piece), make("small")));
    label.dataset.piece = piece;
    previews(label, piece);
    find("pieces").append(label);
  });
}

function build() {
  const stored = new Set(layers.map((layer) => layer.stored)).size;
  const texts = [data.text, data.text_pair].filter((text) => text !== null);
  document.title = `Attention: ${texts.join(" / ").slice(0, 80)}`;
  find("texts").append(...texts.map((text) => make("p", { dir: "auto" }, text)));
  const heads = `${layers[0].heads.length} heads`;
  const cut = data.cut ? ` (${data.cut} more were truncated)` : "";
  find("about").textContent =
    `${data.model}: ${layers.length} layers executed, ${stored} stored; ${heads}; ${count} tokens${cut}`;
  find("sharing").textContent = `${sharing(layers)} If the cosine is near 1, a further layer changes little.`;
  const names = layers.map((layer, place) => [
    place + 1, [String(place + 1)], `layer ${place + 1}, weights ${layer.stored} of ${stored}`]);
  switches(find("layers"), names, state.layer, (layer) => { state.layer = layer; });
  switches(find("directions"), [[true, ["attends to"]], [false, ["is attended to by"]]], true,
    (forward) => { state.forward = forward; });
  switches(find("measures"), [[false, ["the one before it"]], [true, ["the one after the last layer"]]], false,
    (toLast) => { state.toLast = toLast; });
  buildPieces();
  find("special").addEventListener("change", (event) => { state.special = event.target.checked; update(); });
  listenToHeat();
  const redraw = () => { drawn = {}; update(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  update();
  let width = find("heat-frame").clientWidth;
  new ResizeObserver(([{ contentRect }]) => {
    if (contentRect.width !== width) { width = contentRect.width; update(); }
  }).observe(find("heat-frame"));
}

build();
