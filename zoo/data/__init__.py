"""Data sets as Lightning data modules that know neither backbones nor algebras.

A preset (`zoo.data.images.files:digits`, `zoo.data.images.published:cifar10`, ...) is a plain function that returns a
`DataModule`; users name it in a spec string, for instance `digits(batch_size=128)`. What a model must know of its data is in a
`DataInfo`.
"""

from zoo.data.images import ImageData, Split
from zoo.data.info import DataInfo, ImageInfo
from zoo.data.module import DataModule, ready

__all__ = ["DataInfo", "DataModule", "ImageData", "ImageInfo", "Split", "ready"]
