"""Attention between heads of algebra elements as a pure function, with three kinds of scores."""

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.errors import InputError, check_choice
from zoo.kernels.internals import is_plain_mode, is_recording
from zoo.layers.hermitian import HermitianAttention, Visible

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

    ``hermitian`` keeps no [L, M] tensor for the backward pass, and the others none without dropout, unless both ``mask`` and
    ``causal`` are given: the combined mask, [B, L, M], is kept then.

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
    return attend_arranged(q, arrange(k, structure, score), v, score, mask, causal, dropout, scale)


def attend_arranged(
    q: Tensor,
    keys: Tensor,
    v: Tensor,
    score: str = "dot",
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Attend to keys that `arrange` has prepared, so that a network that decodes prepares each of them once; see `attend`."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if q.shape[2] == 1:  # The last token attends to all of them. A branch: torch.export takes no symbolic `is_causal`.
        causal = False
    if score == "dot":
        return _fused(q, keys, v, mask, causal, dropout, scale)
    if q.shape[2] > 1 and score == "product":
        return _by_heads(q, keys, v, mask, causal, dropout, scale)
    if q.shape[2] > 1 and not (torch.compiler.is_compiling() or is_recording(q) or not is_plain_mode()):
        return _in_tiles(q, keys, v, mask, causal, dropout, scale)
    return _written_out(q, keys, v, score, mask, causal, dropout, scale)


def arrange(k: Tensor, structure: Tensor | None, score: str) -> Tensor:
    """Arrange keys so that a real dot product with q is one component of the score.

    [B, H, M, n c] becomes [B, H, n, M, n c]: sum_ij A[i, j, k] q_i . k_j = q . K_k, where component i of K_k is
    sum_j A[i, j, k] k_j, and conj(k_j) for ``hermitian``. Keys for ``dot`` stay as they are. Errors as in `attend`.
    """
    if score == "dot":
        return k
    check_choice("score", score, SCORES)
    if structure is None:
        raise InputError(f"the score '{score}' multiplies over an algebra: pass its structure tensor")
    n = structure.shape[0]
    if score == "hermitian":
        real, imaginary = k.tensor_split([k.shape[-1] // n], -1)
        k = torch.cat([real, -imaginary], -1)
    return torch.einsum("ijk,bhmjc->bhkmic", structure, k.unflatten(-1, (n, -1))).flatten(-2)


def _in_tiles(q: Tensor, keys: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float, scale: float) -> Tensor:
    """Attend by hermitian, see `HermitianAttention`."""
    batch, heads, queries, _ = q.shape
    if torch.is_autocast_enabled(q.device.type):
        q, keys, v = (t.to(torch.get_autocast_dtype(q.device.type)) for t in (q, keys, v))
    padding = None if mask is None else mask[:, None].expand(-1, heads, -1).flatten(0, 1)
    seed = int(torch.empty((), dtype=torch.int64).random_()) if dropout else 0
    visible = Visible(padding, keys.shape[3] - queries + 1 if causal else None, dropout, seed)
    parts = (t.flatten(0, 1).contiguous() for t in (q * scale, keys, v))
    y: Tensor = HermitianAttention.apply(*parts, visible)
    return y.view(batch, heads, queries, -1)


def _by_heads(q: Tensor, keys: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float, scale: float) -> Tensor:
    """Attend by product with torch's kernel: one softmax for each component of the result, n times as many heads."""
    n = keys.shape[2]
    # Queries and values are not copied. Each head weighs all components of the values, and one of them is its own.
    q, v = (t.flatten(0, 1).unsqueeze(1).expand(-1, n, -1, -1) for t in (q, v))
    if mask is not None:
        mask = mask[:, None].expand(-1, keys.shape[1], -1).flatten(0, 1)
    y = _fused(q, keys.flatten(0, 1), v, mask, causal, dropout, scale)
    return _own_components(y).view(*keys.shape[:2], q.shape[2], -1)


def _own_components(y: Tensor) -> Tensor:
    """Take component k of the values that were weighed for component k: [..., n, L, n d] to [..., L, n d]."""
    components: Tensor = y.unflatten(-1, (y.shape[-3], -1)).diagonal(dim1=-4, dim2=-2)
    return components.movedim(-1, -2).flatten(-2)


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


def _written_out(
    q: Tensor, keys: Tensor, v: Tensor, score: str, mask: Tensor | None, causal: bool, dropout: float, scale: float
) -> Tensor:
    """Attend by product or hermitian as they are defined; the scores are written out."""
    scores = scale * (q.unsqueeze(2) @ keys.mT)
    if score == "hermitian":
        # Torch's norm has the gradient zero at zero, where the root of a sum of squares has none.
        scores = torch.linalg.vector_norm(scores, dim=2, keepdim=True)
    empty = None
    if mask is not None or causal:
        visible, empty = _visible(mask, causal, q, v)
        scores = scores.masked_fill(~visible.unsqueeze(2), float("-inf"))
    y = F.dropout(scores.softmax(-1), dropout) @ v.unsqueeze(2)
    y = y.squeeze(2) if score == "hermitian" else _own_components(y)
    return y if empty is None else y.masked_fill(empty, 0)


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
