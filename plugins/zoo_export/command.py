"""Export a model to ONNX, torch.export or safetensors: zoo export runs/NAME --format onnx --to FOLDER."""

import shlex
from pathlib import Path
from typing import Any

from zoo.checkpoint.card import number
from zoo.cli.commands import quiet, show
from zoo.cli.models import RUN, to_fetch
from zoo.cli.parser import Parser
from zoo.errors import InputError, check_rules


def make_parser(command: str) -> Parser:
    """Return the command's parser."""
    parser = Parser(command, "Write a trained model to a new folder, for the zoo or for other runtimes.").positional("run", RUN)
    formats = "zoo, a model folder (the default); or the folded network for others: safetensors, pt2 (torch.export), onnx"
    parser.value("--to", "the new folder").value("--format", formats)
    parser.value("--quantize", "int8: matrices of 8 bits, with --format onnx; test metrics before and after are printed")
    parser.switch("--sparse", "with --format zoo, store what is not zero, and one bit for each number")
    return parser.switch("--json", "print JSON")


def run(command: str, values: dict[str, Any]) -> int:
    """Export a model, and print what came of it."""
    as_json, source, to = values["json"], values["run"], values["to"]
    kind, quantize, sparse = values["format"] or "zoo", values["quantize"], values["sparse"]
    if to is None:
        raise InputError("missing --to: use --to FOLDER", code="missing")
    folder = Path(to).expanduser()
    is_model = kind == "zoo"
    check_rules(
        (not folder.exists(), f"'{folder}' exists: choose another folder with --to, or remove it"),
        (not (is_model and quantize), "int8 weights are written as ONNX: use --format onnx with --quantize int8"),
        (is_model or not sparse, f"--sparse is for model folders, which the zoo reads: leave it out with --format {kind}"),
    )
    quiet()
    made = export(source, folder, sparse) if is_model else export_folded(source, folder, kind, quantize)
    show(made | {"folder": to}, as_json, print_export if is_model else print_folded)
    return 0


def export_folded(source: str, folder: Path, kind: str, quantize: str | None) -> dict[str, Any]:
    """Write the folded network for another runtime."""
    from zoo.hub.sources import locate
    from zoo.inference.model import load
    from zoo_export.export import check_options, export

    check_options(kind, quantize)
    path = locate(source)
    model = load(path)
    data = to_fetch(path) if quantize else None
    exported = export(model, folder, kind, quantize=quantize, measure=data is None)
    return exported | ({"unmeasured": f"{data} may have to be fetched"} if data else {})


def export(source: str, folder: Path, sparse: bool) -> dict[str, Any]:
    """Write the model folder of a run to another place, and count bytes and zeros."""
    from zoo.checkpoint import find, read_config
    from zoo.hub.sources import locate
    from zoo.inference.model import load
    from zoo.inference.saving import save

    path = locate(source)
    model = load(path)
    tensors = list(model.net.parameters())
    numbers = sum(t.numel() for t in tensors)
    zeros = numbers - sum(int(t.count_nonzero()) for t in tensors)
    folder.parent.mkdir(parents=True, exist_ok=True)
    save(model, folder, sparse=sparse)
    sizes = [(directory / "model.safetensors").stat().st_size for directory in (find(path), folder)]
    result = {"parameters": numbers, "zeros": zeros, "bytes_before": sizes[0], "bytes": sizes[1]}
    return result | {"packed": sorted(read_config(folder)["sparse"] or {}) if sparse else None}


def print_export(made: dict[str, Any]) -> None:
    """Say where the folder is and what was gained."""
    share = made["zeros"] / made["parameters"]
    sizes = f"{made['bytes']:,} bytes of weights, {made['bytes_before']:,} before"
    print(f"{made['folder']}: {sizes}; {share:.1%} of the parameters are zero")
    if made["packed"] == []:
        print("nothing is gained by --sparse: too few weights are zero, a lottery ticket has more (docs/pruning.md)")
    print(f"use it like a run: zoo test {shlex.quote(made['folder'])}")


def print_folded(made: dict[str, Any]) -> None:
    """Say what was written, how near it is to the model, and what 8 bits cost."""
    size = f"{made['bytes']:,} bytes"
    print(f"{made['file']}: {size}" + (f", {made['float_bytes']:,} in float32" if "float_bytes" in made else ""))
    if made["format"] != "safetensors":
        far = made["max_difference"]
        unchecked = "not compared with the model: pip install 'hypercomplex-zoo[onnx]' brings onnxruntime, which runs it"
        print(unchecked if far is None else f"the network in float32 answers as the model does, within {far:.1e}")
    if "unmeasured" in made:
        print(f"what 8 bits cost is not measured: {made['unmeasured']}")
    for name, before in made.get("float_metrics", {}).items():
        print(f"test {name}: {number(before)} in float32, {number(made['metrics'][name])} in 8 bits")
    print("beside it config.json says what it reads and answers; how to run it: docs/exporting.md")
