"""Models of Hugging Face's transformers as backbones: hf/NAME."""

import json
import sys

import pytest
import torch
from torch.nn import functional as F

import zoo
from tests.errors import raises
from zoo.backbones.build import check_fit, count
from zoo.cli import main
from zoo.conversion import stayed_real
from zoo.nn.weight import Weight
from zoo.tasks.decoding import Decoding, Prompts, beam_search, generate

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

IMAGE = {"in_channels": 1, "image_size": 16, "num_classes": 10}
CORPUS = {"vocab_size": 20, "max_length": 8}
TEXT = CORPUS | {"num_classes": 4, "pair": False}
PAIR = TEXT | {"pair": True}
PARALLEL = CORPUS | {"seq2seq": True}
TOKENS = torch.tensor([[5, 6, 7, 8, 9, 4], [4, 5, 6, 0, 0, 0]])
ENCODERS = ("bert", "roberta", "distilbert", "modernbert", "gpt2", "llama", "t5", "bart")
DECODERS = ("gpt2", "llama", "qwen3", "bert", "roberta", "mamba")
SLOW_DECODERS = ("qwen2", "mistral", "gpt_neox", "phi3", "gemma2", "falcon_h1")
IMAGES = (
    "hf/vit(dim=32, layers=1, patch_size=4)",
    "hf/deit(dim=32, layers=1, patch_size=4)",
    "hf/convnext(depths=[1, 1, 1, 1], hidden_sizes=[8, 8, 16, 16], patch_size=1)",
)


def built(spec, info, algebra="quaternion"):
    torch.manual_seed(0)
    return zoo.backbone(spec, algebra, **info).eval()


def small(name):
    return f"hf/{name}(dim=32, layers=1)"


def test_the_example_of_the_documentation():
    """Two layers and 128 channels of BERT are Google's bert-tiny: two heads, and 512 channels in the feed-forward network."""
    net = built("hf/bert(layers=2, dim=128)", TEXT)
    config = net.encoder.model.config
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads, config.intermediate_size) == (
        2,
        128,
        2,
        512,
    )
    matrices = [module for module in net.modules() if isinstance(module, Weight) and module.algebra.n == 4]
    assert len(matrices) == 12
    twin = built("hf/bert(layers=2, dim=128)", TEXT, "real")
    saved = count(twin)["total"] - count(net)["total"]
    assert saved == 3 * sum(module.components.numel() for module in matrices)
    assert stayed_real(net) == {}


@pytest.mark.parametrize("name", ENCODERS)
def test_classifiers_of_texts(name):
    net = built(small(name), TEXT)
    y = net(TOKENS)
    assert y.shape == (2, 4)
    torch.testing.assert_close(net(F.pad(TOKENS, (0, 2))), y)  # padding changes nothing
    torch.testing.assert_close(net(TOKENS[1:, :3]), y[1:])
    net.train()(TOKENS).square().sum().backward()
    assert [name for name, p in net.named_parameters() if p.grad is None] == []


def test_pairs_of_texts():
    net = built(small("bert"), PAIR)
    y = net(TOKENS, TOKENS[:, :3])
    assert y.shape == (2, 4)
    assert not torch.allclose(net(TOKENS[:, :3], TOKENS), y)


@pytest.mark.parametrize("name", [*DECODERS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_DECODERS)])
def test_language_models(name):
    net = built(small(name), CORPUS)
    tokens = TOKENS[:1]
    y = net(tokens)
    assert y.shape == (1, 6, 20)
    torch.testing.assert_close(net(tokens[:, :4]), y[:, :4])  # later tokens change nothing
    padded = torch.cat([torch.tensor([[0, 0, 5, 6]]), tokens[:, :4]])
    with torch.no_grad():
        cache = net.init_cache()
        steps = [net.decode_step(padded, cache, padded != 0)]
        cache.select(torch.tensor([1, 0, 1]))
        steps.append(net.decode_step(torch.tensor([[9], [7], [9]]), cache))
    torch.testing.assert_close(steps[0][1], y[0, :4])
    torch.testing.assert_close(steps[1][[0, 2], 0], y[:, 4].expand(2, -1))
    torch.testing.assert_close(steps[1][1, 0], net(torch.tensor([[5, 6, 7]]))[0, 2])


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_encoders_and_decoders(name):
    net = built(small(name), PARALLEL)
    target = torch.tensor([[2, 5, 6], [2, 7, 8]])
    y = net(TOKENS, target)
    assert y.shape == (2, 3, 20)
    torch.testing.assert_close(net(F.pad(TOKENS, (0, 2)), target), y)
    with torch.no_grad():
        cache = net.init_cache(TOKENS)
        steps = [net.decode_step(target[:, i : i + 1], cache) for i in range(2)]
        cache.select(torch.tensor([1]))
        steps.append(net.decode_step(target[1:, 2:], cache))
    torch.testing.assert_close(torch.cat(steps[:2], 1), y[:, :2])
    torch.testing.assert_close(steps[2], y[1:, 2:])
    prompts = Prompts(target[:, :1], source=TOKENS, end=3)
    greedy = generate(net, prompts, Decoding(length=4))
    beams = [hypotheses[0].tokens for hypotheses in beam_search(net, prompts, Decoding(length=4))]
    assert [beam[: len(text)] for beam, text in zip(beams, greedy, strict=True)] == greedy
    with raises("missing", "source"):
        net.init_cache()


@pytest.mark.parametrize("spec", IMAGES)
def test_classifiers_of_images(spec):
    net = built(spec, IMAGE)
    assert net(torch.randn(2, 1, 16, 16)).shape == (2, 10)
    assert {"stem", "head"} <= stayed_real(net).keys()


def test_saved_networks_are_rebuilt_from_the_specs(tmp_path):
    for spec, info, inputs in ((small("bert"), TEXT, TOKENS), (small("gpt2"), CORPUS, TOKENS[:1])):
        net = built(spec, info, "phm-4")
        folder = zoo.save(net, tmp_path / spec[3:7], backbone=spec, algebra="phm-4", **info)
        loaded = zoo.load(folder).net
        assert torch.equal(loaded(inputs), net(inputs))
        assert loaded.conversion == net.conversion
        torch.testing.assert_close(zoo.fold(net)(inputs), net(inputs))


def test_options_of_the_configuration():
    net = built("hf/llama(dim=64, layers=1, heads=4, num_key_value_heads=2, hidden_act=relu)", CORPUS)
    config = net.model.config
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim, config.hidden_act) == (4, 2, 16, "relu")
    assert built("hf/mistral(dim=64, layers=1, heads=8)", CORPUS).model.config.num_key_value_heads == 2


@pytest.mark.parametrize(
    ("spec", "info", "code", "words"),
    [
        ("hf/brt", TEXT, "unknown", ["'brt'", "bert"]),
        ("hf/bert(hiden_act=relu)", TEXT, "unknown", ["hiden_act", "hidden_act"]),
        ("hf/bert(dim=30, heads=4)", TEXT, "invalid", ["transformers cannot build"]),
        ("hf/bert(use_cache=3)", TEXT, "invalid", ["transformers cannot build", "use_cache"]),
        ("hf/bert(layers=0)", TEXT, "invalid", ["layers=0"]),
        ("hf/resnet(dim=8)", IMAGE, "unsupported", ["no single dim"]),
        ("hf/bert", IMAGE, "mismatch", ["hf/bert reads texts", "glosses"]),
        ("hf/vit", TEXT, "mismatch", ["hf/vit reads images", "digits"]),
        ("hf/llama(dim=32, layers=1)", PARALLEL, "unsupported", ["cannot be an encoder and decoder"]),
    ],
)
def test_bad_input(spec, info, code, words):
    with raises(code, *words) as caught:
        built(spec, info)
    assert len(str(caught.value).splitlines()) == 1


def test_a_network_that_returns_tuples_is_refused():
    spec = "hf/bert(dim=32, layers=1, return_dict=false)"
    with raises("mismatch", spec, "tuple"):
        check_fit(built(spec, TEXT), spec, TOKENS, 3)


def test_a_vocabulary_smaller_than_that_of_the_data_is_refused(tmp_path, capsys):
    assert fit(tmp_path / "run", "hf/bert(dim=32, layers=1, vocab_size=7)", CLASSIFIED[1]) == 2
    error = capsys.readouterr().err
    assert "hf/bert(dim=32, layers=1, vocab_size=7) cannot read" in error
    assert "at least 300 tokens" in error
    assert "Traceback" not in error
    assert len(error.splitlines()) <= 3


def test_other_embeddings_are_not_supported():
    with raises("unsupported", "complex_order"):
        zoo.backbone(small("bert"), "complex", embedding="complex_order", **TEXT)


def test_a_missing_package_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with raises("dependency", "hypercomplex-zoo[transformers]"):
        built(small("bert"), TEXT)


def fit(folder, backbone, data, *options):
    quick = ["--trainer.max_epochs=1", "--trainer.limit_train_batches=2", "--trainer.limit_val_batches=1"]
    quick += ["--trainer.limit_test_batches=1", "--trainer.accelerator=cpu"]
    words = ["fit", "--backbone", backbone, "--data", data, "--run-dir", str(folder), *quick, *options]
    return main([*words, *([] if "--algebra" in options else ["--algebra", "quaternion"])])


CLASSIFIED = ("hf/bert(dim=32, layers=1)", "glosses(vocab=300)")


def test_the_command_line_trains_predicts_and_generates(tmp_path, capsys):
    assert fit(tmp_path / "text", *CLASSIFIED) == 0, capsys.readouterr().err
    assert "hf/bert" in json.loads((tmp_path / "text" / "summary.json").read_text())["backbone"]
    assert main(["predict", str(tmp_path / "text"), "a small bird"]) == 0
    corpus = "glosses(task=language_model, tokenizer=char, max_length=32)"
    assert fit(tmp_path / "lm", "hf/gpt2(dim=32, layers=1)", corpus) == 0, capsys.readouterr().err
    assert main(["generate", str(tmp_path / "lm"), "--prompt", "a small", "--length", "5"]) == 0, capsys.readouterr().err
    assert main(["list", "backbones", "hf"]) == 0
    assert "dim=None, layers=None, heads=None, ffn=None" in capsys.readouterr().out
