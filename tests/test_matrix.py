"""Every installed algebra in every backbone: one step, finite, with 1 / n of the weights."""

from functools import cache

import pytest
import torch

from zoo import registry
from zoo.algebras import algebra
from zoo.layers import Layers
from zoo.testing.backbone import installed_algebras
from zoo.testing.training import loss, matrices, weights

IMAGE = {"in_channels": 1, "image_size": 8, "num_classes": 10}
TEXT = {"vocab_size": 20, "max_length": 8, "num_classes": 4, "pair": False}
PAIR = TEXT | {"pair": True}
CORPUS = {"vocab_size": 20, "max_length": 8}
PARALLEL = CORPUS | {"seq2seq": True}
VECTOR = {"in_features": 96, "out_features": 96}
# A name, the spec, and what the data would say.
BACKBONES = {
    "vit": ("vit(dim=96, heads=2, depth=2)", IMAGE),
    "timm": ("timm/test_resnet", {"in_channels": 3, "image_size": 32, "num_classes": 10}),
    "linear": ("linear", VECTOR),
    "decomposable_attention": ("decomposable_attention(dim=96)", PAIR),
    "gpt": ("gpt(dim=96, depth=1, heads=2, ffn=192)", CORPUS),
    "gpt-rotary": ("gpt(dim=96, depth=1, heads=1, ffn=96, score=product, positions=rotary, tied=false)", CORPUS),
    "transformer_xl": ("transformer_xl(dim=96, depth=1, heads=2, ffn=192)", CORPUS),
    "transformer-seq2seq": ("transformer(dim=96, depth=1, heads=2, ffn=192)", PARALLEL),
}
READERS = {
    "fasttext": "fasttext(dim=96, hidden=96)",
    "cnn": "cnn(dim=96, filters=96, hidden=96)",
    "lstm": "lstm(dim=96, hidden=96)",
    "lstm-both": "lstm(dim=96, hidden=96, depth=2, bidirectional=true)",
    "transformer": "transformer(dim=96, depth=1, heads=2, ffn=192)",
    "transformer-product": "transformer(dim=96, depth=1, heads=1, ffn=96, score=product, positions=rotary)",
}
BACKBONES |= {name: (spec, TEXT) for name, spec in READERS.items()}
BACKBONES |= {f"{name}-pair": (spec, PAIR) for name, spec in READERS.items()}
ALGEBRAS = [*installed_algebras(), "clifford(p=0, q=2)"]


def build(backbone, spec):
    torch.manual_seed(0)
    name, info = BACKBONES[backbone]
    return registry.create("zoo.backbones", name, Layers(spec), **info)


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
def body(backbone, spec):
    """Weights of the matrices over the algebra, and all weights."""
    model, n = build(backbone, spec), algebra(spec).n
    return {name: m.components.numel() for name, m in matrices(model).items() if m.algebra.n == n}, weights(model)


def test_the_built_in_algebras_are_tried():
    assert {"real", "complex", "quaternion", "octonion", "sedenion", "phm(n=4)", "clifford(p=1, q=1)"} <= {
        str(registry.Spec.parse(spec)) for spec in ALGEBRAS
    }


def test_every_backbone_of_ours_is_tried():
    tried = {registry.Spec.parse(spec).name.partition("/")[0] for spec, _ in BACKBONES.values()}
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
    rule, (ours, total), (real, real_total) = algebra(spec), body(backbone, spec), body(backbone, "real")
    n, same = rule.n, ours.keys() & real.keys()
    assert same
    body_ratio = sum(ours[name] for name in same) / sum(real[name] for name in same)
    if 96 % (2 * n) == 0 and n in (1, 2, 4, 8, 16):
        assert body_ratio == 1 / n
    assert 1 / n <= body_ratio < 1.5 / n
    if not rule.defaults or not BACKBONES[backbone][1].get("vocab_size"):
        # What is not over the algebra is the same number of weights as in the real network.
        assert same == ours.keys()
        assert total - sum(ours.values()) == real_total - sum(real[name] for name in ours)
