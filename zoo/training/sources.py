"""The trained models that a run builds on: its initial weights and its teacher."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from zoo.algebras import Algebra
from zoo.checkpoint import find, load_network, read_config
from zoo.checkpoint.folder import fingerprint_of
from zoo.errors import InputError, one_line
from zoo.hub.sources import locate
from zoo.inference.evaluation import required_facts
from zoo.inference.model import load
from zoo.nn import Layers
from zoo.tasks.distillation import Distillation
from zoo.tasks.options import DistillationOptions
from zoo.training.options import is_object
from zoo.training.pretrained import is_of_transformers, load_pretrained

ENCODING = ("columns", "values", "mean", "std")
"""The facts of data that decide which numbers the network reads."""


@dataclass
class InitialWeights:
    """The model whose weights a network starts from, which is checked when this is created.

    Attributes:
        source: The value of ``--from``.
        backbone: Spec of the network to load the weights into.
        algebra: Algebra of the network, a spec or an object.
        scope: Which of its matrices are hypercomplex.
        init: How its matrices are initialized.
        folder: The folder of the source: of a model, or of ``save_pretrained`` of transformers.
    """

    source: str
    backbone: str
    algebra: str | Algebra
    scope: str
    init: str
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        """Find the folder; raise `InputError` if it does not exist or is damaged."""
        self.folder = locate(self.source)
        if not is_of_transformers(self.folder):
            read_config(self.folder)

    def load_into(self, net: nn.Module, info: object, tokenizer: object, files: Mapping[str, str]) -> None:
        """Load the weights into a network for data with this info, this tokenizer and these files."""
        if is_of_transformers(self.folder):
            layers = Layers(self.algebra, self.scope, self.init)
            load_pretrained(net, self.folder, layers, getattr(tokenizer, "tokens", None))
            return
        config = read_config(self.folder)
        source = f"--from {self.source} is {config.backbone or 'a network without a spec'} over {config.algebra}"
        expected = self.algebra if isinstance(self.algebra, str) and not is_object(self.algebra) else None
        if expected and config.algebra is not None and fingerprint_of(config.algebra) != fingerprint_of(expected):
            raise InputError(f"{source}, expected {expected}", code="mismatch")
        if config.backbone is None:
            raise InputError(f"{source}: use a model whose backbone has a spec", code="unsupported")
        if not _has_files(self.folder, files):
            raise InputError(f"{source}, and its tokenizer differs from that of the data: use the data that it was trained on")
        trained = config.info or {}
        if any(key in trained and list(getattr(info, key, trained[key])) != trained[key] for key in ("columns", "values")):
            raise InputError(f"{source}, and was trained on a table with other columns or categories", code="mismatch")
        try:
            net.load_state_dict(load_network(self.folder, config).state_dict())
        except RuntimeError as error:
            text = f"{source}, which does not match {self.backbone}: {one_line(error)}"
            raise InputError(text, code="mismatch") from error


@dataclass
class Teacher:
    """The model whose outputs a network learns, which is checked when this is created.

    Attributes:
        source: The value of ``--teacher``.
        options: Options of distillation.
        folder: The model folder of the source.
    """

    source: str
    options: DistillationOptions
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        """Find the folder; raise `InputError` if it does not exist or is damaged."""
        self.folder = locate(self.source)
        read_config(self.folder)

    def distillation(self, info: object, files: Mapping[str, str]) -> Distillation:
        """Load the model, and return the callback that trains with it on data with this info and these files."""
        source = f"--teacher {self.source}"
        teacher = load(self.folder)
        if info is None or teacher.info is None:
            raise InputError(f"{source}: the data of teacher and student need info", code="unsupported")
        facts, expected = (
            required_facts(item) | {key: getattr(item, key, None) for key in ENCODING} for item in (teacher.info, info)
        )
        if wrong := [key for key in expected if facts.get(key) != expected[key]]:
            raise InputError(f"{source} was trained on data with other {' and '.join(wrong)}", code="mismatch")
        if not _has_files(self.folder, files):
            raise InputError(f"{source} has another tokenizer than the data: train both on the same data", code="mismatch")
        return Distillation(teacher.net, self.options.temperature, self.options.weight)


def _has_files(model: Path, files: Mapping[str, str]) -> bool:
    paths = {find(model) / name: text for name, text in files.items()}
    return all(path.is_file() and path.read_text(encoding="utf-8") == text for path, text in paths.items())
