"""The page of the study of adapters is that of its stored results, and its verdicts are those of the statistics."""

import json

import pytest

from benchmarks.studies import adapters_page as page


@pytest.fixture(scope="module")
def results():
    return json.loads(page.RESULTS.read_text(encoding="utf-8"))


def test_the_page_matches_the_results(results, tmp_path):
    page.write(results, tmp_path / "page.md", tmp_path / "details.csv")
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == page.PAGE.read_text(encoding="utf-8")
    assert (tmp_path / "details.csv").read_text(encoding="utf-8") == page.DETAILS.read_text(encoding="utf-8")


def test_the_opponent_is_chosen_by_validation(results):
    runs = page.finished(results["rows"])
    key = page.best_of_peft("trec", 2, runs)
    flipped = [row | {"validation": 1 - row["validation"]} for row in results["rows"] if row["case"] == "trec"]
    assert page.best_of_peft("trec", 2, page.finished(flipped)) != key


def test_a_method_is_compared_over_seeds_in_the_direction_of_its_metric(results):
    runs = page.finished(results["rows"])
    key = "shakespeare", 2, "quaternion"
    better = {**runs, key: [row | {"test": row["test"] - 1} for row in runs[key]]}
    assert page.difference(key, better).estimate == pytest.approx(page.difference(key, runs).estimate + 1)
    assert page.difference(key, better).verdict == "ahead"
