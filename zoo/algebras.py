"""An algebra is a value: a bilinear product on R^n, written down once as its structure tensor."""

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from zoo import registry
from zoo.errors import InputError

Draw = Callable[[], Tensor]

_DATA: Any = nn.Parameter.data
_GRAD: Any = nn.Parameter.grad


class TrackedParameter(nn.Parameter):
    """A parameter that counts who may have written to it where torch's version counter sees nothing.

    Writing through ``p.data`` and fused optimizer steps leave ``p._version`` as it is; both have to read ``p.data`` or
    ``p.grad`` first, and reading either adds one to ``accesses``. What is computed from a parameter may therefore be kept as
    long as both numbers stay the same.
    """

    accesses = 0

    @property
    def data(self) -> Tensor:
        """The values without their history, as in torch."""
        self.accesses += 1
        return super().data

    @data.setter
    def data(self, values: Tensor) -> None:
        self.accesses += 1
        _DATA.__set__(self, values)

    @property
    def grad(self) -> Tensor | None:
        """The gradient, as in torch."""
        self.accesses += 1
        return super().grad

    @grad.setter
    def grad(self, values: Tensor | None) -> None:
        _GRAD.__set__(self, values)

    @grad.deleter
    def grad(self) -> None:
        _GRAD.__delete__(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle as a plain parameter, so that the file needs nothing of the zoo."""
        return torch._utils._rebuild_parameter, (self.data, self.requires_grad, OrderedDict())


class Factors(NamedTuple):
    r"""A bilinear decomposition of a product into R real multiplications.

        A[i, j, k] = sum_r left[r, i] right[r, j] result[r, k]

    so that x y = result^T ((left x) * (right y)). All three are [R, n].
    """

    left: Tensor
    right: Tensor
    result: Tensor

    @property
    def rank(self) -> int:
        """The number R of real multiplications."""
        return self.left.shape[0]

    def reconstruct(self) -> Tensor:
        """Rebuild the structure tensor, [n, n, n]."""
        return torch.einsum("ri,rj,rk->ijk", self.left, self.right, self.result)


class Algebra(nn.Module):
    r"""A bilinear product on R^n, given by its structure tensor A.

        e_i e_j = sum_k A[i, j, k] e_k        (x y)_k = sum_ij A[i, j, k] x_i y_j

    The structure tensor of a known product is a buffer; that of a learned product is a parameter (PHM, Zhang et al. 2021,
    Eq. 3, where the matrix A_i has the entry A[i, j, k] at row k, column j), or computed from one (`FactoredAlgebra`). Every
    layer holds its own copy, see `for_layer`.

    Args:
        structure: A, [n, n, n], indexed left factor, right factor, result; or a function that draws it, called once per layer
            (unless the values of ``structure`` are set: then every layer starts from them).
        learned: Whether A is trained.
        shared: Whether all layers of a network use the same A instead of one each.
        left: Basis of a subspace, [m, n], that the weights of a layer are taken from; None for all of R^n. Inputs and outputs
            are elements of R^n in both cases.
        defaults: Names of the ``embedding``, ``score`` and ``readout`` that networks over this algebra use unless the user
            chooses others.

    Raises:
        InputError: If the structure is not a tensor [n, n, n] with n >= 1, or holds values that are not real or not finite;
            later, if a table that was made on the meta device, where it has no values, is moved away from it.

    Example:
        >>> split_complex = Algebra(torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]]))
        >>> split_complex(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
        tensor([11., 10.])
    """

    structure: Tensor
    left: Tensor | None
    stored: ClassVar[str] = "structure"

    def __init__(
        self,
        structure: Tensor | Draw,
        *,
        learned: bool = False,
        shared: bool = False,
        left: Tensor | None = None,
        defaults: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._draw = structure if callable(structure) else None
        rule = structure() if callable(structure) else structure
        self._check_shape(rule)
        if rule.is_complex():
            raise InputError("a structure tensor holds real numbers; write the complex ones as an algebra of n = 2")
        if not rule.is_meta and not rule.isfinite().all():
            raise InputError("a structure tensor holds finite numbers; this one has NaN or infinity")
        rule, n = rule.detach().clone().to(torch.get_default_dtype()), rule.shape[-1]
        self.learned, self.shared = learned, shared
        self._drawn = None if self._draw is None else rule.clone()
        if left is not None and not isinstance(left, Tensor):
            raise InputError(f"left is a torch.Tensor [m, n], not {type(left).__name__}: use torch.tensor(...)")
        if left is not None and (left.ndim != 2 or not 1 <= len(left) <= n or left.shape[1] != n):
            raise InputError(f"left is a basis [m, {n}] of at most {n} elements, not {list(left.shape)}")
        if left is not None and not (left.is_meta or left.isfinite().all()):
            raise InputError("left holds finite numbers; this one has NaN or infinity")
        self.spec, self.defaults = "", dict(defaults or {})
        self._values: dict[str, Tensor] = {}  # of buffers that are on the meta device and that no state dict has
        self.register_buffer("left", None if left is None else left.to(rule), persistent=False)
        if learned:
            self.register_parameter(self.stored, TrackedParameter(rule))
        else:
            # A rule that a spec fixes is not stored with the weights; a drawn one cannot be found again without them.
            self.register_buffer(self.stored, rule, persistent=not self.known)

    def _check_shape(self, table: Tensor) -> None:
        if not isinstance(table, Tensor):
            kind = type(table).__name__
            raise InputError(f"a structure tensor is a torch.Tensor [n, n, n], not {kind}: use torch.tensor(...)")
        if table.ndim != 3 or len(set(table.shape)) != 1 or not table.numel():
            raise InputError(f"a structure tensor is [n, n, n] with n >= 1, not {list(table.shape)}")

    @property
    def rule(self) -> Tensor:
        """The parameter or buffer that the product is stored in, by the name ``stored``: here the structure tensor."""
        rule: Tensor = getattr(self, self.stored)
        return rule

    @property
    def factors(self) -> Factors | None:
        """The factors of the structure tensor, with their gradients, if it is computed from them; else None."""
        return None

    @property
    def n(self) -> int:
        """Dimension over the reals."""
        return self.rule.shape[-1]

    @property
    def action(self) -> Tensor:
        """What a layer's components do to its input, [m, n, n]: the structure tensor, or its part in the subspace ``left``."""
        return self.structure if self.left is None else torch.einsum("mi,ijk->mjk", self.left, self.structure)

    @property
    def m(self) -> int:
        """Numbers in one weight: n, or the dimension of the subspace ``left``."""
        return self.n if self.left is None else self.left.shape[0]

    @property
    def known(self) -> bool:
        """Whether the spec alone fixes the product: it is neither learned nor drawn."""
        return not self.learned and self._draw is None

    @property
    def drawn(self) -> bool:
        """Whether the product is a draw that nobody has changed, so that every layer draws one of its own."""
        if self._drawn is None or self.rule.is_meta:
            return self._drawn is not None
        return torch.equal(self.rule, self._drawn.to(self.rule))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Multiply features element by element: [..., C] and [..., C] to [..., C], component-major, n dividing C."""
        for t in (x, y):
            if t.ndim == 0 or t.shape[-1] % self.n:
                raise InputError(f"shape {list(t.shape)}: the last axis holds whole elements of n = {self.n} components")
        x, y = (t.unflatten(-1, (self.n, -1)) for t in (x, y))
        return torch.einsum("ijk,...ic,...jc->...kc", self.structure, x, y).flatten(-2)

    def for_layer(self) -> "Algebra":
        """Return the rule that one more layer should hold: this object if it is shared, else a copy, `drawn` ones drawn anew.

        The copy lets one network move to another device or dtype and leave the next one alone.
        """
        if self.shared and not self.known:
            return self
        own = copy.deepcopy(self)
        if self._draw is not None:
            if not self.drawn:
                own._draw = partial(torch.clone, self.rule.detach().clone())
            own.reset_parameters()
        return own

    def no_weight_decay(self) -> set[str]:
        """Name the parameters that weight decay must leave alone, by timm's convention: a learned product."""
        return {self.stored} if self.learned else set()

    def reset_parameters(self) -> None:
        """Draw the rule again, if it was drawn; `torch.manual_seed` alone decides the outcome."""
        if self._draw is not None:
            with torch.no_grad(), torch.device(self.rule.device):
                self.rule.copy_(self._draw())
                self._drawn = self.rule.detach().clone()

    def _apply(self, fn: Any, recurse: bool = True) -> "Algebra":
        self._drawn = None if self._drawn is None else fn(self._drawn)
        fixed = {name: self._buffers[name] for name in self._non_persistent_buffers_set}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, old in fixed.items():
            if old is not None:
                self._keep(name, old, self._buffers[name])
        return self

    def _keep(self, name: str, old: Tensor, new: Any) -> None:
        """Keep the values of a buffer through the meta device and `to_empty`: no state dict would bring them back."""
        if new.is_meta:
            self._values |= {} if old.is_meta else {name: old}
        elif new is not old:
            if (values := self._values.get(name) if old.is_meta else old) is None:
                raise InputError("an algebra that was made on the meta device has no values: make it before, or by its spec")
            with torch.no_grad():
                new.copy_(values)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any) -> None:
        if local_metadata.get("assign_to_params_buffers"):
            place = next((value.device for value in state_dict.values()), torch.device("cpu"))
            for name, values in self._values.items():
                if self._buffers[name].is_meta:  # type: ignore[union-attr]
                    self._buffers[name] = values.to(place)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def extra_repr(self) -> str:
        """Show the spec, the dimension, and what of the rule is trained."""
        flags = [name for name in ("learned", "shared") if getattr(self, name)]
        return ", ".join([self.spec, f"n={self.n}", *flags] if self.spec else [f"n={self.n}", *flags])


class FactoredAlgebra(Algebra):
    r"""A product with R real multiplications, learned or fixed by its factors.

        A[i, j, k] = sum_r U[r, i] V[r, j] W[r, k]

    The parameter is ``factor_matrices``, U, V and W as one tensor [3, R, n]; the structure tensor is computed from it. A free
    product of R^n takes n^2 multiplications, so with fewer the computation becomes cheaper, not only the weights fewer.

    Args:
        factor_matrices: U, V and W, [3, R, n], or a function that draws them.
        options: Those of `Algebra`.

    Example:
        >>> FactoredAlgebra(torch.ones(3, 1, 2))(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
        tensor([21., 21.])
    """

    factor_matrices: Tensor
    stored = "factor_matrices"

    def __init__(self, factor_matrices: Tensor | Draw, **options: Any) -> None:
        super().__init__(factor_matrices, **options)

    def _check_shape(self, table: Tensor) -> None:
        if not isinstance(table, Tensor) or table.ndim != 3 or len(table) != 3 or not table.numel():
            got = list(table.shape) if isinstance(table, Tensor) else type(table).__name__
            raise InputError(f"the factors of a product are a torch.Tensor [3, R, n] with R and n >= 1, not {got}")

    @property
    def factors(self) -> Factors:
        """U, V and W, [R, n] each."""
        return Factors(*self.factor_matrices.unbind())

    @property
    def structure(self) -> Tensor:  # type: ignore[override]
        """The structure tensor, [n, n, n]."""
        return self.factors.reconstruct()

    def extra_repr(self) -> str:
        """Show the rank as well."""
        return f"{super().extra_repr()}, rank={self.factors.rank}"


def reals() -> Algebra:
    """Return multiplication of real numbers, the trivial table of n = 1: what every other network is compared with."""
    with torch.device("cpu"):
        made = Algebra(torch.ones(1, 1, 1))
    return made.to(torch.get_default_device())


class Laws(NamedTuple):
    """What holds for a product; computed from its structure tensor, never declared."""

    unital: bool
    commutative: bool
    associative: bool
    alternative: bool
    normed: bool


def unit(structure: Tensor, tol: float = 1e-6) -> Tensor | None:
    """Find u with u x = x u = x for every x, [n], up to ``tol``, or None if there is none; structure is [n, n, n]."""
    a = structure.detach().double()
    n = a.shape[0]
    # One linear system: sum_i u_i A[i, j, k] = delta_jk and sum_j u_j A[i, j, k] = delta_ik.
    system = torch.cat([a.flatten(1).T, a.transpose(0, 1).flatten(1).T])
    target = torch.eye(n, dtype=a.dtype, device=a.device).flatten().repeat(2)
    u = torch.linalg.pinv(system, rtol=tol) @ target
    return u if (system @ u - target).abs().max() <= tol else None


def laws(algebra: Algebra, tol: float = 1e-6) -> Laws:
    """Compute the laws of a product from its structure tensor; each is a polynomial identity in A.

    Normed means |x y| = |x| |y| in the Euclidean norm of the components. ``tol`` bounds the largest violation, with entries
    of A of order one.
    """
    a = algebra.structure.detach().double().cpu()
    eye = torch.eye(algebra.n, dtype=a.dtype)

    def zero(t: Tensor) -> bool:
        return t.abs().max().item() <= tol

    associator = torch.einsum("ijm,mkl->ijkl", a, a) - torch.einsum("jkm,iml->ijkl", a, a)
    gram = torch.einsum("ijk,pqk->ijpq", a, a)
    return Laws(
        unital=unit(a, tol) is not None,
        commutative=zero(a - a.transpose(0, 1)),
        associative=zero(associator),
        alternative=zero(associator + associator.transpose(0, 1)) and zero(associator + associator.transpose(1, 2)),
        normed=zero(gram + gram.transpose(0, 2) - 2 * torch.einsum("ip,jq->ijpq", eye, eye)),
    )


def algebra(spec: str | Algebra) -> Algebra:
    """Create the algebra that a spec such as ``"quaternion"`` or ``"phm(n=8)"`` names; an `Algebra` is returned as it is.

    Raises:
        InputError: If it is neither, no plugin provides the name, or an option does not fit.
    """
    if isinstance(spec, Algebra):
        return spec
    if not isinstance(spec, str):
        raise InputError(f"an algebra is text (a spec, see: zoo list algebras) or a zoo.Algebra, not {type(spec).__name__}")
    with torch.device("cpu"):  # its values are known on the meta device too
        made = registry.create("zoo.algebras", spec)
    if not isinstance(made, Algebra):
        raise InputError(f"the plugin of algebra '{spec}' returned {type(made).__name__}, not zoo.algebras.Algebra")
    made.spec = str(registry.Spec.parse(spec))
    return made.to(torch.get_default_device())
