// Downloads the model, keeps it for the next visit, and computes one request after the other.

import * as ort from "./library/ort.wasm.bundle.min.mjs";
import { Tokenizer } from "./library/tokenizers.min.mjs";
import { XzReadableStream } from "./library/xz-decompress.min.mjs";
import { Model } from "./model.js";
import { Reader } from "./tokens.js";

const PAUSE = 60; // ms between two reports of the progress

const failure = (path, reason) => new Error(`${path} could not be downloaded${reason} Load this page again.`);
const offline = (path) => () => { throw failure(path, ". Check your connection."); };
const damaged = (path) => () => { throw failure(path, " completely."); };

/** Return the response of the server. Browsers may reuse old files without asking it, so `no-cache` makes them ask. */
async function responseOf(path, version = "") {
  const address = new URL(path, import.meta.url);
  address.search = version; // hosts with a cache of their own also have to read the file again
  const response = await fetch(address, { cache: "no-cache" }).catch(offline(path));
  if (!response.ok) throw failure(path, `: the server answers ${response.status}.`);
  return response;
}

/** Throw an Error if these are not the bytes that the page was written with. */
async function check(bytes, { path, size, sha256 }) {
  if (bytes.length !== size) throw failure(path, `: it has ${bytes.length} bytes instead of ${size}.`);
  if (!globalThis.crypto?.subtle) return; // the page is not secure, and has no cache of its own
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const actual = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  if (actual !== sha256) throw failure(path, ": its SHA-256 differs from the one in files.json.");
}

/** Return a stream of a file's content. The first bytes tell its format, because some servers decompress files. */
async function unpacked(whole) {
  const [first, second] = new Uint8Array(await whole.slice(0, 2).arrayBuffer());
  if (first === 0x1f && second === 0x8b) return whole.stream().pipeThrough(new DecompressionStream("gzip"));
  if (first === 0xfd && second === 0x37) return new XzReadableStream(whole.stream());
  return whole.stream();
}

/** Return the bytes of a file from the page's cache or its server. `progress` receives the number of new bytes. */
async function bytesOf(cache, file, progress) {
  const { path, sha256 } = file;
  const address = new URL(path, import.meta.url).href;
  const kept = await cache?.match(address);
  const response = kept ?? await responseOf(path, sha256.slice(0, 16));
  const parts = [];
  for (const reader = response.body.getReader(); ;) {
    const { done, value } = await reader.read().catch(offline(path));
    if (done) break;
    parts.push(value);
    progress(value.length);
  }
  const whole = new Blob(parts);
  const plain = new Response(await unpacked(whole));
  const bytes = new Uint8Array(await plain.arrayBuffer().catch(damaged(path)));
  await check(bytes, file).catch(async (error) => {
    await cache?.delete(address);
    throw error;
  });
  if (!kept) await cache?.put(address, new Response(whole)).catch(() => {}); // no room: downloaded next time
  return bytes;
}

async function start() {
  const about = await (await responseOf("files.json")).json().catch(damaged("files.json"));
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
  const download = async (file) => {
    const bytes = await bytesOf(cache, file, progress);
    report();
    return [file.name, bytes];
  };
  const files = Object.fromEntries(await Promise.all(about.downloads.map(download)));
  const json = (name) => JSON.parse(new TextDecoder().decode(files[name]));
  const [config, settings] = [json("config.json"), json("tokenizer_config.json")];
  ort.env.wasm.wasmBinary = files["ort-wasm-simd-threaded.wasm"];
  ort.env.wasm.numThreads = 1; // more threads need headers that few hosts send
  const session = await ort.InferenceSession.create(files["model.onnx"]);
  const reader = new Reader(new Tokenizer(json("tokenizer.json"), settings), settings, config);
  const { name: title, task, samples } = about;
  return new Model({ ort, session, reader, config, name: title, task, samples, bytes: total });
}

const model = start();
const dropped = new Set();
let last = model.then(() => postMessage({ ready: true }), (error) => postMessage({ failed: error.message }));

onmessage = ({ data: { id, path, body, drop } }) => {
  if (drop) { dropped.add(drop); return; }
  last = last.then(async () => {
    await new Promise((resolve) => { setTimeout(resolve); }); // the request may be dropped meanwhile
    if (dropped.delete(id)) return;
    try {
      postMessage({ id, found: await (await model).ask(path, body) });
    } catch (error) {
      postMessage({ id, error: error.message });
    }
  });
};
