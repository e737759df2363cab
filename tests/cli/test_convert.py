"""``zoo convert``: files, output, further training and errors."""

import json
import shutil

import pytest
import timm
import torch
from safetensors.torch import load_file

import zoo
from zoo.backbones import vision

VIT = "vit(dim=32, depth=1)"


@pytest.fixture
def run(trained_vit, call, tmp_path):
    shutil.copytree(trained_vit(VIT, "real"), tmp_path / "run")
    return "run"


def test_convert_test_and_fine_tune(call, run, tmp_path):
    code, out, err = call("convert", "--from", run, "--algebra", "quaternion", "--to", "result")
    assert (code, err) == (0, "")
    rows = {line.split()[0]: line.split()[-2:] for line in out.splitlines() if line.strip().startswith("blocks.")}
    assert {*rows} == {f"blocks.0.{name}" for name in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")}
    errors = [float(error) for error, _ in rows.values()]
    assert all(0.7 < error < 1 for error in errors)
    mean = float(out.partition("relative error: mean ")[2].partition(",")[0])
    assert mean == pytest.approx(sum(errors) / 4, abs=1e-4)
    assert "zoo fit --backbone 'vit(depth=1, dim=32)' --algebra quaternion --data digits --from result" in out
    model, real = zoo.load("result"), zoo.load(run)
    assert (model.config.algebra, model.config.data, model.metrics) == ("quaternion", "digits", {})
    assert torch.equal(model.net.head.weight, real.net.head.weight)
    assert "projected onto the algebra" in (tmp_path / "result/README.md").read_text()
    assert call("verify", "result").code == 0
    assert "accuracy" in call("test", "result", "--trainer.limit_test_batches", "1", "--trainer.accelerator", "cpu").out
    words = ("--trainer.max_epochs", "1", "--trainer.limit_train_batches", "1", "--trainer.accelerator", "cpu")
    code, _, err = call("fit", "--backbone", VIT, "--algebra", "quaternion", "--from", "result", "--run-dir", "on", *words)
    assert (code, err) == (0, "")
    moved = zoo.load("on").net.blocks[0].attn.qkv.components - model.net.blocks[0].attn.qkv.components
    assert 0 < float(moved.detach().abs().max()) < 0.01


def test_timm_models_keep_their_classes_or_get_a_new_head(call, tmp_path, monkeypatch):
    torch.manual_seed(0)
    create, path = timm.create_model, tmp_path / "weights.pth"
    real = create("test_vit")
    torch.save(real.state_dict(), path)

    def from_file(*args, pretrained=False, **options):
        options |= {"pretrained_cfg_overlay": {"file": str(path)}} if pretrained else {}
        return create(*args, pretrained=pretrained, **options)

    monkeypatch.setattr(timm, "create_model", from_file)
    monkeypatch.setattr(vision, "check_weights", lambda variant: None)
    code, out, err = call("convert", "--from", "timm/test_vit", "--algebra", "real", "--to", "same")
    assert (code, err) == (0, "")
    assert "zoo test same --data SPEC" in out
    model, x = zoo.load("same"), torch.randn(1, 3, 160, 160)
    with torch.no_grad():
        torch.testing.assert_close(model.net(x), real.eval()(x))
    assert (model.info.classes[0], model.info.image_size) == ("tench, Tinca tinca", 160)
    words = ("--data", "digits(size=32)", "--algebra", "quaternion", "--to", "new", "--json")
    result, model = json.loads(call("convert", "--from", "timm/test_vit", *words).out), zoo.load("new")
    assert {row["layer"] for row in result["layers"]} == {*model.net.conversion.converted}
    assert (model.info.num_classes, result["data"]) == (10, "digits(size=32)")
    assert torch.equal(model.net.cls_token, real.cls_token)
    assert torch.allclose(
        model.net.patch_embed.proj.weight, real.patch_embed.proj.weight.sum(1, keepdim=True)
    )  # of grey images


@pytest.fixture
def layers(tmp_path):
    torch.manual_seed(0)
    state = {f"enc.{key}_weight": torch.randn(2, 3) for key in "rijk"} | {
        "enc.bias": torch.randn(8),
        "head.weight": torch.ones(2),
    }
    torch.save({"state_dict": state}, tmp_path / "theirs.pt")
    return state


def test_import_layers_of_another_library(call, layers):
    words = ("convert", "--from", "theirs.pt", "--format", "qytorch", "--algebra", "quaternion")
    code, out, err = call(*words, "--to", "deep/ours.safetensors")
    assert (code, err) == (0, "")
    assert out.splitlines()[-4] == "deep/ours.safetensors: 1 layers converted, 1 tensors copied unchanged"
    assert "enc" in out
    state = load_file("deep/ours.safetensors")
    assert {*state} == {"enc.weight_module.components", "enc.bias", "head.weight"}
    assert torch.equal(state["enc.weight_module.components"][1], -layers["enc.i_weight"])
    result = json.loads(call(*words, "--to", "again.safetensors", "--json").out)
    assert result["layers"] == [{"layer": "enc", "shape": [8, 12], "components": 4}]
    assert result["kept"] == ["head.weight"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--format", "qytorch", "--algebra", "quaternion", "--to", "x"), "--to FILE.safetensors"),
        (("--format", "qytorch", "--to", "x.safetensors"), "does not store its algebra"),
        (("--format", "qytorch", "--to", "theirs.safetensors"), "'theirs.safetensors' already exists"),
    ],
)
def test_invalid_imports(refused, layers, tmp_path, words, message):
    (tmp_path / "theirs.safetensors").touch()
    assert message in refused("convert", "--from", "theirs.pt", *words)
    assert not (tmp_path / "x.safetensors").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--from", "nowhere", "--algebra", "quaternion", "--to", "x"), "there is no folder 'nowhere' and no model"),
        (("--from", "vit-digits-quaternion", "--algebra", "complex", "--to", "x"), "is already over quaternion"),
        (("--from", "vit-digits-real", "--algebra", "quaternion", "--to", "."), "'.' already exists"),
        (("--from", "vit-digits-real", "--algebra", "octonion", "--to", "x"), "heads"),
        (("--from", "timm/resnet999", "--algebra", "quaternion", "--to", "x"), "has no model 'resnet999'"),
    ],
)
def test_invalid_convert(refused, words, message):
    assert message in refused("convert", *words)
