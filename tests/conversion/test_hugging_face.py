"""Conversion of models of Hugging Face's transformers."""

import pytest
import torch

from tests.conversion.hugging_face import GROUPED, SIZES, T5, VIT
from zoo.conversion import convert, survey
from zoo.nn import Layers

LAYERS = Layers("quaternion")
SEPARATE = {"query": (1, 4), "key": (1, 4), "value": (1, 4)}
PROJECTIONS = {"q_proj": (1, 4), "k_proj": (1, 4), "v_proj": (1, 4), "o_proj": (4, 1)}
Q_K_V = {"q": (1, 4), "k": (1, 4), "v": (1, 4)}
# Class, configuration, number of converted matrices, and the layouts of the matrices of attention.
MODELS = {
    "bert": ("AutoModelForSequenceClassification", SIZES, 13, SEPARATE | {"dense": (4, 1)}),
    "gpt2": (
        "AutoModelForCausalLM",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50},
        8,
        {"c_attn": (1, 12), "c_proj": (4, 1)},
    ),
    "llama": ("AutoModelForCausalLM", GROUPED, 14, PROJECTIONS | {"k_proj": (1, 2), "v_proj": (1, 2)}),
    "phi3": ("AutoModelForCausalLM", GROUPED, 8, {"o_proj": (4, 1), "qkv_proj": (1, 8)}),
    "gpt_neox": ("AutoModelForCausalLM", SIZES, 8, {"query_key_value": (1, 12), "dense": (4, 1)}),
    "modernbert": ("AutoModelForSequenceClassification", SIZES, 9, {"Wqkv": (1, 12), "Wo": (4, 1)}),
    "t5": ("AutoModelForSeq2SeqLM", T5, 32, Q_K_V | {"o": (4, 1)}),
    "vit": ("AutoModelForImageClassification", VIT, 12, PROJECTIONS),
}


def built(name, **options):
    transformers = pytest.importorskip("transformers")
    kind, config, _, _ = MODELS[name]
    return getattr(transformers, kind).from_config(transformers.AutoConfig.for_model(name, **config | options))


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
    assert {t.name.rpartition(".")[2]: t.blocks for t in targets if t.role == "attention"} == blocks
    before = sum(p.numel() for p in model.parameters())
    matrices = {target.name: target.module.weight.numel() for target in targets}
    expected = outputs(model.eval(), name)
    changed = convert(model, "quaternion").train()
    assert [*matrices] == [*changed.conversion.converted]
    assert len(matrices) == count
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
def test_a_projection_onto_the_reals_is_the_identity(name):
    torch.manual_seed(0)
    model = built(name).eval()
    expected = outputs(model, name)
    torch.testing.assert_close(outputs(convert(model, "real", weights="project").eval(), name), expected)


@pytest.mark.filterwarnings("ignore")
def test_cross_attention_and_gated_units_of_fused_matrices():
    targets, _ = survey(built("gpt2", add_cross_attention=True), LAYERS)
    blocks = {t.name.rpartition(".")[2]: t.blocks for t in targets if "crossattention" in t.name}
    assert blocks == {"c_attn": (1, 8), "q_attn": (1, 4), "c_proj": (4, 1)}
    conversion = convert(built("gpt_neox"), "quaternion", scope="attention").conversion
    assert {name.rpartition(".")[2] for name in conversion.converted} == {"query_key_value", "dense"}
    assert all(target.blocks == (1, 2) for target in survey(built("phi3"), LAYERS)[0] if "gate_up" in target.name)
