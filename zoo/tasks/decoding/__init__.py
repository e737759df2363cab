"""Write with a network that tells what comes next: greedily, by drawing, or with a beam.

Everything here works on token numbers and on any network that fulfils `Network`; texts belong to `zoo.data`, networks to
`zoo.backbones`.
"""

from zoo.tasks.decoding.beam import Hypothesis, beam_search
from zoo.tasks.decoding.network import KVCache, Network
from zoo.tasks.decoding.options import check_decoding
from zoo.tasks.decoding.sample import stream
from zoo.tasks.decoding.write import write

__all__ = ["Hypothesis", "KVCache", "Network", "beam_search", "check_decoding", "stream", "write"]
