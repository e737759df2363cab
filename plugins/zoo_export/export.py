"""Export a trained model for other runtimes: torch weights, a `torch.export` program, or ONNX."""

import inspect
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import torch
from torch import Tensor, nn

from zoo.algebras import reals
from zoo.atomic import new_folder, write_json, write_text
from zoo.checkpoint.folder import library_versions, save_weights
from zoo.conversion import convert, fold
from zoo.errors import InputError, one_line
from zoo.inference.model import Model
from zoo.nn.embedding import length_limit
from zoo.tasks.seq2seq import Seq2Seq
from zoo_export import FORMATS, check_options


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
            description["inputs"] = inputs
        description |= {"output": output_name(sizes or {}), "info": info.to_dict()}
    return description | {"metrics": model.metrics or None, "versions": library_versions(config)}


def torch_layers(net: nn.Module) -> dict[str, str]:
    """Return the representations of all torch layers with weights, by name."""
    layers = {name: m for name, m in net.named_modules() if type(m).__module__.startswith("torch.nn") and m.state_dict()}
    return {name: f"torch.nn.{module!r}" for name, module in layers.items() if not list(module.children())}


def write_program(model: Model, net: nn.Module, file: Path) -> dict[str, Any]:
    """Save a `torch.export` program, load it and compare it with the model."""
    exported = program(model, net)
    for node in exported.graph.nodes:
        node.meta.pop("stack_trace", None)  # contains paths of this machine
    with refusing(model):
        content = BytesIO()
        torch.export.save(exported, content)
        file.write_bytes(content.getvalue())  # on a full disk torch's own writer ends the process
        loaded = torch.export.load(file).module()
    return {"max_difference": check_equal(model, loaded)}


LONGEST = 1024  # maximum length of the texts to compare, because the memory of attention is quadratic
TOLERANCE = 1e-3  # maximum difference of an exported program from the model; rounding alone causes at most 1e-5


def output_name(sizes: Mapping[str, Any]) -> str:
    """Return the name of the output: "logits" of classes or tokens, or else "output"."""
    return "logits" if "num_classes" in sizes or "vocab_size" in sizes else "output"


def describe_inputs(model: Model) -> dict[str, tuple[str, list[str | int]]]:
    """Return the type and the axes of each input by name; dynamic axes have a name, others a size."""
    inputs, names = example_inputs(model, 3), inspect.signature(model.net.forward).parameters
    axes: list[list[str | int]] = [["batch", "length"] if is_text(x) else ["batch", *x.shape[1:]] for x in inputs]
    dtypes = [str(x.dtype).removeprefix("torch.") for x in inputs]
    return dict(zip(names, zip(dtypes, axes, strict=True), strict=False))


def is_text(x: Tensor) -> bool:
    """Return whether an input is a batch of token ids [B, L]."""
    return x.dtype == torch.int64 and x.ndim == 2


def example_inputs(model: Model, rows: int, length: int = 0, seed: int = 0) -> tuple[Tensor, ...]:
    """Draw random inputs; the second text has half the length and is padded with 0."""
    try:
        examples = model.info.example_inputs(rows)
    except (AttributeError, NotImplementedError) as error:
        advice = "use torch.export.export(zoo.fold(model.net), inputs) in Python"
        raise InputError(f"--format pt2 and onnx require example inputs, which the model does not have: {advice}") from error
    generator, inputs = torch.Generator().manual_seed(seed), []
    for x in examples if isinstance(examples, tuple) else (examples,):
        if is_text(x):
            x = torch.randint(1, model.info.vocab_size, (rows, length or x.shape[1]), generator=generator)
            x[1:2, -(-x.shape[1] // 2) :] = 0
            inputs.append(x)
        else:
            inputs.append(torch.rand(x.shape, generator=generator).to(x.dtype) if x.is_floating_point() else x)
    return tuple(inputs)


def trials(model: Model) -> list[tuple[Tensor, ...]]:
    """Return inputs of several batch sizes and sequence lengths."""
    longest = min(getattr(model.info, "max_length", 1), LONGEST)
    return [example_inputs(model, rows, max(1, longest // part), seed=rows) for rows, part in ((1, 1), (3, 2), (5, 3))]


def program(model: Model, net: nn.Module) -> torch.export.ExportedProgram:
    """Trace the folded network of a model with dynamic batch size and sequence lengths."""
    inputs, limit, batch = example_inputs(model, 3), length_limit(net), torch.export.Dim("batch")
    lengths = [torch.export.Dim(f"length_{number}" if number else "length", max=limit) for number in range(len(inputs))]
    shapes = tuple({0: batch, 1: lengths[i]} if is_text(x) else {0: batch} for i, x in enumerate(inputs))
    with refusing(model), torch.no_grad():
        return torch.export.export(with_scanned_steps(net), inputs, dynamic_shapes=shapes)


@contextmanager
def refusing(model: Model) -> Iterator[None]:
    """Convert errors of torch to `InputError`, and suppress its warnings."""
    with catch_warnings():
        simplefilter("ignore")
        try:
            yield
        except (InputError, OSError):
            raise
        except Exception as error:  # torch raises errors of a dozen classes here
            kind = model.config.backbone or type(model.net).__name__
            raise InputError(
                f"{kind} cannot be exported: {one_line(error)} (--format safetensors always can)", code="unsupported"
            ) from error


def with_scanned_steps(net: nn.Module) -> nn.Module:
    """Replace torch's LSTMs and GRUs, which are traced for a fixed length, by those of `zoo.nn`, which scan over the steps."""
    for name, old in list(net.named_modules()):
        if isinstance(old, nn.LSTM | nn.GRU):
            net.set_submodule(name, convert(old, reals(), weights="project"))
    return net


@torch.no_grad()
def check_equal(model: Model, net: Any) -> float:
    """Return the largest difference between the outputs of a program and of the model; `InputError` above `TOLERANCE`."""
    with refusing(model):
        difference = max(float((net(*inputs) - model.net(*inputs)).abs().max()) for inputs in trials(model))
    if not difference <= TOLERANCE:
        raise InputError(f"the exported program differs from the model by {difference:.2g} (limit {TOLERANCE:g}): not written")
    return difference


QUANTIZED = ("MatMul", "Gather", "LSTM")  # the quantized operators; a linear layer is a MatMul, an embedding a Gather


def write_onnx(model: Model, folded: Model, file: Path, quantize: bool, measure: bool) -> dict[str, Any]:
    """Write the folded network of a model as ONNX, compare it with the model, and optionally quantize it."""
    traced = program(model, folded.net.requires_grad_(False))  # else torch cannot decompose products without gradients
    names = {"input_names": list(describe_inputs(model)), "output_names": [output_name(folded.info.model_kwargs)]}
    with refusing(model), torch.no_grad():
        exported = torch.onnx.export(traced, dynamo=True, verbose=False, **names)  # type: ignore[arg-type]
        assert exported is not None
        for node in exported.model.graph.all_nodes():
            node.metadata_props.clear()  # contains paths of this machine
        exported.save(file)
    if not find_spec("onnxruntime"):
        return {"max_difference": None}
    network = OnnxNetwork(file, model.net)
    details: dict[str, Any] = {"max_difference": check_equal(model, network)}
    if not quantize:
        return details
    details["float_bytes"] = file.stat().st_size
    whole = file.rename(file.with_name("float.onnx"))
    try:
        quantized(whole, file)
    finally:
        whole.unlink()
    return details | (cost(folded, network, OnnxNetwork(file, model.net)) if measure else {})


def quantized(source: Path, target: Path) -> None:
    """Write a dynamically quantized network: 8-bit matrices with one scale per column."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    options = {"EnableSubgraph": True, "MatMulConstBOnly": True}
    logging.getLogger().addFilter(_is_relevant)
    model = onnx.load(source)
    del model.graph.value_info[:]  # shapes become wrong when quantize_dynamic transposes matrices
    try:
        quantize_dynamic(model, target, QUANTIZED, per_channel=True, weight_type=QuantType.QInt8, extra_options=options)
    finally:
        logging.getLogger().removeFilter(_is_relevant)


def _is_relevant(record: logging.LogRecord) -> bool:
    return "pre-processing before quantization" not in record.getMessage()


def cost(model: Model, network: "OnnxNetwork", small: "OnnxNetwork") -> dict[str, Any]:
    """Return the test metrics of both networks, or the reason why they cannot be measured."""
    if isinstance(model.task, Seq2Seq):
        return {"unmeasured": "the metrics of generated texts need a key-value cache"}
    try:
        return {"float_metrics": run_by(model, network).evaluate(), "metrics": run_by(model, small).evaluate()}
    except (InputError, OSError) as error:
        return {"unmeasured": one_line(error)}


def run_by(model: Model, network: "OnnxNetwork") -> Model:
    """Return a copy of a model with an ONNX network."""
    copied = copy(model)
    copied.net = network
    copied.task = copy(model.task)
    if copied.task is not None:
        copied.task._modules = copied.task._modules | {"net": network}
    return copied


class OnnxNetwork(nn.Module):
    """An ONNX network run by onnxruntime; ``like`` is the network that was exported."""

    def __init__(self, file: Path, like: nn.Module) -> None:
        super().__init__()
        from onnxruntime import InferenceSession, SessionOptions

        options = SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 3
        self.session = InferenceSession(file.read_bytes(), options, providers=["CPUExecutionProvider"])
        self.names = [argument.name for argument in self.session.get_inputs()]
        self.max_length = getattr(like, "max_length", None)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Run the network."""
        given = {name: x.cpu().numpy() for name, x in zip(self.names, inputs, strict=True)}
        return torch.from_numpy(self.session.run(None, given)[0])
