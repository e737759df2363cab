"""Import layers of other hypercomplex libraries as layers of the zoo with the same outputs.

The libraries differ in the side of multiplication, in signs, and in the order of axes. `LIBRARIES` describes the formats of
speechbrain 1.1.2, qytorch dac555a, Orkis' library 28caa7c, HyperNets c859ffe, phc-gnn 3dd0a00 and HypercomplexKeras 1.0.3.
"""

import pickle
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from zoo.algebras import Algebra, FactoredAlgebra, reals
from zoo.algebras import algebra as make_algebra
from zoo.conversion.transfer import ImportedLayers
from zoo.errors import InputError, check_choice, one_line
from zoo.kernels import axis_layout, real_matrix
from zoo.nn import LSTM, Conv1d, Conv2d, Linear

State = Mapping[str, Tensor]


class Format(NamedTuple):
    """How a library stores the weight of a layer."""

    components: tuple[str, ...]  # the names of w_0, w_1, ..., or one name of all of them, stacked along the first axis
    bias: str | None = "bias"
    unused: str | None = None  # the name of a bias that the library stores but never adds
    transposed: bool = False  # whether the matrices of a linear layer are [in, out]; those of a convolution never are
    conjugated: bool = False  # whether the library multiplies by the conjugate of the stored weight
    right: bool = False  # whether it multiplies from the right, y = x w
    rule: str | None = None  # shell pattern of the name of a learned product; None if the code fixes the product
    axes: tuple[int, int, int] = (0, 1, 2)  # the axes of the rule that are left factor, right factor and result


_FOUR, _TWO = ("r_weight", "i_weight", "j_weight", "k_weight"), ("real_weight", "imag_weight")
LIBRARIES: dict[str, tuple[Format, ...]] = {
    "qytorch": (Format(_FOUR, conjugated=True),),
    "orkis": (Format(_FOUR, transposed=True),),
    "speechbrain": (Format(_FOUR, transposed=True), Format(_TWO, bias="b", transposed=True)),
    "hypernets": (Format(("s",), rule="a", axes=(0, 2, 1)), Format(("F",), None, unused="bias", rule="A", axes=(0, 2, 1))),
    "phc_gnn": (Format(("W",), bias="b", transposed=True, rule="*_rule"),),
    "hypercomplex_keras": (Format(("kernel",), transposed=True, right=True),),
}
_SIGNS = {2: ((1, 1), (1, -1)), 4: ((1, 1, 1, 1), (1, -1, 1, -1), (1, -1, -1, 1), (1, 1, -1, -1))}
"""The products that libraries fix in their code: e_i e_j is the sign [i][j] times e_(i xor j)."""
_GATES = (0, 1, 3, 2)  # position of the gates of `torch.nn.LSTM` among speechbrain's: input, forget, output, candidate


def read_state(path: str | Path) -> dict[str, Tensor]:
    """Read a state dict from a safetensors file or a file of `torch.save`, with ``weights_only=True``.

    A state dict nested under ``state_dict``, ``model`` or ``model_state_dict`` is unwrapped.
    """
    return named_tensors(read_file(path), path)


def read_file(path: str | Path) -> dict[str, Any]:
    """Read the content of a safetensors file or a file of `torch.save` by name; `InputError` if it cannot be read."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise InputError(f"there is no file '{path}'", code="missing")
    try:
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        return dict(torch.load(path, map_location="cpu", weights_only=True))
    except (OSError, SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, ValueError, TypeError) as error:
        text = f"cannot read a state dict from '{path}': {one_line(error, 120)}; only tensors are loaded"
        raise InputError(text, code="corrupt") from error


def named_tensors(content: Mapping[str, Any], path: str | Path) -> dict[str, Tensor]:
    """Return the state dict in the content of a file, see `read_state`."""
    for name in ("state_dict", "model", "model_state_dict"):
        content = content[name] if isinstance(content.get(name), Mapping) else content
    state = {name: value for name, value in content.items() if isinstance(value, Tensor)}
    if not state:
        raise InputError(f"'{path}' contains no named tensors: save the state_dict of a network", code="missing")
    return state


def layer_names(library: str, state: State) -> list[str]:
    """Return the names of a library's layers in a state dict; "" is a state dict of a single layer."""
    components = {key for form in _formats(library) for key in form.components}
    return list(dict.fromkeys(name.rpartition(".")[0] for name in state if name.rpartition(".")[2] in components))


class _Weight(NamedTuple):
    """A weight in our convention: block (k, j) of the real matrix is sum_i A[i, j, k] w_i."""

    form: Format
    structure: Tensor | None  # A, [n, n, n], if the product is learned
    components: Tensor  # w, [n, out / n, in / n, *kernel]
    bias: Tensor | None
    keys: frozenset[str]  # the names in the state dict that the layer replaces


def _weight(library: str, state: State, name: str) -> _Weight:
    prefix = f"{name}." if name else ""
    form = next((f for f in _formats(library) if all(f"{prefix}{key}" in state for key in f.components)), None)
    if form is None:
        known = ", ".join(map(repr, layer_names(library, state)[:5])) or "none"
        raise InputError(f"the state dict has no layer '{name}' of {library}; it has {known}", code="missing")
    parts = [state[f"{prefix}{key}"].detach() for key in form.components]
    if len({part.shape for part in parts}) > 1:
        shapes = [list(part.shape) for part in parts]
        raise InputError(f"the components of '{name}' have different shapes {shapes}", code="mismatch")
    w = parts[0] if len(parts) == 1 else torch.stack(parts)
    if form.transposed and w.ndim == 3:
        w = w.transpose(1, 2)
    if form.conjugated:
        w = torch.cat([w[:1], -w[1:]])
    rule = next((key for key in state if form.rule and fnmatchcase(key, f"{prefix}{form.rule}")), "")
    if form.rule and not rule:
        raise InputError(f"the state dict has no product '{prefix}{form.rule}' of {library}", code="mismatch")
    structure = state[rule].detach().permute(form.axes).contiguous() if rule else None
    keys = {*(f"{prefix}{key}" for key in (*form.components, form.bias, form.unused)), rule}
    return _Weight(form, structure, w.contiguous(), state.get(f"{prefix}{form.bias}"), frozenset(keys & state.keys()))


def layer(
    library: str, state: State, algebra: str | Algebra | None = None, *, name: str = "", **options: object
) -> Linear | Conv1d | Conv2d:
    """Return a layer of the zoo with the same outputs as a layer of another library; features are component-major in both.

    A layer that multiplies from the right becomes a layer over the opposite algebra, A with its factors exchanged, which has
    no spec; a commutative algebra is its own opposite.

    Args:
        library: One of `LIBRARIES`.
        state: The state dict of the layer or of a network, see `read_state`.
        algebra: The algebra of a layer that does not store its product, such as ``"quaternion"``. For a layer that does, a
            learned algebra of the same n, or None for a new one.
        name: The layer in the network, see `layer_names`.
        options: Options of a convolution that are not in the state dict: ``stride``, ``padding``, ``dilation``.

    Example:
        >>> state = {"s": torch.ones(1, 2, 3), "a": torch.ones(1, 1, 1), "bias": torch.zeros(2)}
        >>> layer("hypernets", state)(torch.ones(3)).tolist()
        [3.0, 3.0]
    """
    return _layer(library, _weight(library, state, name), algebra, **options)


def _layer(library: str, weight: _Weight, algebra: str | Algebra | None, **options: Any) -> Linear | Conv1d | Conv2d:
    n, out, inp, *kernel = weight.components.shape
    options |= {"bias": weight.bias is not None}
    size: tuple[Any, ...] = (tuple(kernel),) if kernel else ()
    built: Any = (Linear, Conv1d, Conv2d)[len(kernel)](
        n * inp, n * out, *size, algebra=_product(library, weight, algebra), **options
    )
    with torch.no_grad():
        built.to(weight.components.dtype)
        if weight.structure is not None:
            built.algebra.stored.copy_(weight.structure)
        built.weight_module.elements.copy_(weight.components)
        if weight.bias is not None:
            built.bias.copy_(weight.bias)
    return built  # type: ignore[no-any-return]


def import_layers(library: str, source: str | Path | State, *, algebra: str | Algebra | None = None) -> ImportedLayers:
    """Convert a library's layers in a state dict or its file to layers of the zoo; other tensors are copied.

    Raises:
        InputError: If the library or layer is unknown, the algebra does not match, or the library multiplies from the right
            over an algebra that is not commutative; use `layer` then.

    Example:
        >>> state = {"0.s": torch.ones(1, 2, 3), "0.a": torch.ones(1, 1, 1), "1.weight": torch.ones(2)}
        >>> sorted(import_layers("hypernets", state).state)
        ['0.weight_module.algebra.structure', '0.weight_module.components', '1.weight']
    """
    state = read_state(source) if isinstance(source, str | Path) else source
    names, rows = layer_names(library, state), []
    ours: dict[str, Tensor] = {}
    if not names:
        raise InputError(f"the state dict has no layer of {library}, only {', '.join([*state][:5])}", code="missing")
    product = None if algebra is None else make_algebra(algebra)
    remaining = {*state}
    for name in names:
        weight = _weight(library, state, name)
        built = _layer(library, weight, product)
        if product is not None and built.algebra.spec != product.spec:
            text = "multiplies from the right, which no spec expresses: use zoo_importers.hypercomplex.layer in Python"
            raise InputError(f"{library} {text}", code="unsupported")
        n, out, inp, *kernel = weight.components.shape
        rows.append({"layer": name, "shape": [n * out, n * inp, *kernel], "components": n})
        remaining -= weight.keys
        ours |= {f"{name}.{key}" if name else key: value for key, value in built.state_dict().items()}
    return ImportedLayers({key: state[key] for key in state if key in remaining} | ours, rows, sorted(remaining))


qytorch = partial(import_layers, "qytorch")
"""QLinear, QConv1d and QConv2d of qytorch, which multiplies by the conjugate of its weights."""
speechbrain = partial(import_layers, "speechbrain")
"""QLinear, QConv1d, QConv2d, CLinear, CConv1d and CConv2d of speechbrain."""
orkis = partial(import_layers, "orkis")
"""QuaternionLinear, QuaternionLinearAutograd and QuaternionConv of Orkis' library."""
hypernets = partial(import_layers, "hypernets")
"""PHMLinear, PHConv1D and PHConv2d of HyperNets, with their learned products."""
phc_gnn = partial(import_layers, "phc_gnn")
"""PHMLinear of phc-gnn, with its learned product."""
hypercomplex_keras = partial(import_layers, "hypercomplex_keras")
"""HyperDenseTorch of HypercomplexKeras, which multiplies from the right."""


def lstm(state: State, algebra: str | Algebra, *, name: str = "rnn.0") -> LSTM:
    """Return a layer of speechbrain's unidirectional ``QLSTM`` as an LSTM over the reals with the same outputs.

    The gates of a QLSTM are components of elements: the input gate is component 0 of every element. No layer over an algebra
    computes that. ``algebra`` is ``"quaternion"``.
    """
    parts = [_weight("speechbrain", state, f"{name}.{part}") for part in ("w", "u")]
    structure = _product("speechbrain", parts[0], algebra).structure.detach()
    matrices = [_matrix(structure.to(part.components), part.components) for part in parts]
    size = len(matrices[0]) // 4
    if matrices[1].shape != (4 * size, size):
        shapes = [list(matrix.shape) for matrix in matrices]
        raise InputError(f"'{name}' is not a QLSTM of speechbrain over {algebra}: its matrices are {shapes}", code="mismatch")
    built = LSTM(matrices[0].shape[1], size, batch_first=True, algebra=reals()).to(matrices[0].dtype)
    cell: Any = built.cells[0]
    bias = sum((part.bias for part in parts if part.bias is not None), torch.zeros(4 * size))
    with torch.no_grad():
        for weights, matrix in zip((cell.from_input, cell.from_hidden), matrices, strict=True):
            weights[0].components.copy_(matrix.unflatten(0, (4, size))[list(_GATES)].flatten(0, 1))
        cell.bias.copy_(bias.unflatten(0, (4, size))[list(_GATES)].flatten())
    return built


def _formats(library: str) -> tuple[Format, ...]:
    check_choice("library", library, LIBRARIES)
    return LIBRARIES[library]


def _product(library: str, weight: _Weight, algebra: str | Algebra | None) -> Algebra:
    """Return the algebra of a layer, after comparing it with the components and with the library's product."""
    n, structure = len(weight.components), weight.structure
    if algebra is None:
        if structure is None:
            raise InputError(f"{library} does not store its algebra: give one with {n} components", code="missing")
        return Algebra(structure, learned=True)
    product = make_algebra(algebra)
    spec, table = product.spec or "the algebra", product.structure.detach()
    takes_rule = structure is None or (product.kind == "learned" and not isinstance(product, FactoredAlgebra))
    if product.n != n:
        raise InputError(f"the layer of {library} has {n} components, but {spec} has n = {product.n}", code="mismatch")
    if not takes_rule:
        raise InputError(f"the product of {library} is learned, which {spec} cannot represent: remove algebra", code="mismatch")
    if len(weight.form.components) > 1:
        units, i = torch.eye(n), torch.arange(n)
        rules = "e_1 e_1 = -1" + ", e_1 e_2 = e_3" * (n > 2)
        if not torch.allclose(table.cpu(), torch.tensor(_SIGNS[n])[..., None] * units[i[:, None] ^ i]):
            raise InputError(f"{library} does not multiply as {spec} does: its product has {rules}", code="mismatch")
    opposite = table.transpose(0, 1)
    return product if not weight.form.right or torch.equal(opposite, table) else Algebra(opposite)


def _matrix(structure: Tensor, w: Tensor) -> Tensor:
    n = len(w)
    return real_matrix(structure, w, axis_layout(n * w.shape[1], n), axis_layout(n * w.shape[2], n))
