"""Labelled images: `ImageData` and the presets that make one."""

from zoo.data.images.module import ImageData
from zoo.data.images.splits import Split

__all__ = ["ImageData", "Split"]
