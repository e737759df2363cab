"""``zoo prune`` and ``zoo export``: files, output and errors."""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch
import yaml

import zoo
from zoo.checkpoint import ModelConfig
from zoo.pruning import Pruning, prunable
from zoo.pruning import masks as lib
from zoo.training.compress import pruned

VIT = "vit(dim=32, depth=1, mlp_ratio=3.0)"
SMALL = ("--trainer.max_epochs", "1", "--trainer.limit_train_batches", "2", "--trainer.accelerator", "cpu")
FEW = ("--trainer.accelerator", "cpu", "--trainer.limit_val_batches", "1", "--trainer.limit_test_batches", "1")
SIZES = {"in_channels": 1, "image_size": 8, "num_classes": 10}


@pytest.fixture
def run(trained_vit, call, tmp_path):
    shutil.copytree(trained_vit(VIT, "quaternion"), tmp_path / "run")
    return "run"


def test_a_model_given_by_name_is_written_to_the_working_directory(call, tmp_path):
    """Neither to the installed package nor to the cache."""
    assert call("prune", "vit-digits-quaternion", "--ratio", "0.5", *FEW)[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["vit-digits-quaternion-pruned-0.5"]


def test_prune_and_fine_tune(call, run, tmp_path):
    words = ("prune", run, "--ratio", "0.5", "--epochs", "1", "--lr", "0.001", *FEW)
    code, out, err = call(*words, "--trainer.limit_train_batches", "2")
    assert (code, err) == (0, "")
    spec = "vit(depth=1, dim=32, head_dim=8, heads=2, mlp_ratio=1.5)"
    lines = {tuple(line.split()[:2]): line.split()[2:] for line in out.splitlines()}
    assert [len(lines["test", "accuracy"]), len(lines["validation", "loss"])] == [3, 3]
    assert f"{spec} is in run/pruned-0.5" in out
    assert "fine-tuned for 1 epoch in run-pruned-0.5" in out
    before, after = zoo.load("run"), zoo.load("run/pruned-0.5")
    assert after.config.backbone == zoo.load("run-pruned-0.5").config.backbone == spec
    assert lines["parameters", f"{zoo.count(before.net)['total']:,}"][0] == f"{zoo.count(after.net)['total']:,}"
    assert "50% of the heads" in (tmp_path / "run/pruned-0.5/README.md").read_text()
    config = yaml.safe_load((tmp_path / "run-pruned-0.5/config.yaml").read_text())
    assert (config["backbone"], config["init_from"], config["optimizer"]["lr"]) == (spec, "run/pruned-0.5", 0.001)
    assert config["trainer"]["max_epochs"] == 1
    tuned = zoo.load("run-pruned-0.5").net.state_dict()
    pruned_state = after.net.state_dict()
    changes = [float((tuned[name] - pruned_state[name]).abs().max()) for name in tuned]
    assert 0 < max(changes) < 0.02  # two steps of at most the learning rate


def test_the_pruned_model_equals_the_masked_model(call, run):
    model = zoo.load(run)
    code, out, _ = call("prune", run, "--ratio", "0.25", "--json", *FEW)
    assert code == 0
    result, images = json.loads(out), torch.randn(4, 1, 8, 8)
    _, spec, cuts = pruned(model, 0.25)
    assert result["backbone"] == spec
    assert [cut["after"] for cut in result["cuts"]] == [3, 72]
    with torch.no_grad():
        expected = masked(model.net, cuts)(images)
        assert (zoo.load(result["folder"]).net(images) - expected).abs().max() < 1e-6
    assert result["parameters"]["after"] < result["parameters"]["before"]
    assert result["forward"]["after_ms"] > 0


def masked(net, cuts):
    """Return the network with the inputs of removed units set to zero."""
    for cut in cuts:
        for name, channels in cut.inputs.items():
            layer = net.get_submodule(name)
            layer.register_forward_pre_hook(lambda _, args, gone=channels: args[0].index_fill(-1, torch.tensor(gone), 0))
    return net


def test_fit_from_a_trained_model(call, refused, run):
    assert call("fit", "-c", "run/config.yaml", "--from", run, "--run-dir", "more", "--lr", "1e-9").code == 2  # optimizer.lr
    assert call("fit", "-c", "run/config.yaml", "--from", run, "--run-dir", "more", "--optimizer.lr", "1e-12", *SMALL).code == 0
    one, two = (zoo.load(name).net.state_dict() for name in (run, "more"))
    assert all(torch.allclose(one[name], two[name], atol=1e-8) for name in one)
    from_run = ("fit", "-c", "run/config.yaml", "--from")
    source = "--from run is vit(depth=1, dim=32, mlp_ratio=3.0) over quaternion"
    assert "there is no folder 'nothing'" in refused(*from_run, "nothing", *SMALL)
    assert refused(*from_run, run, "--algebra", "octonion").endswith(f"{source}, expected octonion")
    message = refused(*from_run, run, "--backbone", "vit(dim=32, depth=2)")
    assert message.startswith(f"{source}, which does not match vit(depth=2, dim=32): ")
    assert "blocks.1" in message


def test_fit_from_a_model_with_another_tokenizer_fails(call, refused, tmp_path):
    for name, words in (("a", ("good day", "bad night")), ("b", ("fine word", "sad thing"))):
        rows = (f"{words[i % 2]} {i}\t{i % 2}\n" for i in range(40))
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\n" + "".join(rows))
    words = ("fit", "--backbone", "fasttext(dim=8, hidden=8)", "--algebra", "real", *SMALL)
    assert call(*words, "--data", "text(path=a.tsv)", "--run_dir", "a").code == 0
    message = refused(*words, "--data", "text(path=b.tsv)", "--from", "a")
    assert "its tokenizer differs" in message


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("run --ratio 1.0", "ratio=1.0"),
        ("run --lr 0.1", "--epochs"),
        ("run --epochs 1", "'run-pruned-0.5'"),
        ("alone --epochs 1", "no config.yaml"),
    ],
)
def test_invalid_prune(refused, run, tmp_path, words, value):
    if "run-pruned" in value:
        (tmp_path / "run-pruned-0.5").mkdir()
    zoo.save(zoo.load(run), "alone")
    assert value in refused("prune", *words.split())


TEXT = {"vocab_size": 11, "max_length": 7, "num_classes": 3}


SMALLER = {
    "gpt(dim=32, depth=1, heads=2, ffn=48, positions=rotary)": "ffn=24, head_dim=16, heads=1",
    "transformer(dim=32, depth=1, heads=2, ffn=48, seq2seq=true)": "ffn=24, head_dim=16, heads=1",
    "convnet/conv-2(channels=(16, 16), hidden=(32, 16))": "convnet/conv-2(channels=(8, 8), hidden=(16, 8))",
    "vit(dim=48, depth=2, heads=2, mlp_ratio=0.9)": "vit(depth=2, dim=48, head_dim=24, heads=1, mlp_ratio=0.4583333333333333)",
}


@pytest.mark.parametrize("algebra", ["real", "octonion"])
@pytest.mark.parametrize("spec", SMALLER)
def test_the_spec_builds_the_pruned_network(spec, algebra):
    x = torch.randint(1, 11, (2, 7)) if spec[0] in "gt" else torch.randn(2, 1, 8, 8)
    inputs = (x, x.flip(0)) if "seq2seq" in spec else (x,)
    info = SIZES if spec[0] in "cv" else TEXT
    data = SimpleNamespace(model_kwargs=info, example_inputs=lambda _: inputs if len(inputs) > 1 else x)
    config = ModelConfig(backbone=spec, algebra=algebra)
    net, smaller, cuts = pruned(SimpleNamespace(config=config, info=data, net=zoo.backbone(spec, algebra, **info)), 0.5)
    if algebra == "octonion":
        assert SMALLER[spec] in smaller
    built = zoo.backbone(smaller, algebra, **info)
    built.load_state_dict(net.state_dict())
    with torch.no_grad():
        assert torch.equal(built.eval()(*inputs), net.eval()(*inputs))
    assert {cut.before for cut in cuts if cut.kind == "heads"} <= {2}


def test_one_head_and_one_unit_are_kept(call, run):
    code, out, _ = call("prune", run, "--ratio", "0.99", *FEW)
    assert code == 0
    assert "2 layers clamped to one head or unit: blocks.0.attn, ..." in out
    assert zoo.load("run/pruned-0.99").config.backbone == "vit(depth=1, dim=32, head_dim=8, heads=1, mlp_ratio=0.125)"


def ticket(run):
    """Prune 90 % of the weights of a model."""
    model = zoo.load(run)
    matrices = prunable(model.net)
    weights = {name: matrix.parameter for name, matrix in matrices.items()}
    masks = lib.next_masks(matrices, weights, lib.full_masks(matrices), Pruning(0.9))
    for name, weight in weights.items():
        lib.clear_bits(weight, lib.bit_mask(masks[name], weight))
    return model


def test_sparse_export_round_trip(call, run, tmp_path):
    model = ticket(run)
    zoo.save(model, "dense")
    code, out, err = call("export", "dense", "--sparse", "--to", "new/small")
    assert (code, err) == (0, "")
    assert f"{(tmp_path / 'new/small/model.safetensors').stat().st_size:,} bytes of weights" in out
    again = json.loads(call("export", "new/small", "--sparse", "--to", "twice", "--json").out)
    assert again["bytes"] < again["bytes_dense"] / 2
    assert call("export", "new/small", "--to", "again").code == 0
    expected = model.net.state_dict()
    for folder in ("new/small", "again"):
        state = zoo.load(folder).net.state_dict()
        assert all(torch.equal(state[name], expected[name]) for name in expected)


def test_sparse_export_without_zeros(call, run, refused):
    code, out, _ = call("export", run, "--sparse", "--to", "same")
    assert code == 0
    assert "nothing is gained by --sparse" in out
    result = json.loads(call("export", run, "--to", "plain", "--json").out)
    assert result["packed"] is None
    assert 0 < result["bytes"] - result["bytes_dense"] < 10_000  # the header
    assert "'same' exists: choose another folder with --to" in refused("export", run, "--to", "same")
