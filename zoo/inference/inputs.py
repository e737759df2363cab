"""Read user inputs: texts, lines of files and standard input, images, arrays and tables."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from zoo.data.columns import by_name, encode_row, is_frame, read_rows
from zoo.data.files import files_in, read_text
from zoo.data.info import ImageInfo, TableInfo, VectorInfo
from zoo.data.pixels import ENDINGS, EncodedImages, normalize, preprocess
from zoo.errors import InputError

TABLES = (".csv", ".jsonl", ".json", ".parquet")
TEXTS = (".txt", ".txt.gz", ".txt.xz")
IMAGES = (*ENDINGS, ".pdf")
FILES = (*TABLES, *IMAGES, ".tsv", ".txt", ".gz", ".xz")
"""Suffixes of words that are taken for file names, not for texts."""


class Example(NamedTuple):
    """A single input."""

    location: str  # the file and line, or another description for error messages
    value: Any  # a tuple of texts, or a tensor, for `collate`; or the `InputError` that says why there is none
    columns: dict[str, Any]  # the first columns of its prediction row, such as the file name or the texts
    number: int = 0  # the index of a text among all inputs, on which samples depend


def input_list(inputs: object) -> list[Any]:
    """Return a list of inputs from a single input or several."""
    is_single = isinstance(inputs, str | bytes | Tensor | Mapping) or hasattr(inputs, "__array__")
    return list(inputs) if isinstance(inputs, Iterable) and not is_single else [inputs]


def attempt(function: Callable[..., object], *arguments: object) -> Any:
    """Return the value of a function, or the `InputError` that it raises."""
    try:
        return function(*arguments)
    except InputError as error:
        return error


def checked(examples: Iterable[Example]) -> list[Example]:
    """Return examples as a list; raise the first `InputError` among their values."""
    examples = list(examples)
    for example in examples:
        if isinstance(example.value, InputError):
            raise example.value
    return examples


def is_file(word: str) -> bool:
    """Return whether a word is an existing file or folder; raise `InputError` if it looks like the name of a missing file."""
    try:
        exists = Path(word).exists() and bool(word.strip("."))
    except OSError:  # a text may be longer than a file name
        return False
    if not exists and not any(map(str.isspace, word)) and word.lower().endswith(FILES):
        raise InputError(f"file '{word}' does not exist", code="missing")
    return exists


def list_files(path: Path, endings: Sequence[str]) -> list[Path]:
    """Return the files with these endings in a folder, see `files_in`, or the file itself."""
    if not path.is_dir():
        return [path]
    if files := files_in(path, endings):
        return files
    raise InputError(f"the folder '{path}' has no files with the endings {', '.join(endings)}", code="missing")


def read_texts(
    inputs: Sequence[object], columns: Sequence[str], stdin: TextIO | None = None, allow_empty: bool = False
) -> Iterator[Example]:
    """Yield the texts, or pairs of texts, in arguments, files and standard input.

    Inputs are texts (pairs as consecutive texts or tuples), names of files with one text per line (pairs separated by a tab),
    folders of such files, or ``-`` for standard input. A `Path` is always a file or folder. ``columns`` are the names of the
    texts of an example, such as ``("first", "second")``.
    """
    for number, (location, texts) in enumerate(_texts(inputs, columns, stdin)):
        shown = {name: text if isinstance(text, str) else None for name, text in zip(columns, texts, strict=False)}
        error = attempt(_check_texts, location, texts, len(columns), allow_empty)
        yield Example(location, error or texts, shown, number)


def _check_texts(location: str, texts: tuple[Any, ...], size: int, allow_empty: bool) -> None:
    if not texts:
        raise InputError(f"{location} is empty: this model expects text")
    for text in texts:
        if isinstance(text, InputError):
            raise text
        if not isinstance(text, str):
            raise InputError(f"{location} is of type {type(text).__name__}: this model expects text")
    if len(texts) != size:
        expected = "two, separated by a tab in a file" if size > 1 else "one"
        raise InputError(f"{location}: got {len(texts)} texts, expected {expected}")
    if any("\ud800" <= character <= "\udfff" for text in texts for character in text):
        raise InputError(f"{location}: invalid UTF-8; save the text as UTF-8", code="data")
    if not allow_empty and not all(text.strip() for text in texts):
        raise InputError(f"{location}: empty text; remove it")


def _parts(item: Any, columns: Sequence[str]) -> list[Any]:
    """Return the texts of an array or Series, the rows of a DataFrame, or a list of any other item."""
    if is_frame(item):
        item = (item[[*columns]] if {*columns} <= {*item.columns} else item).to_numpy()
    return item.tolist() if getattr(item, "ndim", 0) else [item]


def _texts(inputs: Sequence[object], columns: Sequence[str], stdin: TextIO | None) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the location and the texts of each input, one for each column if they are arguments."""
    words, size = list[str](), len(columns)
    items = (part for item in inputs for part in _parts(item, columns))
    for number, item in enumerate(items):
        if not isinstance(item, str | Path):
            yield f"input {number}", tuple(item) if isinstance(item, tuple | list) else (item,)
        elif isinstance(is_path := attempt(is_file, str(item)), InputError):
            yield str(is_path), (is_path,)
        elif str(item) == "-" and stdin is not None:
            content = stdin.buffer.read().decode("utf-8", "surrogateescape")
            yield from _lines("standard input", content.removeprefix("\ufeff"), size)
        elif isinstance(item, Path) or is_path:
            for file in list_files(Path(item), TEXTS):
                yield from _lines(str(file), _read_lines(file, size), size)
        else:
            words.append(item)
            if len(words) == size:
                yield f"input {number + 1 - size} ('{words[0]:.40}')", tuple(words)
                words = []
    if words:
        yield f"'{words[0]:.40}'", tuple(words)


def _read_lines(file: Path, size: int) -> str:
    """Read a file with `size` texts per line; `InputError` for a table, whose labels would be read as text, or an image."""
    refused = (*TABLES, *IMAGES) if size > 1 else (*TABLES, *IMAGES, ".tsv")
    if any(suffix.lower() in refused for suffix in file.suffixes):
        expected = "one text" if size == 1 else "two texts, separated by a tab,"
        raise InputError(f"{file}: this model expects files with {expected} per line")
    return read_text(file, "surrogateescape")


def _lines(source: str, content: str, size: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    if not content:
        raise InputError(f"{source} is empty")
    for number, line in enumerate(content.removesuffix("\n").split("\n"), 1):
        text = line.removesuffix("\r")
        yield f"{source}:{number}", tuple(text.split("\t")) if size > 1 else (text,)


def read_images(inputs: Sequence[object], info: ImageInfo, normalized: bool = False) -> Iterator[Example]:
    """Yield images as normalized inputs of the network, float32 [C, S, S]; files are rotated according to EXIF.

    Inputs are file or folder names, Pillow images, and arrays and tensors of uint8 pixels of any size, or of floats of the
    network's image size in [0, 1], or ``normalized`` like the batches of a data module. Their axes are [H, W], [H, W, C] or
    [C, H, W], and for several images [N, H, W], [N, H, W, C] or [N, C, H, W]; C is 1, 3 or, for uint8, 4.
    """
    number = 0
    for item in inputs:
        if isinstance(item, str | Path):
            files = attempt(list_files, Path(item), ENDINGS)
            if isinstance(files, InputError):
                yield Example(str(item), files, {"file": str(item)})
                continue
            for file in files:
                apply = EncodedImages([file], [str(file)]).apply
                yield Example(str(file), attempt(apply, 0, lambda image: preprocess(image, info)), {"file": str(file)})
            continue
        parts = [item] if isinstance(item, Image.Image) else attempt(_split_images, item, info, number)
        for part in [parts] if isinstance(parts, InputError) else parts:
            value = part if part is parts else attempt(_preprocess, part, info, number, normalized)
            yield Example(f"image {number}", value, {"image": number})
            number += 1


def _split_images(item: object, info: ImageInfo, number: int) -> Tensor:
    """Return the images in an array or tensor, [N, C, H, W]."""
    size = [info.in_channels, info.image_size, info.image_size]
    kind = f"{type(item).__name__} of {getattr(item, 'dtype', None)} {list(getattr(item, 'shape', []))}"
    wrong = InputError(f"image {number} is a {kind}: use a file, a Pillow image, uint8 pixels or floats {size} in [0, 1]")
    try:
        pixels = item if isinstance(item, Tensor) else torch.from_numpy(np.require(item, requirements=["C", "W"]))
    except TypeError as error:  # an array of texts or objects
        raise wrong from error
    is_pixels = pixels.dtype == torch.uint8
    if not (is_pixels or pixels.is_floating_point()) or pixels.ndim not in (2, 3, 4):
        raise wrong
    depths = (1, 3, 4) if is_pixels else (info.in_channels,)
    axes = [-3, -1] if isinstance(item, Tensor) else [-1, -3]  # the usual channel axis first
    channels = next((axis for axis in axes if pixels.ndim >= 3 and pixels.shape[axis] in depths), None)
    images = pixels.unsqueeze(-3) if channels is None else pixels.movedim(channels, -3)
    images = images if images.ndim > 3 else images[None]
    if images.ndim != 4 or not (is_pixels or list(images.shape[1:]) == size):
        raise wrong
    return images


def _preprocess(image: Image.Image | Tensor, info: ImageInfo, number: int, normalized: bool) -> Tensor:
    if isinstance(image, Tensor):
        if image.is_floating_point():
            return image.float() if normalized else normalize_floats(image, info, f"image {number}")
        image = Image.fromarray(image.movedim(0, -1).squeeze(-1).cpu().numpy())
    return preprocess(ImageOps.exif_transpose(image), info)


def normalize_floats(images: Tensor, info: ImageInfo, name: str = "the images") -> Tensor:
    """Normalize floats in [0, 1], [..., C, H, W], by the mean and standard deviation of the training data."""
    low, high = (float(limit) for limit in images.aminmax())
    if not (low >= 0 and high <= 1):
        advice = "floats must be in [0, 1]; use normalized=True for images that are already normalized"
        raise InputError(f"{name}: values from {low:.3g} to {high:.3g}: {advice}")
    return normalize(images.float() * 255, info.mean, info.std)


def read_vectors(inputs: Sequence[object], info: VectorInfo) -> Iterator[Example]:
    """Yield vectors, float32 [in_features], from arrays and tensors [in_features] or [N, in_features].

    A model of a table also reads rows in the units of the table, where None and NaN are missing values: files, DataFrames,
    Series, dicts by column, and lists of cells in the order of its columns.
    """
    number = 0
    for item in [inputs] if any(isinstance(cell, int | float | np.number | None) for cell in inputs) else inputs:
        if isinstance(item, str | Path):
            yield from _file_rows(item, info)
            continue
        records = _records(item, info) if isinstance(info, TableInfo) else None
        vectors = attempt(_vectors, item, info) if records is None else ()
        rows: Iterable[Any] = [vectors] if isinstance(vectors, InputError) else records or vectors
        for row in rows:
            value = attempt(_vector, row, info)
            if isinstance(value, InputError):
                value = InputError(f"row {number}: {value}", code=value.code)
            shown = [None if cell != cell else cell for cell in row.tolist()] if isinstance(row, Tensor) else None
            yield Example(f"row {number}", value, {"row": number} if shown is None else {"input": shown})
            number += 1


def _vector(row: Any, info: VectorInfo) -> Tensor:
    """Return a row of cells or features as a network reads it, float32 [in_features]."""
    if isinstance(row, InputError):
        raise row
    if isinstance(row, Mapping):
        return encode_row(info, row)  # type: ignore[arg-type]
    vector: Tensor = info.standardize(row) if isinstance(info, TableInfo) else row.float()
    if not vector.isfinite().all():
        raise InputError("expected finite numbers")
    return vector


def _file_rows(item: str | Path, info: VectorInfo) -> Iterator[Example]:
    if not isinstance(info, TableInfo):
        raise InputError("this model expects vectors: pass arrays in Python, zoo.load(RUN).predict(x)")
    if not Path(item).exists():
        raise InputError(f"file '{item}' does not exist: use a table (.csv, .tsv, .jsonl or .parquet)", code="missing")
    for line, row in read_rows(Path(item), info):
        yield Example(f"{item}:{line}", row, {"file": str(item), "line": line})


def _vectors(item: object, info: VectorInfo) -> Tensor:
    """Return numbers as float64 [N, in_features]."""
    try:
        vectors = item.cpu().double() if isinstance(item, Tensor) else torch.from_numpy(np.array(item, dtype=np.float64))
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"not an array of numbers: {error}") from error
    if vectors.ndim not in (1, 2) or vectors.shape[-1] != info.in_features:
        cells = f", or {len({*info.columns})} cells" if isinstance(info, TableInfo) else ""
        raise InputError(f"an input of shape {list(vectors.shape)}: expected vectors of size {info.in_features}{cells}")
    return vectors.reshape(-1, info.in_features)


def _records(item: Any, info: TableInfo) -> list[Mapping[str, Any]] | None:
    """Return rows as cells by column; None for an array of features."""
    if is_frame(item):
        return [by_name(row) for row in item.to_dict("records")]
    if isinstance(item, Mapping) or hasattr(item, "to_dict"):
        return [by_name(item if isinstance(item, Mapping) else item.to_dict())]
    if isinstance(item, np.ndarray) and item.dtype.kind in "OU":
        item = item.tolist()
    names = [*dict.fromkeys(info.columns)]
    rows = item if isinstance(item, list | tuple) and item and isinstance(item[0], list | tuple) else [item]
    is_cells = all(isinstance(row, list | tuple) and len(row) == len(names) for row in rows)
    return [dict(zip(names, row, strict=True)) for row in rows] if is_cells else None
