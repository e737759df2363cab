"""What an importer of another library's weights returns; importers come through the entry group ``zoo.importers``.

An importer is called as ``importer(source, **options)`` with a path and the options of its spec. One that takes ``algebra``
also receives the algebra of ``zoo convert``. It returns an `ImportedNetwork` or `ImportedLayers`.
"""

from typing import Any, NamedTuple

from torch import Tensor


class ImportedNetwork(NamedTuple):
    """A network over the reals: ``zoo.backbone(backbone, "real", **sizes)`` loads ``state``.

    Attributes:
        backbone: Spec of the backbone.
        sizes: Keywords that build it, such as ``vocab_size`` and ``max_length``.
        state: The state dict over the reals.
        tokenizer: The JSON of its tokenizer with our token ids; None if there is none.
    """

    backbone: str
    sizes: dict[str, Any]
    state: dict[str, Tensor]
    tokenizer: str | None = None


class ImportedLayers(NamedTuple):
    """A state dict in which our layers replace those of another library.

    Attributes:
        state: The state dict.
        layers: For each replaced layer its name, the shape of its real matrix, and the number of its components.
        kept: Names of the tensors that are unchanged.
    """

    state: dict[str, Tensor]
    layers: list[dict[str, Any]]
    kept: list[str]
