"""The base class of data modules, DataInfo, and word vectors."""

import bz2
import gzip
import io
import json
import lzma
import zipfile

import numpy as np
import pytest
import torch

from tests.errors import raises
from zoo.data import BatchDataset, DataInfo, DataModule, loader, ready
from zoo.data import corpus as module_of_corpora
from zoo.data.corpus import CorpusData, Text
from zoo.data.images import digits
from zoo.data.info import CorpusInfo, ImageInfo, ParallelInfo, TextInfo, VectorInfo
from zoo.data.vectors import read_vectors


class Numbers(BatchDataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitems__(self, keys):
        return torch.tensor(keys) % self.rows


class PlainNumbers(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, row):
        if not 0 <= row < self.rows:
            raise IndexError(row)
        return row


class Counting(DataModule):
    task = "regression"
    opened = 0

    def __init__(self, sizes=None, **options):
        super().__init__(**options)
        self.sizes = sizes or {"train": 9, "val": 4}

    def load(self):
        self.opened += 1
        self.split_comment = "val was cut from train"
        return DataInfo(sizes=self.sizes, sha256="ab")

    def dataset(self, split):
        return Numbers(self.sizes[split])


def test_setup_loads_once():
    data = Counting()
    with pytest.raises(RuntimeError, match=r"Counting: call prepare_data\(\) and setup\(\) first"):
        data.info  # noqa: B018
    data.prepare_data()
    for stage in ("fit", "validate", "test", None):
        data.setup(stage)
    assert data.opened == 1
    assert ready(data).info.sizes == {"train": 9, "val": 4}
    assert data.opened == 1


@pytest.mark.parametrize("kind", ["images", "blocks", "stream"])
def test_two_processes_evaluate_every_row_once_and_train_on_equal_shares(monkeypatch, kind):
    def batches(rank, world, split):
        for module in (loader, module_of_corpora):
            monkeypatch.setattr(module, "process_rank", lambda: (rank, world))
        if kind == "images":
            return [labels for _, labels in getattr(ready(digits(batch_size=50)), f"{split}_dataloader")()]
        text = {"train": Text("to be or not to be, " * 90)}
        data = ready(CorpusData(text, max_length=8, batch_size=4, stream=kind == "stream"))
        return [targets for _, targets, _ in getattr(data, f"{split}_dataloader")()]

    def tokens(batches):
        return sorted(torch.cat([batch.flatten() for batch in batches]).tolist())

    one, other = (batches(rank, 2, "train") for rank in (0, 1))
    assert [batch.shape for batch in one] == [batch.shape for batch in other]
    for split in ("val", "test"):
        shares = batches(0, 2, split) + batches(1, 2, split)
        assert [t for t in tokens(shares) if t or kind == "images"] == [
            t for t in tokens(batches(0, 1, split)) if t or kind == "images"
        ]


def test_missing_test_split_raises():
    data = ready(Counting())
    assert not data.has_test
    with raises("missing", "the data", "test split"):
        data.test_dataloader()
    assert ready(Counting({"train": 9, "val": 4, "test": 2})).has_test


@pytest.mark.parametrize("option", [{"batch_size": 0}, {"num_workers": -1}, {"seed": 1.5}])
def test_options_are_checked_before_loading(option):
    with raises("invalid", f"{next(iter(option))}="):
        Counting(**option)


@pytest.mark.parametrize("wrap", [PlainNumbers, lambda rows: torch.utils.data.Subset(PlainNumbers(99), range(rows))])
def test_any_map_style_dataset_is_read_row_by_row(wrap):
    class Plain(Counting):
        def dataset(self, split):
            return wrap(self.sizes[split])

    def batches(kind):
        data = ready(kind(batch_size=4))
        train = data.train_dataloader()
        return [[batch.tolist() for batch in loader] for loader in (train, train, data.val_dataloader())]

    assert batches(Plain) == batches(Counting)


COMMON = {"sizes": {"train": 9, "val": 1}, "sha256": "ab"}
TOKENS = {"vocab_size": 20, "max_length": 12}
ALL = {
    "image": ImageInfo(in_channels=3, image_size=8, classes=("a", "b"), mean=(0.1, 0.2, 0.3), std=(1, 2, 3), **COMMON),
    "vector": VectorInfo(in_features=4, out_features=3, **COMMON),
    "text": TextInfo(classes=("a", "b", "c"), **TOKENS, **COMMON),
    "text_pair": TextInfo(classes=("a", "b"), pair=True, vectors=3, **TOKENS, **COMMON),
    "tokens": CorpusInfo(stream=False, **TOKENS, **COMMON),
    "token_stream": CorpusInfo(stream=True, **TOKENS, **COMMON),
    "source_target": ParallelInfo(**TOKENS, **COMMON),
}
KWARGS = {
    "image": {"in_channels": 3, "image_size": 8, "num_classes": 2},
    "vector": {"in_features": 4, "out_features": 3},
    "text": {**TOKENS, "num_classes": 3, "pair": False},
    "text_pair": {**TOKENS, "num_classes": 2, "pair": True},
    "tokens": TOKENS,
    "token_stream": TOKENS,
    "source_target": {**TOKENS, "seq2seq": True},
}


@pytest.mark.parametrize("info", ALL.values(), ids=ALL)
def test_json_round_trip(info):
    again = type(info).from_dict(json.loads(json.dumps(info.to_dict())))
    assert again == info
    assert type(getattr(again, "classes", ())) is tuple


@pytest.mark.parametrize("name", ALL)
def test_model_kwargs_and_inputs(name):
    assert ALL[name].inputs == name
    assert ALL[name].model_kwargs == KWARGS[name]


def test_example_inputs():
    assert ALL["image"].example_inputs(2).shape == (2, 3, 8, 8)
    assert ALL["vector"].example_inputs(3).equal(torch.zeros(3, 4))
    for name in ("text", "tokens", "token_stream"):
        assert ALL[name].example_inputs(2).equal(torch.full((2, 8), ALL[name].vocab_size - 1)), "a smaller vocabulary fails"
    for name in ("text_pair", "source_target"):
        first, second = ALL[name].example_inputs(3)
        assert first.shape == second.shape == (3, 8)
        assert first.data_ptr() != second.data_ptr()


def test_missing_or_unknown_field_raises():
    values = ALL["text"].to_dict()
    with raises("missing", "sizes"):
        TextInfo.from_dict({key: value for key, value in values.items() if key != "sizes"})
    with raises("unknown", "'color'"):
        TextInfo.from_dict(values | {"color": "red"})


WORDS = ["[PAD]", "the", "Paris", "of", "at name@domain.com"]
TABLE = {"the": [0.5, 1.0, -2.0], "paris": [1.0, 2.0, 3.0], "at name@domain.com": [7.0, 8.0, 9.0], "unused": [4.0, 4.0, 4.0]}
EXPECTED = torch.tensor([[0.0] * 3, TABLE["the"], TABLE["paris"], [0.0] * 3, TABLE["at name@domain.com"]])


def lines(table=TABLE):
    return "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in table.items()).encode()


def binary(table=TABLE, end=b"\n"):
    rows = {word.replace(" ", "_"): row for word, row in table.items()}
    body = b"".join(word.encode() + b" " + np.array(row, "<f4").tobytes() + end for word, row in rows.items())
    return f"{len(rows)} 3\n".encode() + body


def zipped(content):
    with zipfile.ZipFile(stream := io.BytesIO(), "w") as archive:
        archive.writestr(zipfile.ZipInfo("a.txt"), content)  # without the time, which would be part of the name of the test
    return stream.getvalue()


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


def test_a_byte_order_mark_is_no_part_of_the_first_word(file):
    assert read_vectors(file(b"\xef\xbb\xbfthe 1 2\nof 3 4\n"), ["the", "of"])[0].tolist() == [[1, 2], [3, 4]]


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
        (bz2.compress(lines()), "a.txt.bz2", "unpack"),
        (zipped(lines()), "a.zip", "unpack"),  # as GloVe is published
        (gzip.compress(lines(), mtime=0), "a.txt", "unpack"),
    ],
)
def test_invalid_file_raises(file, content, name, value):
    path = file(content, name)
    with raises("data", path, value):
        read_vectors(path, WORDS)
