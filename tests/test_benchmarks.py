"""Benchmark scripts: they run, and the pages match the stored results."""

import json
from itertools import product

import pytest

from benchmarks import digits, fused, machine, readme, recovery, speed_page


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("benchmark") / "digits.json"
    digits.main(["--algebras", "real", "quaternion", "--real", "--seeds", "2", "--epochs", "1", "--out", str(out)])
    return json.loads(out.read_text(encoding="utf-8"))


def test_digits_trains_each_algebra_with_each_seed(results):
    assert [(row["seed"], row["algebra"]) for row in results["rows"]] == [*product((0, 1), ("real", "quaternion"))]
    assert all(row["epochs"] == 1 and 0 < row["metrics"]["accuracy"] <= 1 for row in results["rows"])
    assert {"date", "processor", "cores", "device", "torch"} <= results["machine"].keys()


def test_the_readme_table_has_a_line_for_each_algebra(results):
    lines = readme.table(results).splitlines()
    real, quaternion = lines[2:4]
    scores = [row["metrics"]["accuracy"] for row in results["rows"] if row["algebra"] == "quaternion"]
    assert real.startswith("| `real` |")
    assert f"**{sum(scores) / 2:.3f}** ({scores[0]:.3f}, {scores[1]:.3f})" in quaternion


def test_the_recovery_tables_match_the_results():
    page = recovery.PAGE.read_text(encoding="utf-8")
    tables = page.partition(recovery.BEGIN)[2].partition(machine.END)[0]
    files = list(recovery.RESULTS.parent.glob("recovery*.json"))
    assert tables.count("### ") == len(files) >= 1
    for file in files:
        results = json.loads(file.read_text(encoding="utf-8"))
        assert f"\n{recovery.table(results)}\n" in tables
        assert {row["seed"] for row in results["rows"]} == {teacher["seed"] for teacher in results["teachers"]}


def test_the_speed_page_matches_the_results():
    assert speed_page.PAGE.read_text(encoding="utf-8") == speed_page.text()


def test_speed_is_measured_once_per_commit(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fused.compiled, "is_available", lambda: True)
    monkeypatch.setattr(
        "sys.argv", ["fused", "--only", "256 features, batch 8", "--rounds", "2", "--out", str(tmp_path / "out")]
    )
    for measured in (2, 0):
        fused.main()
        assert capsys.readouterr().out.count("evaluation: ") == measured
    rows = json.loads((tmp_path / "out").read_text())
    assert [name.rpartition(", ")[2] for name in rows] == ["inside the scope", "outside"]
    assert all(row["ratio"] > 0 and row["goal"] is None for row in rows.values())
