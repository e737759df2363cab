"""Cross-validation: every row is tested once, the means are means, and what is finished stays."""

import json
import os
import shutil
import signal
import statistics
from pathlib import Path

import pytest
import yaml
from lightning.pytorch import Callback
from zoo_experiments import folds as module
from zoo_experiments.folds import combine, cross_validate

import zoo
from tests.errors import raises
from zoo.data import ready
from zoo.data.text.local import ranking, text
from zoo.errors import InputError, Interrupted
from zoo.training import fit as fit_module
from zoo.training.options import Fit

TRAINER = {"max_epochs": 2, "accelerator": "cpu", "enable_progress_bar": False}
NAMES = ("fold-01", "fold-02", "fold-03")


@pytest.fixture(scope="module")
def place(tmp_path_factory, corpus) -> Path:
    folder = tmp_path_factory.mktemp("folds")
    for kind in ("text", "ranking"):
        corpus(folder / f"{kind}.tsv", kind)
    return folder


def options(place: Path, name: str, **changes: object) -> dict[str, object]:
    base = {"backbone": "fasttext(dim=8, hidden=8)", "algebra": "quaternion", "data": f"text(path='{place / 'text.tsv'}')"}
    return base | {"folds": 3, "run_dir": str(place / name), "trainer": TRAINER, "optimizer": {"lr": 0.05}} | changes


@pytest.fixture(scope="module")
def made(place):
    return zoo.fit(**options(place, "run"))


def read(place: Path, *names: str) -> dict[str, object]:
    return json.loads(place.joinpath(*names, "summary.json").read_text())


def test_every_fold_is_a_run_of_its_own(place, made):
    assert {path.name for path in (place / "run").iterdir()} == {*NAMES, "config.yaml", "summary.json"}
    for number, name in enumerate(NAMES):
        one = read(place, "run", name)
        assert zoo.registry.Spec.parse(one["data"]).options == {"path": str(place / "text.tsv"), "folds": 3, "fold": number}
        assert zoo.load(place / "run" / name).evaluate(split="test") == pytest.approx(one["metrics"], abs=1e-6)


def test_every_row_is_tested_once_and_never_trained_on_there(place, made):
    tested: list[tuple[str, int]] = []
    for number in range(3):
        splits = ready(text(str(place / "text.tsv"), folds=3, fold=number)).splits
        places = {name: {table.location(row) for row in range(len(table))} for name, table in splits.items()}
        assert sum(map(len, places.values())) == 60
        assert len(set().union(*places.values())) == 60
        assert ready(text(str(place / "text.tsv"), folds=3, fold=number, seed=7)).splits["test"].texts == splits["test"].texts
        tested += places["test"]
        config = zoo.checkpoint.read_config(place / "run" / NAMES[number])
        assert config["info"]["sizes"] == {name: len(table) for name, table in splits.items()}
        assert read(place, "run", NAMES[number])["data_sha256"] == made["data_sha256"][number]
    assert len(tested) == len(set(tested)) == 60
    assert len(set(made["data_sha256"])) == 3


def test_the_summary_combines_those_of_the_folds(place, made):
    folds = [read(place, "run", name) for name in NAMES]
    assert made == read(place, "run")
    assert made["folds"] == [fold["metrics"] for fold in folds]
    assert made["metrics"].keys() == made["std"].keys() == {"loss", "accuracy", "f1", "auroc"}
    for metric in made["metrics"]:
        values = [row[metric] for row in made["folds"]]
        assert made["metrics"][metric] == pytest.approx(statistics.mean(values))
        assert made["std"][metric] == pytest.approx(statistics.stdev(values))
    assert made["std"]["loss"] > 0
    assert set(folds[0]) - set(made) == {"checkpoint", "resumed_from"}
    assert set(made) - set(folds[0]) == {"std", "folds"}
    assert (made["data"], made["run_dir"]) == (f"text(path={place / 'text.tsv'})", str(place / "run"))
    same = ("backbone", "algebra", "scope", "init", "embedding", "vectors", "seed", "task", "versions", "device", "stayed_real")
    assert {key: made[key] for key in same} == {key: folds[0][key] for key in same}
    assert made["epochs"] == 2
    values = [fold["validation"]["value"] for fold in folds]
    assert made["validation"] == {"metric": "accuracy", "mode": "max", "value": pytest.approx(statistics.mean(values))}
    assert made["seconds"] == pytest.approx(sum(fold["seconds"] for fold in folds), abs=0.02)


def test_the_configuration_of_a_fold_repeats_that_fold(place, made, tmp_path):
    config = yaml.safe_load((place / "run" / "config.yaml").read_text())
    assert (config["folds"], config["data"]) == (3, f"text(path={place / 'text.tsv'})")
    config = yaml.safe_load((place / "run" / "fold-02" / "config.yaml").read_text())
    assert "folds" not in config
    assert zoo.fit(**config, run_dir=str(tmp_path / "one"))["metrics"] == made["folds"][1]


def test_questions_stay_whole(place):
    data = f"ranking(path='{place / 'ranking.tsv'}')"
    made = zoo.fit(**options(place, "ranked", data=data, algebra="real", backbone="lstm(dim=8, hidden=8)"))
    assert made["metrics"].keys() == {"loss", "map", "mrr", "top1"}
    asked = [set(ready(ranking(str(place / "ranking.tsv"), folds=3, fold=i)).splits["test"].texts[0]) for i in range(3)]
    assert sum(map(len, asked)) == len(set().union(*asked)) == 15


# --- refused before anything is trained ---


@pytest.fixture
def split(place, tmp_path) -> Path:
    header, *lines = (place / "text.tsv").read_text().splitlines()
    for name in ("train", "test"):
        (tmp_path / f"{name}.tsv").write_text("\n".join([header, *lines]))
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "code", "value"),
    [
        ({"folds": 1}, "invalid", "folds=1"),
        ({"run_dir": "TAKEN"}, "conflict", "--run-dir"),
        ({"folds": 61}, "data", "folds=60"),
        ({"data": "digits", "backbone": "vit(dim=16, depth=1, heads=1)"}, "conflict", "'digits'"),
        ({"trainer": {"max_epoch": 3}}, "unknown", "max_epoch"),
        ({"optimizer": {"name": "adamv"}}, "invalid", "adamv"),  # which only a run finds
        ({"data": "text(path=., fold=1)"}, "conflict", "fold"),
        ({"data": "SPLIT"}, "conflict", "split"),
    ],
    ids=str,
)
def test_mistakes_leave_no_folder(place, split, changes, code, value):
    special = {"SPLIT": f"text(path='{split}')", "TAKEN": str(split)}
    changes = {key: special.get(str(other), other) for key, other in changes.items()}
    before = sorted(split.rglob("*"))
    with raises(code, value):
        zoo.fit(**options(place, "refused", **changes))
    assert not (place / "refused").exists()
    assert sorted(split.rglob("*")) == before


# --- interrupted ---


@pytest.mark.parametrize("error", [KeyboardInterrupt, InputError, RuntimeError])
def test_what_is_finished_stays(place, tmp_path, monkeypatch, error):
    whole = module.fit

    def second_fails(one, extension):
        if one.run_dir.endswith("fold-02"):
            raise error("stop")
        return whole(one, extension=extension)

    monkeypatch.setattr(module, "fit", second_fails)
    with pytest.raises(error) as caught:
        cross_validate(zoo.training.options.build(Fit, options(place, "", run_dir=str(tmp_path / "run"))))
    if error is KeyboardInterrupt:
        assert str(caught.value).endswith(f"1 of 3 folds are finished; resume with: zoo fit --resume {tmp_path / 'run'}")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"config.yaml", "fold-01"}
    assert zoo.load(tmp_path / "run" / "fold-01").evaluate(split="test")["loss"] > 0


class Press(Callback):
    """Presses Ctrl-C in the first step of an epoch."""

    def __init__(self, epoch, times):
        self.epoch, self.times = epoch, times

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if (trainer.current_epoch, batch_idx) == (self.epoch, 0):
            for _ in range(self.times):
                os.kill(os.getpid(), signal.SIGINT)


def stopped(place, fold, epoch=1, times=1):
    """Begin three folds, press Ctrl-C in one of them, and return their folder and what was said."""
    whole = fit_module.make_trainer

    def pressed(settings, folder, *args):
        trainer = whole(settings, folder, *args)
        trainer.callbacks += [Press(epoch, times)] if folder.name == fold else []
        return trainer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit_module, "make_trainer", pressed)
        with pytest.raises(Interrupted) as caught:
            zoo.fit(**options(place, "stopped"))
    return place / "stopped", str(caught.value)


@pytest.fixture
def again(place):
    """The folder of the finished folds, in which others may be stopped."""
    yield place
    shutil.rmtree(place / "stopped", ignore_errors=True)


@pytest.mark.parametrize(("how", "epoch"), [("resume", 1), ("auto", 1), ("resume", 0)])
def test_folds_that_were_stopped_go_on_to_the_same_figures(again, made, how, epoch, capsys):
    run, said = stopped(again, "fold-02", epoch, times=2 - epoch)
    assert any((run / "fold-02" / "checkpoints").glob("*.ckpt")) is bool(epoch)  # Ctrl-C twice writes none
    assert said.endswith(f"1 of 3 folds are finished; resume with: zoo fit --resume {run}")
    first = (run / "fold-01" / "summary.json").stat().st_mtime_ns
    words = {"resume": str(run)} if how == "resume" else options(again, "", run_dir=str(run), resume="auto")
    found = zoo.fit(**words)
    own = ("seconds", "run_dir")
    assert {key: found[key] for key in found if key not in own} == {key: made[key] for key in made if key not in own}
    assert (run / "fold-01" / "summary.json").stat().st_mtime_ns == first
    resumed = f"resuming {run / 'fold-02'} after epoch 0002 step 00000003\n" in capsys.readouterr().out
    assert resumed is bool(epoch)
    assert [read(run, name)["resumed_from"] is not None for name in NAMES] == [False, bool(epoch), False]
    assert (run / "fold-02" / "metrics.csv").read_text() == (again / "run" / "fold-02" / "metrics.csv").read_text()


def test_a_first_fold_without_a_checkpoint_leaves_nothing(again):
    run, _ = stopped(again, "fold-01", epoch=0, times=2)
    assert not run.exists()


def test_other_or_finished_folds_do_not_go_on(again, made):
    run, _ = stopped(again, "fold-01")
    before = sorted(run.rglob("*"))
    with raises("mismatch", "stopped", "optimizer.lr=0.05"):
        zoo.fit(resume=str(run), optimizer={"lr": 0.1})
    assert sorted(run.rglob("*")) == before
    zoo.fit(resume=str(run / "fold-01"), trainer=TRAINER | {"max_epochs": 3})
    with raises("mismatch", "fold-01", "trainer.max_epochs=3"):
        zoo.fit(resume=str(run))
    config = (run / "fold-01" / "config.yaml").read_text()
    (run / "fold-01" / "config.yaml").write_text(config.replace("max_epochs: 3", "max_epochs: 2"))
    (run / "fold-01" / "summary.json").write_text('{"metrics": {}, "parameters": {}}')
    with raises("invalid", "summary.json"):
        zoo.fit(resume=str(run))
    with raises("conflict", "summary.json"):
        zoo.fit(resume=str(again / "run"))


# --- numbers that are none ---


def test_a_fold_whose_metric_is_not_finite_makes_the_mean_none(made):
    shared = {key: made[key] for key in made if key not in ("metrics", "std", "folds")}
    rows = [shared | {"metrics": {"loss": loss, "accuracy": 0.25 * k}} for k, loss in ((1, None), (3, 1.0))]
    found = combine(rows)
    assert found["metrics"] == {"loss": None, "accuracy": 0.5}
    assert found["std"] == {"loss": None, "accuracy": pytest.approx(0.5 / 2**0.5)}
