"""Runs of networks that write: what they leave behind, measured again, repeated, gone on with, and on other texts."""

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
from zoo.data.parallel.files import parallel
from zoo.data.parallel.module import ParallelData
from zoo.errors import InputError
from zoo.inference.evaluation import origin
from zoo.registry import Spec
from zoo.tasks import task_type
from zoo.training.average import average
from zoo.training.options import Average
from zoo.training.resume import newest

ENGLISH = ["one", "two", "three", "four", "five", "six"]
FRENCH = dict(zip(ENGLISH, ["un", "deux", "trois", "quatre", "cinq", "six"], strict=True))
WORDS = ["the", "café", "was", "naïve", "and", "old,", "a", "señor", "ate", "œufs", "at", "noon"]
TRAINER = {"max_epochs": 2, "accelerator": "cpu", "enable_progress_bar": False, "limit_train_batches": 12}
SIZE = "dim=16, depth=1, heads=2, ffn=32"
RUNS = {
    "gpt": {"backbone": f"gpt({SIZE}, dropout=0.1)", "algebra": "quaternion"},
    "xl": {"backbone": f"transformer_xl({SIZE})", "algebra": "phm(n=2)", "embedding": "complex_order"},
    "bpe": {"backbone": f"gpt({SIZE}, positions=rotary)", "algebra": "complex"},
    "pairs": {"backbone": f"transformer({SIZE})", "algebra": "quaternion"},
}
DATA = {
    "gpt": "corpus(path='{place}/text.txt', max_length=32)",
    "xl": "corpus(path='{place}/text.txt', max_length=16)",
    "bpe": "corpus(path='{place}/text.txt', max_length=16, tokenizer=bpe, vocab=300)",
    "pairs": "parallel(path='{place}/en-fr', source=en, target=fr, tokenizer=space)",
}


def evaluate(run, split, data=None, **options):
    """Load a model and measure it."""
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
def place(tmp_path_factory) -> Path:
    """The folder of the data and of the runs of this module."""
    folder = tmp_path_factory.mktemp("writing")
    (folder / "text.txt").write_text(lines(0), encoding="utf-8")
    write_pairs(folder / "en-fr", train=translations(0, 200), val=translations(1, 25), test=translations(2, 25))
    return folder


@pytest.fixture(scope="module")
def summaries(place) -> dict[str, dict[str, object]]:
    made = {}
    for name, options in RUNS.items():
        trainer = TRAINER | ({"max_epochs": 16} if name == "pairs" else {})
        options = options | {"data": DATA[name].format(place=place), "batch_size": 8, "optimizer": {"lr": 0.01}}
        made[name] = zoo.fit(**options, run_dir=str(place / name), trainer=trainer)
    return made


@pytest.fixture(params=RUNS)
def name(request) -> str:
    return request.param


@pytest.fixture
def summary(summaries, name):
    return summaries[name]


@pytest.fixture
def run(summaries, place, name) -> Path:
    return place / name


# --- the folder ---


def test_the_tokenizer_is_a_file_of_the_model(run):
    listed = json.loads((run / "model" / "manifest.json").read_text())["files"]
    assert set(listed) == {"config.json", "model.safetensors", "README.md", "tokenizer.json"}
    assert listed["tokenizer.json"]["sha256"] == hashlib.sha256((run / "model/tokenizer.json").read_bytes()).hexdigest()


def test_the_facts_of_the_data_are_kept(run, name, summary):
    config = zoo.checkpoint.read_config(run)
    info = task_type(config["task"])[0].info_type.from_dict(config["info"])
    assert summary["task"] == config["task"] == ("seq2seq" if name == "pairs" else "language_model")
    assert info.inputs == {"xl": "token_stream", "pairs": "source_target"}.get(name, "tokens")
    assert summary["data_sha256"] == info.sha256
    assert summary["parameters"]["embedding"] % info.vocab_size == 0
    assert zoo.count(zoo.load(run).net) == {key: summary["parameters"][key] for key in ("total", "embedding")}


# --- measured again ---


def test_what_is_measured(summary, name):
    metrics = summary["metrics"]
    if name == "pairs":
        assert metrics.keys() == {"loss", "exact_match", "bleu", "chrf"}
        assert 0 < metrics["exact_match"] < 1
        assert 1 < metrics["chrf"] < 100
    else:
        assert metrics.keys() == {"loss", "perplexity", "bits_per_character", "bits_per_byte"}
        assert metrics["perplexity"] == pytest.approx(math.exp(metrics["loss"]), rel=1e-4)
        assert metrics["bits_per_byte"] < metrics["bits_per_character"]  # there are accents
        if name != "bpe":
            assert metrics["bits_per_character"] == pytest.approx(metrics["loss"] / math.log(2), rel=1e-5)


def test_test_repeats_the_summary(run, summary):
    assert evaluate(run, "test") == pytest.approx(summary["metrics"], rel=1e-5)
    assert evaluate(run / "model", "test", batch_size=3) == pytest.approx(summary["metrics"], rel=1e-5)


def test_validate_repeats_the_best_epoch(run):
    with (run / "metrics.csv").open() as file:
        rows = [float(row["val_loss"]) for row in csv.DictReader(file) if row["val_loss"]]
    assert len(rows) > 1
    assert evaluate(run, "val")["loss"] == pytest.approx(min(rows), rel=1e-5)


def test_the_loaded_network_is_the_best_epoch(run, summary):
    state = torch.load(summary["checkpoint"], weights_only=True)["state_dict"]
    net = zoo.load(run).net
    assert all(torch.equal(state[f"net.{name}"], value) for name, value in net.state_dict().items())
    assert not net.training


def test_the_configuration_repeats_the_run_bit_for_bit(run, summary, tmp_path):
    config = yaml.safe_load((run / "config.yaml").read_text())
    again = zoo.fit(**config, run_dir=str(tmp_path / "again"))
    assert again["metrics"] == summary["metrics"]
    for file in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "again" / "model" / file).read_bytes() == (run / "model" / file).read_bytes(), file


def test_a_run_that_goes_on_is_one_that_never_stopped(run, tmp_path):
    config = yaml.safe_load((run / "config.yaml").read_text())
    spec = registry.Spec.parse(config["backbone"])
    config["backbone"] = str(registry.Spec(spec.name, {**spec.options, "dropout": 0.0}))
    config["schedule"] = {"name": "constant", "warmup": 0.0}
    weights = []
    for name, epochs, start in (("whole", 3, None), ("half", 1, None), ("rest", 3, "half")):
        folder = tmp_path / (start or name)
        given = {"resume": str(folder)} if start else config | {"run_dir": str(folder)}
        zoo.fit(**given | {"trainer": TRAINER | {"max_epochs": epochs}})
        weights.append(newest(folder)[1]["state_dict"])
    whole, half, rest = weights
    assert all(torch.allclose(whole[key], rest[key], atol=1e-6) for key in whole)
    assert not all(torch.allclose(whole[key], half[key], atol=1e-3) for key in whole)


def test_a_beam_is_measured_when_one_is_asked_for(place, summaries):
    greedy, beam = summaries["pairs"]["metrics"], evaluate(place / "pairs", "test", beam=4)
    assert beam["loss"] == pytest.approx(greedy["loss"], rel=1e-6)
    short = evaluate(place / "pairs", "test", length=1)
    assert short["chrf"] < greedy["chrf"]
    assert short["loss"] == pytest.approx(greedy["loss"], rel=1e-6)
    with pytest.raises(InputError, match="beam=0: a beam has from 1 to 256 hypotheses"):
        evaluate(place / "pairs", "test", beam=0)


@pytest.mark.parametrize("name", ["gpt", "xl", "bpe"], indirect=True)
def test_something_is_learned(run, summary):
    """The control of all numbers above: they are not those of a network that was never trained."""
    assert summary["metrics"]["perplexity"] < 0.7 * zoo.checkpoint.read_config(run)["info"]["vocab_size"]


def test_the_mean_of_the_last_weights(place, name, tmp_path):
    options = RUNS[name] | {"data": DATA[name].format(place=place), "batch_size": 8, "keep": 2}
    zoo.fit(**options, run_dir=str(tmp_path / "run"), trainer=TRAINER)
    made = average(tmp_path / "run", Average(last=2, trainer={"accelerator": "cpu"}))
    found = evaluate(made["folder"], "test")
    assert found == pytest.approx(made["metrics"], rel=1e-5)


# --- other texts ---


@pytest.mark.parametrize("name", ["gpt", "xl", "bpe"], indirect=True)
def test_another_corpus_is_read_with_the_words_of_the_model(run, name, tmp_path):
    """All of it is measured, and what the model has never seen is one unknown token to it."""
    text = lines(7, 20).replace("noon", "n\N{SNOWMAN}\N{SNOWMAN}n")
    (tmp_path / "other.txt").write_text(text, encoding="utf-8")
    found = evaluate(run, "test", f"corpus(path='{tmp_path / 'other.txt'}')")
    config = zoo.checkpoint.read_config(run)
    info = task_type(config["task"])[0].info_type.from_dict(config["info"])
    tokenizer = zoo.load(run).tokenizer
    tokens = torch.tensor(tokenizer.backend.encode(text, add_special_tokens=False).ids)
    assert ((tokens == 1).sum() == text.count("\N{SNOWMAN}")) == (name != "bpe")
    if name != "xl":  # which remembers: its streams are measured in tests/tasks
        nats, net = 0.0, zoo.load(run).net
        with torch.no_grad():
            for start in range(0, len(tokens) - 1, info.max_length):
                block = tokens[start : start + info.max_length + 1]
                nats += F.cross_entropy(net(block[None, :-1])[0], block[1:], reduction="sum").item()
        assert found["loss"] == pytest.approx(nats / (len(tokens) - 1), rel=1e-4)
        bits = nats / math.log(2)
        size = len(text.encode()) - 1 if name == "bpe" else len(text.replace("\N{SNOWMAN}", "?").encode()) - 1
        first = len(tokenizer.decode(tokens[:1].tolist()))
        assert found["bits_per_byte"] == pytest.approx(bits / (size + 1 - first), rel=1e-4)
        assert found["bits_per_character"] == pytest.approx(bits / (len(text) - first), rel=1e-4)


def test_other_pairs_are_read_with_the_words_of_the_model(place, summaries, tmp_path):
    rows = [("six one", "six un"), ("two seven", "deux sept"), ("three", "trois")]
    write_pairs(tmp_path / "other", train=translations(5, 9), test=rows)
    found = evaluate(place / "pairs", "test", f"parallel(path='{tmp_path / 'other'}', source=en, target=fr)")
    own = ready(parallel(path=str(place / "en-fr"), source="en", target="fr", tokenizer="space"))
    data = ready(parallel(path=str(tmp_path / "other"), source="en", target="fr", tokenizer=own.tokenizer, batch_size=9))
    ((source, shifted), targets, *_) = next(iter(data.test_dataloader()))
    assert (source == 1).sum() == (targets == 1).sum() == 1
    with torch.no_grad():
        logits = zoo.load(place / "pairs").net(source, shifted)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=0).item()
    assert found["loss"] == pytest.approx(loss, rel=1e-5)
    assert found["exact_match"] <= 2 / 3


def test_new_pairs_are_measured_whole(place, summaries, tmp_path):
    """All of two files that the model has never seen, not what training would have held out."""
    write_pairs(tmp_path / "new", all=translations(9, 30))
    spec = f"parallel(source='{tmp_path / 'new/all.en'}', target='{tmp_path / 'new/all.fr'}')"
    write_pairs(tmp_path / "split", train=translations(5, 9), test=translations(9, 30))
    expected = evaluate(place / "pairs", "test", f"parallel(path='{tmp_path / 'split'}', source=en, target=fr)")
    assert evaluate(place / "pairs", "test", spec) == pytest.approx(expected, rel=1e-5)


def test_where_data_come_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def source(spec: str) -> tuple[str, ...]:
        return origin(Spec.parse(spec), ParallelData.source_options)

    own = source("parallel(source=a, target=b)")
    assert source(f"parallel(max_length=9, target=b, source='{tmp_path / 'a'}')") == own
    others = ("parallel(source=a, target=c)", "parallel(source=c, target=b)", "parallel(path=a)", "corpus(path=a)")
    assert own not in {source(other) for other in others}
    assert source("corpus(path=a, max_length=9)") == source("corpus(path=./a)") != source("corpus(path=b)")


@pytest.mark.parametrize(
    ("name", "option"), [("gpt", "tokenizer=bpe"), ("gpt", "vocab=50"), ("pairs", "lowercase=true")], indirect=["name"]
)
def test_other_data_do_not_choose_how_the_model_reads(run, name, place, option):
    spec = DATA[name].format(place=place)
    spec = f"{spec.removesuffix(')')}, {option})"
    with pytest.raises(InputError, match=f"sets {option.split('=')[0]}, but the model has a tokenizer of its own"):
        evaluate(run, "test", spec)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("gpt", "digits", "trained with"),
        ("gpt", "glosses(limit=60)", "language_model"),
        ("gpt", "glosses(task=seq2seq, limit=60)", "has task = seq2seq, the model was trained with language_model"),
        (
            "pairs",
            "glosses(task=language_model, limit=60)",
            "has task = language_model, the model was trained with seq2seq",
        ),
    ],
    indirect=["name"],
)
def test_data_of_another_kind(run, data, said):
    with pytest.raises(InputError, match=said) as refusal:
        evaluate(run, "test", data)
    assert len(str(refusal.value).splitlines()) == 1


# --- what belongs together ---


def fitted(place: Path, name: str, **options) -> dict[str, object]:
    return zoo.fit(**options, run_dir=str(place / name), trainer=TRAINER | {"limit_train_batches": 1, "max_epochs": 1})


def test_the_task_chooses_the_recipe(tmp_path, monkeypatch):
    from zoo_datasets import glosses

    whole = glosses.wordnet.sample
    monkeypatch.setattr(glosses.wordnet, "sample", lambda split, limit: whole(split, 60))  # small, but for the user the whole
    made = fitted(tmp_path, "run", backbone=f"transformer({SIZE})", algebra="quaternion", task="seq2seq")
    assert (made["task"], made["data"]) == ("seq2seq", "glosses(task=seq2seq)")
    assert made["metrics"].keys() == {"loss", "exact_match", "bleu", "chrf"}
    config = yaml.safe_load((tmp_path / "run/config.yaml").read_text())
    assert config["optimizer"]["lr"] == 3e-3
    assert evaluate(tmp_path / "run", "test") == pytest.approx(made["metrics"], rel=1e-5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"backbone": "transformer", "task": "seq2seq", "data": "glosses(limit=60)"}, "is for text_classification"),
        ({"backbone": "transformer", "task": "translation"}, "unknown task 'translation': installed: .*seq2seq"),
        ({"backbone": "transformer", "task": "seqtoseq"}, "unknown task 'seqtoseq': did you mean 'seq2seq'"),
        ({"backbone": "gpt", "task": "seq2seq"}, "--task seq2seq: .* is for language_model; transformer can"),
        (
            {"backbone": "gpt", "data": "glosses(limit=60)"},
            "gpt reads running text, and 'glosses.limit=60.' holds texts; .*transformer can",
        ),
        ({"backbone": "gpt", "data": "glosses(task=pairs,limit=60)"}, "gpt reads running text, .* holds pairs of texts;"),
        ({"backbone": "gpt", "data": "glosses(task=seq2seq,limit=60)"}, "holds texts and their answers; transformer can"),
        (
            {"backbone": "transformer_xl", "data": "glosses(limit=60)"},
            "transformer_xl reads running text in order, .* holds texts;",
        ),
        (
            {"backbone": "gpt", "data": "glosses(task=language_model,limit=60,stream=true)"},
            "gpt reads running text, and .* holds running text in order; transformer_xl can",
        ),
        (
            {"backbone": "transformer", "task": "seq2seq", "decoding": {"top_k": 5}},
            "top_k=5, but nothing is drawn at a temperature of 0",
        ),
        (
            {"backbone": "transformer(positions=learned)", "task": "seq2seq", "decoding": {"length": 9999}},
            "length=9999: this network has positions for answers of",
        ),
        (
            {"backbone": "transformer_xl", "data": "glosses(task=seq2seq,limit=60)"},
            "transformer_xl reads running text in order, .* holds texts and their answers; transformer can",
        ),
        ({"backbone": "lstm", "data": "glosses(task=language_model,limit=60)"}, "holds running text; .*gpt"),
        ({"backbone": "transformer", "data": "glosses(task=language_model,limit=60)"}, "holds running text; .*gpt"),
        ({"backbone": "gpt", "vectors": "glove.txt", "data": "glosses(task=language_model,limit=60)"}, "--vectors is for text"),
        ({"backbone": "gpt", "data": "glosses(task=language_model,limit=60,batch_tokens=9)"}, "has no option batch_tokens"),
        ({"backbone": "vit", "embedding": "table"}, "--embedding is for text"),
    ],
    ids=str,
)
def test_what_does_not_belong_together_is_one_line(tmp_path, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    Path("glove.txt").write_text("one 0.1 0.2\n")
    with pytest.raises(InputError, match=said) as refusal:
        fitted(tmp_path, "run", algebra="real", **options)
    assert len(str(refusal.value).splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["gpt", "xl"])
def test_a_run_that_goes_on_in_the_middle_of_an_epoch_is_one_that_never_stopped(place, name, tmp_path):
    options = {"backbone": RUNS[name]["backbone"].replace(", dropout=0.1", ""), "algebra": "real"}
    options |= {"data": DATA[name].format(place=place), "batch_size": 8, "schedule": {"name": "constant", "warmup": 0.0}}
    weights = []
    for run, steps, start in (("whole", 8, None), ("half", 4, None), ("rest", 8, "half")):
        trainer = {"max_steps": steps, "val_check_interval": 4, "limit_val_batches": 1, "accelerator": "cpu"}
        folder = tmp_path / (start or run)
        given = {"resume": str(folder)} if start else options | {"run_dir": str(folder)}
        zoo.fit(**given, trainer=trainer | {"enable_progress_bar": False})
        checkpoint = newest(folder)[1]
        assert (checkpoint["zoo_state"]["position"], checkpoint["global_step"]) == ([0, steps], steps)
        weights.append(checkpoint["state_dict"])
    whole, half, rest = weights
    assert all(torch.allclose(whole[key], rest[key], atol=1e-6) for key in whole)
    assert not all(torch.allclose(whole[key], half[key], atol=1e-3) for key in whole)


def test_a_memory_is_of_one_process(summaries, place, tmp_path):
    options = RUNS["xl"] | {"data": DATA["xl"].format(place=place), "run_dir": str(tmp_path / "run")}
    several = {"accelerator": "cpu", "devices": 2}
    for call in (lambda: zoo.fit(**options, trainer=several), lambda: evaluate(place / "xl", "val", trainer=several)):
        with pytest.raises(InputError, match=r"reads its text in order, in one process: use --trainer\.devices 1"):
            call()
    assert not (tmp_path / "run").exists()


def test_a_stream_is_for_networks_with_a_memory(summaries, place):
    """Nobody has to say so: the backbone does."""
    streams = {name: zoo.checkpoint.read_config(place / name)["info"]["stream"] for name in ("gpt", "xl")}
    assert streams == {"gpt": False, "xl": True}
    for name in streams:
        assert "stream" not in yaml.safe_load((place / name / "config.yaml").read_text())["data"]


# --- one forward pass before any work begins ---


class Answers(nn.Module):
    """Answers with zeros of this shape, whatever it is given."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, *inputs):
        return torch.zeros(self.shape)


TOKENS = torch.ones(2, 8, dtype=torch.int64)


def test_what_answers_at_every_token_is_told_from_what_answers_once():
    check_fit(Answers(2, 8, 30), "gpt", TOKENS, 30, every=True)
    check_fit(Answers(2, 5, 30), "transformer", (TOKENS, TOKENS[:, :5]), 30, every=True)
    check_fit(Answers(2, 30), "lstm", TOKENS, 30)
    check_fit(Answers(2, 30), "lstm", (TOKENS, TOKENS[:, :5]), 30)


@pytest.mark.parametrize(
    ("shape", "every"), [((2, 30), True), ((2, 8, 29), True), ((2, 7, 30), True), ((1, 8, 30), True), ((2, 8, 30), False)]
)
def test_outputs_of_another_shape(shape, every):
    with raises("mismatch", "gpt", list(shape[1:]), "30 numbers"):
        check_fit(Answers(*shape), "gpt", TOKENS, 30, every)


def test_the_length_of_the_output_is_that_of_the_last_input():
    with raises("mismatch", "transformer", [8, 30]):
        check_fit(Answers(2, 8, 30), "transformer", (TOKENS, TOKENS[:, :5]), 30, every=True)
