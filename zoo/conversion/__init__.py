"""Turn a network that torch, timm or Hugging Face built into the same network over any algebra."""

from zoo.conversion.folding import fold
from zoo.conversion.replacement import Conversion, MultiheadAttention, convert, stayed_real
from zoo.conversion.targets import Skip, survey
from zoo.conversion.transfer import Projection, transfer

__all__ = ["Conversion", "MultiheadAttention", "Projection", "Skip", "convert", "fold", "stayed_real", "survey", "transfer"]
