// The search of a site that is opened from disk: browsers start no worker there, so a frame of the page is one.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      const load = (script) =>
        new Promise((loaded, failed) => {
          const element = inside.document.createElement("script")
          element.src = new URL(script, document.baseURI)
          element.onload = loaded
          element.onerror = () => failed(new Error(`cannot load ${script}`))
          inside.document.body.append(element)
        })
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = (...scripts) =>
        scripts.reduce((before, script) => before.then(() => load(script)), Promise.resolve())
      this.ready = load(address)
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {
      this.frame.remove()
    }
  }
}
