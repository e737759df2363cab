"""Test the task with the contract of all tasks, the labels of the data set, and the command line."""

import json

import pytest
import torch
from PIL import Image

from zoo import registry
from zoo.cli import main
from zoo.data import ready
from zoo.testing import TaskContract

# The zoo's own tests collect this folder even if the plugin is not installed; your repository does not need this line.
if not any(entry.distribution == "zoo-multilabel" for entry in registry.entries("tasks")):
    pytest.skip("zoo-multilabel is not installed: pip install plugins/example_multilabel", allow_module_level=True)

NET = "vit(dim=16, depth=1, heads=1)"


class TestMultilabelClassification(TaskContract):
    """Inherit tests of training, metrics, checkpoints and predictions; the metrics are defined here."""

    spec = "multilabel_classification"
    data = "digit_properties"
    backbone = NET
    algebra = "quaternion"

    def expected_metrics(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
        """Compute the accuracy over all labels, the macro F1, and the share of images with only correct labels."""
        predicted, true = outputs >= 0.5, targets == 1
        hits = (predicted & true).sum(0)
        f1 = 2 * hits / (predicted.sum(0) + true.sum(0))
        correct = predicted == true
        return {
            "accuracy": float(correct.float().mean()),
            "f1": float(f1.mean()),
            "exact_match": float(correct.all(1).float().mean()),
        }


def test_labels_are_correct() -> None:
    """Compare the labels of test images with the digits."""
    from sklearn.datasets import load_digits

    data = ready(registry.create("zoo.datasets", "digit_properties"))
    assert sum(data.info.sizes.values()) == 1797
    assert data.info.sizes["test"] == 360
    names, digits = data.info.classes, load_digits().target
    for image, labels in zip(range(1, 1797, 10), data.rows["test"][1][::2], strict=True):
        true = {name for name, label in zip(names, labels, strict=True) if label}
        digit = int(digits[image])
        assert ("even" in true, "above four" in true) == (digit % 2 == 0, digit > 4)
        assert ("prime" in true) == (digit > 1 and all(digit % k for k in range(2, digit)))


def test_command_line(tmp_path, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Test that ``zoo fit`` suggests the next command, and that ``zoo predict`` prints the columns of the task."""
    monkeypatch.chdir(tmp_path)
    flags = ["--trainer.max_steps", "3", "--trainer.limit_test_batches", "2", "--trainer.accelerator", "cpu"]
    words = ["fit", "--backbone", NET, "--algebra", "quaternion", "--data", "digit_properties", "--run-dir", "run"]
    assert main([*words, *flags]) == 0
    assert "zoo predict run IMAGE...  # tell what is true of your own pictures" in capsys.readouterr().out
    Image.new("L", (20, 20), 90).save("grey.png")
    assert main(["predict", "run", "grey.png", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert list(row) == ["file", "labels", "even", "prime", "above four", "has a hole"]
    assert row["labels"] == [name for name in list(row)[2:] if row[name] >= 0.5]
    assert main(["predict", "run", "grey.png"]) == 0
    assert capsys.readouterr().out.split("\t")[0] == "grey.png"
