"""Options of tasks: the optimizer, the schedule, distillation and decoding; importing this module imports no torch.

They are checked when they are created, and pass unchanged from the command line, `zoo.fit` or your own code to the task.
"""

from dataclasses import dataclass

from zoo.errors import InputError, check_choice
from zoo.registry.limits import bounded
from zoo.registry.resolution import check_fields

SCHEDULES = ("cosine", "linear", "constant", "inverse_sqrt")
DECAYING = ("cosine", "linear")
"""The schedules with a final learning rate."""
DEFAULT_TEMPERATURE = 0.8
"""Default temperature of language models."""
MAX_LENGTH = 100_000
"""Maximum number of tokens to generate."""


@dataclass(frozen=True)
class Optimizer:
    """The optimizer.

    Args:
        name: Any optimizer timm knows, such as adamw, sgd or lion.
        lr: Peak learning rate; the default depends on the backbone.
        weight_decay: Weight decay of matrices; norms and biases are excluded.
        betas: Two coefficients for running means of the gradient and its square; by default those of the optimizer.
        eps: Term added to the denominator; by default that of the optimizer.
        mup_base_width: Fan-in at which a real matrix has learning rate lr; other matrices are scaled by fan-in and algebra.
    """

    name: str = "adamw"
    lr: float | None = bounded("(0, inf)", None)
    weight_decay: float = bounded("[0, inf)", 0.05)
    betas: tuple[float, float] | None = bounded("[0, 1)", None)
    eps: float | None = bounded("(0, inf)", None)
    mup_base_width: int | None = bounded("[1, inf)", None)

    def __post_init__(self) -> None:
        """Raise `InputError` if a value is out of range."""
        check_fields(self, "optimizer.")


@dataclass(frozen=True)
class Schedule:
    """The learning rate schedule, by step.

    Args:
        name: cosine, linear, inverse_sqrt or constant.
        warmup: Fraction of steps of linear warm-up.
        floor: Final learning rate of cosine and linear, as a fraction of the peak.
    """

    name: str = "cosine"
    warmup: float = bounded("[0, 1]", 0.1)
    floor: float = bounded("[0, 1]", 0.0)

    def __post_init__(self) -> None:
        """Raise `InputError` if a value is out of range, or the schedule has no floor."""
        check_fields(self, "schedule.")
        check_choice("schedule", self.name, SCHEDULES)
        if self.floor and self.name not in DECAYING:
            raise InputError(f"floor requires schedule={' or '.join(DECAYING)}, got {self.name}: leave it out")


@dataclass(frozen=True)
class DistillationOptions:
    """Distillation from a teacher (Hinton, Vinyals and Dean 2015).

    Args:
        temperature: Temperature of both softmax functions; above 1, small probabilities of the teacher count more.
        weight: Weight of the teacher in the loss, from 0 to 1; the labels have the rest.
    """

    temperature: float = bounded("(0, inf)", 4.0)
    weight: float = bounded("[0, 1]", 0.9)

    def __post_init__(self) -> None:
        """Raise `InputError` if a value is out of range."""
        check_fields(self, "distillation.")


@dataclass(frozen=True)
class Decoding:
    """Options of text generation.

    Args:
        beam: Beam size; 1 disables beam search.
        length_penalty: Exponent of GNMT's length penalty in a beam search.
        length: Maximum number of tokens to generate, up to 100,000; by default as many as fit, up to 256.
        temperature: Sampling temperature; 0 is greedy decoding. By default 0 for sequence-to-sequence models and 0.8 for
            language models.
        top_k: Sample among the k most likely tokens.
        top_p: Nucleus sampling: sample among the most likely tokens with this total probability.
        repetition_penalty: Above 1, tokens that already occur become less likely.
        seed: Random seed of sampling.
    """

    beam: int = bounded("[1, 256]", 1)
    length_penalty: float = bounded("[0, 10]", 0.6)
    length: int | None = bounded(f"[1, {MAX_LENGTH}]", None)
    temperature: float | None = bounded("[0, inf)", None)
    top_k: int | None = bounded("[1, inf)", None)
    top_p: float | None = bounded("(0, 1]", None)
    repetition_penalty: float = bounded("[0.01, 100]", 1.0)
    seed: int = bounded(f"[0, {2**63 - 1}]", 0)

    def __post_init__(self) -> None:
        """Raise `InputError` if a value is out of range, or two exclude each other."""
        check_fields(self)
        sampling = [f"{name}={value}" for name in ("temperature", "top_k", "top_p") if (value := getattr(self, name))]
        if self.beam > 1 and sampling:
            raise InputError(f"beam={self.beam} excludes {sampling[0]}: use beam search or sampling")


def temperature_of(options: Decoding, answers: bool) -> float:
    """Return the temperature, by default 0 for texts that answer a source and 0.8 for others; 0 excludes top_k and top_p."""
    temperature = (0.0 if answers else DEFAULT_TEMPERATURE) if options.temperature is None else options.temperature
    for name in ("top_k", "top_p"):
        if temperature == 0 and (value := getattr(options, name)) is not None:
            raise InputError(f"{name}={value} has no effect at a temperature of 0: use --temperature 1, or leave it out")
    return temperature
