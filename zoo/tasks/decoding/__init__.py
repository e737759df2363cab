"""Decoding of token ids: greedy, sampling and beam search, with a `zoo.backbones.generative.GenerativeModel`."""

from zoo.tasks.decoding.beam import Hypothesis, beam_search
from zoo.tasks.decoding.logits import Prompts
from zoo.tasks.decoding.sampling import generate, stream
from zoo.tasks.options import Decoding, check_decoding

__all__ = ["Decoding", "Hypothesis", "Prompts", "beam_search", "check_decoding", "generate", "stream"]
