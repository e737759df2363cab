"""Every installed algebra in every backbone: one step, finite, with 1 / n of the weights."""

from functools import cache

import pytest
import torch

from zoo import registry
from zoo.algebras import algebra
from zoo.layers import Layers
from zoo.testing.backbone import fitting_dim, installed_algebras, loss, matrices, weights

IMAGE = {"in_channels": 1, "image_size": 8, "num_classes": 10}
TEXT = {"vocab_size": 20, "max_length": 8, "num_classes": 4, "pair": False}
PAIR = TEXT | {"pair": True}
CORPUS = {"vocab_size": 20, "max_length": 8}
PARALLEL = CORPUS | {"seq2seq": True}
VECTOR = {"in_features": 480, "out_features": 480}
# A name, the spec with a size that fits the algebra, and the facts about the data.
BACKBONES = {
    "vit": ("vit(dim={dim}, heads=2, depth=2)", IMAGE),
    "timm": ("timm/test_resnet", {"in_channels": 3, "image_size": 32, "num_classes": 10}),
    "convnet": ("convnet/conv-2", IMAGE),
    "linear": ("linear", VECTOR),
    "mlp": ("mlp(dim={dim})", VECTOR),
    "decomposable_attention": ("decomposable_attention(dim={dim})", PAIR),
    "gpt": ("gpt(dim={dim}, depth=1, heads=2, ffn={dim})", CORPUS),
    "gpt-rotary": ("gpt(dim={dim}, depth=1, heads=1, ffn={dim}, score=product, positions=rotary, tied=false)", CORPUS),
    "transformer_xl": ("transformer_xl(dim={dim}, depth=1, heads=2, ffn={dim})", CORPUS),
    "transformer-seq2seq": ("transformer(dim={dim}, depth=1, heads=2, ffn={dim})", PARALLEL),
}
READERS = {
    "fasttext": "fasttext(dim={dim}, hidden={dim})",
    "cnn": "cnn(dim={dim}, filters={dim}, hidden={dim})",
    "lstm": "lstm(dim={dim}, hidden={dim})",
    "lstm-both": "lstm(dim={dim}, hidden={dim}, depth=2, bidirectional=true)",
    "transformer": "transformer(dim={dim}, depth=1, heads=2, ffn={dim})",
    "transformer-product": "transformer(dim={dim}, depth=1, heads=1, ffn={dim}, score=product, positions=rotary)",
}
BACKBONES |= {name: (spec, TEXT) for name, spec in READERS.items()}
BACKBONES |= {f"{name}-pair": (spec, PAIR) for name, spec in READERS.items()}
ALGEBRAS = [*installed_algebras(), "clifford(p=0, q=2)", "phm(n=4, rank=6)"]


def build(backbone, spec, n=None):
    """Build over an algebra, with sizes that fit the dimension n: by default that of the algebra."""
    torch.manual_seed(0)
    (name, info), layers = BACKBONES[backbone], Layers(spec)
    return registry.create("zoo.backbones", name.replace("{dim}", str(fitting_dim(n or layers.n))), layers, **info)


def batch(backbone):
    """Four examples; texts are of several lengths, padded on the right."""
    info, draw = BACKBONES[backbone][1], torch.Generator().manual_seed(0)
    if "image_size" in info:
        return torch.rand(4, info["in_channels"], info["image_size"], info["image_size"], generator=draw)
    if "in_features" in info:
        return torch.randn(4, info["in_features"], generator=draw)
    sides = []
    for longest in (info["max_length"], info["max_length"] - 2):
        tokens = torch.randint(1, info["vocab_size"], (4, longest), generator=draw)
        sides.append(tokens * (torch.arange(longest) < torch.tensor([[longest], [3], [1], [longest - 1]])))
    return tuple(sides) if info.get("pair") or info.get("seq2seq") else sides[0]


@cache
def body(backbone, spec, n=None):
    """Weights of the matrices over the algebra, and all weights; with sizes that fit n."""
    model, n = build(backbone, spec, n), algebra(spec).n
    return {name: m.components.numel() for name, m in matrices(model).items() if m.algebra.n == n}, weights(model)


def test_the_built_in_algebras_are_tried():
    assert {"real", "complex", "quaternion", "octonion", "sedenion", "phm(n=4)", "clifford(p=1, q=1)"} <= {
        str(registry.Spec.parse(spec)) for spec in ALGEBRAS
    }


def test_every_backbone_of_ours_is_tried():
    tried = {registry.Spec.parse(spec.replace("{dim}", "32")).name.partition("/")[0] for spec, _ in BACKBONES.values()}
    assert tried == {entry.name for entry in registry.entries("zoo.backbones") if entry.ours}


@pytest.mark.parametrize("spec", ALGEBRAS)
@pytest.mark.parametrize("backbone", BACKBONES)
def test_one_step(backbone, spec):
    model = build(backbone, spec)
    value = loss(model, batch(backbone))
    value.backward()
    assert value.isfinite()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    for name, layer in matrices(model).items():
        # Some gradient arrives at every matrix that does not stand behind a norm whose gain starts at zero.
        if backbone != "timm":
            assert layer.components.grad.abs().max() > 0, name


@pytest.mark.parametrize("spec", ALGEBRAS)
@pytest.mark.parametrize("backbone", BACKBONES)
def test_one_nth_of_the_weights(backbone, spec):
    rule, (ours, total) = algebra(spec), body(backbone, spec)
    real, real_total = body(backbone, "real", rule.n)
    n, same = rule.n, ours.keys() & real.keys()
    assert same
    body_ratio = sum(ours[name] for name in same) / sum(real[name] for name in same)
    if backbone != "timm" and (backbone != "linear" or 480 % n == 0):
        assert body_ratio == pytest.approx(1 / n, rel=1e-12)
    assert 1 / n <= body_ratio < 1.5 / n
    if not rule.defaults or not BACKBONES[backbone][1].get("vocab_size"):
        # What is not over the algebra is the same number of weights as in the real network.
        assert same == ours.keys()
        assert total - sum(ours.values()) == real_total - sum(real[name] for name in ours)
