import gzip
import lzma

import numpy as np
import pytest
import torch

from tests.errors import raises
from zoo.data.vectors import read_vectors

WORDS = ["[PAD]", "the", "Paris", "of", "at name@domain.com"]
TABLE = {"the": [0.5, 1.0, -2.0], "paris": [1.0, 2.0, 3.0], "at name@domain.com": [7.0, 8.0, 9.0], "unused": [4.0, 4.0, 4.0]}
EXPECTED = torch.tensor([[0.0] * 3, TABLE["the"], TABLE["paris"], [0.0] * 3, TABLE["at name@domain.com"]])


def lines(table=TABLE):
    return "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in table.items()).encode()


def binary(table=TABLE, end=b"\n"):
    rows = {word.replace(" ", "_"): row for word, row in table.items()}
    body = b"".join(word.encode() + b" " + np.array(row, "<f4").tobytes() + end for word, row in rows.items())
    return f"{len(rows)} 3\n".encode() + body


@pytest.fixture
def file(tmp_path):
    def write(content, name="vectors.txt"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize(("ending", "pack"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)])
@pytest.mark.parametrize("header", [b"", b"4 3\n"])
def test_text_is_read(file, ending, pack, header):
    matrix, found = read_vectors(file(pack(header + lines()), f"vectors.txt{ending}"), WORDS)
    assert matrix.dtype == torch.float32
    assert torch.equal(matrix, EXPECTED)
    assert found.tolist() == [False, True, True, False, True]


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_binary_is_read(file, end):
    path = file(binary(end=end), "vectors.bin")
    matrix, found = read_vectors(path, [word.replace(" ", "_") for word in WORDS])
    assert torch.equal(matrix, EXPECTED)
    assert found.tolist() == [False, True, True, False, True]


def test_binary_words_across_chunks(file, monkeypatch):
    monkeypatch.setattr("zoo.data.vectors.CHUNK", 5)
    matrix, _ = read_vectors(file(binary(), "vectors.bin"), [word.replace(" ", "_") for word in WORDS])
    assert torch.equal(matrix, EXPECTED)


def test_exact_word_has_priority_over_lower_case(file):
    path = file(b"us 1 1\nUS 2 2\nUS 3 3\n")
    assert read_vectors(path, ["US", "us", "Us"])[0].tolist() == [[2, 2], [1, 1], [1, 1]]


def test_carriage_returns_and_trailing_spaces_are_ignored(file):
    assert torch.equal(read_vectors(file(lines().replace(b"\n", b" \r\n")), WORDS)[0], EXPECTED)


@pytest.mark.parametrize(
    ("content", "line", "value"),
    [
        (b"the 1 2 3\nof 1 2\n", 2, "3 numbers"),
        (b"2 3\nthe 1 2 3\nof 1 2\n", 3, "3 numbers"),
        (b"the 1 2 3\nof 1 x 3\n", 2, "'of'"),
        (b"the\nof\n", 1, "no vector"),
    ],
)
def test_invalid_line_raises(file, content, line, value):
    path = file(content)
    with raises("data" if line == 1 else "corrupt", f"{path}:{line}: ", value):
        read_vectors(path, WORDS)


@pytest.mark.parametrize(
    ("content", "name", "value"),
    [
        (b"other 1 2\n", "a.txt", "5 words"),
        (gzip.compress(lines(), mtime=0)[:-9], "a.txt.gz", ": "),
        (binary()[:-3], "a.bin", "vector 4: "),
        (lines(), "a.bin", ": "),
    ],
)
def test_invalid_file_raises(file, content, name, value):
    path = file(content, name)
    with raises("data", path, value):
        read_vectors(path, WORDS)
