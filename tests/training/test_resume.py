"""Going on from a checkpoint: nothing is overridden silently, and the best epoch so far stays the best."""

import shutil
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback

import zoo
from zoo.errors import InputError
from zoo.training.checkpoints import kept


@pytest.fixture
def half(options):
    """Options of a run of two epochs, and its last checkpoint."""
    chosen = options(optimizer={"lr": 0.01}, schedule={"name": "constant", "warmup": 0.0}, trainer={"max_epochs": 2})
    made = zoo.fit(**chosen)
    return chosen, Path(made["checkpoint"]).with_name("last.ckpt")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"optimizer": {"lr": 0.5}}, r"optimizer\.lr=0\.01, not 0\.5"),
        ({"schedule": {"name": "cosine", "warmup": 0.0}}, r"schedule\.name=constant, not cosine"),
        ({"batch_size": 16}, "batch_size=32, not 16"),
        ({"seed": 1}, "seed=0, not 1"),
        ({"algebra": "complex"}, "algebra=quaternion, not complex"),
    ],
    ids=str,
)
def test_other_settings_are_refused_by_name(half, change, named):
    chosen, checkpoint = half
    before = sorted(Path("runs").iterdir())
    with pytest.raises(InputError, match=named):
        zoo.fit(**(chosen | change | {"ckpt_path": str(checkpoint), "trainer": {"max_epochs": 3}}))
    assert sorted(Path("runs").iterdir()) == before


def test_the_best_epoch_so_far_stays_the_best(half):
    chosen, checkpoint = half
    state = torch.load(checkpoint, weights_only=True)
    (callback,) = (value for key, value in state["callbacks"].items() if key.startswith("BestCheckpoint"))
    callback["best_model_score"] = torch.tensor(-1.0)  # better than any loss to come
    torch.save(state, checkpoint)
    moved = Path("moved")
    shutil.copytree(checkpoint.parent, moved)
    shutil.rmtree(checkpoint.parent)
    made = zoo.fit(**(chosen | {"ckpt_path": str(moved / "last.ckpt"), "trainer": chosen["trainer"] | {"max_epochs": 4}}))
    assert made["epochs"] == 4
    assert made["resumed_from"] == str(moved / "last.ckpt")
    assert "ckpt_path" not in (Path(made["run_dir"]) / "config.yaml").read_text()
    assert Path(made["checkpoint"]) == Path(made["run_dir"]) / "checkpoints" / "best.ckpt"
    best = torch.load(moved / "best.ckpt", weights_only=True)["state_dict"]
    net = zoo.load(made["run_dir"]).net
    assert all(torch.equal(best[f"net.{name}"], value) for name, value in net.state_dict().items())


def test_a_checkpoint_without_its_best_is_refused(half):
    chosen, checkpoint = half
    checkpoint.with_name("best.ckpt").unlink()
    with pytest.raises(InputError, match=r"best\.ckpt, is not beside"):
        zoo.fit(**(chosen | {"ckpt_path": str(checkpoint), "trainer": {"max_epochs": 3}}))


class Impatient(Callback):
    """Presses Ctrl-C in the first step."""

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        raise KeyboardInterrupt


def test_a_run_that_ends_before_its_first_epoch_leaves_no_folder(options):
    with pytest.raises(KeyboardInterrupt, match="no epoch was finished"):
        zoo.fit(**options(trainer={"callbacks": [Impatient()]}))
    assert list(Path().iterdir()) == []


# --- the last so many epochs ---


def names(run):
    return sorted(path.name for path in (Path(run) / "checkpoints").iterdir())


def test_the_last_epochs_are_kept_and_counted_from_one(options):
    made = zoo.fit(**options(keep=2, trainer={"max_epochs": 4}))
    assert names(made["run_dir"]) == ["best.ckpt", "epoch-0003.ckpt", "epoch-0004.ckpt", "last.ckpt"]
    folder = Path(made["run_dir"]) / "checkpoints"
    last, kept, older = (
        torch.load(folder / f"{name}.ckpt", weights_only=True) for name in ("last", "epoch-0004", "epoch-0003")
    )
    assert all(torch.equal(last["state_dict"][name], value) for name, value in kept["state_dict"].items())
    assert (kept["global_step"], older["global_step"]) == (8, 6)


def test_one_epoch_is_kept_if_nobody_says_otherwise(half):
    _, checkpoint = half
    assert sorted(path.name for path in checkpoint.parent.iterdir()) == ["best.ckpt", "last.ckpt"]


def test_kept_epochs_come_along_to_the_folder_of_the_run_that_goes_on(options):
    chosen = options(keep=3, schedule={"name": "constant", "warmup": 0.0}, trainer={"max_epochs": 2})
    first = Path(zoo.fit(**chosen)["run_dir"])
    going_on = {"ckpt_path": str(first / "checkpoints" / "last.ckpt"), "trainer": chosen["trainer"] | {"max_epochs": 4}}
    second = zoo.fit(**chosen | going_on)["run_dir"]
    assert names(second) == ["best.ckpt", "epoch-0002.ckpt", "epoch-0003.ckpt", "epoch-0004.ckpt", "last.ckpt"]
    assert names(first) == ["best.ckpt", "epoch-0001.ckpt", "epoch-0002.ckpt", "last.ckpt"]
    old, new = ((Path(run) / "checkpoints" / "epoch-0002.ckpt").read_bytes() for run in (first, second))
    assert old == new


def test_validations_within_an_epoch_are_kept_too(options):
    made = zoo.fit(**options(keep=3, trainer={"max_epochs": 1, "limit_train_batches": 8, "val_check_interval": 0.25}))
    steps = [f"epoch-0001-step-0000000{number}.ckpt" for number in (4, 6)]
    assert names(made["run_dir"]) == ["best.ckpt", *steps, "epoch-0001.ckpt", "last.ckpt"]
    folder = Path(made["run_dir"]) / "checkpoints"
    assert [path.name for path in kept(folder)] == [*steps, "epoch-0001.ckpt"]
    assert torch.load(folder / steps[0], weights_only=True)["global_step"] == 4


def test_an_epoch_before_the_best_one_is_no_place_to_go_on_from(options):
    chosen = options(keep=3, optimizer={"lr": 0.001}, trainer={"max_epochs": 3, "limit_train_batches": 8})
    folder = Path(zoo.fit(**chosen)["run_dir"]) / "checkpoints"
    assert torch.load(folder / "best.ckpt", weights_only=True)["epoch"] > 0
    with pytest.raises(InputError, match=r"came after the checkpoint .*epoch-0001\.ckpt': go on from last\.ckpt"):
        zoo.fit(**chosen | {"ckpt_path": str(folder / "epoch-0001.ckpt")})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keep": 0}, "keep=0: use a whole number from 1"),
        ({"keep": 2, "trainer": {"enable_checkpointing": False}}, "--keep 2 keeps checkpoints"),
        ({"ema": 1.5}, r"ema=1\.5"),
        ({"label_smoothing": 1.5}, r"label_smoothing=1\.5"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_before_a_run(options, change, message):
    with pytest.raises(InputError, match=message):
        zoo.fit(**options(**change))
    assert not Path("runs").exists()


def test_a_checkpoint_from_before_an_option_existed_had_its_default(half):
    chosen, checkpoint = half
    state = torch.load(checkpoint, weights_only=True)
    younger = ("optimizer.betas", "optimizer.eps", "schedule.floor", "label_smoothing", "ema")
    state["zoo_run"] = {name: value for name, value in state["zoo_run"].items() if name not in younger}
    torch.save(state, checkpoint)
    more = chosen | {"ckpt_path": str(checkpoint), "trainer": chosen["trainer"] | {"max_epochs": 3}}
    with pytest.raises(InputError, match=r"schedule\.name=constant, not cosine"):
        zoo.fit(**more | {"schedule": {"name": "cosine", "warmup": 0.0, "floor": 0.5}})
    with pytest.raises(InputError, match=r"label_smoothing=None, not 0\.1"):
        zoo.fit(**more | {"label_smoothing": 0.1})
    assert zoo.fit(**more)["epochs"] == 3


def test_betas_are_the_same_from_a_checkpoint(options):
    chosen = options(optimizer={"lr": 0.01, "betas": [0.8, 0.9]}, schedule={"name": "constant"})
    made = zoo.fit(**chosen)
    last = str(Path(made["checkpoint"]).with_name("last.ckpt"))
    assert "betas:\n  - 0.8\n  - 0.9" in (Path(made["run_dir"]) / "config.yaml").read_text()
    more = chosen | {"ckpt_path": last, "trainer": chosen["trainer"] | {"max_epochs": 2}}
    assert zoo.fit(**more | {"optimizer": {"lr": 0.01, "betas": (0.8, 0.9)}})["epochs"] == 2
