"""Save and load model folders: bit equality, damage and hostile content."""

import hashlib
import json
from pathlib import Path
from shutil import copytree

import pytest
import torch
from safetensors import SafetensorError

import zoo
from tests.errors import raises
from tests.faults.hostile import INFO, SPEC, seal
from zoo.atomic import write_json
from zoo.backbones.build import count
from zoo.checkpoint import ModelConfig, find, load_network, read_config, save
from zoo.checkpoint import folder as folders
from zoo.checkpoint.manifest import read_json, sealed, verify
from zoo.data import ImageInfo
from zoo.data.text import TextInfo
from zoo.errors import InputError

FACTS = {"versions": {"torch": "2"}, "metrics": {"accuracy": 0.5}, "epochs": 1, "seed": 0}


def config_of(algebra: str, **changes: object) -> ModelConfig:
    """Return the configuration of a model."""
    names = {"backbone": SPEC, "algebra": algebra, "task": "image_classification", "data": "digits", "info": INFO.to_dict()}
    return ModelConfig(**names | changes)


def write(folder: Path, algebra: str = "quaternion", **changes: object) -> torch.nn.Module:
    config = config_of(algebra, **changes)
    torch.manual_seed(5)
    net = zoo.backbone(SPEC, algebra, scope=config.scope, **INFO.model_kwargs).eval()
    with torch.no_grad():  # change every parameter
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    save(folder, net, config, FACTS | {"parameters": count(net) | {"real_twin": 10_000}})
    return net


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "model"
    write(folder)
    return folder


@pytest.fixture
def model(sound, tmp_path) -> Path:
    """A copy that a test may damage."""
    return copytree(sound, tmp_path / "model")


def edit(folder: Path, **changes: object) -> None:
    """Change the configuration and its checksum; None removes a key."""
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    seal(folder)


# --- round trip ---


ALGEBRAS = ("real", "quaternion", "phm-4", "phm(n=4,shared=true)")


@pytest.mark.parametrize(("algebra", "scope"), [*((algebra, "all") for algebra in ALGEBRAS), ("quaternion", "attention")])
def test_round_trip_is_bit_equal(tmp_path, algebra, scope):
    net = write(tmp_path / "model", algebra, scope=scope)
    torch.manual_seed(99)  # loading must not change the random state
    expected = torch.rand(3)
    torch.manual_seed(99)
    again = load_network(tmp_path / "model")
    assert torch.equal(torch.rand(3), expected)
    images = torch.randn(4, 1, 8, 8)
    assert torch.equal(net(images), again(images))
    assert net.state_dict().keys() == again.state_dict().keys()
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in net.state_dict().items())
    assert zoo.count(net) == zoo.count(again)
    rules = {id(p) for name, p in again.named_parameters() if name.endswith("structure")}
    assert len(rules) == {"phm-4": 4, "phm(n=4,shared=true)": 1}.get(algebra, 0)
    assert not again.training
    assert all(parameter.requires_grad for parameter in again.parameters())


def test_files_of_the_folder(sound, tmp_path):
    assert {path.name for path in sound.iterdir()} == {"config.json", "model.safetensors", "manifest.json", "README.md"}
    config = read_config(str(sound.parent))  # the run folder
    assert ImageInfo.from_dict(config.info) == INFO
    expected = {"backbone": SPEC, "algebra": "quaternion", "scope": "all", "init": "variance"}
    assert {key: getattr(config, key) for key in expected} == expected
    manifest = json.loads((sound / "manifest.json").read_text())
    assert set(manifest["files"]) == {"config.json", "model.safetensors", "README.md"}
    assert manifest["metrics"] == {"accuracy": 0.5}
    for name, record in manifest["files"].items():
        data = (sound / name).read_bytes()
        assert record == {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    card = (sound / "README.md").read_text()
    assert card.startswith("---\n")
    assert "quaternion" in card
    assert "| accuracy | 0.5000 |" in card
    write(tmp_path / "model")  # saving is deterministic
    for path in sound.iterdir():
        assert (tmp_path / "model" / path.name).read_bytes() == path.read_bytes(), path.name


# --- text models ---

TEXT = TextInfo(
    pair=True, classes=("no", "yes"), vocab_size=9, max_length=7, vectors=6, sizes={"train": 9, "val": 1}, sha256="ab"
)
WORDS = '{"a": "text \N{SNOWMAN}"}\n'


def write_text_model(folder: Path, embedding: str | None = "complex_order") -> torch.nn.Module:
    """Save an untrained network for pairs of texts with vectors of width 6."""
    config = config_of(
        "quaternion", backbone="fasttext(dim=8)", info=TEXT.to_dict(), embedding=embedding, task="pair_classification"
    )
    net = zoo.backbone("fasttext(dim=8)", "quaternion", embedding=embedding, vectors=6, **TEXT.model_kwargs).eval()
    facts = FACTS | {"parameters": count(net) | {"real_twin": 10_000}}
    save(folder, net, config, facts, {"tokenizer.json": WORDS})
    return net


@pytest.mark.parametrize("embedding", [None, "table(projection=relu)", "complex_order"])
def test_round_trip_of_text_models(tmp_path, embedding):
    net = write_text_model(tmp_path / "model", embedding)
    again, tokens = load_network(tmp_path / "model"), torch.tensor([[3, 1, 8, 0], [2, 0, 0, 0]])
    assert torch.equal(net(tokens, tokens.flip(0)), again(tokens, tokens.flip(0)))
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in net.state_dict().items())
    assert (tmp_path / "model" / "tokenizer.json").read_text(encoding="utf-8") == WORDS
    config = read_config(tmp_path / "model")
    assert (config.embedding, TextInfo.from_dict(config.info)) == (embedding, TEXT)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"vectors": 5}, "do not fit fasttext"),
        ({"vocab_size": 10}, "do not fit fasttext"),
        ({"max_length": None}, "max_length"),
    ],
    ids=str,
)
def test_invalid_text_info(tmp_path, change, named):
    write_text_model(tmp_path / "model", "table(projection=tanh)")
    edit(tmp_path / "model", info=TEXT.to_dict() | change)
    with raises("invalid", named):
        load_network(tmp_path / "model")


# --- damage ---


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "README.md"])
def test_changed_bytes_are_detected(model, name):
    path = model / name
    data = path.read_bytes()
    for position in range(0, len(data), max(1, len(data) // 50)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1 << position % 8]) + data[position + 1 :])
        with raises("corrupt", name):
            load_network(model)
    path.write_bytes(data)
    load_network(model)


def test_changed_bits_of_the_manifest_are_detected(model):
    """Including metrics, and another spelling of the same value, 1E-07."""
    path = model / "manifest.json"
    manifest = read_json(path)
    write_json(path, sealed(manifest | {"metrics": {"loss": 1e-7, "accuracy": 0.5}}))
    verify(model)
    data = path.read_bytes()
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1 << position % 8]) + data[position + 1 :])
        with pytest.raises(InputError):
            verify(model)
    path.write_bytes(data.replace(b"1e-07", b"1E-07"))
    with raises("corrupt", "manifest.json"):
        verify(model)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_truncated_and_missing_files(model, name):
    data = (model / name).read_bytes()
    for length in (0, len(data) // 2, len(data) - 2):
        (model / name).write_bytes(data[:length])
        with raises("corrupt", name):
            load_network(model)
    (model / name).unlink()
    with raises("missing" if name == "config.json" else "corrupt", "model"):
        load_network(model)


def test_find(tmp_path):
    model, ticket = tmp_path / "runs/one/model", tmp_path / "tickets/real/seed-0/round-01/model"
    for folder in (model, ticket, tmp_path / "sweep/runs/real/model", tmp_path / "folds/runs/real/fold-01/model"):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    assert find(tmp_path / "runs" / "one") == find(model) == model
    (tmp_path / "runs" / "two").mkdir()
    for path, code, named in (
        (tmp_path / "tickets", "invalid", "real/seed-0/round-01"),
        (tmp_path / "runs", "invalid", "runs/one"),
        (tmp_path / "sweep", "invalid", "sweep/runs/real"),
        (tmp_path / "folds", "invalid", "folds/runs/real/fold-01"),
        (model / "config.json", "missing", "config.json"),
        (tmp_path / "runs" / "two", "missing", "two"),
        (tmp_path / "nowhere", "missing", "nowhere"),
    ):
        with raises(code, named):
            find(path)


# --- hostile content with a valid manifest ---


@pytest.mark.parametrize(
    ("change", "code", "named"),
    [
        ({"algebra": "quaternio"}, "unknown", "'quaternio'"),
        ({"backbone": "os.system"}, "unknown", "os.system"),
        ({"backbone": "vit(dim=32,depth=1,heads=1)"}, "invalid", "do not fit vit"),
        ({"algebra": "octonion"}, "invalid", "'octonion'"),
        ({"algebra_sha256": "ab"}, "invalid", "its table differs"),
        ({"info": INFO.to_dict() | {"image_size": 4096}}, "invalid", "do not fit"),  # not allocated
        ({"info": INFO.to_dict() | {"image_size": 100_000}}, "invalid", "image_size=100000"),
        ({"task": "translation"}, "unknown", "'translation'"),
    ],
    ids=str,
)
def test_invalid_configurations(model, change, code, named):
    edit(model, **change)
    with raises(code, named):
        load_network(model)


@pytest.mark.parametrize("key", ["algebra", "backbone"])
def test_missing_plugins_are_reported_with_their_distribution(model, key):
    edit(model, **{key: "strange", "versions": {"torch": "2", "stranger-zoo": "1.2"}})
    with raises("dependency", "'strange'", "stranger-zoo 1.2", "pip install stranger-zoo"):
        load_network(model)


def test_full_disk_names_the_weights_file(tmp_path, monkeypatch):
    def full(net, path):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(folders, "save_model", full)
    with pytest.raises(OSError, match="No space left on device") as error:
        write(tmp_path / "model")
    assert error.value.filename == str(tmp_path / "model" / "model.safetensors")
    assert not any(tmp_path.iterdir())
