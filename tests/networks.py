"""Small networks of all backbones, and inputs for them."""

from importlib.util import find_spec

import torch

import zoo
from zoo.checkpoint import ModelConfig
from zoo.data.info import CorpusInfo, ImageInfo, ParallelInfo, TextInfo, VectorInfo
from zoo.inference.model import Model

IMAGE = {"in_channels": 1, "image_size": 8, "num_classes": 3}
COLOUR = {"in_channels": 3, "image_size": 32, "num_classes": 3}
VECTOR = {"in_features": 10, "out_features": 7}
TOKENS = {"vocab_size": 20, "max_length": 12}
TEXT = TOKENS | {"num_classes": 3}
PAIR = TEXT | {"pair": True}
SIZE = "dim=32, depth=1, heads=2, ffn=32"
NETWORKS = {
    "vit": ("vit(dim=32, depth=1, heads=2)", IMAGE),
    "timm": ("timm/test_resnet", COLOUR),
    "convnet": ("convnet/conv-2", IMAGE),
    "linear": ("linear", VECTOR),
    "mlp": ("mlp(dim=16)", VECTOR),
    "fasttext": ("fasttext(dim=8, hidden=8)", TEXT),
    "cnn": ("cnn(dim=8, filters=8)", TEXT),
    "lstm": ("lstm(dim=8, hidden=8, depth=2, bidirectional=true, rules=gate)", TEXT),
    "transformer": (f"transformer({SIZE}, positions=learned, pooling=last, score=product)", PAIR),
    "transformer, seq2seq": (f"transformer({SIZE})", TOKENS | {"seq2seq": True}),
    "decomposable_attention": ("decomposable_attention(dim=8, depth=1, attend_depth=0)", PAIR),
    "gpt": (f"gpt({SIZE})", TOKENS),
    "gpt, rotary": (f"gpt({SIZE}, positions=rotary, score=hermitian, tied=false)", TOKENS),
    "transformer_xl": (f"transformer_xl({SIZE})", TOKENS),
}
OPTIONAL = {"hf": "transformers"}
"""Packages that backbones need."""
if find_spec("transformers"):
    NETWORKS["hf"] = ("hf/bert(dim=32, layers=1, heads=2, ffn=32)", TEXT)


def build(name, algebra="quaternion", scope="all"):
    torch.manual_seed(0)
    spec, info = NETWORKS[name]
    return zoo.backbone(spec, algebra, scope=scope, **info).eval()


def trained(spec, info, algebra, **options):
    """Return a model that knows the facts of data with these sizes."""
    torch.manual_seed(0)
    common = {"sizes": {"train": 1}, "sha256": "0"}
    model = Model(zoo.backbone(spec, algebra, **options, **info).eval(), ModelConfig(backbone=spec, algebra=algebra))
    labels = tuple(map(str, range(info.get("num_classes", 0))))
    tokens = {key: info[key] for key in ("vocab_size", "max_length") if key in info}
    if "image_size" in info:
        sizes, channels = {key: info[key] for key in ("in_channels", "image_size")}, info["in_channels"]
        model.info = ImageInfo(**common, **sizes, classes=labels, mean=(0.0,) * channels, std=(1.0,) * channels)
    elif "in_features" in info:
        model.info = VectorInfo(**common, **info)
    elif labels:
        model.info = TextInfo(**common, **tokens, classes=labels, pair=info.get("pair", False))
    else:
        model.info = ParallelInfo(**common, **tokens) if "seq2seq" in info else CorpusInfo(**common, **tokens, stream=False)
    return model


def inputs(name, rows=3, lengths=(8, 6), dtype=torch.float32):
    """Draw images, vectors, or right-padded texts of several lengths."""
    info, draw = NETWORKS[name][1], torch.Generator().manual_seed(rows)
    if "image_size" in info:
        side = info["image_size"]
        return (torch.rand(rows, info["in_channels"], side, side, generator=draw, dtype=dtype),)
    if "in_features" in info:
        return (torch.randn(rows, info["in_features"], generator=draw, dtype=dtype),)
    ends = torch.tensor([[99], [3], [1], [5]])[:rows]
    texts = [torch.randint(1, 20, (rows, length), generator=draw) * (torch.arange(length) < ends) for length in lengths]
    return tuple(texts if info.get("pair") or info.get("seq2seq") else texts[:1])
