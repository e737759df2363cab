"""Initial weights from a folder of Hugging Face's transformers: ``zoo fit --backbone hf/NAME --from FOLDER``."""

import json

import pytest
import torch
from safetensors.torch import load_file

import zoo
from tests.conversion.hugging_face import build as build_theirs
from tests.errors import raises
from zoo.cli import main
from zoo.nn import Layers
from zoo.training.pretrained import load_pretrained

transformers = pytest.importorskip("transformers")
shared = pytest.importorskip("tests.backbones.test_hugging_face")  # which is skipped without transformers
CORPUS, IMAGE, PARALLEL, TEXT, fit, small = (
    getattr(shared, name) for name in ("CORPUS", "IMAGE", "PARALLEL", "TEXT", "fit", "small")
)
pytestmark = pytest.mark.filterwarnings("ignore")

WORDS = ["[PAD]", "[UNK]", "small", "bird", "\u0120sings", "in", "trees"]
TOKENS = ["[PAD]", "[UNK]", "bird", "sings", "quark", "trees"]
SIZES = {"vocab_size": len(TOKENS), "max_length": 8}


def saved(folder, name="bert", kind="AutoModelForMaskedLM", words=WORDS, **options):
    """Save a small model with random weights, and a tokenizer with some words."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 128}
    config = transformers.AutoConfig.for_model(name, **sizes | {"vocab_size": len(words)} | options)
    torch.manual_seed(1)
    model = getattr(transformers, kind).from_config(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {word: i for i, word in enumerate(words)}}}))
    return model


def built(spec, info, algebra="real"):
    torch.manual_seed(0)
    return zoo.backbone(spec, algebra, **info).eval()


def test_over_the_reals_the_outputs_are_those_of_the_folder(tmp_path, capsys):
    model = saved(tmp_path)
    net = built(small("bert"), TEXT | SIZES)
    load_pretrained(net, tmp_path, Layers("real"), TOKENS)
    x = net.encoder(torch.tensor([[2, 3, 5, 0]]))
    expected = model.bert(torch.tensor([[3, 4, 6, 0]]), attention_mask=torch.tensor([[1, 1, 1, 0]])).last_hidden_state
    torch.testing.assert_close(x, expected)
    assert "for 5 of 6 tokens of the data" in capsys.readouterr().err


def test_positions_of_roberta_start_at_its_padding(tmp_path):
    model = saved(tmp_path, "roberta", pad_token_id=1)
    net = built(small("roberta"), TEXT | SIZES)
    load_pretrained(net, tmp_path, Layers("real"), TOKENS)
    expected = model.roberta(torch.tensor([[3, 4, 6]])).last_hidden_state
    torch.testing.assert_close(net.encoder(torch.tensor([[2, 3, 5]])), expected)


@pytest.mark.parametrize(
    ("name", "kind", "info"),
    [
        ("gpt2", "AutoModelForCausalLM", CORPUS),
        ("llama", "AutoModelForCausalLM", CORPUS),
        ("t5", "AutoModelForSeq2SeqLM", PARALLEL),
        ("bart", "AutoModelForSeq2SeqLM", PARALLEL),
    ],
)
def test_generative_models(tmp_path, name, kind, info):
    net = built(small(name), info | SIZES)
    config = net.model.config.to_dict()
    model = saved(
        tmp_path,
        name,
        kind,
        **{key: config[key] for key in config if key not in ("vocab_size", "dtype", "model_type", "quantization_config")},
    )
    load_pretrained(net, tmp_path, Layers("real"), TOKENS)
    ours, theirs = torch.tensor([[2, 3, 5]]), torch.tensor([[3, 4, 6]])
    if "seq2seq" in info:
        y, expected = net(ours, ours), model(theirs, decoder_input_ids=theirs).logits
    else:
        y, expected = net(ours), model(theirs).logits
    torch.testing.assert_close(y[..., [2, 3, 5]], expected[..., [3, 4, 6]])


def test_matrices_are_projected(tmp_path, capsys):
    model = saved(tmp_path)
    net = built(small("bert"), TEXT | SIZES, "phm-4")
    head = net.head.state_dict() | {}
    load_pretrained(net, tmp_path, Layers("phm-4"), TOKENS)
    expected = zoo.convert(model, "phm-4", weights="project").bert.encoder.state_dict()
    ours = net.encoder.model.encoder.state_dict()
    assert ours.keys() == expected.keys()
    assert all(torch.equal(ours[name], expected[name]) for name in ours)
    assert all(torch.equal(value, head[name]) for name, value in net.head.state_dict().items()), "the head is new"
    assert "mean relative error of the projection 0." in capsys.readouterr().err


def test_images(tmp_path):
    sizes = {"image_size": 16, "num_channels": 1, "patch_size": 4, "num_labels": 3}
    model = saved(tmp_path, "vit", "AutoModelForImageClassification", **sizes)
    spec = "hf/vit(dim=32, layers=1, patch_size=4)"
    net = built(spec, IMAGE)
    load_pretrained(net, tmp_path, Layers("real"), None)
    x = torch.randn(2, 1, 16, 16)
    torch.testing.assert_close(net.model.vit(x).last_hidden_state, model.vit(x).last_hidden_state)
    assert net(x).shape == (2, 10), "the head for other classes is new"
    load_pretrained(same := built(spec, IMAGE | {"num_classes": 3}), tmp_path, Layers("real"), None)
    torch.testing.assert_close(same(x), model(x).logits)
    with raises("mismatch", "image_size=16", "num_channels=1"):
        load_pretrained(built(spec, IMAGE | {"image_size": 32}), tmp_path, Layers("real"), None)


def test_the_command_line(tmp_path, capsys):
    saved(tmp_path / "theirs", words=[*WORDS, "the", "of"])
    data = "glosses(vocab=300)"
    assert fit(tmp_path / "run", "hf/bert(dim=32, layers=1)", data, "--from", str(tmp_path / "theirs")) == 0
    assert "tokens of the data; mean relative error" in capsys.readouterr().err
    assert fit(tmp_path / "bad", "hf/bert(dim=64, layers=1)", data, "--from", str(tmp_path / "theirs")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--backbone 'hf/bert(hidden_size=32, intermediate_size=128, num_attention_heads=1, num_hidden_layers=1)'" in line
    assert not (tmp_path / "bad" / "model").exists()
    convert = ["convert", "--from", str(tmp_path / "theirs"), "--algebra", "quaternion", "--to", str(tmp_path / "to")]
    assert main(convert) == 2
    assert "zoo fit --backbone hf/NAME --from" in capsys.readouterr().err


def test_bad_folders(tmp_path):
    net = built(small("bert"), TEXT | SIZES)
    zoo.convert(build_theirs("bert"), "quaternion").save_pretrained(tmp_path / "ours")
    with raises("unsupported", "quant_method=zoo"):
        load_pretrained(net, tmp_path / "ours", Layers("real"), TOKENS)
    saved(tmp_path / "other", words=["x", "y", "z"])
    with raises("mismatch", "no token of the data"):
        load_pretrained(net, tmp_path / "other", Layers("real"), TOKENS)
    (tmp_path / "other" / "tokenizer.json").unlink()
    with raises("mismatch", "no tokenizer.json, and 3 tokens; the data have 6"):
        load_pretrained(net, tmp_path / "other", Layers("real"), TOKENS)
    saved(tmp_path / "short", max_position_embeddings=4)
    with raises("mismatch", "4 positions", "max_length"):
        load_pretrained(net, tmp_path / "short", Layers("real"), TOKENS)
    saved(tmp_path / "gone")
    (tmp_path / "gone" / "model.safetensors").unlink()
    with raises("failed", "gone"):
        load_pretrained(net, tmp_path / "gone", Layers("real"), TOKENS)
    (tmp_path / "gone" / "model.safetensors").write_bytes(b"damaged")
    with raises("failed", "cannot load", "gone"):
        load_pretrained(net, tmp_path / "gone", Layers("real"), TOKENS)
    (tmp_path / "unknown").mkdir()
    for values in ({"model_type": "nothing"}, {"model_type": "bert", "hidden_size": "wide"}):
        (tmp_path / "unknown" / "config.json").write_text(json.dumps(values))
        with raises("failed", "cannot read", "unknown"):
            load_pretrained(net, tmp_path / "unknown", Layers("real"), TOKENS)
    with raises("mismatch", "--backbone hf/NAME"):
        load_pretrained(torch.nn.Linear(2, 2), tmp_path / "short", Layers("real"), TOKENS)
    assert load_file(tmp_path / "short" / "model.safetensors")
