"""Trace a network with `torch.export`, and compare the program with the model."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from warnings import catch_warnings, simplefilter

import torch
from torch import Tensor, nn

from zoo.algebras import reals
from zoo.errors import InputError, one_line
from zoo.inference.model import Model
from zoo.layers import LSTM
from zoo.layers.positions import length_limit

TOLERANCE = 1e-3
"""Maximum difference of an exported program from the model; rounding alone causes at most 1e-5."""


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
    """Draw random inputs; the second text has half the length and is padded with 0.

    Raises:
        InputError: If the model has no example inputs.
    """
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
    longest = getattr(model.info, "max_length", 1)
    return [example_inputs(model, rows, max(1, longest // part), seed=rows) for rows, part in ((1, 1), (3, 2), (5, 3))]


def program(model: Model, net: nn.Module) -> torch.export.ExportedProgram:
    """Trace the folded network of a model with dynamic batch size and sequence lengths.

    Raises:
        InputError: If torch cannot trace it.
    """
    inputs, limit, batch = example_inputs(model, 3), length_limit(net), torch.export.Dim("batch")
    lengths = [torch.export.Dim(f"length_{number}" if number else "length", max=limit) for number in range(len(inputs))]
    shapes = tuple({0: batch, 1: lengths[i]} if is_text(x) else {0: batch} for i, x in enumerate(inputs))
    with refusing(model), torch.no_grad():
        return torch.export.export(with_scanned_lstms(net), inputs, dynamic_shapes=shapes)


@contextmanager
def refusing(model: Model) -> Iterator[None]:
    """Convert errors of torch to `InputError`, and suppress its warnings."""
    with catch_warnings():
        simplefilter("ignore")
        try:
            yield
        except InputError:
            raise
        except Exception as error:  # torch raises errors of a dozen classes here
            kind = model.config.get("backbone") or type(model.net).__name__
            raise InputError(f"{kind} cannot be exported: {one_line(error)} (--format safetensors always can)") from error


def with_scanned_lstms(net: nn.Module) -> nn.Module:
    """Replace torch's LSTMs, which are traced for a fixed length, by real `zoo.layers.LSTM`, which scan over the steps."""
    for name, old in list(net.named_modules()):
        if isinstance(old, nn.LSTM):
            new = LSTM(reals(), old.input_size, old.hidden_size, old.num_layers, old.bidirectional, old.dropout)
            parts = [[getattr(old, key) for key in keys] for keys in old._all_weights]
            cells: list[Any] = list(new.cells)
            with torch.no_grad():
                for cell, (inp, hidden, bias, zero) in zip(cells, parts, strict=True):
                    cell.from_input[0].components.copy_(inp.view_as(cell.from_input[0].components))
                    cell.from_hidden[0].components.copy_(hidden.view_as(cell.from_hidden[0].components))
                    cell.bias.copy_(bias + zero)
            net.set_submodule(name, new.train(old.training))
    return net


@torch.no_grad()
def check_equal(model: Model, net: Any) -> float:
    """Return the largest difference between the outputs of a program and of the model.

    Raises:
        InputError: If it exceeds `TOLERANCE`.
    """
    with refusing(model):
        difference = max(float((net(*inputs) - model.net(*inputs)).abs().max()) for inputs in trials(model))
    if not difference <= TOLERANCE:
        raise InputError(f"the exported program differs from the model by {difference:.2g} (limit {TOLERANCE:g}): not written")
    return difference
