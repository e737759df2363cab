"""Runs on texts, pairs and rankings: what they leave behind is the model, its words included."""

import csv
import hashlib
import json
import re
from pathlib import Path
from shutil import copytree

import pytest
import torch
import yaml
from torch.nn import functional as F

import zoo
from tests.errors import raises
from zoo.data import ready
from zoo.data.info import TextInfo
from zoo.data.text.local import pairs, ranking, text
from zoo.errors import InputError
from zoo.training.checkpoint_io import AtomicCheckpointIO, checkpoint_files
from zoo.training.resume import newest

READ = {"text": text, "pairs": pairs, "ranking": ranking}
RUNS = {
    "text": ("text", {"backbone": "fasttext(dim=8, hidden=8)", "algebra": "quaternion"}),
    "order": ("text", {"backbone": "transformer(dim=8, depth=1, heads=2, ffn=8)", "algebra": "complex_order"}),
    "pairs": ("pairs", {"backbone": "decomposable_attention(dim=8)", "algebra": "phm(n=2)"}),
    "ranking": ("ranking", {"backbone": "lstm(dim=8, hidden=8)", "algebra": "complex"}),
}
TRAINER = {"max_epochs": 2, "accelerator": "cpu", "enable_progress_bar": False}
SHOWN = {"max_epochs": 1, "accelerator": "cpu", "limit_train_batches": 1}


def evaluate(run, split, data=None, **options):
    """Load a model and measure it."""
    return zoo.load(run).evaluate(data, split, **options)


@pytest.fixture(scope="module")
def place(tmp_path_factory, corpus) -> Path:
    """The folder of the data and of the runs of this module."""
    folder = tmp_path_factory.mktemp("text")
    for kind in READ:
        corpus(folder / f"{kind}.tsv", kind)
        corpus(folder / f"other-{kind}.tsv", kind, seed=1)
    return folder


@pytest.fixture(scope="module")
def summaries(place) -> dict[str, dict[str, object]]:
    made = {}
    for name, (kind, options) in RUNS.items():
        data, rate = f"{kind}(path='{place / f'{kind}.tsv'}')", {"lr": 0.02}
        made[name] = zoo.fit(**options, data=data, run_dir=str(place / name), trainer=TRAINER, optimizer=rate)
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


def test_the_tokenizer_is_a_file_of_the_model(run, name, place):
    kind, _ = RUNS[name]
    tokenizer = run / "model" / "tokenizer.json"
    listed = json.loads((run / "model" / "manifest.json").read_text())["files"]
    assert set(listed) == {"config.json", "model.safetensors", "README.md", "tokenizer.json"}
    assert listed["tokenizer.json"]["sha256"] == hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    assert tokenizer.read_text(encoding="utf-8") == ready(READ[kind](str(place / f"{kind}.tsv"))).tokenizer.to_json()


def test_the_facts_of_the_data_are_kept(run, name, place, summary):
    kind, _ = RUNS[name]
    data, config = ready(READ[kind](str(place / f"{kind}.tsv"))), zoo.checkpoint.read_config(run)
    assert TextInfo.from_dict(config["info"]) == data.info
    assert summary["data_sha256"] == data.info.sha256
    assert summary["task"] == config["task"] == data.task
    assert (summary["embedding"], summary["vectors"], config["embedding"]) == (None, None, None)


def test_the_word_table_is_counted_apart(run, summary):
    info = zoo.checkpoint.read_config(run)["info"]
    assert summary["parameters"]["embedding"] % info["vocab_size"] == 0
    assert 0 < summary["parameters"]["embedding"] < summary["parameters"]["total"] < summary["parameters"]["real_twin"] * 2
    assert zoo.count(zoo.load(run).net) == {key: summary["parameters"][key] for key in ("total", "embedding")}


def test_a_damaged_tokenizer_is_found(run, tmp_path):
    model = copytree(run / "model", tmp_path / "model")
    (model / "tokenizer.json").write_bytes((model / "tokenizer.json").read_bytes().replace(b'"film"', b'"firm"'))
    with raises("corrupt", "tokenizer.json"):
        zoo.load(model)
    (model / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"tokenizer\.json is missing"):
        evaluate(model, "test")


def test_a_table_of_its_own_is_cut_and_the_run_says_so(place, capsys):
    data = f"text(path='{place / 'text.tsv'}')"
    zoo.fit(backbone="fasttext(dim=8, hidden=8)", algebra="real", data=data, run_dir=str(place / "said"), trainer=SHOWN)
    first = capsys.readouterr().out.splitlines()[0]
    quiet = SHOWN | {"enable_progress_bar": False}
    zoo.fit(backbone="fasttext(dim=8, hidden=8)", algebra="real", data=data, run_dir=str(place / "quiet"), trainer=quiet)
    assert capsys.readouterr().out.startswith(f"{first}\n")
    sizes = re.search(r"text\.tsv\): (.*) rows \(one table without splits: part 0 of 10 .*\)$", first)
    assert sorted(sizes[1].split(", ")) == ["49 train", "5 val", "6 test"]


# --- the model ---


def test_the_loaded_network_is_the_best_epoch(run, summary):
    state = torch.load(summary["checkpoint"], weights_only=True)["state_dict"]
    net = zoo.load(run).net
    assert all(torch.equal(state[f"net.{name}"], value) for name, value in net.state_dict().items())
    assert not net.training


def test_the_loaded_network_answers_as_the_summary_says(run, name, place, summary):
    kind, _ = RUNS[name]
    loss, right, count = 0.0, 0.0, 0
    with torch.no_grad():
        for inputs, labels, *_ in ready(READ[kind](str(place / f"{kind}.tsv"), batch_size=5)).test_dataloader():
            logits = zoo.load(run).net(*inputs) if isinstance(inputs, tuple) else zoo.load(run).net(inputs)
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            right += (logits.argmax(-1) == labels).sum().item()
            count += len(labels)
    assert summary["metrics"]["loss"] == pytest.approx(loss / count, abs=1e-6)
    if kind != "ranking":
        assert summary["metrics"]["accuracy"] == pytest.approx(right / count)


def test_test_repeats_the_summary(run, summary):
    assert evaluate(run, "test") == pytest.approx(summary["metrics"], abs=1e-6)
    assert evaluate(run / "model", "test", batch_size=3) == pytest.approx(summary["metrics"], abs=1e-6)


def test_validate_repeats_the_best_epoch(run, name):
    metric = "map" if name == "ranking" else "accuracy"
    with (run / "metrics.csv").open() as file:
        rows = [float(row[f"val_{metric}"]) for row in csv.DictReader(file) if row["val_loss"]]
    assert len(rows) == 2
    assert evaluate(run, "val")[metric] == pytest.approx(max(rows), abs=1e-6)


def test_what_is_measured(summary, name):
    expected = {"loss", "map", "mrr", "top1"} if name == "ranking" else {"loss", "accuracy", "f1", "auroc"}
    assert summary["metrics"].keys() == expected
    assert all(0 <= value <= 1 for metric, value in summary["metrics"].items() if metric != "loss")


def test_something_is_learned(place):
    """The control of all numbers above: they are not those of a network that was never trained."""
    trainer = TRAINER | {"max_epochs": 40}
    made = zoo.fit(
        backbone="fasttext(dim=8, hidden=8, dropout=0.0)",
        algebra="quaternion",
        data=f"text(path='{place / 'text.tsv'}')",
        run_dir=str(place / "learned"),
        optimizer={"lr": 0.05},
        trainer=trainer,
    )
    assert made["metrics"]["accuracy"] == 1


def test_the_configuration_repeats_the_run_bit_for_bit(run, summary, tmp_path):
    config = yaml.safe_load((run / "config.yaml").read_text())
    again = zoo.fit(**config, run_dir=str(tmp_path / "again"))
    assert again["metrics"] == summary["metrics"]
    for file in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "again" / "model" / file).read_bytes() == (run / "model" / file).read_bytes(), file


# --- other data ---


def test_other_data_are_read_with_the_words_of_the_model(run, name, place, tmp_path):
    kind, _ = RUNS[name]
    path = place / f"other-{kind}.tsv"
    header, *lines = path.read_text().splitlines()
    folder = tmp_path / "data"
    folder.mkdir()
    strange = [line.replace("film", "xylophone").replace("plot", "zebra") for line in lines]
    for split, rows in (("train", lines[:20]), ("test", strange)):
        (folder / f"{split}.tsv").write_text("\n".join([header, *rows]) + "\n")
    found = evaluate(run, "test", f"{kind}(path='{folder}')")
    info = TextInfo.from_dict(zoo.checkpoint.read_config(run)["info"])
    tokenizer = ready(READ[kind](str(place / f"{kind}.tsv"))).tokenizer
    rows = [line.split("\t") for line in strange]
    columns = [tokenizer.encode([row[i] for row in rows]).padded() for i in range(len(rows[0]) - 1)]
    names = {"0": "irrelevant", "1": "relevant"} if kind == "ranking" else {}
    labels = torch.tensor([info.classes.index(names.get(row[-1], row[-1])) for row in rows])
    with torch.no_grad():
        loss = F.cross_entropy(zoo.load(run).net(*columns), labels)
    assert found["loss"] == pytest.approx(loss.item(), abs=1e-6)


def test_a_label_that_the_model_does_not_know(run, name, place, tmp_path):
    kind, _ = RUNS[name]
    lines = (place / f"{kind}.tsv").read_text().splitlines()
    lines[6] = lines[6].rpartition("\t")[0] + "\tperhaps"
    (tmp_path / "other.tsv").write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=r"other\.tsv:7: label 'perhaps'") as refusal:
        evaluate(run, "test", f"{kind}(path='{tmp_path / 'other.tsv'}')")
    assert len(str(refusal.value).splitlines()) == 1


def test_a_text_that_is_longer_than_the_model_reads(run, name, place, tmp_path):
    kind, _ = RUNS[name]
    header, *lines = (place / f"{kind}.tsv").read_text().splitlines()
    lines[4] = "film " * 30 + lines[4]
    (tmp_path / "other.tsv").write_text("\n".join([header, *lines]) + "\n")
    most = zoo.checkpoint.read_config(run)["info"]["max_length"]
    with pytest.raises(InputError, match=rf"other\.tsv:6: \d+ tokens, the model reads at most {most}"):
        evaluate(run, "test", f"{kind}(path='{tmp_path / 'other.tsv'}')")
    assert evaluate(run, "test", f"{kind}(path='{tmp_path / 'other.tsv'}', max_length=500)")["loss"] > 0


def test_data_of_another_kind(summaries, place):
    with pytest.raises(InputError, match="the model was trained with"):
        evaluate(place / "text", "test", "digits")
    with pytest.raises(InputError, match="has task = pair_classification, the model was trained with text_classification"):
        evaluate(place / "text", "test", f"pairs(path='{place / 'pairs.tsv'}')")
    lines = (place / "text.tsv").read_text().replace("\tno\n", "\tother\n").replace("\tyes\n", "\tsame\n")
    (place / "renamed.tsv").write_text(lines)
    with pytest.raises(InputError, match="has task = text_classification, the model was trained with pair_classification"):
        evaluate(place / "pairs", "test", f"text(path='{place / 'renamed.tsv'}')")


# --- going on ---


def test_a_run_on_text_goes_on_and_its_best_epoch_stays_the_best(run, summary, tmp_path):
    more = copytree(run, tmp_path / "more")
    last, state = newest(more)
    state["zoo_state"]["best"]["score"] = 2.0  # better than any accuracy to come
    AtomicCheckpointIO().save_checkpoint(state, last)
    made = zoo.fit(resume=str(more), trainer=TRAINER | {"max_epochs": 4})
    assert (made["epochs"], made["resumed_from"]) == (4, str(last))
    assert made["metrics"] == summary["metrics"]
    assert (more / "model/model.safetensors").read_bytes() == (run / "model/model.safetensors").read_bytes()


def test_going_on_begins_after_the_last_epoch_and_not_after_the_best(place, summaries, tmp_path):
    """With a metric that stands still for epochs the two are not the same."""
    config = yaml.safe_load((place / "text" / "config.yaml").read_text())
    config |= {"optimizer": {"lr": 1e-30, "weight_decay": 0.0}}  # every epoch is as good as the first
    still = zoo.fit(**config, run_dir=str(tmp_path / "still"))
    last = newest(tmp_path / "still")[1]
    assert (last["zoo_state"]["best"]["epoch"], last["zoo_state"]["position"], still["epochs"]) == (1, [2, 0], 2)
    zoo.fit(resume=str(tmp_path / "still"), trainer=TRAINER | {"max_epochs": 3})
    more = newest(tmp_path / "still")[1]
    assert more["global_step"] == last["global_step"] // 2 * 3
    names = {path.name for path in checkpoint_files(tmp_path / "still/checkpoints")}
    assert names == {"epoch-0001.ckpt", "epoch-0002.ckpt", "epoch-0003.ckpt"}  # the best and the newest two


@pytest.mark.parametrize(
    "change", [{"embedding": "complex_order"}, {"data": "text(path='other-text.tsv')"}, {"vectors": "none.txt"}], ids=str
)
def test_going_on_with_something_else_is_refused(place, summaries, change, monkeypatch):
    monkeypatch.chdir(place)
    (place / "none.txt").write_text("film 1 2 3\n")
    before = sorted((place / "text").rglob("*"))
    (key,) = change
    with pytest.raises(InputError, match=f"has {key}="):
        zoo.fit(resume=str(place / "text"), **change, trainer={"max_epochs": 5})
    assert sorted((place / "text").rglob("*")) == before


# --- what a run can be told ---


def test_attention_alone_can_be_hypercomplex(place):
    data = f"text(path='{place / 'text.tsv'}')"
    totals = {}
    for algebra, scope in (("real", "all"), ("quaternion", "attention"), ("quaternion", "all")):
        made = zoo.fit(
            backbone="transformer(dim=8, depth=1, heads=2, ffn=8)",
            algebra=algebra,
            scope=scope,
            data=data,
            run_dir=str(place / f"{algebra}-{scope}"),
            trainer=TRAINER | {"limit_train_batches": 1, "max_epochs": 1},
        )
        totals[algebra, scope] = made["parameters"]["total"]
        assert zoo.count(zoo.load(made["run_dir"]).net)["total"] == made["parameters"]["total"]
        assert evaluate(made["run_dir"], "test") == pytest.approx(made["metrics"], abs=1e-6)
    matrices = 4 * 8 * 8, 2 * 8 * 8  # q, k, v and out; the two of the feed-forward
    assert totals["real", "all"] - totals["quaternion", "attention"] == matrices[0] * 3 / 4
    assert totals["quaternion", "attention"] - totals["quaternion", "all"] == matrices[1] * 3 / 4


def test_an_embedding_of_another_kind(place, corpus):
    made = zoo.fit(
        backbone="cnn(dim=8, filters=4)",
        algebra="quaternion",
        embedding="complex_order(frequency=dimension)",
        data=f"text(path='{place / 'text.tsv'}')",
        run_dir=str(place / "embedded"),
        trainer=TRAINER | {"max_epochs": 1},
    )
    assert made["embedding"] == "complex_order(frequency=dimension)"
    assert "hypercomplex-zoo" in made["versions"]
    assert yaml.safe_load((place / "embedded/config.yaml").read_text())["embedding"] == made["embedding"]
    assert zoo.checkpoint.read_config(place / "embedded")["embedding"] == made["embedding"]
    assert any(hasattr(module, "frequencies") for module in zoo.load(place / "embedded").net.modules())
    assert evaluate(place / "embedded", "test") == pytest.approx(made["metrics"], abs=1e-6)


def test_a_run_on_vectors(tmp_path):
    data = "hamilton(rows=200)"
    made = zoo.fit(backbone="linear", algebra="quaternion", data=data, run_dir=str(tmp_path / "run"), trainer=TRAINER)
    assert made["metrics"].keys() == {"loss", "mse"}
    assert evaluate(tmp_path / "run", "test") == pytest.approx(made["metrics"], abs=1e-6)
    assert {path.name for path in (tmp_path / "run/model").iterdir()} == {
        "config.json",
        "model.safetensors",
        "manifest.json",
        "README.md",
    }


def test_new_data_are_measured_whole(summaries, place, corpus, tmp_path):
    """All rows of a file that the model has never seen, not the tenth that training would have held out."""
    run, file = place / "text", corpus(tmp_path / "new.tsv", "text")
    data = ready(text(str(file)))
    rows = [row for table in data.splits.values() for row in zip(table.texts[0], table.labels, strict=True)]
    said = list(zoo.load(run).predict([words for words, _ in rows]))
    right = sum(row["label"] == label for row, (_, label) in zip(said, rows, strict=True))
    assert evaluate(run, "test", f"text(path='{file}')")["accuracy"] == pytest.approx(right / len(rows))


def test_the_rows_it_was_trained_on_are_not_measured_whatever_the_options(summaries, place):
    """The same file with another option is no new data: its test rows stay the fold that was held out."""
    run = place / "text"
    assert evaluate(run, "test", f"text(path='{place / 'text.tsv'}', max_length=500)") == pytest.approx(evaluate(run, "test"))


@pytest.mark.parametrize("option", ["tokenizer=bpe", "lowercase=false", "vocab=50"])
def test_other_data_do_not_choose_how_the_model_reads(summaries, place, option):
    with pytest.raises(InputError, match=f"sets {option.split('=')[0]}, but the model has a tokenizer of its own"):
        evaluate(place / "text", "test", f"text(path='{place / 'other-text.tsv'}', {option})")
