"use strict";

// Functions for the page of `inspect attention` and for the playground. The playground loads this file as a
// module; the page includes it in its script.

export const MEAN = 0; // the number of the mean of all heads; heads are counted from 1

/** Return a new element. Children are elements or strings. Strings become text, never markup. */
export function make(tag, { svg = false, ...options } = {}, ...children) {
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (!svg && name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Show radio buttons, each with a value, a content and a name for screen readers. The browser handles the keys. */
export function choices(fieldset, options, chosen, choose) {
  fieldset.querySelectorAll("label").forEach((label) => label.remove());
  for (const [value, content, name] of options) {
    const input = make("input", { type: "radio", name: fieldset.id, checked: value === chosen });
    if (name) input.setAttribute("aria-label", name);
    input.addEventListener("change", () => choose(value));
    fieldset.append(make("label", {}, input, make("span", {}, ...content)));
  }
}

/** Return probabilities (N, T, T) from base64 of little-endian 16-bit integers, divided by `scale`. */
export function unpack(packed, scale) {
  const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const values = new Float32Array(bytes.length / 2);
  for (let place = 0; place < values.length; place += 1) values[place] = view.getUint16(2 * place, true) / scale;
  return values;
}

/** Return the attention (T, T) of one head of a layer with unpacked `parts`, or the mean of all heads. */
export function attentionOf(layer, head, count) {
  const size = count * count;
  const start = layer.heads.indexOf(head) * size;
  if (head !== MEAN) return layer.parts.subarray(start, start + size);
  const values = new Float32Array(size);
  layer.parts.forEach((value, place) => { values[place % size] += value / layer.heads.length; });
  return values;
}

export const mean = (values) => values.reduce((one, other) => one + other, 0) / values.length;
export const percent = (value) => `${(100 * value).toFixed(1)}%`;
// Most shares are small. The square root makes them visible, and the legend shows the share of each color.
export const depth = (value, most) => (most > 0 ? Math.sqrt(value / most) : 0);

/** Return the colors of the light or dark page for a canvas, which does not support CSS variables. */
export function colors() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  const rgb = (name) => [1, 3, 5].map((place) => parseInt(read(name).slice(place, place + 2), 16));
  const [low, high] = [rgb("--surface"), rgb("--heat")];
  const flip = Number(read("--flip"));
  return { read, low, high, isStrong: (part) => part > flip };
}

export function shade(target, part, isStrong) {
  target.style.setProperty("--share", part);
  target.classList.toggle("strong", isStrong(part));
}

/** Return a canvas with a pixel for each pair of tokens, to be scaled with CSS. */
export function picture(pieces, value, most) {
  const { low, high } = colors();
  const canvas = make("canvas", { width: pieces.length, height: pieces.length });
  const context = canvas.getContext("2d");
  const image = context.createImageData(pieces.length, pieces.length);
  let place = 0;
  for (const row of pieces) {
    for (const column of pieces) {
      const part = depth(value(row, column), most);
      for (const channel of [0, 1, 2]) {
        image.data[place + channel] = low[channel] + (high[channel] - low[channel]) * part;
      }
      image.data[place + 3] = 255;
      place += 4;
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** Return a sentence about the weights that the layers share. */
export function sharing(layers) {
  const stored = new Set(layers.map((layer) => layer.stored)).size;
  return stored === 1
    ? `All ${layers.length} layers have the same weights.`
    : `${layers.length} layers are executed, with the weights of ${stored} stored layers.`;
}

/** Return a plot of cosines by layer, beginning with layer `first`: the mean of all tokens, and one token.
 *
 * They compare with the last layer if `toLast` is true, otherwise with the previous layer.
 */
export function cosinePlot({ means, ones, name, first, toLast, width }) {
  const [left, right, top, bottom, height] = [40, 20, 34, 38, 230];
  const low = Math.floor(10 * (Math.min(0.95, ...means, ...ones) - 0.05)) / 10; // room for numbers below
  const step = (width - left - right - 28) / Math.max(1, means.length - 1);
  const x = (place) => left + 14 + step * place;
  const y = (value) => top + ((height - top - bottom) * (1 - value)) / (1 - low);
  const every = Math.ceil(36 / step); // numbers must not touch
  const svg = (tag, options, ...children) => make(tag, { svg: true, ...options }, ...children);
  const text = (kind, place, level, anchor, written) =>
    svg("text", { class: kind, x: place, y: level, "text-anchor": anchor }, written);
  const line = (points, kind) => [
    svg("polyline", { class: `line ${kind}`, points: points.map((one, place) => [x(place), y(one)]) }),
    ...points.map((one, place) => svg("circle", { class: kind, cx: x(place), cy: y(one), r: 3.5 })),
  ];
  const grid = [low, (1 + low) / 2, 1].flatMap((level) => [
    svg("line", { class: "grid", x1: left, x2: width - right, y1: y(level), y2: y(level) }),
    text("quiet", left - 6, y(level) + 4, "end", level.toFixed(2)),
  ]);
  const numbers = means.flatMap((one, place) => (place % every ? [] : [
    text("", x(place), y(one) + (ones[place] > one ? 18 : -9), "middle", one.toFixed(2)),
    text("quiet", x(place), height - 18, "middle", String(first + place)),
  ]));
  const key = svg("text", { x: left, y: 14 },
    svg("tspan", { class: "mean-label" }, "● mean of all tokens"),
    svg("tspan", { class: "one-label", dx: 16 }, `● ${name}`));
  const other = toLast ? "after the last layer" : "before it";
  const spoken = means.map((one, place) => `layer ${first + place}: ${one.toFixed(2)}`).join(", ");
  const label = `Mean cosine of the vectors after each layer with those ${other}: ${spoken}`;
  return svg("svg", { width, height, role: "img", "aria-label": label },
    ...grid, ...line(ones, "one"), ...line(means, "mean"), ...numbers, key,
    text("quiet", width - right, height - 2, "end", "layer"));
}
