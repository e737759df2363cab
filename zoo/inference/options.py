"""Options of the commands that use a trained model; no torch is imported here."""

from dataclasses import dataclass, field
from typing import Any

from zoo.tasks.decoding.options import Decoding


@dataclass
class Evaluate:
    """One measurement of a trained model.

    Args:
        data: Spec of the data set; by default what the model was trained on.
        batch_size: Examples per step.
        num_workers: Processes that load data; 0 loads in the main one.
        device: Where to compute: auto, cpu, cuda, cuda:1 or mps; auto is the best that is there.
        decoding: How texts are generated; what is not given is as when the model was trained.
        trainer: Arguments of Lightning's Trainer, such as --trainer.limit_test_batches.
    """

    data: str | None = None
    batch_size: int = 64
    num_workers: int = 0
    device: str = "auto"
    decoding: Decoding = field(default_factory=Decoding)
    trainer: dict[str, Any] = field(default_factory=dict)


@dataclass
class Predict:
    """Predictions of a trained model for the user's inputs.

    Args:
        batch_size: Inputs per step.
        device: Where to compute: auto, cpu, cuda, cuda:1 or mps; auto is the best that is there.
        decoding: How texts are generated; what is not given is as when the model was trained.
    """

    batch_size: int = 64
    device: str = "auto"
    decoding: Decoding = field(default_factory=Decoding)


@dataclass
class Generate:
    """Texts that a trained model generates.

    Args:
        num_samples: Texts to generate.
        device: Where to compute: auto, cpu, cuda, cuda:1 or mps; auto is the best that is there.
        decoding: How texts are generated; what is not given is as when the model was trained.
    """

    num_samples: int = 1
    device: str = "auto"
    decoding: Decoding = field(default_factory=Decoding)
