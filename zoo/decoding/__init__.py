"""Write with a network that tells what comes next: greedily, by drawing, or with a beam.

Everything here works on token numbers and on any network that fulfils `Network`; texts belong to `zoo.data`, networks to
`zoo.backbones`.
"""

from zoo.decoding.beam import Hypothesis, beam_search
from zoo.decoding.network import Cache, Network
from zoo.decoding.options import check_decoding
from zoo.decoding.sample import stream
from zoo.decoding.write import write

__all__ = ["Cache", "Hypothesis", "Network", "beam_search", "check_decoding", "stream", "write"]
