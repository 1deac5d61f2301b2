// Parts of all panels: fields with texts of the address, a choice of models, bars.

import { address, keep, setDefaults, state } from "./address.js";
import { samplesOf } from "./samples.js";
import { make, percent } from "./shared.js";

export const PAUSE = 200; // ms between the last key and the request
export const find = (id) => document.getElementById(id);

/** Characters start to end of a text, as the server counts them: an emoji is one. */
export const characters = (text) => {
  const points = Array.from(text);
  return (start, end) => points.slice(start, end).join("");
};

/** Make a field change the state. Return a function that shows the state; a note reports text that does not fit. */
export function bind(id, name, changed) {
  const field = find(id);
  const note = make("p", { className: "note full", role: "status" });
  field.after(note);
  const take = () => {
    const most = field.maxLength;
    note.textContent = field.value.length < most ? "" : `Only the first ${most} characters fit here.`;
  };
  field.addEventListener("input", () => { take(); keep({ [name]: field.value }); changed(); });
  return () => {
    state[name] = state[name].slice(0, field.maxLength); // of a link
    if (field.value !== state[name]) field.value = state[name];
    take();
  };
}

/** Fill the select of a panel with the models, if there are several. Return a function for the chosen model. */
export function chooseModel(panel, able, name, changed) {
  const label = panel.querySelector(".model");
  const select = label.querySelector("select");
  select.replaceChildren(...able.map((one) => make("option", {}, one.id)));
  select.addEventListener("change", () => { keep({ [name]: select.value }); changed(true); });
  label.hidden = able.length < 2;
  return () => {
    const found = able.find((one) => one.id === state[name]) ?? able[0];
    select.value = found.id;
    return found;
  };
}

/** Show the samples of a model as buttons, which call `use`. The first sample is the default of the fields.
 * Return the function that shows them. */
export function offerSamples(panel, fields, use) {
  const list = make("div", { className: "samples", role: "group", hidden: true });
  list.setAttribute("aria-label", "Samples");
  panel.querySelector(".halves > div").append(list);
  return (model) => {
    const samples = samplesOf(panel.id, fields, model);
    setDefaults(samples[0]);
    list.hidden = samples.length < 2;
    list.replaceChildren(...samples.map((sample) => make("button", { type: "button", className: "plain", onclick: () => {
      keep(sample);
      use();
    } }, Object.values(sample).filter(Boolean).join(" / "))));
  };
}

/** Show words at the top of the page. */
export function say(words, isError = false) {
  find("about").textContent = words;
  find("about").classList.toggle("error", isError);
}

/** Make the button copy a link to the state of the page, and report it. */
export function offerLink() {
  find("copy").addEventListener("click", async () => {
    history.replaceState(null, "", address());
    try {
      await navigator.clipboard.writeText(location.href);
      say("The link is copied. It contains everything on this page.");
    } catch {
      say("The browser does not allow copying here. The link is in its address bar.");
    }
  });
}

/** Show rows with a name, a bar and a score; with `choose`, as buttons. Existing rows are changed, so that
 * bars move and the focus stays. `most` is the score of a full bar; `written` returns the text of a score. */
export function showBars(list, rows, { most = 1, choose = null, written = percent } = {}) {
  while (list.children.length > rows.length) list.lastChild.remove();
  while (list.children.length < rows.length) {
    const parts = ["name", "bar", "score"].map((kind) => make("span", { className: kind }));
    parts[0].dir = "auto";
    parts[1].append(make("span"));
    list.append(make("li", {}, make(choose ? "button" : "div", choose ? { type: "button" } : {}, ...parts)));
  }
  rows.forEach(({ name, score }, place) => {
    const row = list.children[place].firstChild;
    const [title, bar, number] = row.children;
    title.textContent = name;
    number.textContent = written(score);
    bar.firstChild.style.width = `${(100 * Math.max(score, 0)) / (most || 1)}%`;
    if (choose) row.onclick = () => choose(name);
  });
}
