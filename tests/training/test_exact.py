"""A resumed run equals an uninterrupted one bit for bit."""

import json
import os
import random
import signal
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch import Callback
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.data import DataLoader, TensorDataset

import zoo
from tests.faults.runs import WORDS, write_parallel
from zoo.data.images import digits
from zoo.training.resume import newest


class Crash(Callback):
    """Raises before a step, counted over all epochs."""

    def __init__(self, step):
        self.step = step

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if trainer.fit_loop.total_batch_idx == self.step:
            raise RuntimeError("out of memory")


class Press(Callback):
    """Sends a signal at a step."""

    def __init__(self, step, number=signal.SIGINT):
        self.step, self.number = step, number

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.fit_loop.total_batch_idx == self.step:
            os.kill(os.getpid(), self.number)


def tensors(value, name=""):
    """Flatten the values of a checkpoint by name."""
    if isinstance(value, dict):
        return {key: item for k, v in value.items() for key, item in tensors(v, f"{name}.{k}").items()}
    if isinstance(value, list | tuple):
        return {key: item for k, v in enumerate(value) for key, item in tensors(v, f"{name}.{k}").items()}
    return {name: value}


def state(run):
    """Return the final state of a run: weights, optimizer, schedule, scaler, averages, random generators."""
    checkpoint = newest(Path(run))[1]
    parts = ("state_dict", "current_model_state", "averaging_state", "optimizer_states", "lr_schedulers", "MixedPrecision")
    kept = {name: checkpoint[name] for name in parts if name in checkpoint}
    return tensors(kept | {"random": checkpoint["zoo_state"]["ranks"]})


def differences(first, second):
    """Return the names of the values that differ between two runs, including metrics.csv and test metrics."""
    a, b = state(first), state(second)
    differs = [name for name in a.keys() | b.keys() if name not in a or name not in b or not equal(a[name], b[name])]
    differs += [] if table(first) == table(second) else ["metrics.csv"]
    summaries = [json.loads((Path(run) / "summary.json").read_text()) for run in (first, second)]
    return differs + [key for key in ("metrics", "epochs") if summaries[0][key] != summaries[1][key]]


def equal(a, b):
    return torch.equal(a, b) if torch.is_tensor(a) else a == b


def table(run):
    return (Path(run) / "metrics.csv").read_text()


def stopped(options, callback, **more):
    """Train in the folder `stopped` until the callback ends the run."""
    trainer = options["trainer"] | {"callbacks": [callback]}
    with pytest.raises((RuntimeError, KeyboardInterrupt)):
        zoo.fit(**options | {"run_dir": "stopped", "trainer": trainer} | more)


def resumed():
    zoo.fit(resume="stopped", trainer={"callbacks": None})


BASE = {"trainer": {"max_epochs": 3, "accelerator": "cpu", "log_every_n_steps": 1, "limit_train_batches": 5}}
IMAGE = BASE | {"backbone": "vit(dim=16,depth=1,dropout=0.2)", "algebra": "quaternion", "data": "digits"}


@pytest.fixture
def workdir(tmp_path, monkeypatch, corpus):
    monkeypatch.chdir(tmp_path)
    for kind in ("text", "pairs", "ranking"):
        corpus(Path(f"{kind}.tsv"), kind, 200)
    write_parallel(Path("pairs"), train=120, val=12, test=12)
    Path("book.txt").write_text(" ".join(random.Random(0).choices(WORDS, k=3000)))
    return tmp_path


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory):
    """Return a function that returns the folder of the uninterrupted run with the given options, trained once."""
    folders = {}

    def make(options):
        key = repr(options)
        if key not in folders:
            folders[key] = tmp_path_factory.mktemp("uninterrupted") / "run"
            zoo.fit(**options, run_dir=str(folders[key]))
        return folders[key]

    return make


KINDS = {
    "image": ("vit(dim=16,depth=1,dropout=0.2)", "digits"),
    "text": ("fasttext(dim=8,hidden=8,dropout=0.2)", "text(path=text.tsv)"),
    "pairs": ("decomposable_attention(dim=8,dropout=0.2)", "pairs(path=pairs.tsv)"),
    "ranking": ("lstm(dim=8,hidden=8)", "ranking(path=ranking.tsv)"),
    "corpus": ("gpt(dim=16,depth=1,heads=2,dropout=0.2)", "corpus(path=book.txt,max_length=16)"),
    "stream": ("transformer_xl(dim=16,depth=1,heads=2,dropout=0.2)", "corpus(path=book.txt,max_length=16)"),
    "parallel": (
        "transformer(dim=8,depth=1,heads=2,ffn=8,dropout=0.2)",
        "parallel(path=pairs,source=en,target=fr,batch_tokens=60)",
    ),
}


FEW = {("image", 2), ("text", 0), ("corpus", 2), ("parallel", 0), ("stream", 0)}


@pytest.mark.parametrize(
    ("kind", "workers"),
    [
        pytest.param(kind, workers, marks=() if (kind, workers) in FEW else pytest.mark.slow)
        for kind in KINDS
        for workers in (0, 2)
    ],
)
def test_every_kind_of_data_resumes_within_an_epoch(workdir, kind, workers):
    backbone, data = KINDS[kind]
    options = BASE | {"backbone": backbone, "algebra": "quaternion", "data": data, "num_workers": workers, "batch_size": 8}
    options["trainer"] = options["trainer"] | {"max_epochs": 2}
    zoo.fit(**options, run_dir="whole")
    stopped(options, Press(6))
    resumed()
    assert differences("whole", "stopped") == []


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=() if step in (3, 14) else pytest.mark.slow) for step in range(3, 15)]
)
def test_a_crash_at_every_step(workdir, step, uninterrupted):
    options = IMAGE | {"checkpoint_every": "2steps", "ema": 0.9, "keep": 4}
    whole = uninterrupted(options)
    stopped(options, Crash(step))
    resumed()
    assert differences(whole, "stopped") == []
    assert names(whole) == names("stopped")


def names(run):
    return sorted(path.name for path in (Path(run) / "checkpoints").glob("epoch-*"))


@pytest.mark.parametrize(
    "change",
    [
        {"accumulate_grad_batches": 2, "val_check_interval": 0.2},
        {"precision": "bf16-mixed"},
        {"max_steps": 8},
        *(
            pytest.param(change, marks=pytest.mark.slow)
            for change in (
                {"val_check_interval": 3},
                {"accumulate_grad_batches": 2},
                {"check_val_every_n_epoch": 2},
                {"log_every_n_steps": 3},
                {"limit_val_batches": 0},
            )
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("step", [pytest.param(4, marks=pytest.mark.slow), 5, pytest.param(7, marks=pytest.mark.slow)])
def test_trainer_arguments(workdir, change, step, uninterrupted):
    options = IMAGE | {"trainer": IMAGE["trainer"] | change, "checkpoint_every": "1steps"}
    stopped(options, Crash(step))
    resumed()
    assert differences(uninterrupted(options), "stopped") == []


@pytest.mark.parametrize(
    "change",
    [{"accumulate_grad_batches": 2}, *(pytest.param(c, marks=pytest.mark.slow) for c in ({}, {"val_check_interval": 0.4}))],
    ids=str,
)
def test_a_signal(workdir, change, uninterrupted):
    options = IMAGE | {"trainer": IMAGE["trainer"] | change, "ema": 0.9}
    for step in (4, 7, 14):
        stopped(options, Press(step, signal.SIGTERM))
        resumed()
        assert differences(uninterrupted(options), "stopped") == []
        Path("stopped").rename(f"stopped-{step}")


def test_rounded_weights(workdir, uninterrupted):
    trainer = IMAGE["trainer"] | {"accumulate_grad_batches": 2, "val_check_interval": 0.4}
    options = IMAGE | {"trainer": trainer, "quantize_aware": "int8", "ema": 0.9, "checkpoint_every": "1steps"}
    stopped(options, Crash(7))
    resumed()
    assert differences(uninterrupted(options), "stopped") == []


def test_a_run_can_be_interrupted_repeatedly(workdir):
    options = IMAGE | {"checkpoint_every": "1steps"}
    zoo.fit(**options, run_dir="whole")
    stopped(options, Crash(2))
    for step in (6, 11):
        with pytest.raises(RuntimeError):
            zoo.fit(resume="stopped", trainer={"callbacks": [Crash(step)]})
    resumed()
    assert differences("whole", "stopped") == []
    assert scalars("whole") == scalars("stopped")


def scalars(run: str) -> dict[str, dict[int, float]]:
    """Read the curves of TensorBoard: tag to step to value."""
    values: dict[str, dict[int, float]] = {}
    # In the order of writing: TensorBoard's own order, by the text of the names, is wrong for files of one second and process.
    for file in sorted((Path(run) / "tensorboard").glob("events*"), key=lambda file: int(file.suffix[1:])):
        events = EventAccumulator(str(file)).Reload()
        for tag in events.Tags()["scalars"]:
            values.setdefault(tag, {}).update((event.step, event.value) for event in events.Scalars(tag))
    return values


class CustomData(pl.LightningDataModule):
    """A data module with a custom dataloader, whose order is drawn from the global generators."""

    task = "image_classification"

    def __init__(self):
        super().__init__()
        self.digits = digits(batch_size=32)

    def setup(self, stage=None):
        self.digits.setup()
        self.info = self.digits.info

    def train_dataloader(self):
        return DataLoader(TensorDataset(*self.digits.dataset("train").__getitems__(list(range(320)))), 32, shuffle=True)

    def val_dataloader(self):
        return self.digits.val_dataloader()

    def test_dataloader(self):
        return self.digits.test_dataloader()


def test_a_custom_dataloader_resumes_at_epoch_boundaries(workdir, capsys):
    options = IMAGE | {"data": CustomData()}
    zoo.fit(**options, run_dir="whole")
    stopped(options, Crash(7))
    capsys.readouterr()
    zoo.fit(resume="stopped", data=CustomData(), trainer={"callbacks": None})
    assert differences("whole", "stopped") == []
    assert "custom dataloader" not in capsys.readouterr().out
    stopped(options | {"run_dir": "within"}, Press(7), run_dir="within")
    zoo.fit(resume="within", data=CustomData(), trainer={"callbacks": None})
    assert "custom dataloader" in capsys.readouterr().out
