"""Export a trained model for other runtimes: torch weights, a `torch.export` program, or ONNX."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from zoo.atomic import new_folder, write_json, write_text
from zoo.checkpoint.folder import library_versions, save_weights
from zoo.conversion import fold
from zoo.errors import InputError, check_rules
from zoo.inference.model import Model
from zoo_export.onnx import check_installed, write_onnx
from zoo_export.tracing import check_equal, describe_inputs, output_name, program, refusing

FORMATS = {"safetensors": "model.safetensors", "pt2": "model.pt2", "onnx": "model.onnx"}
"""File names by format."""


def export(
    model: Model, folder: str | Path, format: str = "safetensors", *, quantize: str | None = None, measure: bool = True
) -> dict[str, Any]:
    """Write a model to a folder for runtimes without support for algebras.

    Every format contains the folded network (`zoo.fold`), ``config.json`` (specs, sizes, inputs, output, labels) and the
    tokenizer:

    - ``safetensors``: its state dict with torch's names; ``config.json`` lists the torch layers.
    - ``pt2``: a program for `torch.export.load`, with dynamic batch size and sequence length.
    - ``onnx``: the same as ONNX; requires the packages onnx and onnxscript. With ``quantize="int8"`` onnxruntime stores the
      matrices in 8 bits (dynamic quantization).

    Programs are compared with the model on inputs of several sizes before the folder is written.

    Args:
        model: A model returned by `zoo.load`.
        folder: A new folder.
        format: One of `FORMATS`.
        quantize: None or ``int8``.
        measure: Whether to evaluate both networks on the test split for ``int8``, which may download the data set.

    Returns:
        ``file``, ``bytes``, and ``max_difference`` from the model, None if it cannot be run; for ``int8`` also
        ``float_bytes``, and ``metrics`` and ``float_metrics`` on the test split or the reason ``unmeasured``.

    Raises:
        InputError: If an option is invalid, the folder exists, a package is missing, or the network cannot be exported.
    """
    folder = Path(folder).expanduser()
    check_options(folder, format, quantize)
    folded, config = fold(model), describe_model(model, format)
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


def check_options(folder: Path, format: str, quantize: str | None, sparse: bool = False) -> None:
    """Raise `InputError` if the folder exists, an option is not supported by the format, or a package is missing."""
    check_rules(
        (not folder.exists(), f"'{folder}' exists: choose another folder with --to, or delete it"),
        (format in ("zoo", *FORMATS), f"format '{format}': use zoo, {', '.join(FORMATS)}"),
        (quantize in (None, "int8"), f"quantize '{quantize}': use int8"),
        (quantize is None or format == "onnx", "--quantize int8 requires --format onnx"),
        (not sparse or format == "zoo", f"--sparse requires --format zoo, got {format}"),
    )
    if format == "onnx":
        check_installed(quantize is not None)


def describe_model(model: Model, format: str) -> dict[str, Any]:
    """Describe the network for other runtimes: specs, sizes, inputs, output and labels."""
    info, config = model.info, model.config
    sizes = config.get("model_kwargs") if info is None else info.model_kwargs
    description: dict[str, Any] = {"format": format, "file": FORMATS[format]}
    description |= {key: config.get(key) for key in ("backbone", "algebra", "scope", "embedding", "task", "data")}
    description |= {"model_kwargs": sizes, "labels": list(getattr(info, "classes", ())) or None}
    if info is not None:
        with suppress(InputError):  # data without example inputs, which only programs require
            inputs = {name: {"dtype": dtype, "shape": axes} for name, (dtype, axes) in describe_inputs(model).items()}
            description["inputs"] = inputs
        description |= {"output": output_name(sizes or {}), "info": info.to_dict()}
    return description | {"metrics": model.metrics or None, "versions": library_versions(config)}


def torch_layers(net: nn.Module) -> dict[str, str]:
    """Return the representations of all torch layers with weights, by name."""
    layers = {name: m for name, m in net.named_modules() if type(m).__module__.startswith("torch.nn") and m._parameters}
    return {name: f"torch.nn.{module!r}" for name, module in layers.items() if not list(module.children())}


def write_program(model: Model, net: nn.Module, file: Path) -> dict[str, Any]:
    """Save a `torch.export` program, load it and compare it with the model."""
    exported = program(model, net)
    for node in exported.graph.nodes:
        node.meta.pop("stack_trace", None)  # contains paths of this machine
    with refusing(model):
        torch.export.save(exported, file)
        loaded = torch.export.load(file).module()
    return {"max_difference": check_equal(model, loaded)}
