"""Sequence to sequence: a text in answer to a text."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MeanMetric, Metric, MetricCollection
from torchmetrics.classification import MulticlassExactMatch
from torchmetrics.text import CHRFScore, SacreBLEUScore

from zoo.data.info import ParallelInfo
from zoo.data.text.tokens import BEGIN, END, UNKNOWN
from zoo.errors import InputError
from zoo.registry import build_options
from zoo.tasks.base import TaskOptions
from zoo.tasks.decoding import Decoding, Prompts, generate
from zoo.tasks.decoding.logits import forbid_special
from zoo.tasks.generation import GenerativeTask, Location, prompt_location
from zoo.tasks.inputs import Example
from zoo.tasks.metrics import Inputs, StepOutput


class BLEU(SacreBLEUScore):
    """BLEU in per cent, by sacreBLEU's rules with the tokenizer 13a (Post 2018)."""

    def compute(self) -> Tensor:
        """Return the score."""
        return 100 * super().compute()


class CHRF(CHRFScore):
    """The character F-score chrF++ in per cent (Popovic 2017)."""

    def compute(self) -> Any:
        """Return the score."""
        return 100 * super().compute()


class Seq2Seq(GenerativeTask):
    """Cross entropy of the next token in nats; the share of texts that are right as a whole; BLEU and chrF of generated texts.

    Validation gives the network each target up to the token in question. A text that is right so is what greedy decoding would
    generate, so its ``exact_match`` is that of greedy decoding. Testing generates every text, as ``decoding`` says, and
    compares it with the reference. Batches are ((sources [B, S], shifted targets [B, T]), targets [B, T], ...); the references
    are the last part if that is a list of texts, and otherwise the decoded targets. Testing needs a tokenizer.

    Args:
        net: From sources [B, S] and targets so far [B, T] to logits [B, T, vocab_size].
        vocab_size: Tokens.
        tokenizer: Of the data.
        label_smoothing: Share of the probability that training spreads over all tokens (Vaswani et al. 2017: 0.1).
        decoding: How texts are generated, `Decoding` or a mapping of its options.
        options: See `Task`; further metrics are metrics of text and are measured when testing.
    """

    info_type = ParallelInfo
    inputs = ("source_target",)
    columns = ("source",)
    continues_prompt = False
    next_commands: ClassVar[tuple[tuple[str, str], ...]] = (
        ('generate {run} --prompt "some text"', "let it answer"),
        ("predict {run} FILE", "answer line by line; --beam 4 thinks longer"),
    )

    def __init__(
        self,
        net: nn.Module,
        vocab_size: int,
        *,
        tokenizer: Any = None,
        label_smoothing: float = 0.1,
        decoding: Decoding | Mapping[str, Any] | None = None,
        **options: Unpack[TaskOptions],
    ) -> None:
        decoding = asdict(_as_decoding(decoding))  # plain values, which a checkpoint can carry
        super().__init__(net, **options)
        self.vocab_size, self.tokenizer, self.label_smoothing = vocab_size, tokenizer, label_smoothing
        self.decoding = _as_decoding(decoding)
        self.limited_decoding()
        self.test_text_metrics = MetricCollection(
            {"test_exact_match": MeanMetric(), "test_bleu": BLEU(), "test_chrf": CHRF()}, compute_groups=False
        )

    @classmethod
    def check_options(cls, **options: Any) -> None:
        """Check keywords of the constructor."""
        super().check_options(**options)
        cls.check_decoding(_as_decoding(options.get("decoding")))

    def metric_example(self) -> Inputs:
        """Return one text that is generated well and one that is not, with their references."""
        return ["a good text", "another"], ["a good text", "another text"], {}

    def default_metrics(self) -> dict[str, Metric | MetricCollection]:
        """Return the share of texts that are right as a whole."""
        outputs = self.hparams["vocab_size"]
        return {"exact_match": MulticlassExactMatch(outputs, ignore_index=0, validate_args=False)}

    def stage_metrics(self, stage: str) -> dict[str, Metric]:
        """Return the metrics of a stage: of generated texts when testing, of tokens when validating."""
        metrics = super().stage_metrics(stage)
        if stage == "test":
            return metrics | dict(self.test_text_metrics.items())
        named = set(self.val_named_metrics)  # type: ignore[arg-type]
        return {name: metric for name, metric in metrics.items() if name not in named}

    def step(self, batch: tuple[Any, ...]) -> StepOutput:
        """Return the cross entropy of a batch (inputs, targets, ...), and what the metrics read."""
        inputs, targets = batch[:2]
        logits = self.outputs(inputs)
        smoothing = self.label_smoothing if self.training else 0.0
        loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=0, label_smoothing=smoothing)
        if self.training:
            return StepOutput(loss, logits.detach(), targets)
        chosen = forbid_special(logits.detach().flatten(0, 1), END).argmax(-1).view_as(targets)  # as decoding chooses
        return StepOutput(loss, chosen, targets, size=int((targets != 0).sum()))

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Measure a validation batch, given its targets."""
        self.measure("val", self.step(batch), named=False)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Generate the answers to a batch and compare them with their references."""
        output = self.step(batch)
        if not output.size:
            return
        targets = batch[1]
        texts = [self.tokenizer.decode(answer) for answer in self.answer(*_numbered(batch))]
        references = batch[-1] if isinstance(batch[-1], (list, tuple)) else [self.tokenizer.decode(row) for row in targets]
        self.measure("test", output, named=False)
        metrics = self.test_text_metrics
        for name in ("test_bleu", "test_chrf"):
            metrics[name].update(texts, [[text] for text in references])
        metrics["test_exact_match"].update(self.is_exact(texts, references))
        self.measure_named("test", (texts, references, {}))

    def is_exact(self, texts: Sequence[str], references: Sequence[str]) -> Tensor:
        """Return which texts are their references, as the tokenizer writes them: 0 or 1, float32 [B].

        A reference with a letter that no token stands for cannot be generated, so nothing is right there.
        """
        wanted = self.tokenizer.limited(None).encode(references, ended=True)
        same = [
            UNKNOWN not in tokens and text == self.tokenizer.decode(tokens) for text, tokens in zip(texts, wanted, strict=True)
        ]
        return torch.tensor(same, dtype=torch.float32, device=self.device)

    # --- generating ---

    def limited_decoding(self) -> Decoding:
        """Let answers be no longer than any text that the network has read, unless the user gives a length that fits."""
        decoding, positions = self.decoding, getattr(self.net, "max_length", None)
        if decoding.length is not None:
            if positions is not None and decoding.length >= positions:
                room = f"this network has positions for answers of {positions - 1} tokens"
                raise InputError(f"length={decoding.length}: {room}")
            return decoding
        # Of the data that the network was trained on: for prediction its tokenizer may have no limit.
        longest = getattr(self.info or self.tokenizer, "max_length", None)
        return replace(decoding, length=longest if positions is None else int(positions) - 1)

    def answer(self, source: Tensor, rows: Tensor | None = None) -> list[list[int]]:
        """Generate the tokens of an answer to each source, [B, S]; what is drawn depends on the numbers of the rows, [B]."""
        prompts = replace(_begin(source), rows=None if rows is None else rows.tolist())
        return generate(self.net, prompts, self.limited_decoding())  # type: ignore[arg-type]

    def encode_prompts(self, texts: Sequence[str], location: Location | None = None) -> Prompts:
        """Return the texts as sources to answer."""
        return _begin(self.tokenizer.encode(texts, location or prompt_location(texts), ended=True).padded())

    def collate(self, examples: Sequence[Example]) -> tuple[Any, Tensor]:
        """Return the sources of those examples that are not empty as a batch, [B, S], and their numbers, [B]."""
        full = [example for example in examples if example.value[0].strip()]
        numbers = torch.tensor([one.number for one in full], dtype=torch.int64)
        if not full:
            return torch.zeros(0, 1, dtype=torch.int64), numbers
        return self.encode_prompts([one.value[0] for one in full], lambda row: full[row].location).source, numbers

    def predict_step(self, batch: Any, batch_idx: int = 0) -> list[list[int]]:
        """Return the tokens of an answer for each source of a batch: that of the data, (sources, numbers), or sources."""
        return self.answer(*_numbered(batch))

    def prediction_rows(self, examples: Sequence[Example], outputs: Any) -> list[dict[str, Any]]:
        """Return each source and its answer, the ``target``."""
        texts = iter([self.tokenizer.decode(answer) for answer in outputs])
        return [{**example.columns, "target": next(texts) if example.value[0].strip() else ""} for example in examples]


def _as_decoding(value: Any) -> Decoding:
    """Return decoding options from a mapping, from None (the defaults) or as they are."""
    return value if isinstance(value, Decoding) else build_options(Decoding, value or {})


def _numbered(batch: Any) -> tuple[Tensor, Tensor | None]:
    """Return sources and rows of a batch ((sources, shifted), targets, rows, ...), (sources, rows), (sources,) or sources."""
    if isinstance(batch, Tensor):
        return batch, None
    source, *rest = batch
    if isinstance(source, tuple | list):
        source, rest = source[0], rest[1:]
    return source, rest[0] if rest else None


def _begin(source: Tensor) -> Prompts:
    """Begin an answer to each source, [B, S]."""
    return Prompts(source.new_full((len(source), 1), BEGIN), source=source, end=END)
