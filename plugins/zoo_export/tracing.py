"""Trace a network with dynamic batch size and sequence lengths, and compare what is exported with the model."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from warnings import catch_warnings, simplefilter

import torch
from torch import Tensor, nn

from zoo.algebras import reals
from zoo.conversion import convert
from zoo.errors import InputError, one_line
from zoo.inference.model import Model
from zoo.nn.weight import Weight

LONGEST = 1024  # maximum length of the texts to compare, because the memory of attention is quadratic
TOLERANCE = 1e-3  # maximum difference of an exported program from the model; rounding alone causes at most 1e-5


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


def program(model: Model, net: nn.Module, rows: int | None = None) -> torch.export.ExportedProgram:
    """Trace a network with the inputs of a model, with dynamic batch size and sequence lengths.

    For a fixed number of rows the lengths are bounded: runtimes that plan the memory need it.
    """
    inputs, limit = example_inputs(model, rows or 3), getattr(net, "max_length", None)
    batch: Any = torch.export.Dim.STATIC if rows else torch.export.Dim("batch")
    limit = limit or (getattr(model.info, "max_length", None) if rows else None)
    lengths = [torch.export.Dim(f"length_{number}" if number else "length", max=limit) for number in range(len(inputs))]
    shapes = tuple({0: batch, 1: lengths[i]} if is_text(x) else {0: batch} for i, x in enumerate(inputs))
    for module in net.modules():
        if isinstance(module, Weight):
            module.action()  # compute the constant in this dtype before tracing
    with refusing(model), torch.no_grad():
        exported = torch.export.export(net, inputs, dynamic_shapes=shapes)
    for module in exported.graph_module.modules():  # loops have graphs of their own
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                node.meta.pop("stack_trace", None)  # contains paths of this machine
    return exported


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
        differences = [(net(*inputs) - model.net(*inputs)).abs().max() for inputs in trials(model)]
        difference = float(torch.stack(differences).max())  # NaN if one of them is
    if not difference <= TOLERANCE:
        raise InputError(f"the exported program differs from the model by {difference:.2g} (limit {TOLERANCE:g}): not written")
    return difference


def cost(model: Model, small: Model) -> dict[str, Any]:
    """Return the test metrics of a model and of its quantized form, or the reason why they cannot be measured."""
    try:
        return {"float_metrics": model.evaluate(), "metrics": small.evaluate()}
    except (InputError, OSError) as error:
        return {"unmeasured": one_line(error)}
