"""Resume runs in their folder, from the newest intact checkpoint, without silent changes of options."""

import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
import yaml
from lightning.pytorch import Callback

import zoo
from tests.errors import raises
from tests.faults.process import srun, zoo_command
from zoo.training.checkpoints import Checkpoints
from zoo.training.resume import checkpoint_files, newest, read_checkpoint


@pytest.fixture
def half(options):
    """Options of a run of two epochs, and its folder."""
    chosen = options(optimizer={"lr": 0.01}, schedule={"name": "constant", "warmup": 0.0}, trainer={"max_epochs": 2})
    return chosen, Path(zoo.fit(**chosen)["run_dir"])


def test_another_number_of_processes_trains_on_the_same_rows(tmp_path, monkeypatch, capfd):
    """Two processes and then one take the same steps as one process, except for rounding."""
    monkeypatch.chdir(tmp_path)
    chosen = {"backbone": "vit(dim=16,depth=1,heads=1)", "algebra": "quaternion", "data": "digits(augment='none')"}
    chosen |= {"schedule": {"name": "constant", "warmup": 0.0}, "optimizer": {"name": "sgd", "lr": 0.1}}
    Path("config.yaml").write_text(yaml.safe_dump(chosen))
    words = ["-c", "config.yaml", "--trainer.accelerator=cpu", "--run-dir=run", "--batch-size=24"]
    ended = [process.ended(300) for process in srun(tmp_path, ["fit", *words, "--trainer.max_steps=3"])]
    assert [process.code for process in ended] == [0, 0], ended
    alone = {"accelerator": "cpu", "max_steps": 6, "devices": 1}
    with raises("mismatch", "2 x 24", "1 x 24", "--batch-size 48"):
        zoo.fit(resume="run", batch_size=24, trainer=alone)
    zoo.fit(resume="run", batch_size=48, trainer=alone)
    assert "2 -> 1 processes" in capfd.readouterr().out
    zoo.fit(**chosen, batch_size=48, trainer=alone, run_dir="whole")
    weights = [read_checkpoint(checkpoint_files(Path(run) / "checkpoints")[-1])["state_dict"] for run in ("run", "whole")]
    for name, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][name], rtol=1e-4, atol=1e-5)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def names(run):
    return sorted(path.name for path in checkpoint_files(Path(run) / "checkpoints"))


def folders():
    return sorted(Path("runs").iterdir())


def test_changed_data_are_refused(corpus, tmp_path, monkeypatch):
    """Folds are cut anew, and rows that were trained on could be tested."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "texts.tsv"
    corpus(path, "text", 60)
    chosen = {"backbone": "fasttext(dim=8)", "algebra": "real", "data": f"text(path='{path}')", "run_dir": "run"}
    zoo.fit(**chosen, schedule={"name": "constant", "warmup": 0.0}, trainer={"max_epochs": 1, "accelerator": "cpu"})
    path.write_text(path.read_text() + path.read_text().splitlines()[-1] + "\n")
    with raises("mismatch", "run"):
        zoo.fit(resume="run", trainer={"max_epochs": 2, "accelerator": "cpu"})


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"optimizer": {"lr": 0.5}}, "optimizer.lr=0.01, not 0.5"),
        ({"batch_size": 16}, "batch_size=32, not 16"),
        ({"ema": 0.5}, "ema=None, not 0.5"),
    ],
    ids=str,
)
def test_changes_of_fixed_options_are_refused(half, changed, named):
    _, run = half
    before = folders(), names(run), (run / "config.yaml").read_text()
    with raises("mismatch", named):
        zoo.fit(resume=str(run), trainer={"max_epochs": 3}, **changed)
    assert (folders(), names(run), (run / "config.yaml").read_text()) == before
    assert (run / "summary.json").exists()


def test_a_finished_run_can_be_trained_further(half, capsys):
    _, run = half
    with raises("conflict", str(run), "--trainer.max_epochs"):
        zoo.fit(resume=str(run))
    capsys.readouterr()
    summary = zoo.fit(resume=str(run), trainer={"max_epochs": 4}, num_workers=1)
    assert capsys.readouterr().out.splitlines()[0] == (
        f"resuming {run} after epoch 0002; changed: num_workers 0 -> 1, trainer.max_epochs 2 -> 4"
    )
    assert (summary["epochs"], summary["run_dir"]) == (4, str(run))
    assert summary["resumed_from"] == str(run / "checkpoints" / "epoch-0002.ckpt")
    assert folders() == [run]
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["trainer"]["max_epochs"] == 4
    assert "resume" not in config


# --- damaged checkpoints ---


@pytest.fixture
def stopped(options):
    """A run of four epochs that crashed in the third."""

    class Crash(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            if trainer.current_epoch == 2 and batch_idx == 1:
                raise RuntimeError("out of memory")

    chosen = options(run_dir="run", optimizer={"lr": 1e-3}, trainer={"max_epochs": 4, "limit_train_batches": 4})
    whole = zoo.fit(**chosen | {"run_dir": "whole"})
    with pytest.raises(RuntimeError, match="out of memory"):
        zoo.fit(**chosen | {"trainer": chosen["trainer"] | {"callbacks": [Crash()]}})
    return whole


def resume():
    return zoo.fit(resume="run", trainer={"callbacks": None})


@pytest.mark.parametrize("damage", ["flip", "empty"])
def test_a_damaged_newest_checkpoint_is_reported_and_the_previous_one_is_used(stopped, damage, capsys):
    last = checkpoint_files(Path("run/checkpoints"))[-1]
    assert last.name == "epoch-0002.ckpt"
    flip(last) if damage == "flip" else last.write_bytes(b"")
    capsys.readouterr()
    summary = resume()
    err = capsys.readouterr().err.splitlines()
    assert len([line for line in err if line.startswith("zoo: ")]) == 1
    assert "epoch-0002.ckpt" in err[0]
    assert err[0].endswith("using the previous checkpoint, epoch-0001.ckpt")
    assert summary["metrics"] == stopped["metrics"]
    files = [Path(run, "model", "model.safetensors").read_bytes() for run in ("run", "whole")]
    assert files[0] == files[1]


def test_a_run_without_an_intact_checkpoint_is_refused(stopped):
    for path in checkpoint_files(Path("run/checkpoints")):
        flip(path)
    with raises("corrupt", "epoch-0002.ckpt"):
        resume()


@pytest.mark.parametrize("damage", ["flip", "removed"])
def test_a_damaged_best_checkpoint_is_never_used(options, damage):
    # At this rate no output changes: of equal epochs the first is the best.
    summary = zoo.fit(**options(run_dir="run", seed=3, optimizer={"lr": 1e-30}, trainer={"max_epochs": 3}))
    best = Path(summary["checkpoint"])
    later = [path for path in checkpoint_files(Path("run/checkpoints")) if path != best]
    assert later  # else the best is the newest, and the newest is checked above
    shutil.rmtree("run/model")
    Path("run/summary.json").unlink()
    flip(best) if damage == "flip" else best.unlink()
    with raises("corrupt", best.name):
        zoo.fit(resume="run")
    assert not Path("run/model").exists()


def end_after(left):
    """End this process after a number of file operations."""

    def counted(real):
        def call(*args, **kwargs):
            nonlocal left
            left -= 1
            if left < 0:
                os._exit(9)
            return real(*args, **kwargs)

        return call

    for name in ("replace", "fsync", "unlink"):
        setattr(os, name, counted(getattr(os, name)))


@pytest.mark.parametrize("left", [13, pytest.param(17, marks=pytest.mark.slow)])
def test_a_run_that_is_killed_while_it_saves_a_checkpoint_can_be_resumed(options, left):
    """The run can be resumed after every file operation."""
    chosen = options(trainer={"max_epochs": 3})
    whole = zoo.fit(**chosen, run_dir="whole")
    killed = zoo_command(["fit", "-c", "whole/config.yaml", "--run-dir=run"], Path.cwd(), prepare=(end_after, (left,)))
    assert killed.code == 9, killed.err
    assert names("run")
    assert zoo.fit(resume="run")["metrics"] == whole["metrics"]
    assert [path.name for path in Path("run").rglob(".*") if path.name != ".lock"] == []


# --- resume auto ---


def test_auto_resumes_the_newest_unfinished_run_of_the_configuration(options, monkeypatch):
    def crash(self, trainer, *_):
        if trainer.current_epoch == 1:
            raise RuntimeError

    chosen = options(trainer={"max_epochs": 2})
    finished = zoo.fit(**chosen, resume="auto")
    assert folders() == [Path(finished["run_dir"])]
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "on_train_batch_start", crash)
        for seed in (0, 1):
            with pytest.raises(RuntimeError):
                zoo.fit(**chosen | {"seed": seed})
    assert len(folders()) == 3
    summary = zoo.fit(**chosen, resume="auto")
    assert summary["resumed_from"] is not None
    assert summary["metrics"] == finished["metrics"]
    assert len(folders()) == 3
    assert zoo.fit(**chosen, resume="auto")["resumed_from"] is None  # because both are finished
    assert len(folders()) == 4


def test_auto_restarts_a_run_without_a_checkpoint_and_skips_a_finished_run(options, capsys):
    chosen = options(run_dir="run", resume="auto")
    first = zoo.fit(**chosen)
    for name in ("checkpoints", "model"):
        shutil.rmtree(Path("run") / name)
    (Path("run") / "summary.json").unlink()
    summary = zoo.fit(**chosen)  # as if killed before the first checkpoint
    assert (summary["resumed_from"], summary["metrics"]) == (None, first["metrics"])
    assert len((Path("run") / "metrics.csv").read_text().splitlines()) == 4
    capsys.readouterr()
    assert zoo.fit(**chosen, verbose=False) == summary
    assert capsys.readouterr().out == "the run 'run' is already finished\n"
    with raises("conflict", "max_epochs 1"):
        zoo.fit(resume="run", trainer={"max_epochs": 2})
        zoo.fit(resume="run", trainer={"max_epochs": 1})


# --- interrupted runs ---


class Impatient(Callback):
    """Presses Ctrl-C twice in the first step."""

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


def test_a_run_that_is_stopped_before_its_first_checkpoint_leaves_no_folder(options):
    with pytest.raises(KeyboardInterrupt, match="no checkpoint was written yet"):
        zoo.fit(**options(trainer={"callbacks": [Impatient()]}))
    assert list(Path().iterdir()) == []


def test_checkpoints_by_time_within_an_epoch(options):
    seen = set()

    class Names(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            seen.update(names("run"))

    trainer = {"max_steps": 5, "limit_train_batches": 8, "callbacks": [Names()]}
    zoo.fit(**options(run_dir="run", checkpoint_every="0.001s", trainer=trainer))
    assert {f"resume-epoch-0001-step-0000000{step}.ckpt" for step in (1, 2, 3, 4)} <= seen
    assert names("run") == ["epoch-0001-step-00000005.ckpt", "resume-epoch-0001-step-00000004.ckpt"]


def test_a_run_that_ends_within_an_epoch_is_continued_there(options):
    chosen = options(schedule={"name": "constant", "warmup": 0.0}, trainer={"limit_train_batches": 8, "max_epochs": 2})
    whole = zoo.fit(**chosen | {"trainer": chosen["trainer"] | {"max_steps": 12}}, run_dir="whole")
    zoo.fit(**chosen | {"trainer": chosen["trainer"] | {"max_steps": 5}}, run_dir="run")
    summary = zoo.fit(resume="run", trainer={"max_steps": 12})
    assert summary["metrics"] == whole["metrics"]
    state, expected = (newest(Path(run))[1]["state_dict"] for run in ("run", "whole"))
    assert all(torch.equal(state[name], value) for name, value in expected.items())


# --- kept checkpoints ---


def test_the_newest_two_the_best_and_the_last_checkpoints_are_kept(options):
    run = zoo.fit(**options(keep=2, trainer={"max_epochs": 4}))
    assert set(names(run["run_dir"])) == {"epoch-0003.ckpt", "epoch-0004.ckpt", Path(run["checkpoint"]).name}
    folder = Path(run["run_dir"]) / "checkpoints"
    steps = [torch.load(folder / f"epoch-000{number}.ckpt", weights_only=True)["global_step"] for number in (3, 4)]
    assert steps == [6, 8]
    run = zoo.fit(**options(trainer={"max_epochs": 5}))
    assert {"epoch-0004.ckpt", "epoch-0005.ckpt", Path(run["checkpoint"]).name} <= set(names(run["run_dir"]))
    assert len(names(run["run_dir"])) <= 4  # also the previous best one, which the second newest names
