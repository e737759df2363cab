"""Sizes of Transformers that are not given follow ``dim``, and stored specs state them."""

from pathlib import Path

import pytest
import torch
import yaml

import zoo
from zoo.backbones.blocks import Sizes
from zoo.backbones.build import count, state_sizes
from zoo.backbones.transformer import GPT, PRESETS, XL
from zoo.registry import Spec
from zoo.training.options import Fit
from zoo.training.resolve import plan_run

ROOT = Path(__file__).parents[2]
BACKBONES = {"gpt": GPT, "transformer": PRESETS, "transformer_xl": XL}
VARIANTS = [(name, variant) for name, presets in BACKBONES.items() for variant in presets]


def parameters(spec):
    with torch.device("meta"):
        return count(zoo.backbone(spec, "real", vocab_size=20, max_length=8, num_classes=3))["total"]


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_the_sizes_keep_the_ratios_of_the_preset(name, variant):
    preset = BACKBONES[name][variant]
    width = preset.dim // preset.heads
    for heads in (1, 2, 3, 12):
        sizes = preset.resize(dim=heads * width)
        assert sizes == preset._replace(dim=heads * width, heads=heads, ffn=heads * preset.ffn // preset.heads)
        stated = f"dim={sizes.dim}, heads={heads}, ffn={sizes.ffn}"
        assert parameters(f"{name}/{variant}(depth=1, dim={sizes.dim})") == parameters(f"{name}/{variant}(depth=1, {stated})")
    assert preset.resize(depth=2, dropout=0.5) == preset._replace(depth=2, dropout=0.5)
    assert preset.resize(dim=preset.dim) == preset
    assert preset.resize(dim=3 * preset.dim, heads=5, ffn=7) == preset._replace(dim=3 * preset.dim, heads=5, ffn=7)


@pytest.mark.parametrize("dim", [1, 7, 24, 48, 72, 88, 100, 101, 136, 200, 344])
def test_heads_have_whole_elements_of_every_algebra_if_any_number_of_heads_has(dim):
    sizes = Sizes(128, 4, 4, 512, 0.0).resize(dim=dim)
    assert sizes.ffn == 4 * dim
    assert dim % sizes.heads == 0
    assert (dim // sizes.heads % 8 == 0) == (dim % 8 == 0)


def test_gpt_1024_is_four_times_as_wide_inside():
    assert parameters("gpt(dim=1024)") == parameters("gpt(dim=1024, ffn=4096, heads=32)")


def test_a_stored_spec_states_the_sizes():
    assert state_sizes("gpt(depth=2, dim=256)") == "gpt(depth=2, dim=256, ffn=1024, heads=8)"
    assert state_sizes("gpt/nano(dim=256)") == "gpt/nano(dim=256, ffn=1024, heads=4)"
    assert state_sizes("gpt(variant=nano,dim=256, heads=8)") == "gpt(dim=256, ffn=1024, heads=8, variant=nano)"
    for spec in ("gpt", "gpt/nano", "gpt(depth=2)", "vit(dim=32)", "timm/resnet18", "gpt(dim=wide)", "gpt/mega(dim=64)"):
        assert state_sizes(spec) == str(Spec.parse(spec))
    config = plan_run(Fit("transformer(dim=64)", "real")).config  # of the run and of its model folder
    assert config["backbone"] == "transformer(dim=64, ffn=256, heads=2)"


def backbones(values):
    """Yield all values of the keys ``backbone`` in a configuration."""
    for key, value in values.items() if isinstance(values, dict) else enumerate(values):
        if key == "backbone":
            yield from [value] if isinstance(value, str) else value
        elif isinstance(value, dict | list):
            yield from backbones(value)


def test_all_stored_specs_state_their_sizes():
    files = [*ROOT.glob("configs/**/*.yaml"), *ROOT.glob("zoo/hub/pretrained/**/*.json")]
    specs = {spec for path in files for spec in backbones(yaml.safe_load(path.read_text(encoding="utf-8")))}
    assert len(specs) > 40
    assert [spec for spec in specs if state_sizes(spec) != str(Spec.parse(spec))] == []
