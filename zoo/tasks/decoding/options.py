"""Which ways of decoding make sense."""

import math

from zoo.errors import InputError
from zoo.options import Decoding

WIDEST = 256
"""Hypotheses that a beam may have: far more than ever helped, and what still ends."""
LIVELY = 0.8
"""Temperature of a text that answers no other, if nobody says one."""


def check_decoding(options: Decoding) -> None:
    """Check the options of decoding.

    Raises:
        InputError: If a number is out of range, or two options exclude each other.
    """
    o = options
    rules = (
        (1 <= o.beam <= WIDEST, f"beam={o.beam}: a beam has from 1 to {WIDEST} hypotheses"),
        (0 <= o.length_penalty <= 10, f"length_penalty={o.length_penalty}: the exponent is between 0 and 10"),
        (o.length is None or o.length >= 1, f"length={o.length}: write one token or more"),
        (o.temperature is None or 0 <= o.temperature < math.inf, f"temperature={o.temperature}: it is a number from 0 on"),
        (o.top_k is None or o.top_k >= 1, f"top_k={o.top_k}: draw among one word or more"),
        (o.top_p is None or 0 < o.top_p <= 1, f"top_p={o.top_p}: a share of the probability is above 0 and at most 1"),
        (0 <= o.seed < 2**63, f"seed={o.seed}: use a whole number from 0 to 2^63 - 1"),
        (0.01 <= o.repetition_penalty <= 100, f"repetition_penalty={o.repetition_penalty}: it is between 0.01 and 100"),
    )
    for fine, message in rules:
        if not fine:
            raise InputError(message)
    drawn = [name for name in ("temperature", "top_k", "top_p") if getattr(o, name)]
    if o.beam > 1 and drawn:
        raise InputError(f"beam={o.beam} and {drawn[0]}={getattr(o, drawn[0])}: a beam draws nothing; use one of the two")


def temperature_of(options: Decoding, answers: bool) -> float:
    """Return the temperature: that of the options, or else 0 for a text that answers another, 0.8 for any other.

    Raises:
        InputError: If it is 0, and yet there is something to draw among.
    """
    value = (0.0 if answers else LIVELY) if options.temperature is None else options.temperature
    for name in ("top_k", "top_p"):
        if value == 0 and (among := getattr(options, name)) is not None:
            raise InputError(f"{name}={among}, but nothing is drawn at a temperature of 0: use --temperature 1 or leave it out")
    return value
