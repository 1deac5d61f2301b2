// Panels with texts of their own: sentence order, question answering, classification, zero-shot classification.

import { keep, state } from "./address.js";
import { PAUSE, bind, characters, chooseModel, find, showBars } from "./panels.js";
import { ask } from "./server.js";
import { cutNote, settled } from "./settled.js";
import { choices, make, percent } from "./shared.js";

/** Set up a panel with its fields and its request. Return a function that shows the state and sends the request. */
function panel(id, models, fields, work) {
  const box = find(id);
  const asks = settled(box, PAUSE, (signal) => work(chosen().id, signal, chosen()));
  const chosen = chooseModel(box, models, id, () => asks(true));
  const shows = fields.map(([field, name]) => bind(field, name, () => asks()));
  return () => {
    shows.forEach((show) => show());
    asks(true);
  };
}

export function orderPanel(models) {
  const refresh = panel("order", models, [["first", "first"], ["second", "second"]], async (model, signal) => {
    const { first, second } = state;
    if (!first.trim() || !second.trim()) { find("judgement").replaceChildren(); return ""; }
    const pairs = [{ text: first, text_pair: second }, { text: second, text_pair: first }];
    const { results } = await ask("v1/order", { model, input: pairs, truncation: true }, signal);
    const [here, other] = results.map(({ label, score }) => (label === "in order" ? score : 1 - score));
    const [{ label, score, cut }] = results;
    if (!find("judgement").firstChild) {
      find("judgement").append(make("p", { className: "verdict" }), make("p", { className: "quiet" },
        "Probability that the first text comes first:"), make("ol", { className: "bars" }));
    }
    const [verdict, , bars] = find("judgement").children;
    verdict.replaceChildren("Prediction: ", make("b", {}, label), `, ${percent(score)}`);
    showBars(bars, [{ name: "in this order", score: here }, { name: "swapped", score: other }]);
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
  return panel("answer", models, [["question", "question"], ["context", "context"]], async (model, signal) => {
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
  const fields = [["classified", "classified"], ["classified-pair", "pair"]];
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
