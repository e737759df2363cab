"""Data sets as Lightning data modules that know neither backbones nor algebras; a preset is a function that returns one."""

from zoo.data.images import ImageData, Split
from zoo.data.info import DataInfo, ImageInfo
from zoo.data.module import DataModule, ready

__all__ = ["DataInfo", "DataModule", "ImageData", "ImageInfo", "Split", "ready"]
