"""Language modelling: predict the next token."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TextIO

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric, MetricCollection

from zoo.data.info import CorpusInfo
from zoo.data.text.tokens import UNKNOWN
from zoo.errors import InputError
from zoo.tasks.decoding import Prompts
from zoo.tasks.generation import GenerativeTask, Location, prompt_location
from zoo.tasks.inputs import Example
from zoo.tasks.metrics import Ratio, StepOutput

UNITS = ("character", "byte")
MEMORY = "zoo_memory"


class BitsPer(Ratio):
    """Bits per ``character`` or ``byte`` of text, independent of the tokenizer: the sum of -log2 p over their number."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.column = UNITS.index(unit)

    def update(self, preds: Tensor, target: Tensor, lengths: Tensor | None = None) -> None:
        """Add -ln p of the tokens, any shape, and the characters and bytes of their texts, [B, 2]; do nothing without them."""
        if lengths is not None:
            self.add(preds.sum(dtype=self.total.dtype) / math.log(2), lengths[:, self.column].sum())


class Perplexity(Ratio):
    """The exponential of the mean of -ln p over all tokens except padding."""

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add -ln p of the tokens, any shape, 0 at padding, and the number of tokens in [B, L]."""
        self.add(preds.sum(dtype=self.total.dtype), (target != 0).sum())

    def compute(self) -> Tensor:
        """Return the perplexity."""
        return super().compute().exp()


class LanguageModel(GenerativeTask):
    """Language modelling with cross entropy in nats; measures perplexity per token, bits per character and bits per byte.

    The memory of a network with ``net.has_memory`` is passed from batch to batch, separately in training and evaluation, and
    is empty at the start of each epoch. Batches are (tokens [B, L], targets [B, L], lengths [B, 2] in characters and bytes);
    without lengths, bits per character and byte are NaN.

    Args:
        net: Maps tokens [B, L] to logits [B, L, vocab_size].
        vocab_size: Size of the vocabulary.
        label_smoothing: Label smoothing in training.
        options: See `Task`.
    """

    info_type = CorpusInfo
    inputs = ("tokens", "token_stream")
    has_soft_targets = True
    next_commands: ClassVar[tuple[tuple[str, str], ...]] = (('generate {run} --prompt "some text"', "continue a text"),)

    def __init__(self, net: nn.Module, vocab_size: int, *, label_smoothing: float = 0.0, **options: Any) -> None:
        super().__init__(net, **options)
        self.vocab_size, self.label_smoothing = vocab_size, label_smoothing
        self.memory: dict[bool, list[Tensor]] = {True: [], False: []}

    def default_metrics(self) -> dict[str, Metric | MetricCollection]:
        """Return perplexity, bits per character and bits per byte."""
        bits: dict[str, Metric | MetricCollection] = {f"bits_per_{unit}": BitsPer(unit) for unit in UNITS}
        return {"perplexity": Perplexity(), **bits}

    def outputs(self, inputs: Any) -> Tensor:
        """Apply the network to tokens, [B, L]."""
        if not getattr(self.net, "has_memory", False):
            return super().outputs(inputs)
        y: Tensor = self.net(inputs, self.memory[self.training])
        return y

    def step(self, batch: Sequence[Tensor]) -> StepOutput:
        """Return the cross entropy of a batch (tokens, targets[, lengths]) in float32, and the inputs of its metrics."""
        tokens, targets, *lengths = batch[:3]
        extra = {"lengths": lengths[0]} if lengths else {}
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
        """Save the training memory, to resume within an epoch."""
        if self.memory[True]:
            checkpoint[MEMORY] = [part.clone() for part in self.memory[True]]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the training memory."""
        self.memory[True][:] = checkpoint.get(MEMORY, [])

    def on_train_start(self) -> None:
        """Move the restored memory to the device of the network."""
        self.memory[True][:] = [part.to(self.device) for part in self.memory[True]]

    def on_train_epoch_start(self) -> None:
        """Clear the training memory."""
        self.memory[True].clear()

    def reset(self, stage: str) -> None:
        """Reset the metrics and clear the evaluation memory."""
        super().reset(stage)
        self.memory[False].clear()

    def on_predict_epoch_start(self) -> None:
        """Clear the evaluation memory."""
        self.memory[False].clear()

    # --- generation ---

    @classmethod
    def read_inputs(
        cls, info: Any, inputs: Sequence[Any], stdin: TextIO | None = None, normalized: bool = False
    ) -> Iterator[Example]:
        """Raise `InputError`, because a language model does not support prediction."""
        raise InputError("a language model has no predictions: use zoo generate RUN --prompt TEXT", code="unsupported")

    def encode_prompts(self, texts: Sequence[str], location: Location | None = None) -> Prompts:
        """Tokenize prompts and pad them on the left; a character outside the vocabulary is an `InputError`."""
        location = location or prompt_location(texts)
        tokens = self._encode(texts, location)
        for index, (text, ids) in enumerate(zip(texts, tokens, strict=True)):
            if UNKNOWN in ids:
                characters = self.tokenizer.backend.normalizer.normalize_str(text)
                unknown = next((character for character in characters if character not in self.tokenizer.tokens), "")
                raise InputError(f"{location(index)}: {unknown!r} is not in the vocabulary of the model; leave it out")
        width = int(tokens.lengths.max())
        padded = torch.stack([F.pad(torch.as_tensor(ids, dtype=torch.int64), (width - len(ids), 0)) for ids in tokens])
        return Prompts(padded, None if padded.all() else padded != 0)

    def default_prompt(self) -> str:
        """Return a newline, or if that is not in the vocabulary a space or the first token."""
        texts = ("\n", " ", *self.tokenizer.tokens[UNKNOWN + 1 :])
        prompt: str = next(text for text in texts if UNKNOWN not in self._encode([text])[0])
        return prompt

    def _encode(self, texts: Sequence[str], location: Location | None = None) -> Any:
        """Tokenize prompts of any length; decoding checks it."""
        return self.tokenizer.limited(None).encode(texts, location)
