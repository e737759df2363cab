"""Every backbone exports and compiles as one graph, with a batch and a length that vary, and the numbers stay the same."""

import json
from importlib.util import find_spec
from inspect import signature

import pytest
import torch
from safetensors.torch import load_model
from torch.export import Dim, export, load
from zoo_export.export import export as write

import zoo
from zoo import registry
from zoo.data.info import CorpusInfo, ImageInfo, ParallelInfo, TextInfo, VectorInfo
from zoo.inference.model import Model

IMAGE = {"in_channels": 3, "image_size": 32, "num_classes": 3}
TOKENS = {"vocab_size": 20, "max_length": 12}
TEXT = TOKENS | {"num_classes": 3}
NETWORKS = {
    "vit": ("vit(dim=16, depth=1, heads=2)", IMAGE | {"image_size": 8}),
    "timm": ("timm/test_resnet", IMAGE),
    "convnet": ("convnet/conv-2", IMAGE | {"image_size": 8}),
    "linear": ("linear", {"in_features": 8, "out_features": 8}),
    "mlp": ("mlp(dim=16)", {"in_features": 8, "out_features": 8}),
    "fasttext": ("fasttext(dim=8, hidden=8)", TEXT),
    "cnn": ("cnn(dim=8, filters=8)", TEXT),
    "lstm": ("lstm(dim=8, hidden=8, depth=2, bidirectional=true)", TEXT),
    "transformer": ("transformer(dim=16, depth=1, heads=2, ffn=16, positions=learned, pooling=last)", TEXT),
    "transformer, seq2seq": ("transformer(dim=16, depth=1, heads=2, ffn=16)", TOKENS | {"seq2seq": True}),
    "decomposable_attention": ("decomposable_attention(dim=8, depth=1, attend_depth=0)", TEXT | {"pair": True}),
    "gpt": ("gpt(dim=16, depth=1, heads=2, ffn=16)", TOKENS),
    "gpt, rotary": ("gpt(dim=16, depth=1, heads=2, ffn=16, positions=rotary, score=product)", TOKENS),
    "transformer_xl": ("transformer_xl(dim=16, depth=1, heads=2, ffn=16)", TOKENS),
}
every_network = pytest.mark.parametrize("name", NETWORKS)
FEW = ("vit", "lstm", "transformer, seq2seq", "gpt, rotary")
most_are_slow = pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS]
)


def build(name):
    torch.manual_seed(0)
    spec, info = NETWORKS[name]
    return zoo.backbone(spec, "complex", **info).eval()


def inputs(name, rows, *lengths):
    """Images or vectors, or texts of several lengths, padded on the right."""
    info, draw = NETWORKS[name][1], torch.Generator().manual_seed(rows)
    if "image_size" in info:
        return (torch.rand(rows, info["in_channels"], info["image_size"], info["image_size"], generator=draw),)
    if "in_features" in info:
        return (torch.randn(rows, info["in_features"], generator=draw),)
    own = torch.tensor([[99], [3], [1], [5]])[:rows]
    texts = [torch.randint(1, 20, (rows, length), generator=draw) * (torch.arange(length) < own) for length in lengths]
    return tuple(texts if info.get("pair") or info.get("seq2seq") else texts[:1])


def shapes(name, arguments):
    """Name the axes that vary."""
    lengths = () if "vocab_size" not in NETWORKS[name][1] else (Dim("L", min=6, max=12), Dim("M", min=6, max=12))
    batch = Dim("B", min=2, max=64)
    return tuple({0: batch, 1: lengths[i]} if lengths else {0: batch} for i in range(len(arguments)))


def other(name):
    """Inputs of another batch size and other lengths."""
    return inputs(name, 3, 11, 9)


def test_every_backbone_of_ours_is_tried():
    ours = {entry.name for entry in registry.entries("zoo.backbones") if entry.ours}
    assert {name.partition(",")[0] for name in NETWORKS} == ours


@torch.no_grad()
@every_network
def test_an_exported_network_computes_the_same(name):
    net, given = build(name), inputs(name, 4, 8, 7)
    exported = export(net, given, dynamic_shapes=shapes(name, given)).module()
    for arguments in (given, other(name)):
        torch.testing.assert_close(exported(*arguments), net(*arguments))


@torch.no_grad()
@most_are_slow
def test_a_network_compiles_as_one_graph(name):
    torch._dynamo.reset()
    net, given = build(name), inputs(name, 4, 8, 7)
    torch.testing.assert_close(torch.compile(net, fullgraph=True, backend="eager")(*given), net(*given))


@torch.no_grad()
@pytest.mark.parametrize(
    ("spec", "given"),
    [("fasttext(dim=8, hidden=8)", inputs("fasttext", 4, 8)), ("timm/regnetx_002", inputs("timm", 4))],
    ids=["table over the algebra", "groups"],
)
def test_tables_and_groups_over_an_algebra_compile_as_one_graph(spec, given):
    torch._dynamo.reset()
    info = IMAGE if given[0].is_floating_point() else TEXT
    net = zoo.backbone(spec, "complex", scope="all+embed", **info).eval()
    torch.testing.assert_close(torch.compile(net, fullgraph=True, backend="eager")(*given), net(*given))


def trained(name):
    info, common = NETWORKS[name][1], {"sizes": {"train": 1}, "sha256": "0"}
    if "image_size" in info:
        sizes = {key: info[key] for key in ("in_channels", "image_size")}
        found = ImageInfo(**common, **sizes, classes=("a", "b", "c"), mean=(0.0,), std=(1.0,))
    elif "in_features" in info:
        found = VectorInfo(**common, **info)
    elif "num_classes" in info:
        found = TextInfo(**common, **TOKENS, classes=("a", "b", "c"), pair=info.get("pair", False))
    else:
        found = ParallelInfo(**common, **TOKENS) if "seq2seq" in info else CorpusInfo(**common, **TOKENS, stream=False)
    model = Model(build(name), {"backbone": NETWORKS[name][0], "algebra": "complex"})
    model.info = found
    return model


@torch.no_grad()
@most_are_slow
def test_a_folded_network_becomes_a_program_in_a_file(name, tmp_path):
    model = trained(name)
    made = write(model, tmp_path / "made", "pt2")
    program = load(tmp_path / "made/model.pt2").module()
    for arguments in (inputs(name, 3, 11, 9), inputs(name, 1, 1, 2)):
        torch.testing.assert_close(program(*arguments), model.net(*arguments), rtol=0, atol=1e-5)
    assert made["max_difference"] < 1e-5
    config = json.loads((tmp_path / "made/config.json").read_text())
    assert list(config["inputs"]) == list(signature(model.net.forward).parameters)[: len(arguments)]
    shapes = [["batch", "length"] if x.ndim == 2 and not x.is_floating_point() else ["batch", *x.shape[1:]] for x in arguments]
    assert [one["shape"] for one in config["inputs"].values()] == shapes


@torch.no_grad()
@most_are_slow
def test_a_folded_network_is_rebuilt_from_its_files(name, tmp_path):
    model = trained(name)
    write(model, tmp_path / "made", "safetensors")
    config = json.loads((tmp_path / "made/config.json").read_text())
    net = zoo.fold(zoo.backbone(config["backbone"], config["algebra"], **config["model_kwargs"])).eval()
    load_model(net, str(tmp_path / "made/model.safetensors"))
    arguments = inputs(name, 3, 11, 9)
    torch.testing.assert_close(net(*arguments), model.net(*arguments), rtol=0, atol=1e-5)
    assert {name: f"torch.nn.{net.get_submodule(name)!r}" for name in config["layers"]} == config["layers"]


@pytest.mark.skipif(not all(map(find_spec, ("onnx", "onnxscript", "onnxruntime"))), reason="needs hypercomplex-zoo[onnx]")
@torch.no_grad()
@pytest.mark.parametrize("name", ["vit", "gpt", *(pytest.param(name, marks=pytest.mark.slow) for name in FEW[1:3])])
def test_a_network_becomes_onnx(name, tmp_path):
    from onnxruntime import InferenceSession

    model = trained(name)
    write(model, tmp_path / "made", "onnx")
    session, config = InferenceSession(tmp_path / "made/model.onnx"), json.loads((tmp_path / "made/config.json").read_text())
    assert [one.name for one in session.get_inputs()] == list(config["inputs"])
    assert [one.name for one in session.get_outputs()] == [config["output"]] == ["logits"]
    for arguments in (inputs(name, 4, 8, 7), inputs(name, 1, 3, 2)):
        given = {key: x.numpy() for key, x in zip(config["inputs"], arguments, strict=True)}
        answer = torch.from_numpy(session.run(None, given)[0])
        torch.testing.assert_close(answer, model.net(*arguments), rtol=0, atol=1e-4)
