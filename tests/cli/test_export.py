"""``zoo export`` and ``zoo report``: files, output and errors."""

import csv
import json
from dataclasses import replace

import pytest
import torch
from torch import nn
from zoo_export.export import export

import zoo
from tests.errors import raises
from zoo.backbones.build import count
from zoo.checkpoint import ModelConfig, find, save
from zoo.checkpoint.manifest import MEASURED
from zoo.data.info import TextInfo
from zoo.data.tokenizer import train_tokenizer
from zoo.hub.sources import locate

NAME = "vit-digits-quaternion"


def test_plain_weights_load_into_timm_alone(call, tmp_path):
    from safetensors.torch import load_file
    from timm.models.vision_transformer import VisionTransformer

    code, out, err = call("export", NAME, "--format", "safetensors", "--to", "new/plain")
    assert (code, err) == (0, "")
    folder = tmp_path / "new/plain"
    assert f"new/plain/model.safetensors: {(folder / 'model.safetensors').stat().st_size:,} bytes" in out
    config, model = json.loads((folder / "config.json").read_text()), zoo.load(NAME)
    assert config["labels"] == list("0123456789")
    assert config["layers"]["blocks.0.attn.qkv"] == "torch.nn.Linear(in_features=48, out_features=144, bias=True)"
    sizes = {"img_size": 8, "patch_size": 2, "in_chans": 1, "embed_dim": 48, "depth": 3, "num_heads": 4, "num_classes": 10}
    net = VisionTransformer(**sizes).eval()
    net.load_state_dict(load_file(folder / "model.safetensors"))
    images = torch.rand(3, 1, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(net(images), model.net(images), rtol=0, atol=1e-5)


def test_a_copy_keeps_the_facts_of_training(call, tmp_path):
    assert call("export", NAME, "--to", "copy")[0] == 0
    known, first = (json.loads((find(root) / "manifest.json").read_text()) for root in (tmp_path / "copy", locate(NAME)))
    assert {"epochs", "seed", "spread", "parameters"} <= known.keys() & first.keys()
    assert {key: known[key] for key in MEASURED if key in known} == {key: first[key] for key in MEASURED if key in first}


@pytest.mark.slow
def test_a_program_stores_4_bits(tmp_path):
    model = zoo.load(NAME)
    result = export(model, tmp_path / "small", "pt2", quantize="int4", measure=False)
    program, images = torch.export.load(tmp_path / "small/model.pt2").module(), torch.rand(5, 1, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(program(images), zoo.quantize(model, bits=4).net(images), rtol=0, atol=1e-5)
    assert result["bytes"] < result["float_bytes"]
    assert "metrics" not in json.loads((tmp_path / "small/config.json").read_text())  # those of the model are not its own


def test_an_export_that_is_not_quantized_has_the_metrics_of_the_model(tmp_path):
    model = zoo.load("vit-digits-quaternion")
    export(model, tmp_path / "plain", "safetensors")
    assert json.loads((tmp_path / "plain/config.json").read_text())["metrics"] == model.metrics


def test_a_folded_program_is_n_times_as_large(call, tmp_path):
    sizes = []
    for name, options in (("components", ()), ("matrices", ("--folded",))):
        code, out, _ = call("export", "linear-hamilton-quaternion", "--format", "pt2", "--to", name, *options, "--json")
        assert code == 0
        sizes.append(json.loads(out)["weight_bytes"])
        assert json.loads((tmp_path / name / "config.json").read_text())["folded"] is bool(options)
    assert sizes == [4 * 64, 4 * 256]


def test_a_folded_lstm_stores_8_bits(tmp_path):
    model = zoo.load("lstm-agreement-quaternion")
    small, plain = (
        export(model, tmp_path / str(bits), "pt2", folded=True, quantize=bits, measure=False) for bits in ("int8", None)
    )
    assert small["weight_bytes"] < 0.4 * plain["weight_bytes"]
    program, tokens = torch.export.load(tmp_path / "int8/model.pt2").module(), torch.randint(1, 9, (3, 7))
    with torch.no_grad():
        torch.testing.assert_close(program(tokens), model.net(tokens), rtol=0, atol=0.2)


def test_missing_packages_are_named(refused, monkeypatch):
    monkeypatch.setattr("zoo_export.find_spec", lambda name: None if name in ("onnx", "onnxruntime") else True)
    assert "--format onnx needs onnx: pip install" in refused("export", NAME, "--to", "x", "--format", "onnx")
    message = refused("export", NAME, "--to", "x", "--format", "onnx", "--quantize", "dynamic")
    assert "--format onnx needs onnx, onnxruntime" in message
    monkeypatch.setattr("zoo_export.find_spec", lambda name: None)
    message = refused("export", NAME, "--to", "x", "--format", "executorch")
    assert "needs executorch: pip install 'hypercomplex-zoo[executorch]'" in message


class Stubborn(nn.Module):
    """A network with data-dependent control flow, which cannot be traced."""

    def forward(self, x):
        return x.flatten(1) * (1.0 if x.sum() > 0 else 2.0)


def test_invalid_exports_leave_no_files(call, refused, tmp_path):
    assert "format 'pickle': use zoo, safetensors, pt2, onnx, executorch" in refused(
        "export", NAME, "--to", "x", "--format", "pickle"
    )
    for options, message in [
        (("--format", "onnx", "--quantize", "int3"), "quantize 'int3': use int8, int4 or dynamic"),
        (("--format", "pt2", "--quantize", "dynamic"), "--quantize dynamic requires --format onnx"),
        (("--format", "safetensors", "--quantize", "int4"), "--quantize int4 requires --format onnx or pt2 or executorch"),
        (("--quantize", "int8"), "--quantize int8 requires --format onnx or pt2 or executorch"),
        (("--folded",), "--folded requires --format"),
        (("--format", "safetensors", "--sparse"), "--sparse requires --format zoo or onnx or pt2 or executorch"),
        (("--format", "onnx", "--quantize", "dynamic", "--sparse"), "--sparse does not apply to --quantize dynamic"),
    ]:
        assert message in refused("export", NAME, "--to", "x", *options)
    (tmp_path / "there").mkdir()
    assert "'there' exists" in refused("export", NAME, "--to", "there", "--format", "pt2")
    model = zoo.load(NAME)
    zoo.save(model.net, "alone", backbone="vit(dim=48, depth=3)", algebra="quaternion", **model.info.model_kwargs)
    message = refused("export", "alone", "--to", "x", "--format", "pt2")
    assert "require example inputs" in message
    assert call("export", "alone", "--to", "x", "--format", "safetensors").code == 0
    model.net, model.config = Stubborn(), replace(model.config, backbone=None)
    with raises("unsupported", "Stubborn"):
        export(model, tmp_path / "y", "pt2")
    assert not list(tmp_path.glob("*y*"))


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
        names = {"backbone": "fasttext(dim=8)", "algebra": "complex_order", "task": "text_classification", "data": "text"}
        config = ModelConfig(**names, embedding=embedding, info=info.to_dict())
        net = zoo.backbone(names["backbone"], names["algebra"], embedding=embedding, **info.model_kwargs)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(torch.randn_like(parameter))
        facts = {"versions": {"torch": "2"}, "metrics": {}, "epochs": 1, "seed": 0, "parameters": count(net)}
        facts["parameters"]["real_twin"] = 100
        save(tmp_path / "run" / "model", net, config, facts, {"tokenizer.json": tokenizer.to_json()} if files else {})
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
