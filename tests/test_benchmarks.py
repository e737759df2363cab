"""The scripts behind the tables run, and the tables say what was measured."""

import json
import math
import random
import re
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import pytest
import yaml
from scipy.stats import t, ttest_ind, ttest_rel

import zoo
from benchmarks import (
    digits,
    papers,
    papers_chance,
    papers_glance,
    papers_plots,
    papers_rates,
    papers_rows,
    papers_table,
    papers_verdicts,
    readme,
    recovery,
)
from zoo.registry import Spec
from zoo.training.sweep import Study, points


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


def test_the_table_is_put_between_its_marks(tmp_path, monkeypatch):
    page = tmp_path / "README.md"
    monkeypatch.setattr(readme, "PAGES", [page])
    page.write_text(f"before\n{readme.BEGIN}\nold\n{readme.END}\nafter\n", encoding="utf-8")
    readme.update()
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{readme.BEGIN}\n| `--algebra` |")
    assert text.endswith(f"\n{readme.END}\nafter\n")
    assert "old" not in text


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


def in_this_process(values, file, options, *, finished):
    """`zoo.training.sweep_jobs.sweep` without the start of a process for each run."""
    grid, folder = points(values, file), Path(options.run_dir)
    (folder / "configs").mkdir(parents=True, exist_ok=True)
    study = Study(folder, grid)
    for point in study.open():
        if point.name in options.only.split(","):
            zoo.fit(**point.options, run_dir=str(study.path(point)))
            finished(study.finish(point))
    return {"rows": list(study.rows.values())}


@pytest.fixture
def row(tmp_path, corpus, monkeypatch):
    """The sweep of a paper with a row that trains in a second, its results and the page in a folder of their own."""
    (tmp_path / "data" / "text_small").mkdir(parents=True)
    corpus(tmp_path / "data" / "text_small" / "train.tsv", "text")
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "configs" / "paper" / "table.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(SWEEP)
    monkeypatch.setattr(papers_rows, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(papers_table, "write", lambda: None)
    monkeypatch.setattr(papers, "sweep", in_this_process)
    monkeypatch.setattr(papers_plots, "IMAGES", tmp_path / "images")
    return config


def test_a_row_of_a_paper_is_measured_once_for_each_seed(row, tmp_path):
    argv = [str(row), "--only", "small", "--root", str(tmp_path / "data"), "--seeds"]
    papers.main([*argv, "1"])
    out = tmp_path / "results" / "paper" / "small.json"
    first = json.loads(out.read_text())
    out.unlink()  # as if it had been cut off before it was written
    papers.main([*argv, "1"])
    assert json.loads(out.read_text())["rows"][0]["metrics"] == first["rows"][0]["metrics"]
    first = json.loads(out.read_text())
    papers.main([*argv, "2"])
    both = json.loads(out.read_text())
    assert [found["seed"] for found in both["rows"]] == [0, 1]
    assert both["rows"][0] == first["rows"][0]
    assert both["config"] == papers_rows.read(row)[0].config
    assert [path.name for path in out.parent.iterdir()] == ["small.json"]
    assert both["rows"][0]["tested"] == 6
    kept = {"parameters", "metrics", "chosen", "versions", "data_sha256", "commit", "machine", "also"}
    assert kept <= both["rows"][0].keys()
    (choice,) = both["rows"][0]["chosen"]
    assert choice.keys() == {"epoch", "step", "val_accuracy"}
    assert list(both["rows"][0]["also"]) == ["text(path=nowhere, val=0.2)"]


def test_rows_that_fail_are_named(row, monkeypatch, capsys):
    monkeypatch.setattr(papers, "sweep", lambda *args, **options: {"rows": []})
    with pytest.raises(SystemExit, match=r"benchmarks\.papers: failed: small-seed0, other-seed0$"):
        papers.main([str(row), "--seeds", "1"])
    with pytest.raises(SystemExit):
        papers.main(["nowhere.yaml"])
    assert "there is no file nowhere.yaml" in capsys.readouterr().err


def test_comments_are_of_all_rows_of_some_or_of_the_one_below(row):
    small, other = papers_rows.read(row)
    assert (small.notes, other.notes) == (("Fewer words.", "Another optimizer."), ("Fewer words.",))
    assert (small.published, other.published) == ("accuracy 0.9 (Table 1)", "")
    assert small.config == {
        "data": "text(path=nowhere)",
        "trainer": {"max_epochs": 1},
        "backbone": "fasttext(dim=8, hidden=8)",
        "algebra": "quaternion",
    }
    row.write_text(row.read_text().replace("[sm*]", "[mall]"))
    with pytest.raises(ValueError, match=r"no row is named so: # note \[mall\]"):
        papers_rows.read(row)


def test_a_row_that_has_changed_is_measured_anew(row, tmp_path):
    argv = [str(row), "--only", "small", "--root", str(tmp_path / "data"), "--seeds", "1", "--runs"]
    papers.main([*argv, "first"])
    row.write_text(row.read_text().replace("hidden=8", "hidden=16"))
    papers.main([*argv, "second"])
    stored = json.loads((tmp_path / "results" / "paper" / "small.json").read_text())
    assert (len(stored["rows"]), stored["config"]["backbone"]) == (1, "fasttext(dim=8, hidden=16)")


def test_the_page_has_a_line_for_every_row(row, tmp_path):
    papers.main([str(row), "--only", "small", "--root", str(tmp_path / "data"), "--seeds", "2"])
    found = papers_rows.read(row)[0]
    scores = [run["metrics"]["accuracy"] for run in found.runs]
    text = "\n".join(papers_table.section("paper", [found], []))
    assert f"accuracy {mean(scores):.3f} ± {stdev(scores):.3f} ({scores[0]:.3f}, {scores[1]:.3f})" in text
    assert "text(path=nowhere, val=0.2)" in text
    assert "- In print: small: accuracy 0.9 (Table 1)." in text
    assert "| accuracy 0.9 (Table 1) | 1, 2 |" in text
    assert "1. Fewer words.\n2. Another optimizer.\n" in text


def test_curves_and_beams_are_kept_and_shown(row, tmp_path):
    for part in ("train", "test"):
        (tmp_path / f"{part}.en").write_text("one\ntwo\nthree\n" * 20)
        (tmp_path / f"{part}.fr").write_text("un\ndeux\ntrois\n" * 20)
    base = {"data": f"parallel(path='{tmp_path}', source=en, target=fr, tokenizer=char)", "algebra": "quaternion"}
    base |= {"backbone": "transformer(dim=8, depth=1, heads=1, ffn=8)"}
    trainer = {"max_steps": 2, "val_check_interval": 1}
    said = ["# published: BLEU 28.4 (Table 3)", "# beam: 2", "# curve: exact_match"]
    values = yaml.safe_dump({"base": base, "axes": {"row": {"small": {"trainer": trainer}}}})
    row.write_text("\n".join([*said, values]))
    papers.main([str(row), "--seeds", "1"])
    measured = papers_rows.read(row)[0]
    (found,) = measured.runs
    assert [step for step, _ in found["curve"]] == [1, 2]
    assert found["beam"]["beam"] == 2
    assert "bleu" in found["beam"]
    text = "\n".join(papers_table.section("paper", [measured], []))
    assert "with a beam of 2 exact match" in text
    assert f"| small | {found['curve'][0][1]:.3f} | {found['curve'][1][1]:.3f} |" in text
    assert papers_plots.draw_curves([measured], "curve", "exact match").read_bytes().startswith(b"\x89PNG")


def test_data_lie_in_the_folder_of_their_name(tmp_path):
    for name in ("tinyshakespeare", "shakespeare_style", "iwslt15_envi_tst", "mlu"):
        (tmp_path / name).mkdir()
    found = {name: papers.rooted(name, tmp_path) for name in ("shakespeare", "shakespeare_style", "iwslt15", "mlu", "sst")}
    assert [Path(str(Spec.parse(spec).options.get("path", ""))).name for spec in found.values()] == [
        "tinyshakespeare",
        "shakespeare_style",
        "iwslt15_envi_tst",
        "",
        "",
    ]


def measured(name, algebra, *accuracies, data="trec", scope="all", backbone="lstm", published="", tested=None):
    runs = [{"metrics": {"loss": 1.0, "accuracy": value}, "tested": tested} for value in accuracies]
    config = {"backbone": backbone, "algebra": algebra, "data": data, "scope": scope}
    return papers_rows.Row("complex_order", name, config, published, (), tuple(runs))


def kinds_on(data, *values, setting="", net="lstm", seeds=1):
    rows = [
        measured(f"{data}_{net}_{kind}", "real", *[value] * seeds, data=data, backbone=net, published="accuracy 0.5 (Table 2)")
        for kind, value in zip(papers_glance.POSITIONS, values, strict=False)
    ]
    return [replace(row, extra={"setting": setting} if setting else {}) for row in rows]


def test_word_order_is_seen_at_a_glance():
    rows = [
        *kinds_on("trec", 0.1, 0.2, 0.3, 0.4, 0.5),
        *kinds_on("sst", 0.3, 0.4, 0.5, 0.6, 0.7, seeds=3),
        *kinds_on("mr", 0.9, 0.9, 0.9, 0.9),  # complex-order was not run
        *kinds_on("trec_print", 0.9, 0.8, 0.7, 0.6, 0.5, setting="closer to the paper"),
        *kinds_on("mpqa", 0.1, 0.2, 0.3, 0.4, 0.5, setting="ten folds"),
    ]
    assert papers_glance.order(rows) == [
        "| network | data sets | seeds | none | learned (PE) | trigonometric (TPE) | complex-vanilla | complex-order |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        "| lstm, first setting | `trec`, `sst` | 1 to 3 "
        "| 0.200 (0.500) | 0.300 (0.500) | 0.400 (0.500) | 0.500 (0.500) | 0.600 (0.500) |",
        "| lstm, closer to the paper | `trec` | 1 "
        "| 0.900 (0.500) | 0.800 (0.500) | 0.700 (0.500) | 0.600 (0.500) | 0.500 (0.500) |",
        "",
    ]


def test_what_is_near_guessing_and_what_leads_is_said():
    closer = "closer to the paper"
    rows = [*kinds_on("mr_print", 0.59, 0.9, 0.9, 0.9, 0.95, setting=closer, seeds=2), *kinds_on("trec_print", *[0.1] * 5)]
    assert "are none: lstm on `mr` 0.590: there" in papers_glance.near_guessing(rows)
    assert papers_glance.near_guessing(rows[1:5]) == papers_glance.near_guessing(rows[5:]) == ""
    told = [replace(row, published=f"accuracy 0.{number} (Table 2)") for number, row in enumerate(rows[:5], 1)]
    text = papers_glance.leads(papers_verdicts.comparisons(told))
    assert text.count("lstm on") == 4
    assert papers_glance.leads([]) == "It leads nowhere beyond chance."


def test_first_places_are_counted_where_every_kind_was_run():
    kinds = dict(zip(papers_glance.POSITIONS, (0.1, 0.2, 0.3, 0.4, 0.5), strict=True))
    rows = [
        measured(f"{data}_lstm_{kind}", "real", 1 - value if data == "mr" else value, published=f"accuracy {value} (Table 2)")
        for data in ("trec", "mr")
        for kind, value in kinds.items()
    ]
    text = papers_glance.first_places([*rows, measured("sst_lstm_order", "real", 0.9, published="accuracy 0.9 (Table 2)")])
    assert text.startswith(
        "complex-order is best, by any margin, for 1 of 2 pairs of a network and a data set here and for 2 of 2 in print;"
    )
    twice = [replace(row, runs=row.runs * 2) if row.name.startswith("mr") else row for row in rows]
    assert "a data set here (0 of the 1 with several seeds) and" in papers_glance.first_places(twice)


def test_algebras_are_seen_at_a_glance():
    rows = [
        measured("a", "phm-10", 0.7),
        measured("b", "quaternion", 0.6, scope="attention"),
        measured("c", "real", 0.5, 0.51),
        measured("d", "phm-2", 0.84, 0.86),
        measured("e", "real", 0.1, backbone="cnn"),  # nothing to compare it with
        measured("f", "quaternion", 0.4),
        *(measured(name, name, 0.5, data="iwslt15") for name in ("real", "quaternion", "octonion")),  # too little data
    ]
    assert papers_glance.algebras(rows) == [
        "| algebra | `trec`, accuracy |",
        "|---|---:|",
        "| `real` | 0.505 ± 0.007 |",
        "| `quaternion` | 0.400 |",
        "| `quaternion`, attention only | 0.600 |",
        "| `phm-2` | **0.850 ± 0.014** |",
        "| `phm-10` | 0.700 |",
        "",
    ]


def test_two_networks_on_the_same_data_are_told_apart():
    rows = [measured(net, name, 0.5, backbone=net) for net in ("lstm", "cnn") for name in ("real", "quaternion", "phm-2")]
    assert papers_glance.algebras(rows)[0] == "| algebra | `trec`, accuracy, lstm | `trec`, accuracy, cnn |"


def test_scores_are_told_apart():
    dot = measured("dot", "quaternion", 0.5, backbone="transformer/tiny")
    product = measured("product", "quaternion", 0.6, backbone="transformer/tiny(score=product)")
    hermitian = measured("hermitian", "complex_order", 0.6, backbone="transformer/tiny")
    real = measured("real", "real", 0.4, backbone="transformer/tiny")
    assert [row.score for row in (dot, product, hermitian, real)] == ["dot", "product", "hermitian", ""]
    assert papers_glance.algebra(dot) == "`quaternion`, `dot`"
    assert [line.partition(" |")[0] for line in papers_glance.algebras([dot, product, real])[2:5]] == [
        "| `real`",
        "| `quaternion`",
        "| `quaternion`, `product`",
    ]


def test_learning_rates_are_chosen_on_validation_rows():
    def row(name, validation, test):
        run = {"metrics": {"accuracy": test}, "chosen": [{"epoch": 1, "step": 9, "val_accuracy": validation}]}
        return papers_rows.Row("rates", name, {"data": "trec", "backbone": "transformer", "algebra": "real"}, runs=(run,))

    lines = papers_rates.rates([row("trec_pe_1e-3", 0.5, 0.9), row("trec_pe_3e-4", 0.6, 0.8), row("trec_none_1e-3", 0.4, 0.3)])
    assert [line for line in lines if line.startswith("|")] == [
        "| positions | 1e-3 | 3e-4 | test |",
        "|---|---:|---:|---:|",
        "| none | **0.400** |  | 0.300 |",
        "| learned (PE) | 0.500 | **0.600** | 0.800 |",
    ]
    assert papers_rates.rates([]) == []
    parts = ["trec_order_1e-3", "trec_order_normal_1e-3", "trec_print_transformer_order", "trec_vanilla_1e-3"]
    rows = [row(name, 0.5 + number / 10, 0.9) for number, name in enumerate([*parts, "trec_print_transformer_vanilla"])]
    assert re.findall(r"\d\.\d{3}", "".join(papers_rates.causes(rows)))[:5] == ["0.500", "0.600", "0.700", "0.800", "0.900"]
    assert papers_rates.causes(rows)[-2].endswith("On test rows the three of complex-order have 0.900, 0.900, 0.900.")
    assert papers_rates.causes(rows[:-1]) == []


@pytest.mark.parametrize(
    ("one", "other", "tested", "expected"),
    [
        ((0.50, 0.51), (0.80, 0.81), 1000, True),
        ((0.50, 0.51), (0.80, 0.81), 10, False),  # the test is too small
        ((0.30, 0.71), (0.60, 0.99), 1000, False),  # the seeds are too far apart
        ((0.50,), (0.80, 0.81), 1000, None),  # one seed does not tell
        ((0.50, 0.51), (0.53, 0.54), 100000, False),  # two seeds tell little: p = 0.051
        ((0.50, 0.51, 0.505), (0.53, 0.54, 0.535), 100000, True),
        ((0.50, 0.50), (0.53, 0.53), 100000, True),  # no spread at all
        ((0.50, 0.50), (0.50, 0.50), None, False),
        ((9.0, 9.1), (12.0, 12.1), None, True),  # no bound is known
    ],
)
def test_a_difference_counts_beyond_seeds_and_test(one, other, tested, expected):
    assert papers_chance.counts(papers_chance.Figure(one, tested), papers_chance.Figure(other, tested)) is expected


def test_differences_over_seeds_are_those_of_welch():
    rng = random.Random(0)
    for _ in range(200):
        one, other = ([rng.gauss(0, scale) for _ in range(rng.randint(2, 4))] for scale in (1, 3))
        said = papers_chance.counts(papers_chance.Figure(tuple(one)), papers_chance.Figure(tuple(other)))
        assert said is bool(ttest_ind(one, other, equal_var=False).pvalue < 0.05)


def folded(*values):
    """A row over folds of the same data, and one seed."""
    run = {"seed": 0, "tested": 10**6, "metrics": {"accuracy": mean(values)}}
    run["folds"] = [{"accuracy": value} for value in values]
    run["data_sha256"] = [f"fold {number}" for number in range(len(values))]
    return papers_rows.Row("paper", "row", {}, runs=(run,))


def test_one_seed_over_folds_is_judged_fold_by_fold():
    rng = random.Random(0)
    decided = []
    for _ in range(200):
        ease = [rng.gauss(0.8, 0.02) for _ in range(10)]  # of a fold, the same for both: only the differences count
        one, other = ([value + rng.gauss(lead, 0.004) for value in ease] for lead in (0, 0.005))
        # Nadeau and Bengio (2003) divide Student's t by sqrt(1 + k n_test / n_train), here of 1 / (k - 1)
        student = ttest_rel(one, other).statistic / math.sqrt(1 + 10 / 9)
        expected = abs(student) > t.ppf(0.975, 9) and abs(mean(one) - mean(other)) > 1.96 * math.sqrt(2 * 0.16 / 10**6)
        figures = [papers_chance.figure(folded(*values), "accuracy") for values in (one, other)]
        assert papers_chance.counts(*figures) is bool(expected)
        decided.append(expected)
    assert 40 < sum(decided) < 160
    three, four = (papers_chance.figure(folded(*values), "accuracy") for values in ((0.7, 0.8, 0.9), (0.7, 0.8, 0.9, 0.8)))
    assert papers_chance.counts(three, four) is None


def test_a_fold_is_its_mean_over_seeds():
    row = folded(0.5, 0.7)
    again = row.runs[0] | {"seed": 1, "folds": [{"accuracy": 0.6}, {"accuracy": 0.9}], "beam": {"accuracy": 0.9}}
    both = replace(row, runs=(*row.runs, again))
    assert papers_chance.figure(both, "accuracy").folds == pytest.approx({"fold 0": 0.55, "fold 1": 0.8})
    assert papers_chance.figure(replace(row, runs=(again,)), "accuracy", beam=True).folds == {}  # these are without a beam
    other = replace(row, runs=(*row.runs, again | {"data_sha256": ["fold 0", "fold 2"]}))
    assert papers_chance.figure(other, "accuracy").folds == {}


def test_chance_over_folds_is_told():
    def row(name, published, *values):
        said = measured(name, "real", published=f"accuracy {published} (Table 2)")
        return replace(said, runs=folded(*values).runs)

    (one,) = papers_verdicts.comparisons([row("mr_none", 0.7, 0.5, 0.6, 0.7), row("mr_order", 0.8, 0.7, 0.7, 0.7)])
    error = stdev([0.2, 0.1, 0.0]) * math.sqrt(1 / 3 + 1 / 2)
    assert papers_verdicts.lines(one)[1].endswith(f" Of a difference, over 3 folds: {error:.4f} to {error:.4f}.")
    assert one.pairs() == [(True, False, False)]


def test_a_printed_lead_may_be_more_than_is_found():
    rows = [
        measured("sva_real", "real", 0.90, 0.91, published="accuracy 0.7 (Table 5)", tested=1000),
        measured("sva_phm2", "phm-2", 0.90, 0.92, published="accuracy 0.9 (Table 5)", tested=1000),
    ]
    (one,) = papers_verdicts.comparisons(rows)
    assert one.pairs() == [(True, False, True)]
    assert papers_verdicts.tally(one.pairs()).endswith("; the lead is smaller than printed, beyond chance, in 1")


@pytest.fixture
def compared():
    """Three rows in print, of which one was not run."""
    rows = [
        measured("sva_real", "real", 0.90, 0.91, published="accuracy 0.948 (Table 5; Tay et al. 2019, Table 5)", tested=1000),
        measured("sva_phm2", "phm-2", 0.80, 0.81, published="accuracy 0.951 (Table 5)", tested=1000),
        measured("sva_phm4", "phm-4", published="accuracy 0.95 (Table 5)", tested=1000),
        measured("sva_octonion", "octonion", 0.5, tested=1000),
        measured("other", "real", 0.5, data="sst", published="accuracy 0.5 (Table 5)"),
    ]
    return papers_verdicts.comparisons(rows)


def test_three_lines_tell_what_was_found(compared):
    (one,) = compared
    in_print, here, order, _ = papers_verdicts.lines(one)
    assert in_print == "- In print (Table 5, lstm), accuracy: phm2 0.951, phm4 0.95, real 0.948."
    assert here.startswith(
        "- Here: real 0.905 ± 0.007, phm2 0.805 ± 0.007; not run: phm4. Here minus print: phm2 -0.146, the others -0.043 on "
        "average. Standard error of one row: up to 0.0050"
    )
    assert order.startswith(
        "- Order: contradicted, leads smaller; of one pair 0 as printed (0 beyond chance), 1 the other way round (1 beyond"
    )
    assert order.endswith("; the lead is smaller than printed, beyond chance, in 1.")


def test_another_setting_on_the_same_data_is_compared_by_itself():
    def row(name, value, **extra):
        found = measured(name, "real", value, value + 0.002, published=f"accuracy {value} (Table 2)", tested=1000)
        return replace(found, extra=extra)

    rows = [
        row("mr_none", 0.6),
        row("mr_pe", 0.7),
        *(row(f"mr_folds_{kind}", 0.8 + kind / 10, setting="ten folds") for kind in (0, 1)),
    ]
    compared = papers_verdicts.comparisons(rows)
    assert [(one.setting, len(one.rows)) for one in compared] == [("", 2), ("ten folds", 2)]
    assert "| `trec`, ten folds |" in papers_glance.verdicts(compared)[3]


def test_the_verdicts_stand_in_one_table(compared):
    line = papers_glance.verdicts(compared)[2]
    assert line == (
        "| Wang et al. 2020, Table 5, lstm | `trec` | phm2 | real | contradicted, leads smaller | 0 (0) | 1 (1) | 1 | 0 |"
    )


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], "not measured"),
        ([(True, True), (True, True)], "holds"),
        ([(True, True), (True, True), (True, False)], "holds in part"),
        ([(True, True), (True, True), (False, False)], "holds in part"),
        ([(True, True), (True, True), (True, None)], "holds in part"),
        ([*[(True, True)] * 2, *[(False, True)] * 2], "mixed"),
        ([*[(True, True)] * 4, *[(False, True)] * 1, *[(True, False)] * 5], "holds in part"),  # one of ten is chance
        ([*[(True, True)] * 1, *[(False, True)] * 4, *[(True, False)] * 5], "contradicted"),
        ([(True, True), (False, True)], "not decided"),  # one of two of a kind
        ([(True, False), (False, True), (False, True)], "contradicted"),
        ([(True, True), (False, False)], "not decided"),  # one of two comes by chance in one table of ten
        ([(True, None), (True, None), (False, False)], "too few seeds"),
        ([(None, False), (True, False, True), (False, False, True)], "not decided, leads smaller"),
        ([*[(True, True)] * 3, *[(True, False)] * 17], "not decided"),
        ([*[(True, True)] * 4, *[(True, False)] * 16], "holds in part"),
    ],
)
def test_verdicts(pairs, expected):
    assert papers_verdicts.verdict([papers_verdicts.Pair(*pair) for pair in pairs]) == expected


def test_only_leads_that_print_calls_significant_are_judged(compared):
    (one,) = compared
    rows = [*one.rows, measured("sva_phm8", "phm-8", 0.7, 0.71, published="accuracy 0.94 (Table 5)", tested=1000)]
    marked = [replace(row, extra={"significant": "Table 5: over all"} if row.name == "sva_phm8" else {}) for row in rows]
    (other,) = papers_verdicts.comparisons(marked)
    assert (len(one.pairs()), len(other.pairs())) == (1, 2)
    assert papers_verdicts.lines(other)[0].endswith("phm8 0.94. Significant there: phm8 over all.")
    elsewhere = [replace(row, extra={"significant": "Table 2: over all"}) for row in rows]
    assert len(papers_verdicts.comparisons(elsewhere)[0].pairs()) == 3


def test_a_minute_tells_each_verdict_once(compared):
    vectors = replace(measured("rotation", "phm-3", data="rotation"), runs=({"metrics": {"mse": 1e-13}},))
    many = [replace(compared[0], data=data, setting="ten folds") for data in ("mr", "sst", "subj", "trec")]
    lines = [
        line for line in papers_glance.minute([vectors], [*compared, replace(compared[0], net="cnn"), *many]) if "- **" in line
    ]
    assert lines == [
        "- **Contradicted, leads smaller**, more pairs beyond chance the other way round than chance gives, and not so "
        "as printed, and printed leads that are smaller here or not there: Wang et al. 2020, Table 5 (cnn on `trec`, lstm on "
        "`trec`, lstm on 4 data sets ten folds).",
        "- **As printed**, the loss goes to zero: Zhang et al. 2021, Figure 2 (rotation).",
        "- **Not run**, or run otherwise: [not here, and why](#not-here-and-why).",
    ]


def test_a_row_that_leads_on_one_of_several_data_sets_is_counted():
    assert papers_glance.often(["pe"], 5) == "pe 1"
    assert papers_glance.often(["pe"], 1) == "pe"
    assert papers_glance.often(["pe", "tpe", "pe"], 5) == "pe 2, tpe 1"
    assert papers_glance.often([], 5) == "-"


def test_equal_means_are_no_direction():
    rows = [
        measured("sva_real", "real", 0.9, 0.91, published="accuracy 0.7 (Table 5)", tested=1000),
        measured("sva_phm2", "phm-2", 0.9, 0.91 + 2e-8, published="accuracy 0.9 (Table 5)", tested=1000),
    ]
    (one,) = papers_verdicts.comparisons(rows)
    assert [pair.as_printed for pair in one.pairs()] == [None]
    assert ", 1 equal" in papers_verdicts.tally(one.pairs())
    assert papers_verdicts.numbers(one.pairs())[:2] == ["0 (0)", "0 (0)"]


def test_every_difference_is_said():
    """A hypercomplex Transformer of Tay et al. is measured with product scores or says that it is not."""
    rows = papers_rows.read_all()
    for row in rows:
        if (
            row.config["algebra"] == "quaternion"
            and row.net == "transformer"
            and "_order" not in row.name
            and row.score == "dot"
        ):
            assert not [table for table in row.tables if row.paper == "quaternion_nlp"], row.name
    assert all(row.notes for row in rows if row.config["data"] not in ("hamilton", "rotation"))


def test_the_page_is_that_of_the_results(tmp_path):
    papers_table.write(tmp_path / "papers.md")
    assert (tmp_path / "papers.md").read_text(encoding="utf-8") == papers_table.PAGE.read_text(encoding="utf-8")
    stored = {path.relative_to(papers_rows.RESULTS).with_suffix("") for path in papers_rows.RESULTS.glob("*/*.json")}
    assert stored == {Path(row.paper, row.name) for row in papers_rows.read_all() if row.runs}


def test_the_page_has_the_measured_recovery():
    page = recovery.PAGE.read_text(encoding="utf-8")
    shown = page.partition(recovery.BEGIN)[2].partition(recovery.END)[0]
    files = list(recovery.RESULTS.parent.glob("recovery*.json"))
    assert shown.count("### ") == len(files) >= 1
    for file in files:
        found = json.loads(file.read_text(encoding="utf-8"))
        assert f"\n{recovery.table(found)}\n" in shown
        assert {row["seed"] for row in found["rows"]} == {one["seed"] for one in found["teachers"]}


def test_the_verdict_on_recovery():
    reached = {
        "new weights": (21, None),
        "new weights, teacher": (9, 20),
        "projected": (7, None),
        "projected, teacher": (8, 30),
    }
    each = [(arm, seed, value) for arm, both in reached.items() for seed, value in enumerate(both)]
    rows = [{"arm": arm, "seed": seed, "reached": value, "test": value or 0} for arm, seed, value in each]
    said = recovery.verdict({"rows": rows, "teachers": [{"seed": 0}, {"seed": 1}]})
    assert said == (
        "`projected` was sooner than `new weights` with 1 of 2 seeds, in at most a third of the epochs with 1, and better in "
        "the test with 0; `projected, teacher` was sooner than `new weights, teacher` with 1 of 2 seeds, in at most a third of "
        "the epochs with 0, and better in the test with 1."
    )


def test_recovery_of_a_language_model_counts_bits_down_and_has_no_teacher(tmp_path, monkeypatch):
    bits = {"0-teacher": [3.0, 2.0], "0-0": [3.0, 2.5], "0-1": [2.9, 2.04]}
    monkeypatch.setattr(recovery, "fit", lambda run, **_: {"metrics": {"bits_per_character": bits[run.name][1]}, "seconds": 1})
    monkeypatch.setattr(recovery, "curve", lambda run, figure: bits[run.name])
    monkeypatch.setattr(recovery, "project", lambda teacher, algebra, start: {"mean": 0.9})
    monkeypatch.setattr(recovery, "RESULTS", tmp_path / "recovery.json")
    page = tmp_path / "page.md"
    page.write_text(f"above\n{recovery.BEGIN}\nold\n{recovery.END}\nbelow\n")
    monkeypatch.setattr(recovery, "PAGE", page)
    recovery.main(["--experiment", "shakespeare", "--algebra", "phm-4", "--seeds", "1"])
    found = json.loads((tmp_path / "recovery_shakespeare_phm-4.json").read_text())
    assert [(row["arm"], row["reached"]) for row in found["rows"]] == [("new weights", None), ("projected", 2)]
    assert (found["teachers"][0]["validation"], found["algebra"], found["epochs"]) == (2.0, "phm-4", 2)
    assert found["data"] == "shakespeare(max_length=64)"
    shown = page.read_text()
    assert "| projected | 2 | **2.040** (2.040) |" in shown
    assert "| new weights | more than 2 | **2.500** (2.500) |" in shown
    assert "validations, one every 200 steps, to within 0.05 bits of the teacher" in shown
    assert "old" not in shown
    assert "in at most a third of the validations with 0, and better in the test with 1." in shown
    assert shown.startswith("above\n")
    assert shown.endswith("\nbelow\n")


def test_recovery_goes_on_where_it_was_cut_off(tmp_path, monkeypatch):
    def fit(run_dir, **options):
        Path(run_dir).mkdir(parents=True)
        Path(run_dir, "config.yaml").write_text(yaml.safe_dump(options))
        Path(run_dir, "summary.json").write_text(json.dumps(options))

    monkeypatch.setattr(zoo, "fit", fit)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.csv").touch()
    assert recovery.fit(tmp_path / "run", seed=1) == {"seed": 1}
    assert not (tmp_path / "run" / "metrics.csv").exists()
    assert recovery.fit(tmp_path / "run", seed=2) == {"seed": 1}  # it has ended, and is not repeated
    assert recovery.fit(tmp_path / "run", backbone="vit") == {"backbone": "vit"}  # but with another network it is
