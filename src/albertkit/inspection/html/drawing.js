// Draw the heat map and the plot. Uses shared.js, figures.js, and `find` of attention.js.

/** Give a canvas a size in CSS pixels, sharp on any screen. */
function prepare(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

let map = null; // where the cells of the heat map are

function drawHeat(most) {
  const { read, isStrong } = colors();
  const pieces = shown();
  const canvas = find("heat");
  const ruler = canvas.getContext("2d");
  ruler.font = "13px system-ui, sans-serif";
  const widest = Math.max(...pieces.map((piece) => ruler.measureText(data.tokens[piece]).width));
  const margin = Math.ceil(Math.min(widest, 110)) + 10;
  const room = find("heat-frame").clientWidth - margin - 2;
  const cell = Math.max(12, Math.min(42, Math.floor(room / pieces.length)));
  const gap = cell > 14 ? 1 : 0;
  const side = cell * pieces.length;
  const starts = new Map(pieces.map((piece, place) => [piece, margin + place * cell]));
  const start = (piece) => starts.get(piece);
  map = { pieces, margin, cell };

  const context = prepare(canvas, margin + side + 2, margin + side + 2);
  context.font = `${Math.min(13, cell - 1)}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  const write = (piece, isRow) => {
    const middle = start(piece) + cell / 2;
    context.save();
    context.translate(isRow ? margin - 6 : middle, isRow ? middle : margin - 6);
    if (!isRow) context.rotate(-Math.PI / 2);
    context.textAlign = isRow ? "right" : "left";
    context.fillStyle = read(piece === current() ? "--mark" : "--ink");
    context.fillText(data.tokens[piece], 0, 0, margin - 8);
    context.restore();
  };
  context.imageSmoothingEnabled = false;
  context.drawImage(picture(pieces, share, most), margin, margin, side, side);
  context.fillStyle = read("--surface");
  for (const piece of pieces) {
    context.fillRect(start(piece) + cell - gap, margin, gap, side);
    context.fillRect(margin, start(piece) + cell - gap, side, gap);
  }
  for (const row of pieces) {
    write(row, true);
    write(row, false);
    if (cell < 30) continue;
    context.textAlign = "center";
    for (const column of pieces) {
      const value = share(row, column);
      context.fillStyle = read(isStrong(depth(value, most)) ? "--on-heat" : "--on-pale");
      const middle = [start(column) + (cell - gap) / 2, start(row) + (cell - gap) / 2 + 1];
      context.fillText(String(Math.round(100 * value)), ...middle);
    }
  }
  context.strokeStyle = read("--line");
  context.strokeRect(margin - 0.5, margin - 0.5, side + 1, side + 1);
  context.strokeStyle = read("--mark");
  context.lineWidth = 2;
  if (state.forward) context.strokeRect(margin, start(current()), side, cell);
  else context.strokeRect(start(current()), margin, cell, side);
  if (state.cell) {
    context.lineWidth = 4;
    context.strokeRect(start(state.cell[1]), start(state.cell[0]), cell, cell);
  }
}

/** Draw the mean cosine of all tokens, and the cosine of the current token, by layer. */
function drawPlot() {
  const { values, first } = cosines();
  find("plot").replaceChildren(cosinePlot({
    means: values.map(mean),
    ones: values.map((row) => row[current()]),
    name: `${data.tokens[current()]} (${current() + 1})`,
    first,
    toLast: state.toLast,
    width: Math.min(find("plot").clientWidth, 760),
  }));
}
