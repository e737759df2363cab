"""Going on from a checkpoint: nothing is overridden silently, and the best epoch so far stays the best."""

import shutil
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback

import zoo
from zoo.errors import InputError


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
    net = zoo.load(made["run_dir"])
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
