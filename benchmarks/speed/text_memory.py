"""Measure the memory of text data sets of different sizes: ``python -m benchmarks.speed.text_memory``.

For each size, a separate process with an empty cache reads, splits and tokenizes a generated file (a label and 4 to 12 words of
5,000 in each row), builds the vocabulary, shuffles an epoch, and trains, validates and tests for a few steps. Writes the peaks
of the resident memory and of its anonymous part to results/text_memory.json.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import machine

RESULTS = machine.RESULTS / "text_memory.json"
ROWS = (2_000, 200_000, 2_000_000)
TRAIN = """
import json, sys, threading, time
import zoo

peak = {"VmRSS": 0, "RssAnon": 0}
def watch():
    while True:
        lines = dict(line.split(":") for line in open("/proc/self/status") if ":" in line)
        for name in peak:
            peak[name] = max(peak[name], int(lines[name].split()[0]))
        time.sleep(0.02)
threading.Thread(target=watch, daemon=True).start()
start = time.perf_counter()
few = {"limit_train_batches": 20, "limit_val_batches": 5, "limit_test_batches": 5, "max_epochs": 1, "accelerator": "cpu"}
zoo.fit(
    backbone="fasttext(dim=32)", algebra="quaternion", data=f"text(path={sys.argv[1]})", run_dir=sys.argv[2],
    trainer=few | {"enable_progress_bar": False},
)
print(json.dumps({
    "peak_mb": round(peak["VmRSS"] / 1024), "peak_own_mb": round(peak["RssAnon"] / 1024),
    "seconds": round(time.perf_counter() - start, 1),
}))
"""


def write(path: Path, rows: int) -> None:
    """Generate a file of rows with the labels `pos` and `neg` and random texts."""
    draws = random.Random(0)
    words = [f"word{i}" for i in range(5000)]
    with path.open("w", encoding="utf-8") as file:
        file.write("label\ttext\n")
        for row in range(rows):
            file.write(f"{('neg', 'pos')[row % 2]}\t{' '.join(draws.choices(words, k=draws.randint(4, 12)))}\n")


def measure(rows: int) -> dict[str, Any]:
    """Train on a number of rows in a separate process with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.tsv"
        write(path, rows)
        environment = os.environ | {"XDG_CACHE_HOME": folder, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", TRAIN, str(path), str(Path(folder) / "run")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr[-2000:])
        peaks: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return {"rows": rows, "file_mb": round(path.stat().st_size / 2**20, 1), **peaks}


def main() -> None:
    """Measure all sizes and write the results."""
    rows = [measure(count) for count in ROWS]
    shape = "fasttext(dim=32) over the quaternions, word tokens, batch 32; 20 training steps"
    machine.write(RESULTS, {"machine": machine.info(), "shape": shape, "rows": rows})
    print(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
