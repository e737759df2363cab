"""Trace a network with `torch.export`: its example inputs, the axes that vary, and the comparison with the model."""

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
"""Difference from the model above which an exported program is refused; it is 1e-5 at most where arithmetic alone differs."""


def input_names(net: nn.Module) -> list[str]:
    """Return the names of the arguments of a network."""
    return list(inspect.signature(net.forward).parameters)


def output_name(sizes: Mapping[str, Any]) -> str:
    """Name the output: logits of classes or of tokens, or numbers."""
    return "logits" if "num_classes" in sizes or "vocab_size" in sizes else "output"


def is_text(x: Tensor) -> bool:
    """Tell tokens [B, L] from other inputs."""
    return x.dtype == torch.int64 and x.ndim == 2


def example_inputs(model: Model, rows: int, length: int = 0, seed: int = 0) -> tuple[Tensor, ...]:
    """Draw inputs of a network: noise, or tokens of which the second text has only half, padded with 0.

    Raises:
        InputError: If nobody has said what the network reads.
    """
    try:
        given = model.info.example_inputs(rows)
    except (AttributeError, NotImplementedError) as error:
        advice = "torch.export.export(zoo.fold(model.net), inputs) in Python does it"
        raise InputError(
            f"the model does not say what its network reads, which --format pt2 and onnx need: {advice}"
        ) from error
    draw, inputs = torch.Generator().manual_seed(seed), []
    for x in given if isinstance(given, tuple) else (given,):
        if is_text(x):
            x = torch.randint(1, model.info.vocab_size, (rows, length or x.shape[1]), generator=draw)
            x[1:2, -(-x.shape[1] // 2) :] = 0
            inputs.append(x)
        else:
            inputs.append(torch.rand(x.shape, generator=draw).to(x.dtype) if x.is_floating_point() else x)
    return tuple(inputs)


def trials(model: Model) -> list[tuple[Tensor, ...]]:
    """Return inputs of several batches and lengths to compare a program and the model on."""
    longest = getattr(model.info, "max_length", 1)
    return [example_inputs(model, rows, max(1, longest // part), seed=rows) for rows, part in ((1, 1), (3, 2), (5, 3))]


def program(model: Model, net: nn.Module) -> torch.export.ExportedProgram:
    """Trace the folded network of a model, with a batch and lengths that vary.

    Raises:
        InputError: If torch cannot.
    """
    inputs, limit = example_inputs(model, 3), length_limit(net)
    several = sum(map(is_text, inputs)) > 1
    lengths = [torch.export.Dim(f"length_{i}" if several else "length", max=limit) for i in range(len(inputs))]
    batch = torch.export.Dim("batch")
    shapes = tuple({0: batch, 1: lengths[i]} if is_text(x) else {0: batch} for i, x in enumerate(inputs))
    with refusing(model), torch.no_grad():
        return torch.export.export(with_scanned_lstms(net), inputs, dynamic_shapes=shapes)


@contextmanager
def refusing(model: Model) -> Iterator[None]:
    """Say in one line that a network cannot be exported, and why; silence what torch says to its developers."""
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
    """Put in the place of torch's LSTMs, which are traced for one length only, ours over the reals, which scan the steps."""
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
    """Return the largest difference between what a program and the model answer.

    Raises:
        InputError: If it is no matter of rounding.
    """
    with refusing(model):
        difference = max(float((net(*inputs) - model.net(*inputs)).abs().max()) for inputs in trials(model))
    if not difference <= TOLERANCE:
        raise InputError(f"the exported program differs from the model by {difference:.2g}: it is not written")
    return difference
