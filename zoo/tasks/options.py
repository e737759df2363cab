"""Decoding options; importing this module imports no torch."""

import math
from dataclasses import dataclass

from zoo.errors import InputError, check_rules

MAX_BEAM = 256
"""Maximum beam size."""
MAX_LENGTH = 100_000
"""Maximum number of tokens to generate."""
DEFAULT_TEMPERATURE = 0.8
"""Default temperature of language models."""


@dataclass
class Decoding:
    """Options of text generation.

    Args:
        beam: Beam size; 1 disables beam search.
        length_penalty: Exponent of GNMT's length penalty in a beam search.
        length: Maximum number of tokens to generate, up to 100,000; by default as many as fit, up to 256.
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
    """Raise `InputError` if a number is out of range, or two options exclude each other."""
    o = options
    sampling = [f"{name}={getattr(o, name)}" for name in ("temperature", "top_k", "top_p") if getattr(o, name)]
    check_rules(
        (1 <= o.beam <= MAX_BEAM, f"beam={o.beam}: must be between 1 and {MAX_BEAM}"),
        (0 <= o.length_penalty <= 10, f"length_penalty={o.length_penalty}: must be between 0 and 10"),
        (o.length is None or 1 <= o.length <= MAX_LENGTH, f"length={o.length}: must be between 1 and {MAX_LENGTH}"),
        (o.temperature is None or 0 <= o.temperature < math.inf, f"temperature={o.temperature}: must be 0 or more"),
        (o.top_k is None or o.top_k >= 1, f"top_k={o.top_k}: must be at least 1"),
        (o.top_p is None or 0 < o.top_p <= 1, f"top_p={o.top_p}: must be in (0, 1]"),
        (0 <= o.seed < 2**63, f"seed={o.seed}: must be between 0 and 2^63 - 1"),
        (0.01 <= o.repetition_penalty <= 100, f"repetition_penalty={o.repetition_penalty}: must be between 0.01 and 100"),
        (o.beam == 1 or not sampling, f"beam={o.beam} excludes {''.join(sampling[:1])}: use beam search or sampling"),
    )


def temperature_of(options: Decoding, answers: bool) -> float:
    """Return the temperature, by default 0 for texts that answer a source and 0.8 for others; 0 excludes top_k and top_p."""
    temperature = (0.0 if answers else DEFAULT_TEMPERATURE) if options.temperature is None else options.temperature
    for name in ("top_k", "top_p"):
        if temperature == 0 and (value := getattr(options, name)) is not None:
            raise InputError(f"{name}={value} has no effect at a temperature of 0: use --temperature 1, or leave it out")
    return temperature
