"""Export a trained model for other runtimes: plain torch weights, a program of `torch.export`, or ONNX."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from zoo.atomic import new_folder, write_json, write_text
from zoo.checkpoint.folder import library_versions, save_weights
from zoo.conversion import fold
from zoo.errors import InputError, check_rules
from zoo.inference.model import Model
from zoo_export.onnx import check_installed, write_onnx
from zoo_export.tracing import check_equal, example_inputs, input_names, is_text, output_name, program, refusing

FORMATS = {"safetensors": "model.safetensors", "pt2": "model.pt2", "onnx": "model.onnx"}
"""The formats and the file of each."""


def export(
    model: Model, folder: str | Path, format: str = "safetensors", *, quantize: str | None = None, measure: bool = True
) -> dict[str, Any]:
    """Write a folder with the model for a runtime that knows nothing of algebras.

    Every format has the folded network (`zoo.fold`), ``config.json`` (specs, sizes, inputs, output, labels) and the tokenizer:

    - ``safetensors``: its state dict with torch's names; ``config.json`` lists the torch layers.
    - ``pt2``: a program for `torch.export.load`, with a batch and a length of texts that vary.
    - ``onnx``: the same as ONNX; needs the packages onnx and onnxscript. With ``quantize="int8"`` onnxruntime stores the
      matrices in 8 bits and rounds their inputs as they come (dynamic quantization).

    Programs are compared with the model on inputs of several sizes before anything is written.

    Args:
        model: What `zoo.load` returned.
        folder: A new folder.
        format: One of `FORMATS`.
        quantize: None or ``int8``.
        measure: With ``int8``, evaluate both networks on the test split; the data set may be fetched for it.

    Returns:
        ``file`` and ``bytes``; ``max_difference`` from the model, None where nothing could run it; for ``int8`` also
        ``float_bytes``, ``metrics`` and ``float_metrics`` (on the test split), or ``unmeasured``, why there are none.

    Raises:
        InputError: If an option is wrong, the folder exists, a package is missing, or the network cannot be exported.
    """
    folder = Path(folder).expanduser()
    check_options(format, quantize)
    if folder.exists():
        raise InputError(f"'{folder}' exists: choose another folder, or remove it")
    folded, config = fold(model), describe(model, format)
    config["layers"] = torch_layers(folded.net) if format == "safetensors" else None
    with new_folder(folder) as part:
        file = part / FORMATS[format]
        details: dict[str, Any] = {}
        if format == "safetensors":
            save_weights(folded.net, file, folder)
        elif format == "pt2":
            details = write_program(model, folded.net, file)
        else:
            details = write_onnx(model, folded, file, quantize is not None, measure)
        config |= {"quantize": quantize, "max_difference": details.get("max_difference")}
        write_json(part / "config.json", {key: value for key, value in config.items() if value is not None})
        if model.tokenizer is not None:
            write_text(part / model.info.tokenizer, model.tokenizer.to_json())
        details["bytes"] = file.stat().st_size
    return {"file": str(folder / FORMATS[format]), "format": format, **details}


def check_options(format: str, quantize: str | None) -> None:
    """Refuse formats that there are not, and quantisation where no library writes it."""
    check_rules(
        (format in FORMATS, f"format '{format}': use {', '.join(FORMATS)}, or zoo with zoo export"),
        (quantize in (None, "int8"), f"quantize '{quantize}': use int8"),
        (quantize is None or format == "onnx", "int8 weights are written as ONNX: use --format onnx with --quantize int8"),
    )
    if format == "onnx":
        check_installed(quantize is not None)


def describe(model: Model, format: str) -> dict[str, Any]:
    """Return what a stranger must know to run the network: specs, sizes, inputs, output and labels."""
    info, config = model.info, model.config
    sizes = config.get("model_kwargs") if info is None else info.model_kwargs
    description: dict[str, Any] = {"format": format, "file": FORMATS[format]}
    description |= {key: config.get(key) for key in ("backbone", "algebra", "scope", "embedding", "task", "data")}
    description |= {"model_kwargs": sizes, "labels": list(getattr(info, "classes", ())) or None}
    if info is not None:
        with suppress(InputError):  # of data that give no example; programs need one, weights do not
            shapes = zip(input_names(model.net), example_inputs(model, 1), strict=False)
            description["inputs"] = {
                name: {"dtype": str(x.dtype).removeprefix("torch."), "shape": axes(x)} for name, x in shapes
            }
        description |= {"output": output_name(sizes or {}), "info": info.to_dict()}
    return description | {"metrics": model.metrics or None, "versions": library_versions(config)}


def axes(x: Tensor) -> list[str | int]:
    """Name the axes of an input that vary and count the others."""
    return ["batch", "length"] if is_text(x) else ["batch", *x.shape[1:]]


def torch_layers(net: nn.Module) -> dict[str, str]:
    """Name the layers of torch in a network that hold weights, each with its arguments."""
    ours = {name: m for name, m in net.named_modules() if type(m).__module__.startswith("torch.nn") and m._parameters}
    return {name: f"torch.nn.{module!r}" for name, module in ours.items() if not list(module.children())}


def write_program(model: Model, net: nn.Module, file: Path) -> dict[str, Any]:
    """Write a program of `torch.export`, read it again and compare it with the model."""
    exported = program(model, net)
    for node in exported.graph.nodes:
        node.meta.pop("stack_trace", None)  # names paths of this machine
    with refusing(model):
        torch.export.save(exported, file)
        loaded = torch.export.load(file).module()
    return {"max_difference": check_equal(model, loaded)}
