"""Load a trained model, and predict, generate and evaluate with it."""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import fields
from inspect import signature
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self, TextIO, overload

import torch
from lightning.pytorch.utilities import move_data_to_device
from torch import Tensor, nn

from zoo.algebras import Algebra
from zoo.backbones.build import describe
from zoo.checkpoint import ModelConfig, find, load_network, read_config
from zoo.checkpoint.folder import read_text
from zoo.checkpoint.manifest import MEASURED, read_json
from zoo.data.info import DataInfo, ImageInfo
from zoo.data.pixels import check_layout
from zoo.data.tokenizer import Tokenizer
from zoo.errors import InputError, one_line
from zoo.hub import release
from zoo.hub.sources import locate, repository
from zoo.inference.inputs import attempt, input_list
from zoo.inference.predictions import Example, collate, prediction_rows, read_inputs
from zoo.inference.saving import save
from zoo.nn import keep_matrices
from zoo.nn.embedding import PositionEmbedding
from zoo.registry import build_options
from zoo.tasks import GenerativeTask, Task, task_type
from zoo.tasks.decoding import Decoding


class Model:
    """A trained network with its task, tokenizer and facts about its data; see `load`.

    Args:
        net: The network, a `torch.nn.Module`.
        config: The content of ``config.json``: the specs that rebuild the network.
        task: The `zoo.tasks.Task` that the network was trained with; None for a network only.
        metrics: Test metrics from the training run, by name.
        known: Further entries of the manifest about its training, which `zoo.save` copies.

    Attributes:
        info: A `DataInfo` with facts about the training data, or None.
        tokenizer: The tokenizer of a text model, or None.

    Example:
        >>> model = Model(nn.Linear(2, 2), ModelConfig(backbone="linear"))
        >>> model.device, model.task
        (device(type='cpu'), None)
    """

    def __init__(
        self,
        net: nn.Module,
        config: ModelConfig,
        task: Task | None = None,
        metrics: Mapping[str, float | None] | None = None,
        known: Mapping[str, object] | None = None,
    ) -> None:
        self.net, self.task, self.config, self.metrics = net, task, config, dict(metrics or {})
        self.known = dict(known or {})
        self.info: Any = None if task is None else task.info
        self.tokenizer: Tokenizer | None = None if task is None else task.tokenizer
        if task is not None:
            decoding = self.config.decoding
            task.eval()
            if isinstance(task, GenerativeTask) and decoding:
                task.decoding = build_options(Decoding, decoding)

    def __repr__(self) -> str:
        """Show the specs and the device."""
        names = ", ".join(f"{key}={getattr(self.config, key)!r}" for key in ("backbone", "algebra", "task", "data"))
        return f"zoo.Model({names}, device='{self.device}')"

    @classmethod
    def from_pretrained(cls, path: str | Path, **options: Any) -> "Model":
        """Load a trained model, see `load` for the options."""
        return load(path, **options)

    def save_pretrained(self, folder: str | Path, **options: Any) -> Path:
        """Save a model folder, see `zoo.save` for the options; the folder can be uploaded to the Hugging Face Hub."""
        return save(self, folder, **options)

    def push_to_hub(self, repo_id: str, *, license: str | None = None, **options: Any) -> str:
        """Upload the model with its card to ``owner/name`` on the Hugging Face Hub; return its source, with the commit.

        Args:
            repo_id: The repository, created if it does not exist.
            license: The Hub's name of a license, such as ``mit`` or ``apache-2.0``.
            options: ``private``, ``revision`` and ``token``, see `zoo.hub.release.push`.
        """
        repository(repo_id, options.get("revision"))  # an error of `push` would name the temporary folder
        with TemporaryDirectory() as temporary:
            folder = save(self, Path(temporary) / "model")
            return str(release.push(str(folder), repo_id, license=license, **options)["source"])

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return next((tensor.device for tensor in self.net.parameters()), torch.device("cpu"))

    def to(self, device: str | torch.device) -> Self:
        """Move the model to a device, or with ``auto`` to the best available one, and return it.

        Raises:
            InputError: If the device does not exist.
        """
        (self.net if self.task is None else self.task).to(choose_device(device))
        return self

    def predict(self, inputs: Any, **options: Any) -> list[dict[str, Any]]:
        """Return the prediction for each input; see `predict_iter` for the options."""
        with keep_matrices(self.net):
            return list(self.predict_iter(inputs, **options))

    def predict_iter(
        self,
        inputs: object,
        *,
        batch_size: int = 64,
        truncation: bool = False,
        normalized: bool = False,
        top: int = 1,
        on_bad_rows: str = "report",
        stdin: TextIO | None = None,
        **decoding: object,
    ) -> Iterator[dict[str, Any]]:
        """Yield the prediction for each input, batch by batch.

        Args:
            inputs: One or several. For images: files, folders, Pillow images, arrays or tensors of uint8 pixels or of floats in
                [0, 1] ([H, W], [H, W, C], [C, H, W] or [N, ...]), which are normalized like the training images. For text:
                texts (for pairs tuples of two), Series or DataFrames of texts, or files and folders of files with one text per
                line (for pairs two, separated by a tab). For vectors: arrays or tensors. For a table also files, DataFrames,
                dicts by column, and lists of cells.
            batch_size: Inputs per step.
            truncation: Whether to truncate texts that exceed the maximum length instead of raising an error.
            normalized: Whether arrays of floats are already normalized images.
            top: Labels per input of a classifier; above 1 the rows have ``top``, a list of labels and probabilities.
            on_bad_rows: An input that cannot be read, such as an empty text, has a row with its ``error`` (`report`), has no
                row (`skip`), or ends the prediction (`error`). If no input can be read, the first error is raised.
            stdin: Standard input, for the input ``-``.
            decoding: For a generative model, see `zoo.tasks.decoding.Decoding`; the defaults are those of its training.

        Yields:
            Rows of JSON values: the ``file`` of an image, the ``text`` (or ``first`` and ``second``), the ``label`` and its
            ``probability``; ``question``, ``answer`` and ``relevance`` for answer ranking; ``source`` and ``target`` for a
            generative model. Other tasks define their own rows.

        Raises:
            InputError: If an input cannot be read, or an option is invalid.
        """
        if batch_size < 1:
            raise InputError(f"batch_size={batch_size}: must be at least 1")
        if on_bad_rows not in ("report", "skip", "error"):
            raise InputError(f"on_bad_rows={on_bad_rows!r}: use report, skip or error")
        if normalized and not isinstance(self.info, ImageInfo):
            raise InputError("normalized=True applies only to models of images: leave it out", code="conflict")
        if truncation and self.tokenizer is None:
            raise InputError("truncation applies only to texts: leave it out")
        task = self.configured(decoding, truncation)
        if top != 1:
            if "top" not in signature(prediction_rows.dispatch(type(task))).parameters:
                raise InputError(f"top={top} applies only to classifiers: leave it out", code="conflict")
            if top < 1:
                raise InputError(f"top={top}: must be at least 1")
        if isinstance(self.info, ImageInfo):
            check_layout(inputs, self.info.in_channels)  # in a list, an array is one image
        examples = read_inputs(task, input_list(inputs), stdin, normalized)
        return self._predict(task, examples, batch_size, on_bad_rows, **({"top": top} if top > 1 else {}))

    def _predict(
        self, task: Task, examples: Iterator[Example], batch_size: int, on_bad_rows: str, **options: int
    ) -> Iterator[dict[str, Any]]:
        first: InputError | None = None
        held: list[dict[str, Any]] | None = []  # the rows with errors before the first prediction
        while batch := list(islice(examples, batch_size)):
            inputs, errors = _collate(task, batch)
            first = first or (errors[min(errors)] if errors else None)
            if first is not None and on_bad_rows == "error":
                raise first
            predictions: Iterator[dict[str, Any]] = iter(())
            if inputs is not None:
                read = [example for i, example in enumerate(batch) if i not in errors]
                with torch.inference_mode():
                    outputs = task.predict_step(move_data_to_device(inputs, self.device), 0)
                predicted = prediction_rows(task, read, outputs, **options)
                check_finite(read, outputs, predicted)
                predictions = iter(predicted)
            rows = [
                {**example.columns, "error": str(errors[i])} if i in errors else next(predictions)
                for i, example in enumerate(batch)
                if i not in errors or on_bad_rows == "report"
            ]
            if held is not None and inputs is None:
                held += rows
                continue
            yield from (*(held or ()), *rows)
            held = None
        if held is not None and first is not None:
            raise first

    @overload
    def generate(
        self, prompt: str | None = ..., num_samples: int = ..., stream: Literal[False] = ..., **decoding: Any
    ) -> list[str]: ...
    @overload
    def generate(
        self, prompt: Sequence[str], num_samples: int = ..., stream: Literal[False] = ..., **decoding: Any
    ) -> list[list[str]]: ...
    @overload
    def generate(
        self, prompt: str | None = ..., num_samples: int = ..., *, stream: Literal[True], **decoding: Any
    ) -> Iterator[str]: ...
    def generate(
        self, prompt: str | Sequence[str] | None = None, num_samples: int = 1, stream: bool = False, **decoding: Any
    ) -> list[str] | list[list[str]] | Iterator[str]:
        """Generate texts that continue or answer a prompt, without the prompt.

        Args:
            prompt: The text to continue or to answer; by default, a language model starts a new line. A list or tuple of
                prompts is processed in one batch.
            num_samples: Texts to generate for each prompt.
            stream: Whether to yield one text in pieces.
            decoding: See `zoo.tasks.decoding.Decoding`; the defaults are those of the training.

        Returns:
            A list of `num_samples` texts; for a list of prompts one such list per prompt.

        Raises:
            InputError: If the model does not generate text, a prompt cannot be read, or an option is invalid.
        """
        task = self.generative(decoding)
        if num_samples < 1:
            raise InputError(f"num_samples={num_samples}: must be at least 1")
        is_list = isinstance(prompt, list | tuple)
        prompts: list[Any] = list(prompt) if is_list else [prompt]  # type: ignore[arg-type]
        if invalid := next((text for text in prompts if not isinstance(text, str | None)), None):
            raise InputError(f"a prompt of type {type(invalid).__name__}: expected a text or a list of texts")
        prompts = [text or task.default_prompt() for text in prompts]
        if stream:
            if is_list or num_samples != 1:
                raise InputError("stream=True supports a single prompt and num_samples=1")
            return task.stream(prompts[0])
        texts = task.generate([text for text in prompts for _ in range(num_samples)])
        return [texts[i : i + num_samples] for i in range(0, len(texts), num_samples)] if is_list else texts

    def generative(self, decoding: Mapping[str, object] | None = None) -> GenerativeTask:
        """Return a copy of a generative task with other decoding options; `InputError` for other tasks."""
        task = self.configured(decoding or {})
        if not isinstance(task, GenerativeTask):
            raise InputError(f"a model of {self.config.task} does not generate text: use zoo predict")
        return task

    def evaluate(self, data: Any = None, split: str = "test", **options: Any) -> dict[str, float]:
        """Evaluate the model on a split of its data, or of other data, see `zoo.inference.evaluation.evaluate`."""
        from zoo.inference.evaluation import evaluate

        return evaluate(self, data, split, **options)

    def configured(self, decoding: Mapping[str, object], truncation: bool = False) -> Task:
        """Return a copy of the task with these options, which shares the network."""
        if self.task is None:
            raise InputError("this model has no task: call model.net, or load it with task=CLASS")
        task = copy(self.task)
        if isinstance(task, GenerativeTask):
            trained = vars(task.decoding)
            if decoding.get("beam") == 1:  # the length penalty of the run requires a beam
                trained = {**trained, "length_penalty": Decoding.length_penalty}
            task.decoding = build_options(Decoding, {**trained, **decoding})
            task.check_decoding(task.decoding)
        elif decoding:
            raise InputError(f"a model of {self.config.task} does not generate text: leave {', '.join(decoding)} out")
        if self.tokenizer is not None:
            limit = None if _reads_any_length(self.net) and not truncation else self.info.max_length
            task.tokenizer = self.tokenizer.limited(limit, truncation=truncation)
        return task


def _collate(task: Task, batch: list[Example]) -> tuple[Any, dict[int, InputError]]:
    """Collate the examples that can be read; return the batch, None if it is empty, and the errors of the others by place."""
    errors = {i: example.value for i, example in enumerate(batch) if isinstance(example.value, InputError)}
    good = [example for i, example in enumerate(batch) if i not in errors]
    inputs = attempt(collate, task, good) if good else None
    if isinstance(inputs, InputError):  # of some texts, such as one that is too long
        tried = {i: attempt(collate, task, [example]) for i, example in enumerate(batch) if i not in errors}
        errors |= {i: error for i, error in tried.items() if isinstance(error, InputError)}
        good = [example for i, example in enumerate(batch) if i not in errors]
        inputs = collate(task, good) if good else None
    return inputs, errors


def load(
    path: str | Path,
    *,
    module: nn.Module | None = None,
    algebra: Algebra | None = None,
    task: str | type[Task] | None = None,
    device: str | torch.device = "cpu",
    revision: str | None = None,
    token: str | None = None,
) -> Model:
    """Load a trained model and verify its files.

    Args:
        path: A run or model folder, a name of the catalogue, ``owner/name`` on the Hugging Face Hub, ``https://host/folder``;
            see `zoo.hub.sources.locate`.
        module: For a network without a spec, a network of the same structure, which gets the weights. For a converted
            network also the real network, which is converted in place.
        algebra: For an algebra without a spec, the algebra.
        task: For a model that was trained with a task in Python, its class or a spec. Without it, the model has no task.
        device: The device; ``auto`` is the best available one.
        revision: A branch, tag or commit on the Hub; by default main.
        token: A token of the Hub; by default that of ``hf auth login`` or HF_TOKEN.

    Raises:
        InputError: If the folder is damaged, a required plugin is not installed, or the device does not exist.
    """
    path = locate(path, revision=revision, token=token)
    config, target = read_config(path), choose_device(device)
    spec: Any = task or config.task
    kind, options = task_type(spec) if isinstance(spec, str) else (spec, {})
    info = trained_task = None
    if config.info is not None:
        if kind is None:
            raise InputError(f"'{path}' was trained with a task in Python: use zoo.load(FOLDER, task=CLASS)")
        info = _read_info(path, kind, config.info)
    elif task is not None:
        raise InputError(f"'{path}' has no info about its data, which a task requires: leave task out and call model.net")
    net = load_network(path, config, info=info, module=module, product=algebra)
    if kind is not None and info is not None:
        trained_task = build_task(kind, net, info, _read_tokenizer(path, info), options)
    if isinstance(info, ImageInfo) and isinstance(getattr(net, "pretrained_cfg", None), dict):
        describe(net, mean=info.mean, std=info.std, label_names=info.classes)
    manifest = read_json(find(path) / "manifest.json")
    known = {key: manifest[key] for key in MEASURED if key in manifest}
    return Model(net, config, trained_task, manifest.get("metrics"), known).to(target)


def build_task(
    kind: type[Task], net: nn.Module, info: object, tokenizer: Tokenizer | None, options: Mapping[str, object]
) -> Task:
    """Create the task of a model folder, whose options may be invalid in any way."""
    try:
        sizes = kind.data_options(info)
        if other := [name for name in sizes if options.get(name, sizes[name]) != sizes[name]]:
            raise InputError(f"task {kind.__name__}: {other[0]}={options[other[0]]!r:.40}, but the data have {sizes[other[0]]}")
        return kind.from_info(net, info, tokenizer, **options)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"task {kind.__name__} cannot be created with the options of the model: {one_line(error)}") from error


def check_finite(examples: Sequence[Example], outputs: object, rows: Sequence[object]) -> None:
    """Raise `InputError` if an output of the network or a number of a prediction row is NaN or infinite."""
    if is_finite([outputs, *rows]):
        return
    numbers = outputs if isinstance(outputs, Tensor) and len(outputs) == len(examples) else [None] * len(examples)
    parts = zip(examples, numbers, rows, strict=False)
    location = next((example.location for example, *values in parts if not is_finite(values)), examples[0].location)
    raise InputError(f"{location}: the network returns NaN or infinity: its weights are damaged, or its training diverged")


def is_finite(values: list[Any]) -> bool:
    """Return whether all numbers and tensors in nested values are finite."""
    values = list(values)
    for value in values:  # grows
        if isinstance(value, Mapping):
            values += value.values()
        elif isinstance(value, list | tuple):
            values += value
        elif isinstance(value, Tensor | float) and not torch.as_tensor(value).isfinite().all():
            return False
    return True


def info_type(base: type[DataInfo], values: Mapping[str, object]) -> type[DataInfo]:
    """Return the base class or subclass of `DataInfo` with exactly these fields."""
    kinds = [base]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return next((kind for kind in [base, *kinds[::-1]] if {field.name for field in fields(kind)} == set(values)), base)


def _read_info(path: str | Path, kind: type[Task], values: Mapping[str, object]) -> DataInfo:
    try:
        return info_type(kind.info_type, values).from_dict(values)
    except InputError as error:
        raise InputError(f"{find(path) / 'config.json'}: info: {error}", code=error.code) from error


def _read_tokenizer(path: str | Path, info: Any) -> Tokenizer | None:
    if not hasattr(info, "tokenizer"):
        return None
    return Tokenizer.from_json(read_text(find(path), info.tokenizer), info)


def choose_device(name: str | torch.device) -> torch.device:
    """Return a device by its name; ``auto`` is the first available one of cuda, mps and cpu.

    Raises:
        InputError: If the device does not exist.

    Example:
        >>> choose_device("cpu")
        device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # an unknown name, or a device that is not there
        raise InputError(f"device '{name}' is not available: use auto, cpu, or a device that zoo doctor lists") from error


def _reads_any_length(net: nn.Module) -> bool:
    """Return whether a network has no maximum sequence length; False if that is unknown."""
    if hasattr(net, "max_length"):
        return net.max_length is None
    tables = [module for module in net.modules() if isinstance(module, PositionEmbedding)]
    return bool(tables) and all(module.limit is None for module in tables)
