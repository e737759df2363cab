"""Local files of texts: formats, columns, splits and broken rows."""

import csv
import gzip
import io
import json
import lzma
import pathlib
import tempfile
from mmap import mmap

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.errors import raises
from zoo.data import ready
from zoo.data import text as local
from zoo.data.files import read_lines, read_text
from zoo.data.table import read_pairs, read_splits, read_table
from zoo.data.tokenizer import train_tokenizer

ROWS = [("pos", 'A "good" film,\u0085really', "1"), ("neg", "Bad - naïve", "2"), ("pos", "Fine", "3")]
PACK = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}
SHARED = pathlib.Path(__file__).parents[3] / ".." / "shared" / "data"


def tsv(header=True):
    return "".join("\t".join(row) + "\n" for row in [("label", "text", "id")] * header + ROWS).encode()


@pytest.fixture
def file(tmp_path):
    def write(content, name):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def formats(tmp_path):
    def write(kind):
        path = tmp_path / f"x.{kind}"
        if kind == "csv":
            with path.open("w", encoding="utf-8", newline="") as stream:
                csv.writer(stream).writerows([("label", "text", "id"), *ROWS])
        elif kind == "jsonl":
            path.write_text("".join(json.dumps({"label": a, "text": b, "id": c}) + "\n" for a, b, c in ROWS))
        elif kind == "parquet":
            pq.write_table(pa.table(dict(zip(("label", "text", "id"), zip(*ROWS, strict=True), strict=True))), path)
        else:
            path.write_bytes(tsv())
        return path

    return write


@pytest.mark.parametrize("pack", PACK)
@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "parquet"])
def test_all_formats_give_the_same_table(formats, file, kind, pack):
    path = file(PACK[pack](formats(kind).read_bytes()), f"y.{kind}{pack}")
    table = read_table(path, text="text", label="label", group="id")
    assert [list(column) for column in (table.texts[0], table.labels, table.groups)] == [
        [row[1] for row in ROWS],
        [row[0] for row in ROWS],
        [row[2] for row in ROWS],
    ]
    first = 1 if kind == "jsonl" else 2
    assert table.location(1) == (f"{path}, row 2" if kind == "parquet" else f"{path}:{first + 1}")


@pytest.mark.parametrize("ending", ["csv", "tsv"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(file, delimiter, ending):
    texts = ["good, really", "bad; not good", "a|b, c", "tab\tin text", 'say "no"'] * 5
    text, plain = io.StringIO(newline=""), ending == "tsv" and delimiter == "\t"
    rows = [("text", "label"), *((words.replace("\t", " ") if plain else words, "ab"[i % 2]) for i, words in enumerate(texts))]
    if plain:
        text.write("".join(f"{a}\t{b}\n" for a, b in rows))
    else:
        csv.writer(text, delimiter=delimiter).writerows(rows)
    path = file(text.getvalue(), f"x.{ending}")
    expected = [words for words, _ in rows[1:]]
    assert list(read_table(path, text="text").texts[0]) == expected
    assert list(read_table(path, text=0, label=1).texts[0]) == expected
    assert list(read_table(path, text="text", delimiter=delimiter).texts[0]) == expected


def test_the_delimiter_can_be_given(file):
    path = file("a, b;label\n1, 2;x\n3, 4;y\n", "x.csv")  # with commas too, every line has as many fields
    assert list(read_table(path, text="a, b", delimiter=";").texts[0]) == ["1, 2", "3, 4"]
    with raises("missing", "'text'", "delimiter"):
        read_table(path, text="text")
    path = file("text#label\na#b\n", "y.csv")
    assert list(read_table(path, text="text", delimiter="#").texts[0]) == ["a"]
    with raises("invalid", "delimiter=';;'"):
        read_table(path, text="text", delimiter=";;")


def test_header_is_detected_or_given(file):
    bare, headed = file(tsv(header=False), "bare.tsv"), file(tsv(), "headed.tsv")
    assert len(read_table(bare, text=1, label=0)) == 3
    assert len(read_table(headed, text=1, label=0)) == 3
    assert len(read_table(headed, text=1, label=0, header=False)) == 4
    assert len(read_table(bare, text=1, label=0, header=True)) == 2


def test_location_of_a_row_is_its_first_line(file):
    path = file('label,text\r\na,"one\r\ntwo"\r\n\r\nb,x\r\n', "x.csv")
    table = read_table(path, text="text")
    assert list(table.texts[0]) == ["one\r\ntwo", "x"]
    assert [table.location(row) for row in (0, 1)] == [f"{path}:2", f"{path}:5"]


def test_byte_order_mark_and_carriage_returns_are_ignored(file):
    path = file(b"\xef\xbb\xbflabel\ttext\r\n\r\na\tone \r\n", "x.tsv")
    table = read_table(path, text="text")
    assert (list(table.texts[0]), table.labels, list(table.lines)) == (["one "], ["a"], [3])


@pytest.mark.parametrize(
    ("values", "labels"),
    [([1, 0], ["1", "0"]), ([1.0, 0], ["1", "0"]), ([True, False], ["true", "false"]), ([" a ", "b"], ["a", "b"])],
)
def test_labels_of_json_become_text(file, values, labels):
    lines = "".join(json.dumps({"text": "x", "label": value}) + "\n" for value in values)
    assert read_table(file(lines, "x.jsonl"), text="text").labels == labels


GOOD = '{"text": "x", "label": 1}\n'


@pytest.mark.parametrize(
    ("name", "content", "line", "value"),
    [
        ("x.tsv", "label\twords\na\tb\n", 1, "'label', 'words'"),
        ("x.tsv", "text\ttext\tlabel\na\tb\tc\n", 1, "2 columns"),
        ("x.tsv", "label\ttext\na\tb\na\tb\tc\n", 3, "3 fields, but line 1 has 2"),
        ("x.tsv", "label\ttext\na\tb\na\t \n", 3, "'text'"),
        ("x.tsv", "label\ttext\na\tb\n\tb\n", 3, "'label'"),
        ("x.tsv", b"label\ttext\na\tb\na\tcaf\xe9\n", 3, "byte 0xe9"),
        ("x.csv", "label,text\na,b\na,b,c\n", 3, "3 fields, but line 1 has 2"),
        ("x.csv", 'label,text\na,b\na,"b\n', 3, "unexpected end of data"),
        ("x.jsonl", GOOD + '{"text": "x"}\n', 2, "'label'"),
        ("x.jsonl", GOOD + '{"text": "x", "label": null}\n', 2, "'label' is missing"),
        ("x.jsonl", GOOD + '{"text": "x", "label": 0.5}\n', 2, "'label' is 0.5"),
        ("x.jsonl", GOOD + '{"text": 5, "label": 1}\n', 2, "column 'text' is 5"),
        ("x.jsonl", GOOD + '{"text": "\\ud800", "label": 1}\n', 2, "surrogate"),
        ("x.jsonl", GOOD + '\n{"text": "x", "label"\n', 3, "JSON"),
    ],
)
def test_invalid_line_raises(file, name, content, line, value):
    path = file(content, name)
    with raises("missing" if line == 1 else "data", f"{path}:{line}: ", value):
        read_table(path, text="text")


@pytest.mark.parametrize(
    ("name", "content", "columns", "code", "value"),
    [
        ("x.tsv", "", {"text": "text"}, "data", "no rows"),
        ("x.tsv", "label\ttext\n", {"text": "text"}, "data", "no rows"),
        ("x.doc", "a", {"text": "text"}, "unsupported", ".tsv, .csv, .jsonl, .parquet"),
        ("x.tsv.gz", "a\tb\n", {"text": "text"}, "data", "x.tsv.gz: "),
        ("x.parquet", "a\tb\n", {"text": "text"}, "data", "Parquet"),
        ("x.tsv", "a\tb\n", {"text": 2, "label": 0}, "missing", "column 2"),
        ("x.tsv", "a\tb\n", {"text": "b", "header": False}, "missing", "'b'"),
        ("x.jsonl", GOOD, {"text": 0}, "data", "column 0"),
        ("x.tsv", "a\tb\n", {"text": 0, "label": 1, "header": "yes"}, "invalid", "header='yes'"),
    ],
)
def test_invalid_file_or_option_raises(file, name, content, columns, code, value):
    with raises(code, value):
        read_table(file(content, name), **columns)


def test_missing_value_of_parquet_raises(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"label": [1, None], "text": ["a", "b"]}), path)
    with raises("data", "row 2: "):
        read_table(path, text="text")


def test_rows_of_parquet_keep_their_numbers(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"label": ["x", None, "y"], "text": ["a", "b", "c"]}), path)
    table = read_table(path, text="text", on_bad_rows="skip")
    assert [table.location(row) for row in (0, 1)] == [f"{path}, row 1", f"{path}, row 3"]
    assert table.take([1]).location(0) == f"{path}, row 3"


@pytest.mark.parametrize("val", ["val", "validation"])
def test_folder_of_splits(file, tmp_path, val):
    file(tsv(), "train.tsv")
    file(gzip.compress(tsv()), f"{val}.tsv.gz")
    file(lzma.compress(tsv()), "test.tsv.xz")
    file("not data", "README.md")
    splits = read_splits(tmp_path, text="text")
    assert list(splits) == ["train", "val", "test"]
    assert all(len(table) == 3 for table in splits.values())


def test_labels_that_occur_once_raise(tmp_path):
    for name, rows in (("train", range(20)), ("test", range(3))):
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\n" + "".join(f"a film\tid{i}\n" for i in rows))
    with raises("data", "every training row has another label"):
        ready(local.text(str(tmp_path)))


def test_invalid_folder_raises(file, tmp_path):
    with raises("missing", "train.tsv", "nothing"):
        read_splits(tmp_path, text="text")
    file(tsv(), "train.tsv")
    file(tsv(), "dev.tsv")
    file(tsv(), "val.csv")
    with raises("conflict", "val.csv and dev.tsv"):
        read_splits(tmp_path, text="text")
    with raises("missing", "nowhere"):
        read_splits(tmp_path / "nowhere", text="text")


def broken(file):
    rows = [f"{'ab'[i % 2]}\ttext {i}" if i % 10 else "a" for i in range(1, 131)]
    return file("label\ttext\n" + "\n".join(rows) + "\n", "x.tsv")


def test_broken_rows_are_counted_and_the_first_ten_listed(file):
    path = broken(file)
    with raises(
        "data", f"{path}:11: 1 fields", "13 broken rows", "21, 31, 41, 51, 61, 71, 81, 91, 101 ...", "on_bad_rows=skip"
    ):
        read_table(path, text="text")
    with raises("data", "x.tsv:3: column 'text' is empty", "on_bad_rows=skip"):
        read_table(file("label\ttext\na\tb\na\t\n", "x.tsv"), text="text")


def test_broken_rows_can_be_skipped_and_are_counted(file):
    path = broken(file)
    table = read_table(path, text="text", on_bad_rows="skip")
    assert (len(table), table.bad.count, table.location(9)) == (117, 13, f"{path}:12")
    data = ready(local.text(str(path), on_bad_rows="skip"))
    assert data.split_note.endswith("; 13 broken rows skipped)")
    with raises("invalid", "on_bad_rows='drop'"):
        ready(local.text(str(path), on_bad_rows="drop"))


def test_an_unclosed_quote_is_an_error_even_if_broken_rows_are_skipped(file):
    path = file('label,text\na,b\na,"b\nc,d\n', "x.csv")
    with raises("data", f"{path}:3", "end of data"):
        read_table(path, text="text", on_bad_rows="skip")


def test_too_long_lines_and_packed_bombs_raise(tmp_path, monkeypatch):
    path = tmp_path / "x.tsv.gz"
    path.write_bytes(gzip.compress(b"x" * 17 * 2**20))
    with raises("data", "x.tsv.gz:1: ", "16 MiB"):
        read_table(path, text=1, label=0, header=False)
    monkeypatch.setattr("zoo.data.files.MIN_LIMIT", 2**20)
    path.write_bytes(gzip.compress(b"a\tb\n" * 2**21))
    for read in (read_text, lambda path: read_table(path, text=1, label=0, header=False)):
        with raises("invalid", "x.tsv.gz: expands"):
            read(path)


def test_text_and_lines_of_a_file(tmp_path):
    path, text = tmp_path / "x.txt", "one\n\nzwei ü\r\n三\u2028\ufeffx"
    path.write_text("\ufeff" + text, encoding="utf-8", newline="")
    assert read_text(path) == text
    assert list(read_lines(path)) == ["one\n", "\n", "zwei ü\r\n", "三\u2028\ufeffx"]


def test_texts_and_token_ids_are_mapped_from_files(file):
    words = ["plain", "schön \N{SNOWMAN}", "x" * 1000, "plain again"]
    table = read_table(file("label,text\n" + "".join(f"{i},{word}\n" for i, word in enumerate(words)), "x.csv"), text="text")
    (column,) = table.texts
    assert list(column) == words
    assert list(table.take([3, 1]).texts[0]) == [words[3], words[1]]
    tokens = train_tokenizer("word", column, 100, True, 1).limited(8).encode(column)
    pairs = read_pairs(file("one\ntwo\n", "x.en"), file("eins\nzwei\n", "x.de"))
    for flat in (column.flat, tokens.flat, *(side.flat for side in pairs.texts)):
        assert isinstance(flat.base.obj if isinstance(flat.base, memoryview) else flat.base, mmap)
        assert not flat.flags.writeable


def text(*args, **options):
    return ready(local.text(*args, **options))


def ranking(*args, **options):
    return ready(local.ranking(*args, **options))


@pytest.fixture
def columns(tmp_path):
    def write(name, rows):
        path = tmp_path / name
        path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


def test_pairs(columns):
    path = columns("x.tsv", [("first", "second", "label"), *[(f"a{i}", f"b{i}", f"{i % 3}") for i in range(60)]])
    made = ready(local.pairs(path))
    assert made.task == "pair_classification"
    assert made.info.num_classes == 3
    assert ready(local.pairs(path, first="second", second="first")).info.sha256 != made.info.sha256


def test_rankings(columns):
    rows = [
        (f"{q}", "same question" if q < 2 else f"question {q}", f"answer {a}", f"{int(a == 1)}")
        for q in range(30)
        for a in range(3)
    ]
    path = columns("x.tsv", [("id", "query", "answer", "label"), *rows])
    assert ranking(path, folds=29).info.sizes["test"] in (3, 6)
    assert ranking(path, group="id", folds=30).info.sizes["test"] == 3
    with raises("data", "folds=30", "29 questions"):
        ranking(path, folds=30)


def test_missing_columns_raise(columns):
    path = columns("x.tsv", [("a", "b"), ("c", "d")])
    path.with_suffix(".jsonl").write_text('{"a": "b"}\n')
    for read, name, options, code, *values in (
        (text, "x.tsv", {}, "missing", "x.tsv:1: ", "'text'", "'a', 'b'", "names of the columns"),
        (ranking, "x.tsv", {}, "missing", "'query'", "names of the columns"),
        (text, "x.jsonl", {}, "data", "x.jsonl:1: ", "'text'", "'a'"),
    ):
        with raises(code, *values):
            read(path.with_name(name), **options)


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_names_the_folder_of_temporary_files(file, monkeypatch):
    path = file("label,text\n0,one\n1,two\n", "x.csv")
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: open("/dev/full", "r+b"))  # noqa: SIM115
    with raises("failed", tempfile.gettempdir(), "TMPDIR"):
        read_table(path, text="text")
