"""The configuration of a model folder: the values that rebuild its network. This module does not import torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from zoo.checkpoint.manifest import MOST, NAME, find, is_plain, read_json, verify
from zoo.checkpoint.records import invalid_fields, known_fields
from zoo.errors import InputError

FORMAT = 2
MAX_PACKAGES = 100
"""Maximum number of versions in a configuration; each one that is not installed is looked up."""
_REQUIRED = frozenset({"scope", "init", "versions"})


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The content of config.json.

    Attributes:
        algebra_sha256: SHA-256 of a fixed product, see `zoo.checkpoint.folder.fingerprint`.
        backbone: Spec of the network; None for one without a spec.
        algebra: Spec of the algebra; None for one without a spec.
        embedding: Spec of the token embedding.
        task: Spec of the task.
        data: Spec of the training data.
        scope: Which roles are hypercomplex.
        init: Initialization of the matrices.
        versions: Versions of the libraries and plugins by distribution.
        info: The `DataInfo` of the training data.
        model_kwargs: Sizes of a network without data info.
        conversion: The class and the converted layers of a network without a spec.
        decoding: Options for generating text.
        sparse: Shapes of the packed tensors by name.
    """

    algebra_sha256: str | None = None
    backbone: str | None = None
    algebra: str | None = None
    embedding: str | None = None
    task: str | None = None
    data: str | None = None
    scope: str = "all"
    init: str = "variance"
    versions: dict[str, str] = field(default_factory=dict)
    info: dict[str, Any] | None = None
    model_kwargs: dict[str, Any] | None = None
    conversion: dict[str, Any] | None = None
    decoding: dict[str, Any] | None = None
    sparse: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the content of config.json, without values that are None."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "algebra_sha256"}
        kept = {key: value for key, value in values.items() if value is not None}
        return {"format": FORMAT, "algebra_sha256": self.algebra_sha256, **kept}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], file: Path) -> "ModelConfig":
        """Check the content of config.json; errors name the file."""
        if values.get("format") != FORMAT:
            raise InputError(f"{file.parent} has format {values.get('format')}, expected {FORMAT}: update hypercomplex-zoo")
        wrong = invalid_fields(cls, values, _REQUIRED)
        if not wrong:
            config = cls(**known_fields(cls, values))
            wrong = config._invalid_names()
        if wrong:
            raise InputError(f"{file} has missing or invalid values: {', '.join(wrong)}")
        if not is_plain(values):
            raise InputError(f"{file} has text with control characters, or numbers beyond {MOST:g}: do not use the folder")
        return config

    def _invalid_names(self) -> list[str]:
        converted = (self.conversion or {}).get("converted", {})
        are_versions = len(self.versions) <= MAX_PACKAGES and all(map(NAME.fullmatch, self.versions))
        are_names = isinstance(converted, dict) and all(isinstance(text, str) for text in converted.values())
        return [name for name, is_valid in (("versions", are_versions), ("conversion", are_names)) if not is_valid]


def read_config(path: str | Path) -> ModelConfig:
    """Verify a run or model folder and return the configuration of the model."""
    folder = find(path)
    verify(folder)
    file = folder / "config.json"
    return ModelConfig.from_json(read_json(file), file)
