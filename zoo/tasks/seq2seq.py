"""Sequence to sequence: translate or answer a text."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MeanMetric, Metric, MetricCollection
from torchmetrics.classification import MulticlassExactMatch
from torchmetrics.text import SacreBLEUScore

from zoo.data.info import ParallelInfo
from zoo.data.tokens import BEGIN, END, UNKNOWN
from zoo.errors import InputError
from zoo.registry import check_option
from zoo.tasks.decoding import Decoding, Prompts, forbid_special, generate
from zoo.tasks.language import GenerativeTask, Location, prompt_location
from zoo.tasks.metrics import StageMetrics, StepOutput
from zoo.tasks.options import MAX_LENGTH

PUNCTUATED = re.compile(r"(?<!\S)(?:(\S+)([!-/:-@[-`{-~])|([!-/:-@[-`{-~])(\S+))(?!\S)")
"""A word that ends or starts with a punctuation mark of ASCII, which chrF++ counts as another word."""


class BLEU(SacreBLEUScore):
    """BLEU in per cent, as computed by sacreBLEU with its defaults: the tokenizer 13a and exponential smoothing (Post 2018).

    Of the lengths of n-grams without any match, the first counts as 1/2 match, the second as 1/4, and so on.
    """

    def compute(self) -> Tensor:
        """Return the score; 0 without any match, or without n-grams of some length."""
        if not self.numerator.any() or not self.denominator.all():
            return torch.zeros_like(self.preds_len)
        missing = self.numerator == 0
        matches = torch.where(missing, 0.5 ** missing.cumsum(0), self.numerator)
        shortness = (1 - self.target_len / self.preds_len).clamp(max=0)
        return 100 * ((matches / self.denominator).log().mean() + shortness).exp()


class CHRF(Metric):
    """chrF++ in per cent, as computed by sacreBLEU: F2 of n-grams of 1 to 6 characters and 1 or 2 words (Popovic 2017).

    Precision and recall are means over the lengths of n-grams that occur on both sides. ``torchmetrics.CHRFScore`` 1.9 leaves
    out the references of texts without any match, and takes the mean over all lengths, so a text of one word cannot reach 100.

    Example:
        >>> metric = CHRF()
        >>> metric.update(["a cat", ""], [["a cat"], ["cats"]])
        >>> metric.compute()
        tensor(66.2651)
    """

    counts: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("counts", torch.zeros(8, 3, dtype=torch.int64), "sum")  # in texts, in references, and in common

    def update(self, texts: Sequence[str], references: Sequence[Sequence[str]]) -> None:
        """Add the n-grams of texts and of the one reference of each."""
        for text, (reference,) in zip(texts, references, strict=True):
            pairs = zip(_ngrams(text), _ngrams(reference), strict=True)
            rows = [[part.total() * bool(other) for part in (one, other, one & other)] for one, other in pairs]
            self.counts += torch.tensor(rows, device=self.device)

    def compute(self) -> Tensor:
        """Return the score."""
        written, expected, common = self.counts[self.counts[:, :2].amin(1) > 0].T.float()
        precision, recall = (common / written).mean(), (common / expected).mean()
        score: Tensor = 100 * 5 * precision * recall / (4 * precision + recall)
        return score.nan_to_num()  # 0 if nothing is in common


def _ngrams(text: str) -> list[Counter[Any]]:
    """Return the n-grams of 1 to 6 characters, without white space, and of 1 and 2 words."""
    words = PUNCTUATED.sub(r"\1\3 \2\4", text).split()
    parts = [("".join(words), n) for n in range(1, 7)] + [(words, 1), (words, 2)]
    return [Counter(tuple(part[i : i + n]) for i in range(len(part) - n + 1)) for part, n in parts]


class Seq2Seq(GenerativeTask):
    """Sequence-to-sequence training with cross entropy in nats; measures exact match, and BLEU and chrF of generated texts.

    Validation uses teacher forcing; its ``exact_match`` equals that of greedy decoding, because a text whose tokens are all
    right is the one that greedy decoding generates. Testing generates every text with the options ``decoding`` and compares it
    with the reference. Batches are ((sources [B, S], shifted targets [B, T]), targets [B, T], ...); the references are the last
    part if it is a list of texts, else the decoded targets. Testing needs a tokenizer.

    Args:
        net: Maps sources [B, S] and shifted targets [B, T] to logits [B, T, vocab_size].
        vocab_size: Size of the vocabulary.
        tokenizer: The tokenizer of the data.
        label_smoothing: Label smoothing in training (Vaswani et al. 2017: 0.1).
        decoding: `Decoding`, or its options by name.
        options: See `Task`.
    """

    info_type = ParallelInfo
    pipeline_tag = "translation"
    inputs = ("source_target",)
    columns = ("source",)
    continues_prompt = False
    next_commands: ClassVar[tuple[tuple[str, str], ...]] = (
        ('generate {run} --prompt "some text"', "answer a text"),
        ("predict {run} FILE", "answer line by line; --beam 4 is slower and often better"),
    )

    def __init__(
        self,
        net: nn.Module,
        vocab_size: int,
        *,
        tokenizer: Any = None,
        label_smoothing: Annotated[float, "[0, 1)"] = 0.1,
        decoding: Decoding | Mapping[str, Any] = Decoding(),  # noqa: B008 (frozen)
        **options: Any,
    ) -> None:
        super().__init__(net, **options)
        self.vocab_size, self.tokenizer, self.label_smoothing = vocab_size, tokenizer, label_smoothing
        self.decoding = check_option("decoding", Decoding, decoding)
        self.check_decoding(self.decoding)
        self.limited_decoding()
        texts = MetricCollection({"exact_match": MeanMetric()}, compute_groups=False)
        texts.add_metrics({"bleu": BLEU(), "chrf": CHRF()})
        self.test_metrics = StageMetrics("test", texts)

    def default_metrics(self) -> dict[str, Metric | MetricCollection]:
        """Return the fraction of texts whose tokens are all right."""
        return {"exact_match": MulticlassExactMatch(self.hparams["vocab_size"], ignore_index=0, validate_args=False)}

    def step(self, batch: tuple[Any, ...]) -> StepOutput:
        """Return the cross entropy of a batch (inputs, targets, ...), and the tokens that greedy decoding chooses."""
        inputs, targets = batch[:2]
        logits = self(inputs)
        smoothing = self.label_smoothing if self.training else 0.0
        loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=0, label_smoothing=smoothing)
        if self.training:
            return StepOutput(loss, logits.detach(), targets)
        chosen = forbid_special(logits.detach().flatten(0, 1), END).argmax(-1).view_as(targets)
        return StepOutput(loss, chosen, targets, size=int((targets != 0).sum()))

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Generate the answers to a batch and compare them with their references."""
        output = self.step(batch)
        if not output.size:
            return
        texts = [self.tokenizer.decode(answer) for answer in self.answer(*_numbered(batch))]
        references = batch[-1] if isinstance(batch[-1], (list, tuple)) else [self.tokenizer.decode(row) for row in batch[1]]
        self.test_metrics.loss.update(output.loss, output.size)
        metrics = self.test_metrics.metrics
        for name in ("bleu", "chrf"):
            metrics[name].update(texts, [[text] for text in references])
        metrics["exact_match"].update(self.is_exact(texts, references))

    def is_exact(self, texts: Sequence[str], references: Sequence[str]) -> Tensor:
        """Return whether each text equals its reference after tokenization, 0 or 1, float32 [B].

        A reference with a character outside the vocabulary cannot be generated and counts as 0.
        """
        encoded = self.tokenizer.limited(None).encode(references, ended=True)
        pairs = zip(texts, encoded, strict=True)
        same = [UNKNOWN not in tokens and text == self.tokenizer.decode(tokens) for text, tokens in pairs]
        return torch.tensor(same, dtype=torch.float32, device=self.device)

    def limited_decoding(self) -> Decoding:
        """Return `decoding` with a length that the network supports; by default the maximum length of the training data."""
        decoding, max_length = self.decoding, getattr(self.net, "max_length", None)
        if decoding.length is not None:
            if max_length is not None and decoding.length >= max_length:
                raise InputError(f"length={decoding.length}: this network generates at most {max_length - 1} tokens")
            return decoding
        # `info` first, because the tokenizer of a model for prediction may have no limit.
        longest = getattr(self.info or self.tokenizer, "max_length", None) if max_length is None else int(max_length) - 1
        return replace(decoding, length=longest and min(longest, MAX_LENGTH))

    def answer(self, source: Tensor, rows: Tensor | None = None) -> list[list[int]]:
        """Generate the tokens of an answer to each source, [B, S]; samples depend on the row numbers, [B]."""
        prompts = replace(_as_prompts(source), rows=None if rows is None else rows.tolist())
        return generate(self.net, prompts, self.limited_decoding())  # type: ignore[arg-type]

    def encode_prompts(self, texts: Sequence[str], location: Location | None = None) -> Prompts:
        """Tokenize the texts to answer."""
        return _as_prompts(self.tokenizer.encode(texts, location or prompt_location(texts), ended=True).padded())

    def predict_step(self, batch: Any, batch_idx: int = 0) -> list[list[int]]:
        """Return the tokens of an answer to each source of a batch, see `_numbered` for its forms."""
        return self.answer(*_numbered(batch))


def _numbered(batch: Any) -> tuple[Tensor, Tensor | None]:
    """Split a batch ((sources, shifted), targets, rows, ...), (sources, rows), (sources,) or sources into sources and rows."""
    if isinstance(batch, Tensor):
        return batch, None
    source, *rest = batch
    if isinstance(source, tuple | list):
        source, rest = source[0], rest[1:]
    return source, rest[0] if rest else None


def _as_prompts(source: Tensor) -> Prompts:
    """Return prompts that start an answer to each source, [B, S]."""
    return Prompts(source.new_full((len(source), 1), BEGIN), source=source, end=END)
