"""Benchmark scripts: they run, and the pages match the stored results."""

import json

import pytest

from benchmarks import digits, fused, machine, readme, recovery, speed_page


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("benchmark") / "digits.json"
    digits.main(["--algebras", "real", "quaternion", "--real", "--seeds", "2", "--epochs", "1", "--out", str(out)])
    return json.loads(out.read_text(encoding="utf-8"))


def test_digits_trains_each_algebra_with_each_seed(results):
    assert [(row["seed"], row["algebra"]) for row in results["rows"]] == [
        (0, "real"),
        (0, "quaternion"),
        (1, "real"),
        (1, "quaternion"),
    ]
    assert all(row["epochs"] == 1 and 0 < row["metrics"]["accuracy"] <= 1 for row in results["rows"])
    assert {"date", "processor", "cores", "device", "torch"} <= results["machine"].keys()


def test_the_readme_table_has_a_line_for_each_algebra(results):
    lines = readme.table(results).splitlines()
    real, quaternion = lines[2:4]
    scores = [row["metrics"]["accuracy"] for row in results["rows"] if row["algebra"] == "quaternion"]
    assert real.startswith("| `real` |")
    assert "| 100.0% |" in real
    assert f"**{sum(scores) / 2:.3f}** ({scores[0]:.3f}, {scores[1]:.3f})" in quaternion
    assert "2 seeds, 1 epochs" in lines[-1]


def test_the_readme_table_is_replaced(tmp_path, monkeypatch):
    page = tmp_path / "README.md"
    monkeypatch.setattr(readme, "PAGES", [page])
    page.write_text(f"before\n{readme.BEGIN}\nold\n{machine.END}\nafter\n", encoding="utf-8")
    readme.update()
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{readme.BEGIN}\n| `--algebra` |")
    assert text.endswith(f"\n{machine.END}\nafter\n")
    assert "old" not in text


def test_the_recovery_tables_match_the_results():
    page = recovery.PAGE.read_text(encoding="utf-8")
    tables = page.partition(recovery.BEGIN)[2].partition(machine.END)[0]
    files = list(recovery.RESULTS.parent.glob("recovery*.json"))
    assert tables.count("### ") == len(files) >= 1
    for file in files:
        results = json.loads(file.read_text(encoding="utf-8"))
        assert f"\n{recovery.table(results)}\n" in tables
        assert {row["seed"] for row in results["rows"]} == {teacher["seed"] for teacher in results["teachers"]}


def test_recovery_of_a_language_model_minimises_bits_without_distillation(tmp_path, monkeypatch):
    bits = {"0-teacher": [3.0, 2.0], "0-0": [3.0, 2.5], "0-1": [2.9, 2.04]}
    monkeypatch.setattr(recovery, "fit", lambda run, **_: {"metrics": {"bits_per_character": bits[run.name][1]}, "seconds": 1})
    monkeypatch.setattr(recovery, "curve", lambda run, metric: bits[run.name])
    monkeypatch.setattr(recovery, "project", lambda teacher, algebra, start: {"mean": 0.9})
    monkeypatch.setattr(recovery, "RESULTS", tmp_path / "recovery.json")
    page = tmp_path / "page.md"
    page.write_text(f"above\n{recovery.BEGIN}\nold\n{machine.END}\nbelow\n")
    monkeypatch.setattr(recovery, "PAGE", page)
    recovery.main(["--experiment", "shakespeare", "--algebra", "phm-4", "--seeds", "1"])
    stored = json.loads((tmp_path / "recovery_shakespeare_phm-4.json").read_text())
    assert [(row["arm"], row["reached"]) for row in stored["rows"]] == [("new weights", None), ("projected", 2)]
    assert (stored["teachers"][0]["validation"], stored["algebra"], stored["epochs"]) == (2.0, "phm-4", 2)
    assert stored["data"] == "shakespeare(max_length=64)"
    text = page.read_text()
    assert "| projected | 2 | **2.040** (2.040) |" in text
    assert "| new weights | more than 2 | **2.500** (2.500) |" in text
    assert "validations (every 200 steps) until within 0.05 bits of the teacher" in text
    assert "old" not in text
    assert "at most a third with 0, and had a better test result with 1." in text
    assert text.startswith("above\n")
    assert text.endswith("\nbelow\n")


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
