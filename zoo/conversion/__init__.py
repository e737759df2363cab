"""Turn a network that torch, timm or Hugging Face built into the same network over any algebra."""

from zoo.conversion.folding import fold
from zoo.conversion.multihead_attention import MultiheadAttention
from zoo.conversion.replacement import Conversion, convert, stayed_real
from zoo.conversion.targets import Skip, survey
from zoo.conversion.transfer import Projection, transfer

__all__ = ["Conversion", "MultiheadAttention", "Projection", "Skip", "convert", "fold", "stayed_real", "survey", "transfer"]
