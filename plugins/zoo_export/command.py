"""Export a model to ONNX, torch.export, safetensors or a web page: zoo export runs/NAME --format onnx --to FOLDER."""

import shlex
from pathlib import Path
from typing import Any

from zoo.checkpoint.manifest import number
from zoo.cli.models import locate, to_fetch
from zoo.cli.result import Result
from zoo.errors import InputError
from zoo_export import check_options
from zoo_export.runtime import find_runtime


def export(
    run: str,
    *,
    to: str | None = None,
    format: str = "zoo",
    folded: bool = False,
    quantize: str | None = None,
    sparse: bool = False,
    runtime: str | None = None,
) -> Result:
    """Export a model to ONNX, torch.export, safetensors or a web page: zoo export runs/NAME --format onnx --to FOLDER.

    Args:
        run: A run (runs/NAME), a model folder, a name of zoo list checkpoints, owner/name@revision or https://HOST/FOLDER.
        to: The new folder.
        format: zoo, a model folder; pt2 (torch.export), onnx or executorch, a program; web, a page that runs it in a
            browser; safetensors, the folded weights.
        folded: Whether a program stores the real matrices instead of components; it is n times as large.
        quantize: int8 or int4: all weights in 8 or 4 bits, in a program; dynamic: onnxruntime's dynamic
            quantization of the folded network, with --format onnx. Prints test metrics before and after.
        sparse: Store a bit mask and only the nonzero weights, in a model folder or a program.
        runtime: With --format web, the npm package onnxruntime-web: the archive of npm pack, or a folder that contains it.
    """
    if to is None:
        raise InputError("missing --to: use --to FOLDER", code="missing")
    folder = Path(to).expanduser()
    check_options(folder, format, quantize, sparse, folded, runtime)
    found = find_runtime(runtime) if format == "web" else None
    path = locate(run)
    from zoo.inference.model import load
    from zoo_export.export import export as export_program

    model = load(path)
    if format == "zoo":
        return Result(copy_model(model, folder, sparse) | {"folder": to}, print_export)
    data = to_fetch(path) if quantize else None
    options: dict[str, Any] = {"folded": folded, "quantize": quantize, "sparse": sparse, "runtime": found}
    options["title"] = Path(run).name
    result = export_program(model, folder, format, **options, measure=data is None) | {"folder": to}
    return Result(result | ({"unmeasured": f"{data} may have to be fetched"} if data else {}), print_program)


def copy_model(model: Any, folder: Path, sparse: bool) -> dict[str, Any]:
    """Write the model folder of a run again, and count bytes and zeros."""
    from zoo.checkpoint import read_config
    from zoo.inference.saving import save

    tensors = list(model.net.parameters())
    numbers = sum(t.numel() for t in tensors)
    zeros = numbers - sum(int(t.count_nonzero()) for t in tensors)
    folder.parent.mkdir(parents=True, exist_ok=True)
    save(model, folder, sparse=sparse)
    dense = sum(t.numel() * t.element_size() for t in model.net.state_dict().values())
    result = {
        "parameters": numbers,
        "zeros": zeros,
        "bytes": (folder / "model.safetensors").stat().st_size,
        "bytes_dense": dense,
    }
    return result | {"packed": sorted(read_config(folder).sparse or {}) if sparse else None}


def print_export(result: dict[str, Any]) -> None:
    """Print the folder and the sizes of an exported model folder."""
    share = result["zeros"] / result["parameters"]
    sizes = f"{result['bytes']:,} bytes of weights, {result['bytes_dense']:,} without --sparse"
    print(f"{result['folder']}: {sizes}; {share:.1%} of the parameters are zero")
    if result["packed"] == []:
        print("nothing is gained by --sparse: too few weights are zero, a lottery ticket has more (docs/pruning.md)")
    print(f"use it like a run: zoo test {shlex.quote(result['folder'])}")


def print_program(result: dict[str, Any]) -> None:
    """Print the file, its difference from the model, and the metrics of a quantized network."""
    details = f"{result['weight_bytes']:,} of them weights; " if "weight_bytes" in result else ""
    print(f"{result['file']}: {result['bytes']:,} bytes ({details}{result['float_bytes']:,} bytes of parameters in the model)")
    if result["format"] != "safetensors":
        difference = result["max_difference"]
        unchecked = "not compared with the model: pip install 'hypercomplex-zoo[onnx]' brings onnxruntime, which runs it"
        quantized = {None: "the model", "dynamic": "the model, before quantization,"}
        which = quantized.get(result["quantize"], "the quantized network in torch")
        print(unchecked if difference is None else f"its outputs equal those of {which} within {difference:.1e}")
    if "activation_bytes" in result:
        besides = ", which allocates more by itself" if result["backend"] == "XNNPACK" else ""
        print(f"{result['activation_bytes']:,} bytes of planned memory for activations; run by {result['backend']}{besides}")
    if "unmeasured" in result:
        print(f"the cost of the quantization is not measured: {result['unmeasured']}")
    for name, before in result.get("float_metrics", {}).items():
        print(f"test {name}: {number(before)} in float32, {number(result['metrics'][name])} quantized")
    if result["format"] == "web":
        folder = shlex.quote(result["folder"])
        print(f"beside it a page, and {result['runtime_bytes']:,} bytes of onnxruntime-web, for any web server of static files")
        print(f"look at it: python -m http.server -d {folder}  # then open http://127.0.0.1:8000")
        return
    print("config.json beside it describes inputs and outputs; docs/exporting.md shows how to run it")
