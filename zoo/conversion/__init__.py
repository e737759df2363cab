"""Convert networks of torch, timm and Hugging Face to any algebra, and fold them back into torch layers."""

from zoo.conversion.adapters import adapt
from zoo.conversion.folding import fold
from zoo.conversion.quantization import quantize
from zoo.conversion.replacement import Conversion, convert, stayed_real, survey
from zoo.conversion.transfer import Projection, transfer

__all__ = ["Conversion", "Projection", "adapt", "convert", "fold", "quantize", "stayed_real", "survey", "transfer"]
