"""A trained model as an object: inputs of all kinds, one path of prediction, devices, measuring, saving."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import zoo
from tests.errors import raises
from zoo.cli import main
from zoo.data.images.files import digits
from zoo.data.images.preprocess import preprocess
from zoo.errors import InputError
from zoo.inference.model import _reads_any_length, choose_device
from zoo.layers import PositionEmbedding

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
    """A folder of images, one of them in a folder of its own, and a file that is none."""
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "inner").mkdir()
    for number, name in enumerate(["b.png", "a.png", "inner/c.tif"]):
        pixels = np.random.RandomState(number).randint(0, 256, (8, 8)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / name)
    (folder / "notes.txt").write_text("no picture")
    return folder


# --- what a model is ---


def test_a_model_knows_its_parts(model, run):
    assert isinstance(model.net, nn.Module)
    assert model.task.net is model.net
    assert (model.info.image_size, model.tokenizer, model.device) == (8, None, torch.device("cpu"))
    assert model.config["backbone"] == "vit(depth=1, dim=32)"
    assert set(model.metrics) == {"loss", "accuracy", "f1"}
    assert not model.net.training
    assert "quaternion" in repr(model)
    assert repr(model).startswith("zoo.Model(")


# --- predictions ---


def test_every_kind_of_image_is_the_same_image(model, pictures):
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
def test_pixels_in_any_layout_are_the_same_images(model, kind):
    pixels = np.random.RandomState(0).randint(0, 256, (5, 8, 8)).astype(np.uint8)
    expected = model.predict([Image.fromarray(image) for image in pixels])
    for layout in (pixels, pixels[:, None], pixels[..., None]):
        assert model.predict(kind(layout)) == expected
    for layout in (pixels[0], pixels[0][None], pixels[0][..., None], pixels[:1, None]):
        assert model.predict(kind(layout)) == expected[:1]
    coloured = np.stack([pixels[0]] * 3)
    for layout in (coloured.transpose(1, 2, 0), coloured[None], coloured.transpose(1, 2, 0)[None]):
        assert model.predict(kind(layout)) == expected[:1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normalized_arrays_are_predicted_as_normalized_tensors(model, dtype):
    images = torch.randn(5, 1, 8, 8)
    expected, arrays = model.predict(images, normalized=True), images.numpy().astype(dtype)
    for given in (arrays, torch.from_numpy(arrays), arrays[:, 0], arrays.transpose(0, 2, 3, 1), list(arrays[:, 0])):
        assert model.predict(given, normalized=True) == expected


def test_predictions_are_those_of_the_network(model):
    images = torch.randn(5, 1, 8, 8)
    with torch.no_grad():
        expected = model.net(images).softmax(-1)
    for batch_size in (1, 2, 64):
        rows = model.predict(images, batch_size=batch_size, normalized=True)
        assert [row["label"] for row in rows] == [model.info.classes[i] for i in expected.argmax(-1)]
        assert [row["probability"] for row in rows] == pytest.approx(expected.amax(-1).tolist(), abs=2e-6)


def labelled(count=100):
    from sklearn.datasets import load_digits

    data = load_digits()
    return torch.tensor((data.images[:count] * 15.9).astype("uint8"))[:, None], torch.tensor(data.target[:count])


def test_floats_from_0_to_1_are_pictures():
    model = zoo.load("vit-digits-quaternion")
    pixels, labels = labelled()
    images = [Image.fromarray(image[0].numpy()) for image in pixels]
    expected = model.predict(images)
    assert model.predict(pixels.float() / 255) == expected
    accuracy = sum(int(row["label"]) == label for row, label in zip(expected, labels.tolist(), strict=True)) / len(labels)
    for array in (pixels, pixels.float() / 255, pixels.numpy() / 255):
        assert model.evaluate((array, labels))["accuracy"] == pytest.approx(accuracy)
    named = [str(label) for label in labels.tolist()]
    assert model.evaluate((images, named))["accuracy"] == pytest.approx(accuracy)
    for array in (pixels, pixels.float() / 255):
        loader = DataLoader(TensorDataset(array, labels), 32)
        assert model.evaluate(loader)["accuracy"] == pytest.approx(accuracy)
    ready = torch.stack([preprocess(image, model.info) for image in images])
    for data in ((ready, labels), DataLoader(TensorDataset(ready, labels), 32)):
        assert model.evaluate(data, normalized=True)["accuracy"] == pytest.approx(accuracy)
        with raises("invalid", "normalized=True"):
            model.evaluate(data)


def test_texts_and_their_labels_are_evaluated(place_of_texts):
    model, texts, labels = place_of_texts
    rows = model.predict(texts)
    right = sum(row["label"] == label for row, label in zip(rows, labels, strict=True))
    assert model.evaluate((texts, labels))["accuracy"] == pytest.approx(right / len(texts))
    with raises("unknown", "maybe"):
        model.evaluate((texts, ["maybe"] * len(texts)))
    with raises("mismatch", len(texts), 1):
        model.evaluate((texts, labels[:1]))


@pytest.fixture
def place_of_texts(corpus, tmp_path):
    file = corpus(tmp_path / "text.tsv", "text")
    options = {"run_dir": str(tmp_path / "run"), "trainer": TRAINER}
    zoo.fit(backbone="fasttext(dim=8,hidden=8)", algebra="real", data=f"text(path='{file}')", **options)
    texts, labels = zip(*(line.split("\t") for line in file.read_text().splitlines()[1:]), strict=True)
    return zoo.load(tmp_path / "run"), list(texts), list(labels)


def test_the_most_probable_labels(model, pictures):
    (best,) = model.predict(pictures / "a.png")
    (row,) = model.predict(pictures / "a.png", top=3)
    assert row["top"][0] == {"label": best["label"], "probability": best["probability"]}
    assert [entry["probability"] for entry in row["top"]] == sorted((e["probability"] for e in row["top"]), reverse=True)
    assert len(model.predict(pictures / "a.png", top=99)[0]["top"]) == len(model.info.classes)
    with raises("invalid", "top=0"):
        model.predict(pictures, top=0)


def test_unreadable_images_are_skipped_where_their_errors_are_wanted(model, pictures):
    expected = model.predict(pictures)
    (pictures / "aa.png").write_bytes(b"nothing")
    errors = []
    assert list(model.predict_iter([pictures, pictures / "none.png"], on_error=errors.append)) == expected
    assert ["aa.png" in str(errors[0]), "none.png" in str(errors[1]), len(errors)] == [True, True, 2]
    (pictures / "aa.png").unlink()


def test_a_folder_is_its_images_in_order(model, pictures):
    assert [Path(row["file"]).name for row in model.predict(pictures)] == ["a.png", "b.png", "c.tif"]
    assert model.predict([pictures, pictures / "a.png"])[:3] == model.predict(pictures)


def test_a_folder_of_texts_is_its_files_in_order(corpus, tmp_path):
    data = f"text(path='{corpus(tmp_path / 'text.tsv', 'text')}')"
    zoo.fit(backbone="fasttext(dim=8,hidden=8)", algebra="real", data=data, run_dir=str(tmp_path / "run"), trainer=TRAINER)
    model = zoo.load(tmp_path / "run")
    (tmp_path / "texts").mkdir()
    for name, text in (("b.txt", "a bad film\n"), ("a.txt", "a film\nthe plot\n")):
        (tmp_path / "texts" / name).write_text(text)
    assert [row["text"] for row in model.predict(tmp_path / "texts")] == ["a film", "the plot", "a bad film"]
    assert model.predict(str(tmp_path / "texts")) == model.predict(["a film", "the plot", "a bad film"])


def test_vectors_are_predicted_from_python(tmp_path):
    zoo.fit(backbone="linear", algebra="quaternion", data="hamilton(rows=200)", run_dir=str(tmp_path / "run"), trainer=TRAINER)
    model = zoo.load(tmp_path / "run")
    x = torch.randn(3, model.info.in_features)
    for given in (x, x.numpy(), list(x)):
        found = torch.tensor([row["output"] for row in model.predict(given)])
        torch.testing.assert_close(found, model.net(x).detach())
    with pytest.raises(InputError, match="input 0 holds numbers that are not finite"):
        model.predict(x * torch.nan)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda model: model.predict("x.png", batch_size=0), "batch_size=0: use a whole number from 1"),
        (lambda model: model.predict("x.png", beam=2), "generates no text: leave beam out"),
        (lambda model: model.generate("a text"), "generates no text: use zoo predict"),
        (lambda model: model.predict(3), "image 0 is a int"),
        (lambda model: model.predict(torch.zeros(2, 5, 8, 8)), "image 0 is a Tensor"),
        (lambda model: model.predict(np.zeros((3, 8, 8), np.uint8)), "may be one in colour or 3 in grey: give [1, 3, 8, 8] or"),
        (lambda model: model.predict(np.zeros((8, 8), np.int64)), "image 0 is a ndarray of int64 [8, 8]: give a file"),
        (lambda model: model.predict(np.array([["a"]])), "image 0 is a ndarray of <U1 [1, 1]: give a file"),
        (lambda model: model.predict(np.zeros((1, 9, 8), np.float32)), "image 0 is a ndarray of float32 [1, 9, 8]"),
        (lambda model: model.predict(np.full((2, 1, 8, 8), np.nan)), "image 0 has values that are not finite"),
        (lambda model: model.predict([torch.ones(1, 8, 8), torch.full((1, 8, 8), torch.inf)]), "image 1 has values"),
        (lambda model: model.predict(torch.full((1, 1, 8, 8), 1.5)), "image 0: values from 1.5 to 1.5"),
        (lambda model: model.evaluate(3), "data=3: give a spec, a data module, data loaders or (inputs, labels)"),
        (lambda model: zoo.load(""), "the path of the model is empty: use a run"),
        (lambda model: zoo.load("x", task=3), "task=3: give the spec of a task or a subclass of zoo.tasks.Task"),
        (lambda model: model.evaluate(split="train"), "split='train': use val or test"),
        (lambda model: model.evaluate("digits(size=16)"), "image_size = 16, the model was trained with 8"),
        (lambda model: model.to("nowhere"), "unknown device 'nowhere'"),
        (lambda model: model.to("cuda:99"), "there is no device 'cuda:99' here"),
        (lambda model: zoo.save(model, ".", backbone="vit"), "knows its specs"),
    ],
)
def test_what_is_refused(model, call, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as error:
        call(model)
    assert said in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def longest_walk(words: list[str], forward: str) -> int:
    """Count the frames of the zoo on the stack when a network's forward is entered: the calls that lead there."""
    found: list[int] = []

    def profile(frame, event, argument) -> None:
        if event == "call" and frame.f_code.co_name == "forward" and forward in frame.f_code.co_filename:
            if found:
                return
            calls, here = 0, frame
            while here is not None:
                calls += f"{zoo.__path__[0]}/" in here.f_code.co_filename
                here = here.f_back
            found.append(calls)

    sys.setprofile(profile)
    try:
        assert main(words) == 0
    finally:
        sys.setprofile(None)
    return found[0]


def test_the_walk_from_the_command_to_the_network_is_short(run, pictures, capsys):
    """The last call is the network's own forward, which is torch's or timm's or ours."""
    assert longest_walk(["predict", str(run), str(pictures / "a.png")], "vision_transformer") <= MOST_CALLS
    assert capsys.readouterr().out.startswith(str(pictures / "a.png"))


# --- devices ---


def test_the_best_device_that_is_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto").type == "cuda"
    assert choose_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(InputError, match="there is no device 'cuda:2' here: use auto, cpu, cuda"):
        choose_device("cuda:2")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_model_computes_where_it_is(run):
    images = torch.randn(5, 1, 8, 8)
    there, here = zoo.load(run, device="cuda"), zoo.load(run)
    assert there.device.type == "cuda"
    assert [row["label"] for row in there.predict(images)] == [row["label"] for row in here.predict(images)]
    assert there.evaluate() == pytest.approx(here.evaluate(), abs=1e-3)
    assert there.device.type == "cuda"


# --- measuring ---


def test_measuring_repeats_the_run(model):
    assert model.evaluate() == pytest.approx(model.metrics, abs=1e-6)
    assert model.evaluate(batch_size=7) == pytest.approx(model.metrics, abs=1e-5)
    assert not model.net.training
    assert all(parameter.requires_grad for parameter in model.net.parameters())


def test_other_data_as_a_spec_a_module_or_loaders(model):
    data = digits(batch_size=16)
    data.prepare_data()
    data.setup()
    expected = model.evaluate("digits", "val")
    assert model.evaluate(digits(batch_size=16), "val") == pytest.approx(expected, abs=1e-6)
    assert model.evaluate(data.val_dataloader(), "val", normalized=True) == pytest.approx(expected, abs=1e-6)
    rows = [(torch.zeros(1, 8, 8), 3), (torch.ones(1, 8, 8), 4)]
    assert set(model.evaluate(DataLoader(rows, batch_size=2), "val")) == set(expected)


# --- saving ---


def test_a_model_is_saved_with_all_that_belongs_to_it(model, tmp_path):
    assert zoo.save(model, tmp_path / "again") == tmp_path / "again"
    again = zoo.load(tmp_path / "again")
    images = torch.randn(4, 1, 8, 8)
    assert torch.equal(again.net(images), model.net(images))
    assert (again.info, again.metrics) == (model.info, model.metrics)
    assert again.config == model.config
    zoo.save(model, tmp_path / "again", metrics={"accuracy": 0.5})
    assert zoo.load(tmp_path / "again").metrics == {"accuracy": 0.5}


def test_a_timm_model_is_saved_by_its_spec(tmp_path):
    sizes = {"in_channels": 3, "image_size": 32, "num_classes": 5}
    net = zoo.backbone("timm/resnet18", "quaternion", **sizes).eval()
    with torch.no_grad():
        for value in net.state_dict().values():
            value.add_(1) if value.dtype == torch.int64 else value.mul_(1.25)
    zoo.save(net, tmp_path / "resnet", backbone="timm/resnet18", algebra="quaternion", **sizes)
    again = zoo.load(tmp_path / "resnet")
    assert all(torch.equal(value, again.net.state_dict()[name]) for name, value in net.state_dict().items())
    assert (again.task, again.info) == (None, None)
    with pytest.raises(InputError, match="a network alone"):
        again.predict(torch.zeros(1, 3, 32, 32))
    with pytest.raises(InputError, match=r"is another network: '.*' differs"):
        zoo.save(net, tmp_path / "other", backbone="timm/resnet18", algebra="octonion", **sizes)
    with pytest.raises(InputError, match="which algebra"):
        zoo.save(net, tmp_path / "other", backbone="timm/resnet18", **sizes)
    assert not (tmp_path / "other").exists()


class Net(nn.Module):
    """Somebody's network: attention, a grouped convolution, tied weights, a buffer."""

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


@pytest.mark.parametrize("algebra", ["quaternion", "phm-4", "phm(n=2,shared=true)"])
@pytest.mark.parametrize("weights", ["fresh", "project"])
def test_any_converted_network_comes_back_bit_for_bit(tmp_path, algebra, weights):
    torch.manual_seed(0)
    net = zoo.convert(Net(), algebra, weights=weights, skip=["mlp.2"])
    net(torch.randint(11, (4, 6)))  # statistics of the batch norm
    zoo.save(net.eval(), tmp_path / "net", metrics={"loss": 1.5})
    torch.manual_seed(1)
    again = zoo.load(tmp_path / "net", module=Net())
    tokens = torch.randint(11, (2, 5))
    assert torch.equal(again.net(tokens), net(tokens))
    assert all(torch.equal(value, again.net.state_dict()[name]) for name, value in net.state_dict().items())
    assert again.net.conversion.converted == net.conversion.converted
    assert again.metrics == {"loss": 1.5}
    assert "module=" in (tmp_path / "net" / "README.md").read_text()
    with pytest.raises(InputError, match=r"contains a .*Net, which has no spec: use zoo\.load\(FOLDER, module=A_Net"):
        zoo.load(tmp_path / "net")
    with pytest.raises(InputError, match="the module has no 'attention'"):
        zoo.load(tmp_path / "net", module=nn.Sequential(nn.Linear(16, 16)))
    wider = Net()
    wider.mlp = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))
    with pytest.raises(InputError, match="do not fit the module"):
        zoo.load(tmp_path / "net", module=wider)


def test_a_network_over_an_algebra_without_a_spec(tmp_path):
    product = zoo.Algebra(zoo.algebra("quaternion").structure)
    net = zoo.convert(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), product)
    zoo.save(net, tmp_path / "net")
    real = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    again = zoo.load(tmp_path / "net", module=real, algebra=zoo.Algebra(product.structure))
    assert torch.equal(again.net(torch.ones(8)), net(torch.ones(8)))
    with pytest.raises(InputError, match="has no spec"):
        zoo.load(tmp_path / "net", module=real)
    with pytest.raises(InputError, match="not the algebra that the model was trained over"):
        zoo.load(tmp_path / "net", module=real, algebra=zoo.algebra("clifford(p=1,q=1)"))


def test_what_cannot_be_saved(tmp_path, model):
    with pytest.raises(InputError, match=r"this Linear was not made by zoo\.backbone or zoo\.convert"):
        zoo.save(nn.Linear(2, 2), tmp_path / "net")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letters.txt").write_text("dear")
    with pytest.raises(InputError, match="is not empty and no model folder"):
        zoo.save(model, tmp_path / "mine")
    with pytest.raises(InputError, match="the model has a spec"):
        zoo.save(model, tmp_path / "net") and zoo.load(tmp_path / "net", module=Net())


@pytest.mark.parametrize(("positions", "any_length"), [("none", True), ("trigonometric", True), ("learned", False)])
def test_positions_of_a_network_that_names_no_length_are_found(positions, any_length):
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), PositionEmbedding(positions, 4, 9))
    assert _reads_any_length(net) == any_length
    assert not _reads_any_length(net[0])
