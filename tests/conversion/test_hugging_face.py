"""Modules of Hugging Face's transformers: stand-ins of the same names and structure, and the library's own if it is there."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.errors import raises
from zoo import load, save
from zoo.algebras import algebra
from zoo.conversion import convert, fold, survey
from zoo.layers import Layers, Linear

LAYERS = Layers("quaternion")


def blocks_of(model):
    targets, real = survey(model, LAYERS)
    assert all((t.role == "attention") == (t.blocks != (1, 1)) for t in targets)
    return {t.name: t.blocks for t in targets} | real


def heads_of(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class BertSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_attention_heads, self.attention_head_size, self.all_head_size = 4, 8, 32
        self.query, self.key, self.value = (nn.Linear(32, 32) for _ in range(3))

    def forward(self, x):
        q, k, v = (heads_of(layer(x), 4) for layer in (self.query, self.key, self.value))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class BertSelfOutput(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense, self.LayerNorm = nn.Linear(32, 32), nn.LayerNorm(32)

    def forward(self, x):
        return self.dense(x)


class BertAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.self, self.output = BertSelfAttention(), BertSelfOutput()

    def forward(self, x):
        return self.output(self.self(x))


class DistilBertSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.n_heads, self.dim = 4, 32
        self.q_lin, self.k_lin, self.v_lin, self.out_lin = (nn.Linear(32, 32) for _ in range(4))

    def forward(self, x):
        q, k, v = (heads_of(layer(x), 4) for layer in (self.q_lin, self.k_lin, self.v_lin))
        return self.out_lin(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Conv1D(nn.Module):
    """GPT-2's linear layer, with its weight transposed."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight, self.bias = nn.Parameter(torch.randn(nx, nf) / math.sqrt(nx)), nn.Parameter(torch.randn(nf))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], self.nf)


class GPT2Attention(nn.Module):
    def __init__(self, cross=False):
        super().__init__()
        self.embed_dim, self.num_heads, self.head_dim, self.split_size = 32, 4, 8, 32
        self.c_attn, self.c_proj = Conv1D(64 if cross else 96, 32), Conv1D(32, 32)
        if cross:
            self.q_attn = Conv1D(32, 32)

    def forward(self, x):
        q, k, v = (heads_of(part, 4) for part in self.c_attn(x).split(self.split_size, 2))
        return self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class GPT2MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(64, 32), Conv1D(32, 64)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


class LlamaAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(num_attention_heads=4, num_key_value_heads=2)
        self.head_dim = 8
        self.q_proj, self.o_proj = (nn.Linear(32, 32, bias=False) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(32, 16, bias=False) for _ in range(2))


def test_bert():
    found = blocks_of(nn.Sequential(BertAttention()))
    assert found == dict.fromkeys(("0.self.query", "0.self.key", "0.self.value"), (1, 4)) | {"0.output.dense": (4, 1)}


def test_values_that_nobody_known_reads_stay_real():
    class Alone(nn.Module):
        def __init__(self):
            super().__init__()
            self.self = BertSelfAttention()

    found = blocks_of(nn.Sequential(Alone()))
    assert found["0.self.value"] == "the layout of BertSelfAttention.value is not known"
    assert found["0.self.query"] == (1, 4)


def test_distilbert():
    names = dict.fromkeys(("0.q_lin", "0.k_lin", "0.v_lin"), (1, 4))
    assert blocks_of(nn.Sequential(DistilBertSelfAttention())) == names | {"0.out_lin": (4, 1)}


def test_gpt2():
    model = nn.ModuleDict({"attn": GPT2Attention(), "cross": GPT2Attention(cross=True), "mlp": GPT2MLP()})
    assert blocks_of(model) == {
        "attn.c_attn": (1, 12),
        "attn.c_proj": (4, 1),
        "cross.c_attn": (1, 8),
        "cross.c_proj": (4, 1),
        "cross.q_attn": (1, 4),
        "mlp.c_fc": (1, 1),
        "mlp.c_proj": (1, 1),
    }


def test_llama_tells_its_heads_in_a_configuration():
    names = {"0.q_proj": (1, 4), "0.k_proj": (1, 2), "0.v_proj": (1, 2), "0.o_proj": (4, 1)}
    assert blocks_of(nn.Sequential(LlamaAttention())) == names


@pytest.mark.parametrize("build", [BertAttention, DistilBertSelfAttention, GPT2Attention])
def test_attention_over_quaternions_turns_with_its_input(build):
    # With a unit quaternion, logits stay and values turn, so f(x q) = f(x) q; cut across elements they would not.
    torch.manual_seed(0)
    model = convert(nn.Sequential(build()), "quaternion").double()
    for name, parameter in model.named_parameters():
        if "bias" in name:
            nn.init.zeros_(parameter)
    product, q = algebra("quaternion").double(), torch.randn(4, dtype=torch.float64)
    turn = (q / q.norm()).repeat_interleave(8)
    x = torch.randn(2, 5, 32, dtype=torch.float64)
    torch.testing.assert_close(model(product(x, turn.expand_as(x))), product(model(x), turn.expand_as(x)))


def test_conv1d_projected_on_the_reals_is_itself():
    model, x = nn.Sequential(Conv1D(64, 32), Conv1D(32, 64)), torch.randn(2, 5, 32)
    expected = model(x)
    changed = convert(model, "real", weights="project")
    assert all(isinstance(layer, Linear) for layer in changed)
    torch.testing.assert_close(changed(x), expected)
    with_elements = convert(nn.Sequential(Conv1D(64, 32)), "quaternion", weights="project")
    assert with_elements[0].components.shape == (4, 16, 8)


def test_another_conv1d_is_no_matrix():
    other = type("Conv1D", (nn.Module,), {})()
    other.weight = nn.Parameter(torch.randn(3, 4, 5))
    assert survey(nn.Sequential(other, nn.Linear(32, 32)), LAYERS)[1] == {}


SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 50,
    "pad_token_id": 0,
}
GROUPED = SIZES | {"num_key_value_heads": 2}
T5 = {"decoder_start_token_id": 0, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 50}
VIT = {"image_size": 32, "patch_size": 8} | {key: value for key, value in SIZES.items() if "_size" not in key}
# The class, the configuration, how many matrices are converted, and the vectors side by side in its first matrix of attention.
MODELS = {
    "bert": ("AutoModelForSequenceClassification", SIZES, 13, (1, 4)),
    "distilbert": ("AutoModel", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 50}, 12, (1, 4)),
    "gpt2": ("AutoModelForCausalLM", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50}, 8, (1, 12)),
    "llama": ("AutoModelForCausalLM", GROUPED, 14, (1, 4)),
    "phi3": ("AutoModelForCausalLM", GROUPED, 8, (4, 1)),
    "gpt_neox": ("AutoModelForCausalLM", SIZES, 8, (1, 12)),
    "modernbert": ("AutoModelForSequenceClassification", SIZES, 9, (1, 12)),
    "bloom": ("AutoModel", {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50}, 8, (1, 12)),
    "t5": ("AutoModelForSeq2SeqLM", T5, 32, (1, 4)),
    "vit": ("AutoModelForImageClassification", VIT | {"hidden_size": 32, "intermediate_size": 64}, 12, (1, 4)),
}


def built(name):
    transformers = pytest.importorskip("transformers")
    kind, config, _, _ = MODELS[name]
    return getattr(transformers, kind).from_config(transformers.AutoConfig.for_model(name, **config))


def outputs(model, name):
    if name == "vit":
        return model(torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)))[0]
    tokens = torch.arange(1, 13).view(2, 6)
    return model(input_ids=tokens, **({"labels": tokens} if name == "t5" else {}), return_dict=True)[name == "t5"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_networks_of_transformers(name):
    torch.manual_seed(0)
    model, (_, _, count, blocks) = built(name), MODELS[name]
    targets, _ = survey(model, LAYERS)
    assert next(target.blocks for target in targets if target.role == "attention") == blocks
    before = sum(p.numel() for p in model.parameters())
    matrices = {target.name: target.module.weight.numel() for target in targets}
    expected = outputs(model.eval(), name)
    changed = convert(model, "quaternion").train()
    assert [*matrices] == [*changed.conversion.converted]
    assert len(matrices) == count
    # A quarter of every matrix is left.
    assert sum(p.numel() for p in model.parameters()) == before - sum(matrices.values()) * 3 // 4
    assert {*changed.conversion.real.values()} <= {"stem", "head"}

    optimizer = torch.optim.SGD(changed.parameters(), lr=0.01)
    y = outputs(changed, name)
    assert y.shape == expected.shape
    y.square().mean().backward()
    assert all(p.grad is not None for name, p in changed.named_parameters() if "pooler" not in name)
    optimizer.step()
    assert not torch.equal(outputs(changed.eval(), name), expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["gpt2", "phi3"])
def test_projected_on_the_reals_they_compute_what_they_did(name):
    torch.manual_seed(0)
    model = built(name).eval()
    expected = outputs(model, name)
    torch.testing.assert_close(outputs(convert(model, "real", weights="project").eval(), name), expected)


@pytest.mark.filterwarnings("ignore")
def test_the_scope_of_attention_finds_fused_matrices():
    pytest.importorskip("transformers")
    found = convert(built("gpt_neox"), "quaternion", scope="attention").conversion
    assert {name.rpartition(".")[2] for name in found.converted} == {"query_key_value", "dense"}
    assert all(target.blocks == (1, 2) for target in survey(built("phi3"), LAYERS)[0] if "gate_up" in target.name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["gpt2", "gpt_neox"])
def test_a_converted_model_is_saved_folded_or_by_the_zoo(name, tmp_path):
    model = convert(built(name), "quaternion").eval()
    for method in ("save_pretrained", "from_pretrained", "push_to_hub"):
        with raises("unsupported", method, "zoo.save"):
            getattr(model, method)(tmp_path / "wrong")
    if name == "gpt2":  # its Conv1D stores matrices transposed, and is folded to a linear layer
        with raises("unsupported", "zoo.save"):
            fold(model).save_pretrained(tmp_path / "wrong")
    else:
        fold(model).save_pretrained(tmp_path / "folded")
        loaded = type(model).from_pretrained(tmp_path / "folded").eval()
        torch.testing.assert_close(outputs(loaded, name), outputs(model, name))
    assert not (tmp_path / "wrong").exists()
    save(model, tmp_path / "zoo")
    loaded = load(tmp_path / "zoo", module=built(name)).net.eval()
    assert torch.equal(outputs(loaded, name), outputs(model, name))
