"""From the inputs of a user to rows of predictions: functions of a task, which plugins extend for tasks of their own.

@prediction_rows.register
def _(task: MyTask, examples: Sequence[Example], outputs: Tensor) -> list[dict[str, Any]]: ...
"""

from collections.abc import Iterator, Sequence
from functools import singledispatch
from typing import Any, TextIO

import torch
from torch import Tensor

from zoo.data.info import ImageInfo, ParallelInfo, TextInfo, VectorInfo
from zoo.errors import InputError
from zoo.inference.inputs import Example, read_images, read_texts, read_vectors
from zoo.tasks.base import Task
from zoo.tasks.language import LanguageModel
from zoo.tasks.seq2seq import Seq2Seq
from zoo.tasks.supervised import AnswerRanking, Classification, Regression

__all__ = ["Example", "collate", "prediction_rows", "read_inputs"]


@singledispatch
def read_inputs(
    task: Task, inputs: Sequence[object], stdin: TextIO | None = None, normalized: bool = False
) -> Iterator[Example]:
    """Yield examples from the inputs of a user: file names, texts, arrays or tensors; ``-`` is ``stdin``.

    By default, they are read as images, vectors or texts, depending on the class of the task's ``info``. ``normalized``, for
    images only, tells whether floats are already normalized.
    """
    info = task.info
    if isinstance(info, ImageInfo):
        return read_images(inputs, info, normalized)
    if isinstance(info, VectorInfo):
        return read_vectors(inputs, info)
    if isinstance(info, TextInfo | ParallelInfo):
        return read_texts(inputs, task.columns, stdin, allow_empty=isinstance(info, ParallelInfo))
    text = f"task {type(task).__name__} does not support zoo predict: call its predict_step in Python"
    raise InputError(text, code="unsupported")


@read_inputs.register
def _(task: LanguageModel, inputs: object, stdin: object = None, normalized: bool = False) -> Iterator[Example]:
    raise InputError("a language model has no predictions: use zoo generate RUN --prompt TEXT", code="unsupported")


@singledispatch
def collate(task: Task, examples: Sequence[Example]) -> Any:
    """Collate examples into a batch ``(inputs,)``: stacked tensors, token ids [B, L], or two such tensors for pairs."""
    if task.tokenizer is None:
        return (torch.stack([example.value for example in examples]),)
    columns = zip(*(example.value for example in examples), strict=True)
    tokens = [task.tokenizer.encode(column, lambda row: examples[row].location).padded() for column in columns]
    return (tokens[0] if len(tokens) == 1 else tuple(tokens),)


@collate.register
def _(task: Seq2Seq, examples: Sequence[Example]) -> tuple[Any, Tensor]:
    """Return the tokens of the non-empty sources, [B, S], and their row numbers, [B]."""
    nonempty = [example for example in examples if example.value[0].strip()]
    rows = torch.tensor([example.number for example in nonempty], dtype=torch.int64)
    if not nonempty:
        return torch.zeros(0, 1, dtype=torch.int64), rows
    texts = [example.value[0] for example in nonempty]
    return task.encode_prompts(texts, lambda row: nonempty[row].location).source, rows


@singledispatch
def prediction_rows(task: Task, examples: Sequence[Example], outputs: object) -> list[dict[str, Any]]:
    """Return a row of JSON values for each example, from the output of `predict_step` for their batch."""
    text = f"task {type(task).__name__} has no prediction rows: register them with zoo.inference.predictions"
    raise InputError(text, code="unsupported")


@prediction_rows.register
def _(task: Classification, examples: Sequence[Example], outputs: Tensor, top: int = 1) -> list[dict[str, Any]]:
    """Return the most probable label of each example and its probability; with ``top`` above 1 also a list ``top``."""
    best = outputs.topk(min(top, outputs.shape[-1]))
    rows = []
    for example, labels, values in zip(examples, best.indices.tolist(), best.values.tolist(), strict=True):
        ranked = [
            {"label": task.info.classes[label], "probability": round(value, 6)}
            for label, value in zip(labels, values, strict=True)
        ]
        rows.append({**example.columns, **ranked[0]} | ({"top": ranked} if top > 1 else {}))
    return rows


@prediction_rows.register
def _(task: AnswerRanking, examples: Sequence[Example], outputs: Tensor) -> list[dict[str, Any]]:
    """Return the relevance of each answer, the probability that it is right."""
    pairs = zip(examples, outputs.tolist(), strict=True)
    return [{**example.columns, "relevance": round(relevance, 6)} for example, relevance in pairs]


@prediction_rows.register
def _(task: Regression, examples: Sequence[Example], outputs: Tensor) -> list[dict[str, Any]]:
    """Return the input and the output of each example."""
    rows = task.in_units(outputs.cpu().double()).tolist()
    return [{**example.columns, "output": row} for example, row in zip(examples, rows, strict=True)]


@prediction_rows.register
def _(task: Seq2Seq, examples: Sequence[Example], outputs: list[list[int]]) -> list[dict[str, Any]]:
    """Return each source and its answer, ``target``."""
    texts = iter([task.tokenizer.decode(answer) for answer in outputs])
    return [{**example.columns, "target": next(texts) if example.value[0].strip() else ""} for example in examples]
