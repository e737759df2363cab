"""The report of a sweep: means over seeds, the best by validation, and its files."""

import json
from statistics import mean, stdev

import pytest
from zoo_reports.sweep import sweep

from tests.errors import raises

TEST = {("real", 0): 0.90, ("real", 1): 0.94, ("quaternion", 0): 0.97, ("quaternion", 1): 0.93, ("octonion", 0): 0.80}
SEEN = {("real", 0): 0.95, ("real", 1): 0.97, ("quaternion", 0): 0.91, ("quaternion", 1): 0.92, ("octonion", 0): 0.70}
TOTAL = {"real": 1000, "quaternion": 300, "octonion": 200}


def rows(**changes):
    result = []
    for (algebra, seed), value in TEST.items():
        row = {"name": f"{algebra}-seed{seed}", "folder": f"runs/{algebra}-seed{seed}"}
        row |= {"axes": {"algebra": algebra, "seed": str(seed)}, "options": {"algebra": algebra, "seed": seed}}
        row |= {"metrics": {"loss": 1 - value, "accuracy": value}, "parameters": {"total": TOTAL[algebra], "real_twin": 1000}}
        row["validation"] = {"metric": "accuracy", "mode": "max", "value": SEEN[algebra, seed], "epoch": 2, "step": 8}
        result.append(row | changes)
    return result


def write(folder, made):
    folder.mkdir(exist_ok=True)
    (folder / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    return [str(folder)]


def test_means_over_seeds_and_the_best_by_validation(tmp_path):
    values = sweep(write(tmp_path / "study", rows())).values
    assert values["metric"] == "accuracy"
    assert values["best"] == {"algebra": "real"}  # quaternion is better on the test split
    groups = {group["label"]: group for group in values["groups"]}
    assert list(groups) == ["real", "quaternion", "octonion"]
    assert groups["quaternion"]["values"] == [0.97, 0.93]
    assert groups["quaternion"]["parameters"] == (300, 1000)


def test_table_pictures_and_page(tmp_path):
    files = sweep(write(tmp_path / "study", rows())).files
    line = next(line for line in files["sweep.md"].decode().splitlines() if "quaternion" in line and "|" in line)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    center, spread = (float(part) for part in cells[2].split("±"))
    assert center == pytest.approx(mean([0.97, 0.93]), abs=5e-5)
    assert spread == pytest.approx(stdev([0.97, 0.93]), abs=5e-4)
    assert cells[1] == "2"
    assert cells[4:6] == ["300", "30.0%"]
    assert files.keys() == {"sweep.md", "sweep.png", "sweep.svg", "sweep.html"}


def test_runs_without_a_test_split_are_shown_by_validation(tmp_path):
    report = sweep(write(tmp_path / "study", rows(metrics={})))
    assert report.values["metric"] == "accuracy"
    assert report.values["groups"][0]["values"] == [0.95, 0.97]


@pytest.mark.parametrize(
    "other", [{"data_sha256": "b"}, {"validation": {"metric": "loss", "mode": "min", "value": 0.1}}, {"validation": None}]
)
def test_incomparable_runs_are_not_ranked(other, tmp_path):
    made = [*rows(data_sha256="a")[:4], *rows(**{"data_sha256": "a"} | other)[4:]]
    assert sweep(write(tmp_path / "study", made)).values["best"] is None
    assert sweep(write(tmp_path / "study", rows(data_sha256="a"))).values["best"] == {"algebra": "real"}


def test_nothing_to_report(tmp_path):
    with raises("missing", "study"):
        sweep(write(tmp_path / "study", []))


@pytest.mark.parametrize("line", ["null", "{}", "[]", '{"name'])
def test_damaged_rows(tmp_path, line):
    (run,) = write(tmp_path / "study", rows())
    with (tmp_path / "study" / "results.jsonl").open("a") as file:
        file.write(line + "\n")
    with raises("corrupt", "results.jsonl"):
        sweep([run])
