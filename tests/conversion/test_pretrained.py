"""Pretrained networks and timm's families, converted, trained, saved and loaded again bit for bit."""

import time

import pytest
import timm
import torch
from huggingface_hub import constants

import zoo
from tests.errors import raises
from zoo.backbones import vision
from zoo.reports import layer_table
from zoo.training.compress import convert as convert_run
from zoo.training.options import Convert, Fit

VARIANT = "regnetx_002"
SPEC = f"timm/{VARIANT}(pretrained=true)"
SIZES = {"in_channels": 3, "image_size": 32, "num_classes": 10}


@pytest.fixture
def pretrained(tmp_path, monkeypatch):
    """Let timm read its pretrained weights from a file."""
    torch.manual_seed(7)
    create, path = timm.create_model, tmp_path / "weights.pth"
    real = create(VARIANT)
    torch.save(real.state_dict(), path)

    def from_file(*args, pretrained=False, **options):
        options |= {"pretrained_cfg_overlay": {"file": str(path)}} if pretrained else {}
        return create(*args, pretrained=pretrained, **options)

    monkeypatch.setattr(timm, "create_model", from_file)
    monkeypatch.setattr(vision, "check_weights", lambda variant: None)
    return real


def test_a_trained_network_is_converted_without_fetching_its_first_weights(pretrained, tmp_path, monkeypatch):
    zoo.save(zoo.backbone(SPEC, "real", **SIZES), tmp_path / "model", backbone=SPEC, algebra="real", **SIZES)
    create, asked = timm.create_model, []

    def watched(*args, pretrained=False, **options):
        asked.append(pretrained)
        return create(*args, **options)

    monkeypatch.setattr(timm, "create_model", watched)
    convert_run(Convert(source=str(tmp_path / "model"), algebra="quaternion", to=str(tmp_path / "to")))
    assert asked
    assert not any(asked)


def test_a_pretrained_network_is_loaded_again(pretrained, tmp_path):
    net = zoo.backbone(SPEC, "quaternion", **SIZES).eval()
    grouped = {name for name, module in net.named_modules() if getattr(module, "groups", 1) > 1}
    assert grouped
    assert grouped <= net.conversion.real.keys()
    for name in grouped:  # What stays real is what was pretrained.
        assert torch.equal(net.get_submodule(name).weight, pretrained.get_submodule(name).weight)
    zoo.save(net, tmp_path / "model", backbone=SPEC, algebra="quaternion", **SIZES)
    loaded = zoo.load(tmp_path / "model").net
    assert loaded.conversion == net.conversion
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(loaded(x), net(x))
    for (name, ours), theirs in zip(net.state_dict().items(), loaded.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), name


def test_info_counts_the_network_that_is_trained(pretrained):
    net = zoo.backbone(SPEC, "quaternion", **SIZES)
    table = layer_table(Fit(SPEC, "quaternion", "cifar10"), SIZES)
    assert table["total"]["total"] == sum(p.numel() for p in net.parameters())


def test_an_unreachable_hub_is_reported_without_retries(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(time, "sleep", pytest.fail)
    with raises("failed", f"weights of timm/{VARIANT} from http://127.0.0.1:1"):
        zoo.backbone(SPEC, "real", **SIZES)


def test_errors_of_timm_name_only_given_options(monkeypatch):
    def fail(*args, **options):
        raise ValueError("no")

    monkeypatch.setattr(timm, "create_model", fail)
    with raises("invalid", f"'{VARIANT}' for 32-pixel images: no"):
        zoo.backbone(f"timm/{VARIANT}", "real", **SIZES)


DEFAULT = ("edgenext_xx_small", "ghostnet_050", "mobilenetv3_small_050", "resnet18", "vit_tiny_patch16_224")
SLOW = """
    beit_base_patch16_224 cait_xxs24_224 coat_tiny convit_tiny convmixer_768_32 convnext_nano cs3darknet_focus_s davit_tiny
    densenet121 dla34 efficientformerv2_s0 efficientnet_b0 efficientvit_b0 fastvit_s12 focalnet_tiny_srf hrnet_w18_small
    inception_next_atto gmlp_ti16_224 mobilevit_xxs mvitv2_tiny nest_tiny nf_regnet_b0 pit_xs_224 pvt_v2_b0
    regnetx_004_tv repghostnet_050 repvit_m1 resnetv2_18 rexnet_100 legacy_seresnet18 skresnet18 starnet_s1
    swin_tiny_patch4_window7_224 tiny_vit_5m_224 tinynet_d xcit_tiny_12_p8_224 ese_vovnet19b_slim_dw
"""
SIZE = 64


def build(name: str) -> torch.nn.Module:
    """Build a model for images of `SIZE` pixels; some families fix the size when they are built."""
    try:
        return timm.create_model(name, num_classes=5, img_size=SIZE)
    except TypeError:
        return timm.create_model(name, num_classes=5)


def logits(net: torch.nn.Module, count: int) -> torch.Tensor:
    return net(torch.randn(count, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(count)))


@pytest.mark.parametrize("algebra", ["quaternion", pytest.param("octonion", marks=pytest.mark.slow), "phm-4"])
@pytest.mark.parametrize("name", [*DEFAULT, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW.split())])
def test_a_converted_model_trains_and_evaluates(name, algebra):
    torch.manual_seed(0)
    net = zoo.convert(build(name), algebra)
    assert net.conversion.converted
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for count in (2, 8):
        loss = logits(net.train(), count).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    net.eval()
    logits(net, 1).square().mean().backward()  # a last batch of one, where batch norm cannot train
    with torch.no_grad():
        for count in (1, 2, 8):
            assert logits(net, count).shape == (count, 5)
            assert logits(net, count).isfinite().all()
