"""The vision transformer keeps the contract over every algebra; its heads are made of whole elements."""

import pytest
import torch
from torch.nn import functional as F

from zoo import registry
from zoo.algebras import algebra
from zoo.backbones import Recipe, recipe, recipe_of
from zoo.errors import InputError
from zoo.layers import Layers, Linear
from zoo.testing import BackboneContract

INFO = {"in_channels": 1, "image_size": 8, "num_classes": 10}


def make(spec, rule="quaternion", **options):
    layers = rule if isinstance(rule, Layers) else Layers(rule)
    return registry.create("zoo.backbones", spec, layers, **INFO | options)


class TestViT(BackboneContract):
    spec = "vit(dim={dim}, heads=2, depth=2)"
    info = INFO


class TestViTWithDropout(BackboneContract):
    spec = "vit(dim=32, heads=2, depth=2, patch=4, dropout=0.1, drop_path=0.1, mlp_ratio=2.0)"
    info = INFO | {"in_channels": 3, "image_size": 16}
    algebras = ("quaternion", "phm-4")


def test_parameters_by_hand():
    d, h, patches = 64, 256, 16
    n, depth = 4, 3
    outside = (1 * 2 * 2 * d + d) + (patches + 1) * d + d + 2 * d + (10 * d + 10)
    block = (3 * d * d + d * d + 2 * d * h) // n + 3 * d + d + h + d + 2 * 2 * d
    model = make("vit(depth=3)")
    assert sum(p.numel() for p in model.parameters()) == outside + depth * block


def test_every_matrix_of_a_block_is_over_the_algebra_and_the_ends_are_real():
    model = make("vit(depth=1)")
    assert model.conversion.converted == tuple(f"blocks.0.{name}" for name in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"))
    assert model.conversion.real == {"patch_embed.proj": "stem", "head": "head"}


def test_scope_attention_leaves_the_mlp_real():
    model = make("vit(depth=1)", Layers("quaternion", scope="attention"))
    assert isinstance(model.blocks[0].attn.qkv, Linear)
    assert type(model.blocks[0].mlp.fc1) is torch.nn.Linear


def test_attention_is_that_of_heads_built_one_by_one():
    torch.manual_seed(0)
    attention = make("vit(dim=32, heads=4, depth=1)").blocks[0].attn.double().eval()
    rule, x = algebra("quaternion").double(), torch.randn(2, 5, 32, dtype=torch.float64)
    vectors = []
    for part in range(12):  # q, k, v, each with four heads of two elements
        one = Linear(rule, 32, 8).double()
        one.components.data = attention.qkv.components.data.unflatten(1, (12, 2))[:, part]
        one.bias.data = attention.qkv.bias.data.unflatten(0, (12, 8))[part]
        vectors.append(one(x))
    mixed = [F.scaled_dot_product_attention(*(vectors[head + 4 * part] for part in range(3))) for head in range(4)]
    expected = attention.proj.bias
    for head, y in enumerate(mixed):
        back = Linear(rule, 8, 32, bias=False).double()
        back.components.data = attention.proj.components.data.unflatten(2, (4, 2))[:, :, head]
        expected = expected + back(y)
    torch.testing.assert_close(attention(x), expected)


@pytest.mark.parametrize(("size", "patch"), [(8, 2), (28, 4), (32, 4), (224, 28), (7, 7), (9, 3)])
def test_default_patch_cuts_at_most_64(size, patch):
    model = make("vit(depth=1)", image_size=size)
    assert model.patch_embed.patch_size == (patch, patch)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("vit(dim=66, heads=4)", r"dim=66 .*: write vit\(dim=80\)"),
        ("vit(dim=72, heads=4)", r"dim=72 .* n = 4: write vit\(dim=80\)"),
        ("vit(dim=64, heads=0)", r"heads=0"),
        ("vit(patch=3)", r"patch=3 does not tile an image of 8 pixels: use one of 1, 2, 4, 8"),
        ("vit(deep=3)", r"unknown option 'deep' of vit: did you mean 'depth'"),
    ],
)
def test_bad_input_is_one_line(spec, said):
    with pytest.raises(InputError, match=said) as caught:
        make(spec)
    assert "\n" not in str(caught.value)


def test_heads_need_whole_elements_only_where_attention_is_hypercomplex():
    model = make("vit(dim=72, heads=4, depth=1)", Layers("quaternion", scope="ffn"))
    assert isinstance(model.blocks[0].mlp.fc1, Linear)


def test_recipe():
    from zoo.backbones.vision import vit

    assert recipe_of(vit).data == "digits"
    assert recipe_of(recipe(data="npz", max_epochs=3, lr=0.5)(lambda layers: layers)) == Recipe("npz", 3, 0.5)
    assert recipe_of(make) == Recipe()
