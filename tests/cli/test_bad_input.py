"""What a user can get wrong: exit code 2, one line that says what and what to do, and nothing left behind."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from zoo.registry import refresh

BASE = ("fit", "--backbone", "vit(dim=32,depth=1)", "--algebra", "quaternion", "--data", "digits")
BASE = (*BASE, "--trainer.max_epochs", "1", "--trainer.accelerator", "cpu")

# What is added to a call that would work, and what the answer must name.
NAMES = [
    ("--algebra", "quternion", ["unknown algebra 'quternion'", "did you mean 'quaternion'?", "installed: "]),
    ("--backbone", "vitt", ["unknown backbone 'vitt'", "did you mean 'vit'?", "zoo list backbones"]),
    ("--data", "digit", ["unknown data set 'digit'", "did you mean 'digits'?", "zoo list datasets"]),
    ("--backbone", "vit(dims=3)", ["unknown option 'dims' of vit", "did you mean 'dim'?", "dim=64"]),
    ("--data", "digits(siz=3)", ["unknown option 'siz' of digits", "did you mean 'size'?"]),
    ("--algebra", "quaternion(n=4)", ["unknown option 'n' of quaternion"]),
    ("--algebra", "quaternion(", ["bad spec 'quaternion('"]),
    ("--backbone", "vit(dim=__import__('os').nope)", ["dim"]),
]
SIZES = [
    ("--backbone", "vit(patch=3)", ["patch=3", "8 pixels", "1, 2, 4, 8"]),
    ("--backbone", "vit(patch=0)", ["patch=0", "8 pixels"]),
    ("--backbone", "vit(dim=36,heads=4)", ["dim=36", "heads=4", "n = 4", "vit(dim=48)"]),
    ("--backbone", "vit(heads=0)", ["heads=0"]),
    ("--backbone", "vit(dim=-32)", ["dim=-32"]),
    ("--algebra", "phm-64", ["n = 64", "write vit(dim=256)"]),
    ("--data", "digits(size=0)", ["size=0", "whole number from 1"]),
    ("--data", "digits(augment=mirror)", ["mirror", "shift"]),
    ("--batch_size", "0", ["batch_size=0", "whole number from 1"]),
    ("--num_workers", "-1", ["num_workers=-1", "whole number from 0"]),
    ("--backbone", "timm/resnet181", ["no model 'resnet181'", "did you mean resnet18"]),
    ("--backbone", "timm", ["timm needs the option 'variant'"]),
    ("--backbone", "timm/vit_tiny_patch16_224", ["1x8x8", "digits(size=32)"]),
    ("--backbone", "timm/resnet18(nonsense=3)", ["resnet18", "nonsense"]),
]
OPTIONS = [
    ("--algebra", "clifford", ["clifford needs the option 'p'"]),
    ("--algebra", "clifford(p=-1,q=0)", ["p=-1"]),
    ("--algebra", "phm", ["phm needs the option 'n'"]),
    ("--algebra", "phm(n=0)", ["n=0", "1 to 64"]),
    ("--algebra", "phm(n=4,rule=nonsense)", ["nonsense"]),
    ("--scope", "al", ["unknown scope 'al'", "all", "attention"]),
    ("--scope", "", ["unknown scope ''"]),
    ("--scope", "all+", ["unknown scope ''", "'all+'"]),
    ("--init", "xavier", ["unknown initialisation 'xavier'", "variance, glorot, polar"]),
    ("--optimizer.name", "adamv", ["unknown optimizer 'adamv'", "adam"]),
    ("--optimizer.name", "zzzz", ["unknown optimizer 'zzzz'", "adam"]),
    ("--optimizer.lr", "-1", ["optimizer.lr=-1", "above zero"]),
    ("--optimizer.lr", "0", ["optimizer.lr=0", "above zero"]),
    ("--optimizer.lr", "nan", ["lr", "nan"]),
    ("--optimizer.lr", ".inf", ["optimizer.lr=inf", "above zero"]),
    ("--optimizer.weight_decay", "-1", ["optimizer.weight_decay=-1", "zero or more"]),
    ("--schedule.name", "cos", ["unknown schedule 'cos'", "cosine, linear, constant"]),
    ("--schedule.warmup", "2", ["schedule.warmup=2", "0 to 1"]),
    ("--schedule.warmup", "-0.1", ["schedule.warmup=-0.1", "0 to 1"]),
    ("--trainer.max_epochs", "x", ["trainer.max_epochs", "whole number", "x"]),
    ("--trainer.precision", "17", ["--trainer: ", "bf16-mixed", "17"]),
    ("--trainer.callbacks", "nope", ["trainer.callbacks", "nope"]),
    ("--resume", "none", ["--resume none", "no run to resume"]),
    ("--resume", "file", ["--resume file", "no run to resume"]),
    ("--resume", "full", ["--resume full", "config.yaml is missing"]),
    ("--checkpoint_every", "soon", ["checkpoint_every=soon", "10m"]),
    ("--run_dir", "file", ["'file'", "--run-dir"]),
    ("--run_dir", "file/inside", ["'file/inside'", "--run-dir"]),
    ("--run_dir", "full", ["'full' is not empty", "--run-dir"]),
]
# Refused only when Lightning or torch see them, after the run's folder was claimed.
LATE = [
    ("--trainer.accelerator", "tpuu", ["accelerator", "tpuu", "cpu"]),
    ("--trainer.devices", "0", ["devices=0"]),
    ("--trainer.strategy", "nope", ["strategy", "nope"]),
    ("--trainer.max_epochs", "-3", ["max_epochs", "-3"]),
]


@pytest.fixture
def places(tmp_path: Path) -> None:
    """A file in the way, and a folder that is not empty."""
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "bytes").write_bytes(b"not a checkpoint")


def name_case(value):
    return value if isinstance(value, str) else ""


@pytest.mark.parametrize(("flag", "value", "needles"), NAMES + SIZES + OPTIONS, ids=name_case)
def test_one_line(refused, places, flag, value, needles):
    line = refused(*BASE, flag, value)
    assert [needle for needle in needles if needle not in line] == []


@pytest.mark.parametrize(("flag", "value", "needles"), LATE, ids=name_case)
def test_what_lightning_refuses_leaves_no_folder_behind(refused, places, flag, value, needles):
    line = refused(*BASE, flag, value)
    assert [needle for needle in needles if needle not in line] == []


@pytest.mark.parametrize("seed", ["-1", str(2**32)])
def test_a_seed_that_numpy_cannot_take(refused, seed):
    assert f"seed={seed}" in refused(*BASE, "--seed", seed)


@pytest.mark.parametrize(
    ("flag", "value", "needles"),
    [
        ("--backbone", "vit(dim=abc)", ["vit", "dim=abc", "a whole number"]),
        ("--backbone", "vit(depth=1.5)", ["vit", "depth=1.5", "a whole number"]),
        ("--algebra", "phm(n=1.5)", ["phm", "n=1.5", "a whole number"]),
    ],
    ids=name_case,
)
def test_a_value_of_the_wrong_type(refused, flag, value, needles):
    line = refused(*BASE, flag, value)
    assert [needle for needle in needles if needle not in line] == []
    assert len(line) < 160


# --- data files ---

PIXELS, LABELS = np.zeros((20, 8, 8), np.uint8), np.arange(20) % 2


@pytest.mark.parametrize(
    ("arrays", "needles"),
    [
        ({"train_images": PIXELS}, ["no array train_labels", "train_images"]),
        ({"train_labels": LABELS}, ["no array train_images"]),
        ({"x": PIXELS}, ["no array train_images", "it has x"]),
        ({"train_images": PIXELS, "train_labels": LABELS[:7]}, ["20 images", "(7,)"]),
        ({"train_images": PIXELS.astype(float), "train_labels": LABELS}, ["float64", "uint8"]),
        ({"train_images": PIXELS[0], "train_labels": LABELS}, ["(8, 8)", "[N, H, W]"]),
        ({"train_images": PIXELS, "train_labels": np.full(20, 0.5)}, ["float64", "integers"]),
        ({"train_images": PIXELS, "train_labels": LABELS - 1}, ["label -1"]),
        ({"train_images": PIXELS, "train_labels": np.array([object()] * 20)}, ["train_labels", "nothing is unpickled"]),
        ({"train_images": PIXELS[:0], "train_labels": LABELS[:0]}, ["no images"]),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_an_archive_with_wrong_arrays(refused, tmp_path, arrays, needles):
    np.savez(tmp_path / "mine.npz", **arrays)
    line = refused(*BASE, "--data", "npz(path=mine.npz)")
    assert [needle for needle in ["mine.npz", *needles] if needle not in line] == []


def test_a_file_that_is_no_archive(refused, tmp_path):
    (tmp_path / "mine.npz").write_text("hello")
    line = refused(*BASE, "--data", "npz(path=mine.npz)")
    assert "mine.npz" in line
    assert ".npz archive" in line


def test_a_file_that_is_not_there(refused, tmp_path):
    line = refused(*BASE, "--data", "npz(path=data/none.npz)")
    assert "data/none.npz does not exist" in line
    assert str(tmp_path) in line
    assert "path" in refused(*BASE, "--data", "npz")


# --- trained models ---


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A model folder as a run writes it, of a network that was never trained."""
    import zoo
    from zoo.backbones.build import count
    from zoo.checkpoint import save
    from zoo.data import ready
    from zoo.data.images.files import digits

    info = ready(digits()).info
    net = zoo.backbone("vit(dim=16,depth=1,heads=1)", "quaternion", **info.model_kwargs)
    config = {"backbone": "vit(dim=16,depth=1,heads=1)", "algebra": "quaternion", "scope": "all", "init": "variance"}
    config |= {"task": "image_classification", "data": "digits", "build": info.model_kwargs, "info": info.to_dict()}
    summary = {"metrics": {}, "versions": {}, "parameters": count(net) | {"real_twin": 1}, "epochs": 0, "seed": 0}
    folder = tmp_path_factory.mktemp("run") / "model"
    save(folder, net, {**config, **summary}, {**config, **summary})
    return folder


@pytest.fixture
def model(trained: Path, tmp_path: Path) -> Path:
    """A copy in the working folder, to be damaged."""
    from shutil import copytree

    return copytree(trained, tmp_path / "model")


def test_the_model_itself_is_sound(call, model):
    """The control of every test below."""
    code, out, err = call("test", "model", "--json")
    assert (code, err) == (0, "")
    assert set(json.loads(out)) == {"loss", "accuracy", "f1"}


COMMANDS = [("test", "model"), ("validate", "model"), ("predict", "model", "any.png")]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_folder_without_a_model(refused, tmp_path, words):
    assert "there is no folder 'model'" in refused(*words)
    (tmp_path / "model").mkdir()
    assert "'model' has no model/config.json" in refused(*words)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_one_flipped_bit_in_the_weights(refused, model, words):
    path = model / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    line = refused(*words)
    assert "model/model.safetensors" in line
    assert "checksum" in line


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_an_edited_configuration(refused, model, words):
    path = model / "config.json"
    path.write_text(path.read_text().replace("quaternion", "octonion"))
    line = refused(*words)
    assert "model/config.json" in line
    assert "checksum" in line


@pytest.mark.parametrize("name", ["manifest.json", "model.safetensors", "README.md"])
def test_a_missing_file(refused, model, name):
    (model / name).unlink()
    assert f"model/{name}" in refused("test", "model")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"files": 3}', '{"files": {}}', "\x00"])
def test_a_manifest_that_is_none(refused, model, text):
    (model / "manifest.json").write_text(text)
    assert "model/manifest.json" in refused("test", "model")


@pytest.mark.parametrize(
    ("data", "needles"),
    [
        ("digits(size=16)", ["image_size = 16", "trained with 8"]),
        ("npz(path=two.npz)", ["classes", "'0', '1'"]),
        ("digit", ["did you mean 'digits'?"]),
    ],
    ids=name_case,
)
def test_data_that_does_not_fit_the_model(refused, model, tmp_path, data, needles):
    np.savez(tmp_path / "two.npz", train_images=PIXELS, train_labels=LABELS)
    line = refused("test", "model", "--data", data)
    assert [needle for needle in needles if needle not in line] == []


def test_data_without_a_test_split(refused, call, model, tmp_path):
    np.savez(tmp_path / "ten.npz", train_images=np.zeros((40, 8, 8), np.uint8), train_labels=np.arange(40) % 10)
    line = refused("test", "model", "--data", "npz(path=ten.npz)")
    assert "ten.npz has no test split" in line
    assert "validate" in line
    assert call("validate", "model", "--data", "npz(path=ten.npz)").code == 0


@pytest.mark.parametrize(
    ("words", "needles"),
    [
        (["--batch_size", "0"], ["batch_size=0"]),
        (["--batch_size", "x"], ["batch_size", "a whole number"]),
        (["--trainer.accelerator", "tpuu"], ["tpuu"]),
        (["--trainer.max_epoch", "3"], ["did you mean --trainer.max-epochs?"]),
        (["--jsno"], ["unknown flag --jsno"]),
    ],
    ids=lambda words: words[0],
)
def test_bad_options_of_test(refused, model, words, needles):
    line = refused("test", "model", *words)
    assert [needle for needle in needles if needle not in line] == []


def test_an_optimizer_for_matrices_is_refused(refused):
    assert "optimizer 'muon' needs real matrices" in refused(*BASE, "--optimizer.name", "muon")


def test_a_flag_is_named_as_it_was_typed(refused):
    assert "unknown flag --batch-size (all flags" in refused("generate", "model", "--batch-size", "2")
    assert "unknown flag --max-epoch: did you mean --trainer.max-epochs?" in refused(*BASE, "--max-epoch", "2")


def test_test_without_a_run(refused):
    line = refused("test")
    assert "missing" in line
    assert "--run" not in line  # it is no flag


@pytest.mark.parametrize(
    ("image", "needles"),
    [
        ("none.png", ["none.png", "No such file"]),
        ("model/config.json", ["model/config.json", "cannot identify"]),
        ("model", ["the folder 'model' has no file that ends with .png"]),
    ],
    ids=name_case,
)
def test_predict_on_what_is_no_image(refused, model, image, needles):
    line = refused("predict", "model", image)
    assert [needle for needle in needles if needle not in line] == []
    assert line.startswith("cannot read the image") == (image != "model")


def test_predict_without_images(refused, model):
    assert "give image files" in refused("predict", "model")
    assert "give image files" in refused("predict", "model", "-")


def test_a_truncated_image(refused, model, tmp_path):
    from PIL import Image

    Image.fromarray(np.random.RandomState(0).randint(0, 256, (64, 64)).astype(np.uint8)).save(tmp_path / "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:1000])
    assert "cut.png" in refused("predict", "model", "cut.png")


# --- plugins of strangers ---


@pytest.fixture
def install(tmp_path_factory, monkeypatch):
    """Pretend that a distribution with an algebra is installed."""
    before = set(sys.modules)
    root = tmp_path_factory.mktemp("sites")

    def install(distribution: str, algebra: str, source: str) -> None:
        module = distribution.replace("-", "_")
        info = root / distribution / f"{module}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[zoo.algebras]\n{algebra} = {module}:make\n")
        (root / distribution / f"{module}.py").write_text(source)
        monkeypatch.syspath_prepend(str(root / distribution))
        refresh()

    yield install
    for name in set(sys.modules) - before:
        if str(root) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    monkeypatch.undo()
    refresh()


@pytest.mark.parametrize(
    ("source", "needles"),
    [
        ("import sys\nsys.exit(3)", ["does not load", "SystemExit"]),
        ("import no_such_module", ["does not load", "no_such_module"]),
        ("def make(:", ["does not load", "SyntaxError"]),
        ("make = 3", ["does not load", "not callable"]),
        ("", ["does not load", "make"]),
        ("def make():\n    raise RuntimeError('first\\nsecond')", ["fails on 'strange'", "first second"]),
        ("def make():\n    import sys\n    sys.exit()", ["fails on 'strange'", "SystemExit"]),
        ("def make():\n    return 3", ["'strange'", "int"]),
    ],
    ids=["exit", "import", "syntax", "value", "empty", "raises", "exits", "returns"],
)
def test_a_broken_plugin(refused, call, install, source, needles):
    install("stranger-zoo", "strange", source)
    line = refused(*BASE, "--algebra", "strange")
    assert [needle for needle in ["strange", *needles] if needle not in line] == []
    listing = call("list", "algebras")
    assert (listing.code, listing.err) == (0, "")
    assert "stranger-zoo" in listing.out


def test_a_broken_plugin_is_blamed_on_its_distribution(refused, install):
    install("stranger-zoo", "strange", "1 / 0")
    assert "pip uninstall stranger-zoo" in refused(*BASE, "--algebra", "strange")


def test_a_name_that_two_distributions_claim(refused, call, install):
    install("first-zoo", "strange", "def make():\n    return 3")
    install("second-zoo", "strange", "def make():\n    return 3")
    line = refused(*BASE, "--algebra", "strange")
    assert "first-zoo:strange" in line
    assert "second-zoo:strange" in line
    # The way out of the message leads to the plugin itself, which returns no algebra.
    assert "int" in refused(*BASE, "--algebra", "first-zoo:strange")
    assert call("fit", *BASE[1:], "--algebra", "real", "--print_config").code == 0


@pytest.mark.parametrize(
    ("flag", "value", "needles"),
    [
        ("--backbone", "vit(dim=400000000)", ["dim=400000000 is too large"]),
        ("--backbone", "vit(depth=1000000000)", ["depth=1000000000 is too large"]),
        ("--backbone", "vit(dim=4000000)", ["parameters need more memory than this machine"]),
        ("--num-workers", "100000", ["num_workers=100000", "from 0 to 1024"]),
        ("--batch-size", "99999999999999999999", ["batch_size=99999999999999999999", "use at most"]),
        ("--run-dir", "a\0b", ["run_dir='a\\x00b'", "null character"]),
    ],
    ids=name_case,
)
def test_a_size_that_no_machine_holds(refused, flag, value, needles):
    line = refused(*BASE, flag, value)
    assert [needle for needle in needles if needle not in line] == []
