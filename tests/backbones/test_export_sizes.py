"""An exported program is as small as the parameters of the network, over every algebra."""

from functools import cache
from io import BytesIO

import pytest
import torch
from torch import nn
from zoo_export.export import export, parameter_bytes
from zoo_export.tracing import program

from tests.networks import trained
from zoo.data.info import ImageInfo
from zoo.nn import Conv2d

for name in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(name, reason="needs hypercomplex-zoo[onnx]")

IMAGE = {"in_channels": 3, "image_size": 32, "num_classes": 10}
TOKENS = {"vocab_size": 2000, "max_length": 128}
TEXT = TOKENS | {"num_classes": 10}
BACKBONES = {
    "vit": IMAGE,
    "timm/resnet18": IMAGE,
    "convnet/conv-4": IMAGE,
    "linear": {"in_features": 256, "out_features": 256},
    "mlp": {"in_features": 64, "out_features": 10},
    "fasttext": TEXT,
    "cnn": TEXT,
    "lstm": TEXT,
    "transformer": TOKENS | {"seq2seq": True},
    "decomposable_attention": TEXT | {"pair": True},
    "gpt": TOKENS,
    "transformer_xl": TOKENS,
}
ALGEBRAS = "complex", "quaternion", "octonion", "phm-4", "clifford(p=0, q=2, r=1)"
NETWORKS = [(backbone, algebra) for backbone in BACKBONES for algebra in ALGEBRAS]


def few(*networks):
    """Mark all networks but these as slow."""
    return [pytest.param(*n, marks=[] if n in networks else pytest.mark.slow) for n in NETWORKS]


@cache
def carried(backbone):
    """Return the bytes of torch's own file of the network over the reals without its weights."""
    model, content = trained(backbone, BACKBONES[backbone], "real"), BytesIO()
    torch.export.save(program(model, model.net), content)
    return len(content.getvalue()) - parameter_bytes(model.net)


@pytest.mark.parametrize(
    ("backbone", "algebra"), few(("convnet/conv-4", "quaternion"), ("linear", "octonion"), ("lstm", ALGEBRAS[-1]))
)
def test_an_onnx_file_is_as_small_as_the_parameters(backbone, algebra, tmp_path):
    model = trained(backbone, BACKBONES[backbone], algebra)
    result = export(model, tmp_path / "made", "onnx")
    assert result["bytes"] <= 1.05 * parameter_bytes(model.net) + 60_000
    assert result["max_difference"] < 1e-4


@pytest.mark.parametrize(("backbone", "algebra"), few(("linear", "octonion")))
def test_a_program_of_torch_is_as_small_as_the_parameters(backbone, algebra, tmp_path):
    model = trained(backbone, BACKBONES[backbone], algebra)
    result = export(model, tmp_path / "made", "pt2")
    assert result["bytes"] <= 1.1 * parameter_bytes(model.net) + carried(backbone)
    assert result["max_difference"] < 1e-4


@pytest.mark.parametrize("format", ["pt2", "onnx"])
def test_a_grouped_convolution_keeps_its_components(format, tmp_path):
    model = trained("linear", BACKBONES["linear"], "real")
    model.net = nn.Sequential(Conv2d(16, 16, 3, groups=2, algebra="quaternion"), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    model.info = ImageInfo(
        sizes={"train": 1}, sha256="0", in_channels=16, image_size=8, classes=("a", "b"), mean=(0.0,) * 16, std=(1.0,) * 16
    )
    result = export(model, tmp_path / "components", format)
    assert result["weight_bytes"] == 4 * (16 * 16 * 9 // (4 * 2) + 16)
    assert result["max_difference"] < 1e-5


def test_running_statistics_take_no_bytes(tmp_path):
    model = trained("convnet/resnet-8", IMAGE, "quaternion")
    fresh = export(model, tmp_path / "fresh", "onnx")
    for norm in model.net.modules():
        if isinstance(norm, nn.BatchNorm2d):
            for values in (norm.weight, norm.bias, norm.running_mean):
                nn.init.uniform_(values, -1, 1)
            nn.init.uniform_(norm.running_var, 0.1, 2)
    statistics = [norm.running_var.clone() for norm in model.net.modules() if isinstance(norm, nn.BatchNorm2d)]
    used = export(model, tmp_path / "used", "onnx")
    vectors = sum(4 * 2 * len(one) for one in statistics)
    assert used["bytes"] <= fresh["bytes"] + vectors + 1000
    assert used["max_difference"] < 1e-4
    kept = [norm.running_var for norm in model.net.modules() if isinstance(norm, nn.BatchNorm2d)]
    assert all(map(torch.equal, kept, statistics))  # the model itself is as before


def test_the_tables_of_the_page_match_the_results():
    from benchmarks.speed import export as measured

    assert measured.PAGE.read_text(encoding="utf-8") == measured.text()
