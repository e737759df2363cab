"""Weights of GPT-2 and nanoGPT in the backbone gpt: the outputs are those of transformers' own network."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from zoo_importers.gpt2 import FIRST, gpt2

import zoo
from tests.errors import raises

transformers = pytest.importorskip("transformers")
TEXT = "a small bird with a long bill sat on a small tree. "


def theirs(**config):
    """Return a GPT-2 of transformers whose biases and norms are not those of a new one."""
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 12, "vocab_size": 262} | config
    net = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return net


@pytest.fixture
def folder(tmp_path):
    """A folder of transformers, with a tokenizer."""
    theirs().save_pretrained(tmp_path / "hf")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    options = {"special_tokens": ["<|endoftext|>"], "initial_alphabet": alphabet, "show_progress": False}
    tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=262, **options))
    tokenizer.save(str(tmp_path / "hf" / "tokenizer.json"))
    return tmp_path / "hf"


def built(imported, algebra="real"):
    net = zoo.backbone(imported.backbone, algebra, **imported.sizes)
    net.load_state_dict(imported.state)
    return net.eval()


def same(net, other, vocab=262, atol=1e-5):
    tokens = torch.randint(vocab, (2, 12))
    with torch.no_grad():
        y, expected = net(tokens + FIRST), other(tokens).logits
    torch.testing.assert_close(y[..., FIRST:], expected, atol=atol, rtol=0)
    torch.testing.assert_close(y.softmax(-1)[..., FIRST:], expected.softmax(-1), atol=1e-6, rtol=0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "config",
    [{}, {"activation_function": "relu", "n_inner": 40}, {"tie_word_embeddings": False, "activation_function": "gelu"}],
    ids=["gpt2", "relu", "untied"],
)
def test_the_outputs_are_those_of_transformers(tmp_path, config):
    net = theirs(**config)
    net.save_pretrained(tmp_path)
    imported = gpt2(tmp_path)
    same(built(imported), net)
    assert imported.sizes == {"vocab_size": 264, "max_length": 12}
    if not config:
        text = json.loads((tmp_path / "config.json").read_text()) | {"activation_function": "gelu"}
        (tmp_path / "config.json").write_text(json.dumps(text))
        with pytest.raises(AssertionError):  # the activation matters
            same(built(gpt2(tmp_path)), net)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("biased", [True, False])
def test_a_checkpoint_of_nanogpt(tmp_path, biased):
    net = theirs(activation_function="gelu")
    if not biased:
        with torch.no_grad():
            for name, parameter in net.named_parameters():
                parameter.mul_(not name.endswith("bias"))
    state = {}
    for name, value in net.state_dict().items():
        is_matrix = value.ndim == 2 and ".h." in name
        if biased or not name.endswith("bias"):
            state[f"_orig_mod.{name}"] = value.T.contiguous() if is_matrix else value
    state["_orig_mod.transformer.h.0.attn.bias"] = torch.ones(1, 1, 12, 12)  # its causal mask
    args = {"n_layer": 2, "n_head": 4, "n_embd": 32, "block_size": 12, "bias": biased, "vocab_size": 262, "dropout": 0.2}
    torch.save({"model": state, "model_args": args, "iter_num": 5, "best_val_loss": torch.tensor(1.0)}, tmp_path / "ckpt.pt")
    imported = gpt2(tmp_path / "ckpt.pt")
    same(built(imported), net)
    assert "dropout=0.2" in imported.backbone
    assert imported.tokenizer is None
    save_file({name: value.clone() for name, value in state.items()}, tmp_path / "alone.safetensors")
    with raises("mismatch", "heads=12"):
        gpt2(tmp_path / "alone.safetensors")
    same(built(gpt2(tmp_path / "alone.safetensors", heads=4)), net)


@pytest.mark.filterwarnings("ignore")
def test_a_folder_with_a_tokenizer_is_a_language_model(folder, call, tmp_path):
    words = ("convert", "--from", "hf", "--format", "gpt2", "--algebra")
    code, out, err = call(*words, "real", "--to", "real")
    assert (code, err) == (0, "")
    assert 'zoo generate real --prompt "some text"' in out
    model, net = zoo.load("real"), transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    same(model.net, net)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    ids = torch.tensor([tokenizer.encode("a small bird")])
    greedy = net.generate(ids, max_new_tokens=4, do_sample=False, pad_token_id=0)[0, ids.shape[1] :]
    ours = model.tokenizer.encode(["a small bird"]).padded()
    assert torch.equal(ours - FIRST, ids)
    assert model.generate("a small bird", top_k=1, length=4)[0].endswith(tokenizer.decode(greedy))

    assert call(*words, "quaternion", "--to", "result").code == 0
    assert zoo.load("result").config.algebra == "quaternion"
    (tmp_path / "text.txt").write_text(TEXT * 60)
    assert "perplexity" in call("test", "result", "--data", "corpus(path=text.txt)", "--trainer.accelerator", "cpu").out
    line = next(line for line in call(*words, "quaternion", "--to", "again").out.splitlines() if "zoo fit" in line)
    assert "tokenizer=again/tokenizer.json" in line
    data = "corpus(max_length=12, path=text.txt, tokenizer=again/tokenizer.json)"
    few = {"max_epochs": 1, "limit_train_batches": 2, "accelerator": "cpu", "logger": False, "enable_progress_bar": False}
    backbone = zoo.load("again").config.backbone
    zoo.fit(backbone=backbone, algebra="quaternion", data=data, init_from="again", run_dir="run", trainer=few)
    assert zoo.load("run").tokenizer.to_json() == zoo.load("again").tokenizer.to_json()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ({"activation_function": "silu"}, "activation_function='silu'"),
    ],
)
def test_what_the_backbone_does_not_compute_is_refused(folder, refused, tmp_path, change, message):
    text = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(text))
    assert message in refused("convert", "--from", "hf", "--format", "gpt2", "--algebra", "real", "--to", "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.filterwarnings("ignore")
def test_other_networks_are_refused(folder, refused, tmp_path):
    words = ("convert", "--from", "hf", "--algebra", "real", "--to", "x", "--format")
    assert "'depth'" in refused(*words, "gpt2(depth=2)")
    assert "--data" in refused(*words, "gpt2", "--data", "digits")
    file = folder / "model.safetensors"
    state = load_file(file)
    save_file({name: value for name, value in state.items() if "h.1.mlp.c_fc.weight" not in name}, file)
    assert "blocks.1.ffn.0" in refused(*words, "gpt2")
    file.unlink()
    assert "model.safetensors" in refused(*words, "gpt2")
