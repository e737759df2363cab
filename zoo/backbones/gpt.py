"""GPT: a causal Transformer that predicts the next token."""

from typing import Any

from torch import nn

from zoo.backbones.blocks import Block, Sizes, check_causal_norm, preset_sizes
from zoo.backbones.generative import Decoder, LMHead
from zoo.backbones.recipe import passes_options_to, recipe
from zoo.layers import Layers

PRESETS = {"micro": Sizes(128, 4, 4, 512, 0.0), "nano": Sizes(384, 6, 6, 1536, 0.2)}
"""nanoGPT's character models: the one for a CPU, and the one for a GPU."""


@recipe(data="glosses(task=language_model)", max_epochs=3, lr=3e-3, inputs=("tokens",), batch_size=8)
@passes_options_to(preset_sizes, PRESETS)
def gpt(
    layers: Layers,
    *,
    vocab_size: int,
    max_length: int,
    score: str | None = None,
    positions: str | None = "auto",
    norm: str = "layer",
    bias: bool = False,
    tied: bool = True,
    activation: str = "gelu",
    bar_special: bool = False,
    **sizes: Any,
) -> nn.Module:
    """GPT (Radford et al. 2019) as nanoGPT builds it; gpt/nano is its character model, gpt/micro its small one for a CPU.

    Args:
        layers: The factory that knows the algebra.
        vocab_size: Tokens of the vocabulary; 0 is padding.
        max_length: Tokens of a block, and rows of the learned positions.
        score: ``dot``, ``product`` (Tay et al. 2019, Eq. 4) or ``hermitian`` (Wang et al. 2020, Eq. 14).
        positions: none, learned, trigonometric or rotary (without limit of length); auto is learned, or none if the embedding
            encodes order.
        norm: Name of the norm: layer, rms or element.
        bias: Whether matrices and norms have biases.
        tied: Whether the head uses the embedding table; else it is a matrix of role ``head``.
        activation: Of the feed-forward networks: gelu, gelu_tanh (its approximation by tanh, as in GPT-2) or relu.
        bar_special: Whether padding and the unknown token have logits of -10^4 and so no probability, as for weights of
            networks that know neither.
        sizes: variant (``micro`` or ``nano``), dim, depth, heads, ffn, dropout: see `zoo.backbones.blocks.preset_sizes`.
    """
    check_causal_norm(norm)
    rotary = positions == "rotary"
    size = preset_sizes(layers, "gpt", PRESETS, rotary, **sizes)
    options: dict[str, Any] = {"positions": "none" if rotary else positions, "default": "learned", "dropout": size.dropout}
    embedding = layers.token_embedding(vocab_size, size.dim, max_length, **options)
    # Each block adds twice to the residual stream; scaled so, the sum has the variance of one addition (Radford et al. 2019,
    # section 2.3).
    options = {"score": score, "rotary": rotary, "norm": norm, "activation": activation, "bias": bias}
    blocks = [Block(layers, size, gain=(2 * size.depth) ** -0.5, **options) for _ in range(size.depth)]
    lm_head = LMHead(layers, embedding, size.dim, vocab_size, tied, bar_special)
    return Decoder(embedding, blocks, layers.norm(size.dim, norm, bias), lm_head)
