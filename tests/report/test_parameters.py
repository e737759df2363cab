"""The table of parameters: sums, reasons of real layers, and the command."""

import json
import shlex

import pytest
import torch

import zoo
from zoo.backbones.build import equal_size
from zoo.cli import main
from zoo.report.parameters import by_layer, layer_table
from zoo.training.options import Fit
from zoo.training.summary import next_commands

INFO = {"in_channels": 1, "image_size": 8, "num_classes": 10}
TINY = "vit(dim=32,depth=1)"


def table_of(algebra: str = "quaternion", scope: str = "all", backbone: str = TINY) -> dict:
    return layer_table(Fit(backbone, algebra, "digits", scope), INFO)


@pytest.mark.parametrize("algebra", ["real", "quaternion", "phm-4", "phm(n=4,shared=true)", "clifford(p=1,q=1)"])
@pytest.mark.parametrize("scope", ["all", "attention", "all+head+stem"])
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
    assert fc1["kind"] == "Linear"


def test_learned_algebras_are_counted_with_their_layer():
    fixed, learned = ({row["layer"]: row["parameters"] for row in table_of(a)["layers"]} for a in ("quaternion", "phm-4"))
    assert learned["blocks.0.mlp.fc1"] == fixed["blocks.0.mlp.fc1"] + 4**3
    assert learned.keys() == fixed.keys()


def test_a_shared_rule_is_counted_once():
    own, shared = (table_of(a)["total"]["total"] for a in ("phm-4", "phm(n=4,shared=true)"))
    assert own - shared == 3 * 4**3  # four matrices


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
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out) == table_of() | {"backbone": "vit(depth=1, dim=32)"}
    assert main(words) == 0
    out, total = capsys.readouterr().out, table_of()["total"]
    for text in (f"{total['total']:,}", f"{total['real_twin']:,}", f"{total['total'] / total['real_twin']:.1%}"):
        assert text in out
    assert "head" in out.partition("stayed real")[2]
    assert main(["info", "--backbone", TINY, "--algebra", "real", "--data", "digits(size=16)", "--json"]) == 0
    net = zoo.backbone(TINY, "real", **(INFO | {"image_size": 16}))
    assert json.loads(capsys.readouterr().out)["total"]["total"] == zoo.count(net)["total"]
    assert list(tmp_path.iterdir()) == []


def test_fit_suggests_the_real_network_of_equal_size(options, capsys):
    summary = zoo.fit(**options(run_dir="run"))
    expected = equal_size(summary["backbone"], summary["parameters"]["total"], **INFO)
    assert summary["equal_size"] == {"backbone": expected[0], "parameters": expected[1]}
    assert summary["equal_size"] == table_of(backbone=summary["backbone"])["equal_size"]
    purposes = dict(next_commands(summary))
    command = f"zoo fit -c run/config.yaml --algebra real --backbone {shlex.quote(expected[0])}"
    assert f"{expected[1]:,}" in purposes[command]
    assert main([*shlex.split(command)[1:], "--run-dir", "real", "--print-config"]) == 0
    assert zoo.fit(**options(algebra="real", run_dir="twin"))["equal_size"] is None


def test_counting_downloads_no_pretrained_weights(monkeypatch):
    import timm

    asked = []
    create = timm.create_model
    monkeypatch.setattr(
        timm, "create_model", lambda *args, **options: asked.append(options["pretrained"]) or create(*args, **options)
    )
    options = Fit("timm/test_vit(pretrained=true)", "quaternion", "cifar10")
    layer_table(options, {"in_channels": 3, "image_size": 160, "num_classes": 10})
    assert asked == [False, False]
