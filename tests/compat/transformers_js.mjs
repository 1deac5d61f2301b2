// Open folders of `albertkit export web` with transformers.js, and write ids and outputs as JSON lines.
//
//     node transformers_js.mjs CASES
//
// CASES is a JSON file: [{folder, architecture, dtype, texts, choices, task}]. If `choices` is true, rows are pairs.

import { readFileSync } from "node:fs";
import * as library from "@huggingface/transformers";

const { AutoModel, AutoTokenizer, Tensor, env, pipeline } = library;
env.allowRemoteModels = false;
env.localModelPath = "";

const MAX_VALUES = 5000; // maximum number of values in an output; of larger outputs, every n-th value is written
const plain = ({ data, dims }) => {
  const every = Math.ceil(data.length / MAX_VALUES);
  return { dims, every, values: Array.from(data, Number).filter((_, index) => index % every === 0) };
};
const write = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

for (const { folder, architecture, dtype, texts, choices, task } of JSON.parse(readFileSync(process.argv[2]))) {
  const tokenizer = await AutoTokenizer.from_pretrained(folder);
  const modelClass = library[architecture] ?? AutoModel; // the library has no class for some heads
  const model = await modelClass.from_pretrained(folder, { dtype });
  for (const text of texts) {
    const inputs = choices
      ? tokenizer([text, text.toUpperCase()], { text_pair: ["Yes.", "No, thanks."], padding: true, truncation: true })
      : tokenizer(text, { truncation: true });
    const ids = plain(inputs.input_ids);
    if (choices) {
      for (const [name, values] of Object.entries(inputs)) {
        inputs[name] = new Tensor("int64", values.data, [1, ...values.dims]);
      }
    }
    const outputs = await model(inputs);
    const tensors = Object.entries(outputs).filter(([, value]) => value instanceof Tensor || value?.dims);
    write({ ids, outputs: Object.fromEntries(tensors.map(([name, value]) => [name, plain(value)])) });
  }
  if (!task) continue;
  const ask = await pipeline(task.name, folder, { dtype });
  for (const text of task.texts) {
    const answer = await ask(text, task.options);
    write({ answer: answer instanceof Tensor ? plain(answer) : answer });
  }
}
