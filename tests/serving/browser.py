"""A page in a headless Chromium, and scripts that run on it."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PROBE = """
<script>
const put = value => fetch("/probe", {method: "POST", body: JSON.stringify(value)});
const text = id => document.getElementById(id).hidden ? "" : document.getElementById(id).innerText;
const shown = () => ({
  title: document.title, answer: text("answer"), error: text("error"), stats: text("stats"),
  fetched: performance.getEntriesByType("resource").map(r => r.name.replace(location.origin, "")),
  overflow: document.documentElement.scrollWidth - window.innerWidth,
  bars: [...document.querySelectorAll(".track > div")].map(bar => bar.offsetWidth / bar.parentElement.offsetWidth),
});
const wait = () => new Promise(done => setTimeout(done, 50));
async function settled() { await wait(); while (running) await wait(); }
const blob = (name, bytes) => new File([Uint8Array.from(atob(bytes), c => c.charCodeAt(0))], name, {type: "image/png"});
async function upload(name, bytes) {
  const input = document.getElementById("file"), chosen = new DataTransfer();
  chosen.items.add(blob(name, bytes));
  input.files = chosen.files; input.dispatchEvent(new Event("change"));
  await settled();
}
async function draw(lines) {
  const canvas = document.getElementById("draw"), box = canvas.getBoundingClientRect();
  const send = (kind, [x, y]) => {
    const clientX = box.x + x * box.width, clientY = box.y + y * box.height;
    canvas.dispatchEvent(new PointerEvent(kind, {pointerId: 1, clientX, clientY, bubbles: true}));
  };
  canvas.setPointerCapture = () => {}; canvas.hasPointerCapture = () => true;
  for (const line of lines) {
    send("pointerdown", line[0]); line.forEach(point => send("pointermove", point)); send("pointerup", line.at(-1));
  }
  await wait(); await settled();
}
(async () => { try { %s } catch (error) { put({thrown: String(error)}); } })();
</script>
"""
"""A script that sends what it sees on the page to /probe."""
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync", "--remote-debugging-port=0"]  # without a port it exits after loading


@contextmanager
def browsing(address: str, profile: Path, width: int = 900) -> Iterator[None]:
    """Open an address in a browser."""
    flags = [*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},900"]
    browser = subprocess.Popen([BROWSER, *flags, address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        browser.terminate()
        browser.wait()
