"""Measure ExecuTorch programs: ``python -m benchmarks.speed.executorch sizes``, then ``... times``, then ``... page``.

``sizes`` lowers models of the catalogue in every form to build/executorch, with the bytes of the program and the planned memory
of activations. ``times`` measures the median latency of one row with one thread, in turns. Both write results/executorch.json;
``page`` writes the table in docs/exporting.md. ExecuTorch requires the extra ``executorch``.
"""

import json
import sys
import time
from copy import deepcopy
from importlib.metadata import version
from statistics import median
from typing import Any, cast

import torch
from zoo_export.component_products import with_component_products
from zoo_export.executorch_file import ExecutorchNetwork, lower
from zoo_export.export import parameter_bytes
from zoo_export.tracing import example_inputs

import zoo
from benchmarks import machine

RESULTS = machine.ROOT / "benchmarks" / "results" / "executorch.json"
FILES = machine.ROOT / "build" / "executorch"
PAGE, BEGIN = machine.ROOT / "docs" / "exporting.md", "<!-- made by benchmarks/speed/executorch.py -->"
MODELS = "vit-digits-quaternion", "convnet-digits-quaternion"
FORMS = {
    "folded": (True, lambda net: zoo.fold(net)),
    "matrices assembled at every call": (True, deepcopy),
    "products of components": (True, lambda net: with_component_products(deepcopy(net))),
    "products of components, portable kernels": (False, lambda net: with_component_products(deepcopy(net))),
}
"""Whether XNNPACK runs what it can, and the network to lower, by the name of the form."""
REPEATS = 100


def sizes() -> None:
    """Lower all models in all forms, and write the results after each."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    FILES.mkdir(parents=True, exist_ok=True)
    about = {"machine": machine.info() | {"executorch": version("executorch")}, "commit": machine.commit()}
    rows: list[dict[str, Any]] = []
    for name in MODELS:
        model = zoo.load(name)
        for form, (has_xnnpack, change) in FORMS.items():
            lowered, _ = lower(model, change(model.net), [XnnpackPartitioner()] if has_xnnpack else [])
            (FILES / f"{name} {form}.pte").write_bytes(lowered.buffer)
            planned = sum(lowered.executorch_program.execution_plan[0].non_const_buffer_sizes)
            row = {"network": name, "form": form, "parameters": parameter_bytes(model.net), "bytes": len(lowered.buffer)}
            rows.append(row | {"activations": planned})
            machine.write_rows(RESULTS, about | {"rows": rows})


def times() -> None:
    """Measure all programs in turns, and write the results."""
    torch.set_num_threads(1)
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    calls, seconds = [], cast(list[list[float]], [[] for _ in results["rows"]])
    for row in results["rows"]:
        network = ExecutorchNetwork((FILES / f"{row['network']} {row['form']}.pte").read_bytes())
        calls.append((network, example_inputs(zoo.load(row["network"]), 1)))
    for _ in range(REPEATS):
        for (network, inputs), measured in zip(calls, seconds, strict=True):
            start = time.perf_counter()
            network(*inputs)
            measured.append(time.perf_counter() - start)
    for row, measured in zip(results["rows"], seconds, strict=True):
        row["run_ms"] = 1e3 * median(measured)
    machine.write_rows(RESULTS, results)


def page() -> None:
    """Write the table in docs/exporting.md."""
    PAGE.write_text(text(), encoding="utf-8")


def text() -> str:
    """Return the page with the table of the results."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    lines = ["| network (parameters) | form | bytes | planned activations, bytes | ms |", "|---|---|---|---|---|"]
    for row in results["rows"]:
        network = f"{row['network']} ({row['parameters'] / 1e3:.0f} kB)"
        lines.append(f"| {network} | {row['form']} | {row['bytes']:,} | {row['activations']:,} | {row['run_ms']:.2f} |")
    about = results["machine"]
    stamp = f"{about['date']}, {about['processor']}, executorch {about['executorch']}, torch {about['torch']}"
    table = "\n".join([*lines, "", f"One row, one thread; measured on {stamp}."])
    return machine.replace_table(PAGE.read_text(encoding="utf-8"), BEGIN, table)


def main() -> None:
    """Run one step."""
    {"sizes": sizes, "times": times, "page": page}[sys.argv[1]]()


if __name__ == "__main__":
    main()
