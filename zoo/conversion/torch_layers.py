"""The layers of torch that `zoo.convert` replaces: their sizes and matrices, and the layers of `zoo.nn` that replace them."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from zoo.nn import (
    GRU,
    LSTM,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Linear,
    MultiheadAttention,
)

REPLACEMENTS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: Linear,
    nn.Conv1d: Conv1d,
    nn.Conv2d: Conv2d,
    nn.Conv3d: Conv3d,
    nn.ConvTranspose1d: ConvTranspose1d,
    nn.ConvTranspose2d: ConvTranspose2d,
    nn.ConvTranspose3d: ConvTranspose3d,
    nn.LSTM: LSTM,
    nn.GRU: GRU,
    nn.MultiheadAttention: MultiheadAttention,
}
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *TRANSPOSED)


def is_conv1d_of_transformers(module: nn.Module) -> bool:
    """Return whether a module is Hugging Face's Conv1D of GPT-2, a linear layer whose weight is [in, out]."""
    weight = getattr(module, "weight", None)
    is_named = type(module).__name__ == "Conv1D" and isinstance(weight, nn.Parameter)
    return is_named and list(weight.shape[1:]) == [getattr(module, "nf", None)]  # type: ignore[union-attr]


def torch_class(module: nn.Module) -> type[nn.Module] | None:
    """Return the class of `REPLACEMENTS` of a module, or None."""
    if is_conv1d_of_transformers(module):
        return nn.Linear
    return next((kind for kind in REPLACEMENTS if isinstance(module, kind)), None)


def is_matrix(module: nn.Module) -> bool:
    """Return whether `zoo.convert` supports a module."""
    return torch_class(module) is not None


def channels(module: Any) -> tuple[int, int]:
    """Return the real input and output channels of a matrix, of an LSTM or GRU those of its first one."""
    if isinstance(module, nn.MultiheadAttention):
        return module.embed_dim, 3 * module.embed_dim
    if isinstance(module, nn.RNNBase):
        return module.input_size, gates(module) * module.hidden_size
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    if isinstance(module, CONVOLUTIONS):
        return module.in_channels, module.out_channels
    inp, out = module.weight.shape
    return inp, out


def default_role(module: nn.Module) -> str:
    """Return the role of a layer outside attention, the stem and the head."""
    return "conv" if isinstance(module, CONVOLUTIONS) else "recurrent" if isinstance(module, nn.RNNBase) else "ffn"


def gates(module: nn.RNNBase) -> int:
    """Return the number of gates."""
    return LSTM.gates if isinstance(module, nn.LSTM) else GRU.gates


def recurrent_suffixes(module: nn.RNNBase) -> Iterator[str]:
    """Yield the suffixes of the names of parameters: layer by layer, each forward and then in reverse."""
    for layer in range(module.num_layers):
        yield from (f"l{layer}{suffix}" for suffix in ("", "_reverse")[: 1 + module.bidirectional])


def real_weight(module: Any) -> Tensor:
    """Return the real matrix of a layer, [out, in / groups, *kernel], detached; not of an LSTM or GRU, which have several."""
    weight: Tensor = (module.in_proj_weight if isinstance(module, nn.MultiheadAttention) else module.weight).detach()
    if isinstance(module, TRANSPOSED):  # [in, out / groups, *kernel]
        by_group: Tensor = weight.unflatten(0, (module.groups, -1))
        return by_group.transpose(1, 2).flatten(0, 1)
    return weight.T if is_conv1d_of_transformers(module) else weight
