"""Export a trained model for other runtimes: torch weights, a `torch.export` program, or ONNX."""

from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

from torch import nn

from zoo.atomic import new_folder, write_json, write_text
from zoo.checkpoint.folder import library_versions, save_weights
from zoo.conversion import fold
from zoo.conversion.quantization import BITS, dequantized, store
from zoo.errors import InputError
from zoo.inference.model import Model
from zoo_export import FORMATS, check_options
from zoo_export.component_products import with_component_products
from zoo_export.executorch_file import write_executorch
from zoo_export.onnx_file import write_dynamic, write_onnx
from zoo_export.pt2_file import write_program
from zoo_export.runtime import Runtime, find_runtime
from zoo_export.tracing import cost, describe_inputs, with_scanned_steps
from zoo_export.web import check_task, write_page

WRITERS = {"pt2": write_program, "onnx": write_onnx, "executorch": write_executorch, "web": write_onnx}
"""Functions that write a program, by format."""


def export(
    model: Model,
    folder: str | Path,
    format: str = "safetensors",
    *,
    folded: bool = False,
    quantize: str | None = None,
    sparse: bool = False,
    measure: bool = True,
    runtime: str | Path | Runtime | None = None,
    title: str | None = None,
) -> dict[str, Any]:
    """Write a model to a folder for runtimes without support for algebras.

    Programs store components and compute the real matrices from them, so that a file is as small as the model. Every format
    has a file ``config.json`` (specs, sizes, inputs, output, labels) and the tokenizer:

    - ``safetensors``: the state dict of the folded network (`zoo.fold`) with torch's names; ``config.json`` lists the layers.
    - ``pt2``: a program for `torch.export.load`, with dynamic batch size and sequence length.
    - ``onnx``: the same as ONNX; requires the packages onnx and onnxscript.
    - ``executorch``: a program for ExecuTorch with one row per call, which multiplies by components instead of matrices
      (`zoo_export.component_products`); requires the package executorch.
    - ``web``: the same with a page that runs it in a browser, for any web server of static files; requires the npm package
      onnxruntime-web.

    Programs are compared with the model on inputs of several sizes before the folder is written.

    Args:
        model: A model returned by `zoo.load`.
        folder: A new folder.
        format: One of `FORMATS`.
        folded: Whether a program stores the real matrices, which are n times as large.
        quantize: ``int8`` or ``int4`` for a program with quantized weights (`zoo.quantize`); ``dynamic`` for a folded ONNX
            network with matrices and activations in 8 bits, by onnxruntime.
        sparse: Whether a program stores a bit mask and only the nonzero numbers of weights with many zeros.
        measure: Whether to evaluate a quantized network on the test split, which may download the data set.
        runtime: For ``web``, the npm package or where it is, see `zoo_export.runtime.find_runtime`.
        title: The title of a page; by default the name of the folder.

    Returns:
        ``file``, ``bytes``, ``float_bytes`` of the model's parameters, ``weight_bytes`` of those in a program, and
        ``max_difference`` from the model (int8 and int4: from `zoo.quantize` of it), None if it cannot be run; for executorch
        ``activation_bytes``, the planned memory of activations, and the ``backend``; if quantized
        also ``metrics`` and ``float_metrics`` on the test split or the reason ``unmeasured``.

    Raises:
        InputError: If an option is invalid, the folder exists, a package is missing, or the network cannot be exported.
    """
    folder = Path(folder).expanduser()
    check_options(folder, format, quantize, sparse, folded, runtime)
    if format == "web":
        check_task(model)
        runtime = runtime if isinstance(runtime, Runtime) else find_runtime(runtime)
    config = describe_model(model, format) | {"folded": folded or format == "safetensors" or quantize == "dynamic"}
    small = fold(model) if config["folded"] else deepcopy(model)
    if format == "executorch":  # its runtime would assemble the matrices at every call
        small.net = with_component_products(small.net)
    details: dict[str, Any] = {"float_bytes": parameter_bytes(model.net)}
    with new_folder(folder) as part:
        file = part / FORMATS[format]
        if format == "safetensors":
            config["layers"] = torch_layers(small.net)
            save_weights(small.net, file, folder)
        else:
            details |= write(model, small, file, format, (quantize, sparse), measure)
        details["bytes"] = file.stat().st_size
        config |= {"quantize": quantize, "sparse": sparse or None}
        write_description(model, part, config, details)
        if isinstance(runtime, Runtime):
            write_page(model, part, title or folder.name, runtime, config)
            details["runtime_bytes"] = runtime.size
    return {"file": str(folder / FORMATS[format]), "format": format, "quantize": quantize, **details}


def write_description(model: Model, folder: Path, config: dict[str, Any], details: dict[str, Any]) -> None:
    """Write config.json, to which sizes and metrics are added, and the tokenizer."""
    config |= {name: details.get(name) for name in ("bytes", "max_difference")}
    if config["quantize"] is not None:  # otherwise the metrics are those of the model
        config |= {name: details.get(name) for name in ("metrics", "float_metrics")}
    write_json(folder / "config.json", {key: value for key, value in config.items() if value is not None})
    if model.tokenizer is not None:
        write_text(folder / model.info.tokenizer, model.tokenizer.to_json())


def write(
    model: Model, small: Model, file: Path, format: str, stored: tuple[str | None, bool], measure: bool
) -> dict[str, Any]:
    """Write the network of a folded or quantized copy of a model as a program, and return the details of `export`."""
    (quantize, sparse), output = stored, output_name(model)
    small.net = with_scanned_steps(small.net)  # before its weights are stored as integers
    if quantize == "dynamic":
        return write_dynamic(model, small, file, output, measure)
    expected, details = model, {}
    if quantize is not None or sparse:
        # Two copies, because torch shares the class of a parametrized layer with its copies, and removes its properties.
        small, expected = (store(small, None if quantize is None else BITS[quantize], sparse) for _ in range(2))
        dequantized(expected.net)
    if quantize is not None and measure:
        details = cost(model, expected)
    details["weight_bytes"] = parameter_bytes(small.net)
    return details | WRITERS[format](expected, small.net, file, output)


def parameter_bytes(net: nn.Module) -> int:
    """Return the bytes of the parameters of a network, stored or not as integers."""
    return sum(parameter.numel() * parameter.element_size() for parameter in net.parameters())


def output_name(model: Model) -> str:
    """Return the name of the output: "logits" of classes or tokens, or else "output"."""
    sizes = model.config.model_kwargs if model.info is None else model.info.model_kwargs
    return "logits" if {"num_classes", "vocab_size"} & (sizes or {}).keys() else "output"


def describe_model(model: Model, format: str) -> dict[str, Any]:
    """Describe the network for other runtimes: specs, sizes, inputs, output and labels."""
    info, config = model.info, model.config
    sizes = config.model_kwargs if info is None else info.model_kwargs
    description: dict[str, Any] = {"format": format, "file": FORMATS[format]}
    description |= {key: getattr(config, key) for key in ("backbone", "algebra", "scope", "embedding", "task", "data")}
    description |= {"model_kwargs": sizes, "labels": list(getattr(info, "classes", ())) or None}
    if info is not None:
        with suppress(InputError):  # data without example inputs, which only programs require
            inputs = {name: {"dtype": dtype, "shape": axes} for name, (dtype, axes) in describe_inputs(model).items()}
            if format == "executorch":
                inputs = {name: facts | {"shape": [1, *facts["shape"][1:]]} for name, facts in inputs.items()}
            description["inputs"] = inputs
        description |= {"output": output_name(model), "info": info.to_dict()}
    return description | {"metrics": model.metrics or None, "versions": library_versions(config)}


def torch_layers(net: nn.Module) -> dict[str, str]:
    """Return the representations of all torch layers with weights, by name."""
    layers = {name: m for name, m in net.named_modules() if type(m).__module__.startswith("torch.nn") and m.state_dict()}
    return {name: f"torch.nn.{module!r}" for name, module in layers.items() if not list(module.children())}
