// Search in pages that were opened from a disk: browsers start no worker there, so it runs in a hidden frame.
"use strict";
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = Object.assign(document.createElement("iframe"), {hidden: true}), waiting = [];
      document.documentElement.append(frame);
      const inside = frame.contentWindow, script = frame.contentDocument.createElement("script");
      const answer = data => { const event = new MessageEvent("message", {data}); this.dispatchEvent(event); this.onmessage?.(event); };
      inside.postMessage = data => setTimeout(answer, 0, data);
      inside.importScripts = async (...urls) => {
        for (const src of urls) await new Promise(done => frame.contentDocument.body.append(Object.assign(frame.contentDocument.createElement("script"), {src, onload: done})));
      };
      this.postMessage = data => waiting.push(data);
      script.onload = () => {
        this.postMessage = data => inside.dispatchEvent(new inside.MessageEvent("message", {data}));
        waiting.forEach(data => this.postMessage(data));
      };
      script.src = new URL(url, location.href);
      frame.contentDocument.body.append(script);
      this.terminate = () => frame.remove();
    }
  };
}
