"""Converted models of transformers: ``save_pretrained``, ``from_pretrained``, the Trainer, pipelines, folding."""

import importlib
import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

import zoo
from tests.conversion.hugging_face import ARCHITECTURES, build, inputs, output
from tests.errors import raises
from zoo.algebras import Algebra

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytestmark = pytest.mark.filterwarnings("ignore")

FAST = {("bert", "octonion"), ("roberta", "quaternion"), ("gpt2", "phm-4"), ("clip", "quaternion"), ("t5", "quaternion")}
TABLE = [
    pytest.param(name, spec, marks=[] if (name, spec) in FAST else pytest.mark.slow)
    for name in ARCHITECTURES
    for spec in ("quaternion", "octonion", "phm-4")
]


def converted(name="bert", spec="quaternion", **options):
    torch.manual_seed(0)
    return zoo.convert(build(name, **options), spec).eval()


def auto_class(name):
    return getattr(transformers, ARCHITECTURES[name][0])


def rows(name, count=4):
    batch = inputs(name)
    target = {"labels": batch["input_ids"][0]} if "Causal" in ARCHITECTURES[name][0] else {"labels": torch.tensor(1)}
    target = {"labels": batch["decoder_input_ids"][0]} if "decoder_input_ids" in batch else target
    row = {key: value[0] for key, value in batch.items()} | ({} if name == "clip" else target)
    return [row] * count


def trainer(model, name, folder, **options):
    def collate(batch):
        stacked = {key: torch.stack([row[key] for row in batch]) for key in batch[0]}
        return stacked | ({"return_loss": True} if name == "clip" else {})

    arguments = transformers.TrainingArguments(str(folder), report_to="none", disable_tqdm=True, use_cpu=True, **options)
    return transformers.Trainer(model, arguments, collate, rows(name), rows(name))


def equal_states(a, b):
    ours, theirs = a.state_dict(), b.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(value, theirs[key]) for key, value in ours.items())


@pytest.mark.parametrize(("name", "spec"), TABLE)
def test_a_converted_model_survives(name, spec, tmp_path):
    model = converted(name, spec)
    assert set(model.conversion.real.values()) <= {"stem", "head"}
    model.save_pretrained(tmp_path / "saved")
    stored = json.loads((tmp_path / "saved" / "config.json").read_text())["quantization_config"]
    assert stored["quant_method"] == "zoo"
    assert stored["algebra"] == str(zoo.algebra(spec).spec)
    loaded = auto_class(name).from_pretrained(tmp_path / "saved")
    assert torch.equal(output(loaded, name), output(model, name))
    assert not any(tensor.is_meta for tensor in [*loaded.parameters(), *loaded.buffers()])
    assert loaded.conversion.converted == model.conversion.converted
    # The Trainer resumes with this function, and warns of unexpected keys.
    missing, unexpected = loaded.load_state_dict(load_file(tmp_path / "saved" / "model.safetensors"), strict=False)
    assert (unexpected, [key for key in missing if "components" in key]) == ([], [])
    # The Trainer with its default settings saves a checkpoint, and the loaded model is trained.
    trainer(loaded, name, tmp_path / "hf").train()
    again = auto_class(name).from_pretrained(next((tmp_path / "hf").glob("checkpoint-*")))
    assert equal_states(again, loaded)
    assert not equal_states(again, model)


def test_the_head_and_the_stem_stay_real():
    ends = {
        "roberta": {"classifier.out_proj": "head"},
        "clip": {
            "vision_model.embeddings.patch_embedding": "stem",
            "visual_projection": "head",
            "text_projection": "head",
        },
        "whisper": {"model.encoder.conv1": "stem", "proj_out": "head"},
    }
    assert {name: converted(name).conversion.real for name in ends} == ends
    assert "classifier.out_proj" in zoo.convert(build("roberta"), "quaternion", scope="all+head").conversion.converted


def test_the_trainer_resumes_and_loads_the_best_checkpoint(tmp_path):
    options = {"num_train_epochs": 3, "save_strategy": "epoch", "eval_strategy": "epoch", "learning_rate": 1e-3}
    options |= {"load_best_model_at_end": True, "per_device_train_batch_size": 4}
    whole = trainer(converted(), "bert", tmp_path, **options)
    whole.train()
    assert whole.state.best_model_checkpoint.endswith("checkpoint-3")
    resumed = trainer(converted(), "bert", tmp_path, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert equal_states(resumed.model, whole.model)
    best = trainer(converted(), "bert", tmp_path / "best", greater_is_better=True, metric_for_best_model="loss", **options)
    best.train()
    assert best.state.best_model_checkpoint.endswith("checkpoint-1")
    assert equal_states(
        best.model, transformers.BertForSequenceClassification.from_pretrained(tmp_path / "best" / "checkpoint-1")
    )


def test_another_head_or_none(tmp_path, caplog):
    model = converted()
    model.save_pretrained(tmp_path / "saved")
    base = transformers.AutoModel.from_pretrained(tmp_path / "saved")
    expected = model.bert(**inputs("bert")).last_hidden_state
    assert torch.equal(base(**inputs("bert")).last_hidden_state, expected)
    base.save_pretrained(tmp_path / "base")
    caplog.clear()
    headed = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "base")
    assert torch.equal(headed.bert(**inputs("bert")).last_hidden_state, base.eval()(**inputs("bert")).last_hidden_state)
    assert headed.conversion.real == {"classifier": "was not converted"}


def test_shared_and_random_products_scopes_and_layouts(tmp_path):
    from zoo.conversion.attention_layout import MatrixLayout

    layouts = {"query": (1, 2), "key": (1, 2), "value": (1, 2)}

    def layout(name, module):
        return MatrixLayout("ffn", layouts.get(name.rpartition(".")[2], (1, 1)))

    torch.manual_seed(0)
    models = {
        "shared": zoo.convert(build("bert"), "phm(n=4, shared=True)"),
        "scope": zoo.convert(build("bert"), "quaternion", scope="attention+head"),
        "skip": zoo.convert(build("bert"), "quaternion", skip=["*.layer.0.*"]),
        "layout": zoo.convert(build("bert"), "quaternion", layout=layout),
        "real": zoo.convert(build("bert"), "real"),
    }
    for name, model in models.items():
        model.eval().save_pretrained(tmp_path / name)
        loaded = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / name)
        assert torch.equal(output(loaded, "bert"), output(model, "bert")), name
        assert loaded.conversion.converted == model.conversion.converted
    nothing = zoo.convert(build("bert"), "real", skip=["*"])
    assert not hasattr(nothing.config, "quantization_config")
    assert len({module for module in models["shared"].modules() if isinstance(module, Algebra)}) == 1


def test_half_precision_and_devices_of_constants(tmp_path):
    model = converted()
    model.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert {p.dtype for p in loaded.parameters()} == {torch.bfloat16}
    assert torch.equal(output(loaded, "bert"), output(model.bfloat16(), "bert"))
    products = [module for module in loaded.modules() if isinstance(module, Algebra)]
    assert {product.basis.device.type for product in products} == {"cpu"}
    assert {product.basis.dtype for product in products} == {torch.bfloat16}
    assert loaded.float().dtype == torch.float32


def test_a_folded_model_is_an_ordinary_one(tmp_path):
    model = converted("gpt2")
    assert model.conversion.converted[0] == "transformer.h.0.attn.c_attn"
    folded = zoo.fold(model)
    kinds = {type(folded.get_submodule(name)).__name__ for name in model.conversion.converted}
    assert kinds == {"Conv1D"}
    folded.save_pretrained(tmp_path)
    assert "quantization_config" not in json.loads((tmp_path / "config.json").read_text())
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(output(loaded, "gpt2"), output(folded, "gpt2"))
    torch.testing.assert_close(output(loaded, "gpt2"), output(model, "gpt2"))
    trainer(folded, "gpt2", tmp_path / "hf").train()
    assert model.config.quantization_config.algebra == "quaternion"


def test_other_models_of_the_same_configuration_stay_real(tmp_path):
    config = build("llama").config
    real, model = (transformers.AutoModelForCausalLM.from_config(config) for _ in range(2))
    zoo.convert(model, "quaternion")
    assert model.model.config is model.config
    for name, net in (("real", real), ("converted", model.eval())):
        net.save_pretrained(tmp_path / name)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / name)
        assert torch.equal(output(loaded, "llama"), output(net.eval(), "llama"))


def test_a_folded_network_with_a_converted_part_is_an_ordinary_one(tmp_path):
    net = torch.nn.ModuleDict({"part": converted("llama")})
    folded = zoo.fold(net)["part"]
    folded.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(output(loaded, "llama"), output(folded, "llama"))


@pytest.mark.parametrize("change", [zoo.quantize, lambda model: zoo.adapt(model, "quaternion", block_rank=1)])
def test_integers_and_adapters_are_not_saved(change, tmp_path):
    with raises("unsupported", "zoo.fold"):
        change(converted()).save_pretrained(tmp_path)


def test_a_missing_tensor_is_an_error(tmp_path):
    from safetensors.torch import save_file

    converted(spec="phm-4").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    for part in ("components", "algebra"):
        missing = next(name for name in tensors if part in name)
        save_file(
            {name: tensor for name, tensor in tensors.items() if name != missing},
            tmp_path / "model.safetensors",
            {"format": "pt"},
        )
        with raises("corrupt", missing):
            transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)


def test_a_pipeline_takes_a_converted_model(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"[PAD]": 0, "[UNK]": 1, "small": 2, "bird": 3}, unk_token="[UNK]")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")
    model = converted()
    ours = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")("small bird")
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert transformers.pipeline("text-classification", str(tmp_path), device="cpu")("small bird") == ours
    generator = transformers.pipeline("text-generation", model=converted("gpt2"), tokenizer=tokenizer, device="cpu")
    assert generator("small bird", max_new_tokens=2)[0]["generated_text"].startswith("small bird")


def test_a_program_without_the_zoo_stops(tmp_path, monkeypatch):
    from transformers.quantizers import auto

    converted().save_pretrained(tmp_path)
    for mapping in (auto.AUTO_QUANTIZER_MAPPING, auto.AUTO_QUANTIZATION_CONFIG_MAPPING):
        monkeypatch.delitem(mapping, "zoo")
    with pytest.raises(RuntimeError, match="mismatched_sizes"):
        transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)


def test_invalid_uses(tmp_path):
    nameless = zoo.convert(build("bert"), Algebra(zoo.algebra("quaternion").structure.clone()))
    with raises("unsupported", "zoo.register", "zoo.save"):
        nameless.save_pretrained(tmp_path / "nameless")
    assert not (tmp_path / "nameless").exists()
    build("bert").save_pretrained(tmp_path / "plain")
    config = converted().config.quantization_config
    with pytest.raises(ValueError, match="require the model to be pre-quantized"):
        transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "plain", quantization_config=config)
    converted().save_pretrained(tmp_path / "saved")
    file = tmp_path / "saved" / "config.json"
    for old, new, code, words in (
        ('"algebra": "quaternion"', '"algebra": "nothing"', "unknown", "nothing"),
        ('"algebra": "quaternion"', '"algebra": ""', "invalid", "''"),
        ('"algebra": "quaternion"', '"algebra": "clifford(p=1, q=1)"', "mismatch", "table differs"),
        ('"1x4"', '"4"', "corrupt", "'4'"),
    ):
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))
        with raises(code, words):
            transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved")
        file.write_text(text)


@pytest.mark.parametrize(("package", "missing"), [("transformers", "transformers.quantizers.auto"), ("peft", "peft")])
def test_a_missing_package_is_one_line(package, missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, f"zoo.{package}", raising=False)
    with raises("dependency", f"hypercomplex-zoo[{package}]"):
        importlib.import_module(f"zoo.{package}")


def test_transformers_is_imported_only_for_its_models():
    program = "import sys, torch, zoo; zoo.convert(torch.nn.Sequential(torch.nn.Linear(8, 8)), 'quaternion')"
    program += "; print([name for name in ('transformers', 'peft', 'zoo.transformers') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
