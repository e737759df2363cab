"""Measure linear layers of other libraries beside ours and the real one: ``python -m benchmarks.peers``.

Forward and backward in turns in one process, each divided by `torch.nn.Linear` of the same real sizes, in float32 (complextorch
in complex64). A library that is not installed is skipped with a line: speechbrain, complextorch, HypercomplexKeras.
Writes results/peers.json; the table is on docs/speed.md (``python -m benchmarks.speed_page``).
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import json
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

import zoo
from benchmarks import machine
from benchmarks.papers import commit
from zoo.layers import Linear
from zoo.training.bench import Call, side_by_side

RESULTS = Path(__file__).parent / "results" / "peers.json"
ALGEBRAS = ("real", "quaternion", "octonion", "complex")
SHAPES = ((4096, 512, 512), (4096, 1024, 1024), (4096, 2048, 2048), (1024, 192, 768))
Maker = Callable[[int, int], nn.Module]
"""Makes a layer from its real input and output channels."""


def speechbrain() -> dict[str, tuple[str, Maker]]:
    """Return the layers of Ravanelli et al. (2021): quaternions with torch's gradients or their own, complex numbers."""
    if "torchaudio" not in sys.modules:
        # What it imports for sound; the layers do not use it, and there is not a build of it for every version of torch.
        audio: Any = ModuleType("torchaudio")
        audio.__spec__, audio.__version__ = ModuleSpec("torchaudio", None), "0"
        audio.list_audio_backends = lambda: ["none"]
        sys.modules["torchaudio"] = audio
    quaternion = import_module("speechbrain.nnet.quaternion_networks.q_linear").QLinear
    complex_ = import_module("speechbrain.nnet.complex_networks.c_linear").CLinear
    return {
        "speechbrain QLinear": ("quaternion", lambda i, o: quaternion(o // 4, (None, i))),
        "speechbrain QLinear, autograd=False": ("quaternion", lambda i, o: quaternion(o // 4, (None, i), autograd=False)),
        "speechbrain CLinear": ("complex", lambda i, o: complex_(o // 2, (None, i))),
    }


def complextorch() -> dict[str, tuple[str, Maker]]:
    """Return the layer on torch's own complex numbers."""
    linear = import_module("complextorch.nn").Linear
    return {"complextorch Linear": ("complex", lambda i, o: linear(i // 2, o // 2))}


def hypercomplex_keras() -> dict[str, tuple[str, Maker]]:
    """Return the layer for torch of Kycia and Niemczynowicz; their Keras layers are written in TensorFlow's operations."""
    dense = import_module("HypercomplexKeras.HyperdenseTorch").HyperDenseTorch
    algebras = import_module("HypercomplexKeras.Algebra")

    def maker(name: str, n: int) -> Maker:
        return lambda i, o: dense(o // n, (i,), algebra=getattr(algebras, name))

    tables = {"quaternion": ("Quaternions", 4), "octonion": ("Octonions", 8), "complex": ("Complex", 2)}
    return {f"HypercomplexKeras HyperDenseTorch, {a}": (a, maker(*table)) for a, table in tables.items()}


LIBRARIES = {"speechbrain": speechbrain, "complextorch": complextorch, "HypercomplexKeras": hypercomplex_keras}


def installed() -> tuple[dict[str, tuple[str, Maker]], dict[str, str]]:
    """Return the layers of the libraries that are installed, and for every library its version or why it is not here."""
    found, notes = {}, {}
    for name, layers in LIBRARIES.items():
        try:
            notes[name] = version(name)
            found |= layers()
        except (PackageNotFoundError, ImportError) as error:
            notes[name] = "not installed" if isinstance(error, PackageNotFoundError) else f"cannot be imported: {error}"
            print(f"{name} is skipped: {notes[name]}", flush=True)
    return found, notes


def trained(layer: nn.Module, rows: int, inp: int) -> Call:
    """Return a call that goes forward and backward through a layer."""
    parameters = list(layer.parameters())
    is_complex = parameters[0].is_complex()
    x = torch.randn(rows, inp // 2 if is_complex else inp, dtype=parameters[0].dtype, requires_grad=True)
    g = torch.randn_like(layer(x).detach())

    def call() -> None:
        layer(x).backward(g)
        x.grad = None
        layer.zero_grad(set_to_none=True)

    return call


def measure(rows: int, inp: int, out: int, peers: dict[str, tuple[str, Maker]], rounds: int = 11) -> list[dict[str, Any]]:
    """Time the layers of one shape in turns, ours and theirs."""
    made: dict[str, tuple[str, nn.Module]] = {"torch Linear": ("real", nn.Linear(inp, out))}
    made |= {f"zoo Linear, {a}": (a, Linear(zoo.algebra(a), inp, out)) for a in ALGEBRAS[1:]}
    made |= {name: (algebra, maker(inp, out)) for name, (algebra, maker) in peers.items()}
    found = side_by_side({name: trained(layer, rows, inp) for name, (_, layer) in made.items()}, rounds)
    numbers = {
        name: sum(2 * p.numel() if p.is_complex() else p.numel() for p in net.parameters()) for name, (_, net) in made.items()
    }
    return [{"layer": k, "algebra": a, "parameters": numbers[k], **found[k]} for k, (a, _) in made.items()]


def section(found: dict[str, Any]) -> list[str]:
    """Write the section of docs/speed.md."""
    shapes = [shape["shape"] for shape in found["shapes"]]
    lines = [
        "## Beside other libraries",
        "",
        "Linear layers, forward and backward in float32, divided by `torch.nn.Linear` of the same real sizes, all in turns in",
        f"one process (`python -m benchmarks.peers`, {found['machine']['date']}, commit {machine.short(found['commit'])};",
        f"{', '.join(f'{name} {note}' for name, note in found['libraries'].items())}). All have 1/n of the weights, but",
        "for the bias. The Keras layers of HypercomplexKeras import TensorFlow, whatever the backend of Keras:",
        "its layer for torch is measured. speechbrain imports torchaudio, which its layers do not use: if it is not installed,",
        "an empty module stands in for it.",
        "",
        f"| algebra | layer | {' | '.join(f'{rows:,} rows, {i} to {o}' for rows, i, o in shapes)} |",
        f"|---|---|{'---:|' * len(shapes)}",
    ]
    by_layer: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for shape in found["shapes"]:
        for row in shape["rows"]:
            by_layer.setdefault((row["algebra"], row["layer"]), []).append(row)
    order = ("quaternion", "octonion", "complex")
    for (algebra, layer), rows in sorted(
        by_layer.items(), key=lambda pair: order.index(pair[0][0]) if pair[0][0] in order else 9
    ):
        if algebra != "real":
            cells = [f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})" for row in rows]
            lines.append(f"| {algebra} | {layer.split(', ' + algebra)[0]} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Measure every shape and store what was found."""
    peers, notes = installed()
    shapes = []
    for shape in SHAPES:
        shapes.append({"shape": shape, "rows": measure(*shape, peers)})
        print(shape, {row["layer"]: row["ratio"] for row in shapes[-1]["rows"]}, flush=True)
    found = {"machine": machine.info(), "commit": commit(), "libraries": notes, "shapes": shapes}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
