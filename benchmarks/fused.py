"""Measure the fused operator beside real layers in a plain script: ``python -m benchmarks.fused [--only WORD]``.

Each figure is the ratio to the same layer or network over the reals, in turns in one process: median and quartiles. No
environment variables are set, so torch's threads spin between operations as in anyone's script. Writes results/fused.json;
``--only`` measures the cases with a word in their names anew.
"""

import os

os.environ.pop("OMP_WAIT_POLICY", None)  # which benchmarks/__init__.py sets

import argparse
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import zoo
from benchmarks import machine
from benchmarks.convolutions import step
from benchmarks.kernels import network, trained
from benchmarks.papers import commit
from zoo.kernels import compiled
from zoo.layers import LSTM, Conv2d, Linear
from zoo.training.bench import side_by_side

RESULTS = Path(__file__).parent / "results" / "fused.json"
SHAPES = {
    "quaternion": [(4096, s, s) for s in (256, 512, 1024, 2048)] + [(1024, 192, 768), (1024, 384, 1536)],
    "octonion": [(4096, s, s) for s in (256, 512, 1024)],
    "complex": [(4096, s, s) for s in (256, 512, 1024)],
    "phm(n=4, rank=8)": [(4096, 1024, 1024)],
}
NETWORKS = [(f"vit(dim={d}, depth=2, heads={d // 64 or 2}, patch=8)", "image") for d in (192, 384, 768)]
NETWORKS += [(f"gpt(dim={d}, depth=2, heads={d // 64})", "tokens") for d in (128, 384, 1024)]
Calls = dict[str, Callable[[], Any]]


def autocast(call: Callable[[], Any]) -> Callable[[], Any]:
    """Return a call in bfloat16."""

    def cast() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            call()

    return cast


def evaluated(layer: nn.Module, x: torch.Tensor, keeps: bool) -> Callable[[], Any]:
    """Return a call that evaluates a layer, in a scope of `zoo.keep_matrices` that stays open if it ``keeps``."""
    scope = zoo.keep_matrices(layer)
    if keeps:
        scope.__enter__()

    def call(scope: object = scope) -> None:  # a scope that nobody holds is closed
        with torch.inference_mode():
            layer(x)

    return call


def recurrent(layer: nn.Module) -> Callable[[], Any]:
    """Return a training step of an LSTM."""
    x = torch.randn(64, 40, 304)

    def call() -> None:
        layer(x)[0].square().mean().backward()
        layer.zero_grad(set_to_none=True)

    return call


def cases() -> Iterator[tuple[str, Calls, int]]:
    """Yield the name of every case, its calls (the real one first) and its rounds."""
    for algebra, shapes in SHAPES.items():
        for rows, i, o in shapes:
            layers = nn.Linear(i, o), Linear(zoo.algebra(algebra), i, o)
            calls = {name: trained(layer, rows, i) for name, layer in zip(("real", "zoo"), layers, strict=True)}
            yield f"{algebra}, training, {rows} x {i} to {o}", calls, 25
            if algebra == "quaternion" and i == o and i > 256:
                yield f"bfloat16, training, {rows} x {i} to {o}", {n: autocast(c) for n, c in calls.items()}, 25
    for keeps, size, rows in itertools.product((True, False), (256, 1024), (1, 8, 64, 512)):
        x, ours = torch.randn(rows, size), Linear(zoo.algebra("quaternion"), size, size)
        calls = {"real": evaluated(nn.Linear(size, size), x, False), "zoo": evaluated(ours, x, keeps)}
        yield f"evaluation, {'kept' if keeps else 'nothing kept'}, {rows} x {size} to {size}", calls, 201
    for count, size, places in ((32, 32, 32), (32, 64, 32), (32, 128, 16), (16, 256, 14)):
        shape, ours = (count, size, places, places), Conv2d(zoo.algebra("quaternion"), size, size, 3, padding=1)
        calls = {"real": step(nn.Conv2d(size, size, 3, padding=1), shape, True), "zoo": step(ours, shape, True)}
        yield f"3 x 3, training, {count} x {size} x {places} x {places}", calls, 25
    lstm = LSTM(zoo.algebra("quaternion"), 304, 304)
    yield "LSTM, training, 64 x 40 x 304", {"real": recurrent(nn.LSTM(304, 304, batch_first=True)), "zoo": recurrent(lstm)}, 15
    for spec, kind in NETWORKS:
        yield f"training step, {spec}", {a: network(spec, kind, a) for a in ("real", "quaternion")}, 15


def main() -> None:
    """Measure all cases, or some of them anew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD", help="measure the cases with this word in their names")
    word = parser.parse_args().only
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"cases": {}}
    if not compiled.is_available():
        raise SystemExit(compiled.status())
    found |= {"machine": machine.info(), "commit": commit(), "load": round(os.getloadavg()[0], 1)}
    for name, calls, rounds in cases():
        if word in name:
            *_, row = side_by_side(calls, rounds).values()
            found["cases"][name] = row | {"load": round(os.getloadavg()[0], 1)}
            print(name, row["ratio"], (row["low"], row["high"]), flush=True)
            RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
