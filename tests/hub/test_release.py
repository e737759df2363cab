"""Publish, list and push models; pulled models are bit-for-bit identical."""

import json
import re
from pathlib import Path
from shutil import copytree
from tempfile import gettempdir

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from PIL import Image
from sklearn.datasets import load_digits

import zoo
from benchmarks import checkpoints
from tests.errors import raises
from tests.faults.hostile import seal
from tests.hub.server import PIPELINES, card_errors, serving
from tests.hub.test_pull import contents, published
from tests.test_matrix import BACKBONES, Contract
from zoo import registry
from zoo.checkpoint import read_config
from zoo.checkpoint.manifest import file_record, read_manifest, verify
from zoo.cli import main
from zoo.hub import sources
from zoo.hub.release import FACTS, measured_facts, publish, push, write_release
from zoo.hub.sources import find_release, locate
from zoo.testing.backbone import fitting_dim

CONFIGS = Path(__file__).parents[2] / "configs" / "pretrained"
# Raised by huggingface_hub.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


def weights(folder):
    return zoo.load(folder).net.state_dict()


def equal(one, other) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def site(home, sound, tmp_path):
    """A folder with the release ``tiny`` and its catalogue."""
    publish(str(sound), str(tmp_path / "site"), "tiny", "mit")
    return tmp_path / "site"


def serve(hub, site):
    hub.put("site/tiny", site / "tiny")
    hub.files["/site/catalogue.json"] = (site / "catalogue.json").read_bytes()


def entry_of(site):
    return json.loads((site / "catalogue.json").read_text())["checkpoints"]["tiny"]


def test_pull_a_release_by_name(hub, home, site, sound, monkeypatch):
    entry = entry_of(site)
    assert entry["sha256"] == file_record(site / "tiny" / "manifest.json")["sha256"]
    assert (entry["algebra"], entry["license"], entry["locations"]) == ("quaternion", "mit", ["tiny"])
    serve(hub, site)
    monkeypatch.setenv("ZOO_CATALOGUE", f"{hub.url}/site")
    assert equal(weights("tiny"), weights(sound))
    assert [folder.name for folder in published(home)] == [entry["sha256"]]
    hub.log.clear()
    locate("tiny")
    assert hub.got() == ["/site/catalogue.json"], "the release is cached"
    monkeypatch.setenv("ZOO_OFFLINE", "1")
    hub.log.clear()
    assert equal(weights("tiny"), weights(sound))
    assert hub.log == []


def test_a_named_model_is_downloaded_once_and_loads_after_the_server_has_stopped(home, site, sound, monkeypatch, capsys):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as server:
        serve(server, site)
        monkeypatch.setenv("ZOO_CATALOGUE", f"{server.url}/site")
        assert published(home) == []
        assert equal(weights("tiny"), weights(sound))
        assert len(server.got("model.safetensors")) == 1
    capsys.readouterr()
    assert equal(weights("tiny"), weights(sound))
    assert "using the cached copy" in capsys.readouterr().err


def test_a_release_that_differs_from_the_catalogue_is_rejected(hub, home, site, monkeypatch):
    (site / "tiny" / "README.md").write_text("other")
    seal(site / "tiny")
    serve(hub, site)
    for address in (f"{hub.url}/site", str(site)):
        monkeypatch.setenv("ZOO_CATALOGUE", address)
        with raises("mismatch", "tiny"):
            locate("tiny")
    assert published(home) == []


def test_locations_are_tried_in_order(hub, home, site, monkeypatch):
    hub.commit("me/net", contents(site / "tiny"))
    entry = entry_of(site) | {"locations": ["nowhere", f"{hub.url}/gone", "hf:me/net"]}
    (site / "catalogue.json").write_text(json.dumps({"format": 1, "checkpoints": {"tiny": entry}}))
    monkeypatch.setenv("ZOO_CATALOGUE", str(site))
    assert contents(locate("tiny")) == contents(site / "tiny")


def test_catalogues_of_packages(site, model, tmp_path, monkeypatch):
    seal(model, metrics={"accuracy": 0.1})
    publish(str(model), str(tmp_path / "two"), "tiny")
    folders = {"one": site, "two": tmp_path / "two", "broken": tmp_path / "nowhere"}
    try:
        for name, folder in folders.items():
            registry.register("catalogues", name, lambda folder=folder: folder)
        with raises("conflict", "local:tiny"):
            find_release("tiny")
        with raises("unknown", "'tiny'", "'broken' of local"):
            find_release("tini")
        monkeypatch.setenv("ZOO_CATALOGUE", str(tmp_path / "two"))
        assert find_release("tiny").origin == "ZOO_CATALOGUE"
    finally:
        for name in folders:
            registry.unregister("catalogues", name)


BAD = {
    "no catalogue": "{}",
    "a name with a path": {"../x": {"bytes": 1, "locations": [], "sha256": "0" * 64}},
    "a digest with a path": {"x": {"bytes": 1, "locations": [], "sha256": "../../../x"}},
    "a license with an escape": {"x": {"bytes": 1, "locations": [], "sha256": "0" * 64, "license": "\x1b[2J"}},
}


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_invalid_catalogues(home, tmp_path, monkeypatch, capsys, value):
    text = value if isinstance(value, str) else json.dumps({"format": 1, "checkpoints": value})
    (tmp_path / "catalogue.json").write_text(text)
    monkeypatch.setenv("ZOO_CATALOGUE", str(tmp_path))
    assert main(["list", "checkpoints"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert str(tmp_path) in err


def repeated(sound, folder, seed, config=(), **known):
    """Copy a model with another seed and other facts in its manifest."""
    copytree(sound, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | dict(config)))
    seal(folder, seed=seed, **known)
    return str(folder)


def test_the_card_contains_the_spread_over_seeds(home, sound, tmp_path, capsys):
    runs = [
        repeated(sound, tmp_path / f"seed-{seed}", seed, metrics={"loss": 0.5, "accuracy": value})
        for seed, value in enumerate((0.9, 0.94, 0.95))
    ]
    assert main(["publish", *runs, "--to", str(tmp_path / "site")]) == 0
    capsys.readouterr()
    folder = tmp_path / "site" / "seed-0"
    manifest = read_manifest(folder)
    assert manifest["metrics"]["accuracy"] == 0.9
    assert manifest["spread"]["seeds"] == [0, 1, 2]
    assert manifest["spread"]["mean"] == {"loss": 0.5, "accuracy": pytest.approx(0.93)}
    assert manifest["spread"]["std"] == {"loss": 0.0, "accuracy": pytest.approx(0.0007**0.5)}
    assert "| accuracy | 0.9000 | 0.9300 ± 0.0265 |" in (folder / "README.md").read_text()
    entry = json.loads((tmp_path / "site" / "catalogue.json").read_text())["checkpoints"]["seed-0"]
    assert entry["spread"] == manifest["spread"]


def test_a_metric_that_is_undefined_for_a_seed_has_no_mean(home, sound, tmp_path):
    reason = {"undefined": {"auroc": "the targets have 1 of 2 classes"}}
    one = repeated(sound, tmp_path / "one", 0, metrics={"loss": 0.5, "auroc": None}, **reason)
    two = repeated(sound, tmp_path / "two", 1, metrics={"loss": 0.7, "auroc": 0.9})
    publish(one, str(tmp_path / "site"), repeats=[two])
    folder = tmp_path / "site" / "one"
    assert read_manifest(folder)["spread"]["mean"] == {"loss": pytest.approx(0.6), "auroc": None}
    card = (folder / "README.md").read_text()
    assert "| auroc | undefined | undefined |" in card
    assert "auroc is undefined: the targets have 1 of 2 classes." in card


@pytest.mark.parametrize(
    ("known", "config", "value"),
    [
        ({"seed": 0}, {}, "[0, 0]"),
        ({"metrics": {"loss": 0.1}}, {}, "two"),
        ({}, {"algebra": "octonion"}, "algebra"),
    ],
)
def test_invalid_repeats(home, sound, tmp_path, known, config, value):
    one = repeated(sound, tmp_path / "one", 0, metrics={"accuracy": 0.9})
    two = repeated(sound, tmp_path / "two", config=config, **({"seed": 1, "metrics": {"accuracy": 0.8}} | known))
    with raises("invalid", value):
        publish(one, str(tmp_path / "site"), repeats=[two])
    assert not (tmp_path / "site" / "one").exists()


@pytest.mark.parametrize(
    ("changed", "other"),
    [
        ({"optimizer": {"name": "adamw", "lr": 0.1}}, "optimizer.lr"),
        ({"trainer": {"max_epochs": 9}}, "trainer.max_epochs"),
        ({"seed": 1, "num_workers": 4}, None),
    ],
)
def test_repeats_that_are_run_folders_differ_only_in_the_seed(home, sound, tmp_path, capsys, changed, other):
    """An option that does not affect results, such as the number of workers, may differ too."""
    config = {"optimizer": {"name": "adamw", "lr": 0.01}, "trainer": {"max_epochs": 3}, "seed": 0}
    for seed, values in enumerate((config, config | changed)):
        repeated(sound, tmp_path / f"seed-{seed}" / "model", seed, metrics={"accuracy": 0.9})
        (tmp_path / f"seed-{seed}" / "config.yaml").write_text(yaml.safe_dump(values))
    runs, site = [str(tmp_path / "seed-0"), str(tmp_path / "seed-1")], tmp_path / "site"
    assert main(["publish", *runs, "--to", str(site)]) == (2 if other else 0)
    err = capsys.readouterr().err
    assert f"other values of {other}" in err if other else err == ""
    if other:
        with raises("invalid", f"other values of {other}"):
            publish(runs[0], str(site), repeats=runs[1:])
    assert site.exists() == (other is None)


def test_a_catalogue_in_the_home_folder(site, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for address in ("~/site", "file:~/site", "~/site/catalogue.json"):
        monkeypatch.setenv("ZOO_CATALOGUE", address)
        assert locate("tiny") == site / "tiny"


def test_list_checkpoints(site, monkeypatch, capsys):
    monkeypatch.setenv("ZOO_CATALOGUE", str(site))
    assert main(["list", "checkpoints"]) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("tiny"))
    assert row.split()[1:3] == ["quaternion", "digits"]
    assert row.split()[-2:] == ["mit", "ZOO_CATALOGUE"]
    assert main(["list", "checkpoints", "--json"]) == 0
    assert (
        next(row for row in json.loads(capsys.readouterr().out) if row["name"] == "tiny")["sha256"]
        == find_release("tiny").sha256
    )


@pytest.mark.parametrize("algebra", ["quaternion", pytest.param("phm-4", marks=pytest.mark.slow)])
def test_push_and_pull_are_bit_equal_for_every_backbone(hub, home, tmp_path, algebra):
    for backbone, (spec, info) in BACKBONES.items():
        spec = spec.replace("{dim}", str(fitting_dim(zoo.algebra(algebra).n)))
        torch.manual_seed(0)
        net = zoo.backbone(spec, algebra, **info).eval()
        zoo.save(net, tmp_path / backbone, backbone=spec, algebra=algebra, **info)
        again = zoo.load(push(str(tmp_path / backbone), f"hf:me/{backbone}", license="apache-2.0")["source"]).net.eval()
        contract = Contract()
        contract.info = info
        rows = contract.batch()
        rows = rows if isinstance(rows, tuple) else (rows,)
        with torch.no_grad():
            output, expected = again(*rows), net(*rows)
        assert torch.equal(output, expected), backbone
        assert equal(net.state_dict(), again.state_dict()), backbone


def test_push_to_a_folder_names_the_command_that_writes_one(sound, tmp_path):
    with raises("invalid", "OWNER/NAME", f"zoo publish {sound} --to {tmp_path}"):
        push(str(sound), str(tmp_path))


def test_push_returns_the_commit_and_the_card_runs(hub, home, sound, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hub.token = "hf_secret"
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert main(["push", str(sound), "hf:me/net", "--license", "apache-2.0", "--json"]) == 0
    source = json.loads(capsys.readouterr().out)["source"]
    assert source == f"hf:me/net@{hub.refs['me/net', 'main']}"
    folder = locate(source)
    text = (folder / "README.md").read_text()
    front = text.split("---")[1]
    values = yaml.safe_load(front)
    assert values["library_name"] == "hypercomplex-zoo"
    assert (values["license"], values["datasets"]) == ("apache-2.0", ["digits"])
    assert values["pipeline_tag"] == "image-classification"
    assert values["tags"][0] == "hypercomplex"
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert '"me/net"' in code
    exec(compile(code, "README.md", "exec"), {})
    assert "zoo.Model(" in capsys.readouterr().out
    assert read_manifest(folder)["license"] == "apache-2.0"
    assert equal(weights(folder), weights(sound))
    assert read_config(folder) == read_config(sound)


def test_the_metadata_of_a_card_is_that_of_the_hub(hub, home, sound, tmp_path):
    """The Hub's own reader returns every fact, its rules accept the card, and the model index has the test metrics."""
    model = zoo.load(sound)
    model.metrics = {"loss": 0.25, "accuracy": 0.9, "auroc": None}
    model.save_pretrained(tmp_path / "saved")
    write_release(tmp_path / "saved", fresh(tmp_path / "release"), "me/net", "mit", measured_facts(tmp_path / "saved"))
    card = ModelCard.load(tmp_path / "release" / "README.md")
    assert (card.data.license, card.data.pipeline_tag, card.data.library_name) == (
        "mit",
        "image-classification",
        "hypercomplex-zoo",
    )
    assert card.data.metrics == ["loss", "accuracy"]
    assert {(result.task_type, result.dataset_type, result.dataset_split) for result in card.data.eval_results} == {
        ("image-classification", "digits", "test")
    }
    assert {result.metric_type: result.metric_value for result in card.data.eval_results} == {"loss": 0.25, "accuracy": 0.9}
    card.validate()
    assert [*card_errors(str(card).replace("pipeline_tag: image", "pipeline_tag: picture"))]
    assert [*card_errors(str(card).replace("type: digits", "type: 3"))]
    ours = [entry for entry in registry.entries("tasks") if entry.ours]
    assert {entry.name: registry.load(entry).pipeline_tag in PIPELINES for entry in ours} == {
        entry.name: True for entry in ours
    }


def fresh(folder):
    folder.mkdir()
    return folder


def test_models_have_the_methods_of_the_hub(hub, home, sound, tmp_path, monkeypatch):
    model = zoo.Model.from_pretrained(sound)
    assert equal(weights(model.save_pretrained(tmp_path / "saved")), weights(sound))
    source = model.push_to_hub("me/net", revision="dev", license="mit")
    assert source == f"hf:me/net@{hub.refs['me/net', 'dev']}"
    again = zoo.Model.from_pretrained("me/net", revision="dev")
    assert equal(again.net.state_dict(), weights(sound))
    assert repr(again) == repr(model)
    with raises("missing", "me/net"):
        zoo.load("me/net", revision="other")
    with raises("invalid", "'net'", "OWNER/NAME") as caught:
        model.push_to_hub("net")
    assert gettempdir() not in str(caught.value)
    names = zoo.list_models()
    assert names == sorted(names)
    assert {"vit-digits-quaternion", "gpt-glosses-real"} <= {*names}
    assert zoo.list_models("vit-*-octonion") == ["vit-digits-octonion"]


def test_networks_of_images_have_the_description_of_timm(sound):
    from timm.data import resolve_model_data_config

    model = zoo.load(sound)
    config = resolve_model_data_config(model.net)
    size = model.info.image_size
    assert config["input_size"] == (model.info.in_channels, size, size)
    assert (config["mean"], config["std"]) == (model.info.mean, model.info.std)
    assert (config["crop_pct"], config["interpolation"]) == (1.0, "bicubic")
    assert model.net.default_cfg is model.net.pretrained_cfg
    assert model.net.pretrained_cfg["label_names"] == model.info.classes
    net = zoo.backbone("timm/test_resnet", "quaternion", in_channels=1, image_size=32, num_classes=5)
    assert (net.pretrained_cfg["input_size"], net.pretrained_cfg["num_classes"]) == ((1, 32, 32), 5)
    assert net.default_cfg["first_conv"] in net.conversion.real


def test_push_errors(hub, home, model, sound, monkeypatch):
    hub.token = "hf_secret"
    with raises("failed", "me/net", "HF_TOKEN"):
        push(str(sound), "hf:me/net")
    with raises("invalid", "'net'", "OWNER/NAME"):
        push(str(sound), "net")
    with raises("conflict", "once"):
        push(str(sound), "me/net@v1", revision="v2")
    with raises("failed", "me/net", '"license" must be one of'):
        push(str(sound), "me/net", license="nonsense", token="hf_secret")
    hub.repos.clear()
    monkeypatch.setenv("ZOO_OFFLINE", "1")
    with raises("conflict", "ZOO_OFFLINE"):
        push(str(sound), "hf:me/net")
    monkeypatch.delenv("ZOO_OFFLINE")
    (model / "README.md").write_text("other")
    with raises("corrupt", "README.md"):
        push(str(model), "hf:me/net")
    assert hub.repos == {}


def test_commands_accept_pulled_models(hub, home, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hub.commit("me/net", contents(locate("vit-digits-octonion")))
    name = "hf:me/net"
    assert main(["info", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"] == find_release("vit-digits-octonion").facts["parameters"]
    assert main(["verify", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["status"] == "ok"
    assert main(["test", name, "--json", "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == find_release("vit-digits-octonion").facts["metrics"]["accuracy"]
    short = ["--trainer.max_epochs=1", "--trainer.limit_train_batches=1", "--trainer.limit_test_batches=1", "--run-dir=run"]
    config = CONFIGS / "vit-digits-octonion.yaml"
    assert main(["fit", "-c", str(config), "--from", name, *short, "--optimizer.lr=1e-30"]) == 0, capsys.readouterr().err
    assert equal(weights("run"), weights("vit-digits-octonion")), "this learning rate does not change the weights"
    assert main(["export", name, "--to", "out"]) == 0
    assert equal(weights("out"), weights(name))


def test_releases_are_not_overwritten(site, sound, tmp_path):
    publish(str(sound), str(site), "other")
    before = contents(site / "tiny"), (site / "catalogue.json").read_bytes()
    with raises("conflict", "tiny"):
        publish(str(sound), str(site), "tiny")
    for name in ("../x", "a:b"):
        with raises("invalid", name):
            publish(str(sound), str(site), name)
    assert before == (contents(site / "tiny"), (site / "catalogue.json").read_bytes())
    assert sorted(path.name for path in site.iterdir()) == ["catalogue.json", "other", "tiny"]


def test_a_publication_that_was_killed_before_the_catalogue_is_finished_by_the_same_command(site, sound, model):
    before = contents(site / "tiny"), (site / "catalogue.json").read_bytes()
    (site / "catalogue.json").unlink()
    seal(model, metrics={"accuracy": 0.1})
    for other in ((str(model), str(site), "tiny", "mit"), (str(sound), str(site), "tiny")):
        with raises("conflict", "tiny"):
            publish(*other)
    assert (contents(site / "tiny"), [path.name for path in site.iterdir()]) == (before[0], ["tiny"])
    publish(str(sound), str(site), "tiny", "mit")
    assert before == (contents(site / "tiny"), (site / "catalogue.json").read_bytes())
    (site / "notes").mkdir()
    with raises("conflict", "notes"):
        publish(str(sound), str(site), "notes")


def test_included_models_are_complete():
    """Every included model is verified, small, licensed, and has a configuration."""
    releases = list(sources.of_catalogue(str(sources.packaged()), "hypercomplex-zoo"))
    folders = [folder for release in releases for folder in release.locations()]
    total = 0
    for release, folder in zip(releases, folders, strict=True):
        files = verify(folder, release.sha256)
        size = sum(record["size"] for record in files.values())
        assert size == release.facts["bytes"] <= 400_000, release.name
        assert release.facts["license"]
        assert release.facts["metrics"] == read_manifest(folder)["metrics"]
        assert release.facts["spread"] == read_manifest(folder)["spread"]
        assert len(release.facts["spread"]["seeds"]) == 3
        total += size
        assert (CONFIGS / f"{release.name}.yaml").is_file()
    assert total <= 4_000_000


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(sources.packaged().parent.glob("*/")), ids=lambda path: path.name)
def test_included_models_reproduce_their_metrics(home, path):
    facts = find_release(path.name).facts
    model = zoo.load(path.name)
    batch_size = re.search(r"^batch_size: (\d+)$", (CONFIGS / f"{path.name}.yaml").read_text(encoding="utf-8"), re.MULTILINE)
    metrics = model.evaluate(batch_size=int(batch_size[1]) if batch_size else 32)
    assert metrics == pytest.approx(facts["metrics"], rel=1e-5), "the last bits depend on the processor"
    assert sum(parameter.numel() for parameter in model.net.parameters()) == facts["parameters"]["total"]


def test_the_documentation_contains_the_catalogue():
    text = checkpoints.PAGE.read_text(encoding="utf-8")
    assert checkpoints.updated(text) == text
    assert "`vit-digits-quaternion`" in checkpoints.table()


def test_included_models_predict_offline(home, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZOO_OFFLINE", "1")
    digits = load_digits()
    Image.fromarray((digits.images[7] * 15.9).astype("uint8")).save("digit.png")
    assert main(["predict", "vit-digits-quaternion", "digit.png"]) == 0
    assert capsys.readouterr().out.split("\t")[1] == str(digits.target[7])
    assert [path.name for path in tmp_path.iterdir()] == ["digit.png"]


def exported(folder, model, **values):
    """Write the config.json of an export of a model."""
    config = {"format": "onnx", "file": "model.onnx", "bytes": 1234}
    config |= {key: value for key in FACTS if (value := getattr(read_config(model), key)) is not None}
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config | values))


def test_the_card_contains_the_sizes_and_metrics_of_exports(home, sound, tmp_path, capsys, monkeypatch):
    model = Path(repeated(sound, tmp_path / "run", 0, metrics={"loss": 0.5, "accuracy": 0.9, "auroc": None}))
    metrics = {"loss": 0.6, "accuracy": 0.8, "auroc": None}
    before = {"loss": 0.5, "accuracy": 0.90001, "auroc": None}
    exported(tmp_path / "exports/a", model, metrics=before)
    exported(tmp_path / "exports/b", model, metrics=metrics, float_metrics=before, quantize="int8", bytes=99, sparse=True)
    words = ["publish", str(model), "--to", str(tmp_path / "site"), "--exports", str(tmp_path / "exports")]
    assert main(words) == 0
    folder = tmp_path / "site" / "run"
    card, entry = (folder / "README.md").read_text(), json.loads((tmp_path / "site/catalogue.json").read_text())
    assert "| `--format onnx` | 1,234 | 0.5000 | 0.9000 | undefined |" in card
    assert "| `--format onnx --quantize int8 --sparse` | 99 | 0.6000 | 0.8000 | undefined |" in card
    exports = entry["checkpoints"]["run"]["exports"]
    assert exports == read_manifest(folder)["exports"]
    assert exports["--format onnx --quantize int8 --sparse"] == {"bytes": 99} | metrics
    again = publish(str(folder), str(tmp_path / "site"), "again")["entry"]
    assert again["exports"] == exports  # they are facts of the model
    capsys.readouterr()
    monkeypatch.setenv("ZOO_CATALOGUE", str(tmp_path / "site"))
    assert main(["list", "checkpoints"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "again" in line)
    assert "1,234" in line
    assert " 99 " in line


def test_exports_of_other_models_are_not_published(home, sound, tmp_path):
    model = Path(repeated(sound, tmp_path / "run", 0, metrics={"loss": 0.5}))
    with raises("missing", "contains no exports: zoo export RUN --format onnx --to"):
        publish(str(model), str(tmp_path / "site"), exports=tmp_path / "nothing")
    wrong = [
        {"metrics": {"loss": 0.6}},
        {"metrics": {"loss": 0.5}, "backbone": "mlp"},
        {"metrics": {"loss": 0.5}, "bytes": "9"},
    ]
    wrong += [{}, {"quantize": "int8", "metrics": {"loss": 0.5}, "float_metrics": {"loss": 0.7}}]
    for number, values in enumerate(wrong):
        exported(tmp_path / str(number) / "a", model, **values)
        with raises("mismatch", "is not an export of this model with its test metrics"):
            publish(str(model), str(tmp_path / "site"), exports=tmp_path / str(number))
    assert not list((tmp_path / "site").glob("*"))


def test_the_catalogue_has_the_sizes_and_metrics_of_exports():
    for release in sources.of_catalogue(str(sources.packaged()), ""):
        facts = release.facts
        compact, small = facts["exports"].values()
        assert compact == {"bytes": sources.exported_bytes(facts)} | facts["metrics"]
        assert small.keys() == compact.keys()
        assert small["bytes"] == sources.exported_bytes(facts, "int8")
        parameters = facts["parameters"]["total"]
        assert compact["bytes"] < 4.2 * parameters + 60_000
        assert small["bytes"] < 2 * parameters + 60_000
