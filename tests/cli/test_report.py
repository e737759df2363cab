"""``zoo report``: files in the run's folder, and one line where there is nothing to report."""

import csv
import json

import pytest
import torch
from torch import nn

import zoo
from zoo.backbones.build import count
from zoo.checkpoint import save
from zoo.data.info import TextInfo
from zoo.data.text.tokenizer import train_tokenizer

TEXTS = ["a good film , not a bad one", "a bad film [ not good ]"]


@pytest.fixture
def write(tmp_path):
    """Write a run with a model over an embedding."""

    def run(embedding: str, files: bool = True) -> nn.Module:
        tokenizer = train_tokenizer("space", TEXTS, 50, True, 1)
        info = TextInfo(
            classes=("bad", "good"),
            vocab_size=tokenizer.vocab_size,
            max_length=8,
            sizes={"train": 2},
            sha256="ab",
        )
        config = {"backbone": "fasttext(dim=8)", "algebra": "complex_order", "scope": "all", "init": "variance"}
        config |= {"task": "text_classification", "data": "text", "embedding": embedding, "info": info.to_dict()}
        net = zoo.backbone(config["backbone"], config["algebra"], embedding=embedding, **info.model_kwargs)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(torch.randn_like(parameter))
        summary = config | {"versions": {"torch": "2"}, "metrics": {}, "epochs": 1, "seed": 0, "parameters": count(net)}
        summary["parameters"]["real_twin"] = 100
        save(tmp_path / "run" / "model", net, config, summary, {"tokenizer.json": tokenizer.to_json()} if files else {})
        return net

    return run


def test_words_are_ranked_in_the_folder_of_the_run(write, call, tmp_path):
    net = write("complex_order")
    code, out, err = call("report", "frequencies(top=2)", "run")
    assert (code, err) == (0, "")
    assert "written to run: frequencies.csv, frequencies.png" in out
    with (tmp_path / "run/frequencies.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["word"] for row in rows} == set(" ".join(TEXTS).split())
    w = next(module.frequencies() for module in net.modules() if hasattr(module, "frequencies"))
    delta = sorted(w[2:].abs().mean(1).tolist(), reverse=True)
    assert [float(row["delta"]) for row in rows] == pytest.approx(delta)
    assert rows[0]["word"] in out
    assert (tmp_path / "run/frequencies.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"model", "frequencies.csv", "frequencies.png"}


def test_the_same_as_json(write, call):
    write("complex_order(frequency=dimension)")
    code, out, _ = call("report", "frequencies(top=3)", "run", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["words"] == len(set(" ".join(TEXTS).split()))
    assert len(found["most"]) == len(found["least"]) == 3
    assert found["most"][0]["delta"] >= found["most"][1]["delta"] >= found["least"][1]["delta"] >= found["least"][0]["delta"]
    assert found["csv"].endswith("run/frequencies.csv")


@pytest.mark.parametrize("embedding", ["table", "complex_vanilla", "complex_order(frequency=word)"])
def test_an_embedding_without_frequencies_of_words(write, refused, embedding):
    write(embedding)
    assert refused("report", "frequencies", "run").startswith("this model has no word sensitivities")


@pytest.mark.parametrize(
    ("spec", "said"), [("frequencies(top=0)", "top=0"), ("frequencies(top=x)", "top=x"), ("frequencies(to=3)", "top")]
)
def test_an_option_that_is_wrong(write, refused, spec, said):
    write("complex_order")
    assert said in refused("report", spec, "run")


def test_a_report_on_words_of_a_model_of_images(call, refused):
    fit = ("fit", "--backbone", "vit(dim=16,depth=1)", "--algebra", "complex", "--trainer.max_epochs", 1)
    assert call(*fit, "--trainer.limit_train_batches", 1, "--trainer.accelerator", "cpu", "--run-dir", "run").code == 0
    assert refused("report", "frequencies", "run") == "frequencies reports on the words of a model of text; this one has none"


def test_a_model_without_its_words(write, refused):
    write("complex_order", files=False)
    assert "cannot read run/model/tokenizer.json: No such file" in refused("report", "frequencies", "run")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "report"),
        (("frequencies",), "RUN"),
        (("frequency", "run"), "unknown report 'frequency': did you mean 'frequencies'?"),
        (("frequencies", "nowhere"), "there is no folder 'nowhere'"),
        (("frequencies(top=x)", "nowhere"), "there is no folder 'nowhere'"),
        (("frequencies", "run", "--top", "3"), "unknown flag --top"),
    ],
)
def test_bad_input_is_one_line(refused, words, said):
    assert said in refused("report", *words)
