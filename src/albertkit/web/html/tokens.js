// The tokenizer: tokens of a text, and their characters in the text.

const MARK = "▁"; // what SentencePiece writes for the space before a word
const PUNCTUATION = /[\p{P}\p{S}]/u;
// Scripts without spaces between words, as in albertkit/tasks/token_classification.py.
const CHARACTER_WORD =
  /[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u{20000}-\u{3ffff}]/u;
const SPACE = /[^\S\ufeff]|[\x1c-\x1f\x85]/u; // as in Python
const INVISIBLE_SPACE = /[\u200b-\u200f\ufeff]/u; // a space after the normalization
const ALPHANUMERIC = /[\p{L}\p{N}]/u;

/** Return the words of a text, split like the training data of taggers: [start, end] in characters. */
export function splitWords(text) {
  const points = Array.from(text);
  const words = [];
  const addPunctuation = (start, end) => { // "..." is one word, ".)" are two
    for (let place = start; place < end;) {
      let stop = place + 1;
      while (stop < end && points[stop] === points[place]) stop += 1;
      words.push([place, stop]);
      place = stop;
    }
  };
  const addRun = (start, end) => { // punctuation, the word in it, punctuation
    let [first, last] = [start, end];
    while (first < last && PUNCTUATION.test(points[first])) first += 1;
    while (last > first && PUNCTUATION.test(points[last - 1])) last -= 1;
    addPunctuation(start, first);
    if (first < last) words.push([first, last]);
    addPunctuation(last, end);
  };
  let start = 0;
  points.forEach((point, place) => {
    const isWord = CHARACTER_WORD.test(point);
    if (!isWord && !SPACE.test(point)) return;
    addRun(start, place);
    if (isWord) words.push([place, place + 1]);
    start = place + 1;
  });
  addRun(start, points.length);
  return words;
}

/** Return a span of the text, extended if it begins or ends between two letters or digits. */
export function wholeWords(points, start, end) {
  const joined = (place) => place > 0 && place < points.length && [points[place - 1], points[place]]
    .every((point) => ALPHANUMERIC.test(point) && !CHARACTER_WORD.test(point));
  while (start < end && /\s/.test(points[start])) start += 1;
  while (start < end && /\s/.test(points[end - 1])) end -= 1;
  while (start > 0 && start < end && joined(start)) start -= 1;
  while (start < end && end < points.length && joined(end)) end += 1;
  return [start, end];
}

export class Reader {
  constructor(tokenizer, settings, config) {
    this.tokenizer = tokenizer;
    this.longest = Math.min(settings.model_max_length, config.max_position_embeddings);
    const id = (role) => tokenizer.token_to_id(settings[role]?.content ?? settings[role]);
    [this.first, this.last, this.mask] = ["cls_token", "sep_token", "mask_token"].map(id);
    this.unknown = id("unk_token");
    this.special = new Set(tokenizer.get_added_tokens_decoder().keys());
    this.special.delete(this.unknown); // it stands for other text
  }

  /** Return the tokens of a text, without [CLS] and [SEP]. */
  pieces(text) {
    const { ids, tokens } = this.tokenizer.encode(text, { add_special_tokens: false });
    return { ids, tokens };
  }

  /** Return a row of one or two lists of ids. `cut` is the number of truncated ids; the longer list is truncated first. */
  row(one, other = null) {
    const lists = other === null ? [[...one]] : [[...one], [...other]];
    const room = this.longest - 1 - lists.length;
    let cut = 0;
    while (lists.reduce((sum, list) => sum + list.length, 0) > room) {
      const longer = lists.length > 1 && lists[1].length >= lists[0].length ? 1 : 0;
      lists[longer].pop();
      cut += 1;
    }
    const ids = [this.first, ...lists.flatMap((list) => [...list, this.last])];
    const types = ids.map((_, place) => (lists.length > 1 && place > lists[0].length + 1 ? 1 : 0));
    return { ids, types, cut };
  }

  /** Return the characters [start, end] of each token; null if they cannot be determined.
   *
   * The characters of the text are normalized one by one, until the tokens are spelled.
   */
  places(text, { ids, tokens }) {
    const units = this.#normalizedUnits(text);
    const found = [];
    let unit = 0, rest = ""; // what a unit has left for the next token, such as the second letter of a ligature
    const skipped = (places) => { while (places(units[unit])) unit += 1; };
    for (let number = 0; number < tokens.length; number += 1) {
      if (!rest) skipped((one) => one && one.isSpace);
      let wanted = this.#spelling(ids[number], tokens[number]);
      const start = rest ? unit - 1 : unit;
      if (wanted === null) { // unknown: up to the next token
        const next = this.#spelling(ids[number + 1], tokens[number + 1] ?? "");
        while (unit < units.length && !units[unit].isSpace) {
          if (unit > start && next && units[unit].text.startsWith(next[0])) break;
          unit += 1;
        }
        rest = "";
      } else if (this.special.has(ids[number])) { // is in the text as it is
        while (wanted && unit < units.length && wanted.startsWith(units[unit].raw)) {
          wanted = wanted.slice(units[unit].raw.length);
          unit += 1;
        }
        if (wanted) return null;
      } else {
        while (wanted) {
          if (!rest) {
            if (unit >= units.length) return null;
            rest = units[unit].text;
            unit += 1;
          }
          const length = Math.min(rest.length, wanted.length);
          if (rest.slice(0, length) !== wanted.slice(0, length)) return null;
          [rest, wanted] = [rest.slice(length), wanted.slice(length)];
        }
        if (!rest && unit > start) skipped((one) => one && !one.isSpace && !one.text); // accents of the last letter
      }
      const end = unit > start ? units[unit - 1].end : units[start]?.start ?? Array.from(text).length;
      found.push([units[start]?.start ?? end, end]);
    }
    return found;
  }

  /** Return the text of a token; null for an unknown token without text. */
  #spelling(id, token) {
    if (id === this.unknown && token === this.tokenizer.id_to_token(id)) return null;
    if (this.special.has(id)) return token;
    if (token.startsWith("##")) return token.slice(2);
    return token.startsWith(MARK) ? token.slice(MARK.length) : token;
  }

  #normalizedUnits(text) {
    const normal = (part) => (this.tokenizer.normalizer ? this.tokenizer.normalizer(part) : part);
    const units = [];
    const points = Array.from(text);
    for (let place = 0; place < points.length;) {
      const pair = points[place] + (points[place + 1] ?? "");
      const size = pair === "``" || pair === "''" ? 2 : 1;
      const raw = points.slice(place, place + size).join("");
      const isSpace = SPACE.test(raw) || INVISIBLE_SPACE.test(raw);
      units.push({ raw, isSpace, text: isSpace ? "" : normal(raw).trim(), start: place, end: place + size });
      place += size;
    }
    return units;
  }
}
