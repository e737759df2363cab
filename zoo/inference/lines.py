"""Lines of text that a user wants to have classified: arguments, files and standard input, each line with its place."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from zoo.data import DataInfo
from zoo.data.text.content import read_text
from zoo.errors import InputError

TABLES = (".csv", ".jsonl", ".json", ".parquet")
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".pdf")
FILES = (*TABLES, *PICTURES, ".tsv", ".txt", ".gz", ".xz")
Line = tuple[str, tuple[str, ...]]
"""Where a line stands, and its one or two texts."""


def read_lines(inputs: Sequence[str | Path], info: DataInfo, stdin: TextIO | None) -> Iterator[Line]:
    """Yield every line of text there is to classify or to answer, with its place.

    A line to answer may be empty: its answer is, so that answers stand in the lines of their questions.
    """
    columns, blank = 2 if info.inputs == "text_pair" else 1, info.inputs == "source_target"
    texts: list[str] = []
    for word in map(str, inputs):
        if word == "-" and stdin is not None:
            content = stdin.buffer.read().decode("utf-8", "surrogateescape")
            yield from table_lines("standard input", content.removeprefix("\ufeff"), columns, blank)
        elif is_file(word):
            check_lines(word)
            yield from table_lines(word, read_text(Path(word)), columns, blank)
        else:
            texts.append(word)
            if len(texts) == columns:
                yield checked(f"'{texts[0][:40]}'", tuple(texts))
                texts = []
    if texts:
        raise InputError(f"this model compares two texts: there is no second one for '{texts[0][:40]}'")


def is_file(word: str) -> bool:
    """Tell the name of a file from a text, which may be longer than a name can be.

    Raises:
        InputError: If it is a folder, or looks like the name of a file that does not exist.
    """
    try:
        if Path(word).is_dir() and word.strip("."):
            raise InputError(f"'{word}' is a folder: give a file with one text a line")
        found = Path(word).is_file()
    except OSError:
        return False
    if not found and not any(map(str.isspace, word)) and word.lower().endswith(FILES):
        raise InputError(f"there is no file '{word}'")
    return found


def check_lines(word: str) -> None:
    """Refuse a file that is no list of lines.

    Raises:
        InputError: Its ending says that it is a table or a list of objects.
    """
    if Path(word).suffix.lower() in PICTURES:
        raise InputError(f"{word}: this model reads texts, not pictures")
    if any(suffix in TABLES for suffix in Path(word).suffixes):
        raise InputError(
            f"{word}: predict reads plain lines, one text in each (of pairs two with a tab between): write such a file"
        )


def table_lines(source: str, content: str, columns: int, blank: bool = False) -> Iterator[Line]:
    """Yield the lines of a file with their numbers.

    Raises:
        InputError: If there is none, or a line is empty, is not UTF-8 or has another number of columns.
    """
    if not content:
        raise InputError(f"{source} is empty: there is nothing to predict")
    for number, line in enumerate(content.removesuffix("\n").split("\n"), 1):
        place, line = f"{source}:{number}", line.removesuffix("\r")
        texts = tuple(line.split("\t")) if columns > 1 else (line,)
        if len(texts) != columns:
            raise InputError(f"{place}: {len(texts)} columns; a line holds the two texts with a tab between")
        if "\t" in texts[0].strip():
            raise InputError(f"{place}: a tab; this model reads one text, so a line holds nothing else")
        yield checked(place, texts, blank)


def checked(place: str, texts: tuple[str, ...], blank: bool = False) -> Line:
    """Return a line if all of it is text.

    Raises:
        InputError: If a text is empty or not UTF-8.
    """
    if any("\udc80" <= letter <= "\udcff" for text in texts for letter in text):
        raise InputError(f"{place}: bytes that are not UTF-8; save the text as UTF-8")
    if not blank and not all(text.strip() for text in texts):
        raise InputError(f"{place}: empty text; remove it")
    return place, texts
