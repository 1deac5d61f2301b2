// The page: loads the list of models, shows the panels for their tasks, and follows its address.

import { read, setDefaults, state } from "./address.js";
import { insidePanels } from "./inside.js";
import { find, offerLink, say } from "./panels.js";
import { sentencePanels } from "./sentence.js";
import { ask, onKeyWanted, useKey } from "./server.js";
import {
  answerPanel, choosePanel, classifyPanel, orderPanel, tagPanel, vectorPanel, zeroShotPanel,
} from "./texts.js";

let panels = []; // functions that show the state of a panel and send its request

const TASKS = { // in the order of a model's panels
  "fill-mask": ["fill", null], // and the panels of tokens and attention, which read the same sentence
  "sentence-order": ["order", orderPanel],
  "question-answering": ["answer", answerPanel],
  "text-classification": ["classify", classifyPanel],
  "zero-shot-classification": ["zero-shot", zeroShotPanel],
  "token-classification": ["tag", tagPanel],
  "multiple-choice": ["choose", choosePanel],
  "feature-extraction": ["vectors", vectorPanel],
};
/** Return the tasks that a model is for: every model computes vectors, but few were trained to. */
const tasksOf = ({ tasks }) => tasks.filter((task, place) => task !== "feature-extraction" || !place);

/** Show the panels of all tasks, in the order of the models. A sentence for models without masks is last. */
function build(models) {
  const able = (task) => models.filter((one) => tasksOf(one).includes(task));
  const tasks = [...new Set(models.flatMap((one) => Object.keys(TASKS).filter((task) => tasksOf(one).includes(task))))];
  const inOrder = [...new Set([...tasks, "fill-mask"])];
  const masked = able("fill-mask");
  const sections = inOrder.flatMap((task) => (
    task === "fill-mask" ? ["fill", "pieces", "attention", "depth"] : [TASKS[task][0]]).map(find));
  find("panels").prepend(...sections);
  let run = 0; // narrow panels side by side
  sections.forEach((section, place) => {
    section.hidden = false;
    run = section.classList.contains("wide") ? 0 : run + 1;
    const isLast = !sections[place + 1] || sections[place + 1].classList.contains("wide");
    if (isLast && run % 2) section.classList.add("wide"); // else half a row stays empty
  });
  panels = inOrder.map((task) => (task === "fill-mask"
    ? sentencePanels([...masked, ...models.filter((one) => !masked.includes(one))], insidePanels())
    : TASKS[task][1](able(task))));
  if (!masked.length) { // the sentence is the text of the panels before it
    const texts = () => state.classified || state.tagged || state.context || state.situation || state.compared || "";
    panels.splice(-1, 0, () => setDefaults({ text: texts() }));
  }
  find("copy").hidden = false;
}

async function start() {
  let models;
  try {
    models = (await ask("v1/models")).data;
  } catch (error) {
    say(error.message, true);
    return;
  }
  const names = models.map((one) => `${one.id} (${tasksOf(one).join(", ")})`).join(", ");
  say(models.length === 1 ? `${names}, with a maximum length of ${models[0].max_tokens} tokens` : names);
  if (!panels.length) build(models);
  panels.forEach((show) => show());
}

onKeyWanted(() => {
  if (find("key-form").hidden) {
    find("key-form").hidden = false;
    find("key").focus();
  }
});
find("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(find("key").value.trim());
  find("key").value = "";
  find("key-form").hidden = true;
  start();
});
offerLink();
addEventListener("hashchange", () => {
  read();
  panels.forEach((show) => show());
});
read();
start();
