"""The report of a sweep: means over seeds, the best by validation, and figures that its page really has."""

import json
from statistics import mean, stdev

import pytest
from zoo_reports.sweep import sweep

from zoo.checkpoint.sweep import write_rows
from zoo.errors import InputError

TEST = {("real", 0): 0.90, ("real", 1): 0.94, ("quaternion", 0): 0.97, ("quaternion", 1): 0.93, ("octonion", 0): 0.80}
SEEN = {("real", 0): 0.95, ("real", 1): 0.97, ("quaternion", 0): 0.91, ("quaternion", 1): 0.92, ("octonion", 0): 0.70}
TOTAL = {"real": 1000, "quaternion": 300, "octonion": 200}


def rows(**changes):
    made = []
    for (algebra, seed), value in TEST.items():
        validation = {"metric": "accuracy", "mode": "max", "value": SEEN[algebra, seed], "epoch": 2, "step": 8}
        made.append(
            {
                "name": f"{algebra}-seed{seed}",
                "folder": f"runs/{algebra}-seed{seed}",
                "axes": {"algebra": algebra, "seed": str(seed)},
                "options": {"algebra": algebra, "seed": seed},
                "metrics": {"loss": 1 - value, "accuracy": value},
                "validation": validation,
                "parameters": {"total": TOTAL[algebra], "real_twin": 1000},
            }
            | changes
        )
    return made


def write(folder, made):
    folder.mkdir(exist_ok=True)
    write_rows(folder / "results.jsonl", made)
    return [str(folder)]


def test_means_over_seeds_and_the_best_by_validation(tmp_path):
    values = sweep(write(tmp_path / "study", rows())).values
    assert values["metric"] == "accuracy"
    assert values["best"] == {"algebra": "real"}  # quaternion is better on the test split, which is not asked
    groups = {group["label"]: group for group in values["groups"]}
    assert list(groups) == ["real", "quaternion", "octonion"]
    assert groups["quaternion"]["values"] == [0.97, 0.93]
    assert groups["quaternion"]["parameters"] == (300, 1000)


def test_the_table_gives_mean_and_spread(tmp_path):
    report = sweep(write(tmp_path / "study", rows()))
    line = next(line for line in report.files["sweep.md"].decode().splitlines() if "quaternion" in line and "|" in line)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    found, spread = (float(part) for part in cells[2].split("±"))
    assert found == pytest.approx(mean([0.97, 0.93]), abs=5e-5)
    assert spread == pytest.approx(stdev([0.97, 0.93]), abs=5e-4)
    assert cells[1] == "2"
    assert cells[4:6] == ["300", "30.0%"]


def test_pictures_and_a_page_that_fetches_nothing(tmp_path):
    files = sweep(write(tmp_path / "study", rows())).files
    assert files["sweep.png"].startswith(b"\x89PNG")
    assert b"<svg" in files["sweep.svg"]
    html = files["sweep.html"].decode()
    assert "quaternion" in html
    assert 'src="http' not in html
    assert "<link" not in html


def test_another_metric_and_a_label_of_markup(tmp_path):
    made = rows(axes={"row": "<b>bold</b>", "seed": "0"})
    report = sweep(write(tmp_path / "study", made), metric="loss")
    assert report.values["metric"] == "loss"
    assert "<b>bold" not in report.files["sweep.html"].decode().split("<body>")[1]


def test_runs_without_a_test_split_are_shown_by_validation(tmp_path):
    report = sweep(write(tmp_path / "study", rows(metrics={})))
    assert report.values["metric"] == "accuracy"
    assert report.values["groups"][0]["values"] == [0.95, 0.97]
    assert "accuracy, validation split" in report.text
    assert report.text.count("validation accuracy") == 1
    assert "test" not in report.files["sweep.md"].decode()


def test_runs_that_have_not_measured_the_metric_are_counted(tmp_path):
    made = rows()
    made[0]["metrics"] = {"perplexity": 3.0}
    report = sweep(write(tmp_path / "study", made))
    assert "1 of 5 runs have not measured it" in report.text
    assert sweep(write(tmp_path / "study", made), metric="perplexity").values["groups"][0]["values"] == [3.0]


@pytest.mark.parametrize(
    "other", [{"data_sha256": "b"}, {"validation": {"metric": "loss", "mode": "min", "value": 0.1}}, {"validation": None}]
)
def test_the_best_is_not_told_of_runs_that_cannot_be_compared(other, tmp_path):
    made = [*rows(data_sha256="a")[:4], *rows(**{"data_sha256": "a"} | other)[4:]]
    report = sweep(write(tmp_path / "study", made))
    assert report.values["best"] is None
    assert "Which is best by validation is not told" in report.text
    assert sweep(write(tmp_path / "study", rows(data_sha256="a"))).values["best"] == {"algebra": "real"}


@pytest.mark.parametrize(
    ("made", "metric", "said"),
    [
        (rows(), "f1", "have not measured f1: use loss or accuracy"),
        (rows(metrics={}, validation=None), "", "no run in '.*' has measured anything"),
        ([], "", "no run of '.*' is finished yet"),
    ],
)
def test_what_there_is_no_report_of(made, metric, said, tmp_path):
    with pytest.raises(InputError, match=said):
        sweep(write(tmp_path / "study", made), metric=metric)


def test_a_folder_that_is_no_sweep(tmp_path):
    (tmp_path / "summary.json").write_text(json.dumps({}))
    with pytest.raises(InputError, match=r"has no results\.jsonl: give the folder of a sweep"):
        sweep([str(tmp_path)])
