"""A model folder: the same network bit for bit, or one line that says what is wrong with it."""

import hashlib
import json
import pickle
from pathlib import Path
from shutil import copytree

import pytest
import torch
from safetensors import SafetensorError

import zoo
from tests.errors import raises
from tests.faults.hostile import INFO, SPEC
from zoo.atomic import write_json
from zoo.backbones.build import count
from zoo.checkpoint import folder as folders
from zoo.checkpoint import load_network, read_config, save
from zoo.checkpoint.manifest import read_json, sealed, verify
from zoo.data import ImageInfo
from zoo.data.text import TextInfo
from zoo.errors import InputError


def described(algebra: str, **changes: object) -> dict[str, object]:
    """What a run says of a network over an algebra."""
    config = {
        "backbone": SPEC,
        "algebra": algebra,
        "scope": "all",
        "init": "variance",
        "task": "image_classification",
        "data": "digits",
    }
    config |= {"info": INFO.to_dict(), "versions": {"torch": "2"}, "metrics": {"accuracy": 0.5}}
    return config | {"epochs": 1, "seed": 0} | changes


def write(folder: Path, algebra: str = "quaternion", **changes: object) -> torch.nn.Module:
    config = described(algebra, **changes)
    torch.manual_seed(5)
    net = zoo.backbone(config["backbone"], algebra, scope=config["scope"], **INFO.model_kwargs).eval()
    with torch.no_grad():  # nothing is as it was initialised
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    summary = config | {"parameters": count(net) | {"real_twin": 10_000}}
    save(folder, net, config, summary)
    return net


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "model"
    write(folder)
    return folder


@pytest.fixture
def model(sound, tmp_path) -> Path:
    """A copy to be damaged."""
    return copytree(sound, tmp_path / "model")


def sign(folder: Path, **files: object) -> None:
    """Write the manifest anew, as an attacker or a careless tool would."""
    listed = {}
    for path in sorted(folder.iterdir()):
        if path.name != "manifest.json":
            data = path.read_bytes()
            listed[path.name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    write_json(folder / "manifest.json", sealed({"files": listed | files, "metrics": {}}))


# --- round trip ---


@pytest.mark.parametrize(
    "algebra",
    [
        "real",
        "complex",
        "quaternion",
        "octonion",
        "clifford(p=1,q=1)",
        "phm-4",
        "phm(n=4,shared=true)",
        "phm(n=2,learned=false)",
        "phm(n=4,rank=6,shared=true)",
    ],
)
def test_round_trip_is_bit_equal(tmp_path, algebra):
    net = write(tmp_path / "model", algebra)
    torch.manual_seed(99)  # what the loader draws must not matter
    again = load_network(tmp_path / "model")
    images = torch.randn(4, 1, 8, 8)
    assert torch.equal(net(images), again(images))
    assert net.state_dict().keys() == again.state_dict().keys()
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in net.state_dict().items())
    assert zoo.count(net) == zoo.count(again)


def test_a_shared_rule_is_still_shared(tmp_path):
    write(tmp_path / "model", "phm(n=4,shared=true)")
    rules = {id(module.structure) for module in load_network(tmp_path / "model").modules() if isinstance(module, zoo.Algebra)}
    assert len(rules) == 1


def test_rules_of_their_own_stay_apart(tmp_path):
    write(tmp_path / "model", "phm-4")
    rules = [module.structure for module in load_network(tmp_path / "model").modules() if isinstance(module, zoo.Algebra)]
    assert len({id(rule) for rule in rules}) == 4
    assert not torch.equal(rules[0], rules[1])


def test_the_scope_is_kept(tmp_path):
    net = write(tmp_path / "model", scope="attention")
    assert zoo.count(load_network(tmp_path / "model")) == zoo.count(net)


def test_loading_leaves_the_random_numbers_alone(sound):
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    load_network(sound)
    assert torch.equal(torch.rand(3), expected)


def test_a_loaded_network_evaluates_and_can_be_trained_on(sound):
    net = load_network(sound)
    assert not net.training
    assert all(parameter.requires_grad for parameter in net.parameters())


def test_a_run_folder_leads_to_its_model(sound):
    assert load_network(sound.parent).state_dict().keys() == load_network(sound).state_dict().keys()
    assert read_config(str(sound.parent)) == read_config(sound)


def test_what_is_in_the_folder(sound):
    assert {path.name for path in sound.iterdir()} == {"config.json", "model.safetensors", "manifest.json", "README.md"}
    config = read_config(sound)
    assert ImageInfo.from_dict(config["info"]) == INFO
    assert {key: config[key] for key in ("backbone", "algebra", "scope", "init")} == {
        "backbone": SPEC,
        "algebra": "quaternion",
        "scope": "all",
        "init": "variance",
    }
    manifest = json.loads((sound / "manifest.json").read_text())
    assert set(manifest["files"]) == {"config.json", "model.safetensors", "README.md"}
    assert manifest["metrics"] == {"accuracy": 0.5}
    for name, said in manifest["files"].items():
        data = (sound / name).read_bytes()
        assert said == {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_the_card_says_what_it_is(sound):
    card = (sound / "README.md").read_text()
    assert card.startswith("---\n")
    assert "quaternion" in card
    assert "| accuracy | 0.5000 |" in card


def test_a_path_with_a_backtick_leaves_the_card_whole(tmp_path):
    write(tmp_path / "model", data="text(path='a`b\nc')")
    assert "trained on `text(path='a'b c')` for" in (tmp_path / "model" / "README.md").read_text()


def test_the_same_network_is_the_same_folder(tmp_path, sound):
    write(tmp_path / "model")
    for path in sound.iterdir():
        assert (tmp_path / "model" / path.name).read_bytes() == path.read_bytes(), path.name


# --- texts ---

TEXT = TextInfo(
    pair=True,
    classes=("no", "yes"),
    vocab_size=9,
    max_length=7,
    vectors=6,
    sizes={"train": 9, "val": 1},
    sha256="ab",
)
WORDS = '{"a": "text \N{SNOWMAN}"}\n'


def write_text_model(folder: Path, embedding: str | None = "complex_order") -> torch.nn.Module:
    """A network that reads two texts and was given vectors of width 6, untrained."""
    config = described(
        "quaternion", backbone="fasttext(dim=8)", info=TEXT.to_dict(), embedding=embedding, task="pair_classification"
    )
    net = zoo.backbone("fasttext(dim=8)", "quaternion", embedding=embedding, vectors=6, **TEXT.model_kwargs).eval()
    summary = config | {"parameters": count(net) | {"real_twin": 10_000}}
    save(folder, net, config, summary, {"tokenizer.json": WORDS})
    return net


@pytest.mark.parametrize("embedding", [None, "table", "table(projection=relu)", "complex_order"])
def test_a_network_that_reads_text_comes_back(tmp_path, embedding):
    net = write_text_model(tmp_path / "model", embedding)
    again, tokens = load_network(tmp_path / "model"), torch.tensor([[3, 1, 8, 0], [2, 0, 0, 0]])
    assert torch.equal(net(tokens, tokens.flip(0)), again(tokens, tokens.flip(0)))
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in net.state_dict().items())
    config = read_config(tmp_path / "model")
    assert (config["embedding"], TextInfo.from_dict(config["info"])) == (embedding, TEXT)


def test_files_beside_the_weights_are_listed_and_checked(tmp_path):
    model = tmp_path / "model"
    write_text_model(model)
    assert (model / "tokenizer.json").read_text(encoding="utf-8") == WORDS
    listed = json.loads((model / "manifest.json").read_text())["files"]
    data = WORDS.encode()
    assert listed["tokenizer.json"] == {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert set(listed) == {"config.json", "model.safetensors", "README.md", "tokenizer.json"}
    (model / "tokenizer.json").write_bytes(data + b" ")
    with raises("corrupt", "tokenizer.json"):
        load_network(model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vectors": 0}, "vectors = 0"),
        ({"vectors": "6"}, "vectors = '6'"),
        ({"vectors": 5}, "weights .* do not fit fasttext"),
        ({"vocab_size": -9}, "vocab_size = -9"),
        ({"vocab_size": 2.5}, r"vocab_size = 2\.5"),
        ({"vocab_size": 10}, "weights .* do not fit fasttext"),
        ({"max_length": None}, "max_length"),
        ({"image_size": 3}, "image_size"),
        ({"colour": 3}, "colour"),
    ],
    ids=str,
)
def test_signed_facts_of_texts_that_do_not_work(tmp_path, change, message):
    write_text_model(tmp_path / "model", "table(projection=tanh)")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"info": config["info"] | change}))
    sign(tmp_path / "model")
    with pytest.raises(InputError, match=message):
        load_network(tmp_path / "model")


# --- damage ---


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "README.md"])
def test_every_changed_byte_is_found(model, name):
    path = model / name
    data = path.read_bytes()
    for position in range(0, len(data), max(1, len(data) // 50)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1 << position % 8]) + data[position + 1 :])
        with raises("corrupt", name):
            load_network(model)
    path.write_bytes(data)
    load_network(model)


def test_every_changed_bit_of_the_manifest_is_found(model):
    """The metrics in it too, and a byte that leaves the same value: 1e5 is 1E5."""
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


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "manifest.json"])
@pytest.mark.parametrize("keep", [0.0, 0.5, -1])
def test_a_truncated_file_is_found(model, name, keep):
    data = (model / name).read_bytes()
    (model / name).write_bytes(data[: -2 if keep == -1 else int(keep * len(data))])
    with pytest.raises(InputError, match=name):
        load_network(model)


@pytest.mark.parametrize("name", ["model.safetensors", "manifest.json", "README.md"])
def test_a_missing_file_is_found(model, name):
    (model / name).unlink()
    with pytest.raises(InputError, match=name):
        load_network(model)


def test_a_folder_without_a_configuration_is_no_model(model):
    (model / "config.json").unlink()
    with raises("missing", "model"):
        load_network(model)
    with pytest.raises(InputError, match="there is no folder"):
        load_network(model / "nowhere")


# --- malice: the manifest fits, the content does not ---


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("dump", [pickle.dump, torch.save], ids=["pickle", "torch"])
def test_pickle_under_the_name_of_safetensors_is_not_run(model, tmp_path, dump):
    with (model / "model.safetensors").open("wb") as file:
        dump(Bomb(tmp_path / "pwned"), file)
    sign(model)
    with pytest.raises(InputError, match="do not fit"):
        load_network(model)
    assert not (tmp_path / "pwned").exists()
    with (model / "model.safetensors").open("rb") as file:  # the control: the bomb is live
        pickle.load(file) if dump is pickle.dump else torch.load(file, weights_only=False)
    assert (tmp_path / "pwned").exists()


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "sub/x", "..", ""])
def test_a_manifest_may_not_point_out_of_the_folder(model, name):
    (model.parent / "x").write_bytes(b"")
    sign(model, **{name: {"size": 0, "sha256": hashlib.sha256(b"").hexdigest()}})
    with pytest.raises(InputError):
        load_network(model)


@pytest.mark.parametrize("listed", [{}, [], None, {"config.json": {}}, {"model.safetensors": {}}])
def test_a_manifest_that_leaves_files_out(model, listed):
    (model / "manifest.json").write_text(json.dumps({"files": listed}))
    with pytest.raises(InputError, match=r"manifest\.json"):
        load_network(model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 3}, "format 3.*update"),
        ({"format": 1}, r"written by an earlier version \(format 1\): train it again with zoo fit -c .*config\.yaml"),
        ({"format": None}, "format None"),
        ({"algebra": "quaternio"}, "unknown algebra 'quaternio'.*did you mean"),
        ({"backbone": "os.system"}, "unknown backbone"),
        ({"backbone": "vit(dim=32,depth=1,heads=1)"}, "weights .* do not fit vit"),
        ({"algebra": "octonion"}, "not the algebra this model was trained over"),
        ({"algebra": "clifford(p=1,q=1)"}, "not the algebra this model was trained over"),
        ({"algebra_sha256": "ab"}, "its table differs"),
        ({"info": INFO.to_dict() | {"in_channels": "x"}}, "in_channels = 'x'"),
        ({"task": "translation"}, "unknown task 'translation'"),
        ({"task": "pair_classification"}, "image_size"),
        ({"scope": "nope"}, "unknown scope"),
        ({"backbone": 3}, "backbone"),
        ({"algebra": ["quaternion"]}, "algebra"),
        ({"scope": 3}, "scope"),
        ({"embedding": 3}, "wrong kind for embedding"),
        ({"embedding": ["table"]}, "wrong kind for embedding"),
    ],
    ids=str,
)
def test_a_signed_configuration_that_does_not_work(model, change, message):
    path = model / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    sign(model)
    with pytest.raises(InputError, match=message):
        load_network(model)


def test_sizes_are_compared_with_the_weights_before_memory_is_taken(model):
    """Ten billion channels would not fit into any machine."""
    path = model / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"info": config["info"] | {"image_size": 100_000, "in_channels": 100_000}}))
    sign(model)
    with raises("invalid", "memory"):
        load_network(model)


@pytest.mark.parametrize("key", ["algebra", "backbone"])
def test_a_missing_plugin_is_named_with_its_distribution(model, key):
    path = model / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {key: "strange", "versions": config["versions"] | {"stranger-zoo": "1.2"}}))
    sign(model)
    with pytest.raises(
        InputError, match=r"unknown .* 'strange'.*made with stranger-zoo 1\.2, not installed here: pip install stran"
    ):
        load_network(model)


@pytest.mark.parametrize("key", ["backbone", "algebra", "scope", "init", "info"])
def test_a_signed_configuration_that_lacks_a_key(model, key):
    path = model / "config.json"
    path.write_text(json.dumps({name: value for name, value in json.loads(path.read_text()).items() if name != key}))
    sign(model)
    with pytest.raises(InputError, match=f"lacks {key}"):
        load_network(model)


@pytest.mark.parametrize(
    "text", ["", "[]", "3", "{" * 5000, "\ufeff{}", "null", '{"a": NaN}', '{"a": 1e999}', '{"a": 1, "a": 2}', "[" * 10**6]
)
def test_a_signed_configuration_that_is_no_object(model, text):
    (model / "config.json").write_text(text)
    sign(model)
    with pytest.raises(InputError, match=r"config\.json"):
        load_network(model)


def test_no_room_for_the_weights_names_the_file(tmp_path, monkeypatch):
    def full(net, path):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(folders, "save_model", full)
    with pytest.raises(OSError, match="No space left on device") as error:
        write(tmp_path / "model")
    assert error.value.filename == str(tmp_path / "model" / "model.safetensors")
    assert not any(tmp_path.iterdir())
