"""Image data: Lightning data modules that know neither backbones nor algebras.

A preset (`zoo.data.digits:digits`, `zoo.data.cifar:cifar10`, ...) is a plain function that returns an `ImageData`;
users name it in a spec string, for instance `digits(batch_size=128)`. What a model must know of its data is in
`ImageInfo`.
"""

from zoo.data.images import ImageData
from zoo.data.info import DataInfo, ImageInfo
from zoo.data.module import DataModule, ready
from zoo.data.splits import Split

__all__ = ["DataInfo", "DataModule", "ImageData", "ImageInfo", "Split", "ready"]
