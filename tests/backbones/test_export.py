"""Every backbone exports and compiles as one graph, with a batch and a length that vary, and the numbers stay the same."""

from importlib.util import find_spec

import pytest
import torch
from torch.export import Dim, export

import zoo
from zoo import registry

IMAGE = {"in_channels": 3, "image_size": 32, "num_classes": 3}
TOKENS = {"vocab_size": 20, "max_length": 12}
TEXT = TOKENS | {"num_classes": 3}
NETWORKS = {
    "vit": ("vit(dim=16, depth=1, heads=2)", IMAGE | {"image_size": 8}),
    "timm": ("timm/test_resnet", IMAGE),
    "convnet": ("convnet/conv-2", IMAGE | {"image_size": 8}),
    "linear": ("linear", {"in_features": 8, "out_features": 8}),
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
@every_network
def test_a_network_compiles_as_one_graph(name):
    torch._dynamo.reset()
    net, given = build(name), inputs(name, 4, 8, 7)
    torch.testing.assert_close(torch.compile(net, fullgraph=True, backend="eager")(*given), net(*given))


@pytest.mark.skipif(not (find_spec("onnx") and find_spec("onnxscript")), reason="needs onnx and onnxscript")
@pytest.mark.filterwarnings("ignore")
@torch.no_grad()
@pytest.mark.parametrize("name", ["vit", "lstm", "transformer", "gpt"])
def test_a_network_becomes_onnx(name):
    net, given = build(name), inputs(name, 4, 8, 7)
    program = torch.onnx.export(net, given, dynamo=True, dynamic_shapes=shapes(name, given), verbose=False)
    assert program is not None
    if find_spec("onnxruntime"):
        for arguments in (given, other(name)):
            torch.testing.assert_close(program(*arguments)[0], net(*arguments), rtol=1e-4, atol=1e-4)
