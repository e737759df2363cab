"""The test contract of a task."""

import json
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from PIL import Image
from torch import Tensor, nn

from zoo import registry
from zoo.backbones.build import backbone, check_fit
from zoo.data import DataModule, ImageInfo, ready
from zoo.errors import InputError
from zoo.inference.model import load
from zoo.inference.predictions import Example, collate, prediction_rows, read_inputs
from zoo.tasks import Task, task_type
from zoo.tasks.base import check_task
from zoo.training.fit import fit

QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning", "ignore:.*does not have many workers")
class TaskContract:
    """Tests that a task must pass to train in a plain Trainer and in ``zoo fit``; subclass it in a test file.

    Attributes:
        spec: The task's spec.
        data: Spec of a small data set for the task.
        backbone: Spec of a small backbone without dropout.
        algebra: Spec of an algebra.
        options: Options of the task.
        steps: Training steps after which the validation loss must be lower.
    """

    spec: str = ""
    data: str = ""
    backbone: str = ""
    algebra: str = "real"
    options: ClassVar[dict[str, Any]] = {}
    steps: int = 60

    # --- defined by subclasses ---

    def expected_metrics(self, outputs: Any, targets: Any) -> dict[str, float]:
        """Compute the test metrics except the loss from their definitions, by name.

        Args:
            outputs: Outputs of `predict_step` for all test rows, [N, ...]; a list with one item per batch if not tensors.
            targets: The second items of all test batches, in the same form.
        """
        raise NotImplementedError(f"{type(self).__name__}.expected_metrics: return the test metrics, computed by definition")

    def user_inputs(self, info: Any) -> list[Any]:
        """Return a few inputs for `zoo.Model.predict`; by default images."""
        if not isinstance(info, ImageInfo):
            raise NotImplementedError(f"{type(self).__name__}.user_inputs: return inputs for zoo.Model.predict")
        shape = (3, info.image_size, info.image_size, info.in_channels)
        pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        return [Image.fromarray(image.squeeze(-1) if info.in_channels == 1 else image) for image in pixels]

    # --- built from them ---

    @pytest.fixture
    def module(self) -> DataModule[Any]:
        """Return the data module after setup."""
        return _data(self.data)

    def net(self, info: Any, seed: int = 0) -> nn.Module:
        """Create the network."""
        torch.manual_seed(seed)
        return backbone(self.backbone, self.algebra, **info.model_kwargs)

    def task(self, module: DataModule[Any], seed: int = 0) -> Task:
        """Create the task."""
        kind, options = task_type(self.spec)
        options = {"optimizer": "adamw(lr=5e-3)", "schedule": "constant(warmup=0)"} | self.options | options
        return kind.from_info(self.net(module.info, seed), module.info, module.tokenizer, **options)

    # --- tests ---

    def test_the_network_answers_with_num_outputs(self, module: DataModule[Any]) -> None:
        """The data have the required info, and the output has the shape given by ``num_outputs`` and ``per_token``."""
        kind, _ = task_type(self.spec)
        assert isinstance(module.info, kind.info_type)
        outputs = kind.num_outputs(module.info)
        check_fit(self.net(module.info), self.backbone, module.info.example_inputs(2), outputs, every=kind.per_token)

    def test_the_loss_falls_in_a_plain_trainer(self, module: DataModule[Any]) -> None:
        """A Trainer with plain loaders lowers the validation loss and logs the monitored metric."""
        task = self.task(module)
        trainer = Trainer(max_steps=self.steps, num_sanity_val_steps=0, **QUIET)
        (before,) = trainer.validate(task, module.val_dataloader(), verbose=False)
        trainer.fit(task, module.train_dataloader(), module.val_dataloader())
        (after,) = trainer.validate(task, module.val_dataloader(), verbose=False)
        assert after["val_loss"] < before["val_loss"]
        assert task.monitor[0] in after
        assert task.monitor[1] in ("min", "max")

    def test_metrics_are_those_of_their_definitions(self, module: DataModule[Any]) -> None:
        """Test metrics over batches of unequal size equal their definitions over all rows."""
        task, loader = self.task(module), module.test_dataloader()
        trainer = Trainer(**QUIET)
        (metrics,) = trainer.test(task, loader, verbose=False)
        outputs = _joined(trainer.predict(task, loader) or [])
        expected = self.expected_metrics(outputs, _joined([batch[1] for batch in loader]))
        assert expected
        loss = {"test_loss": metrics["test_loss"]}
        assert metrics == pytest.approx(loss | {f"test_{name}": value for name, value in expected.items()}, abs=1e-5)

    def test_a_checkpoint_brings_back_the_task(self, module: DataModule[Any], tmp_path: Path) -> None:
        """`load_from_checkpoint` restores options and weights, and the predictions are identical."""
        task = self.task(module)
        trainer = Trainer(max_steps=1, **QUIET)
        trainer.fit(task, module.train_dataloader())
        trainer.save_checkpoint(tmp_path / "task.ckpt")
        loaded = type(task).load_from_checkpoint(tmp_path / "task.ckpt", net=self.net(module.info, seed=1))
        assert dict(loaded.hparams) == dict(task.hparams)
        loaded.info, loaded.tokenizer = task.info, task.tokenizer
        batch = next(iter(module.test_dataloader()))
        with torch.no_grad():
            expected, y = (each.eval().predict_step(batch, 0) for each in (task, loaded))
        assert torch.equal(y, expected) if isinstance(y, Tensor) else y == expected

    def test_wrong_options_are_refused_without_data(self) -> None:
        """Wrong options raise one-line errors without data or a network."""
        kind, _ = task_type(self.spec)
        for wrong in ({"nonsense": 1}, {"optimizer": {"lr": -1.0}}, {"schedule": "nonsense"}):
            with pytest.raises(InputError) as caught:
                check_task(kind, wrong)
            assert "\n" not in str(caught.value)

    def test_predictions_are_rows_of_json(self, module: DataModule[Any]) -> None:
        """Every input gets a JSON row that starts with its columns and does not depend on the batch."""
        task = self.task(module).eval()
        examples = list(read_inputs(task, self.user_inputs(module.info)))
        assert examples
        rows = self._rows(task, examples)
        assert json.loads(json.dumps(rows, ensure_ascii=False)) == rows
        for example, row in zip(examples, rows, strict=True):
            assert list(row)[: len(example.columns)] == list(example.columns)
            assert len(row) > len(example.columns)
            (alone,) = self._rows(task, [example])
            near = {key: pytest.approx(value, abs=1e-4) for key, value in row.items() if isinstance(value, float)}
            assert alone == row | near

    def test_a_run_writes_a_model_that_predicts(self, module: DataModule[Any], tmp_path: Path) -> None:
        """``zoo fit`` trains the task, ``zoo.load`` loads the model, and the suggested commands contain the run."""
        trainer = {"max_steps": 2, "limit_val_batches": 1, "limit_test_batches": 2, **QUIET}
        run = str(tmp_path / "run")
        options: dict[str, Any] = {"backbone": self.backbone, "algebra": self.algebra, "data": self.data, "task": self.spec}
        summary = fit(**options, run_dir=run, trainer={**trainer, "enable_checkpointing": True, "logger": True})
        assert summary["task"] == self.spec
        assert "loss" in summary["metrics"]
        for command, purpose in task_type(self.spec)[0].next_commands:
            assert run in command.format(run=run)
            assert purpose
        inputs = self.user_inputs(module.info)
        model: Any = load(run)
        assert len(model.predict(inputs)) == len(list(read_inputs(self.task(module), inputs)))

    def _rows(self, task: Task, examples: list[Example]) -> list[dict[str, Any]]:
        with torch.no_grad():
            return prediction_rows(task, examples, task.predict_step(collate(task, examples), 0))


@cache
def _data(spec: str) -> DataModule[Any]:
    """Set up the data once for all tests."""
    data: DataModule[Any] = ready(registry.create("zoo.datasets", spec, batch_size=16, num_workers=0, seed=0))
    return data


def _joined(parts: list[Any]) -> Any:
    """Concatenate the outputs of all batches if they are tensors of the same shape."""
    if all(isinstance(part, Tensor) for part in parts) and len({part.shape[1:] for part in parts}) == 1:
        return torch.cat(parts)
    return parts
