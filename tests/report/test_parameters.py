"""The reports: parameters by layer with their sums, and sweeps with means over seeds."""

import json
import shlex
from pathlib import Path
from statistics import mean, stdev

import pytest
import torch
from zoo_reports.sweep import sweep

import zoo
from tests.errors import raises
from zoo.backbones.build import equal_size
from zoo.cli import main
from zoo.reports import by_layer, layer_table
from zoo.training.folder import read_summary
from zoo.training.options import Fit
from zoo.training.summary import next_commands

INFO = {"in_channels": 1, "image_size": 8, "num_classes": 10}
TINY = "vit(dim=32,depth=1)"


def table_of(algebra: str = "quaternion", scope: str = "all", backbone: str = TINY) -> dict:
    return layer_table(Fit(backbone, algebra, "digits", scope), INFO)


@pytest.mark.parametrize("algebra", ["quaternion", "phm-4", "phm(n=4,shared=true)"])
@pytest.mark.parametrize("scope", ["attention", "all+head+stem"])
def test_the_rows_sum_to_the_totals(algebra, scope):
    table = table_of(algebra, scope)
    net = zoo.backbone(TINY, algebra, scope=scope, **INFO)
    assert sum(row["parameters"] for row in table["layers"]) == table["total"]["total"] == zoo.count(net)["total"]
    twin = zoo.backbone(TINY, "real", **INFO)
    assert sum(row["real_twin"] for row in table["layers"]) == table["total"]["real_twin"] == zoo.count(twin)["total"]


def test_the_first_of_the_layers_that_share_a_learned_product_counts_it():
    net = zoo.backbone(TINY, "phm(n=4,shared=true)", scope="attention", **INFO)
    assert sum(row.real for row in zoo.report(net).layers) == zoo.count(zoo.backbone(TINY, "real", **INFO))["total"]


def test_a_matrix_has_a_quarter_of_the_weights_over_the_quaternions():
    rows = {row["layer"]: row for row in table_of()["layers"]}
    fc1 = rows["blocks.0.mlp.fc1"]
    assert fc1["real_twin"] == 32 * 128 + 128
    assert fc1["parameters"] == 32 * 128 // 4 + 128  # the biases are real
    for stem in ("patch_embed.proj", "head", "norm"):
        assert rows[stem]["parameters"] == rows[stem]["real_twin"]


def test_learned_algebras_are_counted_with_their_layer():
    fixed, learned = ({row["layer"]: row["parameters"] for row in table_of(a)["layers"]} for a in ("quaternion", "phm-4"))
    assert learned["blocks.0.mlp.fc1"] == fixed["blocks.0.mlp.fc1"] + 4**3
    assert learned.keys() == fixed.keys()


def test_frozen_parameters_are_not_counted():
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 4))
    net[1].bias.requires_grad_(False)
    assert by_layer(net) == {"0": 9, "1": 12}


@pytest.mark.parametrize("algebra", ["real", "quaternion", "octonion", "phm-4"])
@pytest.mark.parametrize(
    ("backbone", "info"),
    [
        (TINY, INFO),
        ("timm/resnet10t", INFO | {"image_size": 32}),
        ("lstm(dim=24)", {"vocab_size": 20, "max_length": 9, "num_classes": 3}),
    ],
)
def test_a_report_compares_every_layer_with_the_real_network(backbone, info, algebra):
    net, twin = (zoo.backbone(backbone, name, **info) for name in (algebra, "real"))
    report = zoo.report(net)
    assert {row.layer: row.parameters for row in report.layers} == by_layer(net)
    assert {row.layer: row.real for row in report.layers} == by_layer(twin)
    total = str(report).splitlines()[-1].split()
    assert total[:3] == ["total", f"{zoo.count(twin)['total']:,}", f"{zoo.count(net)['total']:,}"]


def test_a_report_says_why_layers_are_real():
    reasons = {row.layer: row.reason for row in zoo.report(zoo.backbone(TINY, "quaternion", **INFO)).layers}
    assert reasons["patch_embed.proj"] == "stem"
    assert reasons["head"] == "head"
    assert reasons["blocks.0.mlp.fc1"] == ""


def test_real_layers_have_a_reason():
    assert table_of()["stayed_real"] == {"stem": ["patch_embed.proj"], "head": ["head"]}
    outside = table_of(scope="attention")["stayed_real"]["role ffn is outside the scope attention"]
    assert outside == ["blocks.0.mlp.fc1", "blocks.0.mlp.fc2"]


def test_info_prints_a_table_or_json(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["info", "--backbone", TINY, "--algebra", "quaternion"]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == table_of() | {"backbone": "vit(depth=1, dim=32)"}
    assert main(words) == 0
    assert f"{table_of()['total']['real_twin']:,}" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_fit_suggests_how_to_find_the_real_network_of_equal_size(options, capsys):
    summary = zoo.fit(**options(run_dir="run"))
    backbone, parameters = equal_size(summary["backbone"], summary["parameters"]["total"], **INFO)
    (command,) = (command for command, _ in next_commands(read_summary(Path("run"))) if command.startswith("zoo info "))
    capsys.readouterr()
    assert main(shlex.split(command)[1:]) == 0
    assert f"this size: {backbone}, {parameters:,};" in capsys.readouterr().out


TEST = {("real", 0): 0.90, ("real", 1): 0.94, ("quaternion", 0): 0.97, ("quaternion", 1): 0.93, ("octonion", 0): 0.80}
SEEN = {("real", 0): 0.95, ("real", 1): 0.97, ("quaternion", 0): 0.91, ("quaternion", 1): 0.92, ("octonion", 0): 0.70}
TOTAL = {"real": 1000, "quaternion": 300, "octonion": 200}


def rows(**changes):
    result = []
    for (algebra, seed), value in TEST.items():
        row = {"name": f"{algebra}-seed{seed}", "folder": f"runs/{algebra}-seed{seed}"}
        row |= {"axes": {"algebra": algebra, "seed": str(seed)}, "options": {"algebra": algebra, "seed": seed}}
        row |= {"metrics": {"loss": 1 - value, "accuracy": value}, "parameters": {"total": TOTAL[algebra], "real_twin": 1000}}
        row["validation"] = {"metric": "accuracy", "mode": "max", "value": SEEN[algebra, seed], "epoch": 2, "step": 8}
        result.append(row | changes)
    return result


def write(folder, made):
    folder.mkdir(exist_ok=True)
    (folder / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    return [str(folder)]


def test_means_over_seeds_and_the_best_by_validation(tmp_path):
    values = sweep(write(tmp_path / "study", rows())).values
    assert values["metric"] == "accuracy"
    assert values["best"] == {"algebra": "real"}  # quaternion is better on the test split
    groups = {group["label"]: group for group in values["groups"]}
    assert list(groups) == ["real", "quaternion", "octonion"]
    assert groups["quaternion"]["values"] == [0.97, 0.93]
    assert groups["quaternion"]["parameters"] == (300, 1000)


def test_table_pictures_and_page(tmp_path):
    files = sweep(write(tmp_path / "study", rows())).files
    line = next(line for line in files["sweep.md"].decode().splitlines() if "quaternion" in line and "|" in line)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    center, spread = (float(part) for part in cells[2].split("±"))
    assert center == pytest.approx(mean([0.97, 0.93]), abs=5e-5)
    assert spread == pytest.approx(stdev([0.97, 0.93]), abs=5e-4)
    assert cells[1] == "2"
    assert cells[4:6] == ["300", "30.0%"]
    text = files["sweep.md"].decode()
    assert "by validation accuracy" in text
    assert "Best by validation accuracy (higher is better): real. The test split does not choose." in text
    assert all(f"<!-- {label} -->" in files["sweep.svg"].decode() for label in ("real", "run", "mean"))
    assert files.keys() == {"sweep.md", "sweep.png", "sweep.svg", "sweep.html"}


def test_runs_without_a_test_split_are_shown_by_validation(tmp_path):
    report = sweep(write(tmp_path / "study", rows(metrics={})))
    assert report.values["metric"] == "accuracy"
    assert report.values["groups"][0]["values"] == [0.95, 0.97]


@pytest.mark.parametrize(
    "other", [{"data_sha256": "b"}, {"validation": {"metric": "loss", "mode": "min", "value": 0.1}}, {"validation": None}]
)
def test_incomparable_runs_are_not_ranked(other, tmp_path):
    made = [*rows(data_sha256="a")[:4], *rows(**{"data_sha256": "a"} | other)[4:]]
    assert sweep(write(tmp_path / "study", made)).values["best"] is None
    assert sweep(write(tmp_path / "study", rows(data_sha256="a"))).values["best"] == {"algebra": "real"}


def test_nothing_to_report(tmp_path):
    with raises("missing", "study"):
        sweep(write(tmp_path / "study", []))


@pytest.mark.parametrize("line", ["null", "{}", "[]", '{"name'])
def test_damaged_rows(tmp_path, line):
    (run,) = write(tmp_path / "study", rows())
    with (tmp_path / "study" / "results.jsonl").open("a") as file:
        file.write(line + "\n")
    with raises("corrupt", "results.jsonl"):
        sweep([run])
