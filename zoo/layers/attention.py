"""Multi-head attention over any algebra."""

from torch import Tensor, nn

from zoo.algebras import Algebra
from zoo.errors import InputError
from zoo.layers.kv_cache import KVCache
from zoo.layers.linear import Linear
from zoo.layers.positions import rotate
from zoo.layers.scores import SCORES, attend


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al. 2017) whose projections, and if asked its scores, are products over an algebra.

    Every head holds a slice of every component, so that queries, keys, values and heads are made of whole elements.

    Args:
        algebra: The product, of dimension n.
        dim: Real channels, a multiple of heads * n.
        heads: Heads, of dim / heads channels each.
        score: How a key fits a query: ``dot``, ``product`` or ``hermitian``, see `attend`. The last two multiply over the
            algebra and hold a rule of their own if rules are learned.
        dropout: Probability to drop an attention weight in training.
        bias: Whether the projections have biases.
        rotary: Whether queries and keys are turned by their positions, see `rotate`; dim is a multiple of 2 * heads * n then.
        cross: Whether keys and values come from a second sequence.
        init: Name of the initialisation, see `zoo.layers.init.draw_components`.
        gain: Factor on the initial standard deviation of the output projection.

    Attributes:
        qkv: Self attention: the projection of x to queries, keys and values.
        q, kv: Cross attention: the projections of x to queries, and of the context to keys and values.
        proj: The projection of the heads to the output.

    Raises:
        InputError: If dim does not split into heads of whole elements, or an option is unknown or does not fit.

    Example:
        >>> import torch
        >>> Attention(Algebra(torch.ones(2, 2, 2)), 8, heads=2)(torch.ones(1, 5, 8)).shape
        torch.Size([1, 5, 8])
    """

    def __init__(
        self,
        algebra: Algebra,
        dim: int,
        heads: int,
        *,
        score: str = "dot",
        dropout: float = 0.0,
        bias: bool = True,
        rotary: bool = False,
        cross: bool = False,
        init: str = "variance",
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        if score not in SCORES:
            raise InputError(f"unknown score '{score}': use {', '.join(SCORES)}")
        if not 0 <= dropout < 1:
            raise InputError(f"dropout={dropout}: the share of dropped weights is at least 0 and less than 1")
        if rotary and cross:
            raise InputError("rotary positions measure distances in one text: use them in self attention only")
        check_heads(dim, heads, algebra.n, 2 if rotary else 1)
        self.dim, self.heads, self.n, self.score = dim, heads, algebra.n, score
        self.dropout, self.rotary, self.cross = dropout, rotary, cross
        self.rule = None if score == "dot" else algebra.for_layer()
        if cross:
            self.q = Linear(algebra, dim, dim, bias, blocks=(1, heads), init=init)
            self.kv = Linear(algebra, dim, 2 * dim, bias, blocks=(1, 2 * heads), init=init)
        else:
            self.qkv = Linear(algebra, dim, 3 * dim, bias, blocks=(1, 3 * heads), init=init)
        self.proj = Linear(algebra, dim, dim, bias, blocks=(heads, 1), init=init, gain=gain)

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
        *,
        position_ids: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Attend: [B, L, dim] to [B, L, dim].

        Args:
            x: Where queries come from; in self attention keys and values too.
            context: Where keys and values come from in cross attention, [B, M, dim].
            mask: bool [B, M], True where a key is real; with a cache M counts its keys and those of x.
            causal: Whether no position sees those behind it.
            position_ids: Where the words of x stand, [L] or [B, L], for rotary positions; by default from 0 on.
            cache: Keys and values of what was read before, to which those of x are added. Cross attention reads its context
                only once.

        Raises:
            InputError: If there is a context and no cross attention, or the other way round.
        """
        q, k, v = self._heads(x, context, cache)
        if self.rotary:
            q, k = rotate(q, self.n, position_ids), rotate(k, self.n, position_ids)
        if cache is not None and not self.cross:
            k, v = cache.append(self, k, v)
        dropout = self.dropout if self.training else 0.0
        structure = None if self.rule is None else self.rule.structure
        y = attend(q, k, v, structure, self.score, mask, causal, dropout)
        out: Tensor = self.proj(y.transpose(1, 2).flatten(2))
        return out

    def _heads(self, x: Tensor, context: Tensor | None, cache: KVCache | None = None) -> tuple[Tensor, ...]:
        """Project to queries, keys and values, each [B, H, L, dim / H]."""
        if self.cross != (context is not None):
            raise InputError(
                "cross attention reads x and context" if self.cross else "self attention reads x alone: pass cross=True"
            )
        if context is None:
            return self._split(self.qkv(x))
        kept = cache.get(self) if cache is not None else None
        if kept is None:
            kept = self._split(self.kv(context))  # type: ignore[assignment]
            if cache is not None:
                cache.append(self, *kept)  # type: ignore[misc]
        return *self._split(self.q(x)), *kept  # type: ignore[misc]

    def _split(self, y: Tensor) -> tuple[Tensor, ...]:
        """Part what lies side by side: [B, L, k dim] to k heads [B, H, L, dim / H]."""
        return tuple(t.transpose(1, 2) for t in y.unflatten(-1, (-1, self.heads, self.dim // self.heads)).unbind(2))

    def extra_repr(self) -> str:
        """Show the sizes, and what is not the default."""
        shown = {"score": "dot", "dropout": 0.0, "rotary": False, "cross": False}
        changed = [f"{name}={getattr(self, name)}" for name, default in shown.items() if getattr(self, name) != default]
        return ", ".join([f"{self.dim}, heads={self.heads}", *changed])


def check_heads(dim: int, heads: int, n: int, pairs: int = 1) -> None:
    """Refuse heads that are not made of whole elements of an algebra of dimension n, or of ``pairs`` = 2 times as many."""
    if heads < 1 or dim < 1 or dim % (heads * n * pairs):
        whole = "" if n == 1 else f", each of whole elements of an algebra with n = {n}"
        turned = " and pairs of channels to turn" if pairs == 2 else ""
        unit = max(heads, 1) * n * pairs
        raise InputError(f"dim={dim} does not split into heads={heads}{whole}{turned}: dim must be a multiple of {unit}")
