"""Conversion and saving of models of Hugging Face's transformers."""

import copy

import pytest
import torch

from tests.errors import raises
from zoo import load, save
from zoo.conversion import convert, fold, survey
from zoo.nn import Layers

LAYERS = Layers("quaternion")


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
    "vit": ("AutoModelForImageClassification", VIT | {"hidden_size": 32, "intermediate_size": 64}, 12, PROJECTIONS),
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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["gpt2", "gpt_neox"])
def test_a_converted_model_is_saved_with_zoo_save_or_folded(name, tmp_path):
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


@pytest.mark.filterwarnings("ignore")
def test_the_trainer_refuses_checkpoints_before_its_first_step(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    model, rows = convert(built("bert"), "quaternion"), [{"input_ids": [3, 4, 5], "labels": 1}] * 4
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def trainer(model, **options):
        quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "num_train_epochs": 1, "logging_strategy": "no"}
        return transformers.Trainer(model, transformers.TrainingArguments(str(tmp_path / "hf"), **quiet, **options), None, rows)

    with raises("unsupported", "save_strategy", "zoo.save"):
        trainer(model).train()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.train().training
    assert not model.eval().training
    copied = copy.deepcopy(model)
    with raises("unsupported", "save_strategy"):
        trainer(copied).train()
    trainer(model, save_strategy="no").train()
    assert not all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    save(model, tmp_path / "zoo")
    trainer(fold(model)).train()  # and saves a checkpoint
    assert list((tmp_path / "hf").glob("checkpoint-*/model.safetensors"))
