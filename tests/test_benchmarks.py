"""The script behind the README's table runs, and its table says what it measured."""

import json

import pytest

from benchmarks import digits, readme


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("benchmark") / "digits.json"
    digits.main(["--algebras", "real", "quaternion", "--seeds", "2", "--epochs", "1", "--out", str(out)])
    return json.loads(out.read_text(encoding="utf-8"))


def test_every_algebra_is_trained_with_every_seed(results):
    assert [(row["seed"], row["algebra"]) for row in results["rows"]] == [
        (0, "real"),
        (0, "quaternion"),
        (1, "real"),
        (1, "quaternion"),
    ]
    assert all(row["epochs"] == 1 and 0 < row["metrics"]["accuracy"] <= 1 for row in results["rows"])
    assert {"date", "processor", "cores", "device", "torch"} <= results["machine"].keys()


def test_the_table_has_a_line_for_every_algebra(results):
    lines = readme.table(results).splitlines()
    real, quaternion = lines[2:4]
    scores = [row["metrics"]["accuracy"] for row in results["rows"] if row["algebra"] == "quaternion"]
    assert real.startswith("| `real` |")
    assert "| 100.0% |" in real
    assert f"**{sum(scores) / 2:.3f}** ({scores[0]:.3f}, {scores[1]:.3f})" in quaternion
    assert "2 seeds, 1 epochs" in lines[-1]


def test_the_table_is_put_between_its_marks(tmp_path):
    page = tmp_path / "README.md"
    page.write_text(f"before\n{readme.BEGIN}\nold\n{readme.END}\nafter\n", encoding="utf-8")
    readme.update(page)
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{readme.BEGIN}\n| `--algebra` |")
    assert text.endswith(f"\n{readme.END}\nafter\n")
    assert "old" not in text
