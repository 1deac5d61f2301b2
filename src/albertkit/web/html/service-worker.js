// Keeps the page, so that it opens without a network. page/worker.js keeps the files of the model.

const FILES = {{files}};
const PREFIX = `albertkit ${self.registration.scope} `; // prefix of the names of all caches of this page
const CACHE = `${PREFIX}{{version}}`; // each version of the content has its own name

self.addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE)
    .then((cache) => cache.addAll(FILES.map((path) => new Request(path, { cache: "reload" }))))
    .then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => {
  const drop = async () => {
    const old = (await caches.keys()).filter((name) => name.startsWith(PREFIX) && name !== CACHE);
    await Promise.all(old.map((name) => caches.delete(name)));
    await self.clients.claim();
  };
  event.waitUntil(drop());
});

self.addEventListener("fetch", (event) => {
  if (event.request.method !== "GET") return;
  const answer = async () => {
    const cache = await caches.open(CACHE);
    return await cache.match(event.request, { ignoreSearch: true }) ?? fetch(event.request);
  };
  event.respondWith(answer());
});
