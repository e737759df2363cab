"""Tables of numbers and categories, and samples of linear maps."""

import csv

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine
from zoo_datasets.vectors import hamilton, rotation
from zoo_datasets.vectors import linear_map as unopened_linear_map

import zoo
from tests.errors import raises
from zoo.cli import main
from zoo.data import ready
from zoo.data.columns import encode_row, read_rows
from zoo.data.tabular import from_arrays, table
from zoo.training.folder import read_run_config, run_name

COLOURS = ("red", "white")


@pytest.fixture(scope="module")
def wine(tmp_path_factory):
    """Write scikit-learn's wine measurements with a text column and class names."""
    bunch = load_wine()
    path = tmp_path_factory.mktemp("wine") / "wine.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*bunch.feature_names, "color", "quality"])
        for i, (row, label) in enumerate(zip(bunch.data, bunch.target, strict=True)):
            writer.writerow([*row, COLOURS[i % 2], ("low", "mid", "high")[label]])
    return path


def write(path, header, *rows):
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_features_are_standardized_numbers_and_one_hot_categories(wine):
    data = ready(table(wine, "quality"))
    info, (x, y) = data.info, data.splits["train"]
    assert data.task == "vector_classification"
    assert info.sizes == {"train": 144, "val": 16, "test": 18}
    assert data.split_note == "144 train, 16 val, 18 test rows (test and val held out of train)"
    assert (info.classes, info.columns[-2:], info.values[-3:]) == (("high", "low", "mid"), ("color",) * 2, (None, *COLOURS))
    assert x.shape == (144, 15)
    torch.testing.assert_close(x[:, :13].mean(0), torch.zeros(13), atol=1e-5, rtol=0)
    torch.testing.assert_close(x[:, :13].std(0, correction=0), torch.ones(13))
    assert torch.equal(x[:, 13:].sum(1), torch.ones(144))
    assert y.bincount().tolist() == [39, 48, 57]
    assert [ready(table(wine, "quality", seed=s)).info.sha256 for s in (0, 1)] == [info.sha256] * 2
    rows = torch.stack([features for _, features in read_rows(wine, info)])
    assert torch.equal(rows.sort(0).values, torch.cat([part for part, _ in data.splits.values()]).sort(0).values), (
        "one encoding"
    )


@pytest.mark.parametrize(
    ("values", "kind", "task"),
    [
        (["1.5", "2"], "auto", "regression"),
        (["1", "2"], "auto", "vector_classification"),
        (["1", "2"], "regression", "regression"),
        (["1.5", "2"], "classification", "vector_classification"),
        (["yes", "no"], "auto", "vector_classification"),
        ([str(i) for i in range(21)], "auto", "regression"),
    ],
)
def test_task_depends_on_the_target(tmp_path, values, kind, task):
    path = write(tmp_path / "x.csv", "a,b", *(f"{i},{values[i % len(values)]}" for i in range(84)))
    assert ready(table(path, "b", kind=kind)).task == task


def test_numeric_target_is_standardized(tmp_path):
    path = write(tmp_path / "x.csv", "a,b", *(f"{i},{100 + i / 3}" for i in range(90)))
    data = ready(table(path, "b"))
    y, info = torch.cat([y for _, y in data.splits.values()]), data.info
    assert sorted((y * info.target_std + info.target_mean).flatten().tolist()) == pytest.approx(
        [100 + i / 3 for i in range(90)]
    )
    assert abs(data.splits["train"][1].mean()) < 1e-6


def test_missing_and_unknown_cells(tmp_path):
    rows = [f"{i},{'xy'[i % 2]},{'pq'[i % 2]}" for i in range(40)]
    path = write(tmp_path / "train.csv", "a,b,c", *rows, ",NA,p", "?,,q")
    data = ready(table(path, "c"))
    info = data.info
    assert encode_row(info, {"a": None, "b": "z"}).tolist() == [0, 0, 0]
    assert encode_row(info, {"a": info.mean[0], "b": "y"}).tolist() == [0, 0, 1]
    with raises("data", "column 'a'", "many"):
        encode_row(info, {"a": "many", "b": "x"})


def test_categories_and_drop(tmp_path):
    path = write(tmp_path / "x.csv", "id,zip,y", *(f"{i},{i % 3},{i % 2}" for i in range(60)))
    info = ready(table(path, "y", categories="zip", drop="id")).info
    assert (info.columns, info.values) == (("zip",) * 3, ("0", "1", "2"))


def test_broken_rows_raise_or_are_skipped(tmp_path):
    rows = [f"{i},{i % 2}" for i in range(60)]
    rows[4], rows[7], rows[9] = "many,1", "1,2,3", "5,"
    path = write(tmp_path / "x.csv", "a,y", *rows)
    with raises("data", f"{path}:9", "3 broken rows", "6", "11"):
        ready(table(path, "y"))
    data = ready(table(path, "y", on_bad_rows="skip"))
    assert sum(data.info.sizes.values()) == 57
    assert data.split_note.endswith("; 3 broken rows skipped)")


def test_a_regression_on_text_names_its_text(wine):
    with raises("data", "column 'color' is numeric, but contains text or infinity"):
        ready(table(wine, "color", kind="regression"))


@pytest.mark.parametrize(
    ("options", "code", "value"),
    [
        ({"target": "colr"}, "missing", "colr"),
        ({"target": "quality", "drop": "colr"}, "missing", "colr"),
        ({"target": "quality", "categories": "alcohol"}, "data", "alcohol"),
        ({"target": "quality", "kind": "ranking"}, "invalid", "ranking"),
    ],
)
def test_invalid_options_raise(wine, options, code, value):
    with raises(code, value):
        ready(table(wine, **options))


@pytest.mark.parametrize("target", ["quality", "hue"])
def test_fit_and_predict(wine, tmp_path, target, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["fit", "--backbone", "mlp(dim=16)", "--algebra", "quaternion", "--data", f"table(path={wine}, target={target})"]
    assert main([*words, "--run-dir", "run", "--trainer.max_epochs", "15", "--trainer.accelerator", "cpu"]) == 0
    assert main(["predict", "run", str(wine)]) == 0
    model = zoo.load("run")
    predictions = model.predict(str(wine))
    with wine.open() as file:
        truth = [row[target] for row in csv.DictReader(file)]
    if target == "quality":
        assert np.mean([row["label"] == label for row, label in zip(predictions, truth, strict=True)]) > 0.9
    else:
        error = np.array([row["output"][0] for row in predictions]) - np.array(truth, float)
        assert np.mean(error**2) < 0.7 * np.var(np.array(truth, float))
        assert model.metrics["mse"] < 2 * np.var(np.array(truth, float)), "in the units of the target"


def test_evaluation_uses_the_statistics_of_the_training_rows(wine, tmp_path):
    zoo.fit(
        backbone="mlp(dim=16)",
        algebra="real",
        data=f"table(path={wine}, target=quality)",
        trainer={"max_epochs": 10, "accelerator": "cpu"},
        run_dir=str(tmp_path / "run"),
    )
    lines = wine.read_text().splitlines()
    other = write(tmp_path / "other.csv", lines[0], *lines[1:60], *lines[100:140], *lines[170:])
    model = zoo.load(tmp_path / "run")
    data = table(other, "quality", batch_size=8)
    measured = model.evaluate(data)
    x, y = data.splits["test"]
    rows = {tuple(v.tolist()): i for i, (_, v) in enumerate(read_rows(other, model.info))}
    labels = [model.predict(str(other))[rows[tuple(v.tolist())]]["label"] for v in x]
    assert measured["accuracy"] == pytest.approx(
        np.mean([model.info.classes[i] == label for i, label in zip(y, labels, strict=True)])
    )


def test_arrays_of_images_or_vectors():
    random = np.random.RandomState(0)
    pixels, labels = random.randint(0, 256, (40, 3, 6, 6)).astype(np.uint8), np.array(["cat", "dog"] * 20)
    images = [ready(from_arrays(x, labels)) for x in (pixels, torch.from_numpy(pixels / 255), pixels.transpose(0, 2, 3, 1))]
    assert {data.info.sha256 for data in images} == {images[0].info.sha256}
    assert (images[0].info.classes, images[0].info.sizes) == (("cat", "dog"), {"train": 32, "test": 4, "val": 4})
    rows = ready(from_arrays(random.randn(40, 3).tolist(), labels, batch_size=7))
    assert (rows.task, rows.info.classes, rows.batch_size) == ("vector_classification", ("cat", "dog"), 7)
    assert ready(from_arrays(torch.randn(40, 3), torch.randn(40, 1))).task == "regression"


def test_fit_on_arrays(tmp_path):
    x = np.random.RandomState(0).randn(60, 4)
    trainer = {"max_epochs": 1, "accelerator": "cpu"}
    options = {"backbone": "mlp(dim=8)", "algebra": "complex", "trainer": trainer, "run_dir": str(tmp_path / "run")}
    summary = zoo.fit(data=(x, x[:, 0]), batch_size=16, **options)
    assert run_name(read_run_config(tmp_path / "run")) == "mlp-dim8-complex-data-seed0"
    assert summary["task"] == "regression"


UNITS = "1ijk"
PRODUCTS = {"ij": (1, "k"), "jk": (1, "i"), "ki": (1, "j"), "ji": (-1, "k"), "kj": (-1, "i"), "ik": (-1, "j")}


def product(one, other):
    """Multiply two units by Hamilton's rules."""
    if "1" in (one, other):
        return 1, one if other == "1" else other
    return (-1, "1") if one == other else PRODUCTS[one + other]


def multiplied(w, x):
    """Multiply components [4, out, in] with x [N, 4, in], unit by unit."""
    y = torch.zeros(len(x), 4, w.shape[1], dtype=torch.float64)
    for i, one in enumerate(UNITS):
        for j, other in enumerate(UNITS):
            sign, unit = product(one, other)
            y[:, UNITS.index(unit)] += sign * x[:, j].double() @ w[i].double().T
    return y


def test_the_truth_of_rotation_is_a_rotation():
    matrix = ready(rotation()).truth
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(3))
    assert torch.linalg.det(matrix).item() == pytest.approx(1)
    assert torch.acos((matrix.trace() - 1) / 2).item() == pytest.approx(2.41, abs=5e-3)  # as documented


def test_rotated_points():
    data = ready(rotation())
    assert data.info.model_kwargs == {"in_features": 3, "out_features": 3}
    for x, y in data.splits.values():
        torch.testing.assert_close(y, x @ data.truth.T)
        torch.testing.assert_close(x.norm(dim=1), y.norm(dim=1))


@pytest.mark.parametrize("elements", [1, 5])
def test_hamilton_is_the_hamilton_product(elements):
    data = ready(hamilton(elements=elements, rows=50))
    w = data.truth[:, :elements].unflatten(0, (4, elements))
    for x, y in data.splits.values():
        expected = multiplied(w, x.unflatten(1, (4, elements))).flatten(1)
        torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)


def test_linear_map():
    data = ready(unopened_linear_map(features=32, rows=50))
    for x, y in data.splits.values():
        torch.testing.assert_close(y, x @ data.truth.T, rtol=1e-5, atol=1e-5)
    assert abs(32 * data.truth.var() - 1) < 0.1
