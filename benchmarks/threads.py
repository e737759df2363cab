"""Measure the cost of waiting OpenMP threads: ``python -m benchmarks.threads``.

Times training steps of the default vision transformer on digits in separate processes with spinning, sleeping or single
threads, on an idle machine and with one busy process per core. Writes results/threads.json.
"""

import os
import subprocess
import sys
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks import machine

RESULTS = Path(__file__).parent / "results" / "threads.json"
POLICIES = {"active": {"OMP_WAIT_POLICY": "ACTIVE"}, "passive": {"OMP_WAIT_POLICY": "PASSIVE"}, "one": {"OMP_NUM_THREADS": "1"}}
STEP = """
import time, torch, zoo
torch.manual_seed(0)
net = zoo.backbone("vit", "quaternion", in_channels=1, image_size=8, num_classes=10)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
images, labels = torch.randn(32, 1, 8, 8), torch.randint(10, (32,))
end = time.perf_counter() + 20
while time.perf_counter() < end:
    start = time.perf_counter()
    torch.nn.functional.cross_entropy(net(images), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
    print(1000 * (time.perf_counter() - start), flush=True)
"""


def measure(policy: dict[str, str]) -> dict[str, float]:
    """Train for 20 seconds in a separate process and return milliseconds per step."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OMP_")} | policy
    done = subprocess.run([sys.executable, "-c", STEP], env=environment, capture_output=True, text=True, check=True)
    steps = [float(line) for line in done.stdout.split()][3:]
    return {"mean_ms": round(mean(steps), 2), "median_ms": round(median(steps), 2), "steps": len(steps)}


def main() -> None:
    """Measure all combinations and write the results."""
    rows: list[dict[str, Any]] = []
    for busy in (0, os.cpu_count() or 1):
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
        try:
            rows += [{"threads": name, "busy_processes": busy, **measure(policy)} for name, policy in POLICIES.items()]
        finally:
            for other in others:
                other.kill()
    shape = "vit on digits over the quaternions, batch 32, training step"
    machine.write(RESULTS, {"machine": machine.info(), "shape": shape, "rows": rows})
    print(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
