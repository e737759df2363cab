"""The method of PEFT: training, saving, several adapters, merging, quantized layers and layers over algebras as targets."""

import copy

import pytest
import torch
from torch import nn

import zoo
from tests.conversion.hugging_face import build
from tests.conversion.hugging_face import output as output_with_gradient
from tests.errors import raises

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore")

ZooConfig = pytest.importorskip("zoo.peft").ZooConfig
TARGETS = {
    "bert": ["query", "value"],
    "llama": ["q_proj", "down_proj"],
    "gpt2": ["c_attn", "c_proj"],
    "vit": ["q_proj"],
}


def config(algebra="quaternion", name="bert", **options):
    return ZooConfig(algebra=algebra, **{"block_rank": 1, "target_modules": TARGETS[name]} | options)


def adapted(name="bert", algebra="quaternion", seed=0, **options):
    torch.manual_seed(seed)
    return peft.get_peft_model(build(name), config(algebra, name, **options)).eval()


@torch.no_grad()
def output(model, name):
    return output_with_gradient(model, name)


def train(model, name="bert", steps=2):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1.0)
    for _ in range(steps):
        optimizer.zero_grad()
        output_with_gradient(model, name).square().sum().backward()
        optimizer.step()
    return model


def trainable(model):
    return {name for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize(
    ("name", "algebra"), [("bert", "phm(n=4, shared=True)"), ("gpt2", "octonion"), ("vit", "phm(n=4, learned=False)")]
)
def test_train_save_load_and_merge(name, algebra, tmp_path):
    model = adapted(name, algebra)
    base = build_like(name)
    assert torch.equal(output(model, name), output(base, name))
    assert trainable(model)
    assert all(".zoo_update.default." in key for key in trainable(model))
    train(model, name)
    expected = output(model, name)
    assert not torch.allclose(expected, output(base, name))
    model.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(build_like(name), tmp_path).eval()
    assert torch.equal(output(loaded, name), expected)
    assert loaded.peft_config["default"].algebra == algebra
    again = peft.PeftModel.from_pretrained(build_like(name), tmp_path, low_cpu_mem_usage=True).eval()
    assert torch.equal(output(again, name), expected)
    merged = loaded.merge_and_unload(safe_merge=True)
    torch.testing.assert_close(output(merged, name), expected, rtol=1e-4, atol=1e-5)
    assert merged.state_dict().keys() == base.state_dict().keys()


def build_like(name, seed=0):
    torch.manual_seed(seed)
    return build(name)


def test_convolutions(tmp_path):
    def network():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU())

    model = peft.get_peft_model(network(), ZooConfig(algebra="quaternion", block_rank=2, target_modules=["0"]))
    nn.init.normal_(model.base_model.model[0].zoo_update["default"].up)
    x = torch.randn(2, 8, 5, 5)
    expected = model(x)
    assert not torch.allclose(expected, network()(x))
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(peft.PeftModel.from_pretrained(network(), tmp_path)(x), expected)
    torch.testing.assert_close(model.merge_and_unload()(x), expected, rtol=1e-4, atol=1e-5)


def test_default_targets_are_those_of_lora():
    model = adapted(target_modules=None)
    assert {key.split(".zoo_update")[0].rpartition(".")[2] for key in trainable(model)} == {"query", "value"}


def test_several_adapters(tmp_path):
    model = train(adapted())
    first = output(model, "bert")
    model.add_adapter("second", config("octonion"))
    assert torch.equal(output(model, "bert"), first)
    model.set_adapter("second")
    assert all(".second." in key for key in trainable(model))
    with model.disable_adapter():
        base = output(model, "bert")
    assert torch.equal(output(model, "bert"), base)  # the second adapter is still zero
    second = output(train(model), "bert")
    model.set_adapter("default")
    assert torch.equal(output(model, "bert"), first)
    model.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(build_like("bert"), tmp_path).eval()
    loaded.load_adapter(tmp_path / "second", "second")
    assert torch.equal(output(loaded, "bert"), first)
    loaded.set_adapter("second")
    assert torch.equal(output(loaded, "bert"), second)
    loaded.merge_adapter()
    torch.testing.assert_close(output(loaded, "bert"), second, rtol=1e-4, atol=1e-5)
    loaded.unmerge_adapter()
    torch.testing.assert_close(output(loaded, "bert"), second, rtol=1e-4, atol=1e-5)
    loaded.delete_adapter("second")
    assert loaded.active_adapters == ["default"]
    assert torch.equal(output(loaded, "bert"), first)


def test_the_trainer_saves_and_resumes_an_adapter(tmp_path):
    transformers = pytest.importorskip("transformers")

    def trainer(model):
        rows = [{"input_ids": [3, 4, 5 + i], "labels": i % 2} for i in range(4)]
        options = {"num_train_epochs": 2, "save_strategy": "epoch", "report_to": "none", "disable_tqdm": True, "use_cpu": True}
        return transformers.Trainer(model, transformers.TrainingArguments(str(tmp_path), **options), None, rows)

    whole = trainer(adapted(modules_to_save=["classifier"]))
    whole.train()
    resumed = trainer(adapted(modules_to_save=["classifier"]))
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    states = (peft.get_peft_model_state_dict(run.model) for run in (whole, resumed))
    for ours, theirs in zip(*(state.items() for state in states), strict=True):
        assert ours[0] == theirs[0]
        assert torch.equal(ours[1], theirs[1])


def test_conversion_to_lora():
    model = train(adapted())
    lora, state = peft.convert_to_lora(model, rank=32)
    theirs = peft.get_peft_model(build_like("bert"), lora).eval()
    peft.set_peft_model_state_dict(theirs, state)
    torch.testing.assert_close(output(theirs, "bert"), output(model, "bert"), rtol=1e-4, atol=1e-6)


def test_a_registered_algebra_is_an_adapter_by_its_name():
    dual = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 0.0]]])
    zoo.register("algebras", "my_dual", lambda: zoo.Algebra(dual))
    try:
        model = train(adapted(algebra="my_dual"))
        merged = copy.deepcopy(model).merge_and_unload()
        torch.testing.assert_close(output(merged, "bert"), output(model, "bert"), rtol=1e-4, atol=1e-5)
    finally:
        zoo.registry.unregister("algebras", "my_dual")


class QuantizedLinear(nn.Module):
    """A linear layer with int8 weights, which has only the attributes that such layers have in common."""

    def __init__(self, layer):
        super().__init__()
        self.in_features, self.out_features, self.bias = layer.in_features, layer.out_features, layer.bias
        self.scale = layer.weight.detach().abs().max() / 127
        self.register_buffer("weight", (layer.weight.detach() / self.scale).round().to(torch.int8))

    def forward(self, x):
        return nn.functional.linear(x, self.weight * self.scale, self.bias)


def test_a_quantized_layer_is_adapted_by_its_output():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), QuantizedLinear(nn.Linear(8, 8)))
    x, before = torch.randn(3, 8), copy.deepcopy(net)
    model = peft.get_peft_model(net, ZooConfig(algebra="quaternion", block_rank=1, target_modules=["1"]))
    assert torch.equal(model(x), before(x))
    for _ in range(2):
        model(x).square().sum().backward()
        for p in model.parameters():
            if p.requires_grad:
                p.data -= 0.1 * p.grad
    assert not torch.equal(model(x), before(x))
    with raises("unsupported", "quantized"):
        model.merge_and_unload()


def converted(spec="quaternion", seed=0):
    torch.manual_seed(seed)
    return zoo.convert(build("bert"), spec).eval()


@pytest.mark.parametrize("method", ["ours", "lora"])
@pytest.mark.parametrize("targets", [["intermediate.dense"], ["query", "value", "attention.output.dense"]])
def test_layers_over_an_algebra_are_targets(method, targets, tmp_path):
    """Also those of attention, where each head consists of whole elements."""
    transformers = pytest.importorskip("transformers")
    lora = zoo.peft.accept_zoo_layers(peft.LoraConfig(r=2, target_modules=targets))
    model = peft.get_peft_model(converted(), config(target_modules=targets) if method == "ours" else lora).eval()
    assert torch.equal(output(model, "bert"), output(converted(), "bert"))
    expected = output(train(model), "bert")
    model.save_pretrained(tmp_path / "adapter")
    saved = zoo.peft.accept_zoo_layers(peft.LoraConfig.from_pretrained(tmp_path / "adapter")) if method == "lora" else None
    loaded = peft.PeftModel.from_pretrained(converted(), tmp_path / "adapter", config=saved).eval()
    assert torch.equal(output(loaded, "bert"), expected)
    if method == "lora":  # a matrix of low rank is not quaternionic
        with raises("unsupported", "quaternion"):
            model.merge_and_unload()
        return
    merged = model.merge_and_unload()
    torch.testing.assert_close(output(merged, "bert"), expected, rtol=1e-4, atol=1e-5)
    assert merged.state_dict().keys() == converted().state_dict().keys()
    merged.save_pretrained(tmp_path / "merged")
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "merged")
    assert torch.equal(output(again, "bert"), output(merged, "bert"))


def test_lora_merges_into_a_layer_over_the_reals():
    lora = zoo.peft.accept_zoo_layers(peft.LoraConfig(r=2, target_modules=["intermediate.dense"]))
    model = train(peft.get_peft_model(converted("real"), lora).eval())
    expected = output(model, "bert")
    model.merge_adapter()
    torch.testing.assert_close(output(model, "bert"), expected, rtol=1e-4, atol=1e-5)
    model.unmerge_adapter()
    torch.testing.assert_close(output(model.merge_and_unload(), "bert"), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_modules_that_read_the_matrices_of_their_layers(training):
    class Attends(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = zoo.convert(nn.MultiheadAttention(8, 2, batch_first=True), "quaternion")

        def forward(self, x):
            return self.attention(x, x, x)[0]

    torch.manual_seed(0)
    encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    for net, target in ((Attends(), "out_proj"), (encoder, "linear1")):
        model = peft.get_peft_model(net, ZooConfig(algebra="quaternion", block_rank=1, target_modules=[target])).train(training)
        for name, parameter in model.named_parameters():
            nn.init.normal_(parameter) if "zoo_update" in name else None
        x = torch.randn(2, 3, 8)
        with torch.no_grad():
            changed = model(x)
            with model.disable_adapter():
                assert (model(x) - changed).abs().max() > 0.01


def test_adapter_names_are_refused():
    model = adapted()
    with raises("unsupported", "set_adapter"):
        model(input_ids=torch.ones(2, 3, dtype=torch.long), adapter_names=["default", "__base__"])


def test_invalid_configurations(tmp_path):
    for options, code, words in (
        ({"algebra": ""}, "missing", "algebra"),
        ({"algebra": "nothing"}, "unknown", "nothing"),
        ({"algebra": zoo.algebra("quaternion")}, "invalid", "spec"),
        ({"block_rank": -1}, "invalid", "block_rank=-1"),
        ({"block_rank": 1.5}, "invalid", "block_rank=1.5"),
        ({"dropout": 1.0}, "invalid", "dropout=1.0"),
        ({"channels": "rows"}, "unknown", "rows"),
    ):
        with raises(code, words):
            config(**options)
    for options, code, words in (
        ({"block_rank": 9}, "invalid", "block_rank=9"),
        ({"algebra": "phm(n=3)"}, "invalid", "n=3 does not divide"),
        ({"target_modules": ["LayerNorm"]}, "unsupported", "LayerNorm"),
    ):
        with raises(code, "layer 'bert.", words):
            adapted(**options)
    with pytest.raises(ValueError, match="nowhere"):
        adapted(target_modules=["nowhere"])
    adapted().save_pretrained(tmp_path)
    with raises("mismatch", "another base model"):
        peft.PeftModel.from_pretrained(build("bert", hidden_size=64), tmp_path)
    with raises("unsupported", "attention"):
        peft.get_peft_model(nn.MultiheadAttention(8, 2), config(target_modules=["out_proj"]))
