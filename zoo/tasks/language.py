"""Language modelling: the next token of a text."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TextIO, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric, MetricCollection

from zoo.data.info import CorpusInfo
from zoo.data.text.tokens import UNKNOWN
from zoo.errors import InputError
from zoo.tasks.base import TaskOptions
from zoo.tasks.classification import check_label_smoothing
from zoo.tasks.generation import GenerativeTask, Location, shortened
from zoo.tasks.inputs import Example
from zoo.tasks.metrics import Inputs, StepOutput

UNITS = ("character", "byte")
MEMORY = "zoo_memory"


class BitsPer(Metric):
    """Bits that a text takes per unit of it, whatever the tokens: the sum of -log2 p over its characters or bytes.

    Args:
        unit: ``character`` or ``byte``.
    """

    bits: Tensor
    units: Tensor

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.column = UNITS.index(unit)
        self.add_state("bits", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("units", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor, lengths: Tensor) -> None:
        """Add -ln p of the tokens, any shape, and the characters and bytes of their texts, [B, 2]; the rest is for others."""
        self.bits += preds.sum(dtype=self.bits.dtype) / math.log(2)
        self.units += lengths[:, self.column].sum()

    def compute(self) -> Tensor:
        """Return the bits per unit."""
        return self.bits / self.units


class Perplexity(Metric):
    """The exponential of the mean of -ln p over all tokens, padding left out."""

    nats: Tensor
    tokens: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("nats", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("tokens", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add -ln p of the tokens, any shape, 0 at padding, and count the tokens, [B, L]."""
        self.nats += preds.sum(dtype=self.nats.dtype)
        self.tokens += (target != 0).sum()

    def compute(self) -> Tensor:
        """Return the perplexity."""
        return (self.nats / self.tokens).exp()


class LanguageModel(GenerativeTask):
    """Cross entropy of the next token in nats; perplexity per token, bits per character and per byte.

    A network with a memory (``net.has_memory``) is given it from batch to batch, in training and in measuring apart, and
    starts with an empty one at the beginning of a pass through the data. Batches are (tokens [B, L], targets [B, L], lengths
    [B, 2] in characters and bytes); without lengths, bits per character and byte are not measured.

    Args:
        net: From tokens [B, L] to logits [B, L, vocab_size].
        vocab_size: Tokens.
        label_smoothing: Share of the probability that training spreads over all tokens.
        options: See `Task`.
    """

    info_type = CorpusInfo
    inputs = ("tokens", "token_stream")
    next_commands: ClassVar[tuple[tuple[str, str], ...]] = (('generate {run} --prompt "some text"', "let it write on"),)

    def __init__(
        self, net: nn.Module, vocab_size: int, *, label_smoothing: float = 0.0, **options: Unpack[TaskOptions]
    ) -> None:
        super().__init__(net, **options)
        self.vocab_size, self.label_smoothing = vocab_size, label_smoothing
        self.memory: dict[bool, list[Tensor]] = {True: [], False: []}

    @classmethod
    def check_options(cls, **options: Any) -> None:
        """Check keywords of the constructor."""
        super().check_options(**options)
        check_label_smoothing(options.get("label_smoothing", 0.0))
        if options.get("metrics"):
            raise InputError("a language model takes no further metrics: leave metrics out")

    def default_metrics(self) -> dict[str, Metric | MetricCollection]:
        """Return perplexity, and bits per character and per byte."""
        bits: dict[str, Metric | MetricCollection] = {f"bits_per_{unit}": BitsPer(unit) for unit in UNITS}
        return {"perplexity": Perplexity(), **bits}

    def outputs(self, inputs: Any) -> Tensor:
        """Apply the network to tokens, [B, L]."""
        if not getattr(self.net, "has_memory", False):
            return super().outputs(inputs)
        y: Tensor = self.net(inputs, self.memory[self.training])
        return y

    def step(self, batch: tuple[Tensor, Tensor, Tensor]) -> StepOutput:
        """Return the cross entropy of a batch (tokens, targets, lengths), computed in float32, and what the metrics read."""
        tokens, targets, lengths = batch
        logits, flat = self.outputs(tokens).flatten(0, 1).float(), targets.flatten()
        if self.training:
            smoothed = F.cross_entropy(logits, flat, ignore_index=0, label_smoothing=self.label_smoothing)
            return StepOutput(smoothed, None, targets)
        nats = F.cross_entropy(logits, flat, ignore_index=0, reduction="none").detach()
        count = (targets != 0).sum()
        return StepOutput(nats.sum() / count, nats, targets, {"lengths": lengths}, int(count))

    # --- memory ---

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the memory for a run that goes on in the middle of an epoch."""
        if self.memory[True]:
            checkpoint[MEMORY] = [part.clone() for part in self.memory[True]]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the memory."""
        self.memory[True][:] = checkpoint.get(MEMORY, [])

    def on_train_start(self) -> None:
        """Move the memory of a checkpoint to where the network is."""
        self.memory[True][:] = [part.to(self.device) for part in self.memory[True]]

    def on_train_epoch_start(self) -> None:
        """Empty the memory of the last epoch."""
        self.memory[True].clear()

    def on_validation_epoch_start(self) -> None:
        """Begin anew."""
        super().on_validation_epoch_start()
        self.memory[False].clear()

    def on_test_epoch_start(self) -> None:
        """Begin anew."""
        super().on_test_epoch_start()
        self.memory[False].clear()

    def on_predict_epoch_start(self) -> None:
        """Begin anew."""
        self.memory[False].clear()

    # --- generating ---

    @classmethod
    def read_inputs(cls, info: Any, inputs: Sequence[Any], stdin: TextIO | None = None) -> Iterator[Example]:
        """Refuse: a language model has no predictions for inputs.

        Raises:
            InputError: Always.
        """
        raise InputError("this is a language model: let it write with zoo generate RUN --prompt TEXT")

    def prompt_tokens(self, prompts: Sequence[str], location: Location | None = None) -> dict[str, Any]:
        """Return the prompts as tokens, padded on the left.

        Raises:
            InputError: If a prompt has letters that the model does not know.
        """
        location = location or (lambda row: f"prompt '{shortened(prompts[row])}'")
        tokens = self._unlimited().encode(prompts, location)
        for prompt, numbers in zip(prompts, tokens, strict=True):
            if UNKNOWN in numbers:
                known = set(self.tokenizer.tokens)
                letters = self.tokenizer.backend.normalizer.normalize_str(prompt)
                strange = next((letter for letter in letters if letter not in known), "")
                raise InputError(f"prompt '{shortened(prompt)}': the model has never seen {strange!r}; leave it out")
        width = int(tokens.lengths.max())
        rows = [F.pad(torch.as_tensor(row, dtype=torch.int64), (width - len(row), 0)) for row in tokens]
        padded = torch.stack(rows)
        return {"prompts": padded, "mask": None if padded.all() else padded != 0, "end": None}

    def default_prompt(self) -> str:
        """Return a new line, or the first token if the model knows no lines."""
        texts = ("\n", " ", *self.tokenizer.tokens[UNKNOWN + 1 :])
        found: str = next(text for text in texts if UNKNOWN not in self._unlimited().encode([text])[0])
        return found

    def _unlimited(self) -> Any:
        """Return the tokenizer for running text, which has no longest: positions are checked when the network writes."""
        return self.tokenizer.limited(None)

    def metric_example(self) -> Inputs:
        """Refuse further metrics."""
        raise InputError("a language model takes no further metrics: leave metrics out")
