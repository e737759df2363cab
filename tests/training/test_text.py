"""Runs on texts, pairs, corpora and translations: tokenizers, metrics, and evaluation on other texts."""

import csv
import hashlib
import json
import math
import random
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn
from torch.nn import functional as F

import zoo
from tests.errors import raises
from zoo import registry
from zoo.backbones.build import check_fit
from zoo.data import ready
from zoo.data.parallel import ParallelData, parallel
from zoo.inference.evaluation import origin
from zoo.registry import Spec
from zoo.tasks import task_type

ENGLISH = ["one", "two", "three", "four", "five", "six"]
FRENCH = dict(zip(ENGLISH, ["un", "deux", "trois", "quatre", "cinq", "six"], strict=True))
WORDS = ["the", "café", "was", "naïve", "and", "old,", "a", "señor", "ate", "œufs", "at", "noon"]
SIZE = "dim=16, depth=1, heads=2, ffn=32"
TRAINER = {"max_epochs": 2, "accelerator": "cpu", "enable_progress_bar": False, "limit_train_batches": 12}
RUNS = {
    "text": ("text", "fasttext(dim=8, hidden=8)", "quaternion"),
    "pairs": ("pairs", "decomposable_attention(dim=8)", "phm(n=2)"),
    "ranking": ("ranking", "lstm(dim=8, hidden=8)", "complex"),
    "gpt": ("corpus", f"gpt({SIZE}, dropout=0.1)", "quaternion"),
    "xl": ("stream", f"transformer_xl({SIZE})", "phm(n=2)"),
    "bpe": ("bpe", f"gpt({SIZE}, positions=rotary)", "complex"),
    "seq2seq": ("parallel", f"transformer({SIZE})", "quaternion"),
}
"""Data, backbone and algebra of each run."""
TABLES, WRITERS = ("text", "pairs", "ranking"), ("gpt", "xl", "bpe")
DATA = {
    "text": "text(path='{workdir}/text.tsv')",
    "pairs": "pairs(path='{workdir}/pairs.tsv')",
    "ranking": "ranking(path='{workdir}/ranking.tsv')",
    "corpus": "corpus(path='{workdir}/text.txt', max_length=32)",
    "stream": "corpus(path='{workdir}/text.txt', max_length=16)",
    "bpe": "corpus(path='{workdir}/text.txt', max_length=16, tokenizer=bpe, vocab=300)",
    "parallel": "parallel(path='{workdir}/en-fr', source=en, target=fr, tokenizer=space)",
}


def evaluate(run, split, data=None, **options):
    """Load and evaluate a model."""
    return zoo.load(run).evaluate(data, split, **options)


def lines(seed: int, count: int = 150) -> str:
    draw = random.Random(seed)
    return "".join(" ".join(draw.choices(WORDS, k=6)) + "\n" for _ in range(count))


def translations(seed: int, count: int) -> list[tuple[str, str]]:
    draw = random.Random(seed)
    texts = [draw.choices(ENGLISH, k=draw.randrange(1, 5)) for _ in range(count)]
    return [(" ".join(words), " ".join(map(FRENCH.get, words))) for words in texts]


def write_pairs(folder: Path, **splits: list[tuple[str, str]]) -> None:
    folder.mkdir()
    for name, rows in splits.items():
        for side, ending in enumerate(("en", "fr")):
            (folder / f"{name}.{ending}").write_text("".join(f"{row[side]}\n" for row in rows), encoding="utf-8")


@pytest.fixture(scope="module")
def workdir(tmp_path_factory, corpus) -> Path:
    """The folder with the data and runs of this module."""
    folder = tmp_path_factory.mktemp("text")
    for kind in ("text", "pairs", "ranking"):
        corpus(folder / f"{kind}.tsv", kind)
        corpus(folder / f"other-{kind}.tsv", kind, seed=1)
    (folder / "text.txt").write_text(lines(0), encoding="utf-8")
    write_pairs(folder / "en-fr", train=translations(0, 200), val=translations(1, 25), test=translations(2, 25))
    return folder


@pytest.fixture(scope="module")
def summaries(workdir):
    """Return a function that trains a run at its first call and returns its summary."""
    made = {}

    def summary_of(name: str) -> dict[str, object]:
        if name not in made:
            kind, backbone, algebra = RUNS[name]
            options = {"data": DATA[kind].format(workdir=workdir), "batch_size": 8, "optimizer": {"lr": 0.01}}
            options |= {"embedding": "complex_order"} if name == "xl" else {}
            trainer = TRAINER | ({"max_epochs": 16} if name == "seq2seq" else {})
            run_dir = str(workdir / name)
            made[name] = zoo.fit(backbone=backbone, algebra=algebra, run_dir=run_dir, trainer=trainer, **options)
        return made[name]

    return summary_of


@pytest.fixture(params=RUNS)
def name(request) -> str:
    return request.param


@pytest.fixture
def summary(summaries, name):
    return summaries(name)


@pytest.fixture
def run(summary, workdir, name) -> Path:
    return workdir / name


def some(*names: str):
    """Select runs."""
    return pytest.mark.parametrize("name", names, indirect=True)


def info_of(run):
    config = zoo.checkpoint.read_config(run)
    return task_type(config.task)[0].info_type.from_dict(config.info)


# --- the folder ---


def test_the_tokenizer_is_a_file_of_the_model(run, name, workdir):
    tokenizer = run / "model" / "tokenizer.json"
    listed = json.loads((run / "model" / "manifest.json").read_text())["files"]
    assert set(listed) == {"config.json", "model.safetensors", "README.md", "tokenizer.json"}
    assert listed["tokenizer.json"]["sha256"] == hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    data = ready(registry.create("zoo.datasets", DATA[RUNS[name][0]].format(workdir=workdir)))
    assert tokenizer.read_text(encoding="utf-8") == data.tokenizer.to_json()


def test_the_info_of_the_data_is_stored(run, name, workdir, summary):
    config, info = zoo.checkpoint.read_config(run), info_of(run)
    is_stream = {"stream": True} if name == "xl" else {}
    data = ready(registry.create("zoo.datasets", DATA[RUNS[name][0]].format(workdir=workdir), **is_stream))
    assert (info, summary["data_sha256"]) == (data.info, data.info.sha256)
    assert summary["task"] == config.task == data.task
    assert summary["embedding"] == config.embedding == ("complex_order" if name == "xl" else None)
    assert "stream" not in yaml.safe_load((run / "config.yaml").read_text())["data"]  # which the backbone implies
    counted = summary["parameters"]
    assert counted["embedding"] % info.vocab_size == 0
    assert 0 < counted["embedding"] < counted["total"] < counted["real_twin"] * 2
    assert zoo.count(zoo.load(run).net) == {key: counted[key] for key in ("total", "embedding")}


# --- evaluation ---


def test_metrics(summary, name):
    metrics = summary["metrics"]
    expected = {"ranking": {"loss", "map", "mrr", "top1"}, "seq2seq": {"loss", "exact_match", "bleu", "chrf"}}
    expected |= {writer: {"loss", "perplexity", "bits_per_character", "bits_per_byte"} for writer in WRITERS}
    assert metrics.keys() == expected.get(name, {"loss", "accuracy", "f1", "auroc"})
    if name in WRITERS:
        assert metrics["perplexity"] == pytest.approx(math.exp(metrics["loss"]), rel=1e-4)
        assert metrics["bits_per_byte"] < metrics["bits_per_character"]  # there are accents
        if name != "bpe":
            assert metrics["bits_per_character"] == pytest.approx(metrics["loss"] / math.log(2), rel=1e-5)


def test_test_and_validate_repeat_the_summary(run, summary):
    assert evaluate(run, "test") == pytest.approx(summary["metrics"], rel=1e-5, abs=1e-6)
    assert evaluate(run / "model", "test", batch_size=3) == pytest.approx(summary["metrics"], rel=1e-5, abs=1e-6)
    best = summary["validation"]
    with (run / "metrics.csv").open() as file:
        rows = [float(row[f"val_{best['metric']}"]) for row in csv.DictReader(file) if row["val_loss"]]
    assert len(rows) == summary["epochs"]
    expected = (min if best["mode"] == "min" else max)(rows)
    assert evaluate(run, "val")[best["metric"]] == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_networks_are_trained(workdir, summaries):
    """A control for the tests above: the networks are better than untrained ones."""
    for name in WRITERS:
        assert summaries(name)["metrics"]["perplexity"] < 0.7 * info_of(workdir / name).vocab_size
    assert 0 < summaries("seq2seq")["metrics"]["exact_match"] < 1
    options = {"backbone": "fasttext(dim=8, hidden=8, dropout=0.0)", "algebra": "quaternion", "optimizer": {"lr": 0.05}}
    data, trainer = DATA["text"].format(workdir=workdir), TRAINER | {"max_epochs": 40}
    assert zoo.fit(**options, data=data, run_dir=str(workdir / "learned"), trainer=trainer)["metrics"]["accuracy"] == 1


# --- other texts ---


@some(*TABLES)
def test_other_tables_are_read_with_the_tokenizer_of_the_model(run, name, workdir, tmp_path):
    kind = RUNS[name][0]
    header, *rows = (workdir / f"other-{kind}.tsv").read_text().splitlines()
    folder = tmp_path / "data"
    folder.mkdir()
    strange = [line.replace("film", "xylophone").replace("plot", "zebra") for line in rows]
    for split, part in (("train", rows[:20]), ("test", strange)):
        (folder / f"{split}.tsv").write_text("\n".join([header, *part]) + "\n")
    measured, model = evaluate(run, "test", f"{kind}(path='{folder}')"), zoo.load(run)
    cells = [line.split("\t") for line in strange]
    columns = [model.tokenizer.encode([row[i] for row in cells]).padded() for i in range(len(cells[0]) - 1)]
    names = {"0": "irrelevant", "1": "relevant"} if kind == "ranking" else {}
    labels = torch.tensor([model.info.classes.index(names.get(row[-1], row[-1])) for row in cells])
    with torch.no_grad():
        loss = F.cross_entropy(model.net(*columns), labels)
    assert measured["loss"] == pytest.approx(loss.item(), abs=1e-6)


@some(*WRITERS)
def test_another_corpus_is_read_with_the_tokenizer_of_the_model(run, name, tmp_path):
    """All of it is evaluated, with unknown tokens for new words."""
    text = lines(7, 20).replace("noon", "n\N{SNOWMAN}\N{SNOWMAN}n")
    (tmp_path / "other.txt").write_text(text, encoding="utf-8")
    measured, model = evaluate(run, "test", f"corpus(path='{tmp_path / 'other.txt'}')"), zoo.load(run)
    tokens = torch.tensor(model.tokenizer.backend.encode(text, add_special_tokens=False).ids)
    assert ((tokens == 1).sum() == text.count("\N{SNOWMAN}")) == (name != "bpe")
    if name == "xl":  # which remembers: its streams are measured in tests/tasks
        return
    nats, length = 0.0, model.info.max_length
    with torch.no_grad():
        for start in range(0, len(tokens) - 1, length):
            block = tokens[start : start + length + 1]
            nats += F.cross_entropy(model.net(block[None, :-1])[0], block[1:], reduction="sum").item()
    assert measured["loss"] == pytest.approx(nats / (len(tokens) - 1), rel=1e-4)
    size = len(text.encode()) - 1 if name == "bpe" else len(text.replace("\N{SNOWMAN}", "?").encode()) - 1
    first = len(model.tokenizer.decode(tokens[:1].tolist()))
    assert measured["bits_per_byte"] == pytest.approx(nats / math.log(2) / (size + 1 - first), rel=1e-4)
    assert measured["bits_per_character"] == pytest.approx(nats / math.log(2) / (len(text) - first), rel=1e-4)


@some("seq2seq")
def test_other_pairs_are_read_with_the_tokenizers_of_the_model(run, workdir, tmp_path):
    rows = [("six one", "six un"), ("two seven", "deux sept"), ("three", "trois")]
    write_pairs(tmp_path / "other", train=translations(5, 9), test=rows)
    measured = evaluate(run, "test", f"parallel(path='{tmp_path / 'other'}', source=en, target=fr)")
    tokenizer = zoo.load(run).tokenizer
    data = ready(parallel(path=str(tmp_path / "other"), source="en", target="fr", tokenizer=tokenizer, batch_size=9))
    ((source, shifted), targets, *_) = next(iter(data.test_dataloader()))
    assert (source == 1).sum() == (targets == 1).sum() == 1
    with torch.no_grad():
        logits = zoo.load(run).net(source, shifted)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=0).item()
    assert measured["loss"] == pytest.approx(loss, rel=1e-5)
    assert measured["exact_match"] <= 2 / 3


def test_the_origin_of_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def source(spec: str) -> tuple[str, ...]:
        return origin(Spec.parse(spec), ParallelData.source_options)

    own = source("parallel(source=a, target=b)")
    assert source(f"parallel(max_length=9, target=b, source='{tmp_path / 'a'}')") == own
    others = ("parallel(source=a, target=c)", "parallel(source=c, target=b)", "parallel(path=a)", "corpus(path=a)")
    assert own not in {source(other) for other in others}
    assert source("corpus(path=a, max_length=9)") == source("corpus(path=./a)") != source("corpus(path=b)")


@some("text")
def test_rows_that_do_not_match_the_model(run, name, workdir, tmp_path):
    kind = RUNS[name][0]
    header, *rows = (workdir / f"{kind}.tsv").read_text().splitlines()
    changed = [*rows[:5], rows[5].rpartition("\t")[0] + "\tperhaps", *rows[6:]]
    (tmp_path / "label.tsv").write_text("\n".join([header, *changed]) + "\n")
    with raises("data", "label.tsv:7", "'perhaps'"):
        evaluate(run, "test", f"{kind}(path='{tmp_path / 'label.tsv'}')")
    long = [*rows[:4], "film " * 30 + rows[4], *rows[5:]]
    (tmp_path / "long.tsv").write_text("\n".join([header, *long]) + "\n")
    with raises("data", "long.tsv:6", info_of(run).max_length):
        evaluate(run, "test", f"{kind}(path='{tmp_path / 'long.tsv'}')")
    assert evaluate(run, "test", f"{kind}(path='{tmp_path / 'long.tsv'}', max_length=500)")["loss"] > 0


@pytest.mark.parametrize(
    ("name", "data", "named"),
    [
        ("text", "digits", []),
        ("text", "pairs(path='{workdir}/pairs.tsv')", ["pair_classification", "text_classification"]),
        ("gpt", "glosses(limit=60)", ["language_model"]),
        ("seq2seq", "glosses(task=language_model, limit=60)", ["language_model", "seq2seq"]),
    ],
    indirect=["name"],
)
def test_data_of_another_type(run, workdir, data, named):
    with raises("invalid", *named):
        evaluate(run, "test", data.format(workdir=workdir))


# --- backbones, tasks and data ---


def fitted(workdir: Path, name: str, **options) -> dict[str, object]:
    return zoo.fit(**options, run_dir=str(workdir / name), trainer=TRAINER | {"limit_train_batches": 1, "max_epochs": 1})


def test_the_task_chooses_the_recipe(tmp_path, monkeypatch):
    from zoo_datasets import glosses

    whole = glosses.sample
    monkeypatch.setattr(glosses, "sample", lambda split, limit: whole(split, 60))  # small, but for the user the whole
    made = fitted(tmp_path, "run", backbone=f"transformer({SIZE})", algebra="quaternion", task="seq2seq")
    assert (made["task"], made["data"]) == ("seq2seq", "glosses(task=seq2seq)")
    assert yaml.safe_load((tmp_path / "run/config.yaml").read_text())["optimizer"]["lr"] == 3e-3
    assert evaluate(tmp_path / "run", "test") == pytest.approx(made["metrics"], rel=1e-5)


def glosses(task: str, more: str = "") -> str:
    return f"glosses(task={task},limit=60{more})"


@pytest.mark.parametrize(
    ("backbone", "options", "code", "named"),
    [
        ("transformer", {"task": "seq2seq", "data": "glosses(limit=60)"}, "mismatch", ["--task seq2seq", "text_class"]),
        ("gpt", {"task": "seq2seq"}, "mismatch", ["--task seq2seq", "language_model"]),
        ("gpt", {"data": glosses("language_model", ",stream=true")}, "mismatch", ["running text in order", "transformer_xl"]),
        ("transformer", {"task": "seq2seq", "decoding": {"top_k": 5}}, "invalid", ["top_k=5"]),
        ("lstm", {"data": glosses("language_model")}, "mismatch", ["contains running text", "gpt"]),
        ("gpt", {"vectors": "glove.txt", "data": glosses("language_model")}, "mismatch", ["--vectors"]),
        ("gpt", {"data": glosses("language_model", ",batch_tokens=9")}, "unknown", ["batch_tokens"]),
    ],
    ids=str,
)
def test_invalid_combinations(tmp_path, monkeypatch, backbone, options, code, named):
    monkeypatch.chdir(tmp_path)
    Path("glove.txt").write_text("one 0.1 0.2\n")
    with raises(code, *named):
        fitted(tmp_path, "run", backbone=backbone, algebra="real", **options)
    assert not (tmp_path / "run").exists()


@some("xl")
def test_a_network_with_memory_needs_one_process(run, workdir, tmp_path):
    options = {"backbone": RUNS["xl"][1], "algebra": "real", "data": DATA["stream"].format(workdir=workdir)}
    several = {"accelerator": "cpu", "devices": 2}
    for call in (
        lambda: zoo.fit(**options, run_dir=str(tmp_path / "run"), trainer=several),
        lambda: evaluate(run, "val", trainer=several),
    ):
        with raises("invalid", "--trainer.devices 1"):
            call()
    assert not (tmp_path / "run").exists()


# --- the check of the outputs before training ---


class Zeros(nn.Module):
    """Returns zeros of a given shape."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, *inputs):
        return torch.zeros(self.shape)


TOKENS = torch.ones(2, 8, dtype=torch.int64)


@pytest.mark.parametrize(
    ("shape", "example", "every"),
    [
        ((2, 7, 30), TOKENS, True),
        ((2, 8, 29), TOKENS, True),
        ((2, 8, 30), TOKENS, False),
    ],
)
def test_outputs_of_the_wrong_shape(shape, example, every):
    with raises("mismatch", "gpt", list(shape[1:])):
        check_fit(Zeros(*shape), "gpt", example, 30, every)
