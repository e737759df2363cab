"""The complex-order embedding: words as complex waves over positions (Wang et al. 2020)."""

import math

import torch
from torch import Tensor, nn

from zoo.errors import InputError, check_choice
from zoo.nn import Layers

SHARING = ("none", "word", "dimension")
FREQUENCY_INITS = ("trigonometric", "normal", "index")
SPREAD = math.sqrt(2)
"""Ratio of the standard deviations of amplitudes and channels: r cos and r sin share the energy of r."""


class PhasorEmbedding(nn.Module):
    r"""Words as complex waves r e^{i(w pos + theta)} over positions.

    Word j at position pos = 1, 2, ... becomes the complex vector of Wang et al. (2020, Eq. 5)

        f(j, pos) = r_j e^{i (w_j pos + theta_j)}

    with learned real amplitudes r, frequencies w (radians per position) and phases theta for every word and dimension, unless
    shared. The D = dim / 2 real parts precede the imaginary parts: component-major for n = 2, and for any other algebra the
    concatenation of App. C. Padding, token 0, is zero and receives no gradient.

    With ``trigonometric`` all words start with the frequencies w_d = 10000^(-d / D), d = 0 ... D - 1, of the trigonometric
    encoding (App. A, whose exponent lacks the sign), or with their mean if dimensions share a frequency. If amplitudes are
    shared, the frequencies are multiplied by random numbers from 0 to 2, because all words would start with the same vector.
    ``normal`` draws frequencies from N(0, 1), as in the listing of App. C. With ``index`` word j starts with
    j / 10000^(2d / D), as in the authors' released code of CNN, FastText and LSTM. Initial phases are uniform in [-pi, pi].

    Pretrained vectors of width D initialize the amplitudes (section 3.1). Vectors of another width are fixed, and the
    amplitudes are r = tanh(P v + b) with learned P and b (the projection of Tay et al. 2019).

    Args:
        vocab_size: Number V of words, including padding.
        dim: Real channels, an even number.
        vectors: Width of the pretrained vectors for `load_vectors`, or None.
        amplitude: Sharing of r: ``none`` for a table [V, D], ``word`` for one row [1, D], ``dimension`` for one column [V, 1].
        frequency: Sharing of w; ``off`` for w = 0.
        phase: Sharing of theta; ``off`` for theta = 0.
        std: Standard deviation of the initial channels.
        frequency_init: Initial frequencies: ``trigonometric``, ``normal`` or ``index``.
        frequency_lr_scale: Factor on the learning rate of the frequencies; 0 freezes them.

    """

    def __init__(
        self,
        layers: Layers,
        *,
        vocab_size: int,
        dim: int,
        vectors: int | None = None,
        amplitude: str | None = None,
        frequency: str | None = None,
        phase: str | None = "off",
        std: float = 0.1,
        frequency_init: str = "trigonometric",
        frequency_lr_scale: float = 1.0,
    ) -> None:
        super().__init__()
        # A spec parses none as None.
        amplitude, frequency, phase = (sharing or "none" for sharing in (amplitude, frequency, phase))
        check_choice("frequency_init", frequency_init, FREQUENCY_INITS)
        if dim <= 0 or dim % 2 != 0:
            raise InputError(f"dim={dim}: must be even, for real and imaginary parts")
        if not frequency_lr_scale >= 0:  # also NaN
            raise InputError(f"frequency_lr_scale={frequency_lr_scale}: must be 0 or more")
        if frequency_init == "index" and frequency != "none":
            raise InputError("frequency_init=index needs frequency=none")
        if vectors is not None and amplitude != "none":
            raise InputError("pretrained vectors need amplitude=none")
        if {amplitude, frequency, phase} <= {"word", "off"}:
            raise InputError("all words would have the same vector: amplitude, frequency or phase must not be shared by words")
        self.frequency_init, self.frequency_lr_scale = frequency_init, frequency_lr_scale
        self.width, self.ordered, self.sharing, self.spread = dim // 2, frequency != "off", amplitude, SPREAD * std
        projected = vectors is not None and vectors != self.width
        self.amplitude = _table("amplitude", amplitude, vocab_size, vectors or self.width).requires_grad_(not projected)
        self.projection: nn.Module = nn.Identity()
        if projected:
            self.projection = nn.Sequential(layers.linear(self.amplitude.embedding_dim, self.width, role="stem"), nn.Tanh())
        self.frequency = None if frequency == "off" else _table("frequency", frequency, vocab_size, self.width)
        self.phase = None if phase == "off" else _table("phase", phase, vocab_size, self.width)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Redraw the tables; `torch.manual_seed` determines the result."""
        with torch.no_grad():
            self.amplitude.weight.normal_(std=self.spread)
            if self.frequency is not None:
                self._reset_frequencies(self.frequency.weight)
            if self.phase is not None:
                self.phase.weight.uniform_(-math.pi, math.pi)

    def _reset_frequencies(self, w: Tensor) -> None:
        d = torch.arange(self.width).to(w)
        if self.frequency_init == "normal":
            w.normal_()
        elif self.frequency_init == "index":
            w.copy_(torch.arange(len(w)).to(w)[:, None] * 10000.0 ** (-2 * d / self.width))
        else:
            start = 10000.0 ** (-d / self.width)
            w.copy_(start if w.shape[1] == self.width else start.mean())
            if len(w) > 1 and self.sharing != "none":
                w.mul_(2 * torch.rand_like(w))

    def forward(self, tokens: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Look up: [B, L] to [B, L, dim]; ``position_ids`` [L] or [B, L] are pos - 1, by default 0, 1, ..., L - 1."""
        r = self.projection(_look_up(self.amplitude, tokens))
        position_ids = torch.arange(tokens.shape[-1], device=tokens.device) if position_ids is None else position_ids
        # bfloat16 is exact only up to 256.
        position = 1 + position_ids.to(torch.float32)
        angle = _look_up(self.frequency, tokens) * position[..., None] + _look_up(self.phase, tokens)
        parts = [(r * wave).expand(*tokens.shape, self.width) for wave in (angle.cos(), angle.sin())]
        return torch.cat(parts, -1).to(r.dtype).masked_fill((tokens == 0).unsqueeze(-1), 0)

    def no_weight_decay(self) -> set[str]:
        """Return the parameters without weight decay: frequencies and phases (Wang et al. 2020, section 3.1)."""
        return {"frequency.weight", "phase.weight"}

    def lr_scale(self) -> dict[str, float]:
        """Return factors on the learning rate by parameter name."""
        return {"frequency.weight": self.frequency_lr_scale}

    def frequencies(self) -> Tensor | None:
        """Return w of every word, [V, D], or [V, 1] if dimensions share it; None if words share it."""
        return None if self.frequency is None or len(self.frequency.weight) == 1 else self.frequency.weight.detach()

    def load_vectors(self, matrix: Tensor, known: Tensor) -> None:
        """Set the rows ``known`` [V] to pretrained vectors [V, width], and scale the others to the same standard deviation."""
        table = self.amplitude.weight
        with torch.no_grad():
            table.mul_(matrix[known].square().mean().sqrt() / self.spread)
            table[known] = matrix[known].to(table)


def _table(name: str, sharing: str, words: int, width: int) -> nn.Embedding:
    """Create a table [words, width], with one row or column if it is shared."""
    check_choice(name, sharing, (*SHARING, "off") if name == "phase" else SHARING)
    rows, columns = (1 if sharing == "word" else words), (1 if sharing == "dimension" else width)
    return nn.Embedding(rows, columns, padding_idx=0 if rows > 1 else None)


def _look_up(table: nn.Embedding | None, tokens: Tensor) -> Tensor:
    """Look up tokens [B, L] to [B, L, width]; a row shared by all words is [1, width], and a missing table is zero."""
    if table is None:
        return torch.zeros((), device=tokens.device)
    return table(tokens) if len(table.weight) > 1 else table.weight


complex_order = PhasorEmbedding
"""Words as complex waves r e^{i(w pos + theta)} over positions."""


def complex_vanilla(
    layers: Layers, *, vocab_size: int, dim: int, vectors: int | None = None, std: float = 0.1
) -> PhasorEmbedding:
    """Words as complex vectors r e^{i theta} without order.

    The baseline of Wang et al. (2020, section 3.1), complex-vanilla; see `PhasorEmbedding`.
    """
    sizes = {"vocab_size": vocab_size, "dim": dim, "vectors": vectors}
    return PhasorEmbedding(layers, **sizes, frequency="off", phase="none", std=std)  # type: ignore[arg-type]
