// Panels with texts of their own: one for each task but fill-mask.

import { keep, state } from "./address.js";
import { PAUSE, bind, characters, chooseModel, find, offerSamples, showBars } from "./panels.js";
import { ask } from "./server.js";
import { cutNote, settled } from "./settled.js";
import { choices, make, percent } from "./shared.js";

/** Set up a panel with its request and its fields: each with its id, its name in the address, and in inputs.
 * Return a function that shows the state and sends the request. */
function panel(id, models, fields, work) {
  const box = find(id);
  const refresh = () => {
    offer(chosen());
    shows.forEach((show) => show());
    asks(true);
  };
  const asks = settled(box, PAUSE, (signal) => work(chosen().id, signal, chosen()));
  const chosen = chooseModel(box, models, id, refresh);
  const shows = fields.map(([field, name]) => bind(field, name, () => asks()));
  const offer = offerSamples(box, fields, refresh);
  return refresh;
}

export function orderPanel(models) {
  const refresh = panel("order", models, [["first", "first", "text"], ["second", "second", "text_pair"]], async (model, signal) => {
    const { first, second } = state;
    if (!first.trim() || !second.trim()) { find("judgement").replaceChildren(); return ""; }
    const input = { text: first, text_pair: second };
    const [{ label, score, cut }] = (await ask("v1/order", { model, input, truncation: true }, signal)).results;
    const inOrder = label === "in order" ? score : 1 - score;
    if (!find("judgement").firstChild) {
      find("judgement").append(make("p", { className: "verdict" }), make("ol", { className: "bars" }));
    }
    const [verdict, bars] = find("judgement").children;
    verdict.textContent = `In this order ${percent(inOrder)}, swapped ${percent(1 - inOrder)}`;
    showBars(bars, [{ name: "in this order", score: inOrder }, { name: "swapped", score: 1 - inOrder }]);
    return cutNote(cut) ?? verdict.textContent;
  });
  find("swap").addEventListener("click", () => {
    keep({ first: state.second, second: state.first });
    refresh();
  });
  return refresh;
}

export function answerPanel(models) {
  const clear = () => {
    find("answers").hidden = true;
    find("marked").replaceChildren();
  };
  const fields = [["question", "question", "question"], ["context", "context", "context"]];
  return panel("answer", models, fields, async (model, signal) => {
    const { question, context } = state;
    if (!question.trim() || !context.trim()) { clear(); return ""; }
    const body = { model, input: { question, context }, top_k: 3 };
    const [found] = (await ask("v1/answer", body, signal)).results;
    const from = characters(context);
    const mark = ({ start, end }) => {
      const answer = end > start ? [make("mark", {}, from(start, end))] : [];
      find("marked").replaceChildren(from(0, start), ...answer, from(end));
    };
    const options = found.map((one) => [one, [
      make("span", { dir: "auto" }, one.answer || "(no answer)"), " ", make("small", {}, percent(one.score))]]);
    choices(find("answers"), options, found[0], mark);
    find("answers").hidden = false;
    mark(found[0]);
    const [{ answer, cut }] = found; // a server reads contexts of any length, and cuts nothing
    return cutNote(cut) ?? (answer ? `Answer: ${answer}` : "The model finds no answer in the text.");
  });
}

export function classifyPanel(models) {
  const fields = [["classified", "classified", "text"], ["classified-pair", "pair", "text_pair"]];
  const second = find("classified-pair");
  return panel("classify", models, fields, async (model, signal, { text_pairs: readsPairs }) => {
    [second, second.labels[0]].forEach((one) => { one.hidden = readsPairs === false; }); // null: unknown
    const { classified: text } = state;
    const pair = second.hidden ? "" : state.pair;
    if (!text.trim()) { find("labels").replaceChildren(); return ""; }
    const input = pair.trim() ? { text, text_pair: pair } : text;
    const [labels] = (await ask("v1/classify", { model, input, top_k: 12, truncation: true }, signal)).results;
    const [best] = labels;
    const written = labels.length > 1 ? percent : (score) => score.toFixed(2); // such as a rating of 1 to 5
    const most = Math.max(1, best.score);
    showBars(find("labels"), labels.map(({ label, score }) => ({ name: label, score })), { most, written });
    const truncated = cutNote(best.cut);
    if (readsPairs && !pair.trim()) {
      const advice = "This model was trained on pairs of texts. Enter the second text too.";
      return { note: truncated ? `${truncated.note} ${advice}` : advice };
    }
    if (best.predicted !== undefined && best.predicted !== null) { // the model has thresholds
      const names = labels.filter((one) => one.predicted).map(({ label }) => label);
      const note = `Predicted: ${names.join(", ") || "no label, because none exceeds its threshold"}.`;
      return { note: truncated ? `${truncated.note} ${note}` : note };
    }
    return truncated ?? `${best.label}, ${written(best.score)}`;
  });
}

export function zeroShotPanel(models) {
  const fields = [["zero-shot-text", "unlabeled"], ["zero-shot-labels", "candidates"], ["zero-shot-template", "template"]];
  return panel("zero-shot", models, fields, async (model, signal) => {
    const { unlabeled: input, template } = state;
    const names = [...new Set(state.candidates.split(",").map((one) => one.trim()).filter(Boolean))];
    if (!input.trim() || !names.length) { find("zero-shot-scores").replaceChildren(); return ""; }
    const body = { model, input, candidate_labels: names, hypothesis_template: template, truncation: true };
    const [labels] = (await ask("v1/zero-shot", body, signal)).results;
    showBars(find("zero-shot-scores"), labels.map(({ label, score }) => ({ name: label, score })));
    return cutNote(labels[0].cut) ?? `${labels[0].label}, ${percent(labels[0].score)}`;
  });
}

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

export function choosePanel(models) {
  const fields = [["situation", "situation"], ["asked", "asked"], ["options", "options"]];
  return panel("choose", models, fields, async (model, signal) => {
    const { situation: context, asked } = state;
    const choices = lines(state.options);
    if (!context.trim() || choices.length < 2) { find("chosen").replaceChildren(); return ""; }
    const input = { context, question: asked.trim() || null, choices };
    const [{ choice, scores, cut }] = (await ask("v1/choose", { model, input, truncation: true }, signal)).results;
    const rows = choices.map((name, place) => ({ name, score: scores[place] }));
    rows.sort((one, other) => other.score - one.score);
    showBars(find("chosen"), rows);
    return cutNote(cut) ?? `${choice}, ${percent(rows[0].score)}`;
  });
}

export function tagPanel(models) {
  return panel("tag", models, [["tagged", "tagged", "text"]], async (model, signal) => {
    const { tagged: text } = state;
    if (!text.trim()) { find("tags").replaceChildren(); return ""; }
    const [found] = (await ask("v1/tag", { model, input: text, aggregation_strategy: "first" }, signal)).results;
    const { words, cut } = found.words ? found // of the page without a server
      : { words: found.map((one) => ({ ...one, label: one.entity_group })), cut: 0 };
    const named = words.filter(({ label }) => label !== "O");
    const from = characters(text);
    let end = 0;
    find("tags").replaceChildren(...named.flatMap(({ start, end: stop, label, score }) => {
      const before = from(end, start);
      end = stop;
      const title = `${label}, ${percent(score)}`;
      return [before, make("span", { className: "tagged", title }, from(start, stop), make("small", {}, label))];
    }), from(end));
    const spoken = named.map((one) => `${from(one.start, one.end)}: ${one.label}`).join(", ");
    return cutNote(cut) ?? (spoken || { note: "No word has a label other than O." });
  });
}

const product = (one, other) => one.reduce((sum, value, place) => sum + value * other[place], 0);

export function vectorPanel(models) {
  return panel("vectors", models, [["compared", "compared"], ["others", "others"]], async (model, signal) => {
    const given = lines(state.others);
    if (!state.compared.trim() || !given.length) { find("cosines").replaceChildren(); return ""; }
    const body = { model, input: [state.compared, ...given], truncation: true };
    const { data } = await ask("v1/embeddings", body, signal);
    const [first, ...vectors] = data.map(({ embedding }) => embedding);
    const cosines = vectors.map((one) => product(first, one) / Math.sqrt(product(first, first) * product(one, one)));
    const rows = given.map((name, place) => ({ name, score: cosines[place] }));
    rows.sort((one, other) => other.score - one.score);
    showBars(find("cosines"), rows, { written: (score) => score.toFixed(3) });
    const cut = data.reduce((sum, one) => sum + (one.cut ?? 0), 0);
    return cutNote(cut) ?? `Nearest: ${rows[0].name}, ${rows[0].score.toFixed(3)}`;
  });
}
