// The state of the page in the part of its address after #. It makes a link, and browsers do not send it.

const TEXTS = [ // their defaults are in samples.js
  "text", "first", "second", "question", "context", "situation", "asked", "options", "tagged", "compared", "others",
  "classified", "pair", "unlabeled", "candidates", "template",
];
const defaults = {
  ...Object.fromEntries(TEXTS.map((name) => [name, undefined])),
  model: "", layer: "1", head: "0", piece: "", by: "", special: "1", last: "",
  order: "", answer: "", choose: "", tag: "", vectors: "", classify: "", "zero-shot": "",
};
const PAUSE = 300; // ms; browsers limit how often a page may change its address

export const state = { ...defaults };
let timer = 0;

/** Read the state from the address. Missing values get their defaults. */
export function read() {
  clearTimeout(timer);
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(defaults)) state[name] = given.get(name) ?? defaults[name];
}

/** Change default values, and values that still are the default. */
export function setDefaults(changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (state[name] === defaults[name]) state[name] = value;
    defaults[name] = value;
  }
}

/** Return the address with the state. */
export function address() {
  const changed = Object.entries(state).filter(([name, value]) => value !== defaults[name]);
  const hash = new URLSearchParams(changed).toString();
  return location.pathname + location.search + (hash && `#${hash}`);
}

/** Change the state, and soon also the address. */
export function keep(changes) {
  Object.assign(state, changes);
  clearTimeout(timer);
  timer = setTimeout(() => history.replaceState(null, "", address()), PAUSE);
}
