"""The table of parameters: sums, reasons of real layers, and the command."""

import json
import shlex

import pytest
import torch

import zoo
from zoo.backbones.build import equal_size
from zoo.cli import main
from zoo.report import by_layer, layer_table
from zoo.training.network import next_commands
from zoo.training.options import Fit

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


def test_fit_suggests_the_real_network_of_equal_size(options):
    summary = zoo.fit(**options(run_dir="run"))
    backbone, parameters = equal_size(summary["backbone"], summary["parameters"]["total"], **INFO)
    assert summary["equal_size"] == {"backbone": backbone, "parameters": parameters}
    assert any(shlex.quote(backbone) in command for command, _ in next_commands(summary))
