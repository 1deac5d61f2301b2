// transformers.js in Node: the folders of `albertkit export web`, with the ids of their tokenizers.
//
//     node transformers_js_models.mjs FOLDER
//
// FOLDER is what models.py filled; the lines that are printed are those that comparing.py describes.

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import * as library from "@huggingface/transformers";

const { AutoModel, AutoTokenizer, Tensor, env } = library;
env.allowRemoteModels = false;
env.localModelPath = "";

const report = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

function tensorOf(rows) {
  const dims = [];
  for (let values = rows; Array.isArray(values); values = values[0]) dims.push(values.length);
  return new Tensor("int64", BigInt64Array.from(rows.flat(Infinity), BigInt), dims);
}

function largestDifference(output, expected, mask) {
  const width = expected.length / mask.length; // of one token, where the output is one of tokens
  const isOfTokens = mask.dims.every((size, place) => output.dims[place] === size);
  if (output.data.length !== expected.length) throw new Error(`${output.data.length} values instead of ${expected.length}`);
  let largest = 0;
  for (let place = 0; place < expected.length; place++) {
    if (isOfTokens && !mask.values[Math.floor(place / width)]) continue;
    const difference = Math.abs(Number(output.data[place]) - expected[place]);
    if (!(difference <= largest)) largest = difference; // also "not a number"
  }
  return largest;
}

async function check(work, content) {
  const folder = join(work, content.web);
  const tokenizer = await AutoTokenizer.from_pretrained(folder);
  content.texts.forEach((text, place) => {
    const ids = Array.from(tokenizer(text).input_ids.data, Number);
    if (String(ids) !== String(content.ids[place])) throw new Error(`other ids for ${text}: ${ids}`);
  });
  const name = content.head === "AlbertForPreTraining" ? "AlbertForMaskedLM" : content.head;
  const model = await (library[name] ?? AutoModel).from_pretrained(folder, { dtype: "fp32" });
  const inputs = Object.fromEntries(Object.entries(content.inputs).map(([key, rows]) => [key, tensorOf(rows)]));
  const outputs = await model(inputs);
  const values = content.inputs.attention_mask.flat(Infinity);
  const mask = { values, length: values.length, dims: inputs.attention_mask.dims };
  const differences = [];
  for (const [key, rows] of Object.entries(content.outputs)) {
    const output = outputs[key === "prediction_logits" ? "logits" : key];
    if (output) differences.push(largestDifference(output, rows.flat(Infinity), mask));
  }
  if (!differences.length) throw new Error(`no outputs of ${Object.keys(content.outputs)}: ${Object.keys(outputs)}`);
  return Math.max(...differences);
}

report({ versions: { "@huggingface/transformers": env.version, node: process.versions.node } });
const work = process.argv[2];
for (const file of readdirSync(join(work, "cases")).sort()) {
  const content = JSON.parse(readFileSync(join(work, "cases", file)));
  const line = { direction: "opens", name: content.name };
  try {
    report({ ...line, difference: await check(work, content) });
  } catch (error) {
    report({ ...line, error: String(error).slice(0, 600) });
  }
}
