// The figures of the page, and the state that selects the figures to show. Uses shared.js.

const data = JSON.parse(document.getElementById("data").textContent);
const count = data.tokens.length; // T
const layers = data.layers.map((layer) => ({ ...layer, parts: unpack(layer.attention, data.scale) }));
const everything = data.tokens.map((_, piece) => piece);
const inText = everything.filter((piece) => !data.special[piece]);
const state = {
  layer: 1, head: MEAN, forward: true, special: true, toLast: false,
  pinned: inText[0] ?? 0, hovered: null, cell: null, // tokens by index; a cell is [row, column]
};
let matrix = null; // (T, T) of the layer and head that are shown

/** Return the cosines of the selected measure by layer and token, beginning with layer `first`. */
function cosines() {
  return state.toLast ? { values: data.cosine_to_last, first: 0 }
    : { values: data.cosine_to_previous, first: 1 };
}

const share = (row, column) => matrix[row * count + column];
const between = (piece, other) => (state.forward ? share(piece, other) : share(other, piece));
const shown = () => (state.special || !inText.length ? everything : inText);
const current = () => state.hovered ?? state.pinned;
