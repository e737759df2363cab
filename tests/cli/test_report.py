"""``zoo report``: files, output and errors."""

import csv

import pytest
import torch
from torch import nn

import zoo
from zoo.backbones.build import count
from zoo.checkpoint import save
from zoo.data.info import TextInfo
from zoo.data.tokenizer import train_tokenizer

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


def test_frequencies_are_written_to_the_run_folder(write, call, tmp_path):
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


@pytest.mark.parametrize(
    ("embedding", "words", "named"),
    [
        ("table", ("frequencies", "run"), "word sensitivities"),
        ("complex_order", ("frequencies", "vit-digits-quaternion"), "tokenizer"),
        ("complex_order", (), "REPORT"),
        ("complex_order", ("frequencies", "run", "--top", "3"), "--top"),
    ],
)
def test_invalid_report(write, refused, embedding, words, named):
    write(embedding)
    assert named in refused("report", *words)
