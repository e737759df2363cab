"""Layers that other libraries have trained, as layers of ours with the same outputs.

Peers differ in the side that a weight multiplies from, in its signs, and in the order of its axes. `PEERS` says how each stores
a layer; `layer` builds ours from a state dict. Read from speechbrain 1.1.2, qytorch dac555a, Orkis' library 28caa7c, HyperNets
c859ffe, phc-gnn 3dd0a00 and HypercomplexKeras 1.0.3.
"""

import pickle
from collections.abc import Mapping
from fnmatch import fnmatchcase as fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from zoo.algebras import Algebra, reals
from zoo.algebras import algebra as make_algebra
from zoo.errors import InputError, one_line
from zoo.kernels import axis_layout, real_matrix
from zoo.layers import LSTM, Conv1d, Conv2d, Linear

State = Mapping[str, Tensor]


class Form(NamedTuple):
    """How a peer stores the weight of a layer.

    Attributes:
        components: The names of w_0, w_1, ..., or one name of all of them, stacked along the first axis.
        bias: The name of the bias; None if there is none.
        unused: The name of a bias that the peer stores and computes without.
        transposed: Whether the matrices of a linear layer are [in, out]; those of a convolution never are.
        conjugated: Whether the peer multiplies by the conjugate of what it stores.
        right: Whether it multiplies from the right, y = x w.
        rule: The name of a learned product, or a shell pattern of it, where there is one.
        axes: The axes of the rule that are left factor, right factor and result.
    """

    components: tuple[str, ...]
    bias: str | None = "bias"
    unused: str | None = None
    transposed: bool = False
    conjugated: bool = False
    right: bool = False
    rule: str | None = None
    axes: tuple[int, int, int] = (0, 1, 2)


_FOUR, _TWO = ("r_weight", "i_weight", "j_weight", "k_weight"), ("real_weight", "imag_weight")
PEERS: dict[str, tuple[Form, ...]] = {
    "qytorch": (Form(_FOUR, conjugated=True),),
    "orkis": (Form(_FOUR, transposed=True),),
    "speechbrain": (Form(_FOUR, transposed=True), Form(_TWO, bias="b", transposed=True)),
    "hypernets": (Form(("s",), rule="a", axes=(0, 2, 1)), Form(("F",), bias=None, unused="bias", rule="A", axes=(0, 2, 1))),
    "phc_gnn": (Form(("W",), bias="b", transposed=True, rule="*_rule"),),
    "hypercomplex_keras": (Form(("kernel",), transposed=True, right=True),),
}
"""What each peer's layers are stored as."""
_SIGNS = {2: ((1, 1), (1, -1)), 4: ((1, 1, 1, 1), (1, -1, 1, -1), (1, -1, -1, 1), (1, 1, -1, -1))}
"""The products that peers fix in their code: e_i e_j is the sign [i][j] times e_(i xor j)."""
_GATES = (0, 1, 3, 2)
"""Where the gates of `torch.nn.LSTM` are among speechbrain's: input, forget, output, candidate."""


class PeerWeight(NamedTuple):
    """A peer's weight in our convention: the block (k, j) of the real matrix is sum_i A[i, j, k] w_i.

    Attributes:
        structure: A, [n, n, n]; None where the peer fixes it in its code.
        components: w, [n, out / n, in / n, *kernel].
        bias: [out], or None.
        right: Whether the peer multiplies by w from the right, so that the product is A with the factors exchanged.
        keys: The names in the state dict that the layer takes up.
        fixed: Whether the peer's code fixes the product.
    """

    structure: Tensor | None
    components: Tensor
    bias: Tensor | None
    right: bool = False
    keys: tuple[str, ...] = ()
    fixed: bool = False


def read_state(path: str | Path) -> dict[str, Tensor]:
    """Read a state dict from a safetensors file, or from one of `torch.save`, of which nothing but tensors is unpickled.

    A dict within a dict, by the name ``state_dict``, ``model`` or ``model_state_dict``, is taken out.

    Raises:
        InputError: If the file cannot be read, or holds no tensors by name.
    """
    return tensors(read_file(path), str(path))


def read_file(path: str | Path) -> dict[str, Any]:
    """Read what a file of safetensors or of `torch.save` holds by name; `InputError` if it holds nothing."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise InputError(f"there is no file '{path}'")
    try:
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        hint = "" if path.suffix == ".safetensors" else "; only tensors are unpickled: save the state_dict alone"
        raise InputError(f"'{path}' holds no state dict: {one_line(error, 120)}{hint}") from error
    return dict(found) if isinstance(found, Mapping) else {}


def tensors(found: Mapping[str, Any], place: str) -> dict[str, Tensor]:
    """Return the state dict in what a file holds, see `read_state`."""
    for name in ("state_dict", "model", "model_state_dict"):
        found = found[name] if isinstance(found.get(name), Mapping) else found
    state = {name: value for name, value in found.items() if isinstance(name, str) and isinstance(value, Tensor)}
    if not state:
        raise InputError(f"'{place}' holds no tensors by name: save the state_dict of a network")
    return state


def layer_names(peer: str, state: State) -> list[str]:
    """List the layers over an algebra in a peer's state dict, the empty name standing for the whole of it."""
    first = {key for form in _forms(peer) for key in form.components}
    return list(dict.fromkeys(name.rpartition(".")[0] for name in state if name.rpartition(".")[2] in first))


def weight(peer: str, state: State, name: str = "") -> PeerWeight:
    """Return the weight of one layer of a peer in our convention.

    Args:
        peer: One of `PEERS`.
        state: The state dict of the layer, or of a network.
        name: The layer in the network.

    Raises:
        InputError: If there is no such peer or layer, or its tensors do not fit together.
    """
    place = f"{name}." if name else ""
    forms = [form for form in _forms(peer) if all(f"{place}{key}" in state for key in form.components)]
    if not forms:
        known = ", ".join(map(repr, layer_names(peer, state)[:5])) or "none"
        raise InputError(f"there is no layer '{name}' of {peer} in the state dict; it has {known}")
    form = forms[0]
    parts = [state[f"{place}{key}"].detach() for key in form.components]
    if len({part.shape for part in parts}) > 1 or not 2 <= parts[0].ndim - (len(parts) == 1) <= 4:
        raise InputError(f"the components of '{name}' have other shapes than those of {peer}: {[*map(list, _shapes(parts))]}")
    w = parts[0] if len(parts) == 1 else torch.stack(parts)
    if form.transposed and w.ndim == 3:
        w = w.transpose(1, 2)
    if form.conjugated:
        w = torch.cat([w[:1], -w[1:]])
    key = next((key for key in state if form.rule and fnmatch(key, f"{place}{form.rule}")), "")
    rule = state.get(key)
    if form.rule is not None and (rule is None or list(rule.shape) != [len(w)] * 3):
        raise InputError(f"'{place}{form.rule}' of {peer} is no product of {len(w)} components")
    structure = None if rule is None else rule.detach().permute(form.axes).contiguous()
    keys = [*(f"{place}{own}" for own in (*form.components, form.bias, form.unused)), key]
    bias = state.get(f"{place}{form.bias}")
    taken = tuple(own for own in keys if own in state)
    return PeerWeight(structure, w.contiguous(), bias, form.right, taken, len(form.components) > 1)


def layer(
    peer: str, state: State, algebra: str | Algebra | None = None, *, name: str = "", **options: Any
) -> Linear | Conv1d | Conv2d:
    """Return a layer of ours with the outputs of a peer's; features are component-major in both.

    A peer that multiplies from the right becomes a layer over the opposite algebra, A with its factors exchanged, which has no
    spec; over a commutative one it is the algebra itself.

    Args:
        peer: One of `PEERS`.
        state: The state dict of the layer, or of a network; see `read_state`.
        algebra: The algebra of a peer that stores none, such as ``"quaternion"``; of one that does, a learned one of the same n
            that takes its product, or None for a new one.
        name: The layer in the network, see `layer_names`.
        options: Of a convolution, what a state dict does not hold: ``stride``, ``padding``, ``dilation``.

    Raises:
        InputError: If there is no such peer or layer, or the algebra does not fit it.

    Example:
        >>> from zoo.algebras import reals
        >>> state = {"s": torch.ones(1, 2, 3), "a": torch.ones(1, 1, 1), "bias": torch.zeros(2)}
        >>> layer("hypernets", state)(torch.ones(3)).tolist()
        [3.0, 3.0]
    """
    found = weight(peer, state, name)
    w, kernel = found.components, tuple(found.components.shape[3:])
    product = _product(peer, found, algebra)
    inp, out = (len(w) * size for size in (w.shape[2], w.shape[1]))
    has_bias = found.bias is not None
    if kernel:
        kind = Conv1d if len(kernel) == 1 else Conv2d
        built: Any = kind(product, inp, out, kernel if len(kernel) > 1 else kernel[0], bias=has_bias, **options)
    else:
        if options:
            raise InputError(f"'{name}' of {peer} is a linear layer: leave {', '.join(options)} out")
        built = Linear(product, inp, out, has_bias)
    with torch.no_grad():
        built.to(w.dtype)
        if found.structure is not None:
            built.algebra.rule.copy_(found.structure)
        built.weight_module.elements.copy_(w)
        if found.bias is not None:
            built.bias.copy_(found.bias)
    return built  # type: ignore[no-any-return]


def state_dict(peer: str, state: State, algebra: str | Algebra | None = None) -> dict[str, Tensor]:
    """Return the state dict of the same network with layers of ours in the places of a peer's; other tensors are kept.

    Raises:
        InputError: If there is no such peer or it has no layer there, the algebra does not fit, or the peer multiplies from
            the right by elements that do not commute: then `layer` builds each over the opposite algebra.

    Example:
        >>> state = {"0.s": torch.ones(1, 2, 3), "0.a": torch.ones(1, 1, 1), "1.weight": torch.ones(2)}
        >>> sorted(state_dict("hypernets", state))
        ['0.weight_module.algebra.structure', '0.weight_module.components', '1.weight']
    """
    names, found = layer_names(peer, state), dict(state)
    if not names:
        raise InputError(f"there is no layer of {peer} in the state dict, which has {', '.join([*state][:5]) or 'nothing'}")
    product = None if algebra is None else make_algebra(algebra)
    for name in names:
        built = layer(peer, state, product, name=name)
        if product is not None and built.algebra.spec != product.spec:
            raise InputError(
                f"{peer} multiplies from the right, which no spec of an algebra does: use zoo.conversion.peers.layer in Python"
            )
        for key in weight(peer, state, name).keys:
            found.pop(key, None)
        found |= {f"{name}.{key}" if name else key: value for key, value in built.state_dict().items()}
    return found


def lstm(state: State, algebra: str | Algebra, *, name: str = "rnn.0") -> LSTM:
    """Return one layer of speechbrain's ``QLSTM`` as an LSTM over the reals, with its outputs.

    Its gates are not made of whole elements: the input gate is component 0 of everything. No layer over an algebra computes
    that.

    Args:
        state: The state dict of a ``QLSTM`` that reads in one direction.
        algebra: The algebra, ``"quaternion"``.
        name: The layer.
    """
    parts = [weight("speechbrain", state, f"{name}.{part}") for part in ("w", "u")]
    structure = _product("speechbrain", parts[0], algebra).structure.detach()
    matrices = [_matrix(structure.to(part.components), part.components) for part in parts]
    biases = [part.bias for part in parts if part.bias is not None]
    size = len(matrices[0]) // 4
    if matrices[1].shape != (4 * size, size):
        raise InputError(f"'{name}' is no QLSTM of speechbrain over {algebra}: its matrices are {_shapes(matrices)}")
    built = LSTM(reals(), matrices[0].shape[1], size).to(matrices[0].dtype)
    cell: Any = built.cells[0]
    with torch.no_grad():
        for held, matrix in zip((cell.from_input, cell.from_hidden), matrices, strict=True):
            held[0].components.copy_(matrix.unflatten(0, (4, size))[list(_GATES)].flatten(0, 1))
        cell.bias.copy_(sum(biases, torch.zeros(4 * size)).unflatten(0, (4, size))[list(_GATES)].flatten())
    return built


def _forms(peer: str) -> tuple[Form, ...]:
    if peer not in PEERS:
        raise InputError(f"unknown peer '{peer}': use {', '.join(PEERS)}")
    return PEERS[peer]


def _product(peer: str, found: PeerWeight, algebra: str | Algebra | None) -> Algebra:
    """Return the algebra of a layer, after comparing it with the components."""
    n = len(found.components)
    if algebra is None:
        if found.structure is None:
            raise InputError(f"{peer} does not store its algebra: give one with {n} components, by its name")
        return Algebra(found.structure, learned=True)
    product = make_algebra(algebra)
    if product.n != n:
        raise InputError(f"the layer of {peer} has {n} components, and {product.spec or 'the algebra'} has n = {product.n}")
    if found.structure is not None and not (product.learned and product.factors is None):
        raise InputError(
            f"{peer} has learned its product, which {product.spec or 'the algebra'} cannot take: leave algebra out"
        )
    if found.fixed and not torch.allclose(product.structure.detach().cpu(), _fixed(n)):
        rules = "e_1 e_1 = -1" + ", e_1 e_2 = e_3" * (n > 2)
        raise InputError(f"{peer} multiplies otherwise than {product.spec or 'the algebra'}: its product has {rules}")
    opposite = product.structure.detach().transpose(0, 1)
    return product if not found.right or torch.equal(opposite, product.structure) else Algebra(opposite)


def _fixed(n: int) -> Tensor:
    """Return the structure tensor of `_SIGNS`, [n, n, n]."""
    units, i = torch.eye(n), torch.arange(n)
    return torch.tensor(_SIGNS[n])[..., None] * units[i[:, None] ^ i]


def _matrix(structure: Tensor, w: Tensor) -> Tensor:
    n = len(w)
    return real_matrix(structure, w, axis_layout(n * w.shape[1], n), axis_layout(n * w.shape[2], n))


def _shapes(tensors: list[Tensor]) -> list[list[int]]:
    return [list(tensor.shape) for tensor in tensors]
