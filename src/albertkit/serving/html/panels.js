// What the panels share: texts that are part of the address, models to choose from, bars.

import { address, keep, state } from "./address.js";
import { make, percent } from "./shared.js";

export const PAUSE = 200; // ms after the last key before the server is asked
export const find = (id) => document.getElementById(id);

/** Characters start to end of a text, as the server counts them: an emoji is one. */
export const characters = (text) => {
  const points = Array.from(text);
  return (start, end) => points.slice(start, end).join("");
};

/** Have a field change the state; returns what shows the state in the field. What does not fit is said. */
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

/** Have a panel's select choose among models, where there are several; returns the name of the one chosen. */
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

/** Have the button copy a link to what the page shows, and say so. */
export function offerLink(say) {
  find("copy").addEventListener("click", async () => {
    history.replaceState(null, "", address());
    try {
      await navigator.clipboard.writeText(location.href);
      say("The link is copied: it has all that is on this page.");
    } catch {
      say("The browser lets no page copy here; the link is in its address bar.");
    }
  });
}

/** Rows of a name, a bar and a percentage; buttons where they can be chosen. Rows that stay are changed, so
 * that bars move and the focus stays. `most` is the score of a full bar. */
export function showBars(list, rows, { most = 1, choose = null } = {}) {
  while (list.children.length > rows.length) list.lastChild.remove();
  while (list.children.length < rows.length) {
    const parts = ["name", "bar", "score"].map((kind) => make("span", { className: kind }));
    parts[0].dir = "auto";
    parts[1].append(make("span"));
    list.append(make("li", {}, make(choose ? "button" : "div", choose ? { type: "button" } : {}, ...parts)));
  }
  rows.forEach(({ name, score }, place) => {
    const row = list.children[place].firstChild;
    const [written, bar, number] = row.children;
    written.textContent = name;
    number.textContent = percent(score);
    bar.firstChild.style.width = `${(100 * score) / (most || 1)}%`;
    if (choose) row.onclick = () => choose(name);
  });
}
