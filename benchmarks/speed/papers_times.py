"""Reproduce the times in the papers: ``python -m benchmarks.speed.papers_times --root DATA``.

- Zhang et al. 2021, Table 3: a training step (forward, backward, AdamW) of the real, quaternion and PHM Transformers on
  Multi30k, and decoding with beam size 4 and length penalty 0.6. The networks are not trained and no token ends a sentence, so
  all of them decode the same number of tokens.
- Wang et al. 2020, Figure 2: a training step of the networks of their Table 2, for each kind of positions.

All networks run alternately in one process. ``--only`` measures one of the two and keeps the stored result of the other. Writes
results/papers_times.json; the tables are on docs/speed.md (`benchmarks.speed.speed_page`).
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import torch
import yaml

import zoo
from benchmarks import machine
from zoo.data.tokens import BEGIN
from zoo.registry import Spec
from zoo.tasks.decoding import Decoding, Prompts, beam_search
from zoo.training.bench import Call, first_batch, side_by_side, training_step
from zoo.training.options import Fit

RESULTS = machine.RESULTS / "papers_times.json"
CONFIG = machine.ROOT / "configs" / "papers" / "complex_order" / "trec_print.yaml"
NETWORKS = {"real": (7.61, 336), "quaternion": (8.11, 293), "phm-4": (7.92, 299), "phm-8": (7.70, 282)}
"""Published seconds for 100 steps and for a test set."""
BACKBONE = "transformer(dim=512, depth=4, heads=8, ffn=2048)"
SENTENCES, LENGTH = 16, 24
POSITIONS = ("none", "pe", "tpe", "vanilla", "order")


def calls(algebra: str, data: str) -> tuple[int, Call, Call]:
    """Return the number of parameters of a network, a call that takes a training step, and one that decodes sentences."""
    task, batch = first_batch(Fit(backbone=BACKBONE, algebra=algebra, data=data, batch_size=64))
    sources = batch[0][0][:SENTENCES]
    prompts = Prompts(torch.full((SENTENCES, 1), BEGIN), source=sources)

    def decode() -> None:
        task.eval()
        beam_search(task.net, prompts, Decoding(beam=4, length=LENGTH, length_penalty=0.6))  # type: ignore[arg-type]

    return zoo.count(task.net)["total"], training_step(task, batch), decode


def translation(root: Path, rounds: int) -> dict[str, Any]:
    """Time the networks of Zhang et al. 2021, Table 3."""
    data = f"multi30k(path='{os.path.relpath(root)}/multi30k_ende', vocab=6000, max_length=64)"
    parameters, steps, decoders = zip(*(calls(algebra, data) for algebra in NETWORKS), strict=True)
    return {
        "backbone": BACKBONE,
        "parameters": dict(zip(NETWORKS, parameters, strict=True)),
        "training": side_by_side(dict(zip(NETWORKS, steps, strict=True)), rounds, warmup=2),
        "decoding": side_by_side(dict(zip(NETWORKS, decoders, strict=True)), rounds, warmup=1),
        "machine": machine.info(),
        "commit": machine.commit(),
    }


def positions(root: Path, rounds: int) -> dict[str, Any]:
    """Time the networks of Wang et al. 2020, Figure 2."""
    nets: dict[str, dict[str, Call]] = {}
    parameters: dict[str, dict[str, int]] = {}
    sweep = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    for name, changes in sweep["axes"]["row"].items():
        row = sweep["base"] | changes
        options = {option: row[option] for option in ("backbone", "algebra", "embedding", "batch_size")}
        data, net = (Spec.parse(row[option]) for option in ("data", "backbone"))
        data = Spec(data.name, data.options | {"path": str(root / data.name)})
        task, batch = first_batch(Fit(**options, data=str(data)))
        kind = name.rpartition("_")[2]
        nets.setdefault(net.name, {})[kind] = training_step(task, batch)
        parameters.setdefault(net.name, {})[kind] = zoo.count(task.net)["total"]
    return {
        "parameters": parameters,
        "training": {net: side_by_side({kind: steps[kind] for kind in POSITIONS}, rounds) for net, steps in nets.items()},
        "places": {net: side_by_side({kind: steps[kind] for kind in POSITIONS[-2:]}, rounds) for net, steps in nets.items()},
        "machine": machine.info(),
        "commit": machine.commit(),
    }


def parts(results: dict[str, Any]) -> dict[str, str]:
    """Format the tables and numbers of two sections of docs/speed.md."""
    text = {f"{name}_how": how(part) for name, part in results.items()}
    return text | translation_parts(results["translation"]) | positions_parts(results["positions"])


def how(results: dict[str, Any]) -> str:
    """Describe the machine, date and commit of a measurement."""
    where = results["machine"]
    return (
        f"Medians on {where['threads']} threads of {where['processor']}\n"
        f"(`python -m benchmarks.speed.papers_times`, {where['date']}, commit {machine.short(results['commit'])})."
    )


def positions_parts(results: dict[str, Any]) -> dict[str, str]:
    """Format a table with one line per network and one column per kind of positions."""
    lines = []
    for net, times in results["training"].items():
        sizes = {kind: f"({count / 1e6:.1f}M)" for kind, count in results["parameters"][net].items()}
        cells = [f"{times['none']['ms']:.0f} ms {sizes['none']}"]
        cells += [f"{times[kind]['ratio']:.2f} {sizes[kind]}" for kind in POSITIONS[1:]]
        lines.append(f"| {net} | {' | '.join(cells)} |")
    low, high = (end(times["order"]["ratio"] for times in results["training"].values()) for end in (min, max))
    to_vanilla = [
        f"{net} {times['order']['ratio']:.2f} ({times['order']['low']:.2f} to {times['order']['high']:.2f})"
        for net, times in results["places"].items()
    ]
    text = {"positions": "\n".join(lines), "order_to_vanilla": ", ".join(to_vanilla)}
    return text | {"order_range": f"{low:.2f} to {high:.2f}"}


def translation_parts(results: dict[str, Any]) -> dict[str, str]:
    """Format a table with one line per algebra."""
    lines, real = [], NETWORKS["real"]
    for algebra, (steps, seconds) in NETWORKS.items():
        training, decoding = results["training"][algebra], results["decoding"][algebra]
        lines.append(
            f"| {algebra} | {results['parameters'][algebra] / 1e6:.1f}M | {training['ms']:.0f} ms | {training['ratio']:.2f} "
            f"| {steps:.2f} s, {steps / real[0]:.2f} | {decoding['ms'] / 1000:.2f} s | {decoding['ratio']:.2f} "
            f"| {seconds} s, {seconds / real[1]:.2f} |"
        )
    others = [algebra for algebra in NETWORKS if algebra != "real"]
    slower = ", ".join(a for a in others if results["training"][a]["low"] > 1) or "none"
    faster = ", ".join(a for a in others if results["decoding"][a]["high"] < 1) or "none"
    return {"translation": "\n".join(lines), "slower_training": slower, "faster_decoding": faster}


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="folder that contains multi30k_ende and trec")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=("translation", "positions"))
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for name, measure in {"translation": translation, "positions": positions}.items():
        if options.only in (None, name):
            results[name] = measure(options.root, options.rounds)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
