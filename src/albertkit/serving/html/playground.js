// The page: loads the list of models, shows the panels for their tasks, and follows its address.

import { read } from "./address.js";
import { insidePanels } from "./inside.js";
import { find, offerLink, say } from "./panels.js";
import { sentencePanels } from "./sentence.js";
import { ask, onKeyWanted, useKey } from "./server.js";
import { answerPanel, classifyPanel, orderPanel, zeroShotPanel } from "./texts.js";

let panels = []; // functions that show the state of a panel and send its request

function build(models) {
  const able = (task) => models.filter((one) => one.tasks.includes(task));
  const kinds = [
    [["fill", "pieces", "attention", "depth"], models, () => sentencePanels(models, insidePanels())],
    [["order"], able("sentence-order"), orderPanel],
    [["answer"], able("question-answering"), answerPanel],
    [["classify"], able("text-classification"), classifyPanel],
    [["zero-shot"], able("zero-shot-classification"), zeroShotPanel],
  ].filter(([, able]) => able.length);
  for (const [ids, , ] of kinds) ids.forEach((id) => { find(id).hidden = false; });
  const narrow = [...document.querySelectorAll("main > section:not(.wide, [hidden])")];
  if (narrow.length % 2) narrow.at(-1).classList.add("wide"); // else half a row stays empty
  panels = kinds.map(([, able, make]) => make(able));
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
  const names = models.map((one) => one.id).join(", ");
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
