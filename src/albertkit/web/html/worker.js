// Downloads the model, keeps it for the next visit, and answers one question after the other.

import * as ort from "./library/ort.wasm.bundle.min.mjs";
import { Tokenizer } from "./library/tokenizers.min.mjs";
import { Model } from "./model.js";
import { Reader } from "./tokens.js";

const PAUSE = 60; // ms between two reports of the progress

/** The bytes of a file, from the cache of this page or from its server; `progress` is given those that came. */
async function bytesOf(cache, path, progress) {
  const address = new URL(path, import.meta.url).href;
  const kept = await cache?.match(address);
  const response = kept ?? await fetch(address).catch(() => {
    throw new Error(`${path} could not be downloaded. Check your connection, and load this page again.`);
  });
  if (!response.ok) throw new Error(`${path} could not be downloaded: the server answers ${response.status}.`);
  const parts = [];
  for (const reader = response.body.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    progress(value.length);
  }
  const whole = new Blob(parts);
  if (!kept) await cache?.put(address, new Response(whole)).catch(() => {}); // no room: downloaded next time
  const start = new Uint8Array(await whole.slice(0, 2).arrayBuffer());
  // Some servers unpack what they send, by the ending of its name.
  const isPacked = start[0] === 0x1f && start[1] === 0x8b;
  const plain = isPacked ? new Response(whole.stream().pipeThrough(new DecompressionStream("gzip"))) : whole;
  return new Uint8Array(await plain.arrayBuffer());
}

async function start() {
  const about = await (await fetch(new URL("files.json", import.meta.url))).json();
  const name = `albertkit ${new URL("..", import.meta.url).href} ${about.version}`; // as in service-worker.js
  const cache = await self.caches?.open(name).catch(() => null) ?? null; // only where the page is secure
  const total = about.downloads.reduce((sum, { bytes }) => sum + bytes, 0);
  let loaded = 0, reported = 0;
  const report = () => {
    reported = Date.now();
    postMessage({ loaded: Math.min(loaded, total), total });
  };
  const progress = (bytes) => {
    loaded += bytes;
    if (Date.now() - reported >= PAUSE) report();
  };
  const download = async ({ name, path }) => {
    const bytes = await bytesOf(cache, path, progress);
    report();
    return [name, bytes];
  };
  const files = Object.fromEntries(await Promise.all(about.downloads.map(download)));
  const json = (name) => JSON.parse(new TextDecoder().decode(files[name]));
  const [config, settings] = [json("config.json"), json("tokenizer_config.json")];
  ort.env.wasm.wasmBinary = files["ort-wasm-simd-threaded.wasm"];
  ort.env.wasm.numThreads = 1; // more need headers that few hosts send
  const session = await ort.InferenceSession.create(files["model.onnx"]);
  const reader = new Reader(new Tokenizer(json("tokenizer.json"), settings), settings, config);
  return new Model({ ort, session, reader, config, name: about.name, task: about.task });
}

const model = start();
const dropped = new Set();
let last = model.then(() => postMessage({ ready: true }), (error) => postMessage({ failed: error.message }));

onmessage = ({ data: { id, path, body, drop } }) => {
  if (drop) { dropped.add(drop); return; }
  last = last.then(async () => {
    await new Promise((resolve) => { setTimeout(resolve); }); // a question may be dropped meanwhile
    if (dropped.delete(id)) return;
    try {
      postMessage({ id, found: await (await model).ask(path, body) });
    } catch (error) {
      postMessage({ id, error: error.message });
    }
  });
};
