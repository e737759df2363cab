"""Compare our linear layers with those of other libraries: ``python -m benchmarks.speed.peers``.

Times of forward and backward passes are relative to `torch.nn.Linear` of the same real sizes, in float32 (complextorch:
complex64), alternately in one process. Libraries that are not installed are skipped: speechbrain, complextorch and
HypercomplexKeras.
Writes results/peers.json; the table is on docs/speed.md (``python -m benchmarks.speed.speed_page``).
"""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

import torch
from torch import nn

import zoo
from benchmarks import machine
from zoo.nn import Linear
from zoo.training.bench import Call, side_by_side

RESULTS = machine.RESULTS / "peers.json"
ALGEBRAS = ("real", "quaternion", "octonion", "complex")
SHAPES = ((4096, 512, 512), (4096, 1024, 1024), (4096, 2048, 2048), (1024, 192, 768))
Maker = Callable[[int, int], nn.Module]
"""Creates a layer from its numbers of real input and output channels."""


def speechbrain() -> dict[str, tuple[str, Maker]]:
    """Return the layers of Ravanelli et al. (2021): quaternions with torch's or custom gradients, and complex numbers."""
    if "torchaudio" not in sys.modules:
        # speechbrain imports torchaudio, which its layers do not use and which is not built for every version of torch.
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
    """Return the layer on torch's complex tensors."""
    linear = import_module("complextorch.nn").Linear
    return {"complextorch Linear": ("complex", lambda i, o: linear(i // 2, o // 2))}


def hypercomplex_keras() -> dict[str, tuple[str, Maker]]:
    """Return the torch layer of Kycia and Niemczynowicz; their Keras layers use operations of TensorFlow."""
    dense = import_module("HypercomplexKeras.HyperdenseTorch").HyperDenseTorch
    algebras = import_module("HypercomplexKeras.Algebra")

    def maker(name: str, n: int) -> Maker:
        return lambda i, o: dense(o // n, (i,), algebra=getattr(algebras, name))

    tables = {"quaternion": ("Quaternions", 4), "octonion": ("Octonions", 8), "complex": ("Complex", 2)}
    return {f"HypercomplexKeras HyperDenseTorch, {a}": (a, maker(*table)) for a, table in tables.items()}


LIBRARIES = {"speechbrain": speechbrain, "complextorch": complextorch, "HypercomplexKeras": hypercomplex_keras}


def installed() -> tuple[dict[str, tuple[str, Maker]], dict[str, str]]:
    """Return the layers of the installed libraries, and for each library its version or the reason why it is skipped."""
    layers, notes = {}, {}
    for name, load in LIBRARIES.items():
        try:
            notes[name] = version(name)
            layers |= load()
        except (PackageNotFoundError, ImportError) as error:
            notes[name] = "not installed" if isinstance(error, PackageNotFoundError) else f"cannot be imported: {error}"
            print(f"skipping {name}: {notes[name]}", flush=True)
    return layers, notes


def trained(layer: nn.Module, rows: int, inp: int) -> Call:
    """Return a call that runs the forward and backward pass of a layer."""
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
    """Time our layers and those of other libraries for one shape."""
    layers: dict[str, tuple[str, nn.Module]] = {"torch Linear": ("real", nn.Linear(inp, out))}
    layers |= {f"zoo Linear, {a}": (a, Linear(inp, out, algebra=zoo.algebra(a))) for a in ALGEBRAS[1:]}
    layers |= {name: (algebra, maker(inp, out)) for name, (algebra, maker) in peers.items()}
    times = side_by_side({name: trained(layer, rows, inp) for name, (_, layer) in layers.items()}, rounds)
    results = []
    for name, (algebra, layer) in layers.items():
        count = sum((1 + p.is_complex()) * p.numel() for p in layer.parameters())
        results.append({"layer": name, "algebra": algebra, "parameters": count, **times[name]})
    return results


def section(results: dict[str, Any]) -> list[str]:
    """Format the table on docs/speed.md."""
    shapes = [shape["shape"] for shape in results["shapes"]]
    head = " | ".join(f"{rows:,} rows, {i} to {o}" for rows, i, o in shapes)
    lines = [f"| algebra | layer | {head} |", f"|---|---|{'---:|' * len(shapes)}"]
    by_layer: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for shape in results["shapes"]:
        for row in shape["rows"][1:]:  # the first is torch's layer
            by_layer.setdefault((row["algebra"], row["layer"]), []).append(row)
    order = ALGEBRAS[1:]
    for (algebra, layer), rows in sorted(by_layer.items(), key=lambda item: order.index(item[0][0])):
        cells = [f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})" for row in rows]
        lines.append(f"| {algebra} | {layer.removesuffix(f', {algebra}')} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Measure all shapes and write the results."""
    peers, notes = installed()
    shapes = []
    for shape in SHAPES:
        shapes.append({"shape": shape, "rows": measure(*shape, peers)})
        print(shape, {row["layer"]: row["ratio"] for row in shapes[-1]["rows"]}, flush=True)
    results = {"machine": machine.info(), "commit": machine.commit(), "libraries": notes, "shapes": shapes}
    machine.write(RESULTS, results)


if __name__ == "__main__":
    main()
