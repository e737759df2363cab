"""Attention between heads of algebra elements as a pure function, with three kinds of scores."""

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.errors import InputError

SCORES = ("dot", "product", "hermitian")


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    structure: Tensor | None,
    score: str = "dot",
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    r"""Average values weighted by the scores of their keys for a query, [B, H, L, n d]; each head is component-major.

    With A the structure tensor, indices i, j, k of components, and dots over the c channels of a head's component:

    ``dot``: softmax(scale q . k) v, the real dot product of whole heads, as in every Transformer.
    ``product``: E_k = sum_ij A[i, j, k] q_i . k_j, and component k of the result is softmax(scale E_k) v_k: one softmax for
    each component (Tay et al. 2019, Eq. 4 and section 3.2).
    ``hermitian``: softmax(scale |z|) v with z = q conj(k), the same sum with conj(k) for k, where conj keeps component 0 and
    negates the others, and |z| the Euclidean norm over the components of z (Wang et al. 2020, Eq. 14, for any algebra).

    The first two keep no [L, M] tensor for the backward pass without dropout, unless both ``mask`` and ``causal`` are given:
    the combined mask, [B, L, M], is kept then.

    Args:
        q: Queries, [B, H, L, n c].
        k: Keys, [B, H, M, n c].
        v: Values, [B, H, M, n d]; often d = c.
        structure: A, [n, n, n]; ``dot`` does not read it, and takes None.
        score: One of ``dot``, ``product``, ``hermitian``; `InputError` for others, and without the structure that it needs.
        mask: bool [B, M], False at padding, which gets no weight. The result of a query without any key is zero.
        causal: Whether the queries are the last L of M tokens, and each attends only to keys up to its own.
        dropout: Probability to drop a weight.
        scale: Factor on the scores before the softmax, by default 1 / sqrt(n c).
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if q.shape[2] == 1:  # The last token attends to all of them. A branch: torch.export takes no symbolic `is_causal`.
        causal = False
    if score == "dot":
        return _fused(q, k, v, mask, causal, dropout, scale)
    if score not in SCORES:
        raise InputError(f"unknown score '{score}': use {', '.join(SCORES)}")
    if structure is None:
        raise InputError(f"the score '{score}' multiplies over an algebra: pass its structure tensor")
    if score == "hermitian":
        return _hermitian(q, k, v, structure, mask, causal, dropout, scale)
    # One softmax for each component of the result: n times as many heads.
    n = structure.shape[0]
    keys, values = _arrange(k, structure).flatten(1, 2), v.unflatten(-1, (n, -1)).movedim(-2, 2).flatten(1, 2)
    heads: Tensor = _fused(q.repeat_interleave(n, 1), keys, values, mask, causal, dropout, scale).unflatten(1, (-1, n))
    return heads.movedim(2, -2).flatten(-2)


def _fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float, scale: float) -> Tensor:
    """Attend with torch's scaled_dot_product_attention."""
    width = v.shape[-1]
    # Heads of unequal width have no fused kernel on a CPU: the fallback would keep all weights.
    q, k, v = (_widen(t, max(q.shape[-1], width)) for t in (q, k, v))
    if mask is None and (not causal or q.shape[2] == k.shape[2]):
        return F.scaled_dot_product_attention(q, k, v, None, dropout, causal, scale=scale)[..., :width]
    visible, empty = _visible(mask, causal, q, k)
    y = F.scaled_dot_product_attention(q, k, v, visible, dropout, scale=scale)[..., :width]
    return y.masked_fill(empty, 0)


def _hermitian(
    q: Tensor, k: Tensor, v: Tensor, structure: Tensor, mask: Tensor | None, causal: bool, dropout: float, scale: float
) -> Tensor:
    """Attend by the norm of q conj(k); the scores are written out."""
    n = structure.shape[0]
    real, imaginary = k.tensor_split([k.shape[-1] // n], -1)
    z = q.unsqueeze(2) @ _arrange(torch.cat([real, -imaginary], -1), structure).mT
    # Torch's norm has the gradient zero at zero, where the root of a sum of squares has none.
    scores = scale * torch.linalg.vector_norm(z, dim=2)
    if mask is None and not causal:
        return F.dropout(scores.softmax(-1), dropout) @ v
    visible, empty = _visible(mask, causal, q, k)
    y = F.dropout(scores.masked_fill(~visible, float("-inf")).softmax(-1), dropout) @ v
    return y.masked_fill(empty, 0)


def _arrange(k: Tensor, structure: Tensor) -> Tensor:
    """Arrange keys so that a real dot product with q is one component of the product: [B, H, M, n c] to [B, H, n, M, n c].

    sum_ij A[i, j, k] q_i . k_j = q . K_k, where component i of K_k is sum_j A[i, j, k] k_j.
    """
    parts = k.unflatten(-1, (structure.shape[0], -1))
    return torch.einsum("ijk,bhmjc->bhkmic", structure, parts).flatten(-2)


def _visible(mask: Tensor | None, causal: bool, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return a mask of keys for every query, [B or 1, 1, L or 1, M], and the queries without any key, [B or 1, 1, L or 1, 1].

    The mask shows all keys to a query without any, since a softmax over nothing is NaN; the caller sets its result to zero.
    """
    queries, keys = q.shape[2], k.shape[2]
    visible = torch.ones(1, 1, 1, keys, dtype=torch.bool, device=k.device) if mask is None else mask[:, None, None]
    if causal:
        visible = visible & torch.ones(queries, keys, dtype=torch.bool, device=k.device).tril(keys - queries)
    empty = ~visible.any(-1, keepdim=True)
    return visible | empty, empty


def _widen(t: Tensor, width: int) -> Tensor:
    """Append channels of zeros up to a width."""
    return t if t.shape[-1] == width else F.pad(t, (0, width - t.shape[-1]))
