"""The scripts behind the tables run, and the tables say what was measured."""

import json
from pathlib import Path

import pytest

from benchmarks import digits, papers, papers_glance, papers_plots, papers_table, readme
from zoo.registry import Spec


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


@pytest.fixture
def row(tmp_path, corpus, monkeypatch):
    """A row of a paper that trains in a second, its results and the page in a folder of their own."""
    (tmp_path / "data" / "text_small").mkdir(parents=True)
    corpus(tmp_path / "data" / "text_small" / "train.tsv", "text")
    config = tmp_path / "configs" / "paper" / "small.yaml"
    config.parent.mkdir(parents=True)
    options = ["backbone: fasttext(dim=8, hidden=8)", "algebra: quaternion", "data: text(path=nowhere)"]
    said = ["# published: accuracy 0.9 (Table 1)", "# also: text(path=nowhere, val=0.2)"]
    config.write_text("\n".join([*said, *options, "trainer: {max_epochs: 1}"]))
    monkeypatch.setattr(papers, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(papers_table, "write", lambda: None)
    monkeypatch.setattr(papers_plots, "IMAGES", tmp_path / "images")
    return config


def test_a_row_of_a_paper_is_measured_once_for_each_seed(row, tmp_path):
    argv = [str(row), "--root", str(tmp_path / "data"), "--seeds"]
    papers.main([*argv, "1"])
    out = tmp_path / "results" / "paper" / "small.json"
    first = json.loads(out.read_text())
    papers.main([*argv, "2"])
    both = json.loads(out.read_text())
    assert [found["seed"] for found in both["rows"]] == [0, 1]
    assert both["rows"][0] == first["rows"][0]
    assert both["config"] == papers.read(row)[0]
    kept = {"parameters", "metrics", "chosen", "versions", "data_sha256", "commit", "machine", "also"}
    assert kept <= both["rows"][0].keys()
    (choice,) = both["rows"][0]["chosen"]
    assert choice.keys() == {"epoch", "step", "val_accuracy"}
    assert list(both["rows"][0]["also"]) == ["text(path=nowhere, val=0.2)"]


def test_a_row_that_has_changed_is_measured_anew(row, tmp_path):
    argv = [str(row), "--root", str(tmp_path / "data"), "--seeds", "1"]
    papers.main(argv)
    row.write_text(row.read_text().replace("hidden=8", "hidden=16"))
    papers.main(argv)
    stored = json.loads((tmp_path / "results" / "paper" / "small.json").read_text())
    assert (len(stored["rows"]), stored["config"]["backbone"]) == (1, "fasttext(dim=8, hidden=16)")


def test_the_page_has_a_line_for_every_row(row, tmp_path):
    papers.main([str(row), "--root", str(tmp_path / "data"), "--seeds", "2"])
    stored = papers_table.rows_of("paper", tmp_path / "results")
    scores = [found["metrics"]["accuracy"] for found in stored["small"]["rows"]]
    lines = papers_table.section("paper", stored)
    assert any(f"accuracy **{sum(scores) / 2:.3f}** ({scores[0]:.3f}, {scores[1]:.3f})" in line for line in lines)
    assert any("text(path=nowhere, val=0.2)" in line for line in lines)


def test_curves_and_beams_are_kept_and_shown(row, tmp_path):
    for part in ("train", "test"):
        (tmp_path / f"{part}.en").write_text("one\ntwo\nthree\n" * 20)
        (tmp_path / f"{part}.fr").write_text("un\ndeux\ntrois\n" * 20)
    said = ["# published: BLEU 28.4 (Table 3)", "# beam: 2", "# curve: exact_match"]
    data = f"data: \"parallel(path='{tmp_path}', source=en, target=fr, tokenizer=char)\""
    options = ["backbone: 'transformer(dim=8, depth=1, heads=1, ffn=8)'", "algebra: quaternion", data]
    row.write_text("\n".join([*said, *options, "trainer: {max_steps: 2, val_check_interval: 1}"]))
    papers.main([str(row), "--seeds", "1"])
    stored = papers_table.rows_of("paper", tmp_path / "results")
    (found,) = stored["small"]["rows"]
    assert [step for step, _ in found["curve"]] == [1, 2]
    assert found["beam"]["beam"] == 2
    assert "bleu" in found["beam"]
    text = "\n".join(papers_table.section("paper", stored))
    assert "with a beam of 2 exact match" in text
    assert f"| small | {found['curve'][0][1]:.3f} | {found['curve'][1][1]:.3f} |" in text
    assert papers_plots.draw_curves(stored, "curve", "exact match").read_bytes().startswith(b"\x89PNG")


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


def stored(algebra, *accuracies, data="trec", scope="all", backbone="lstm"):
    rows = [{"metrics": {"loss": 1.0, "accuracy": value}} for value in accuracies]
    return {"config": {"backbone": backbone, "algebra": algebra, "data": data, "scope": scope}, "rows": rows}


def test_word_order_is_seen_at_a_glance():
    rows = {
        "sst_lstm_none": stored("real", 0.5, data="sst"),
        "trec_lstm_none": stored("real", 0.6, 0.8),
        "trec_lstm_order": stored("complex_order", 0.75),
        "trec_lstm_order_octonion": stored("octonion", 0.1),
    }
    lines = papers_glance.order(rows, {"trec_lstm_none": "accuracy 0.858 with word2vec (Table 2)"})
    assert lines[0] == "| lstm, positions | `trec` | `sst` |"
    assert lines[2] == "| none | 0.700 ± 0.141 (0.858) | **0.500** |"
    assert lines[6] == "| complex-order | **0.750** |  |"
    assert len(lines) == 8


def test_algebras_are_seen_at_a_glance():
    rows = {
        "a": stored("phm-10", 0.7),
        "b": stored("quaternion", 0.6, scope="attention"),
        "c": stored("real", 0.5),
        "d": stored("phm-2", 0.8, 0.9),
        "e": stored("real", 0.1, backbone="cnn"),  # nothing to compare it with
        "f": stored("quaternion", 0.4),
    }
    assert papers_glance.algebras({"paper": rows}) == [
        "| algebra | `trec`, accuracy |",
        "|---|---:|",
        "| `real` | 0.500 |",
        "| `quaternion` | 0.400 |",
        "| `quaternion`, attention only | 0.600 |",
        "| `phm-2` | 0.850 ± 0.071 |",
        "| `phm-10` | 0.700 |",
        "",
    ]


def test_the_page_is_that_of_the_results(tmp_path):
    papers_table.write(tmp_path / "papers.md")
    assert (tmp_path / "papers.md").read_text(encoding="utf-8") == papers_table.PAGE.read_text(encoding="utf-8")
    for paper in papers_table.PAPERS:
        for name, found in papers_table.rows_of(paper).items():
            assert papers.read(papers_table.ROOT / "configs" / "papers" / paper / f"{name}.yaml")[0] == found["config"], name
