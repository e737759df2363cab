"""`zoo.Model`: prediction from all kinds of inputs, devices, evaluation, saving and loading."""

import sys
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import zoo
from tests.errors import raises
from tests.faults.hostile import seal
from zoo.cli import main
from zoo.conversion.attention_layout import MatrixLayout
from zoo.data import ready
from zoo.data.images import digits
from zoo.inference.model import _reads_any_length, choose_device
from zoo.nn import PositionEmbedding

TRAINER = {"max_epochs": 1, "limit_train_batches": 3, "accelerator": "cpu", "enable_progress_bar": False}
MOST_CALLS = 12
"""Function calls from ``zoo predict`` to the network's forward."""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "run"
    zoo.fit(backbone="vit(dim=32,depth=1)", algebra="quaternion", data="digits", run_dir=str(folder), trainer=TRAINER)
    return folder


@pytest.fixture(scope="module")
def model(run) -> zoo.Model:
    return zoo.load(run)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """A folder with images, one of them in a subfolder, and a text file."""
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "inner").mkdir()
    for number, name in enumerate(["b.png", "a.png", "inner/c.tif"]):
        pixels = np.random.RandomState(number).randint(0, 256, (8, 8)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / name)
    (folder / "notes.txt").write_text("not an image")
    return folder


@pytest.fixture(scope="module")
def text_model(corpus, tmp_path_factory) -> tuple[zoo.Model, list[str], list[str]]:
    """A model of texts, and the texts and labels of its data."""
    folder = tmp_path_factory.mktemp("text")
    file = corpus(folder / "text.tsv", "text")
    options = {"run_dir": str(folder / "run"), "trainer": TRAINER}
    zoo.fit(backbone="fasttext(dim=8,hidden=8)", algebra="real", data=f"text(path='{file}')", **options)
    texts, labels = zip(*(line.split("\t") for line in file.read_text().splitlines()[1:]), strict=True)
    return zoo.load(folder / "run"), list(texts), list(labels)


def test_the_attributes_of_a_model(model):
    assert isinstance(model.net, nn.Module)
    assert model.task.net is model.net
    assert (model.info.image_size, model.tokenizer, model.device) == (8, None, torch.device("cpu"))
    assert model.config.backbone == "vit(depth=1, dim=32)"
    assert set(model.metrics) == {"loss", "accuracy", "f1"}
    assert not model.net.training
    assert "quaternion" in repr(model)
    assert repr(model).startswith("zoo.Model(")


# --- prediction ---


def test_every_kind_of_image_has_the_same_prediction(model, pictures):
    file = pictures / "a.png"
    image = Image.open(file)
    pixels = np.asarray(image)
    (expected,) = model.predict(file)
    for same in (str(file), image, pixels, pixels[None, ..., None], torch.tensor(pixels)[None], [image]):
        (row,) = model.predict(same)
        assert row["label"] == expected["label"]
        assert row["probability"] == pytest.approx(expected["probability"], abs=1e-6)
    assert expected.keys() == {"file", "label", "probability"}


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_pixels_in_any_layout_have_the_same_predictions(model, kind):
    pixels = np.random.RandomState(0).randint(0, 256, (5, 8, 8)).astype(np.uint8)
    expected = model.predict([Image.fromarray(image) for image in pixels])
    for layout in (pixels, pixels[:, None], pixels[..., None]):
        assert model.predict(kind(layout)) == expected
    for layout in (pixels[0], pixels[0][None], pixels[0][..., None], pixels[:1, None]):
        assert model.predict(kind(layout)) == expected[:1]
    colored = np.stack([pixels[0]] * 3)
    for layout in (colored.transpose(1, 2, 0), colored[None], colored.transpose(1, 2, 0)[None]):
        assert model.predict(kind(layout)) == expected[:1]
    with raises("data", "pixels [3, 8, 8] may be 3 grey images or one with colors"):
        model.predict(kind(pixels[:3]))
    assert model.predict([kind(colored)]) == expected[:1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normalized_arrays_and_tensors_have_the_same_predictions(model, dtype):
    images = torch.randn(5, 1, 8, 8)
    expected, arrays = model.predict(images, normalized=True), images.numpy().astype(dtype)
    for inputs in (arrays, torch.from_numpy(arrays), arrays[:, 0], arrays.transpose(0, 2, 3, 1), list(arrays[:, 0])):
        assert model.predict(inputs, normalized=True) == expected


def test_predictions_equal_those_of_the_network(model):
    images = torch.randn(5, 1, 8, 8)
    with torch.no_grad():
        expected = model.net(images).softmax(-1)
    for batch_size in (1, 2, 64):
        rows = model.predict(images, batch_size=batch_size, normalized=True)
        assert [row["label"] for row in rows] == [model.info.classes[i] for i in expected.argmax(-1)]
        assert [row["probability"] for row in rows] == pytest.approx(expected.amax(-1).tolist(), abs=2e-6)


def test_the_most_probable_labels(model, pictures):
    (best,) = model.predict(pictures / "a.png")
    (row,) = model.predict(pictures / "a.png", top=3)
    assert row["top"][0] == {"label": best["label"], "probability": best["probability"]}
    assert [entry["probability"] for entry in row["top"]] == sorted((e["probability"] for e in row["top"]), reverse=True)
    assert len(model.predict(pictures / "a.png", top=99)[0]["top"]) == len(model.info.classes)
    with raises("invalid", "top=0"):
        model.predict(pictures, top=0)


def test_the_images_of_a_folder_are_predicted_in_order(model, pictures):
    assert [Path(row["file"]).name for row in model.predict(pictures)] == ["a.png", "b.png", "c.tif"]
    assert model.predict([pictures, pictures / "a.png"])[:3] == model.predict(pictures)


def test_the_texts_of_a_folder_are_predicted_in_order(text_model, tmp_path):
    model, *_ = text_model
    for name, text in (("b.txt", "a bad film\n"), ("a.txt", "a film\nthe plot\n")):
        (tmp_path / name).write_text(text)
    assert [row["text"] for row in model.predict(tmp_path)] == ["a film", "the plot", "a bad film"]
    assert model.predict(str(tmp_path)) == model.predict(["a film", "the plot", "a bad film"])


def test_vectors_are_predicted_from_python(tmp_path):
    zoo.fit(backbone="linear", algebra="quaternion", data="hamilton(rows=200)", run_dir=str(tmp_path / "run"), trainer=TRAINER)
    model = zoo.load(tmp_path / "run")
    x = torch.randn(3, model.info.in_features)
    for inputs in (x, x.numpy(), list(x)):
        outputs = torch.tensor([row["output"] for row in model.predict(inputs)])
        torch.testing.assert_close(outputs, model.net(x).detach())
    with raises("invalid", "row 0"):
        model.predict(x * torch.nan)


@pytest.mark.parametrize(
    ("call", "value"),
    [
        (lambda model: model.predict("x.png", batch_size=0), "batch_size=0"),
        (lambda model: model.predict("x.png", beam=2), "leave beam out"),
        (lambda model: model.predict("x.png", truncation=True), "truncation applies only to texts"),
        (lambda model: model.generate("a text"), "use zoo predict"),
        (lambda model: model.predict(3), "image 0 is a int"),
        (lambda model: model.predict(torch.zeros(2, 5, 8, 8)), "image 0 is a Tensor"),
        (lambda model: model.predict(np.zeros((1, 9, 8), np.float32)), "image 0 is a ndarray of float32 [1, 9, 8]"),
        (lambda model: model.predict(torch.full((1, 1, 8, 8), 1.5)), "image 0: values from 1.5 to 1.5"),
        (lambda model: model.evaluate(3), "data=3"),
        (lambda model: model.evaluate(split="train"), "split='train'"),
        (lambda model: model.evaluate("digits(size=16)"), "image_size = 16, the model was trained with 8"),
        (lambda model: model.to("nowhere"), "'nowhere'"),
        (lambda model: zoo.save(model, ".", backbone="vit"), "backbone"),
    ],
)
def test_invalid_arguments(model, call, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with raises("invalid", value):
        call(model)


def count_calls(words: list[str], forward: str) -> int:
    """Count the frames of the zoo on the stack when the forward of a network starts."""
    counts: list[int] = []

    def profile(frame, event, argument) -> None:
        if not counts and event == "call" and frame.f_code.co_name == "forward" and forward in frame.f_code.co_filename:
            calls = 0
            while frame is not None:
                calls += f"{zoo.__path__[0]}/" in frame.f_code.co_filename
                frame = frame.f_back
            counts.append(calls)

    sys.setprofile(profile)
    try:
        assert main(words) == 0
    finally:
        sys.setprofile(None)
    return counts[0]


def test_few_calls_lead_from_the_command_to_the_network(run, pictures, capsys):
    assert count_calls(["predict", str(run), str(pictures / "a.png")], "vision_transformer") <= MOST_CALLS
    assert capsys.readouterr().out.startswith(str(pictures / "a.png"))


# --- devices ---


def test_the_default_device():
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_prediction_and_evaluation_on_a_gpu(run):
    images = torch.randn(5, 1, 8, 8)
    gpu, cpu = zoo.load(run, device="cuda"), zoo.load(run)
    assert gpu.device.type == "cuda"
    labels = [[row["label"] for row in model.predict(images, normalized=True)] for model in (gpu, cpu)]
    assert labels[0] == labels[1]
    assert gpu.evaluate() == pytest.approx(cpu.evaluate(), abs=1e-3)
    assert gpu.device.type == "cuda"


# --- evaluation ---


def test_evaluation_on_a_spec_or_a_data_module(model):
    assert model.evaluate(batch_size=7) == pytest.approx(model.metrics, abs=1e-5)
    assert not model.net.training
    expected = model.evaluate("digits", "val")
    assert model.evaluate(digits(batch_size=16), "val") == pytest.approx(expected, abs=1e-6)


def test_evaluation_on_arrays_equals_that_on_the_data_module(model):
    data = ready(digits())
    expected = pytest.approx(model.evaluate(data), abs=1e-5)
    pixels, labels = (torch.from_numpy(array) for array in (data.splits["test"].images, data.splits["test"].labels))
    floats, (images, targets) = pixels / 255, data.dataset("test").__getitems__(list(range(len(labels))))
    names = [model.info.classes[label] for label in labels.tolist()]
    for pair in ((pixels, labels), (pixels.numpy(), labels.numpy()[:, None]), (floats, names), (list(floats.numpy()), labels)):
        assert model.evaluate(pair) == expected
    rows = TensorDataset(floats, labels)
    for other in (rows, DataLoader(rows, 50), DataLoader(TensorDataset(pixels, labels), 50)):
        assert model.evaluate(other) == expected
    for ready_made in ((images, targets), data.test_dataloader()):
        assert model.evaluate(ready_made, normalized=True) == expected
        with raises("invalid", "normalized=True"):
            model.evaluate(ready_made)
    for wrong, code, value in (
        ((pixels, labels + 1), "unknown", "unknown label 10"),
        ((pixels, ["cat"] * len(labels)), "unknown", "'cat'"),
        (DataLoader(TensorDataset(pixels, labels - 1)), "unknown", "-1"),
        ((pixels, nn.functional.one_hot(labels)), "unknown", "unknown label [0"),
        ((pixels, labels[:9]), "mismatch", "9 targets"),
        (TensorDataset(pixels), "invalid", "(input, target)"),
    ):
        with raises(code, value):
            model.evaluate(wrong)
    with raises("conflict", "normalized=True"):
        model.evaluate(data, normalized=True)


def test_all_images_of_other_data_without_splits_are_evaluated(model, tmp_path):
    bunch = load_digits()
    images, labels = np.rint(bunch.images[:90] * (255 / 16)).astype(np.uint8), bunch.target[:90]
    np.savez(tmp_path / "x.npz", train_images=images, train_labels=labels)
    expected = model.evaluate((images, labels))
    for split in ("test", "val"):
        assert model.evaluate(f"npz(path={tmp_path}/x.npz, test=0.1)", split) == pytest.approx(expected)


def test_evaluation_on_texts(text_model):
    model, texts, labels = text_model
    right = sum(row["label"] == label for row, label in zip(model.predict(texts), labels, strict=True))
    for data in ((texts, labels), DataLoader(list(zip(texts, labels, strict=True)), 7)):
        assert model.evaluate(data)["accuracy"] == pytest.approx(right / len(texts))
    frame = pytest.importorskip("pandas").DataFrame({"label": labels, "text": texts})
    assert model.evaluate((frame, frame["label"]))["accuracy"] == pytest.approx(right / len(texts))


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_evaluation_on_vectors_in_their_own_units(tmp_path, kind):
    x = 100 + 20 * np.random.RandomState(0).randn(60, 3)
    y = 50 + x[:, 0] if kind == "regression" else 3 + 2 * (x[:, 0] > 100)  # the classes 3 and 5
    zoo.fit(backbone="mlp(dim=8)", algebra="real", data=(x, y), run_dir=str(tmp_path / "run"), trainer=TRAINER)
    model = zoo.load(tmp_path / "run")
    rows, metrics = model.predict(x), model.evaluate((x, y))
    if kind == "regression":
        errors = [row["output"][0] - value for row, value in zip(rows, y, strict=True)]
        assert metrics["mse"] == pytest.approx(np.square(errors).mean())
        assert model.evaluate(TensorDataset(torch.tensor(x), torch.tensor(y))) == pytest.approx(metrics)
        with raises("mismatch", "size 3"):
            model.evaluate((x, x))
        with raises("invalid", "predicts numbers"):
            model.evaluate((x, ["many"] * 60))
    else:
        right = [row["label"] == str(label) for row, label in zip(rows, y, strict=True)]
        assert metrics["accuracy"] == pytest.approx(np.mean(right))
        assert model.evaluate(TensorDataset(torch.tensor(x), torch.tensor(y == 5).long())) == pytest.approx(metrics)
        with raises("unknown", "unknown label 0"):
            model.evaluate((x, 0 * y))


def test_missing_numbers_of_arrays_are_their_mean(tmp_path):
    x = np.random.RandomState(0).randn(60, 3)
    x[::7, 1] = np.nan
    zoo.fit(backbone="linear", algebra="real", data=(x, x[:, 0]), run_dir=str(tmp_path / "run"), trainer=TRAINER)
    model = zoo.load(tmp_path / "run")
    rows, filled = model.predict(x), model.predict(np.where(np.isnan(x), model.info.mean, x))
    assert [row["output"] for row in rows] == [row["output"] for row in filled]
    assert rows[0]["input"] == [x[0, 0], None, x[0, 2]]


def test_targets_far_from_zero_keep_their_digits(tmp_path):
    x = np.random.RandomState(0).randn(60, 3)
    options = {"backbone": "linear", "algebra": "real", "trainer": TRAINER}
    models = []
    for name, offset in (("near", 0.0), ("far", 2.0**31)):
        zoo.fit(data=(x, x[:, 0] + offset), run_dir=str(tmp_path / name), **options)
        models.append(zoo.load(tmp_path / name))
    near, far = (np.array([row["output"][0] for row in model.predict(x)]) for model in models)
    assert far - 2.0**31 == pytest.approx(near, abs=1e-4)
    assert models[1].evaluate((x, x[:, 0] + 2.0**31))["loss"] == pytest.approx(
        models[0].evaluate((x, x[:, 0]))["loss"], rel=1e-4
    )


# --- saving ---


def test_a_model_is_saved_with_info_metrics_and_config(model, tmp_path):
    assert zoo.save(model, tmp_path / "saved") == tmp_path / "saved"
    loaded = zoo.load(tmp_path / "saved")
    images = torch.randn(4, 1, 8, 8)
    assert torch.equal(loaded.net(images), model.net(images))
    assert (loaded.info, loaded.metrics) == (model.info, model.metrics)
    assert loaded.config == model.config
    zoo.save(model, tmp_path / "saved", metrics={"accuracy": 0.5})
    assert zoo.load(tmp_path / "saved").metrics == {"accuracy": 0.5}


def test_a_timm_model_is_saved_with_its_spec(tmp_path):
    sizes = {"in_channels": 3, "image_size": 32, "num_classes": 5}
    net = zoo.backbone("timm/resnet18", "quaternion", **sizes).eval()
    with torch.no_grad():
        for value in net.state_dict().values():
            value.add_(1) if value.dtype == torch.int64 else value.mul_(1.25)
    zoo.save(net, tmp_path / "resnet", backbone="timm/resnet18", algebra="quaternion", **sizes)
    loaded = zoo.load(tmp_path / "resnet")
    assert all(torch.equal(value, loaded.net.state_dict()[name]) for name, value in net.state_dict().items())
    assert (loaded.task, loaded.info) == (None, None)
    with raises("invalid", "no task"):
        loaded.predict(torch.zeros(1, 3, 32, 32))
    with raises("invalid", "octonion", "'layer1"):
        zoo.save(net, tmp_path / "other", backbone="timm/resnet18", algebra="octonion", **sizes)
    with raises("missing", "algebra=SPEC"):
        zoo.save(net, tmp_path / "other", backbone="timm/resnet18", **sizes)
    assert not (tmp_path / "other").exists()


class Net(nn.Module):
    """A network with attention, a grouped convolution, tied weights and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        self.conv = nn.Conv1d(16, 16, 3, padding=1, groups=2)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm = nn.BatchNorm1d(16)
        self.out = nn.Linear(16, 11, bias=False)
        self.out.weight = self.embed.weight
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.conv(self.embed(tokens).transpose(1, 2))
        x = self.norm(x).transpose(1, 2)
        return self.out(self.mlp(self.attention(x, x, x, need_weights=False)[0]))


@pytest.mark.parametrize(("algebra", "weights"), [("quaternion", "fresh"), ("phm(n=2,shared=true)", "project")])
def test_a_converted_network_is_loaded_bit_for_bit(tmp_path, algebra, weights):
    torch.manual_seed(0)
    net = zoo.convert(Net(), algebra, weights=weights, skip=["mlp.2"])
    net(torch.randint(11, (4, 6)))  # statistics of the batch norm
    zoo.save(net.eval(), tmp_path / "net", metrics={"loss": 1.5})
    torch.manual_seed(1)
    loaded = zoo.load(tmp_path / "net", module=Net())
    tokens = torch.randint(11, (2, 5))
    assert torch.equal(loaded.net(tokens), net(tokens))
    assert all(torch.equal(value, loaded.net.state_dict()[name]) for name, value in net.state_dict().items())
    assert loaded.net.conversion.converted == net.conversion.converted
    assert loaded.metrics == {"loss": 1.5}
    assert "module=" in (tmp_path / "net" / "README.md").read_text()
    with raises("invalid", "Net", "module="):
        zoo.load(tmp_path / "net")
    with raises("invalid", "'attention'"):
        zoo.load(tmp_path / "net", module=nn.Sequential(nn.Linear(16, 16)))
    wider = Net()
    wider.mlp = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))
    with raises("invalid", "mlp.0.bias"):
        zoo.load(tmp_path / "net", module=wider)


@pytest.mark.parametrize("spec", ["quaternion", "real", "phm-4"])
def test_a_network_without_a_spec_is_loaded_into_one_that_is_converted_already(tmp_path, spec):
    """A network of `zoo.backbone` has no real network; over another algebra the same shapes compute other numbers."""
    sizes = {"in_channels": 1, "image_size": 8, "num_classes": 10}
    options = {"data": "digits", "trainer": {"max_epochs": 1, "limit_train_batches": 1, "accelerator": "cpu"}}
    net, other = (zoo.backbone("vit(dim=16, depth=1)", spec, **sizes) for _ in range(2))
    zoo.fit(backbone=net, run_dir=str(tmp_path / "run"), **options)
    loaded, x = zoo.load(tmp_path / "run", module=other).net, torch.randn(2, 1, 8, 8)
    assert torch.equal(loaded(x), net.eval()(x))
    wrong = zoo.backbone("vit(dim=16, depth=1)", "clifford(p=2, q=0)", **sizes)
    if spec == "quaternion":
        with raises("mismatch", "clifford(p=2, q=0)", "quaternion"):
            zoo.load(tmp_path / "run", module=wrong)


def test_a_converted_network_with_a_new_head_is_saved(tmp_path):
    def build(classes):
        return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, classes))

    net = zoo.convert(build(8), "quaternion")
    net[2] = nn.Linear(16, 3)
    zoo.save(net, tmp_path / "net")
    loaded, x = zoo.load(tmp_path / "net", module=build(3)).net, torch.randn(3, 16)
    assert torch.equal(loaded(x), net(x))
    net[0] = nn.Linear(16, 16)
    with raises("invalid", "Sequential", "convert it"):
        zoo.save(net, tmp_path / "real")


def test_a_layout_of_the_user_is_stored(tmp_path):
    layout = {"0": MatrixLayout("ffn", (1, 2)), "2": MatrixLayout("ffn", (2, 1))}
    real = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
    net = zoo.convert(deepcopy(real), "quaternion", layout=lambda name, _: layout[name])
    zoo.save(net, tmp_path / "net")
    loaded = zoo.load(tmp_path / "net", module=deepcopy(real)).net
    x = torch.randn(3, 16)
    assert torch.equal(loaded(x), net(x))
    assert not torch.allclose(zoo.convert(deepcopy(real), "quaternion")(x), net(x))
    file = tmp_path / "net" / "config.json"
    file.write_text(file.read_text().replace("1x2", "two"))
    seal(tmp_path / "net")
    with raises("corrupt", "'two'", "'1x4'"):
        zoo.load(tmp_path / "net", module=deepcopy(real))


def test_a_network_over_an_algebra_without_a_spec(tmp_path):
    product = zoo.Algebra(zoo.algebra("quaternion").structure)
    net = zoo.convert(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), product)
    zoo.save(net, tmp_path / "net")
    real = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    loaded = zoo.load(tmp_path / "net", module=real, algebra=zoo.Algebra(product.structure))
    assert torch.equal(loaded.net(torch.ones(8)), net(torch.ones(8)))
    with raises("invalid", "algebra="):
        zoo.load(tmp_path / "net", module=real)
    with raises("invalid", "algebra"):
        zoo.load(tmp_path / "net", module=real, algebra=zoo.algebra("clifford(p=1,q=1)"))


def test_errors_of_save(tmp_path, model):
    with raises("invalid", "Linear", "zoo.convert"):
        zoo.save(nn.Linear(2, 2), tmp_path / "net")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letters.txt").write_text("dear")
    with raises("invalid", tmp_path / "mine"):
        zoo.save(model, tmp_path / "mine")
    zoo.save(model, tmp_path / "net")
    with raises("invalid", "vit", "module"):
        zoo.load(tmp_path / "net", module=Net())


@pytest.mark.parametrize(("positions", "any_length"), [("none", True), ("trigonometric", True), ("learned", False)])
def test_the_maximum_length_of_a_network_without_max_length(positions, any_length):
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), PositionEmbedding(positions, 4, 9))
    assert _reads_any_length(net) == any_length
    assert not _reads_any_length(net[0])
