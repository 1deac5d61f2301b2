// The page: waits for the model, shows the panels for its task, and follows its address.

import { read } from "./address.js";
import { find, offerLink, say } from "./panels.js";
import { sentencePanels } from "./sentence.js";
import { ask, onProgress } from "./server.js";
import { make } from "./shared.js";
import { answerPanel, classifyPanel, tagPanel, vectorPanel } from "./texts.js";

const MEGABYTE = 1e6;
const NOTHING_INSIDE = { changed: () => {}, use: () => {} }; // this page has no panels of attention
const PANELS = {
  "fill-mask": [["fill", "pieces"], (models) => sentencePanels(models, NOTHING_INSIDE)],
  "question-answering": [["answer"], answerPanel],
  "text-classification": [["classify"], classifyPanel],
  "token-classification": [["tag"], tagPanel],
  "feature-extraction": [["vectors"], vectorPanel],
};

const LISTED = 12; // labels
const list = (labels) => (labels.length <= LISTED ? labels.join(", ")
  : `${labels.slice(0, LISTED).join(", ")} and ${labels.length - LISTED} more`);

let refresh = () => {};

async function show() {
  const models = (await ask("v1/models")).data;
  const [{ id, tasks: [task], max_tokens: most, labels, bytes }] = models;
  const [ids, panel] = PANELS[task];
  ids.forEach((one) => { find(one).hidden = false; find(one).classList.add("wide"); });
  refresh = panel(models);
  const facts = [["Name", id], ["Task", task], ["Labels", labels && list(labels)], ["Maximum length", `${most} tokens`],
    ["Download", `${(bytes / MEGABYTE).toFixed(1)} MB, once`]];
  find("facts").append(...facts.filter(([, value]) => value)
    .map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  find("about-model").hidden = find("copy").hidden = false;
  find("download").hidden = true;
  say(`${id} runs on this device, and your texts stay here.`);
  refresh();
}

onProgress(({ loaded, total, ready, failed }) => {
  if (failed) {
    find("download").hidden = true;
    say(failed, true);
  } else if (ready) {
    show().catch((error) => say(error.message, true));
  } else {
    find("progress").value = loaded / total;
    find("loaded").textContent = loaded < total
      ? `${(loaded / MEGABYTE).toFixed(1)} of ${(total / MEGABYTE).toFixed(1)} MB. `
        + "The browser keeps the model, so the next visit needs no network."
      : "Starting the model…";
  }
});

read();
say("Preparing the model…");
window.addEventListener("hashchange", () => { read(); refresh(); });
offerLink();
// Browsers keep only pages from https or from this machine. Others need a network for each visit.
const { serviceWorker } = navigator;
if (serviceWorker?.controller) { // a returning visitor, who sees the version that the browser kept
  serviceWorker.addEventListener("controllerchange", () => {
    find("about").after(make("p", { className: "note", role: "status" }, "This page was updated. Load it again."));
  }, { once: true });
}
serviceWorker?.register("service-worker.js").catch(() => {});
