"""Backbone contract for all backbones and installed algebras."""

from importlib.util import find_spec

import torch

from tests.networks import OPTIONAL
from zoo import registry
from zoo.testing import BackboneContract
from zoo.testing.backbone import installed_algebras

IMAGE = {"in_channels": 1, "image_size": 8, "num_classes": 10}
COLOUR = {"in_channels": 3, "image_size": 32, "num_classes": 10}
TEXT = {"vocab_size": 20, "max_length": 8, "num_classes": 4, "pair": False}
PAIR = TEXT | {"pair": True}
CORPUS = {"vocab_size": 20, "max_length": 8}
PARALLEL = CORPUS | {"seq2seq": True}
VECTOR = {"in_features": 48, "out_features": 48}
ALGEBRAS = [*installed_algebras(), "clifford(p=0, q=2)", "phm(n=4, rank=6)"]
FEW = ["octonion", "phm-4", "phm(n=4, shared=true)", "phm-3"]
# Spec, with a size that fits the algebra, and data info.
BACKBONES = {
    "ViT": ("vit(dim={dim}, heads=2, depth=2)", IMAGE),
    "Timm": ("timm/test_resnet", COLOUR),
    "Convnet": ("convnet/conv-2", IMAGE),
    "Linear": ("linear", VECTOR),
    "MLP": ("mlp(dim={dim})", VECTOR),
    "DecomposableAttention": ("decomposable_attention(dim={dim})", PAIR),
    "GPT": ("gpt(dim={dim}, depth=1, heads=2, ffn={dim})", CORPUS),
    "TransformerXL": ("transformer_xl(dim={dim}, depth=1, heads=2, ffn={dim})", CORPUS),
    "EncoderDecoder": ("transformer(dim={dim}, depth=1, heads=2, ffn={dim})", PARALLEL),
    "FastText": ("fasttext(dim={dim}, hidden={dim})", TEXT),
    "CNN": ("cnn(dim={dim}, filters={dim}, hidden={dim})", TEXT),
    "LSTM": ("lstm(dim={dim}, hidden={dim})", TEXT),
    "Transformer": ("transformer(dim={dim}, depth=1, heads=2, ffn={dim})", PAIR),
}
if find_spec("transformers"):
    BACKBONES["HuggingFace"] = ("hf/bert(dim={dim}, layers=1, heads=2, ffn={dim})", TEXT)
VARIANTS = {
    "ViTWithWideHeads": ("vit(dim={dim}, heads=2, head_dim=24, depth=1, representation_size=24, qkv_bias=false)", IMAGE),
    "ViTWithDropout": ("vit(dim={dim}, heads=2, depth=1, dropout=0.1, drop_path=0.1, mlp_ratio=2.0)", IMAGE),
    "TimmViT": ("timm/test_vit", COLOUR),
    "ConvNeXt": ("timm/test_convnext", COLOUR),
    "LeNet": ("convnet/lenet-300-100", IMAGE),
    "ResNet8": ("convnet/resnet-8(channels=(16, 16, 32))", COLOUR | {"image_size": 8}),
    "ResNet20": ("convnet/resnet-20(channels=(8, 8, 16))", COLOUR | {"image_size": 8}),
    "RotaryGPT": ("gpt(dim={dim}, depth=1, heads=2, ffn={dim}, score=product, positions=rotary, tied=false)", CORPUS),
    "LSTMOfPairs": ("lstm(dim={dim}, hidden={dim}, depth=2, bidirectional=true, rules=gate)", PAIR),
    "CNNOfPairs": ("cnn(dim={dim}, filters={dim}, hidden={dim})", PAIR),
    "RotaryTransformer": ("transformer(dim={dim}, depth=1, heads=2, score=product, positions=rotary)", TEXT),
}


class Contract(BackboneContract):
    def batch(self):
        """Draw four examples; texts have several lengths and are padded on the right."""
        info, noise = self.info, torch.Generator().manual_seed(0)
        if "image_size" in info:
            return super().batch()
        if "in_features" in info:
            return torch.randn(4, info["in_features"], generator=noise)
        texts = []
        for width in (info["max_length"], info["max_length"] - 2):
            tokens = torch.randint(1, info["vocab_size"], (4, width), generator=noise)
            texts.append(tokens * (torch.arange(width) < torch.tensor([[width], [3], [1], [width - 1]])))
        return tuple(texts) if info.get("pair") or info.get("seq2seq") else texts[0]


for name, (spec, info) in (BACKBONES | VARIANTS).items():
    algebras = ALGEBRAS if name in BACKBONES else FEW
    globals()[f"Test{name}"] = type(f"Test{name}", (Contract,), {"spec": spec, "info": info, "algebras": algebras})


def test_the_matrix_is_complete():
    algebras = {registry.Spec.parse(spec).name for spec in ALGEBRAS}
    assert {entry.name for entry in registry.entries("algebras") if entry.ours} <= algebras
    backbones = {registry.Spec.parse(spec.replace("{dim}", "32")).name.partition("/")[0] for spec, _ in BACKBONES.values()}
    missing = {name for name, package in OPTIONAL.items() if not find_spec(package)}
    assert backbones == {entry.name for entry in registry.entries("backbones") if entry.ours} - missing
