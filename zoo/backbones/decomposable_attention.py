"""Decomposable attention: two texts are aligned word by word, compared where they are aligned, and summed."""

import torch
from torch import Tensor, nn

from zoo.backbones.recipe import recipe
from zoo.backbones.sequence_classifier import feedforward, pool
from zoo.errors import InputError
from zoo.layers import Layers
from zoo.layers.positions import length_limit
from zoo.layers.scores import attend


class DecomposableAttention(nn.Module):
    r"""DeAtt over the reals, Q-Att over the quaternions (Tay et al. 2019, 3.2 and 4.1): only the algebra differs.

    With words a_i and b_j of two texts, F a feed-forward network (Parikh et al. 2016, Eq. 1) and one softmax per component,

        E = F(a) F(b)^T,  b'_i = sum_j softmax_j(E_ij) b_j,  a'_j = sum_i softmax_i(E_ij) a_i
        c_1 = sum_j G([a'_j; b_j; a'_j b_j; a'_j - b_j]),  c_2 = sum_i G([b'_i; a_i; b'_i a_i; b'_i - a_i])
        y = head(H([c_1; c_2; c_1 c_2; c_1 - c_2]))

    where juxtaposition is the product of the algebra: over the reals the elementwise one, and E is a matrix of dot products.
    G and H have ``depth`` layers, F has ``attend_depth``; with 0, F is the identity.
    """

    def __init__(
        self,
        layers: Layers,
        token_embedding: nn.Module,
        dim: int,
        depth: int,
        attend_depth: int,
        outputs: int,
        readout: str | None,
        dropout: float,
    ) -> None:
        super().__init__()
        self.token_embedding, self.product = token_embedding, layers.product(dim, role="attention")
        self.max_length = length_limit(token_embedding)
        self.attend, *_ = feedforward(layers, dim, dim, attend_depth, 1, dropout)
        self.compare, *_ = feedforward(layers, 4 * dim, dim, depth, 4, dropout)
        self.aggregate, *_ = feedforward(layers, 4 * dim, dim, depth, 4, dropout)
        self.head = layers.head(dim, outputs, readout)

    def forward(self, tokens: Tensor, other: Tensor) -> Tensor:
        """Classify the pair: tokens [B, L] and [B, M] to [B, outputs]."""
        here, there = tokens != 0, other != 0
        a, b = self.token_embedding(tokens), self.token_embedding(other)
        fa, fb = self.attend(a), self.attend(b)
        structure = self.product.algebra.table(a)
        aligned_b = align(fa, fb, b, structure, there)
        # The other direction has the same products, F(a_i) on the left: the transposed table puts it on the right.
        aligned_a = align(fb, fa, a, structure.transpose(0, 1), here)
        c1 = pool(self.compare(self.features(aligned_a, b)), there, "sum")
        c2 = pool(self.compare(self.features(aligned_b, a)), here, "sum")
        y: Tensor = self.head(self.aggregate(self.features(c1, c2)))
        return y

    def features(self, x: Tensor, y: Tensor) -> Tensor:
        """Concatenate [x; y; x y; x - y], [..., 4 * dim]."""
        return torch.cat([x, y, self.product(x, y), x - y], -1)


def align(query: Tensor, key: Tensor, value: Tensor, structure: Tensor, mask: Tensor) -> Tensor:
    """Average the values [B, M, C] for every query [B, L, C] by the component softmax of their products, [B, L, C]."""
    q, k, v = (t.unsqueeze(1) for t in (query, key, value))
    return attend(q, k, v, structure, "product", mask, scale=1.0).squeeze(1)


@recipe(data="glosses(task=pairs)", max_epochs=7, lr=3e-3, inputs=("text_pair",))
def decomposable_attention(
    layers: Layers,
    *,
    vocab_size: int,
    max_length: int,
    num_classes: int,
    pair: bool = True,
    dim: int = 96,
    depth: int = 2,
    attend_depth: int = 2,
    positions: str | None = "auto",
    readout: str | None = None,
    dropout: float = 0.1,
) -> nn.Module:
    """Decomposable attention of two texts: DeAtt over the reals, Q-Att over the quaternions (Tay et al. 2019, Table 1).

    Args:
        layers: The factory that knows the algebra.
        vocab_size: Tokens of the vocabulary; 0 is padding.
        max_length: Tokens of the longest text.
        num_classes: Logits, [B, num_classes].
        pair: It reads pairs only.
        dim: Channels of a word vector and of every layer; the paper has 50 and 200.
        depth: Layers of the comparing and of the aggregating network.
        attend_depth: Layers before the alignment; 0 aligns the word vectors themselves.
        positions: Position embedding: none (the same as auto), learned or trigonometric.
        readout: How the head computes logits: channels, modulus or scalar.
        dropout: Probability for word vectors and layers.
    """
    n = layers.over("attention").n
    if not pair:
        raise InputError("decomposable_attention reads pairs of texts: use data such as glosses(task=pairs)")
    if depth < 1 or attend_depth < 0:
        raise InputError(f"depth={depth}, attend_depth={attend_depth}: depth is at least 1 and attend_depth at least 0")
    if dim < 1 or dim % n:
        fitting = max(1, -(-dim // n)) * n
        raise InputError(
            f"dim={dim} is not made of whole elements of an algebra with n = {n}: write decomposable_attention(dim={fitting})"
        )
    embedding = layers.token_embedding(vocab_size, dim, max_length, positions=positions, dropout=dropout)
    return DecomposableAttention(layers, embedding, dim, depth, attend_depth, num_classes, readout, dropout)
