"""Fold a network over an algebra into torch layers, with real matrices as parameters."""

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from zoo.conversion.adapters import AdaptedLayer, add_update
from zoo.conversion.replacement import integrate
from zoo.conversion.torch_layers import REPLACEMENTS, recurrent_suffixes
from zoo.errors import InputError
from zoo.nn import Embedding, Linear, MultiheadAttention
from zoo.nn.conv import Convolution, ConvTranspose, computes_as
from zoo.nn.recurrent import Recurrent
from zoo.nn.weight import Weight

Model = TypeVar("Model")


def fold(model: Model) -> Model:
    r"""Return a copy in which torch layers with the same real matrices replace all layers over an algebra.

    The layers of `zoo.nn` that torch has become those of `torch.nn`, with torch's names in the state dict. A matrix is n times
    as large as its components. Devices, dtypes, modes, ``requires_grad`` and shared parameters are preserved; hooks of folded
    layers are not. Products of two inputs (`zoo.nn.Product`, attention with ``score=product``) are not changed.

    A grouped convolution becomes a dense one with zeros, because each group reads a part of every component. The second biases
    of an LSTM, and those of a GRU except for its hidden biases, are zero and not trained. The model may be a `zoo.Model`, which
    can still predict, generate and evaluate.

    Example:
        >>> from zoo.algebras import reals
        >>> fold(nn.Sequential(Linear(2, 3, algebra=reals())))
        Sequential(
          (0): Linear(in_features=2, out_features=3, bias=True)
        )
    """
    net: Any = model if isinstance(model, nn.Module) else model.net  # type: ignore[attr-defined]
    with torch.inference_mode(False):
        copier = _Copier()
        # Submodules first, because torch's attention contains a linear layer.
        for module in reversed(list(net.modules())):
            copier.fold(module)
        folded: Any = copier.copy(model)
    net = folded if isinstance(folded, nn.Module) else folded.net
    for name, module in net.named_modules():
        if isinstance(module, Weight):
            layer = name.rpartition(".")[0]
            kind = type(net.get_submodule(layer)).__name__
            text = f"layer '{layer}' ({kind}) has no equivalent in torch: fold the other parts of the network"
            raise InputError(text, code="unsupported")
    for module in [net, *(module for module in net.modules() if "conversion" in vars(module))]:
        vars(module).pop("conversion", None)
        integrate(module)
    net.is_folded = True
    return folded  # type: ignore[no-any-return]


class _Copier:
    """Copies parts of a network with one memo for `copy.deepcopy`, in which folded layers replace the original ones."""

    def __init__(self) -> None:
        self.memo: dict[int, Any] = {}
        self.matrices: list[tuple[Tensor, nn.Parameter]] = []

    def copy(self, part: Any) -> Any:
        return copy.deepcopy(part, self.memo)

    def fold(self, old: nn.Module) -> None:
        """Let copies have a torch layer in place of a layer over an algebra."""
        build = next((build for kind, build in _BUILDERS.items() if computes_as(old, kind)), None)
        if build is not None:
            self.memo[id(old)] = build(old, self).train(old.training)

    def parameter(self, weight: Weight, matrix: Tensor | None = None) -> nn.Parameter:
        """Return the matrix of a weight as a parameter, which is shared by weights with shared components."""
        w, is_trained = weight.components, any(p.requires_grad for p in weight.parameters())
        if matrix is None and weight() is weight.components:
            return self.copy(w)  # type: ignore[no-any-return]
        matrix = (weight() if matrix is None else matrix).detach()
        for components, parameter in self.matrices:
            if components is w and parameter.shape == matrix.shape and torch.equal(parameter, matrix):
                return parameter
        self.matrices.append((w, nn.Parameter(matrix.contiguous().clone(), requires_grad=is_trained)))
        return self.matrices[-1][1]


def _linear(old: Linear, copier: _Copier) -> nn.Module:
    if old.real is not nn.Linear:  # Hugging Face's Conv1D, whose weight is [in, out]
        with torch.device("meta"):
            transposed: nn.Module = old.real(old.out_features, old.in_features)
        transposed.weight, transposed.bias = copier.parameter(old.weight_module, old.matrix().T), copier.copy(old.bias)
        return transposed
    new = nn.Linear(old.in_features, old.out_features, old.bias is not None, device="meta")
    new.weight, new.bias = copier.parameter(old.weight_module), copier.copy(old.bias)
    return new


def _embedding(old: Embedding, copier: _Copier) -> nn.Module:
    new = nn.Embedding(old.num_embeddings, old.embedding_dim, old.padding_idx, device="meta")
    new.weight = copier.parameter(old.weight_module, None if old.weight_module.is_matrix else old.matrix())
    return new


def _conv(old: Any, copier: _Copier) -> nn.Module:
    is_dense = old.groups > 1 and old.algebra.n > 1
    is_transposed = isinstance(old, ConvTranspose)
    names = "stride", "padding", "dilation", "padding_mode", *(("output_padding",) if is_transposed else ())
    options: dict[str, Any] = {name: getattr(old, name) for name in names}
    options |= {"groups": 1 if is_dense else old.groups, "bias": old.bias is not None, "device": "meta"}
    new = old.real(old.in_channels, old.out_channels, old.kernel_size, **options)
    matrix = old.dense_weight() if is_dense else old.matrix() if is_transposed else None
    new.weight = copier.parameter(old.weight_module, matrix)
    new.bias = copier.copy(old.bias)
    return new  # type: ignore[no-any-return]


def _recurrent(old: Recurrent, copier: _Copier) -> nn.Module:
    options: dict[str, Any] = {"bidirectional": old.bidirectional, "batch_first": old.batch_first, "device": "meta"}
    kind: Any = _TORCH_LAYERS[type(old)]
    new = kind(old.input_size, old.hidden_size, old.num_layers, old.bias, dropout=old.dropout, **options)
    cells: list[Any] = list(old.cells)
    for cell, suffix in zip(cells, recurrent_suffixes(new), strict=True):
        for side, weights, matrix in zip(("ih", "hh"), (cell.from_input, cell.from_hidden), cell.matrices(), strict=True):
            is_trained = any(p.requires_grad for p in weights.parameters())
            setattr(new, f"weight_{side}_{suffix}", nn.Parameter(matrix.detach().clone(), requires_grad=is_trained))
        if cell.bias is not None:
            _, second = cell.biases()
            setattr(new, f"bias_ih_{suffix}", copier.copy(cell.bias))
            is_trained = cell.hidden_bias is not None and cell.hidden_bias.requires_grad
            setattr(new, f"bias_hh_{suffix}", nn.Parameter(second.detach().clone(), requires_grad=is_trained))
    new.flatten_parameters()
    return new  # type: ignore[no-any-return]


def _attention(old: MultiheadAttention, copier: _Copier) -> nn.Module:
    bias = old.in_proj_bias is not None
    options: dict[str, Any] = {"add_zero_attn": old.add_zero_attn, "batch_first": old.batch_first, "device": "meta"}
    new = nn.MultiheadAttention(old.embed_dim, old.num_heads, old.dropout, bias, **options)
    new.in_proj_weight = copier.parameter(old.in_proj)
    for name in ("in_proj_bias", "bias_k", "bias_v", "out_proj"):
        setattr(new, name, copier.copy(getattr(old, name)))
    return new


def _adapted(old: AdaptedLayer, copier: _Copier) -> nn.Module:
    new: nn.Module = copier.copy(old.base_layer)
    is_trained = any(p.requires_grad for p in old.update.parameters())
    if isinstance(new.weight, nn.Parameter) and new.weight.is_floating_point():  # other layers may share it
        new.weight = nn.Parameter(new.weight.detach().clone(), requires_grad=is_trained)
    add_update(new, old.update.matrix())
    return new


_TORCH_LAYERS = {ours: theirs for theirs, ours in REPLACEMENTS.items()}
_BUILDERS: dict[type[nn.Module], Callable[[Any, _Copier], nn.Module]] = {
    AdaptedLayer: _adapted,
    Linear: _linear,
    Embedding: _embedding,
    MultiheadAttention: _attention,
    **{ours: _conv for ours in _TORCH_LAYERS if issubclass(ours, Convolution)},
    **{ours: _recurrent for ours in _TORCH_LAYERS if issubclass(ours, Recurrent)},
}
