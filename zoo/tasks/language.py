"""Language modeling, and the base class of all tasks whose network generates text."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric, MetricCollection

from zoo.data.info import CorpusInfo
from zoo.data.tokens import UNKNOWN
from zoo.errors import InputError
from zoo.tasks.base import Task
from zoo.tasks.decoding import Decoding, Prompts, generate, stream
from zoo.tasks.metrics import Ratio, StepOutput
from zoo.tasks.options import temperature_of

UNFINISHED = "\ufffd"
"""Replacement character, to which tokenizers decode an incomplete UTF-8 sequence."""

Location = Callable[[int], str]


class GenerativeTask(Task):
    """A task whose network generates text.

    Attributes:
        continues_prompt: Whether the text continues the prompt, as in a language model, or answers it.
        decoding: The decoding options.
    """

    continues_prompt: ClassVar[bool] = True
    per_token = True
    decoding: Decoding = Decoding()

    @classmethod
    def data_options(cls, info: Any) -> dict[str, Any]:
        """Return the size of the vocabulary."""
        return {"vocab_size": info.vocab_size}

    def encode_prompts(self, texts: Sequence[str], location: Location | None = None) -> Prompts:
        """Tokenize one or more prompts; error messages name prompt i by ``location(i)``."""
        raise NotImplementedError(f"{type(self).__name__}.encode_prompts: return the prompts as tokens")

    def default_prompt(self) -> str:
        """Return the prompt to use if the user gives none; `InputError` if a prompt is required."""
        raise InputError("missing --prompt: this model answers a text", code="missing")

    def limited_decoding(self) -> Decoding:
        """Return `decoding` with its length limited to what the network supports."""
        return self.decoding

    @classmethod
    def check_decoding(cls, decoding: Decoding) -> None:
        """Raise `InputError` if decoding options have no effect on the texts of this task."""
        if decoding.beam == 1 and decoding.length_penalty != Decoding.length_penalty:
            text = f"length_penalty={decoding.length_penalty} requires beam search: use --beam 4, or leave it out"
            raise InputError(text, code="conflict")
        temperature_of(decoding, not cls.continues_prompt)

    def generate(self, texts: Sequence[str]) -> list[str]:
        """Generate a text for each prompt in one batch, without the prompt."""
        decoding = self.limited_decoding()
        if not texts:
            return []
        tokens = generate(self.net, self.encode_prompts(texts).to(self.device), decoding)  # type: ignore[arg-type]
        return [self.tokenizer.decode(text) for text in tokens]

    def stream(self, text: str) -> Iterator[str]:
        """Generate one text and yield it in pieces; errors are raised before the first one."""
        decoding = self.limited_decoding()
        if decoding.beam > 1:  # the best text is only known at the end
            return iter(self.generate([text]))
        prompts = self.encode_prompts([text]).to(self.device)
        return self._pieces(stream(self.net, prompts, decoding))  # type: ignore[arg-type]

    def _pieces(self, tokens: Iterator[Tensor]) -> Iterator[str]:
        # The text of a token may depend on the token before it, so decode it together with the previous piece.
        ids: list[int] = []
        previous = start = 0
        for token in tokens:
            ids.append(int(token))
            piece = self._decode_after(ids[previous:], start - previous)
            if not piece.endswith(UNFINISHED):
                yield piece
                previous, start = start, len(ids)
        yield self._decode_after(ids[previous:], start - previous)

    def _decode_after(self, ids: list[int], skip: int) -> str:
        """Decode tokens and return the text after that of the first ``skip`` tokens."""
        text: str = self.tokenizer.decode(ids)
        return text[len(self.tokenizer.decode(ids[:skip])) :]


def prompt_location(texts: Sequence[str], width: int = 40) -> Location:
    """Return a function that names a prompt in error messages by the beginning of its text."""
    lines = (" ".join(text.split()) for text in texts)
    shown = [line if len(line) <= width else f"{line[:width]}..." for line in lines]
    return lambda row: f"prompt '{shown[row]}'"


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
    """Language modeling with cross entropy in nats; measures perplexity per token, bits per character and bits per byte.

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
    pipeline_tag = "text-generation"
    inputs = ("tokens", "token_stream")
    has_soft_targets = True
    next_commands: ClassVar[tuple[tuple[str, str], ...]] = (('generate {run} --prompt "some text"', "continue a text"),)

    def __init__(
        self, net: nn.Module, vocab_size: int, *, label_smoothing: Annotated[float, "[0, 1)"] = 0.0, **options: Any
    ) -> None:
        super().__init__(net, **options)
        self.vocab_size, self.label_smoothing = vocab_size, label_smoothing
        self.memory: dict[bool, list[Tensor]] = {True: [], False: []}

    def default_metrics(self) -> dict[str, Metric | MetricCollection]:
        """Return perplexity, bits per character and bits per byte."""
        bits: dict[str, Metric | MetricCollection] = {f"bits_per_{unit}": BitsPer(unit) for unit in UNITS}
        return {"perplexity": Perplexity(), **bits}

    def forward(self, inputs: Any) -> Tensor:
        """Apply the network to tokens, [B, L]."""
        if not getattr(self.net, "has_memory", False):
            return super().forward(inputs)
        y: Tensor = self.net(inputs, self.memory[self.training])
        return y

    def step(self, batch: Sequence[Tensor]) -> StepOutput:
        """Return the cross entropy of a batch (tokens, targets[, lengths]) in float32, and the inputs of its metrics."""
        tokens, targets, *lengths = batch[:3]
        extra = {"lengths": lengths[0]} if lengths else {}
        predicted = self(tokens)
        logits, flat = predicted.flatten(0, 1).float(), targets.flatten()
        if self.training:
            smoothed = F.cross_entropy(logits, flat, ignore_index=0, label_smoothing=self.label_smoothing)
            return StepOutput(self.distillation(smoothed, predicted, tokens, targets != 0), None, targets)
        nats = F.cross_entropy(logits, flat, ignore_index=0, reduction="none").detach()
        count = (targets != 0).sum()
        return StepOutput(nats.sum() / count, nats, targets, extra, int(count))

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

    def on_validation_epoch_start(self) -> None:
        """Clear the evaluation memory."""
        self.memory[False].clear()

    on_test_epoch_start = on_predict_epoch_start = on_validation_epoch_start

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
        padded = torch.stack([F.pad(torch.tensor(ids, dtype=torch.int64), (width - len(ids), 0)) for ids in tokens])
        return Prompts(padded, None if padded.all() else padded != 0)

    def default_prompt(self) -> str:
        """Return a newline, or if that is not in the vocabulary a space or the first token."""
        texts = ("\n", " ", *self.tokenizer.tokens[UNKNOWN + 1 :])
        prompt: str = next(text for text in texts if UNKNOWN not in self._encode([text])[0])
        return prompt

    def _encode(self, texts: Sequence[str], location: Location | None = None) -> Any:
        """Tokenize prompts of any length; decoding checks it."""
        return self.tokenizer.limited(None).encode(texts, location)
