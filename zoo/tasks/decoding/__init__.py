"""Generate with a network that tells what comes next: greedily, by sampling, or with a beam search.

Everything here works on token numbers and on any network that fulfils `Network`. Importing this package imports no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.tasks.decoding.beam import Hypothesis, beam_search
    from zoo.tasks.decoding.logits import KVCache, Network, Prompts
    from zoo.tasks.decoding.options import Decoding, check_decoding, check_length_penalty
    from zoo.tasks.decoding.sampling import generate, stream

_MODULES = {
    "Decoding": "options",
    "Hypothesis": "beam",
    "KVCache": "logits",
    "Network": "logits",
    "Prompts": "logits",
    "beam_search": "beam",
    "check_decoding": "options",
    "check_length_penalty": "options",
    "generate": "sampling",
    "stream": "sampling",
}

__all__ = [
    "Decoding",
    "Hypothesis",
    "KVCache",
    "Network",
    "Prompts",
    "beam_search",
    "check_decoding",
    "check_length_penalty",
    "generate",
    "stream",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'zoo.tasks.decoding' has no attribute '{name}'")
    return getattr(import_module(f"zoo.tasks.decoding.{_MODULES[name]}"), name)
