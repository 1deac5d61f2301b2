// The state of the page in the part of its address after #. It makes a link, and browsers do not send it.

const defaults = {
  model: "", text: "The old man shook his [MASK] and said nothing.",
  layer: "1", head: "0", piece: "", by: "", special: "1", last: "",
  order: "", first: "She wrote a long letter to her brother.",
  second: "He read it twice, and then he threw it into the fire.",
  answer: "", question: "What did the captain carry?",
  context: "In the morning the captain carried a silver key to the harbour. His sister waited in the garden.",
  tagged: "Anna Schmidt moved from Zürich to the Berlin office of Siemens in May.",
  compared: "She plays the piano every evening.",
  others: "Every night she makes music.\nThe train to Vienna was late.\nHe repairs old pianos.",
  classify: "", classified: "A quiet, moving story that stays with you.", pair: "",
  "zero-shot": "", unlabeled: "The cook put the soup on the table.", candidates: "cooking, sailing, gardening",
  template: "This example is {}.",
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
