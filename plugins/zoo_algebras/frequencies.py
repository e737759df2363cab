"""The report ``frequencies``: words ranked by their sensitivity to position (Wang et al. 2020, App. D)."""

import csv
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, nn

from zoo.data.tokens import END, UNKNOWN
from zoo.errors import InputError
from zoo.reports import Report, plain_console, plain_table


class Word(NamedTuple):
    """A word and its sensitivity delta = mean |w| over dimensions, in radians per position."""

    word: str
    delta: float


def frequencies(model: Any, *, top: int = 50) -> Report:
    """Words by their sensitivity to position: a ranking (frequencies.csv) and its density (frequencies.png).

    Args:
        model: A `zoo.Model` of text whose embedding has frequencies for every word.
        top: Number of most and of least sensitive words to show.
    """
    if model.tokenizer is None:
        raise InputError("frequencies: this model has no tokenizer; use a text model")
    ranking = rank(find_frequencies(model.net), vocabulary(model.tokenizer))
    most, least = ranking[:top], ranking[::-1][:top]
    files = {"frequencies.csv": as_csv(ranking).encode(), "frequencies.png": draw_density(ranking, str(model.config.data))}
    values = {"words": len(ranking), "most": [word._asdict() for word in most], "least": [word._asdict() for word in least]}
    heading = f"{len(ranking):,} words by their sensitivity to position, delta = mean |w| in radians per position"
    return Report(values, f"\n{heading}\n\n{as_table(most, least)}", files)


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
    ranked = [Word(word, delta[number].item()) for word, number in words.items()]
    return sorted(ranked, key=lambda word: (-word.delta, word.word))


def as_csv(ranking: Sequence[Word]) -> str:
    """Format the ranking as CSV with a header."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([Word._fields, *((word, f"{delta:.9g}") for word, delta in ranking)])
    return text.getvalue()


def as_table(most: Sequence[Word], least: Sequence[Word]) -> str:
    """Format the most and the least sensitive words as a table."""
    view = plain_table("word", "most sensitive", "word", "least sensitive")
    for high, low in zip(most, least, strict=True):
        view.add_row(high.word, f"{high.delta:.4f}", low.word, f"{low.delta:.4f}")
    console = plain_console(file=io.StringIO())
    console.print(view)
    return str(console.file.getvalue()).rstrip()  # type: ignore[attr-defined]


def draw_density(ranking: Sequence[Word], source: str) -> bytes:
    """Draw the density of the sensitivities as PNG (Wang et al. 2020, Figure 3): a histogram and a Gaussian kernel estimate."""
    from matplotlib.figure import Figure
    from scipy.stats import gaussian_kde

    values = np.array([word.delta for word in ranking])
    figure = Figure(figsize=(8, 5), dpi=150)
    axes: Any = figure.subplots()
    axes.hist(values, bins="auto", density=True, color="#c9d6e8", edgecolor="white", linewidth=0.4)
    if np.ptp(values) > 0:
        grid = np.linspace(values.min(), values.max(), 400)
        axes.plot(grid, gaussian_kde(values, "silverman")(grid), color="#1f3b63", linewidth=2)
    axes.set_title(f"Sensitivity to position of {len(ranking):,} words of {source}", parse_math=False)
    axes.set_xlabel("sensitivity to position: δ = mean |ω| over dimensions (radians per position)")
    axes.set_ylabel("density of words")
    axes.spines[["top", "right"]].set_visible(False)
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    return picture.getvalue()
