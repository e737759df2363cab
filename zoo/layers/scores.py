"""Attention functions with three kinds of scores."""

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.kernels.internals import is_plain_mode, is_recording
from zoo.layers.hermitian import HermitianAttention, Visible

SCORES = ("dot", "product", "hermitian")


def attend(
    q: Tensor,
    keys: Tensor,
    v: Tensor,
    score: str = "dot",
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    r"""Compute attention between component-major heads, [B, H, L, n d].

    With A the structure tensor, components i, j, k, and dot products over the c channels of a component:

    ``dot``: softmax(scale q . k) v, the real dot product of whole heads, as in a standard Transformer.
    ``product``: E_k = sum_ij A[i, j, k] q_i . k_j, and component k of the result is softmax(scale E_k) v_k, with a softmax for
    each component (Tay et al. 2019, Eq. 4 and section 3.2).
    ``hermitian``: softmax(scale |z|) v with z = q conj(k), where conj negates all components but 0, and |z| is the Euclidean
    norm over the components of z (Wang et al. 2020, Eq. 14, for any algebra).

    ``hermitian`` saves no [L, M] tensor for the backward pass, and neither do the others without dropout, unless both ``mask``
    and ``causal`` are given, in which case the combined mask, [B, L, M], is saved.

    Args:
        q: Queries, [B, H, L, n c].
        keys: Keys, [B, H, M, n c] for ``dot``, otherwise prepared by `arrange`, so that decoding prepares every key once.
        v: Values, [B, H, M, n d]; often d = c.
        score: ``dot``, ``product`` or ``hermitian``.
        mask: bool [B, M], False at padding. The result of a query without visible keys is zero.
        causal: Whether the queries are the last L of M tokens and attend only to keys up to their own position.
        dropout: Dropout probability of the weights.
        scale: Factor on the scores before the softmax, by default 1 / sqrt(n c).
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if q.shape[2] == 1:  # the last token attends to all keys; a branch, because torch.export needs a constant `is_causal`
        causal = False
    if score == "dot":
        return _attend_dot(q, keys, v, mask, causal, dropout, scale)
    if q.shape[2] > 1 and score == "product":
        return _attend_product(q, keys, v, mask, causal, dropout, scale)
    if q.shape[2] > 1 and not (torch.compiler.is_compiling() or is_recording(q) or not is_plain_mode()):
        return _attend_hermitian(q, keys, v, mask, causal, dropout, scale)
    return _attend_by_definition(q, keys, v, score, mask, causal, dropout, scale)


def arrange(k: Tensor, structure: Tensor, score: str) -> Tensor:
    """Arrange keys so that a real dot product with q gives a component of the score.

    [B, H, M, n c] becomes [B, H, n, M, n c]: sum_ij A[i, j, k] q_i . k_j = q . K_k, where component i of K_k is
    sum_j A[i, j, k] k_j, with conj(k_j) for ``hermitian``. The structure is A, [n, n, n].
    """
    n = structure.shape[0]
    if score == "hermitian":
        real, imaginary = k.tensor_split([k.shape[-1] // n], -1)
        k = torch.cat([real, -imaginary], -1)
    return torch.einsum("ijk,bhmjc->bhkmic", structure, k.unflatten(-1, (n, -1))).flatten(-2)


def _attend_hermitian(
    q: Tensor, keys: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float, scale: float
) -> Tensor:
    """Attend with the score ``hermitian``, see `HermitianAttention`."""
    batch, heads, queries, _ = q.shape
    if torch.is_autocast_enabled(q.device.type):
        q, keys, v = (t.to(torch.get_autocast_dtype(q.device.type)) for t in (q, keys, v))
    padding = None if mask is None else mask[:, None].expand(-1, heads, -1).flatten(0, 1)
    seed = int(torch.empty((), dtype=torch.int64).random_()) if dropout else 0
    visible = Visible(padding, keys.shape[3] - queries + 1 if causal else None, dropout, seed)
    parts = (t.flatten(0, 1).contiguous() for t in (q * scale, keys, v))
    y: Tensor = HermitianAttention.apply(*parts, visible)
    return y.view(batch, heads, queries, -1)


def _attend_product(
    q: Tensor, keys: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float, scale: float
) -> Tensor:
    """Attend with the score ``product`` by torch's kernel, with one softmax for each component as n times as many heads."""
    n = keys.shape[2]
    # Queries and values are expanded, not copied: each head averages all components of the values, of which one is used.
    q, v = (t.flatten(0, 1).unsqueeze(1).expand(-1, n, -1, -1) for t in (q, v))
    if mask is not None:
        mask = mask[:, None].expand(-1, keys.shape[1], -1).flatten(0, 1)
    y = _attend_dot(q, keys.flatten(0, 1), v, mask, causal, dropout, scale)
    return _diagonal(y).view(*keys.shape[:2], q.shape[2], -1)


def _diagonal(y: Tensor) -> Tensor:
    """Select component k of the values that were averaged for component k: [..., n, L, n d] to [..., L, n d]."""
    components: Tensor = y.unflatten(-1, (y.shape[-3], -1)).diagonal(dim1=-4, dim2=-2)
    return components.movedim(-1, -2).flatten(-2)


def _attend_dot(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float, scale: float) -> Tensor:
    """Attend with torch's scaled_dot_product_attention."""
    width = v.shape[-1]
    # Torch's fused CPU kernel requires heads of equal width; its fallback saves all weights.
    q, k, v = (_widen(t, max(q.shape[-1], width)) for t in (q, k, v))
    if mask is None and (not causal or q.shape[2] == k.shape[2]):
        return F.scaled_dot_product_attention(q, k, v, None, dropout, causal, scale=scale)[..., :width]
    visible, empty = _visible(mask, causal, q, k)
    y = F.scaled_dot_product_attention(q, k, v, visible, dropout, scale=scale)[..., :width]
    return y.masked_fill(empty, 0)


def _attend_by_definition(
    q: Tensor, keys: Tensor, v: Tensor, score: str, mask: Tensor | None, causal: bool, dropout: float, scale: float
) -> Tensor:
    """Attend with the score ``product`` or ``hermitian`` by computing all scores."""
    scores = scale * (q.unsqueeze(2) @ keys.mT)
    if score == "hermitian":
        # The gradient of vector_norm at zero is zero, not NaN.
        scores = torch.linalg.vector_norm(scores, dim=2, keepdim=True)
    empty = None
    if mask is not None or causal:
        visible, empty = _visible(mask, causal, q, v)
        scores = scores.masked_fill(~visible.unsqueeze(2), float("-inf"))
    y = F.dropout(scores.softmax(-1), dropout) @ v.unsqueeze(2)
    y = y.squeeze(2) if score == "hermitian" else _diagonal(y)
    return y if empty is None else y.masked_fill(empty, 0)


def _visible(mask: Tensor | None, causal: bool, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mask of visible keys, [B or 1, 1, L or 1, M], and of queries without any, [B or 1, 1, L or 1, 1].

    A query without visible keys sees all keys, since a softmax over none is NaN; the caller must set its result to zero.
    """
    queries, keys = q.shape[2], k.shape[2]
    visible = torch.ones(1, 1, 1, keys, dtype=torch.bool, device=k.device) if mask is None else mask[:, None, None]
    if causal:
        visible = visible & torch.ones(queries, keys, dtype=torch.bool, device=k.device).tril(keys - queries)
    empty = ~visible.any(-1, keepdim=True)
    return visible | empty, empty


def _widen(t: Tensor, width: int) -> Tensor:
    """Pad channels with zeros to a width."""
    return t if t.shape[-1] == width else F.pad(t, (0, width - t.shape[-1]))
