"""The results of importers of other libraries' weights, which are registered as entry points of ``zoo.importers``.

An importer is called as ``importer(source, **options)`` with a path and the options of its spec, and with the algebra of
``zoo convert`` if it has an argument ``algebra``. It returns an `ImportedNetwork` or `ImportedLayers`.
"""

from typing import Any, NamedTuple

from torch import Tensor


class ImportedNetwork(NamedTuple):
    """A real network: ``zoo.backbone(backbone, "real", **sizes)`` can load ``state``.

    Attributes:
        backbone: Spec of the backbone.
        sizes: Keyword arguments of `zoo.backbone`, such as ``vocab_size`` and ``max_length``.
        state: The state dict.
        tokenizer: The JSON of its tokenizer with the token ids of the zoo, or None.
    """

    backbone: str
    sizes: dict[str, Any]
    state: dict[str, Tensor]
    tokenizer: str | None = None


class ImportedLayers(NamedTuple):
    """A state dict in which layers of the zoo replace those of another library.

    Attributes:
        state: The state dict.
        layers: For each replaced layer its name, the shape of its real matrix, and the number of its components.
        kept: Names of the unchanged tensors.
    """

    state: dict[str, Tensor]
    layers: list[dict[str, Any]]
    kept: list[str]
