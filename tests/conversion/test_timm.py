"""Small models of timm's families, converted: one training step and evaluation, with batches of several sizes."""

import pytest
import timm
import torch

import zoo

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
