"""Repeat Zhang et al. 2021, Table 3, training and decoding time: ``python -m benchmarks.papers_times --root DATA``.

The real, the quaternion and the PHM Transformers of its translations, on Multi30k: a training step (forward, backward, AdamW),
and the decoding of sentences with a beam of 4 and a length penalty of 0.6, in turns in one process. The networks are not
trained, and no token ends a text, so that each decodes as many as the others. Writes results/papers_times.json;
the table is on docs/speed.md (``python -m benchmarks.kernels --page``).
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import zoo
from benchmarks import machine
from benchmarks.papers import commit
from zoo.data.text.tokens import BEGIN
from zoo.tasks.decoding import Decoding, Prompts, beam_search
from zoo.training.bench import Call, first_batch, side_by_side, training_step
from zoo.training.options import Fit

RESULTS = Path(__file__).parent / "results" / "papers_times.json"
NETWORKS = {"real": (7.61, 336), "quaternion": (8.11, 293), "phm-4": (7.92, 299), "phm-8": (7.70, 282)}
"""Seconds for 100 steps and for a test set, in print."""
BACKBONE = "transformer(dim=512, depth=4, heads=8, ffn=2048)"
SENTENCES, LENGTH = 16, 24


def calls(algebra: str, data: str) -> tuple[int, Call, Call]:
    """Return the parameters of a network, a call that takes a training step, and one that decodes sentences."""
    task, batch = first_batch(Fit(backbone=BACKBONE, algebra=algebra, data=data, batch_size=64))
    sources = batch[0][0][:SENTENCES]
    prompts = Prompts(torch.full((SENTENCES, 1), BEGIN), source=sources)

    def decode() -> None:
        task.eval()
        beam_search(task.net, prompts, Decoding(beam=4, length=LENGTH, length_penalty=0.6))  # type: ignore[arg-type]

    return zoo.count(task.net)["total"], training_step(task, batch), decode


def measure(data: str, rounds: int) -> dict[str, Any]:
    """Time all networks in turns."""
    found = {algebra: calls(algebra, data) for algebra in NETWORKS}
    return {
        "backbone": BACKBONE,
        "parameters": {algebra: own[0] for algebra, own in found.items()},
        "training": side_by_side({algebra: own[1] for algebra, own in found.items()}, rounds, warmup=2),
        "decoding": side_by_side({algebra: own[2] for algebra, own in found.items()}, rounds, warmup=1),
        "machine": machine.info(),
        "commit": commit(),
    }


def section(found: dict[str, Any]) -> list[str]:
    """Write the table of docs/speed.md."""
    lines = [
        "## The times of Zhang et al. 2021",
        "",
        f"Their Table 3 on Multi30k: `{found['backbone']}`, a training step of 64 pairs, and {SENTENCES} sentences decoded to",
        f"{LENGTH} tokens with a beam of 4; {found['machine']['processor']}, {found['machine']['threads']} threads, medians",
        "of steps in turns (`python -m benchmarks.papers_times`,",
        f"{found['machine']['date']}, commit {machine.short(found['commit'])}).",
        "In print on one GPU: seconds for 100 steps and for the test set of IWSLT'14 De-En.",
        "",
        "| algebra | parameters | training step | of the real | in print | decoding | of the real | in print |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for algebra, (steps, seconds) in NETWORKS.items():
        training, decoding = found["training"][algebra], found["decoding"][algebra]
        real = NETWORKS["real"]
        lines.append(
            f"| {algebra} | {found['parameters'][algebra] / 1e6:.1f}M | {training['ms']:.0f} ms | {training['ratio']:.2f} "
            f"| {steps:.2f} s, {steps / real[0]:.2f} | {decoding['ms'] / 1000:.2f} s | {decoding['ratio']:.2f} "
            f"| {seconds} s, {seconds / real[1]:.2f} |"
        )
    others = [algebra for algebra in NETWORKS if algebra != "real"]
    slower = ", ".join(a for a in others if found["training"][a]["low"] > 1) or "none"
    faster = ", ".join(a for a in others if found["decoding"][a]["high"] < 1) or "none"
    return [
        *lines,
        "",
        "In print all three train more slowly than the real network and decode faster. Here, by more than the quartiles of the",
        f"rounds, train more slowly: {slower}; decode faster: {faster}. A beam multiplies 64 rows, which are too many for",
        "reading fewer weights to pay; see the rows of evaluation above.",
    ]


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="the folder with multi30k_ende")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    found = measure(
        f"multi30k(path='{os.path.relpath(options.root)}/multi30k_ende', vocab=6000, max_length=64)", options.rounds
    )
    RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
