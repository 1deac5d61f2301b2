// Open the folders of `albertkit export web` with transformers.js in Node, and compare ids and outputs.
//
//     node transformers_js_models.mjs FOLDER
//
// models.py fills FOLDER. comparing.py describes the lines of the output.

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
  const width = expected.length / mask.length; // number of values per token, if the output has values for each token
  const isOfTokens = mask.dims.every((size, axis) => output.dims[axis] === size);
  if (output.data.length !== expected.length) throw new Error(`${output.data.length} values instead of ${expected.length}`);
  let largest = 0;
  for (let index = 0; index < expected.length; index++) {
    if (isOfTokens && !mask.values[Math.floor(index / width)]) continue;
    const difference = Math.abs(Number(output.data[index]) - expected[index]);
    if (!(difference <= largest)) largest = difference; // also true for NaN
  }
  return largest;
}

async function check(work, content) {
  const folder = join(work, content.web);
  const tokenizer = await AutoTokenizer.from_pretrained(folder);
  content.texts.forEach((text, number) => {
    const ids = Array.from(tokenizer(text).input_ids.data, Number);
    if (String(ids) !== String(content.ids[number])) throw new Error(`different ids for ${text}: ${ids}`);
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
