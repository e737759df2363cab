"""Adapters over an algebra: small trained updates of the matrices of a frozen network."""

import math
from collections.abc import Sequence
from fnmatch import fnmatch
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.algebras import Algebra, FactoredAlgebra, action
from zoo.algebras import algebra as named
from zoo.conversion.replacement import stem_and_head
from zoo.conversion.torch_layers import is_conv1d_of_transformers
from zoo.conversion.transfer import nearest_components
from zoo.errors import InputError, check_choice
from zoo.kernels import AxisLayout, axis_layout, real_matrix
from zoo.nn.conv import Convolution, ConvTranspose
from zoo.nn.linear import ComputedWeight

CHANNEL_ORDERS = ("component", "element")
TOLERANCE = 1e-4  # relative error up to which an update counts as a matrix over the algebra of its layer
_CONVOLVE = (F.conv1d, F.conv2d, F.conv3d)


class Sizes(NamedTuple):
    """The channels of a layer; kernel, stride, padding and dilation of a convolution; layouts of a layer over an algebra."""

    inp: int
    out: int
    kernel: tuple[int, ...] = ()
    geometry: tuple[Any, ...] = ()
    layouts: tuple[AxisLayout, ...] = ()  # of the inputs and the outputs

    @classmethod
    def of(cls, layer: Any) -> Self:
        """Read the sizes of a linear layer or a convolution, which may be quantized or over an algebra."""
        if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d | Convolution) and not isinstance(layer, ConvTranspose):
            if layer.groups != 1 or layer.padding_mode != "zeros":
                text = f"groups={layer.groups} and padding_mode={layer.padding_mode}"
                raise InputError(f"adapters do not support a convolution with {text}", code="unsupported")
            return cls(layer.in_channels, layer.out_channels, layer.kernel_size, (layer.stride, layer.padding, layer.dilation))
        if is_conv1d_of_transformers(layer):
            return cls(*layer.weight.shape)
        is_read_by_its_owner = isinstance(layer, nn.modules.linear.NonDynamicallyQuantizableLinear)
        sizes = getattr(layer, "in_features", None), getattr(layer, "out_features", None)
        if isinstance(layer, nn.Bilinear) or is_read_by_its_owner or not all(isinstance(size, int) for size in sizes):
            kind = "the output projection of torch's attention" if is_read_by_its_owner else f"a {type(layer).__name__}"
            raise InputError(f"adapters support linear layers and convolutions, not {kind}", code="unsupported")
        weight = layer.weight_module if isinstance(layer, ComputedWeight) else None
        return cls(*sizes, layouts=(weight.inp, weight.out) if weight else ())  # type: ignore[arg-type]


class Rule(nn.Module):
    """The product of a weight and an input, [m, n, n], see `zoo.algebras.action`; several updates may share it.

    It is a parameter if the algebra is learned, and otherwise a constant.
    """

    table: Tensor

    def __init__(self, algebra: Algebra | str) -> None:
        super().__init__()
        algebra = named(algebra)
        if algebra.kind == "learned" and isinstance(algebra, FactoredAlgebra):
            raise InputError(f"{algebra.spec}: adapters do not support products of a fixed rank", code="unsupported")
        table = action(algebra.for_layer(), torch.empty(0, device="cpu")).detach().clone()
        if algebra.kind == "learned":
            self.table = nn.Parameter(table)
        else:
            self.register_buffer("table", table, persistent=algebra.kind == "random")


class Update(nn.Module):
    r"""The update of a matrix, alpha M(w), where M(w) is the real matrix of a weight w over an algebra of dimension n.

    With a block rank r, w_i = B_i A_i: r (in + out) weights for m = n, as many as LoRA of rank r (Hu et al. 2022), but an
    update of rank up to r n m. With block rank 0 the parameter is w, m in out / n^2 weights. The update is zero at first.
    Products with inputs never build M(w).

    Over the reals it is LoRA. The shared rule of a learned product is the PHM layer of Compacter (Karimi Mahabadi et al. 2021,
    Eq. 5), one Kronecker term is LoKr (Yeh et al. 2024), and the cyclic algebra with block rank 0 and ``channels="element"``
    is C3A (Chen et al. 2025).

    Args:
        rule: The product, of dimension n.
        sizes: The sizes of the layer; n must divide its channels.
        block_rank: The rank r of each of the m component matrices; 0 stores them in full.
        alpha: Factor of the update: LoRA's ``lora_alpha / r``.
        dropout: Probability of dropping an input of the update.
        channels: Order of channels: ``component`` for n slices of the axis, or of each head if the layer is over an algebra
            of the same dimension; ``element`` for n consecutive channels per element.

    Attributes:
        down: A [m, r, in / n, *kernel].
        up: B [m, out / n, r].
        full: w [m, out / n, in / n, *kernel].

    Raises:
        InputError: If n does not divide the channels or r is larger than a component matrix.
    """

    def __init__(
        self,
        rule: Rule,
        sizes: Sizes,
        block_rank: int = 8,
        alpha: float = 1.0,
        dropout: float = 0.0,
        channels: str = "component",
    ) -> None:
        super().__init__()
        check_numbers(block_rank, alpha, dropout)
        check_choice("order of channels", channels, CHANNEL_ORDERS)
        m, n, _ = rule.table.shape
        inp, out = sizes.inp // n, sizes.out // n
        if sizes.inp % n or sizes.out % n:
            raise InputError(
                f"n={n} does not divide {sizes.inp} inputs and {sizes.out} outputs: choose another algebra or layer"
            )
        limit = min(inp * math.prod(sizes.kernel), out)
        if not 0 <= block_rank <= limit:
            text = f"block_rank={block_rank} for {sizes.inp} inputs and {sizes.out} outputs over n={n}"
            raise InputError(f"{text}: must be from 1 to {limit}, or 0 for full matrices")
        self.rule, self.sizes, self.alpha = rule, sizes, alpha
        # A layer over an algebra of this dimension keeps its elements, of which each head of attention has its own.
        own = [layout.blocks if layout.n == n and not layout.is_padded else 1 for layout in sizes.layouts]
        self.blocks = (inp, out) if channels == "element" else tuple(own) or (1, 1)
        self.dropout = nn.Dropout(dropout)
        if block_rank:
            fan = inp * math.prod(sizes.kernel)
            self.down = nn.Parameter(torch.randn(m, block_rank, inp, *sizes.kernel) * fan**-0.5)
            self.up = nn.Parameter(torch.zeros(m, out, block_rank))
        else:
            self.full = nn.Parameter(torch.zeros(m, out, inp, *sizes.kernel))

    @property
    def n(self) -> int:
        """Dimension of the algebra."""
        return self.rule.table.shape[-1]

    def components(self) -> Tensor:
        """Return w, [m, out / n, in / n, *kernel], without alpha."""
        return self.full if hasattr(self, "full") else torch.einsum("mor,mr...->mo...", self.up, self.down)

    def matrix(self) -> Tensor:
        """Return the update of the real matrix, [out, in, *kernel]."""
        w = self.components()
        inp, out = self.blocks
        layouts = axis_layout(self.sizes.out, self.n, out), axis_layout(self.sizes.inp, self.n, inp)
        return self.alpha * real_matrix(self.rule.table.to(w.dtype), w, *layouts)

    def forward(self, x: Tensor) -> Tensor:
        """Return the update of the output of a layer for its input, in the dtype of the parameters."""
        x = self.dropout(x.to((self.full if hasattr(self, "full") else self.down).dtype))
        axis = -1 - len(self.sizes.kernel)
        inp, out = self.blocks
        x = x.unflatten(axis, (inp, self.n, -1)).transpose(axis - 2, axis - 1).flatten(axis - 1, axis)
        y = self._convolved(x) if self.sizes.kernel else self._multiplied(x)
        joined: Tensor = y.unflatten(axis, (out, -1)).transpose(axis - 2, axis - 1).flatten(axis - 2, axis)
        return self.alpha * joined

    def _multiplied(self, x: Tensor) -> Tensor:
        """Multiply inputs [..., n, in / n] by w: [..., n, out / n]."""
        table = self.rule.table.to(x.dtype)
        if hasattr(self, "full"):
            x, matrix = torch.einsum("ijk,...jc->...kic", table, x), self.full
        else:
            x = (x @ self.down.flatten(0, 1).T).unflatten(-1, (len(table), -1))
            x, matrix = torch.einsum("ijk,...jir->...kir", table, x), self.up
        # For other strides the last bits would depend on whether the matrix is trained.
        return x.flatten(-2).contiguous() @ matrix.transpose(1, 2).flatten(0, 1)

    def _convolved(self, x: Tensor) -> Tensor:
        """Convolve images [..., n, in / n, *space] with w: [..., n, out / n, *space]."""
        table, space = self.rule.table.to(x.dtype), len(self.sizes.kernel)
        convolve, leading = _CONVOLVE[space - 1], x.shape[: -1 - space]
        kernel = (self.full if hasattr(self, "full") else self.down).flatten(0, 1)
        x = convolve(x.reshape(-1, *x.shape[-1 - space :]), kernel, None, *self.sizes.geometry)
        x = x.unflatten(1, (len(table), -1)).unflatten(0, leading)
        shape, x = x.shape[-space:], x.flatten(-space)
        if hasattr(self, "full"):
            x = torch.einsum("ijk,...jiox->...kox", table, x)
        else:
            x = torch.einsum("ior,...irx->...ox", self.up, torch.einsum("ijk,...jirx->...kirx", table, x))
        y: Tensor = x.unflatten(-1, shape)
        return y

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *args: Any) -> None:
        for name, parameter in self.named_parameters(recurse=False):
            saved = state.get(prefix + name)
            if saved is not None and saved.shape != parameter.shape:
                text = f"{prefix}{name} has shape {list(saved.shape)}, expected {list(parameter.shape)}"
                raise InputError(f"the adapter belongs to another base model or configuration: {text}", code="mismatch")
        super()._load_from_state_dict(state, prefix, *args)

    def extra_repr(self) -> str:
        """Show the sizes, the dimension and the block rank."""
        rank = 0 if hasattr(self, "full") else self.up.shape[-1]
        return f"{self.sizes.inp} -> {self.sizes.out}, n={self.n}, block_rank={rank}, alpha={self.alpha}"


def check_numbers(block_rank: Any, alpha: Any, dropout: Any) -> None:
    """Raise `InputError` if the numbers of an update have wrong types or values for every layer."""
    if isinstance(block_rank, bool) or not isinstance(block_rank, int) or block_rank < 0:
        raise InputError(f"block_rank={block_rank!r}: must be a whole number of at least 0")
    if not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise InputError(f"alpha={alpha!r}: must be a finite number")
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise InputError(f"dropout={dropout!r}: must be at least 0 and less than 1")


class AdaptedLayer(nn.Module):
    """A frozen layer whose output gets an `Update`."""

    def __init__(self, base_layer: nn.Module, update: Update) -> None:
        super().__init__()
        self.base_layer, self.update = base_layer, update

    @property
    def weight(self) -> Tensor:
        """The matrix with the update, for modules that read the matrices of their layers."""
        weight: Any = self.base_layer.weight
        delta = self.update.matrix()
        matrix: Tensor = weight + (delta.T if is_conv1d_of_transformers(self.base_layer) else delta).to(weight.dtype)
        return matrix

    @property
    def bias(self) -> Tensor | None:
        """The bias of the layer."""
        return self.base_layer.bias  # type: ignore[return-value]

    def forward(self, x: Tensor) -> Tensor:
        """Add the update to the output of the layer."""
        y: Tensor = self.base_layer(x)
        update: Tensor = self.update(x)
        return y + update.to(y.dtype)


def adapt(
    model: nn.Module,
    algebra: Algebra | str,
    *,
    block_rank: int = 8,
    alpha: float = 1.0,
    dropout: float = 0.0,
    channels: str = "component",
    targets: Sequence[str] | None = None,
) -> nn.Module:
    """Freeze a network of torch, timm or Hugging Face in place, give its matrices trained updates, and return it.

    `zoo.fold` returns a copy in which the updates are added to the matrices. `zoo.peft` has the same updates for PEFT.

    Args:
        model: The network. Its output does not change at first.
        algebra: The algebra of the updates or its spec; a learned product is trained with them.
        block_rank: See `Update`, as are ``alpha``, ``dropout`` and ``channels``.
        targets: Shell patterns of the names of linear layers and convolutions; by default all between the stem and the head
            that support the update.

    Raises:
        InputError: If a pattern matches no module, or a layer does not support the update.

    Example:
        >>> from zoo.algebras import reals
        >>> net = adapt(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), reals(), block_rank=2)
        >>> [name for name, parameter in net.named_parameters() if parameter.requires_grad]
        ['0.update.down', '0.update.up', '2.update.down', '2.update.up']
    """
    algebra, updates, reasons = named(algebra), dict[nn.Module, Update](), dict[str, str]()
    rule = Rule(algebra) if algebra.shared else None
    for name, layer in _targets(model, targets).items():
        try:
            update = Update(rule or Rule(algebra), Sizes.of(layer), block_rank, alpha, dropout, channels)
        except InputError as error:
            if targets is not None:
                raise InputError(f"layer '{name}': {error}", code=error.code) from error
            reasons[name] = str(error)
            continue
        like = next((p for p in layer.parameters() if p.is_floating_point()), update.rule.table)
        updates[layer] = update.to(like.device, like.dtype).train(layer.training)
    if not updates:
        reason = next(iter(reasons.values()), "it has no linear layer or convolution between the stem and the head")
        raise InputError(f"no layer of this {type(model).__name__} can be adapted: {reason}", code="unsupported")
    model.requires_grad_(False)
    adapted = {layer: AdaptedLayer(layer, update) for layer, update in updates.items()}
    for update in updates.values():
        update.requires_grad_()
    for name, layer in list(model.named_modules(remove_duplicate=False)):
        if layer in adapted and name:
            model.set_submodule(name, adapted[layer])
    return adapted.get(model, model)


def _targets(model: nn.Module, patterns: Sequence[str] | None) -> dict[str, nn.Module]:
    """Return the layers that match a pattern, by default the linear layers and convolutions between the stem and the head."""
    modules = dict(model.named_modules())
    if any(isinstance(module, AdaptedLayer) for module in modules.values()):
        raise InputError("the model has adapters already: zoo.fold(model) adds them to its matrices")
    if patterns is None:
        ends, layers = stem_and_head(model), (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, ComputedWeight)
        kinds = {
            name: module for name, module in modules.items() if isinstance(module, layers) or is_conv1d_of_transformers(module)
        }
        return {name: module for name, module in kinds.items() if name not in ends}
    patterns = [patterns] if isinstance(patterns, str) else patterns
    if unused := [pattern for pattern in patterns if not any(fnmatch(name, pattern) for name in modules)]:
        raise InputError(f"target '{unused[0]}' matches no module of this model", code="unknown")
    return {name: module for name, module in modules.items() if any(fnmatch(name, pattern) for pattern in patterns)}


@torch.no_grad()
def add_update(layer: Any, delta: Tensor) -> None:
    """Add an update [out, in, *kernel] to the matrix of a layer; over an algebra, to the components of the matrix.

    Raises:
        InputError: If the matrix is quantized, or the layer is over an algebra and the update is not a matrix over it.
    """
    if not isinstance(layer, ComputedWeight):
        weight = getattr(layer, "weight", None)
        if not isinstance(weight, nn.Parameter) or not weight.is_floating_point():
            raise InputError(
                f"the matrix of a {type(layer).__name__} is quantized: keep the adapter beside it", code="unsupported"
            )
        weight.data = weight.data + (delta.T if is_conv1d_of_transformers(layer) else delta).to(weight)
        return
    weight = layer.weight_module
    components = nearest_components(delta, weight.action(), weight.out, weight.inp)
    error = (
        real_matrix(weight.action().to(delta), components, weight.out, weight.inp) - delta
    ).norm() / delta.norm().clamp_min(1e-30)
    if error > TOLERANCE:
        over = weight.algebra.spec or f"an algebra of n={weight.inp.n}"
        text = f"this update is not a matrix over {over} (relative distance {float(error):.2g})"
        raise InputError(f"{text}: use an adapter over {over}, or keep it beside the layer", code="unsupported")
    weight.elements.add_(components.to(weight.elements))
