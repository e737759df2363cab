"""Turn a network that torch, timm or anyone built into the same network over any algebra."""

from zoo.conversion.replacement import Conversion, MultiheadAttention, convert, stayed_real
from zoo.conversion.targets import Skip, survey

__all__ = ["Conversion", "MultiheadAttention", "Skip", "convert", "stayed_real", "survey"]
