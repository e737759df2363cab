"""Data sets as Lightning data modules that know neither backbones nor algebras; a preset is a function that returns one."""

from zoo.data.images import ImageData
from zoo.data.info import DataInfo, ImageInfo, VectorInfo
from zoo.data.loader import BatchDataset
from zoo.data.module import DataModule, ready
from zoo.data.pixels import Split

__all__ = ["BatchDataset", "DataInfo", "DataModule", "ImageData", "ImageInfo", "Split", "VectorInfo", "ready"]
