"""Measure how threads wait and how many a small network takes: ``python -m benchmarks.speed.threads [--only four]``.

Times training steps of the default vision transformer on digits in separate processes: with two threads that spin (torch's
default) or sleep while they wait, and by the rule of `zoo.training.threads`; alone, beside one busy process per core, and four
runs at once. Also lists the threads that the rule gives to networks on more cores. Writes results/threads.json.
"""

import argparse
import json
import os
import subprocess
import sys
from statistics import mean, median
from typing import Any, NamedTuple

import torch

import zoo
from benchmarks import machine
from benchmarks.speed.fused import busy_processes
from zoo.training.threads import RULE, average_work, count_threads

RESULTS = machine.RESULTS / "threads.json"
POLICIES = {"spinning": {}, "sleeping": {"OMP_WAIT_POLICY": "PASSIVE"}, "rule": {"OMP_WAIT_POLICY": "PASSIVE"}}
CORES = (2, 16, 64)
SIMULATED = {  # network: size of its images and channels
    "vit": (8, 1),
    "vit(dim=192, depth=2, heads=3, patch=8)": (64, 3),
    "vit(dim=384, depth=2, heads=6, patch=8)": (64, 3),
    "vit(dim=768, depth=2, heads=12, patch=8)": (64, 3),
}
BATCH = 64
STEP = """
import sys, time, torch, zoo
from zoo.training.threads import average_work, count_threads
torch.manual_seed(0)
net = zoo.backbone("vit", "quaternion", in_channels=1, image_size=8, num_classes=10)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
images, labels = torch.randn(64, 1, 8, 8), torch.randint(10, (64,))
if sys.argv[1] == "rule":
    torch.set_num_threads(count_threads(average_work(net, (images[:2],), 64), torch.get_num_threads()))
end = time.perf_counter() + float(sys.argv[2])
while time.perf_counter() < end:
    start = time.perf_counter()
    torch.nn.functional.cross_entropy(net(images), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
    print(1000 * (time.perf_counter() - start), flush=True)
"""


class Situation(NamedTuple):
    """Runs at the same time, and other processes that keep cores busy."""

    runs: int
    busy: int


SITUATIONS = {"alone": Situation(1, 0), "busy": Situation(1, os.cpu_count() or 1), "four": Situation(4, 0)}

TITLES = {"alone": "alone", "busy": "beside a busy process per core", "four": "four runs at once"}


def measure(policy: str, situation: Situation, seconds: float) -> dict[str, float]:
    """Train in separate processes; return milliseconds per step of a run, and the steps per second of all runs."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OMP_")} | POLICIES[policy]
    command = [sys.executable, "-c", STEP, policy, str(seconds)]
    with busy_processes(situation.busy):
        runs = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(situation.runs)]
        steps = [[float(line) for line in run.communicate()[0].split()][1:] for run in runs]
    times = [mean(of_run) for of_run in steps]
    return {
        "mean_ms": round(mean(times), 2),
        "median_ms": round(median(step for of_run in steps for step in of_run), 2),
        "steps_per_second": round(sum(1000 / ms for ms in times), 1),
    }


def simulate() -> list[dict[str, Any]]:
    """Return the threads that the rule gives to networks over the quaternions, for several numbers of cores."""
    rows = []
    for spec, (size, channels) in SIMULATED.items():
        net = zoo.backbone(spec, "quaternion", in_channels=channels, image_size=size, num_classes=10)
        work = average_work(net, (torch.zeros(2, channels, size, size),), BATCH)
        rows.append({"network": spec, "work": round(work), **{f"{cores} cores": count_threads(work, cores) for cores in CORES}})
    return rows


def table(results: dict[str, Any]) -> list[str]:
    """Format the steps per second, and the threads that the rule gives to networks on more cores."""
    where, rows = results["machine"], results["speeds"]
    lines = [f"Measured {where['date']} on {where['cores']} cores of {where['processor']}, {where['capability']}.", ""]
    lines += [f"| threads | {' | '.join(TITLES[name] for name in rows)} |", f"|---|{'---:|' * len(rows)}"]
    lines += [
        f"| {policy} | {' | '.join(str(row[policy]['steps_per_second']) for row in rows.values())} |" for policy in POLICIES
    ]
    names = [f"{cores} cores" for cores in CORES]
    lines += ["", "Threads by the rule, for a batch of 64:", ""]
    lines += [f"| network | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    return lines + [f"| {row['network']} | {' | '.join(str(row[name]) for name in names)} |" for row in results["simulated"]]


def main() -> None:
    """Measure the selected situations and store them with the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SITUATIONS, help="measure one situation")
    parser.add_argument("--seconds", type=float, default=20, help="duration of each measurement")
    options = parser.parse_args()
    stored = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    rows = stored.get("speeds", {})
    for name in [options.only] if options.only else SITUATIONS:
        rows[name] = {policy: measure(policy, SITUATIONS[name], options.seconds) for policy in POLICIES}
    shape = f"vit on digits over the quaternions, batch {BATCH}, training step"
    about = {"machine": machine.info(), "commit": machine.commit(), "rule": RULE, "shape": shape}
    machine.write(RESULTS, {**about, "speeds": rows, "simulated": simulate()})
    print(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
