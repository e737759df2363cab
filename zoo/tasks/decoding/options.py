"""The options of decoding, and which of them make sense; importing this module imports no torch."""

import math
from dataclasses import dataclass

from zoo.errors import InputError, check_rules

MAX_BEAM = 256
"""Hypotheses that a beam may have: far more than ever helped, and what still ends."""
DEFAULT_TEMPERATURE = 0.8
"""Temperature of a text that answers no other, unless another is given."""


@dataclass
class Decoding:
    """How the tokens of a generated text are chosen.

    Args:
        beam: Beam size; 1 disables beam search.
        length_penalty: Exponent of GNMT's length penalty in a beam search.
        length: Maximum number of tokens to generate; by default as many as fit, up to 256.
        temperature: Sampling temperature; 0 is greedy decoding. By default 0 for sequence-to-sequence models and 0.8 for
            language models.
        top_k: Sample among the k most likely tokens.
        top_p: Nucleus sampling: sample among the most likely tokens with this total probability.
        repetition_penalty: Above 1, tokens that already occur become less likely.
        seed: Random seed of sampling.
    """

    beam: int = 1
    length_penalty: float = 0.6
    length: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0
    seed: int = 0


def check_decoding(options: Decoding) -> None:
    """Check the options of decoding.

    Raises:
        InputError: If a number is out of range, or two options exclude each other.
    """
    o = options
    drawn = [f"{name}={getattr(o, name)}" for name in ("temperature", "top_k", "top_p") if getattr(o, name)]
    check_rules(
        (1 <= o.beam <= MAX_BEAM, f"beam={o.beam}: a beam has from 1 to {MAX_BEAM} hypotheses"),
        (0 <= o.length_penalty <= 10, f"length_penalty={o.length_penalty}: the exponent is between 0 and 10"),
        (o.length is None or o.length >= 1, f"length={o.length}: write one token or more"),
        (o.temperature is None or 0 <= o.temperature < math.inf, f"temperature={o.temperature}: it is a number from 0 on"),
        (o.top_k is None or o.top_k >= 1, f"top_k={o.top_k}: draw among one word or more"),
        (o.top_p is None or 0 < o.top_p <= 1, f"top_p={o.top_p}: a share of the probability is above 0 and at most 1"),
        (0 <= o.seed < 2**63, f"seed={o.seed}: use a whole number from 0 to 2^63 - 1"),
        (0.01 <= o.repetition_penalty <= 100, f"repetition_penalty={o.repetition_penalty}: it is between 0.01 and 100"),
        (o.beam == 1 or not drawn, f"beam={o.beam} and {''.join(drawn[:1])}: a beam draws nothing; use one of the two"),
    )


def check_length_penalty(options: Decoding) -> None:
    """Refuse a length penalty that would have no effect, because no beam search is asked for."""
    o = options
    unused = f"length_penalty={o.length_penalty} has no effect without a beam search: use --beam 4, say, or leave it out"
    check_rules((o.beam != 1 or o.length_penalty == Decoding.length_penalty, unused), code="conflict")


def temperature_of(options: Decoding, answers: bool) -> float:
    """Return the temperature: by default 0 for a text that answers another, 0.8 for others; at 0, nothing is drawn."""
    value = (0.0 if answers else DEFAULT_TEMPERATURE) if options.temperature is None else options.temperature
    for name in ("top_k", "top_p"):
        if value == 0 and (among := getattr(options, name)) is not None:
            raise InputError(f"{name}={among}, but nothing is drawn at a temperature of 0: use --temperature 1 or leave it out")
    return value
