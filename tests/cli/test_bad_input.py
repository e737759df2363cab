"""Invalid input: exit code 2, one line that names the offending value, and no files left behind."""

import shlex
from shutil import copytree

import numpy as np
import pytest
from PIL import Image

import zoo
from zoo.checkpoint import ModelConfig, save
from zoo.data import ready
from zoo.data.images import digits

LIMITS = "--trainer.max_epochs 1 --trainer.accelerator cpu"
VIT = f"fit --backbone vit(dim=32,depth=1) --algebra quaternion --data digits {LIMITS}"
TEXT = f"fit --backbone fasttext(dim=8,hidden=8) --algebra quaternion --data text(path=text.tsv) {LIMITS}"
# By valid call: invalid additions, and the values that the message names.
CASES = {
    VIT: [
        ("--backbone vitt", "'vitt'", "'vit'"),
        ("--backbone vit(dims=3)", "'dims'", "'dim'", "dim=64"),
        ("--algebra clifford", "'p'"),
        ("--backbone vit(patch=3)", "patch=3", "8 pixels", "1, 2, 4, 8"),
        ("--backbone vit(dim=36,heads=4)", "dim=36", "heads=4", "n = 4", "vit(dim=48, heads=4)"),
        ("--backbone timm/vit_tiny_patch16_224", "1x8x8", "digits(size=32)"),
        ("--backbone vit(dim=400000000)", "dim=400000000"),
        ("--num-workers 100000", "num_workers=100000", 1024),
        ("--scope al", "'al'", "attention"),
        ("--optimizer.name adamv", "'adamv'", "adam"),
        ("--optimizer.lr 0", "optimizer.lr=0"),
        # Rejected by Lightning or torch after the run folder was created:
        ("--trainer.accelerator tpuu", "accelerator", "tpuu", "cpu"),
        ("--trainer.devices 0", "devices=0"),
        ("--resume full", "--resume full", "config.yaml"),
        ("--resume tickets", "'tickets'", "zoo lottery --resume tickets"),
        ("--checkpoint_every soon", "checkpoint_every=soon", "10m"),
        ("--run_dir full", "'full'", "--run-dir"),
        ("--folds 3", "'digits'", "--folds"),
        ("--data npz(path=data/none.npz)", "data/none.npz"),
    ],
    TEXT: [
        ("--vectors nowhere.txt", "nowhere.txt"),
        ("--vectors glove.txt", "glove.txt:3"),
        ("--data text(path=none.tsv)", "none.tsv"),
        ("--data text(path=text.tsv,text=review)", "text.tsv:1", "'review'", "'label'"),
        ("--data ranking(path=ranking.tsv,label=answer)", "ranking.tsv:2", "label"),
        ("--data text(path=bad.tsv)", "bad.tsv:4", "label"),
    ],
    "test model": [
        ("--data digits(size=16)", "image_size = 16", 8),
        ("--data npz(path=two.npz)", "classes", "'0', '1'"),
        ("--data npz(path=ten.npz)", "ten.npz", "validate"),
    ],
    "predict model": [
        ("", "image"),
        ("model/config.json", "model/config.json"),
        ("cut.png", "cut.png"),
    ],
}
READS = [  # a backbone, unsupported data, and the names in the message
    ("fasttext", "digits", "images", "vit"),
    ("gpt", "glosses(task=seq2seq,limit=60)", "texts and their answers", "transformer"),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The model folder of an untrained network."""
    info = ready(digits()).info
    net = zoo.backbone("vit(dim=16,depth=1,heads=1)", "quaternion", **info.model_kwargs)
    names = {"backbone": "vit(dim=16,depth=1,heads=1)", "algebra": "quaternion", "task": "image_classification"}
    config = ModelConfig(**names, data="digits", info=info.to_dict())
    known = {"metrics": {}, "versions": {}, "parameters": zoo.count(net) | {"real_twin": 1}, "epochs": 0, "seed": 0}
    folder = tmp_path_factory.mktemp("run") / "model"
    save(folder, net, config, known)
    return folder


@pytest.fixture
def files(trained, corpus, tmp_path):
    """The files of the cases."""
    copytree(trained, tmp_path / "model")
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "bytes").write_bytes(b"not a checkpoint")
    (tmp_path / "tickets").mkdir()
    (tmp_path / "tickets" / "config.yaml").write_text("rounds: 1\n")
    (tmp_path / "tickets" / "lottery.json").write_text("{}")
    for kind in ("text", "pairs", "ranking"):
        corpus(tmp_path / f"{kind}.tsv", kind)
    lines = (tmp_path / "text.tsv").read_text().splitlines()
    (tmp_path / "bad.tsv").write_text("\n".join([*lines[:3], "a film\t", *lines[4:]]))
    (tmp_path / "glove.txt").write_text("film 1 2 3\nbad 1 2 3\ngood 1 2\n")
    labels = np.arange(40)
    np.savez(tmp_path / "ten.npz", train_images=np.zeros((40, 8, 8), np.uint8), train_labels=labels % 10)
    np.savez(tmp_path / "two.npz", train_images=np.zeros((40, 8, 8), np.uint8), train_labels=labels % 2)
    Image.fromarray(np.random.RandomState(0).randint(0, 256, (64, 64)).astype(np.uint8)).save(tmp_path / "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:1000])


@pytest.mark.parametrize(
    ("base", "words", "values"),
    [(base, words, values) for base, cases in CASES.items() for words, *values in cases],
    ids=lambda value: value if isinstance(value, str) and value not in CASES else "",
)
def test_the_message_names_the_value(refused, files, base, words, values):
    line = refused(*base.split(), *shlex.split(words))
    assert [value for value in values if str(value) not in line] == []


@pytest.mark.parametrize(("backbone", "data", "kind", "other"), READS)
def test_incompatible_backbone_and_data(refused, files, backbone, data, kind, other):
    line = refused("fit", "--backbone", backbone, "--algebra", "real", "--data", data)
    assert kind in line
    assert other in line


@pytest.mark.parametrize("words", ["test model", "predict model any.png"])
def test_missing_and_damaged_models(call, refused, files, tmp_path, words):
    weights, config = tmp_path / "model/model.safetensors", tmp_path / "model/config.json"
    assert (call(*words.split()).code == 0) != words.startswith("predict")  # the image does not exist
    content = weights.read_bytes()
    weights.write_bytes(content[:-100] + bytes([content[-100] ^ 1]) + content[-99:])
    assert "model/model.safetensors" in refused(*words.split())
    weights.write_bytes(content)
    config.write_text(config.read_text().replace("quaternion", "octonion"))
    assert "model/config.json" in refused(*words.split())
    config.unlink()
    assert "model/config.json" in refused(*words.split())


# --- third-party plugins ---

BROKEN = {
    "exit": ("import sys\nsys.exit(3)", "SystemExit"),
    "raises": ("def make():\n    raise RuntimeError('first\\nsecond')", "first second"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_plugins_do_not_affect_others(environment, refused, call, case):
    source, reason = BROKEN[case]
    environment.install("stranger-zoo", {"strange": "stranger_zoo:make"}, {"stranger_zoo.py": source})
    line = refused(*VIT.split(), "--algebra", "strange")
    assert "strange" in line
    assert reason in line
    assert "pip uninstall stranger-zoo" in line
    code, out, err = call("list", "algebras")
    assert (code, err) == (0, "")
    assert "stranger-zoo" in out


def test_a_name_of_two_distributions(environment, refused, call):
    for name in ("first", "second"):
        source = {f"{name}_zoo.py": "def make():\n    return 3"}
        environment.install(f"{name}-zoo", {"strange": f"{name}_zoo:make"}, source)
    line = refused(*VIT.split(), "--algebra", "strange")
    assert "first-zoo:strange" in line
    assert "second-zoo:strange" in line
    assert call(*VIT.split(), "--algebra", "real", "--print_config").code == 0


# --- full messages: the only place where their wording is tested ---

MESSAGES = {
    "fit --backbone vit --algebra quaternion --data text.tsv": "unknown data set 'text.tsv': use table(path=text.tsv,"
    " target=COLUMN) or text(path=text.tsv); installed: ",
    "fit --backbone vit --algebra quaternion --data full": "unknown data set 'full': use imagefolder(path=full)"
    " or text(path=full); installed: ",
    "fit --backbone vit --algebra quaternion --data csv(path=wine.csv)": "unknown data set 'csv': use table(path=FILE.csv,"
    " target=COLUMN) or text(path=FILE.csv); installed: ",
    "fit --backbone vit --algebra quternion": "unknown algebra 'quternion': did you mean 'quaternion'? installed: ",
    "fit --bakbone vit": "unknown flag --bakbone: did you mean --backbone or --trainer.barebones? (all flags: zoo fit --help)",
    "fitt": "unknown command 'fitt': did you mean 'fit'? (see zoo --help)",
    "fit --backbone vit --algebra quaternion --optimizer.lr 0": "optimizer.lr=0.0: must be above 0",
    "fit --backbone vit --algebra quaternion --run_dir full": "the run folder 'full' is not empty: use another --run-dir,"
    " or delete it",
    "fit --backbone fasttext --algebra real --data text(path=none.tsv)": "data: none.tsv does not exist (working directory ",
    "fit --backbone fasttext --algebra real --data text(path=bad.tsv)": "bad.tsv:4: column 'label' is empty; fill it, or"
    " remove the row; skip it with on_bad_rows=skip",
    "test nothing": "there is no folder 'nothing' and no model with that name: see: zoo list checkpoints",
    "test runs/none": "there is no folder 'runs/none': use a run (runs/...) or a model folder",
    "convert --algebra quaternion": "missing --from: use a run, a model folder, a name from zoo list checkpoints, or timm/NAME",
    "sweep none.yaml": "cannot read the config 'none.yaml': No such file or directory",
}
"""Full messages by call; a message that ends with a space is a prefix."""


@pytest.mark.parametrize("words", MESSAGES)
def test_messages(refused, files, words):
    line, expected = refused(*words.split()), MESSAGES[words]
    assert (line[: len(expected)] if expected.endswith(" ") else line) == expected


def test_message_of_a_damaged_checkpoint(refused, files, tmp_path):
    with (tmp_path / "model/model.safetensors").open("ab") as file:
        file.write(b"x")
    assert refused("test", "model") == "model/model.safetensors has changed (its checksum differs): copy the folder again"
