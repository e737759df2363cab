"""Vectors whose targets are a fixed linear map of them: data of which the right answer is known exactly."""

from zoo.data.info import VectorInfo
from zoo.data.points.maps import hamilton, rotation
from zoo.data.points.module import VectorData

__all__ = ["VectorData", "VectorInfo", "hamilton", "rotation"]
