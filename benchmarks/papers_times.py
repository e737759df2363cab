"""Repeat the times that papers print: ``python -m benchmarks.papers_times --root DATA``.

Zhang et al. 2021, Table 3: the real, the quaternion and the PHM Transformers of its translations, on Multi30k: a training step
(forward, backward, AdamW), and the decoding of sentences with a beam of 4 and a length penalty of 0.6. The networks are not
trained, and no token ends a text, so that each decodes as many as the others. Wang et al. 2020, Figure 2: a training step of
the networks of their Table 2 by what tells places apart. Networks take turns in one process. ``--only`` measures one of the
two and keeps the other. Writes results/papers_times.json; the tables are on docs/speed.md (`benchmarks.speed_page`).
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
from benchmarks.papers import commit, rooted
from benchmarks.papers_rows import CONFIGS, read
from zoo.data.text.tokens import BEGIN
from zoo.tasks.decoding import Decoding, Prompts, beam_search
from zoo.training.bench import Call, first_batch, side_by_side, training_step
from zoo.training.options import Fit

RESULTS = Path(__file__).parent / "results" / "papers_times.json"
NETWORKS = {"real": (7.61, 336), "quaternion": (8.11, 293), "phm-4": (7.92, 299), "phm-8": (7.70, 282)}
"""Seconds for 100 steps and for a test set, in print."""
BACKBONE = "transformer(dim=512, depth=4, heads=8, ffn=2048)"
SENTENCES, LENGTH = 16, 24
POSITIONS = ("none", "pe", "tpe", "vanilla", "order")


def calls(algebra: str, data: str) -> tuple[int, Call, Call]:
    """Return the parameters of a network, a call that takes a training step, and one that decodes sentences."""
    task, batch = first_batch(Fit(backbone=BACKBONE, algebra=algebra, data=data, batch_size=64))
    sources = batch[0][0][:SENTENCES]
    prompts = Prompts(torch.full((SENTENCES, 1), BEGIN), source=sources)

    def decode() -> None:
        task.eval()
        beam_search(task.net, prompts, Decoding(beam=4, length=LENGTH, length_penalty=0.6))  # type: ignore[arg-type]

    return zoo.count(task.net)["total"], training_step(task, batch), decode


def translation(root: Path, rounds: int) -> dict[str, Any]:
    """Time the networks of Table 3 in turns."""
    data = f"multi30k(path='{os.path.relpath(root)}/multi30k_ende', vocab=6000, max_length=64)"
    found = {algebra: calls(algebra, data) for algebra in NETWORKS}
    return {
        "backbone": BACKBONE,
        "parameters": {algebra: own[0] for algebra, own in found.items()},
        "training": side_by_side({algebra: own[1] for algebra, own in found.items()}, rounds, warmup=2),
        "decoding": side_by_side({algebra: own[2] for algebra, own in found.items()}, rounds, warmup=1),
        "machine": machine.info(),
        "commit": commit(),
    }


def positions(root: Path, rounds: int) -> dict[str, Any]:
    """Time the networks of Figure 2, those of one kind in turns."""
    nets: dict[str, dict[str, Call]] = {}
    parameters: dict[str, dict[str, int]] = {}
    for row in read(CONFIGS / "complex_order" / "trec_print.yaml"):
        own = {name: row.config[name] for name in ("backbone", "algebra", "embedding", "batch_size")}
        task, batch = first_batch(Fit(**own, data=rooted(row.data, root)))
        kind = row.name.rpartition("_")[2]
        nets.setdefault(row.net, {})[kind] = training_step(task, batch)
        parameters.setdefault(row.net, {})[kind] = zoo.count(task.net)["total"]
    return {
        "parameters": parameters,
        "training": {net: side_by_side({kind: own[kind] for kind in POSITIONS}, rounds) for net, own in nets.items()},
        "places": {net: side_by_side({kind: own[kind] for kind in POSITIONS[-2:]}, rounds) for net, own in nets.items()},
        "machine": machine.info(),
        "commit": commit(),
    }


def how(found: dict[str, Any]) -> list[str]:
    """Say where and when it was measured."""
    return [
        f"{found['machine']['processor']}, {found['machine']['threads']} threads, medians of steps in turns",
        f"(`python -m benchmarks.papers_times`, {found['machine']['date']}, commit {machine.short(found['commit'])}).",
    ]


def section(found: dict[str, Any]) -> list[str]:
    """Write the two tables of docs/speed.md."""
    return [*translation_table(found["translation"]), "", *positions_table(found["positions"])]


def positions_table(found: dict[str, Any]) -> list[str]:
    """Write a line for each network and a column for each way to tell places apart."""
    lines = [
        "## The times of Wang et al. 2020",
        "",
        "Their Figure 2, seconds for an epoch by what tells places apart, of which they say that complex-order costs little or",
        "nothing; the copy that was read has no numbers of it. Here a training step of 64 questions of TREC with the",
        "networks of `configs/papers/complex_order/trec_print.yaml`, of the time without positions; in brackets the weights.",
        "Complex rows have as many complex channels as the others have real ones.",
        *how(found),
        "",
        f"| network | without | {' | '.join(POSITIONS[1:])} |",
        f"|---|{'---:|' * len(POSITIONS)}",
    ]
    for net, own in found["training"].items():
        sizes = {kind: f"({count / 1e6:.1f}M)" for kind, count in found["parameters"][net].items()}
        cells = [f"{own['none']['ms']:.0f} ms {sizes['none']}"]
        cells += [f"{own[kind]['ratio']:.2f} {sizes[kind]}" for kind in POSITIONS[1:]]
        lines.append(f"| {net} | {' | '.join(cells)} |")
    low, high = (end(own["order"]["ratio"] for own in found["training"].values()) for end in (min, max))
    places = [
        f"{net} {own['order']['ratio']:.2f} ({own['order']['low']:.2f} to {own['order']['high']:.2f})"
        for net, own in found["places"].items()
    ]
    return [
        *lines,
        "",
        f"Complex-order takes {low:.2f} to {high:.2f} times as long as the real network, for twice the weights and up to four",
        "times the products. Of the time of complex-vanilla, in turns with it (quartiles of the rounds in brackets), it takes:",
        f"{', '.join(places)}.",
    ]


def translation_table(found: dict[str, Any]) -> list[str]:
    """Write a line for each algebra."""
    lines = [
        "## The times of Zhang et al. 2021",
        "",
        f"Their Table 3 on Multi30k: `{found['backbone']}`, a training step of 64 pairs, and {SENTENCES} sentences decoded to",
        f"{LENGTH} tokens with a beam of 4.",
        *how(found),
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
    parser.add_argument("--root", type=Path, required=True, help="the folder with multi30k_ende and trec")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=("translation", "positions"))
    options = parser.parse_args()
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for name, measure in {"translation": translation, "positions": positions}.items():
        if options.only in (None, name):
            found[name] = measure(options.root, options.rounds)
    RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
