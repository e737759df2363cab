"""Bilinear products on R^n, given by their structure tensors."""

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from zoo import registry
from zoo.algebras.constants import Constants
from zoo.algebras.properties import Factors, Laws, Quadratic, factorize, laws_of, quadratic, table_text, unit
from zoo.errors import InputError

Draw = Callable[[], Tensor]


class Algebra(nn.Module):
    r"""A bilinear product on R^n, given by its structure tensor A.

        e_i e_j = sum_k A[i, j, k] e_k        (x y)_k = sum_ij A[i, j, k] x_i y_j

    A fixed structure tensor is a constant, a learned one a parameter (PHM, Zhang et al. 2021, Eq. 3, where the matrix A_i has
    the entry A[i, j, k] at row k, column j) or computed from one (`FactoredAlgebra`), and a random one a buffer, which is saved
    with the weights. Every layer has its own copy, see `for_layer`.

    Args:
        structure: A, [n, n, n], indexed left factor, right factor, result; or a function that draws it. The function is called
            once per layer, unless values have been assigned to ``structure``, which all layers then start from.
        learned: Whether A is trained.
        shared: Whether all layers of a network share one A.
        left: Basis [m, n] of the subspace that contains the weights of a layer; None for all of R^n. Inputs and outputs are
            elements of R^n in both cases.
        defaults: Default ``embedding``, ``score`` and ``readout`` of networks over this algebra.

    Attributes:
        kind: ``fixed``, ``learned`` or ``random``.
        spec: The spec that it was created from, or "".

    Example:
        >>> print(Algebra(torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [-1.0, 0.0]]])))
        n = 2: unital, commutative, associative, alternative, normed
        <BLANKLINE>
             1  e1
         1   1  e1
        e1  e1  -1
    """

    _key: ClassVar[str] = "structure"  # in the state dict
    _form: ClassVar[str] = "a structure tensor must be a torch.Tensor [n, n, n] with n >= 1"

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
        table = self._checked(structure() if callable(structure) else structure)
        self.kind: Literal["fixed", "learned", "random"] = "learned" if learned else "random" if self._draw else "fixed"
        self.shared, self.spec, self.defaults = shared, "", dict(defaults or {})
        self._left = None if left is None else _checked_basis(left, table)
        # The values that were drawn, if any; it moves with the module to other devices and dtypes.
        self._drawn = table.clone() if self._draw else table.new_empty(0)
        # A fixed product is neither saved nor moved, so the constants derived from it cannot become stale.
        self._constants = Constants(table.cpu()) if self.kind == "fixed" else None
        if learned:
            self._parameters[self._key] = nn.Parameter(table)
        elif self._draw:
            self._buffers[self._key] = table

    def _checked(self, table: Tensor) -> Tensor:
        """Return a copy in the default dtype, or raise `InputError`."""
        shape = list(table.shape) if isinstance(table, Tensor) else []
        if not self._is_valid(shape):
            raise InputError(f"{self._form}, got {shape or type(table).__name__}: use torch.tensor(...)")
        if table.is_complex() or table.is_meta or not table.isfinite().all():
            raise InputError(f"a structure tensor must hold finite real numbers, got {table.dtype} on {table.device}")
        return table.detach().clone().to(torch.get_default_dtype())

    def _is_valid(self, shape: list[int]) -> bool:
        return len(shape) == 3 and len(set(shape)) == 1 and 0 not in shape

    @property
    def stored(self) -> Tensor:
        """The tensor that determines the product: a parameter, a buffer, or of a fixed product a constant, on the CPU.

        Callers must not write to the constant; another product has another one.
        """
        if self._constants is not None:
            return self._constants.table
        tensors: Any = self._parameters if self.kind == "learned" else self._buffers
        tensor: Tensor = tensors[self._key]
        return tensor

    @property
    def structure(self) -> Tensor:
        """The structure tensor A, [n, n, n]; of a fixed product a copy: assign a new tensor to replace it."""
        table = self.table(self._drawn)
        return table if self._constants is None else table.clone()

    @structure.setter
    def structure(self, table: Tensor) -> None:  # only for fixed products: torch assigns parameters and buffers itself
        if self._key != "structure":
            raise InputError("the structure tensor is computed from the factors: create a new algebra", code="unsupported")
        checked, n = self._checked(table).cpu(), self.n
        if checked.shape[-1] != n:
            raise InputError(f"this product has dimension n={n}, got a tensor of n={checked.shape[-1]}: create a new algebra")
        self._constants = Constants(checked)

    @property
    def left(self) -> Tensor | None:
        """Basis [m, n] of the subspace that contains the weights of a layer, or None."""
        return self._left

    def table(self, like: Tensor) -> Tensor:
        """Return the structure tensor for a computation with ``like``; callers must not write to it.

        A fixed one is a constant in the dtype and on the device of ``like``.
        """
        return self._derive("table", like, lambda structure: structure)

    def _derive(self, key: str, like: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply a function to the structure tensor; the result for a fixed product is a constant."""
        device = "cpu" if like.is_meta else like.device.type
        if torch.is_autocast_enabled(device):  # it would round the product
            with torch.autocast(device, enabled=False):
                return self._derive(key, like, function)
        constants = self._constants
        if constants is None:
            return function(self._to_structure(self.stored))
        constant: Tensor = constants.get(key, like, lambda: function(self._to_structure(constants.table)))
        return constant

    def _to_structure(self, stored: Tensor) -> Tensor:
        return stored

    @property
    def n(self) -> int:
        """Dimension over the reals."""
        return self.stored.shape[-1]

    @property
    def m(self) -> int:
        """Dimension of a weight: n, or the dimension of the subspace ``left``."""
        return self.n if self.left is None else len(self.left)

    @property
    def drawn(self) -> bool:
        """Whether the product is unchanged since it was drawn, so that every layer draws its own."""
        if self._draw is None or self.stored.is_meta:
            return self._draw is not None
        return torch.equal(self.stored, self._drawn.to(self.stored))

    @classmethod
    def from_products(cls, n: int, products: Mapping[tuple[int, int], Mapping[int, float]]) -> "Algebra":
        """Create a product from those of basis elements: ``{(i, j): {k: c}}`` means that e_i e_j is the sum of all c e_k.

        e_0 is the unit unless its products are given; other products that are not given are zero.

        Example:
            >>> split_complex = Algebra.from_products(2, {(1, 1): {0: +1}})
            >>> split_complex(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
            tensor([11., 10.])
        """
        if n < 1:
            raise InputError(f"n={n}: must be at least 1")
        structure = torch.zeros(n, n, n)
        structure[0] = structure[:, 0] = torch.eye(n)
        for (i, j), terms in products.items():
            if not all(0 <= index < n for index in (i, j, *terms)):
                raise InputError(f"product ({i}, {j}): {dict(terms)}: indices of basis elements must be from 0 to {n - 1}")
            structure[i, j] = 0
            for k, coefficient in terms.items():
                structure[i, j, k] = coefficient
        return cls(structure)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Multiply elements [..., n], or features [..., C] element by element, component-major; n must divide C.

        All other axes broadcast.
        """
        x, y = (t.unflatten(-1, (self.n, -1)) for t in (x, y))
        return torch.einsum("ijk,...ic,...jc->...kc", self.table(x), x, y).flatten(-2)

    @property
    def basis(self) -> Tensor:
        """The basis elements e_0, ..., e_(n - 1), [n, n]."""
        return torch.eye(self.n, dtype=self._drawn.dtype, device=self._drawn.device)

    def conj(self, x: Tensor) -> Tensor:
        """Conjugate elements [..., n], see `zoo.algebras.properties.Quadratic`; `InputError` without a conjugate."""
        return x @ self._quadratic("conjugate", x).conjugate

    def norm(self, x: Tensor) -> Tensor:
        """Return sqrt(N(x)) of elements [..., n] with x x* = N(x) 1: [...]; `InputError` if N(x) can be negative."""
        form = self._quadratic("norm", x).form
        if torch.linalg.eigvalsh(form.double()).min() < -1e-6:
            raise InputError(f"{self._name}: the norm form is indefinite, so elements have no norm", code="unsupported")
        return torch.einsum("...i,ij,...j->...", x, form, x).sqrt()

    def exp(self, x: Tensor) -> Tensor:
        """Sum the exponential series 1 + x + x x / 2 + ... of elements [..., n]; `InputError` if the algebra has no unit.

        It is the matrix exponential of left multiplication by x, applied to the unit.
        """
        table = self.table(x)
        one = unit(table)
        if one is None:
            raise InputError(f"{self._name} has no exponential: it has no unit", code="unsupported")
        return torch.einsum("...jk,j->...k", torch.linalg.matrix_exp(torch.einsum("...i,ijk->...jk", x, table)), one.to(x))

    def rotate(self, x: Tensor, by: Tensor) -> Tensor:
        """Rotate elements x [..., n] by elements q [..., n]: q x q^-1 = (q x) q* / N(q); `InputError` unless |x y| = |x| |y|.

        A unit quaternion cos t + u sin t rotates vectors, quaternions with real part 0, by the angle 2 t about the axis u.
        """
        if not laws_of(self.structure).normed:
            raise InputError(f"{self._name} has no rotations: it is not normed", code="unsupported")
        turned: Tensor = self(self(by, x), self.conj(by))
        return turned / self.norm(by).square().unsqueeze(-1)

    def _quadratic(self, operation: str, like: Tensor) -> Quadratic:
        constants = self._constants
        found = constants.get("quadratic", like, lambda: quadratic(self.structure)) if constants else quadratic(self.structure)
        if found is None:
            reason = "x^2 is not a combination of x and 1 for every element x"
            raise InputError(f"{self._name} has no {operation}: {reason}", code="unsupported")
        return Quadratic(*(part.to(like) for part in found))

    @property
    def _name(self) -> str:
        return self.spec or f"the algebra (n={self.n})"

    def __str__(self) -> str:
        """Describe the algebra: its name and dimension, its laws, and the multiplication table of a fixed product."""
        title = ", ".join(filter(None, (self.spec, f"n = {self.n}", "learned" * (self.kind == "learned"))))
        if self.kind != "fixed" or self.n > 16:
            return title
        found = laws_of(self.structure)._asdict()
        named = [name if holds else f"not {name}" for name, holds in found.items()]
        return f"{title}: {', '.join(named)}\n\n{table_text(self.structure)}"

    def for_layer(self) -> "Algebra":
        """Return the algebra of a new layer: this object if it is shared, otherwise a copy, redrawn if it is `drawn`."""
        if self.shared and self.kind != "fixed":
            return self
        copied = copy.deepcopy(self)
        if self._draw is not None and not self.drawn:
            copied._draw = partial(torch.clone, self.stored.detach().clone())
        copied.reset_parameters()
        return copied

    def no_weight_decay(self) -> set[str]:
        """Return the parameters without weight decay, by timm's convention: a learned product."""
        return {self._key} if self.kind == "learned" else set()

    def reset_parameters(self) -> None:
        """Redraw a random product; `torch.manual_seed` determines the result."""
        if self._draw is not None:
            with torch.no_grad(), torch.device(self.stored.device):
                self.stored.copy_(self._draw())
                self._drawn = self.stored.detach().clone()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Algebra":
        self._drawn = fn(self._drawn)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def extra_repr(self) -> str:
        """Show the spec, the dimension, and whether it is learned and shared."""
        flags = "learned" * (self.kind == "learned"), "shared" * self.shared
        return ", ".join(filter(None, (self.spec, f"n={self.n}", *flags)))


def laws(algebra: Algebra, tol: float = 1e-6) -> Laws:
    """Compute the laws of a product, polynomial identities in its structure tensor, up to violations of ``tol``.

    Normed means |x y| = |x| |y| in the Euclidean norm.
    """
    return laws_of(algebra.structure, tol)


def _checked_basis(left: Tensor, table: Tensor) -> Tensor:
    """Return a copy of a basis [m, n] on the CPU."""
    n, shape = table.shape[-1], list(left.shape)
    if len(shape) != 2 or not 1 <= shape[0] <= n or shape[1] != n:
        raise InputError(f"left must be a torch.Tensor [m, {n}] with m from 1 to {n}, got {shape}")
    return left.detach().to("cpu", table.dtype, copy=True)


class FactoredAlgebra(Algebra):
    r"""A product with R real multiplications, given by learned or fixed factors.

        A[i, j, k] = sum_r U[r, i] V[r, j] W[r, k]

    The first argument is U, V and W as one tensor, ``factor_matrices`` [3, R, n], or a function that draws it; the others are
    those of `Algebra`. A general product of R^n takes n^2 multiplications; fewer save weights and time.

    Example:
        >>> FactoredAlgebra(torch.ones(3, 1, 2))(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
        tensor([21., 21.])
    """

    _key = "factor_matrices"
    _form = "the factors of a product must be a torch.Tensor [3, R, n] with R and n >= 1"

    def _is_valid(self, shape: list[int]) -> bool:
        return len(shape) == 3 and shape[0] == 3 and 0 not in shape

    @property
    def factors(self) -> Factors:
        """U, V and W, [R, n] each; of a fixed product copies."""
        stored = self.stored if self._constants is None else self.stored.to(self._drawn, copy=True)
        return Factors(*stored.unbind())

    def _to_structure(self, stored: Tensor) -> Tensor:
        return Factors(*stored.unbind()).reconstruct()

    def extra_repr(self) -> str:
        """Show the options of `Algebra` and the rank."""
        return f"{super().extra_repr()}, rank={self.factors.rank}"


def is_reals(algebra: Algebra) -> bool:
    """Return whether a product is real multiplication, so that a matrix of components is the real matrix."""
    constants = algebra._constants
    return constants is not None and constants.is_one and algebra.left is None


def action(algebra: Algebra, like: Tensor) -> Tensor:
    """Return the product of a weight and an input, [m, n, n]: `Algebra.table`, restricted on the left to ``left``."""
    left = algebra.left
    if left is None:
        return algebra.table(like)
    return algebra._derive("action", like, lambda structure: _restrict(left.to(structure), structure))


def _restrict(left: Tensor, structure: Tensor) -> Tensor:
    """Restrict a product to a basis [m, n] of left factors, without a matrix product, which may round on a GPU."""
    return (left[:, :, None, None] * structure).sum(1)


def literal(algebra: Algebra) -> str:
    """Return the `action` of a fixed product as text, which compiled graphs can contain; empty for any other product.

    The text has m, n, and i, j, k and A[i, j, k] of each entry that is not zero. It is also empty in a compiled graph of a
    layer that was not called before.
    """
    constants = algebra._constants
    if constants is None:
        return ""
    if not constants.literal and not torch.compiler.is_compiling():
        table = action(algebra, constants.table)
        places = table.nonzero().tolist()
        words = [word for place in places for word in (*place, table[tuple(place)].item())]
        constants.literal = " ".join(map(str, (*table.shape[:2], *words)))
    return constants.literal


def factors_of(algebra: Algebra, like: Tensor) -> Factors | None:
    """Return the factors that layers compute with, [R, m], [R, n] and [R, n], or None if R >= m n.

    The factors of a fixed product are constants in the dtype and on the device of ``like``; callers must not write to them. A
    compiled graph does not compute them: there they are None in a layer that was not called before.
    """
    constants = algebra._constants
    if constants is None:
        return _in_subspace(algebra, algebra.factors) if isinstance(algebra, FactoredAlgebra) else None
    is_compiling = torch.compiler.is_compiling()
    found: Factors | None = (
        constants.find("factors", like) if is_compiling else constants.get("factors", like, lambda: _fixed_factors(algebra))
    )
    return found


def factor_literals(algebra: Algebra) -> tuple[str, ...]:
    """Return `factors_of` of a fixed product as text, each with R, the number of columns and the rows; empty for any other."""
    constants = algebra._constants
    if constants is None:
        return ()
    if not constants.factor_literals and (factors := factors_of(algebra, constants.table.double())) is not None:
        tables = [[*factor.shape, *factor.flatten().tolist()] for factor in factors]
        constants.factor_literals = tuple(" ".join(map(str, table)) for table in tables)
    return constants.factor_literals


def _fixed_factors(algebra: Algebra) -> Factors | None:
    factors = factorize(algebra.table(torch.empty(0, dtype=torch.float64, device="cpu")))
    return _in_subspace(algebra, factors) if factors.rank < algebra.m * algebra.n else None


def _in_subspace(algebra: Algebra, factors: Factors) -> Factors:
    return factors if algebra.left is None else factors._replace(left=factors.left @ algebra.left.to(factors.left).T)


def reals() -> Algebra:
    """Return the real numbers, n = 1."""
    with torch.device("cpu"):
        product = Algebra(torch.ones(1, 1, 1))
    return product.to(torch.get_default_device())


def algebra(spec: str | Algebra) -> Algebra:
    """Create an algebra from a spec such as ``"quaternion"`` or ``"phm(n=8)"``; an `Algebra` is returned unchanged."""
    if isinstance(spec, Algebra):
        return spec
    if not isinstance(spec, str):
        raise InputError(f"an algebra must be a spec (see: zoo list algebras) or a zoo.Algebra, got {type(spec).__name__}")
    with torch.device("cpu"):  # constants need values even if the default device is meta
        product = registry.create("zoo.algebras", spec)
    if not isinstance(product, Algebra):
        entry, _ = registry.resolve("zoo.algebras", spec)
        raise InputError(f"{entry}: {entry.value} returned a {type(product).__name__}, expected a zoo.Algebra")
    product.spec = str(registry.Spec.parse(spec))
    return product.to(torch.get_default_device())
