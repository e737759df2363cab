"""The report ``frequencies``: words ranked by their sensitivity to position (Wang et al. 2020, App. D)."""

import csv
import io
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from zoo.data.text.tokens import END, UNKNOWN
from zoo.errors import InputError
from zoo.report import Report, plain_console, plain_table

Floats = NDArray[np.float64]

PEN = ("#c2452d", "#2d7f5e")
"""Colours of the most and the least sensitive words."""


class Word(NamedTuple):
    """A word and its sensitivity delta = mean |w| over dimensions, in radians per position."""

    word: str
    delta: float


def frequencies(model: Any, *, top: int = 50) -> Report:
    """Words by their sensitivity to position: a ranking (frequencies.csv) and its density (frequencies.png).

    Args:
        model: A `zoo.Model` of text whose embedding has frequencies for every word.
        top: Number of most and of least sensitive words to show.

    Raises:
        InputError: If the model has no tokenizer or no frequencies.
    """
    if top < 1:
        raise InputError(f"frequencies: top={top}: must be at least 1")
    if model.tokenizer is None:
        raise InputError("frequencies: this model has no tokenizer; use a text model")
    ranking = rank(find_frequencies(model.net), vocabulary(model.tokenizer))
    most, least = ([word._asdict() for word in words] for words in extremes(ranking, top))
    files = {"frequencies.csv": as_csv(ranking).encode(), "frequencies.png": draw_density(ranking, str(model.config["data"]))}
    return Report({"words": len(ranking), "most": most, "least": least}, as_table(ranking, top), files)


def vocabulary(tokenizer: Any) -> dict[str, int]:
    """Return the ids of the words of a tokenizer, without padding, unknown and special tokens."""
    special = {number for number, token in tokenizer.backend.get_added_tokens_decoder().items() if token.special}
    special |= set(range((END if tokenizer.has_end else UNKNOWN) + 1))
    return {word: number for number, word in enumerate(tokenizer.tokens) if number not in special}


def find_frequencies(net: nn.Module) -> Tensor:
    """Return the frequencies [V, D] of the first embedding whose method ``frequencies()`` returns a tensor."""
    for module in net.modules():
        method: Any = getattr(module, "frequencies", None)
        frequency = method() if callable(method) else None
        if isinstance(frequency, Tensor):
            return frequency
    reason = "its embedding has no frequencies, or the same ones for all words"
    raise InputError(f"this model has no word sensitivities: {reason}; train one with --embedding complex_order")


def rank(frequencies: Tensor, words: dict[str, int]) -> list[Word]:
    """Rank words by descending delta_j = mean_d |w_jd|, given w [V, D] and the row of each (Wang et al. 2020, App. D)."""
    delta = frequencies.detach().abs().double().mean(1)
    if not words or max(words.values()) >= len(delta):
        raise InputError(f"the tokenizer ({len(words)} words) does not match the embedding ({len(delta)} rows)")
    ranked = [Word(word, delta[number].item()) for word, number in words.items()]
    if not np.isfinite([word.delta for word in ranked]).all():
        raise InputError("the frequencies of this model are NaN or infinite: train again with a lower lr")
    return sorted(ranked, key=lambda word: (-word.delta, word.word))


def extremes(ranking: Sequence[Word], top: int) -> tuple[list[Word], list[Word]]:
    """Return the most sensitive words in descending order, and the least sensitive ones in ascending order."""
    return list(ranking[:top]), list(ranking[::-1][:top])


def as_csv(ranking: Sequence[Word]) -> str:
    """Format the ranking as CSV with a header."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(Word._fields)
    table.writerows((word, f"{delta:.9g}") for word, delta in ranking)
    return text.getvalue()


def as_table(ranking: Sequence[Word], top: int) -> str:
    """Format the most and the least sensitive words as a table."""
    view = plain_table("", "most sensitive", "delta", "least sensitive", "delta")
    for column, side in zip(view.columns, ("right", "left", "right", "left", "right"), strict=True):
        column.justify = side  # type: ignore[assignment]
    for number, (most, least) in enumerate(zip(*extremes(ranking, top), strict=True), 1):
        view.add_row(str(number), shorten(most.word), f"{most.delta:.4f}", shorten(least.word), f"{least.delta:.4f}")
    console = plain_console(file=io.StringIO())
    console.print(f"\n{len(ranking):,} words by their sensitivity to position, delta = mean |w| in radians per position\n")
    console.print(view)
    return str(console.file.getvalue()).rstrip()  # type: ignore[attr-defined]


def kernel_density(values: Floats, grid: Floats) -> Floats:
    """Estimate the density of a sample [N], not all equal, at the points of a grid [G] with Gaussian kernels.

    The bandwidth is 0.9 min(s, IQR / 1.34) N^(-1/5) (Silverman 1986, Eq. 3.31).
    """
    low, high = np.percentile(values, (25, 75))
    spread = min(values.std(), (high - low) / 1.34) or values.std()
    width = 0.9 * spread * len(values) ** -0.2
    kernels = [float(np.exp(-(((x - values) / width) ** 2) / 2).mean()) for x in grid]
    return np.array(kernels) / float(width * np.sqrt(2 * np.pi))


def draw_density(ranking: Sequence[Word], source: str, listed: int = 12) -> bytes:
    """Draw the density of the sensitivities as PNG (Wang et al. 2020, Figure 3) beside the most and least sensitive words."""
    from matplotlib.figure import Figure

    values = np.array([word.delta for word in ranking])
    figure = Figure(figsize=(10, 5), dpi=150)
    axes: Any = figure.add_axes((0.07, 0.12, 0.61, 0.72))
    axes.hist(values, bins=min(80, 5 + len(values) // 5), density=True, color="#c9d6e8", edgecolor="white", linewidth=0.4)
    if np.ptp(values) > 0:
        margin = 0.02 * np.ptp(values)
        grid = np.linspace(values.min() - margin, values.max() + margin, 400)
        axes.plot(grid, kernel_density(values, grid), color="#1f3b63", linewidth=2)
    axes.set_xlabel("sensitivity to position: δ = mean |ω| over dimensions (radians per position)")
    axes.set_ylabel("density of words")
    axes.spines[["top", "right"]].set_visible(False)
    figure.text(0.07, 0.935, "How sensitive are words to their position?", fontsize=14, fontweight="bold")
    figure.text(0.07, 0.89, f"{len(ranking):,} words of {source}", color="#666666", parse_math=False)
    for words, left, color, head in zip(extremes(ranking, listed), (0.73, 0.86), PEN, ("most sensitive", "least"), strict=True):
        axes.vlines([word.delta for word in words], 0, 0.04 * axes.get_ylim()[1], color=color, linewidth=1.2)
        figure.text(left, 0.84, head, color=color, fontweight="bold", va="top")
        figure.text(left, 0.78, "\n".join(shorten(word.word) for word in words), va="top", linespacing=1.6, parse_math=False)
    axes.set_ylim(bottom=0)
    picture = io.BytesIO()
    with warnings.catch_warnings():  # the font may lack glyphs of some words
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(picture, format="png")
    return picture.getvalue()


def shorten(text: str, width: int = 16) -> str:
    """Truncate a text to the width of its column.

    >>> shorten("incomprehensibilities")
    'incomprehensibi…'
    """
    return text if len(text) <= width else f"{text[: width - 1]}…"
