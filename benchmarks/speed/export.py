"""Measure exported networks: ``python -m benchmarks.speed.export sizes``, then ``times``, then ``page``; and ``cards``.

``sizes`` exports the models of the catalogue and three larger untrained networks as ONNX in every form, next to the real
network, and evaluates quantized models on their test split; files are cached in build/export. ``times`` loads each file of the
larger networks in its own process with one thread of onnxruntime, and measures loading, the median latency of one input, and
the peak memory above that of the process before. Both write results/export.json; ``page`` writes the table in
docs/exporting.md. ``cards`` exports every model of the catalogue with components, in float32 and int8, and publishes it again
in build/pretrained, where its card and the catalogue have the sizes and metrics; copy that folder to zoo/hub/pretrained.
"""

import json
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from onnxruntime import InferenceSession, SessionOptions
from zoo_export.export import export, parameter_bytes

import zoo
from benchmarks import machine
from zoo.checkpoint import ModelConfig
from zoo.data.info import CorpusInfo, ImageInfo
from zoo.hub.release import publish
from zoo.hub.sources import entries, of_catalogue, packaged
from zoo.inference.model import Model

RESULTS = machine.RESULTS / "export.json"
FILES = machine.ROOT / "build" / "export"
PAGE, BEGIN = machine.ROOT / "docs" / "exporting.md", "<!-- made by benchmarks/speed/export.py -->"
FORMS: dict[str, dict[str, Any]] = {
    "components": {},
    "folded": {"folded": True},
    "int8": {"quantize": "int8"},
    "int4": {"quantize": "int4"},
}
CARDS = ("components", "int8")
COMMON: dict[str, Any] = {"sizes": {"train": 1}, "sha256": "0"}
COLOURS: dict[str, Any] = {"in_channels": 3, "mean": (0.0,) * 3, "std": (1.0,) * 3, "classes": tuple("0123456789")}
IMAGES, TEXTS = ImageInfo(**COMMON, **COLOURS, image_size=64), CorpusInfo(**COMMON, vocab_size=96, max_length=128, stream=False)
LARGE: dict[str, tuple[str, ImageInfo | CorpusInfo]] = {
    "ViT (dim 192, depth 4)": ("vit(dim=192, depth=4, heads=4, patch=8)", IMAGES),
    "ResNet-18": ("timm/resnet18", IMAGES),
    "GPT (dim 256, depth 6)": ("gpt(dim=256, depth=6, heads=4)", TEXTS),
}
"""Backbones by their names in the table, with the facts of their data."""
REPEATS = 50


def sizes() -> None:
    """Export all networks, evaluate those of the catalogue, and write the results after each network."""
    names, rows = {entry.name for entry in entries()[0]}, dict[tuple[str, str, str], dict[str, Any]]()
    paired = sorted(name.removesuffix("-quaternion") for name in names if name.removesuffix("quaternion") + "real" in names)
    times = {key(row): row for row in json.loads(RESULTS.read_text())["rows"]} if RESULTS.exists() else {}
    for network in (*LARGE, *paired):
        read = untrained if network in LARGE else trained
        for algebra, form in [("real", "components"), *(("quaternion", form) for form in FORMS)]:
            found = row(network, algebra, form, read(network, algebra))
            rows[key(found)] = times.get(key(found), {}) | found
        about = {"machine": machine.info() | versions(), "commit": machine.commit()}
        machine.write_rows(RESULTS, about | {"rows": list(rows.values())})


def trained(name: str, algebra: str) -> Model:
    """Return a model of the catalogue."""
    return zoo.load(f"{name}-{algebra}")


def versions() -> dict[str, str]:
    """Return the versions of the packages that write and run ONNX."""
    return {name: version(name) for name in ("onnx", "onnxscript", "onnxruntime")}


def key(row: dict[str, Any]) -> tuple[str, str, str]:
    """Return the network, the algebra and the form of a row."""
    return row["network"], row["algebra"], row["form"]


def untrained(name: str, algebra: str) -> Model:
    """Return a larger network with random weights."""
    torch.manual_seed(0)
    spec, info = LARGE[name]
    model = Model(zoo.backbone(spec, algebra, **info.model_kwargs).eval(), ModelConfig(backbone=spec, algebra=algebra))
    model.info = info
    return model


def row(network: str, algebra: str, form: str, model: Model) -> dict[str, Any]:
    """Export a model in a form, unless it is cached, and return the sizes and the metrics."""
    folder = folder_of(network, algebra, form)
    facts = folder / "facts.json"
    if not facts.exists():
        print(network, algebra, form, flush=True)
        result = export(model, folder, "onnx", measure=model.task is not None, sparse=bool(model.config.sparse), **FORMS[form])
        metrics = result.get("metrics", model.metrics)
        primary = next((name for name in metrics if name != "loss"), "")
        found = {"parameters": parameter_bytes(model.net), "weights": result["weight_bytes"], "bytes": result["bytes"]}
        found |= {"metric": primary, "value": metrics.get(primary), "max_difference": result["max_difference"]}
        machine.write(facts, found)
    found = json.loads(facts.read_text(encoding="utf-8"))
    return {"network": network, "algebra": algebra, "form": form, **found}


def folder_of(network: str, algebra: str, form: str) -> Path:
    """Return the folder of an export; those that cards report are together."""
    return (FILES / "cards" if form in CARDS else FILES) / f"{network}-{algebra}" / form


def cards() -> None:
    """Publish all models of the zoo's catalogue again, with the sizes and metrics of their exports."""
    releases, site = list(of_catalogue(str(packaged()), "")), machine.ROOT / "build" / "pretrained"
    for release in releases:
        for form in CARDS:
            network, _, algebra = release.name.rpartition("-")
            row(network, algebra, form, zoo.load(release.name))
        folder = str(packaged().parent / release.name)
        publish(folder, str(site), release.name, release.facts["license"], exports=FILES / "cards" / release.name)


def times() -> None:
    """Measure the files of the larger networks, each in its own process, and write the best times of all calls."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    for row in (row for row in results["rows"] if row["network"] in LARGE):
        with ProcessPoolExecutor(1, get_context("fork")) as pool:
            found = pool.submit(measure, *key(row)).result()
        row |= {name: min(value, row.get(name, value)) for name, value in found.items()}
        machine.write_rows(RESULTS, results)


def measure(network: str, algebra: str, form: str) -> dict[str, float]:
    """Return the time of loading and of one input in milliseconds, and the peak memory in MB above that of the process."""
    info = LARGE[network][1]
    shape = (1, info.max_length) if isinstance(info, CorpusInfo) else (1, 3, info.image_size, info.image_size)
    draw = np.random.default_rng(0)
    inputs = draw.integers(1, 90, shape) if isinstance(info, CorpusInfo) else draw.random(shape, np.float32)
    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    file = folder_of(network, algebra, form) / "model.onnx"
    before, start = peak(), time.perf_counter()
    session = InferenceSession(file, options, providers=["CPUExecutionProvider"])
    loaded, seconds = time.perf_counter() - start, []
    given = {session.get_inputs()[0].name: inputs}
    for _ in range(REPEATS):
        start = time.perf_counter()
        session.run(None, given)
        seconds.append(time.perf_counter() - start)
    return {"load_ms": 1e3 * loaded, "run_ms": 1e3 * median(seconds), "peak_mb": (peak() - before) / 1024}


def peak() -> float:
    """Return the peak memory of this process in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def page() -> None:
    """Write the table in docs/exporting.md."""
    PAGE.write_text(text(), encoding="utf-8")


def text() -> str:
    """Return the page with the tables of the results."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    return machine.replace_table(PAGE.read_text(encoding="utf-8"), BEGIN, tables(results))


def tables(results: dict[str, Any]) -> str:
    """Return the tables of sizes and metrics, and of times."""
    rows = {key(row): row for row in results["rows"]}
    lines = ["| network | real | folded | components | int8 | int4 |", "|---|---|---|---|---|---|"]
    for network, algebra in dict.fromkeys((network, algebra) for network, algebra, _ in rows if algebra != "real"):
        by_form = {form: rows[network, algebra, form] for form in FORMS} | {"real": rows[network, "real", "components"]}
        cells = [cell(by_form[form]) for form in ("real", "folded", "components", "int8", "int4")]
        lines.append(f"| {network}, {algebra} | {' | '.join(cells)} |")
    lines += ["", "Milliseconds of loading / milliseconds of one input / peak memory in MB:", ""]
    lines += ["| network | real | folded | components | int8 | int4 |", "|---|---|---|---|---|---|"]
    for network, algebra in dict.fromkeys((row["network"], row["algebra"]) for row in rows.values() if "run_ms" in row):
        if algebra != "real":
            by_form = {form: rows[network, algebra, form] for form in FORMS} | {"real": rows[network, "real", "components"]}
            cells = [times_of(by_form[form]) for form in ("real", "folded", "components", "int8", "int4")]
            lines.append(f"| {network} | {' | '.join(cells)} |")
    about = results["machine"]
    stamp = f"{about['date']}, {about['processor']}, one thread, onnxruntime {about['onnxruntime']}, torch {about['torch']}"
    return "\n".join([*lines, "", f"Measured on {stamp}."])


def times_of(row: dict[str, Any]) -> str:
    """Return the times and the memory of a file."""
    return f"{row['load_ms']:.0f} / {row['run_ms']:.1f} / {row['peak_mb']:.0f}"


def cell(row: dict[str, Any]) -> str:
    """Return the kB of a file and the metric of its network."""
    size = f"{row['bytes'] / 1e3:,.0f}"
    return size if row["value"] is None else f"{size} ({row['value']:.3g})"


def main() -> None:
    """Run one step."""
    {"sizes": sizes, "times": times, "page": page, "cards": cards}[sys.argv[1]]()


if __name__ == "__main__":
    main()
