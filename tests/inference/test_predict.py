"""Predictions: what a network says of a line, whatever the line came in and whatever stood around it."""

import io

import pytest
import torch

import zoo
from zoo.data import ready
from zoo.data.text.local import pairs, ranking, text
from zoo.errors import InputError

BATCH = 64
TRAINER = {"max_epochs": 3, "accelerator": "cpu", "enable_progress_bar": False}


@pytest.fixture(scope="module")
def place(tmp_path_factory, corpus):
    """A model of texts and one of pairs, with dropout, attention and positions that a mistake would show in."""
    folder = tmp_path_factory.mktemp("predict")
    nets = {"text": "transformer(dim=8, depth=1, heads=2, ffn=8, positions=learned)", "pairs": "decomposable_attention(dim=8)"}
    for kind, backbone in nets.items():
        data = f"{kind}(path='{corpus(folder / f'{kind}.tsv', kind)}')"
        options = {"run_dir": str(folder / kind), "trainer": TRAINER, "optimizer": {"lr": 0.05}}
        zoo.fit(backbone=backbone, algebra="quaternion", data=data, **options)
    return folder


@pytest.fixture
def run(place):
    return place / "text"


@pytest.fixture
def lines(place):
    return [line.split("\t")[0] for line in (place / "text.tsv").read_text().splitlines()[1:]]


def predict(run, inputs, stdin=None, **options):
    """Predictions of a run, one row at a time."""
    return zoo.load(run).predict_iter(inputs, stdin=stdin, **options)


def stdin(content: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(content), encoding="ascii")


def said(run, words) -> torch.Tensor:
    """Probabilities of one text by itself, padded with nothing."""
    tokenizer = ready(text(str(run.parent / "text.tsv"))).tokenizer
    with torch.no_grad():
        return zoo.load(run).net(tokenizer.encode([words]).padded()).softmax(-1)[0]


# --- where texts come from ---


def test_a_text_gets_the_label_that_the_network_gives_it(run, lines):
    for row in predict(run, lines[:8]):
        expected = said(run, row["text"])
        assert row["label"] == ("no", "yes")[int(expected.argmax())]
        assert row["probability"] == pytest.approx(float(expected.max()), abs=2e-6)
    assert {row["label"] for row in predict(run, lines)} == {"no", "yes"}


def test_texts_files_and_standard_input_say_the_same(run, lines, tmp_path):
    expected = list(predict(run, lines))
    assert [row["text"] for row in expected] == lines
    file = tmp_path / "lines.txt"
    for content in ("\n".join(lines), "".join(f"{line}\n" for line in lines), "".join(f"{line}\r\n" for line in lines)):
        file.write_bytes(content.encode())
        assert list(predict(run, [file])) == expected
        assert list(predict(run, ["-"], stdin(file.read_bytes()))) == expected


def test_a_line_ends_at_a_line_feed_and_nowhere_else(run, tmp_path):
    (tmp_path / "lines").write_bytes("a good\x85film\na\u2028plot\nit\x0cis\n".encode())
    assert [row["text"] for row in predict(run, [tmp_path / "lines"])] == ["a good\x85film", "a\u2028plot", "it\x0cis"]


def test_the_mark_that_some_editors_write_is_no_text(run, tmp_path):
    (tmp_path / "lines").write_bytes(b"\xef\xbb\xbfa good film\n")
    assert [row["text"] for row in predict(run, [tmp_path / "lines"])] == ["a good film"]
    assert [row["text"] for row in predict(run, ["-"], stdin(b"\xef\xbb\xbfa good film"))] == ["a good film"]


# --- neighbours ---


def test_a_line_does_not_feel_its_neighbours(run, lines):
    """Neither their length, nor their number, nor their order, nor where a batch of lines ends."""
    many = [lines[i % len(lines)] for i in range(2 * BATCH + 3)]
    assert len({len(line.split()) for line in many}) > 3
    alone = {line: next(iter(predict(run, [line])))["probability"] for line in lines}
    for order in (many, many[::-1]):
        rows = list(predict(run, order))
        assert [row["text"] for row in rows] == order
        assert [row["probability"] for row in rows] == pytest.approx([alone[line] for line in order], abs=2e-6)


# --- pairs ---


def test_pairs_as_arguments_and_with_a_tab_between(place, tmp_path):
    rows = [line.split("\t")[:2] for line in (place / "pairs.tsv").read_text().splitlines()[1:]]
    (tmp_path / "two").write_text("".join(f"{a}\t{b}\n" for a, b in rows))
    found = list(predict(place / "pairs", [tmp_path / "two"]))
    assert found == list(predict(place / "pairs", [side for row in rows for side in row]))
    assert found == list(predict(place / "pairs", ["-"], stdin((tmp_path / "two").read_bytes())))
    tokenizer, net = ready(pairs(str(place / "pairs.tsv"))).tokenizer, zoo.load(place / "pairs").net
    for row, (first, second) in zip(found, rows, strict=True):
        assert (row["first"], row["second"]) == (first, second)
        with torch.no_grad():
            expected = net(tokenizer.encode([first]).padded(), tokenizer.encode([second]).padded()).softmax(-1)[0]
        assert row["label"] == ("other", "same")[int(expected.argmax())]
        assert row["probability"] == pytest.approx(float(expected.max()), abs=2e-6)


def test_a_ranking_model_says_how_relevant_an_answer_is(corpus, tmp_path):
    data = f"ranking(path='{corpus(tmp_path / 'ranking.tsv', 'ranking')}')"
    zoo.fit(backbone="fasttext(dim=8, hidden=8)", algebra="real", data=data, run_dir=str(tmp_path / "run"), trainer=TRAINER)
    question, *_ = (tmp_path / "ranking.tsv").read_text().splitlines()[1].split("\t")
    (row,) = predict(tmp_path / "run", [question, "an answer"])
    assert row.keys() == {"question", "answer", "relevance"}
    tokenizer = ready(ranking(str(tmp_path / "ranking.tsv"))).tokenizer
    with torch.no_grad():
        expected = zoo.load(tmp_path / "run").net(*(tokenizer.encode([side]).padded() for side in (question, "an answer")))
    assert row["relevance"] == pytest.approx(expected.softmax(-1)[0, 1].item(), abs=1e-5)


# --- bad input ---


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a\n\nb\n", "lines:2: empty text"),
        (b"a\nb\n  \t \n", "lines:3: empty text"),
        (b"a\nfilm \xff\n", r"lines:2: .*UTF-8"),
        (b"a\ncaf\xe9\nb", r"lines:2: .*UTF-8"),
        (b"", "lines is empty"),
        (b"a\nb\n" + b"film " * 40, "lines:3: 40 tokens, the model reads at most"),
    ],
    ids=["empty", "white", "byte", "latin", "nothing", "long"],
)
def test_a_bad_line_is_named(run, tmp_path, content, said):
    (tmp_path / "lines").write_bytes(content)
    with pytest.raises(InputError, match=said) as refusal:
        list(predict(run, [tmp_path / "lines"]))
    assert len(str(refusal.value).splitlines()) == 1
    with pytest.raises(InputError, match=said.replace("lines", "standard input")):
        list(predict(run, ["-"], stdin(content)))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a\tb\na b\n", "lines:2: 1 columns"),
        (b"a\tb\na\tb\tc\n", "lines:2: 3 columns"),
        (b"a\tb\na\t \n", "lines:2: empty text"),
        (b"a\tb\n\n", "lines:2: 1 columns"),
        (b"a\tb\na\t\xff\n", r"lines:2: .*UTF-8"),
    ],
    ids=["missing", "many", "half", "empty", "byte"],
)
def test_a_bad_line_of_pairs_is_named(place, tmp_path, content, said):
    (tmp_path / "lines").write_bytes(content)
    with pytest.raises(InputError, match=said):
        list(predict(place / "pairs", [tmp_path / "lines"]))
    with pytest.raises(InputError, match=said.replace("lines", "standard input")):
        list(predict(place / "pairs", ["-"], stdin(content)))


def test_a_text_that_is_too_long_is_cut_if_asked(run):
    most = zoo.checkpoint.read_config(run)["info"]["max_length"]
    words = ["film"] * most
    (whole,) = predict(run, [" ".join(words)])
    (cut,) = predict(run, [" ".join([*words, "bad", "bad"])], truncation=True)
    assert cut["probability"] == whole["probability"]
    with pytest.raises(InputError, match=rf"{most + 2} tokens, the model reads at most {most}"):
        list(predict(run, [" ".join([*words, "bad", "bad"])]))


def test_a_model_of_vectors_is_used_from_python(tmp_path):
    options = {"data": "hamilton(rows=200)", "run_dir": str(tmp_path / "run"), "trainer": TRAINER}
    zoo.fit(backbone="linear", algebra="quaternion", **options)
    with pytest.raises(InputError, match=r"numbers for vectors: .*zoo\.load"):
        list(predict(tmp_path / "run", ["1 2 3"]))


@pytest.mark.parametrize("name", ["../secret.json", "/etc/hostname", "sub/x", "", 3])
def test_a_configuration_may_not_point_out_of_its_folder(run, name, tmp_path):
    from shutil import copytree

    from zoo.atomic import write_json
    from zoo.checkpoint.manifest import file_record, read_json, sealed

    model = copytree(run / "model", tmp_path / "model")
    (tmp_path / "secret.json").write_bytes((model / "tokenizer.json").read_bytes())
    config = read_json(model / "config.json")
    write_json(model / "config.json", config | {"info": config["info"] | {"tokenizer": name}})
    manifest = read_json(model / "manifest.json")
    manifest["files"]["config.json"] = file_record(model / "config.json")
    write_json(model / "manifest.json", sealed(manifest))
    with pytest.raises(InputError, match="tokenizer = "):
        list(predict(model, ["a good film"]))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (None, "nosuchfile.tsv", "there is no file 'nosuchfile.tsv'"),
        ("reviews.csv", "text,label\na,b\n", "predict reads plain lines"),
        ("reviews.jsonl.gz", "", "predict reads plain lines"),
        ("reviews.txt", "fine\na text\tpos\n", "reviews.txt:2: a tab"),
        ("folder", None, "has no file that ends with .txt"),
    ],
)
def test_what_is_no_list_of_texts(run, name, content, said, tmp_path):
    path = content if name is None else str(tmp_path / name)
    if content is None:
        (tmp_path / name).mkdir()
    elif name is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=said):
        list(predict(run, [path]))
