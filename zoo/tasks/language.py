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
from zoo.tasks.decoding import Prompts
from zoo.tasks.distillation import SoftTargets
from zoo.tasks.generation import GenerativeTask, Location, prompt_location
from zoo.tasks.inputs import Example
from zoo.tasks.metrics import Ratio, StepOutput

UNITS = ("character", "byte")
MEMORY = "zoo_memory"


class BitsPer(Ratio):
    """Bits that a text takes per ``character`` or ``byte``, whatever the tokens: the sum of -log2 p over their number."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.column = UNITS.index(unit)

    def update(self, preds: Tensor, target: Tensor, lengths: Tensor | None = None) -> None:
        """Add -ln p of the tokens, any shape, and the characters and bytes of their texts, [B, 2]; nothing without these."""
        if lengths is not None:
            self.add(preds.sum(dtype=self.total.dtype) / math.log(2), lengths[:, self.column].sum())


class Perplexity(Ratio):
    """The exponential of the mean of -ln p over all tokens, padding left out."""

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add -ln p of the tokens, any shape, 0 at padding, and count the tokens, [B, L]."""
        self.add(preds.sum(dtype=self.total.dtype), (target != 0).sum())

    def compute(self) -> Tensor:
        """Return the perplexity."""
        return super().compute().exp()


def _checked(lengths: Any, rows: int) -> Tensor:
    """Check characters and bytes of every text."""
    shape = (rows, len(UNITS))
    if isinstance(lengths, Tensor) and lengths.shape == shape:
        return lengths.long()
    found = list(lengths.shape) if isinstance(lengths, Tensor) else type(lengths).__name__
    raise InputError(f"lengths ({found}) must be characters and bytes of every text, {list(shape)}, or leave them out")


class LanguageModel(SoftTargets, GenerativeTask):
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
        """Check keywords of the constructor; there are no metrics to choose."""
        super().check_options(**options)
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

    def is_measured(self, metric: Metric) -> bool:
        """Return whether a batch of any process had what a metric needs: bits per character need characters."""
        return not isinstance(metric, BitsPer) or bool(torch.as_tensor(self.all_gather(metric.count)).sum())

    def step(self, batch: Sequence[Tensor]) -> StepOutput:
        """Return the cross entropy of a batch (tokens, targets[, lengths]), computed in float32, and what the metrics read."""
        if len(batch) < 2:
            raise InputError(f"a batch of {len(batch)} parts: a language model learns from (tokens, targets)")
        tokens, targets, *lengths = batch[:3]
        extra = {"lengths": _checked(lengths[0], len(targets))} if lengths else {}
        predicted = self.outputs(tokens)
        logits, flat = predicted.flatten(0, 1).float(), targets.flatten()
        if self.training:
            smoothed = F.cross_entropy(logits, flat, ignore_index=0, label_smoothing=self.label_smoothing)
            return StepOutput(self.distilled(smoothed, predicted, tokens, targets != 0), None, targets)
        nats = F.cross_entropy(logits, flat, ignore_index=0, reduction="none").detach()
        count = (targets != 0).sum()
        return StepOutput(nats.sum() / count, nats, targets, extra, int(count))

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

    def reset(self, stage: str) -> None:
        """Reset the metrics and empty the memory."""
        super().reset(stage)
        self.memory[False].clear()

    def on_predict_epoch_start(self) -> None:
        """Empty the memory."""
        self.memory[False].clear()

    # --- generating ---

    @classmethod
    def read_inputs(
        cls, info: Any, inputs: Sequence[Any], stdin: TextIO | None = None, normalized: bool = False
    ) -> Iterator[Example]:
        """Refuse: a language model has no predictions for inputs."""
        raise InputError("a language model makes no predictions: use zoo generate RUN --prompt TEXT", code="unsupported")

    def encode_prompts(self, texts: Sequence[str], location: Location | None = None) -> Prompts:
        """Return the prompts as tokens, padded on the left; refuse letters that the model does not know."""
        location = location or prompt_location(texts)
        tokens = self._unlimited().encode(texts, location)
        for number, (text, numbers) in enumerate(zip(texts, tokens, strict=True)):
            if UNKNOWN in numbers:
                letters = self.tokenizer.backend.normalizer.normalize_str(text)
                strange = next((letter for letter in letters if letter not in self.tokenizer.tokens), "")
                raise InputError(f"{location(number)}: the model has never seen {strange!r}; leave it out")
        width = int(tokens.lengths.max())
        rows = [F.pad(torch.as_tensor(row, dtype=torch.int64), (width - len(row), 0)) for row in tokens]
        padded = torch.stack(rows)
        return Prompts(padded, None if padded.all() else padded != 0)

    def default_prompt(self) -> str:
        """Return a new line, or the first token if the model knows no lines."""
        texts = ("\n", " ", *self.tokenizer.tokens[UNKNOWN + 1 :])
        prompt: str = next(text for text in texts if UNKNOWN not in self._unlimited().encode([text])[0])
        return prompt

    def _unlimited(self) -> Any:
        """Return the tokenizer for running text, which has no longest: positions are checked when the network writes."""
        return self.tokenizer.limited(None)
