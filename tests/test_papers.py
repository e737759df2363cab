"""Reproduction of the papers: runs, statistics, and pages that match the stored results."""

import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
import yaml
from scipy.stats import t
from zoo_experiments.sweep import SweepGrid, sweep_points
from zoo_reports.statistics import Difference

import zoo
from benchmarks.studies import frontier_page, lottery, papers, papers_detail, papers_page, papers_rows
from benchmarks.studies.papers_verdicts import Pair, comparisons, tally, verdict

SWEEP = """\
# note: Fewer words.
# note [sm*]: Another optimizer.
base:
  data: text(path=nowhere)
  trainer: {max_epochs: 1}
axes:
  row:
    # published: accuracy 0.9 (Table 1)
    # also: text(path=nowhere, val=0.2)
    small:
      backbone: fasttext(dim=8, hidden=8)
      algebra: quaternion
    other:
      backbone: fasttext(dim=8, hidden=4)
      algebra: quaternion
"""


def sweep_in_process(words):
    """Run ``zoo sweep`` without a process for each run."""
    _, file, _, folder, _, only, *_ = words
    grid = sweep_points(yaml.safe_load(Path(file).read_text(encoding="utf-8")), file)
    Path(folder, "configs").mkdir(parents=True, exist_ok=True)
    study = SweepGrid(Path(folder), grid)
    for point in study.ready():
        if point.name in only.split(","):
            zoo.fit(**point.options, run_dir=str(study.path(point)))
            study.finish(point)
    return 0


@pytest.fixture
def row(tmp_path, corpus, monkeypatch):
    """Return a sweep of a paper with fast rows; results are written to a temporary folder."""
    (tmp_path / "data" / "text_small").mkdir(parents=True)
    corpus(tmp_path / "data" / "text_small" / "train.tsv", "text")
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "configs" / "paper" / "table.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(SWEEP)
    monkeypatch.setattr(papers_rows, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(papers, "write", lambda: None)
    monkeypatch.setattr(papers, "command", sweep_in_process)
    return config


def test_each_seed_of_a_row_is_run_once(row, tmp_path):
    argv = [str(row), "--only", "small", "--root", str(tmp_path / "data"), "--seeds"]
    papers.main([*argv, "1"])
    out = tmp_path / "results" / "paper" / "small.json"
    first = json.loads(out.read_text())
    out.unlink()  # as after an interruption before writing
    papers.main([*argv, "1"])
    assert json.loads(out.read_text())["rows"][0]["metrics"] == first["rows"][0]["metrics"]
    first = json.loads(out.read_text())
    papers.main([*argv, "2"])
    both = json.loads(out.read_text())
    assert [run["seed"] for run in both["rows"]] == [0, 1]
    assert both["rows"][0] == first["rows"][0]
    assert both["config"] == papers_rows.read(row)[0].config
    assert [path.name for path in out.parent.iterdir()] == ["small.json"]
    assert both["rows"][0]["tested"] == 6
    assert list(both["rows"][0]["also"]) == ["text(path=nowhere, val=0.2)"]


def test_comments_apply_to_all_rows_matching_rows_or_the_next_row(row):
    small, other = papers_rows.read(row)
    assert (small.notes, other.notes) == (("Fewer words.", "Another optimizer."), ("Fewer words.",))
    assert (small.published, other.published) == ("accuracy 0.9 (Table 1)", "")
    row.write_text(row.read_text().replace("[sm*]", "[mall]"))
    with pytest.raises(ValueError, match=r"# note \[mall\]"):
        papers_rows.read(row)


def test_rows_with_the_same_options_can_share_results(row, tmp_path):
    file = row.with_name("copy.yaml")
    file.write_text(row.read_text().replace("    # published", "    # same: paper/first\n    # published"))
    path = tmp_path / "results" / "paper" / "first.json"
    path.parent.mkdir(parents=True)
    small, other = papers_rows.read(file)
    path.write_text(json.dumps({"config": small.config, "rows": [{"seed": 0}, {"seed": 1}]}))
    small, other = papers_rows.read(file)
    assert [run["seed"] for run in small.runs] == [0, 1]
    assert small.notes[-1] == "The same runs as [first](paper.md)."
    assert not other.runs
    papers.main([str(file), "--only", "small", "--seeds", "2"])  # nothing to run
    papers.main([str(file), "--only", "small", "--root", str(tmp_path / "data"), "--seeds", "3"])
    assert [run["seed"] for run in json.loads(path.read_text())["rows"]] == [0, 1, 2]
    assert not (path.parent / "small.json").exists()


def measured(name, algebra, *accuracies, data="trec", scope="all", backbone="lstm", published="", tested=None):
    runs = [{"metrics": {"loss": 1.0, "accuracy": value}, "tested": tested} for value in accuracies]
    config = {"backbone": backbone, "algebra": algebra, "data": data, "scope": scope}
    return papers_rows.Row("complex_order", name, config, published, (), tuple(runs))


def folded(*values):
    """Return a row with one seed and a result per fold of the same data."""
    run = {"seed": 0, "tested": 10**6, "metrics": {"accuracy": mean(values)}}
    run["folds"] = [{"accuracy": value} for value in values]
    run["data_sha256"] = [f"fold {number}" for number in range(len(values))]
    return papers_rows.Row("paper", "row", {}, runs=(run,))


def test_rows_with_one_seed_are_compared_over_folds():
    def row(name, published, *values):
        row = measured(name, "real", published=f"accuracy {published} (Table 2)")
        return replace(row, runs=folded(*values).runs)

    (one,) = comparisons([row("mr_none", 0.7, 0.5, 0.6, 0.7), row("mr_order", 0.8, 0.7, 0.7, 0.7)])
    assert one.pairs() == [(True, False, False)]


def test_leads_smaller_than_published_are_detected():
    rows = [
        measured("sva_real", "real", 0.90, 0.91, published="accuracy 0.7 (Table 5)", tested=1000),
        measured("sva_phm2", "phm-2", 0.90, 0.92, published="accuracy 0.9 (Table 5)", tested=1000),
    ]
    assert comparisons(rows)[0].pairs() == [(True, False, True)]
    rows[1] = measured("sva_phm2", "phm-2", 0.9, 0.91 + 2e-8, published="accuracy 0.9 (Table 5)", tested=1000)
    assert [pair.as_printed for pair in comparisons(rows)[0].pairs()] == [None]


def test_settings_are_separate_and_significant_leads_select_pairs():
    compared = [
        measured("sva_real", "real", 0.90, 0.91, published="accuracy 0.948 (Table 5)", tested=1000),
        measured("sva_phm2", "phm-2", 0.80, 0.81, published="accuracy 0.951 (Table 5)", tested=1000),
        measured("sva_phm4", "phm-4", published="accuracy 0.95 (Table 5)", tested=1000),  # not run
    ]
    rows = [*compared, measured("sva_phm8", "phm-8", 0.7, 0.71, published="accuracy 0.94 (Table 5)", tested=1000)]
    marked = [replace(row, extra={"significant": "Table 5: over all"} if row.name == "sva_phm8" else {}) for row in rows]
    assert [len(comparisons(some)[0].pairs()) for some in (compared, marked, rows)] == [1, 2, 3]
    folds = [replace(row, extra={"setting": "ten folds"}) for row in rows]
    assert [one.rows[0].setting for one in comparisons([*rows, *folds])] == ["", "ten folds"]
    assert tally([Pair(True, True), Pair(False, None)]) == "1 as published (1), 0 reversed (0), 1 with one seed"


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], "not measured"),
        ([(True, True), (True, True)], "holds"),
        ([*[(True, True)] * 2, *[(False, True)] * 2], "mixed"),
        ([*[(True, True)] * 4, (False, True), *[(True, False)] * 5], "holds in part"),  # one of ten is expected by chance
        ([(True, False), (False, True), (False, True)], "reversed here"),
        ([(True, True), (False, False)], "not decided"),  # one of two has a probability of 10 % by chance
        ([(True, None), (True, None), (False, False)], "too few seeds"),
    ],
)
def test_verdicts(pairs, expected):
    assert verdict([Pair(*pair) for pair in pairs]) == expected


def test_algebras_are_compared_with_the_real_network_of_the_same_width():
    rows = [
        measured("a", "phm-2", 0.84, 0.86),
        measured("b", "quaternion", 0.6, 0.7, scope="attention"),
        measured("c", "real", 0.50, 0.52),
        measured("d", "phm-4", 0.7),  # one seed
    ]
    (effect,) = papers_page.equal_width(rows)
    assert (effect.task, effect.algebra) == ("trec, lstm", "phm-2")
    assert effect.difference.estimate == pytest.approx(100 * 0.34 / 0.51)
    half = t.ppf(0.975, 2) * math.sqrt(2 * 1e-4)  # both means have a variance of 2e-4 / 2
    assert effect.difference.high - effect.difference.estimate == pytest.approx(100 * half / 0.51)


def test_the_answer_separates_tasks_that_depend_on_the_size():
    effects = [
        papers_page.Effect(f"{task} (frontier)", algebra, Difference(value, 1.0))
        for task, value in (("large", 2.0), ("small", 0.5))
        for algebra in ("phm-4", "octonion")
    ]
    text = papers_page.answer(effects, effects, {"large (frontier)"})
    numbers = "ahead in {}, behind in 0 and not significantly different in {} of 2 comparisons on 1 task ({})"
    assert text.index(numbers.format(2, 0, "large")) < text.index(numbers.format(0, 2, "small"))


@pytest.mark.parametrize(("quaternion", "verdict"), [(0.8, "holds"), (0.5, "not decided"), (0.2, "reversed here")])
def test_tickets_of_the_fourth_paper_have_a_verdict_at_the_sparse_end(tmp_path, monkeypatch, quaternion, verdict):
    stored = json.loads((lottery.RESULTS / "vit_pneumoniamnist_qkv.json").read_text(encoding="utf-8"))
    for row in stored["lottery"]["rows"]:
        value = quaternion if row["algebra"] == "quaternion" else 0.5
        row["test"]["accuracy"] = value + 0.001 * row["seed"] * (1 if row["algebra"] == "real" else -1)
    (tmp_path / "a.json").write_text(json.dumps(stored), encoding="utf-8")
    monkeypatch.setattr(lottery, "RESULTS", tmp_path)
    [line] = papers_page.tickets_of_fraction()
    assert f"| pneumoniamnist | {verdict} | " in line
    assert "| Algorithm 1, rate 0.3;" in line


def test_the_released_code_is_compared_on_data_sets_of_all_settings():
    rows = {row.name: row for row in papers_rows.read_all() if row.paper == "complex_order"}
    names = ("released_{}_cnn", "{}_print_cnn_order", "{}_cnn_order")
    scores = {"mr": (0.5, 0.25, 0.75), "trec": (1.0, 0.75, 0.25)}
    measured = {
        name.format(data): replace(rows[name.format(data)], runs=[{"seed": 0, "metrics": {"accuracy": value}, "tested": 9}])
        for data, values in scores.items()
        for name, value in zip(names, values, strict=True)
    }
    assert papers_detail.released(measured)[-2] == "| cnn, complex-order | mr, trec | 0.750 | 0.500 | 0.500 | 0.882 |"
    del measured["trec_print_cnn_order"]
    assert "| mr | 0.500 | 0.250 | 0.750 |" in papers_detail.released(measured)[-2]
    assert papers_detail.released({}) == []


def test_the_pages_match_the_results(tmp_path):
    papers_page.write(tmp_path / "papers.md", tmp_path)
    papers_detail.write(tmp_path)
    frontier_page.write(tmp_path / "frontier.md", tmp_path)
    assert (tmp_path / "papers.md").read_text(encoding="utf-8") == papers_page.PAGE.read_text(encoding="utf-8")
    assert (tmp_path / "frontier.md").read_text(encoding="utf-8") == frontier_page.PAGE.read_text(encoding="utf-8")
    for name in papers_page.PAPERS:
        page = (papers_detail.FOLDER / f"{name}.md").read_text(encoding="utf-8")
        assert (tmp_path / f"{name}.md").read_text(encoding="utf-8") == page
    assert len(papers_page.PAGE.read_text(encoding="utf-8").splitlines()) <= 150
    stored = {path.relative_to(papers_rows.RESULTS).with_suffix("") for path in papers_rows.RESULTS.glob("*/*.json")}
    assert stored == {Path(row.stored) for row in papers_rows.read_all() if row.runs}
