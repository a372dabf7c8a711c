/* A page that is opened as a file may start no worker: the search then runs in a hidden frame. (The theme looks for this by its name.) */
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.waiting = [];
      addEventListener("message", event => {
        if (event.source !== frame.contentWindow) return;
        const told = new MessageEvent("message", {data: event.data});
        this.dispatchEvent(told);
        if (this.onmessage) this.onmessage(told);
      });
      frame.addEventListener("load", () => { this.target = frame.contentWindow; for (const data of this.waiting) this.send(data); this.waiting = []; });
      const inside = () => {
        window.postMessage = data => parent.postMessage(data, "*");
        window.importScripts = (...scripts) => scripts.reduce((before, src) => before.then(() => new Promise((done, failed) => {
          const one = document.createElement("script");
          one.src = src; one.onload = done; one.onerror = failed;
          document.body.append(one);
        })), Promise.resolve());
      };
      frame.srcdoc = `<!doctype html><body><script>(${inside})()<\/script><script src="${new URL(url, document.baseURI)}"><\/script></body>`;
      document.body.append(frame);
    }
    postMessage(data) { if (this.target) this.send(data); else this.waiting.push(data); }
    send(data) { this.target.dispatchEvent(new MessageEvent("message", {data, source: window})); }
    terminate() {}
  };
  window.Worker = window.IFrameWorker;
}
