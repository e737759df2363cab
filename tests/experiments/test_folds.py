"""Cross-validation: every row is tested once, the summary, and interrupted folds."""

import json
import os
import shutil
import signal
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import Timer
from zoo_experiments.folds import combine

import zoo
from tests.errors import raises
from zoo.checkpoint import manifest
from zoo.data import ready
from zoo.data.text import text
from zoo.errors import Interrupted
from zoo.training import fit as fit_module
from zoo.training.folder import read_summary
from zoo.training.summary import Summary, spread

TRAINER = {"max_epochs": 2, "accelerator": "cpu", "enable_progress_bar": False}
NAMES = ("fold-01", "fold-02", "fold-03")


@pytest.fixture(scope="module")
def workdir(tmp_path_factory, corpus) -> Path:
    folder = tmp_path_factory.mktemp("folds")
    corpus(folder / "text.tsv", "text")
    return folder


def options(workdir: Path, name: str, **changes: object) -> dict[str, object]:
    base = {"backbone": "fasttext(dim=8, hidden=8)", "algebra": "quaternion", "data": f"text(path='{workdir / 'text.tsv'}')"}
    return base | {"folds": 3, "run_dir": str(workdir / name), "trainer": TRAINER, "optimizer": {"lr": 0.05}} | changes


@pytest.fixture(scope="module")
def summary(workdir):
    return zoo.fit(**options(workdir, "run"))


def read(workdir: Path, *names: str) -> dict[str, object]:
    return json.loads(workdir.joinpath(*names, "summary.json").read_text())


def test_every_fold_is_a_run(workdir, summary):
    assert {path.name for path in (workdir / "run").iterdir()} == {*NAMES, "config.yaml", "summary.json"}
    for number, name in enumerate(NAMES):
        fold = read(workdir, "run", name)
        assert zoo.registry.Spec.parse(fold["data"]).options == {"path": str(workdir / "text.tsv"), "folds": 3, "fold": number}
        assert zoo.load(workdir / "run" / name).evaluate(split="test") == pytest.approx(fold["metrics"], abs=1e-6)


def test_parallel_folds_give_the_same_summary(workdir, summary):
    parallel = zoo.fit(**options(workdir, "parallel", jobs=2))
    assert {**parallel, "seconds": 0, "run_dir": ""} == {**summary, "seconds": 0, "run_dir": ""}
    with raises("conflict", "--folds"):
        zoo.fit(**options(workdir, "single", jobs=2, folds=None))
    with raises("invalid", "jobs=0"):
        zoo.fit(**options(workdir, "none", jobs=0))


def test_every_row_is_tested_once_and_not_trained_on_in_its_fold(workdir, summary):
    tested: list[tuple[str, int]] = []
    for number in range(3):
        splits = ready(text(str(workdir / "text.tsv"), folds=3, fold=number)).splits
        locations = {name: {table.location(row) for row in range(len(table))} for name, table in splits.items()}
        assert sum(map(len, locations.values())) == 60
        assert len(set().union(*locations.values())) == 60
        tested += locations["test"]
        config = zoo.checkpoint.read_config(workdir / "run" / NAMES[number])
        assert config.info["sizes"] == {name: len(table) for name, table in splits.items()}
        assert read(workdir, "run", NAMES[number])["data_sha256"] == summary["data_sha256"][number]
    assert len(tested) == len(set(tested)) == 60
    assert len(set(summary["data_sha256"])) == 3


def test_the_summary_combines_those_of_the_folds(workdir, summary):
    folds = [read(workdir, "run", name) for name in NAMES]
    assert summary == read(workdir, "run")
    assert summary["folds"] == [fold["metrics"] for fold in folds]
    assert summary["metrics"].keys() == summary["std"].keys() == {"loss", "accuracy", "f1", "auroc"}
    for metric in summary["metrics"]:
        values = [row[metric] for row in summary["folds"]]
        assert summary["metrics"][metric] == pytest.approx(statistics.mean(values))
        assert summary["std"][metric] == pytest.approx(statistics.stdev(values))
    assert summary["std"]["loss"] > 0
    values = [fold["validation"]["value"] for fold in folds]
    assert summary["validation"] == {"metric": "accuracy", "mode": "max", "value": pytest.approx(statistics.mean(values))}
    assert summary["seconds"] == pytest.approx(sum(fold["seconds"] for fold in folds), abs=0.02)


def test_a_metric_that_is_undefined_in_a_fold_has_no_mean(workdir):
    rows = [read_summary(workdir / "run" / name) for name in NAMES]
    reason = {"auroc": "the targets have 1 of 2 classes"}
    rows[1] = replace(rows[1], metrics=rows[1].metrics | {"auroc": None}, undefined=reason)
    combined = combine(rows)
    assert (combined.metrics["auroc"], combined.std["auroc"]) == (None, None)
    assert combined.metrics["loss"] is not None
    assert combined.undefined == {"auroc": "in fold 2, the targets have 1 of 2 classes"}
    assert manifest.number(combined.metrics["auroc"]) + spread(combined, "auroc") == "undefined"


def test_the_configuration_of_a_fold_repeats_that_fold(workdir, summary, tmp_path):
    config = yaml.safe_load((workdir / "run" / "config.yaml").read_text())
    assert (config["folds"], config["data"]) == (3, f"text(path={workdir / 'text.tsv'})")
    config = yaml.safe_load((workdir / "run" / "fold-02" / "config.yaml").read_text())
    assert "folds" not in config
    assert zoo.fit(**config, run_dir=str(tmp_path / "one"))["metrics"] == summary["folds"][1]


# --- refused before anything is trained ---


@pytest.mark.parametrize(
    ("changes", "code", "value"),
    [
        ({"folds": 1}, "invalid", "folds=1"),
        ({"folds": 61}, "data", "folds=60"),
        ({"data": "digits", "backbone": "vit(dim=16, depth=1, heads=1)"}, "conflict", "cuts texts into folds, not 'digits'"),
        ({"optimizer": {"name": "adamv"}}, "unknown", "adamv"),  # which only a run checks
        ({"trainer": {"fast_dev_run": True}}, "conflict", "fast_dev_run"),
        # whose state the next fold would inherit
        pytest.param({"trainer": {"callbacks": [Timer()]}}, "invalid", "class_path", id="callback"),
        ({"data": "text(path=text.tsv, fold=2)"}, "conflict", "fold=2"),
        ({"data": "text(path=text.tsv, folds=5)"}, "conflict", "folds=5"),
    ],
    ids=str,
)
def test_mistakes_leave_no_folder(workdir, changes, code, value):
    with raises(code, value):
        zoo.fit(**options(workdir, "refused", **changes))
    assert not (workdir / "refused").exists()


def test_parallel_folds_that_all_fail_leave_no_folder_and_name_no_log_in_it(workdir):
    with raises("failed", "fold-01 failed", "fold-03 failed", "nothing is saved") as caught:
        zoo.fit(**options(workdir, "refused", jobs=2, trainer=TRAINER | {"strategy": "nothing"}))
    assert not (workdir / "refused").exists()
    assert "refused" not in str(caught.value)


# --- interrupted ---


class Press(Callback):
    """Sends SIGINT in the first step of an epoch."""

    def __init__(self, epoch, times):
        self.epoch, self.times = epoch, times

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if (trainer.current_epoch, batch_idx) == (self.epoch, 0):
            for _ in range(self.times):
                os.kill(os.getpid(), signal.SIGINT)


def stopped(workdir, fold, epoch=1, times=1):
    """Interrupt the training of three folds in one of them; return their folder and the message."""
    make_trainer = fit_module.make_trainer

    def pressed(settings, folder, *args):
        trainer = make_trainer(settings, folder, *args)
        trainer.callbacks += [Press(epoch, times)] if folder.name == fold else []
        return trainer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit_module, "make_trainer", pressed)
        with pytest.raises(Interrupted) as caught:
            zoo.fit(**options(workdir, "stopped"))
    return workdir / "stopped", str(caught.value)


@pytest.fixture
def again(workdir):
    """The working directory with the finished folds; interrupted ones are removed afterwards."""
    yield workdir
    shutil.rmtree(workdir / "stopped", ignore_errors=True)


@pytest.mark.parametrize(("how", "epoch"), [("resume", 1), ("auto", 0)])
def test_interrupted_folds_resume_to_the_same_metrics(again, summary, how, epoch):
    run, message = stopped(again, "fold-02", epoch, times=2 - epoch)
    assert message.endswith(f"1 of 3 folds are finished; resume with: zoo fit --resume {run}")
    first = (run / "fold-01" / "summary.json").stat().st_mtime_ns
    words = {"resume": str(run)} if how == "resume" else options(again, "", run_dir=str(run), resume="auto")
    resumed = zoo.fit(**words)
    equal = resumed.keys() - {"seconds", "run_dir"}
    assert {key: resumed[key] for key in equal} == {key: summary[key] for key in equal}
    assert resumed.keys() == summary.keys()
    assert (run / "fold-01" / "summary.json").stat().st_mtime_ns == first
    assert [read(run, name)["resumed_from"] is not None for name in NAMES] == [False, bool(epoch), False]
    assert (run / "fold-02" / "metrics.csv").read_text() == (again / "run" / "fold-02" / "metrics.csv").read_text()


def test_a_first_fold_without_a_checkpoint_leaves_no_folder(again):
    run, _ = stopped(again, "fold-01", epoch=0, times=2)
    assert not run.exists()


def test_changed_folds_are_not_resumed(again, summary):
    run, _ = stopped(again, "fold-01")
    before = sorted(run.rglob("*"))
    with raises("mismatch", "fold-01", "optimizer.lr=0.05"):
        zoo.fit(resume=str(run), optimizer={"lr": 0.1})
    assert sorted(run.rglob("*")) == before
    assert zoo.fit(resume=str(again / "run")) == summary


def test_folds_of_changed_data_are_not_resumed(again, summary):
    run, _ = stopped(again, "fold-02", epoch=0, times=2)
    file = again / "text.tsv"
    before = file.read_text()
    file.write_text(before.replace("yes", "other", 1).replace("other", "no", 1))
    with raises("mismatch", run, "have changed"):
        zoo.fit(resume=str(run))
    file.write_text(before)
    assert zoo.fit(resume=str(run))["metrics"] == summary["metrics"]


def test_the_mean_is_none_if_a_metric_is_not_finite():
    rows = [Summary(metrics={"loss": loss, "accuracy": 0.25 * k}) for k, loss in ((1, None), (3, 1.0))]
    combined = combine(rows)
    assert combined.metrics == {"loss": None, "accuracy": 0.5}
    assert combined.std == {"loss": None, "accuracy": pytest.approx(0.5 / 2**0.5)}
