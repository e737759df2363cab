"""Options of optimizer, schedule and decoding; they move to the tasks. The options of a run are in `zoo.training.options`."""

from dataclasses import dataclass


@dataclass
class Optimizer:
    """How weights are updated.

    Args:
        name: Any optimizer timm knows, such as adamw, sgd or lion.
        lr: Peak learning rate; by default what the backbone recommends.
        weight_decay: Decay of matrices; norms and biases are not decayed.
        betas: Decay of the running means of gradients and of their squares, two numbers; by default the optimizer's own.
        eps: What is added to a denominator; by default the optimizer's own.
    """

    name: str = "adamw"
    lr: float | None = None
    weight_decay: float = 0.05
    betas: tuple[float, float] | None = None
    eps: float | None = None


@dataclass
class Schedule:
    """How the learning rate moves, step by step.

    Args:
        name: cosine, linear (both fall to the floor), inverse_sqrt or constant.
        warmup: Share of all steps in which it first rises from zero.
        floor: Share of the peak that cosine and linear end at.
    """

    name: str = "cosine"
    warmup: float = 0.1
    floor: float = 0.0


@dataclass
class Decoding:
    """How a network that writes chooses its words.

    Args:
        beam: Hypotheses that are kept in mind; 1 takes one word after the other.
        length_penalty: Exponent of GNMT's length penalty, which keeps a beam from preferring short texts.
        length: Tokens to write at most; by default as many as fit, up to 256.
        temperature: 0 always takes the likeliest word, 1 draws from the network's own distribution; by default 0 where a text
            is answered by a text, 0.8 for language models.
        top_k: Draw among so many of the likeliest words only.
        top_p: Draw among the likeliest words that have this share of the probability.
        repetition_penalty: Above 1, words that stand there already become less likely.
        seed: Decides what is drawn.
    """

    beam: int = 1
    length_penalty: float = 0.6
    length: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0
    seed: int = 0
