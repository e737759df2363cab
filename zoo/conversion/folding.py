"""Fold a network over an algebra into plain torch layers: every computed matrix becomes an ordinary parameter."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from zoo.conversion.multihead_attention import MultiheadAttention
from zoo.conversion.replacement import PRETRAINED
from zoo.errors import InputError
from zoo.layers import LSTM, Conv1d, Conv2d, Embedding, Linear
from zoo.layers.weight import Weight

Folded = TypeVar("Folded")


def fold(model: Folded) -> Folded:
    r"""Return a copy in which every layer over an algebra is torch's own layer with the same real matrix.

    `Linear`, `Conv1d`, `Conv2d`, `Embedding` and `LSTM` become those of `torch.nn`, and so does the multi-head attention that
    `zoo.convert` makes; no other class of the zoo is needed to run them, and the state dict has torch's names. Their matrices
    are n times as large as the components were. Kept are devices, dtypes, modes, hooks, what is trained, and which layers
    share a parameter. Products of two inputs (attention by product, `zoo.layers.Product`) multiply by the table, and stay.

    A convolution with groups becomes a dense one with zeros: a group takes its share of every component, which is no run of
    channels. The second biases of an LSTM are zero and not trained.

    Args:
        model: Any `torch.nn.Module`, or a `zoo.Model`, which then predicts, generates and is measured as before.

    Raises:
        InputError: If it is neither, or a layer of somebody else computes with a `zoo.layers.weight.Weight` in its own way.

    Example:
        >>> from zoo.algebras import reals
        >>> fold(nn.Sequential(Linear(reals(), 2, 3)))
        Sequential(
          (0): Linear(in_features=2, out_features=3, bias=True)
        )
    """
    net: Any = model if isinstance(model, nn.Module) else getattr(model, "net", None)
    if not isinstance(net, nn.Module):
        raise InputError(f"fold takes a torch.nn.Module or a zoo.Model, not {model!r:.60}")
    with torch.inference_mode(False):
        parts = _Parts()
        # From the inside out, since torch's attention holds a linear layer.
        pairs = [(old, new) for old in reversed(list(net.modules())) if (new := parts.fold(old)) is not None]
        for old, new in pairs:
            for name in filter(_is_hook, vars(old)):
                setattr(new, name, parts.copy(getattr(old, name)))
        folded: Any = parts.copy(model)
    net = folded if isinstance(folded, nn.Module) else folded.net
    if unknown := {name.rpartition(".")[0] for name, module in net.named_modules() if isinstance(module, Weight)}:
        kinds = sorted(f"'{name}' ({type(net.get_submodule(name)).__name__})" for name in unknown)
        raise InputError(f"no torch layer computes what {kinds[0]} does with its weight: fold the networks around it")
    vars(net).pop("conversion", None)
    for name in PRETRAINED:
        guard = vars(net).get(name)
        if isinstance(guard, partial) and not guard.args[1]:  # a folded Conv1D is a linear layer, which its class cannot load
            delattr(net, name)
    net.is_folded = True
    return folded  # type: ignore[no-any-return]


def _is_hook(attribute: str) -> bool:
    return attribute.startswith(("_forward_", "_backward_")) or attribute == "_is_full_backward_hook"


class _Parts:
    """The parts of a copy: what was folded stands in `copy.deepcopy`'s memo, so that every place of it gets the same."""

    def __init__(self) -> None:
        self.memo: dict[int, Any] = {}
        self.matrices: list[tuple[Tensor, nn.Parameter]] = []

    def copy(self, part: Any) -> Any:
        return copy.deepcopy(part, self.memo)

    def fold(self, old: nn.Module) -> nn.Module | None:
        """Make torch's layer in place of one over an algebra, or return None for other modules."""
        build: Any = next((made for kind, made in _FOLDED.items() if _computes_as(old, kind)), None)
        if build is None:
            return None
        new: nn.Module = build(old, self).train(old.training)
        self.memo[id(old)] = new
        return new

    def parameter(self, weight: Weight, matrix: Tensor | None = None) -> nn.Parameter:
        """Return the matrix of a weight as a parameter, the same one for weights that share their components."""
        w, is_trained = weight.components, any(p.requires_grad for p in weight.parameters())
        if matrix is None and weight.is_matrix and not weight.is_reparametrized:
            return self.copy(w)  # type: ignore[no-any-return]
        matrix = (weight.matrix() if matrix is None else matrix).detach()
        for components, made in self.matrices:
            if components is w and made.shape == matrix.shape and torch.equal(made, matrix):
                return made
        self.matrices.append((w, nn.Parameter(matrix.contiguous().clone(), requires_grad=is_trained)))
        return self.matrices[-1][1]


def _computes_as(module: nn.Module, kind: type[nn.Module]) -> bool:
    return isinstance(module, kind) and type(module).forward is kind.forward


def _linear(old: Linear, parts: _Parts) -> nn.Module:
    new = nn.Linear(old.in_features, old.out_features, old.bias is not None, device="meta")
    new.weight, new.bias = parts.parameter(old.weight_module), parts.copy(old.bias)
    return new


def _embedding(old: Embedding, parts: _Parts) -> nn.Module:
    new = nn.Embedding(old.num_embeddings, old.embedding_dim, old.padding_idx, device="meta")
    new.weight = parts.parameter(old.weight_module, None if old.weight_module.is_matrix else old.output_weight)
    return new


def _conv(old: Any, parts: _Parts) -> nn.Module:
    is_shared_out = old.groups > 1 and old.algebra.n > 1
    names = ("stride", "padding", "dilation", "padding_mode")
    options = {name: getattr(old, name) for name in names} | {"groups": 1 if is_shared_out else old.groups, "device": "meta"}
    new = old.real(old.in_channels, old.out_channels, old.kernel_size, bias=old.bias is not None, **options)
    new.weight = parts.parameter(old.weight_module, old.dense_weight() if is_shared_out else None)
    new.bias = parts.copy(old.bias)
    return new  # type: ignore[no-any-return]


def _lstm(old: LSTM, parts: _Parts) -> nn.Module:
    options: dict[str, Any] = {"bidirectional": old.bidirectional, "batch_first": True, "device": "meta"}
    new = nn.LSTM(old.input_size, old.hidden_size, old.num_layers, dropout=old.dropout, **options)
    cells: list[Any] = list(old.cells)
    for index, cell in enumerate(cells):
        layer, direction = divmod(index, 1 + old.bidirectional)
        place, zero = f"l{layer}{'_reverse' * direction}", torch.zeros_like(cell.bias.detach())
        for side, weights, matrix in zip(("ih", "hh"), (cell.from_input, cell.from_hidden), cell.matrices(), strict=True):
            is_trained = any(p.requires_grad for p in weights.parameters())
            setattr(new, f"weight_{side}_{place}", nn.Parameter(matrix.detach().clone(), requires_grad=is_trained))
        setattr(new, f"bias_ih_{place}", parts.copy(cell.bias))
        setattr(new, f"bias_hh_{place}", nn.Parameter(zero, requires_grad=False))
    new.flatten_parameters()
    return new


def _attention(old: MultiheadAttention, parts: _Parts) -> nn.Module:
    bias = old.in_proj_bias is not None
    options: dict[str, Any] = {"add_zero_attn": old.add_zero_attn, "batch_first": old.batch_first, "device": "meta"}
    new = nn.MultiheadAttention(old.embed_dim, old.num_heads, old.dropout, bias, **options)
    new.in_proj_weight = parts.parameter(old.in_proj)
    for name in ("in_proj_bias", "bias_k", "bias_v", "out_proj"):
        setattr(new, name, parts.copy(getattr(old, name)))
    return new


_FOLDED: dict[type[nn.Module], Callable[[Any, _Parts], nn.Module]] = {
    Linear: _linear,
    Conv1d: _conv,
    Conv2d: _conv,
    Embedding: _embedding,
    LSTM: _lstm,
    MultiheadAttention: _attention,
}
