// The model: computes the responses of the routes of `albertkit serve`.

import { splitWords, wholeWords } from "./tokens.js";

/** Return the probabilities of scores. */
function softmax(scores) {
  const most = scores.reduce((one, other) => Math.max(one, other), -Infinity);
  const powers = Float64Array.from(scores, (score) => Math.exp(score - most));
  const sum = powers.reduce((one, other) => one + other, 0);
  return powers.map((power) => power / sum);
}

const sigmoid = (score) => 1 / (1 + Math.exp(-score));
const logSumExp = (scores) => {
  const most = scores.reduce((one, other) => Math.max(one, other), -Infinity);
  return most + Math.log(scores.reduce((sum, score) => sum + Math.exp(score - most), 0));
};
/** Return the predicted names, as `LabelSet.predict` in Python. */
function predicted(names, scores, thresholds, isSeveral) {
  const score = (name) => scores[names.indexOf(name)];
  const passed = names.filter((name) => score(name) > (thresholds[name] ?? (isSeveral ? 0.5 : Infinity)));
  if (isSeveral) return passed;
  const best = (some) => some.reduce((one, other) => (score(other) > score(one) ? other : one));
  if (passed.length) return [best(passed)];
  const limits = names.map((name) => thresholds[name] ?? Infinity);
  const mayAbstain = limits.reduce((sum, limit) => sum + limit, 0) > 1 + 1e-9;
  return mayAbstain && best(names) in thresholds ? [] : [best(names)];
}
const largest = (scores, count) => Array.from(scores, (score, place) => [score, place])
  .sort(([one, first], [other, second]) => other - one || first - second).slice(0, count);

export class Model {
  constructor({ ort, session, reader, config, name, task, ...about }) {
    Object.assign(this, { ort, session, reader, config, name, task, about });
  }

  /** Return the response of a route to a body. */
  async ask(path, body) {
    const route = this.#routes[path];
    if (!route) throw new Error(`This page does not support ${path}.`);
    return route(body);
  }

  #routes = {
    "v1/models": async () => ({
      data: [{ id: this.name, tasks: [this.task], max_tokens: this.reader.longest,
        text_pairs: this.config.text_pairs ?? null, labels: this.#labels(), ...this.about }],
    }),
    "v1/tokenize": async ({ input }) => ({ results: [this.#tokenize(input)] }),
    "v1/fill-mask": async ({ input, top_k: count }) => this.#fill(input, count),
    "v1/classify": async ({ input, top_k: count }) => ({ results: [await this.#classify(input, count)] }),
    "v1/answer": async ({ input, top_k: count }) => ({ results: [await this.#answer(input, count)] }),
    "v1/tag": async ({ input }) => ({ results: [await this.#tag(input)] }),
    "v1/embeddings": async ({ input }) => ({ data: await this.#embed(input) }),
  };

  /** Return the outputs for one row, by name. */
  async #run({ ids, types }) {
    const tensor = (values) => new this.ort.Tensor("int64", BigInt64Array.from(values, BigInt), [1, values.length]);
    return this.session.run({
      input_ids: tensor(ids),
      attention_mask: tensor(ids.map(() => 1)),
      token_type_ids: tensor(types),
    });
  }

  #tokenize(text) {
    const { ids, tokens } = this.reader.pieces(text);
    const offsets = this.reader.places(text, { ids, tokens });
    const nowhere = [0, 0];
    return {
      tokens: [this.reader.tokenizer.id_to_token(this.reader.first), ...tokens,
        this.reader.tokenizer.id_to_token(this.reader.last)],
      input_ids: [this.reader.first, ...ids, this.reader.last],
      offsets: [nowhere, ...(offsets ?? ids.map(() => nowhere)), nowhere],
    };
  }

  async #fill(text, count) {
    const row = this.reader.row(this.reader.pieces(text).ids);
    const outputs = await this.#run(row);
    const logits = outputs.logits ?? outputs.prediction_logits; // as AlbertForPreTraining names them
    const masks = row.ids.flatMap((id, place) => (id === this.reader.mask ? [place] : []));
    if (!masks.length) {
      throw new Error(`The first ${this.reader.longest} tokens, the maximum length, contain no mask. Shorten the text.`);
    }
    const width = logits.dims.at(-1);
    const candidates = masks.map((place) => {
      const scores = softmax(logits.data.subarray(place * width, (place + 1) * width));
      return largest(scores, count).map(([score, token]) => ({
        score, token, token_str: this.reader.tokenizer.decode([token]),
      }));
    });
    return { results: [candidates], cut: row.cut };
  }

  async #classify(input, count) {
    const [text, pair] = typeof input === "string" ? [input, null] : [input.text, input.text_pair];
    const row = this.reader.row(this.reader.pieces(text).ids, pair === null ? null : this.reader.pieces(pair).ids);
    const { logits: { data } } = await this.#run(row);
    const kind = this.config.problem_type ?? (data.length === 1 ? "multi_label_classification" : "");
    const scores = kind === "multi_label_classification" ? Array.from(data, sigmoid)
      : kind === "regression" ? Array.from(data) : softmax(data);
    const { thresholds } = this.config;
    const names = Array.from(scores, (_, number) => this.#label(number));
    const chosen = thresholds && predicted(names, scores, thresholds, kind === "multi_label_classification");
    return largest(scores, count).map(([score, number]) => ({
      label: names[number], score, ...(row.cut ? { cut: row.cut } : {}),
      ...(chosen ? { predicted: chosen.includes(names[number]) } : {}),
    }));
  }

  #labels() {
    const isClassifier = ["text-classification", "token-classification"].includes(this.task);
    return isClassifier ? Object.keys(this.config.id2label ?? {}).map((number) => this.#label(number)) : null;
  }

  #label(number) { return this.config.id2label?.[number] ?? `LABEL_${number}`; }

  async #tag(text) {
    const points = Array.from(text);
    const words = splitWords(text).map(([start, end]) => (
      { start, end, ids: this.reader.pieces(points.slice(start, end).join("")).ids }));
    const row = this.reader.row(words.flatMap(({ ids }) => ids));
    const { logits } = await this.#run(row);
    const width = logits.dims.at(-1);
    let place = 1; // after [CLS]
    const found = [];
    for (const { start, end, ids } of words) {
      if (place + ids.length >= row.ids.length) break; // cut off
      if (ids.length) {
        const [[score, number]] = largest(softmax(logits.data.subarray(place * width, (place + 1) * width)), 1);
        found.push({ start, end, label: this.#label(number), score });
      }
      place += ids.length;
    }
    return { words: found, cut: row.cut };
  }

  async #answer({ question, context }, count) {
    const text = this.reader.pieces(context);
    const asked = this.reader.pieces(question).ids;
    const most = Math.floor(this.reader.longest / 2); // as the pipeline of Python
    if (asked.length > most) {
      throw new Error(`The question has ${asked.length} tokens. Expected at most ${most}. Shorten it.`);
    }
    const room = this.reader.longest - asked.length - 3;
    const row = this.reader.row(asked, text.ids.slice(0, room));
    const places = this.reader.places(context, text);
    if (places === null) throw new Error("The answer cannot be located in this text. Try it without unusual characters.");
    const left = text.ids.length - room;
    const cut = left > 0 ? { cut: left } : {};
    const outputs = await this.#run(row);
    const [starts, ends] = [outputs.start_logits.data, outputs.end_logits.data];
    const first = asked.length + 2;
    const size = Math.min(text.ids.length, room);
    const possible = [0, ...Array.from({ length: size }, (_, place) => first + place)];
    const norm = [starts, ends].reduce((sum, one) => sum + logSumExp(possible.map((place) => one[place])), 0);
    const longest = this.config.task_settings?.max_answer_length ?? 30;
    const spans = [];
    for (let start = 0; start < size; start += 1) {
      for (let end = start; end < Math.min(size, start + longest); end += 1) {
        spans.push([starts[first + start] + ends[first + end], start, end]);
      }
    }
    spans.sort(([one], [other]) => other - one);
    const points = Array.from(context);
    const answers = [];
    for (const [logit, one, other] of spans) {
      const [start, end] = wholeWords(points, places[one][0], places[other][1]);
      if (start >= end || answers.some((known) => start < known.end && known.start < end)) continue;
      const answer = points.slice(start, end).join("");
      answers.push({ answer, start, end, logit, score: Math.exp(logit - norm), ...cut });
      if (answers.length === count) break;
    }
    const logit = starts[0] + ends[0];
    const none = { answer: "", start: 0, end: 0, logit, score: Math.exp(logit - norm), ...cut };
    const threshold = this.config.null_score_diff_threshold;
    if (threshold === undefined || threshold === null) return answers.length ? answers : [none];
    const better = answers.filter((one) => one.logit >= none.logit - threshold);
    return [...better, none, ...answers.slice(better.length)].slice(0, count);
  }

  async #embed(texts) {
    const found = [];
    for (const text of texts) {
      const row = this.reader.row(this.reader.pieces(text).ids);
      const { last_hidden_state: { data, dims } } = await this.#run(row);
      const width = dims.at(-1);
      const vector = new Float64Array(width);
      const read = this.config.sentence_pooling === "cls" ? 1 : row.ids.length;
      for (let place = 0; place < read * width; place += 1) vector[place % width] += data[place] / read;
      const length = this.config.sentence_normalize ? Math.hypot(...vector) || 1 : 1;
      found.push({ embedding: Array.from(vector, (value) => value / length), cut: row.cut });
    }
    return found;
  }
}
