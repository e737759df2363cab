"""Decoding of token ids: greedy, sampling and beam search, with any network that implements `Network`.

Importing this package imports no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.tasks.decoding.beam import Hypothesis as Hypothesis
    from zoo.tasks.decoding.beam import beam_search as beam_search
    from zoo.tasks.decoding.logits import KVCache as KVCache
    from zoo.tasks.decoding.logits import Network as Network
    from zoo.tasks.decoding.logits import Prompts as Prompts
    from zoo.tasks.decoding.options import Decoding as Decoding
    from zoo.tasks.decoding.options import check_decoding as check_decoding
    from zoo.tasks.decoding.options import check_length_penalty as check_length_penalty
    from zoo.tasks.decoding.sampling import generate as generate
    from zoo.tasks.decoding.sampling import stream as stream

_NAMES = {
    "beam": "Hypothesis beam_search",
    "logits": "KVCache Network Prompts",
    "options": "Decoding check_decoding check_length_penalty",
    "sampling": "generate stream",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'zoo.tasks.decoding' has no attribute '{name}'")
    return getattr(import_module(f"zoo.tasks.decoding.{_MODULES[name]}"), name)
