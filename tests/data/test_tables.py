"""Tables of numbers and categories, and samples of linear maps."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine
from zoo_datasets.vectors import hamilton, rotation
from zoo_datasets.vectors import linear_map as unopened_linear_map

import zoo
from tests.errors import raises
from zoo.checkpoint.run_config import read_run_config
from zoo.cli import main
from zoo.data import ready
from zoo.data.columns import encode_row, read_rows
from zoo.data.files import BadRows
from zoo.data.table import Table
from zoo.data.tabular import TableData, from_arrays, table
from zoo.data.text import TextData
from zoo.inference.inputs import read_vectors
from zoo.training.folder import run_name

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


def test_a_constant_column_is_not_divided_by_its_rounding_error(tmp_path):
    path = write(tmp_path / "x.csv", "a,b,y", *(f"{i},0.1,{'pq'[i % 2]}" for i in range(120)))
    info = ready(table(path, "y")).info
    assert (info.mean[1], info.std[1]) == (0.1, 1.0)


def test_infinite_numbers_of_arrays_are_broken(recwarn):
    x = np.random.RandomState(0).randn(60, 3)
    x[7:9, 1], x[9, 1] = np.inf, np.nan
    data = ready(from_arrays(x, np.arange(60) % 2))
    assert sum(data.info.sizes.values()) == 58
    assert data.split_note.endswith("; 2 broken rows skipped)")
    rows = [example.value for example in read_vectors([x], data.info)]
    assert [str(rows.pop(7)) for _ in range(2)] == ["row 7: expected finite numbers", "row 8: expected finite numbers"]
    assert not recwarn.list
    assert torch.equal(torch.stack(rows).sort(0).values, torch.cat([part for part, _ in data.splits.values()]).sort(0).values)


def test_arrays_are_standardized_in_double_precision():
    x = 1.7e9 + np.random.RandomState(0).randn(60, 2)
    data = ready(from_arrays(x, np.arange(60) % 2))
    features = torch.cat([part for part, _ in data.splits.values()]).sort(0).values
    for rows in (x, torch.tensor(x), list(x)):
        assert torch.equal(torch.stack([example.value for example in read_vectors([rows], data.info)]).sort(0).values, features)


def test_missing_and_unknown_cells(tmp_path):
    rows = [f"{i},{'xy'[i % 2]},{'pq'[i % 2]}" for i in range(40)]
    path = write(tmp_path / "train.csv", "a,b,c", *rows, ",NA,p", "?,,q")
    data = ready(table(path, "c"))
    info = data.info
    assert encode_row(info, {"a": None, "b": "z"}).tolist() == [0, 0, 0]
    assert encode_row(info, {"a": info.mean[0], "b": "y"}).tolist() == [0, 0, 1]
    with raises("data", "column 'a'", "many"):
        encode_row(info, {"a": "many", "b": "x"})


def semicolons(wine, path, delimiter=";", mark=","):
    """Write the wine measurements as a European spreadsheet does."""
    with wine.open() as file, path.open("w", newline="") as other:
        csv.writer(other, delimiter=delimiter).writerows(
            [cell.replace(".", mark) if i else cell for cell in row] for i, row in enumerate(csv.reader(file))
        )
    return path


@pytest.mark.parametrize(("delimiter", "mark"), [(";", ","), (";", "."), ("\t", "."), ("|", ".")])
def test_delimiters_and_decimal_commas_do_not_change_a_table(wine, tmp_path, delimiter, mark):
    other, expected = semicolons(wine, tmp_path / "x.csv", delimiter, mark), ready(table(wine, "quality")).info
    assert ready(table(other, "quality")).info == ready(table(other, "quality", delimiter=delimiter)).info == expected
    rows = zip(read_rows(wine, expected), read_rows(other, expected), strict=True)
    assert all(torch.equal(one, two) for (_, one), (_, two) in rows)
    with raises("missing", "'quality'", "check the delimiter"):
        ready(table(other, "quality", delimiter="#"))


@pytest.mark.parametrize("delimiter", [":", " ", "~"])
def test_rows_to_predict_may_have_the_delimiter_of_the_training(wine, tmp_path, delimiter):
    other = semicolons(wine, tmp_path / "x.csv", delimiter, ".")
    expected = ready(table(other, "quality", delimiter=delimiter)).info
    rows = zip(read_rows(other, expected), read_rows(wine, expected), strict=True)
    assert all(torch.equal(one, two) for (_, one), (_, two) in rows)


def noted(path, target="y", **options):
    data = ready(table(path, target, **options))
    return list(dict.fromkeys(data.info.columns)), data.notes


def test_columns_that_are_probably_not_meant_are_noted(tmp_path):
    rows = [f"{i},W{i},2024-02-{1 + i % 28:02},{i % 7}.5,{'ab'[i % 2]}" for i in range(1, 201)]
    path = write(tmp_path / "x.csv", "id,name,date,a,y", *rows)
    columns, (number, name, date) = noted(path)
    assert columns == ["id", "date", "a"]
    assert number == f"{path}: column 'id' numbers the rows, and is read as a feature; drop=id leaves it out"
    assert name == f"{path}: column 'name' has 200 different values, such as 'W1', 'W10', 'W100' ..., and is left out"
    assert date.startswith(f"{path}: column 'date' holds dates, such as '2024-02-01'")
    assert date.endswith("which are read as 28 categories; drop=date leaves it out")
    assert noted(path, drop="id,date,name") == (["a"], [])
    with raises("data", f"{path}: column 'name' has 200 different values", "at most 100"):
        ready(table(path, "y", categories="name"))
    with raises("data", "column 'name'", "at most 100"):
        ready(table(path, "name"))
    with raises("data", "no column is left", "'name'"):
        ready(table(path, "y", drop="id,date,a"))


def test_the_index_of_pandas_and_numbers_with_commas(tmp_path):
    rows = [f'{i},"1,{i % 5}",{"ab"[i % 2]}' for i in range(60)]
    path = write(tmp_path / "x.csv", ",a,y", *rows)
    columns, (index, comma) = noted(path)
    assert (columns, index) == (["a"] * 1, f"{path}: column '' numbers the rows, and is left out")
    assert "column 'a' holds numbers with a comma, such as '1,0'" in comma
    path = write(tmp_path / "x.csv", ",a,y", *(f"{3 * i},{i % 7},{'ab'[i % 2]}" for i in range(60)))  # of chosen rows
    assert noted(path) == (["a"], [f"{path}: column '' numbers the rows, and is left out"])
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(path, index_col=0)
    frame.to_parquet(path.with_suffix(".parquet"))
    assert noted(path.with_suffix(".parquet"))[0] == ["a"]


def test_a_numeric_column_with_many_words_is_not_left_out(tmp_path):
    path = write(tmp_path / "x.csv", "a,b,y", *(f"{i if i % 5 else f'n{i}'},{i % 3},{'ab'[i % 2]}" for i in range(200)))
    with raises("data", "column 'a'", "at most 100"):
        ready(table(path, "y"))


def test_categories_and_drop(tmp_path):
    path = write(tmp_path / "x.csv", "id,zip,y", *(f"{i},{i % 3},{i % 2}" for i in range(60)))
    info = ready(table(path, "y", categories="zip", drop="id")).info
    assert (info.columns, info.values) == (("zip",) * 3, ("0", "1", "2"))


def test_pandas_and_the_file_have_the_same_categories(tmp_path):
    pandas = pytest.importorskip("pandas")
    flags, codes = ["False", "True"], ["0", "1", "2"]
    rows = [f"{flags[i % 2]},{codes[i % 3] if i % 7 else ''},0{i % 4},{i % 5}_{i % 2},{'ab'[i % 2]}" for i in range(60)]
    path = write(tmp_path / "x.csv", "flag,code,zip,range,y", *rows)
    info = ready(table(path, "y", categories="code,zip")).info
    assert info.values[:9] == ("false", "true", "0", "1", "2", "00", "01", "02", "03")
    assert "1_0" in info.values, "is text, not the number 10"
    frame = pandas.read_csv(path)
    assert [frame[name].dtype.kind for name in ("flag", "code", "zip")] == ["b", "f", "i"]
    for (_, features), record in zip(read_rows(path, info), frame.to_dict("records"), strict=True):
        assert torch.equal(encode_row(info, record), features)


def test_a_class_that_is_a_word_among_numbers(tmp_path):
    path = write(tmp_path / "x.csv", "a,y", *(f"{i},{'other' if i % 20 == 0 else i % 12}" for i in range(200)))
    assert ready(table(path, "y")).info.classes == tuple(sorted([*map(str, range(12)), "other"]))


def test_broken_rows_raise_or_are_skipped(tmp_path):
    rows = [f"{i},{i % 2}" for i in range(60)]
    rows[4], rows[7], rows[9] = "many,1", "1,2,3", "5,"
    path = write(tmp_path / "x.csv", "a,y", *rows)
    with raises("data", f"{path}:9", "3 broken rows", "6", "11"):
        ready(table(path, "y"))
    data = ready(table(path, "y", on_bad_rows="skip"))
    assert sum(data.info.sizes.values()) == 57
    assert data.split_note.endswith("; 3 broken rows skipped)")


def test_one_table_feeds_text_tasks_and_tables():
    columns = {"text": ["good", "bad"] * 20, "stars": np.arange(40) % 5, "size": np.arange(40.0), "label": np.arange(40) % 2}
    rows = Table(columns, "reviews")
    data = ready(TableData({"train": rows, "test": rows.take([3, 1])}, "label", categories="stars"))
    assert data.info.classes == ("0", "1")
    assert data.info.columns == ("text",) * 2 + ("stars",) * 5 + ("size",)
    assert data.splits["test"][1].tolist() == [1, 1]
    columns["label"] = ["no", "yes"] * 20
    assert ready(TextData({"train": Table(columns)}, "text_classification")).info.classes == ("no", "yes")
    columns["size"] = [*range(39), "large"]
    with raises("data", "other, row 40: column 'size' is numeric"):
        bad = BadRows(Path("other"), "error")
        ready(TableData({"train": rows, "test": Table(columns, "other", bad=bad)}, "label"))


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


@pytest.mark.parametrize(
    ("name", "content", "code", "values"),
    [
        ("x.xlsx", "PK", "unsupported", ("x.xlsx", "unknown file format", ".csv")),
        ("x.json", "[]", "unsupported", ("x.json", "unknown file format")),
        ("x.jsonl", '\n[{"a": 1, "y": 2}]\n', "data", ("x.jsonl:2", "a JSON list", "one object per line")),
        ("x.jsonl", "", "missing", ("no column 'y'",)),
    ],
)
def test_files_that_are_no_tables(tmp_path, name, content, code, values):
    (tmp_path / name).write_text(content)
    with raises(code, *values):
        ready(table(tmp_path / name, "y"))


def test_a_file_may_start_with_empty_lines(tmp_path):
    path = write(tmp_path / "x.jsonl", "", *(json.dumps({"a": i, "y": i % 2}) for i in range(60)))
    assert ready(table(path, "y")).info.columns == ("a",)


@pytest.mark.parametrize("target", ["quality", "hue"])
def test_fit_and_predict(wine, tmp_path, target, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["fit", "--backbone", "mlp(dim=16)", "--algebra", "quaternion", "--data", f"table(path={wine}, target={target})"]
    words += ["--metrics", "MulticlassCohenKappa" if target == "quality" else "MeanAbsoluteError"]
    assert main([*words, "--run-dir", "run", "--trainer.max_epochs", "15", "--trainer.accelerator", "cpu"]) == 0
    assert main(["predict", "run", str(wine)]) == 0
    model = zoo.load("run")
    assert len(model.metrics) == (4 if target == "quality" else 3)
    assert model.evaluate() == pytest.approx(model.metrics), "with the additional metric"
    predictions = model.predict(str(wine))
    with wine.open() as file:
        truth = [row[target] for row in csv.DictReader(file)]
    if target == "quality":
        assert np.mean([row["label"] == label for row, label in zip(predictions, truth, strict=True)]) > 0.9
    else:
        error = np.array([row["output"][0] for row in predictions]) - np.array(truth, float)
        assert np.mean(error**2) < 0.7 * np.var(np.array(truth, float))
        assert model.metrics["mse"] < 2 * np.var(np.array(truth, float)), "in the units of the target"


@pytest.fixture(scope="module")
def wine_model(wine, tmp_path_factory):
    data = f"table(path={wine}, target=quality)"
    run = tmp_path_factory.mktemp("wine") / "run"
    zoo.fit(
        backbone="mlp(dim=16)", algebra="real", data=data, trainer={"max_epochs": 1, "accelerator": "cpu"}, run_dir=str(run)
    )
    return zoo.load(run)


def test_rows_of_every_kind_have_the_predictions_of_their_file(wine, wine_model, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(wine)
    expected = [(row["label"], row["probability"]) for row in wine_model.predict(str(wine))]
    records, cells = frame.to_dict("records"), frame.drop(columns="quality")

    def found(inputs):
        return [(row["label"], row["probability"]) for row in wine_model.predict(inputs)]

    assert found(frame) == found(frame[frame.columns[::-1]]) == found(records) == found(cells.to_numpy()) == expected
    assert found([list(row) for row in cells.to_numpy()]) == expected
    assert found(records[3]) == found(frame.iloc[3]) == found(list(cells.iloc[3])) == expected[3:4]
    assert found(str(semicolons(wine, tmp_path / "x.csv"))) == expected
    truth = [wine_model.info.classes.index(name) for name in frame["quality"]]
    measured = wine_model.evaluate((cells[cells.columns[::-1]], frame["quality"]))
    right = [wine_model.info.classes.index(label) == index for (label, _), index in zip(expected, truth, strict=True)]
    assert measured["accuracy"] == pytest.approx(np.mean(right))


def test_a_row_that_cannot_be_read_is_named(wine_model):
    row = dict.fromkeys(wine_model.info.columns, None)
    rows = wine_model.predict([row, {"ash": 1.0}, row | {"ash": "many"}, row])
    assert ["error" in row for row in rows] == [False, True, True, False]
    assert rows[1] == {"row": 1, "error": "row 1: no column 'alcohol'; the row has 'ash'"}
    assert "row 2: column 'ash' is numeric, but contains 'many'" in rows[2]["error"]
    with raises("data", "row 0: no column 'alcohol'"):
        wine_model.predict({"ash": 1.0})
    with raises("invalid", "row 0: an input of shape [2]", "size 15, or 14 cells"):
        wine_model.predict([1.0, 2.0])
    assert ["error" in row for row in wine_model.predict([[1.0, 2.0], [0.0] * 15, [0.0] * 14])] == [True, False, False]


def test_the_broken_rows_of_a_file_are_named(wine, wine_model, tmp_path):
    lines = wine.read_text().splitlines()
    lines[2] = "many" + lines[2][lines[2].index(",") :]
    rows = wine_model.predict(str(write(tmp_path / "x.csv", *lines[:2], *lines[2:5], "1,2")))
    assert [row["line"] for row in rows] == [2, 3, 4, 5, 6]
    assert [row.get("error", "").partition(": ")[0] for row in rows] == [
        "",
        f"{tmp_path}/x.csv:3",
        "",
        "",
        f"{tmp_path}/x.csv:6",
    ]


def test_a_read_only_array_gives_no_warning(recwarn):
    x, y = np.random.RandomState(0).randn(40, 4), np.arange(40) % 2
    info = ready(from_arrays(x, y)).info
    for array in (x, y):
        array.setflags(write=False)
    assert ready(from_arrays(x, y)).info == info
    list(read_vectors([x, *x], info))
    assert not recwarn.list


def test_a_frame_keeps_its_names():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": np.arange(40) % 7, "b": ["p", "q"] * 20})
    data = ready(from_arrays(frame, pandas.Series(["x", "y"] * 20, name="label")))
    assert (data.info.columns, data.info.values, data.info.target) == (("a", "b", "b"), (None, "p", "q"), "label")
    with raises("conflict", "'a'"):
        from_arrays(frame, pandas.Series(np.arange(40), name="a"))


def test_the_names_of_columns_are_texts_without_spaces_around_them(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.random.RandomState(0).randn(40, 3))
    labels = pandas.Series(["x", "y"] * 20, name="label")
    info = ready(from_arrays(frame, labels)).info
    assert info.columns == ("0", "1", "2")
    expected = [example.value for example in read_vectors([frame.to_numpy()], info)]
    for rows in ([frame], frame.to_dict("records"), [frame.iloc[i] for i in range(40)]):
        assert torch.equal(torch.stack([example.value for example in read_vectors(rows, info)]), torch.stack(expected))
    path = write(tmp_path / "x.csv", "a, b, label", *(f"{i}, {i % 7}, {'xy'[i % 2]}" for i in range(40)))
    frame, info = pandas.read_csv(path), ready(table(path, "label")).info
    rows = [example.value for example in read_vectors([frame], info)]
    assert torch.equal(torch.stack(rows), torch.stack([features for _, features in read_rows(path, info)]))
    info = ready(from_arrays(frame.drop(columns=" label"), frame[" label"])).info
    assert torch.equal(torch.stack([example.value for example in read_vectors([frame], info)]), torch.stack(rows))


def test_an_undefined_metric_is_shown_with_its_reason_and_stored_as_null(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, count in (("train", 40), ("val", 10), ("test", 10)):
        write(tmp_path / f"{name}.csv", "a,b,y", *(f"{i % 7},{i % 3},{'pq'[i % 2 and name != 'test']}" for i in range(count)))
    words = ["fit", "--backbone", "mlp(dim=8)", "--algebra", "real", "--data", "table(path=., target=y)", "--run-dir", "run"]
    assert main([*words, "--trainer.max_epochs", "1", "--trainer.accelerator", "cpu"]) == 0
    out, reason = capsys.readouterr().out, "undefined: the targets have 1 of 2 classes"
    assert re.search(r"test auroc +undefined", out)
    assert f"test auroc is {reason}" in out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["metrics"]["auroc"], summary["metrics"]["f1"]) == (None, None)
    assert summary["metrics"]["accuracy"] is not None
    assert summary["undefined"] == dict.fromkeys(("auroc", "f1"), "the targets have 1 of 2 classes")
    assert f"auroc is {reason}." in (tmp_path / "run" / "model" / "README.md").read_text()
    assert main(["test", "run", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["auroc"] is None
    assert sorted(err.splitlines()) == [f"note: test {name} is {reason}" for name in ("auroc", "f1")]


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


def test_all_rows_of_another_file_are_evaluated(wine, wine_model, tmp_path):
    lines = wine.read_text().splitlines()
    chosen = [line for line in lines[1:] if line.endswith(("red,low", "red,mid"))]
    other = write(tmp_path / "other.csv", lines[0], *chosen)  # without a color and a class
    labels = [row["label"] for row in wine_model.predict(str(other))]
    accuracy = np.mean([line.endswith(label) for line, label in zip(chosen, labels, strict=True)])
    for split in ("test", "val"):
        assert wine_model.evaluate(f"table(path={other}, target=quality)", split)["accuracy"] == pytest.approx(accuracy)
    low = [label for line, label in zip(chosen, labels, strict=True) if line.endswith("low")]
    other = write(tmp_path / "low.csv", lines[0], *(line for line in chosen if line.endswith("low")))
    assert wine_model.evaluate(f"table(path={other}, target=quality)")["accuracy"] == pytest.approx(low.count("low") / len(low))
    with raises("invalid", "has classes = ('red', 'white'), the model was trained with ('high', 'low', 'mid')"):
        wine_model.evaluate(f"table(path={wine}, target=color)")
    for name, rows, code, value in (
        (
            "class",
            [lines[0], *(line.replace(",low", ",lowest") for line in chosen)],
            "invalid",
            "has classes = ('lowest', 'mid')",
        ),
        (
            "words",
            [lines[0], *("much" + line[line.index(",") :] for line in chosen)],
            "data",
            "'alcohol' is numeric in training",
        ),
        ("column", [lines[0].replace("alcohol,", "ethanol,"), *chosen], "mismatch", "no column 'alcohol'"),
    ):
        with raises(code, value):
            wine_model.evaluate(f"table(path={write(tmp_path / f'{name}.csv', *rows)}, target=quality)")


def test_arrays_of_images_or_vectors():
    random = np.random.RandomState(0)
    pixels, labels = random.randint(0, 256, (40, 3, 6, 6)).astype(np.uint8), np.array(["cat", "dog"] * 20)
    images = [ready(from_arrays(x, labels)) for x in (pixels, torch.from_numpy(pixels / 255), pixels.transpose(0, 2, 3, 1))]
    assert {data.info.sha256 for data in images} == {images[0].info.sha256}
    assert (images[0].info.classes, images[0].info.sizes) == (("cat", "dog"), {"train": 32, "test": 4, "val": 4})
    assert images[0].notes == []
    (note,) = ready(from_arrays(pixels[..., :4], labels)).notes
    assert (
        note
        == "the arrays: images of 6 x 4 pixels are resized to a short side of 6 pixels and cropped to a square at the centre"
    )
    rows = ready(from_arrays(random.randn(40, 3).tolist(), labels, batch_size=7))
    assert (rows.task, rows.info.classes, rows.batch_size) == ("vector_classification", ("cat", "dog"), 7)
    assert ready(from_arrays(torch.randn(40, 3), torch.randn(40, 1))).task == "regression"


@pytest.mark.parametrize("labels", [["cat", None, "dog"], [0.0, np.nan, 1.0]])
def test_an_image_without_a_label_is_named(labels):
    with raises("data", "image 1 has no label"):
        from_arrays(np.zeros((3, 6, 6)), labels)


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
