"""Read user inputs: texts, lines of files and standard input, images, arrays and tables."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from zoo.data.columns import read_rows
from zoo.data.images.preprocess import normalise, preprocess
from zoo.data.images.splits import ENDINGS, FORMATS
from zoo.data.info import ImageInfo, TableInfo, VectorInfo
from zoo.data.text.files import read_text
from zoo.errors import InputError

TABLES = (".csv", ".jsonl", ".json", ".parquet")
TEXTS = (".txt", ".txt.gz", ".txt.xz")
IMAGES = (*ENDINGS, ".pdf")
FILES = (*TABLES, *IMAGES, ".tsv", ".txt", ".gz", ".xz")
"""Suffixes of words that are taken for file names, not for texts."""


class Example(NamedTuple):
    """A single input.

    Attributes:
        location: The file and line, or another description for error messages.
        value: A tuple of texts, or a tensor, for the task's `collate`.
        columns: The first columns of its prediction row, such as the file name or the texts.
        number: The index of a text among all inputs, on which samples depend.
    """

    location: str
    value: Any
    columns: dict[str, Any]
    number: int = 0


def input_list(inputs: Any) -> list[Any]:
    """Return a list of inputs from a single input or several."""
    is_single = isinstance(inputs, str | bytes | Tensor) or hasattr(inputs, "__array__")
    return list(inputs) if isinstance(inputs, Iterable) and not is_single else [inputs]


# --- texts ---


def read_texts(
    inputs: Sequence[Any], columns: Sequence[str], stdin: TextIO | None = None, allow_empty: bool = False
) -> Iterator[Example]:
    """Yield the texts, or pairs of texts, in arguments, files and standard input.

    Args:
        inputs: Texts (pairs as consecutive texts or tuples), names of files with one text per line (pairs separated by a tab),
            folders of such files, or ``-`` for standard input. A `Path` is always a file or folder.
        columns: Names of the texts of an example, such as ``("first", "second")``.
        stdin: Standard input.
        allow_empty: Whether a line may be empty.
    """
    for number, example in enumerate(_read_texts(inputs, columns, stdin, allow_empty)):
        yield example._replace(number=number)


def _read_texts(inputs: Sequence[Any], columns: Sequence[str], stdin: TextIO | None, allow_empty: bool) -> Iterator[Example]:
    pending: list[str] = []  # the first text of a pair
    for item in inputs:
        if isinstance(item, tuple | list):
            if len(item) != len(columns) or not all(isinstance(text, str) for text in item):
                raise InputError(f"an input of {len(item)} parts: this model expects {len(columns)} text(s) per input")
            yield _example(f"'{item[0][:40]}'", tuple(item), columns, allow_empty)
        elif not isinstance(item, str | Path):
            raise InputError(f"an input of type {type(item).__name__}: this model expects text")
        elif str(item) == "-" and stdin is not None:
            content = stdin.buffer.read().decode("utf-8", "surrogateescape")
            yield from _lines("standard input", content.removeprefix("\ufeff"), columns, allow_empty)
        elif is_file(str(item)) or isinstance(item, Path):
            for file in files_in(Path(item), TEXTS):
                _check_plain(str(file))
                yield from _lines(str(file), read_text(file), columns, allow_empty)
        else:
            pending.append(item)
            if len(pending) == len(columns):
                yield _example(f"'{pending[0][:40]}'", tuple(pending), columns)
                pending = []
    if pending:
        raise InputError(f"missing the second text after '{pending[0][:40]}': this model compares two texts")


def is_file(word: str) -> bool:
    """Return whether a word is an existing file or folder; raise `InputError` if it looks like the name of a missing file."""
    try:
        exists = Path(word).exists() and bool(word.strip("."))
    except OSError:
        return False
    if not exists and not any(map(str.isspace, word)) and word.lower().endswith(FILES):
        raise InputError(f"file '{word}' does not exist")
    return exists


def files_in(path: Path, endings: Sequence[str]) -> list[Path]:
    """Return the files with these endings in a folder and its subfolders, sorted by name, or the file itself."""
    if not path.is_dir():
        if path.exists() and not path.is_file():  # reading a pipe could block forever
            raise InputError(f"{path} is a pipe or a device: save its content to a file first")
        return [path]
    if files := sorted(file for file in path.rglob("*") if file.is_file() and file.name.lower().endswith(tuple(endings))):
        return files
    raise InputError(f"the folder '{path}' has no files with the endings {', '.join(endings)}")


def _check_plain(word: str) -> None:
    if Path(word).suffix.lower() in IMAGES:
        raise InputError(f"{word}: this model expects text, not images")
    if any(suffix in TABLES for suffix in Path(word).suffixes):
        raise InputError(
            f"{word}: tables of texts are not supported; use one text per line, or two separated by a tab for pairs"
        )


def _lines(source: str, content: str, columns: Sequence[str], allow_empty: bool) -> Iterator[Example]:
    if not content:
        raise InputError(f"{source} is empty")
    for number, line in enumerate(content.removesuffix("\n").split("\n"), 1):
        location, line = f"{source}:{number}", line.removesuffix("\r")
        texts = tuple(line.split("\t")) if len(columns) > 1 else (line,)
        if len(texts) != len(columns):
            raise InputError(f"{location}: {len(texts)} columns, expected two texts separated by a tab")
        if "\t" in texts[0].strip():
            raise InputError(f"{location}: unexpected tab, this model expects one text per line")
        yield _example(location, texts, columns, allow_empty)


def _example(location: str, texts: tuple[str, ...], columns: Sequence[str], allow_empty: bool = False) -> Example:
    if any("\udc80" <= character <= "\udcff" for text in texts for character in text):
        raise InputError(f"{location}: invalid UTF-8; save the text as UTF-8", code="data")
    if not allow_empty and not all(text.strip() for text in texts):
        raise InputError(f"{location}: empty text; remove it")
    return Example(location, texts, dict(zip(columns, texts, strict=True)))


def encode_texts(tokenizer: Any, examples: Sequence[Example]) -> list[Tensor]:
    """Return the token ids of each column of texts, int64 [B, L], padded with 0 on the right."""
    locations = [example.location for example in examples]
    columns = zip(*(example.value for example in examples), strict=True)
    return [tokenizer.encode(column, locations.__getitem__).padded() for column in columns]


# --- images ---


def read_images(inputs: Sequence[Any], info: ImageInfo, normalized: bool = False) -> Iterator[Example]:
    """Yield images as normalized inputs of the network, float32 [C, S, S].

    Args:
        inputs: File or folder names; Pillow images; arrays and tensors of uint8 pixels of any size, or of floats in [0, 1] of
            the network's image size. Their axes are [H, W], [H, W, C] or [C, H, W], and for several images [N, H, W],
            [N, H, W, C] or [N, C, H, W]; C is 1, 3 or, for uint8, 4.
        info: Info of the training data, whose mean and standard deviation normalize the images.
        normalized: Whether floats are already normalized, like the batches of a data module.

    Raises:
        InputError: If a file cannot be read, or an array has another shape, values outside [0, 1] or non-finite values.
    """
    number = 0
    for item in inputs:
        if isinstance(item, str | Path):
            if str(item) == "-":
                raise InputError("this model expects images: use zoo predict RUN IMAGE...")
            for file in files_in(Path(item), ENDINGS):
                yield Example(str(file), load_image(file, info), {"file": str(file)})
            continue
        for image in _images(item, info, number):
            yield Example(f"image {number}", _preprocess(image, info, number, normalized), {"image": number})
            number += 1


def load_image(path: Path, info: ImageInfo) -> Tensor:
    """Load an image file as an input of the network, [C, S, S], rotated according to its EXIF orientation."""
    try:
        with Image.open(path, formats=FORMATS) as image:
            return preprocess(ImageOps.exif_transpose(image), info)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"cannot read the image {path}: {reason}") from error


def _images(item: Any, info: ImageInfo, number: int) -> Iterable[Any]:
    """Split an array or tensor into images [C, H, W]; return any other item in a list."""
    if not isinstance(item, Tensor | np.ndarray):
        return [item]
    try:
        pixels = torch.from_numpy(np.require(item, requirements=["C", "W"])) if isinstance(item, np.ndarray) else item
    except TypeError as error:  # an array of texts or objects
        raise _not_an_image(item, info, number) from error
    is_pixels = pixels.dtype == torch.uint8
    depths = (1, 3, 4) if is_pixels else (info.in_channels,)
    axes = [-1, -3] if isinstance(item, np.ndarray) else [-3, -1]  # the usual channel axis first
    channels = next((axis for axis in axes if pixels.ndim >= 3 and pixels.shape[axis] in depths), None)
    if not (is_pixels or pixels.is_floating_point()) or pixels.ndim not in (2, 3, 4) or (pixels.ndim == 4 and channels is None):
        raise _not_an_image(item, info, number)
    if pixels.ndim == 3 and channels == -3 and info.in_channels == 1 < len(pixels):
        n, h, w = pixels.shape
        advice = f"use [1, {n}, {h}, {w}] for one colour image or [{n}, 1, {h}, {w}] for {n} grey images"
        raise InputError(f"image {number} of shape [{n}, {h}, {w}] is ambiguous: {advice}")
    images = pixels.unsqueeze(-3) if channels is None else pixels.movedim(channels, -3)
    if not is_pixels and images.shape[-3:] != (info.in_channels, info.image_size, info.image_size):
        raise _not_an_image(item, info, number)
    return images if images.ndim == 4 else [images]


def _preprocess(image: Any, info: ImageInfo, number: int, normalized: bool) -> Tensor:
    if isinstance(image, Tensor) and image.is_floating_point():
        if not image.isfinite().all():
            raise InputError(f"image {number} contains NaN or infinity")
        return image.float() if normalized else normalize_floats(image, info, f"image {number}")
    if isinstance(image, Tensor):
        image = Image.fromarray(image.movedim(0, -1).squeeze(-1).cpu().numpy())
    if not isinstance(image, Image.Image):
        raise _not_an_image(image, info, number)
    return preprocess(ImageOps.exif_transpose(image), info)


def normalize_floats(images: Tensor, info: ImageInfo, name: str = "the images") -> Tensor:
    """Normalize floats in [0, 1], [..., C, H, W], by the mean and standard deviation of the training data.

    Raises:
        InputError: If a value is outside [0, 1], for example because the images are already normalized.
    """
    low, high = (float(limit) for limit in images.aminmax())
    if not (low >= 0 and high <= 1):
        advice = "floats must be in [0, 1]; use normalized=True for images that are already normalized"
        raise InputError(f"{name}: values from {low:.3g} to {high:.3g}: {advice}")
    return normalise(images.float() * 255, info.mean, info.std)


def _not_an_image(item: Any, info: ImageInfo, number: int) -> InputError:
    shape = [info.in_channels, info.image_size, info.image_size]
    dtype = str(getattr(item, "dtype", "")).removeprefix("torch.")
    kind = f"{type(item).__name__} of {dtype} {list(item.shape)}" if hasattr(item, "shape") else type(item).__name__
    return InputError(f"image {number} is a {kind}: use a file, a Pillow image, uint8 pixels or floats {shape} in [0, 1]")


# --- vectors ---


def read_vectors(inputs: Sequence[Any], info: VectorInfo) -> Iterator[Example]:
    """Yield vectors, float32 [in_features], from arrays and tensors [in_features] or [N, in_features].

    For a model of a table, also read the rows of files; vectors in the original units of the table are standardised.
    """
    number, features = 0, info.in_features
    for item in inputs:
        if isinstance(item, str | Path):
            if isinstance(info, TableInfo):
                yield from _table_rows(str(item), info)
                continue
            raise InputError("this model expects vectors: pass arrays in Python, zoo.load(RUN).predict(x)")
        try:
            vectors = torch.as_tensor(item, dtype=torch.float32)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"input {number} is not an array of numbers: {error}") from error
        if vectors.ndim not in (1, 2) or vectors.shape[-1] != features:
            raise InputError(f"input {number} has shape {list(vectors.shape)}: expected vectors of size {features}")
        if not vectors.isfinite().all():
            raise InputError(f"input {number} contains NaN or infinity")
        for vector in vectors.reshape(-1, features):
            value = info.standardise(vector) if isinstance(info, TableInfo) else vector
            yield Example(f"vector {number}", value, {"input": vector.tolist()})
            number += 1


def _table_rows(path: str, info: TableInfo) -> Iterator[Example]:
    if not is_file(path):
        raise InputError(f"file '{path}' does not exist: use a table (.csv, .tsv, .jsonl or .parquet)", code="missing")
    for line, vector in read_rows(Path(path), info):
        yield Example(f"{path}:{line}", vector, {"file": path, "line": line})
