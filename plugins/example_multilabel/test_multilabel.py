"""The task keeps the contract of every task, its data are what they say, and the command line uses both."""

import json

import pytest
import torch
from PIL import Image

from zoo import registry
from zoo.cli import main
from zoo.data import ready
from zoo.testing import TaskContract

# The zoo's own test run collects this folder whether or not the plugin is installed; your repository needs no such line.
if not any(entry.distribution == "zoo-multilabel" for entry in registry.entries("tasks")):
    pytest.skip("zoo-multilabel is not installed: pip install plugins/example_multilabel", allow_module_level=True)

NET = "vit(dim=16, depth=1, heads=1)"


class TestMultilabelClassification(TaskContract):
    """A plain Trainer, metrics, checkpoints, predictions and a run, inherited; the definitions of the metrics are ours."""

    spec = "multilabel_classification"
    data = "digit_properties"
    backbone = NET
    algebra = "quaternion"

    def expected_metrics(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
        """Accuracy of all labels, the mean of the labels' F1, and the share of images whose labels are all right."""
        chosen, true = outputs >= 0.5, targets == 1
        hits = (chosen & true).sum(0)
        f1 = 2 * hits / (chosen.sum(0) + true.sum(0))
        right = chosen == true
        return {
            "accuracy": float(right.float().mean()),
            "f1": float(f1.mean()),
            "exact_match": float(right.all(1).float().mean()),
        }


def test_the_statements_about_every_digit_are_true() -> None:
    """Two is even and prime; the splits have no image in common."""
    from sklearn.datasets import load_digits

    data = ready(registry.create("zoo.datasets", "digit_properties"))
    assert sum(data.info.sizes.values()) == 1797
    assert data.info.sizes["test"] == 360
    names, digits = data.info.classes, load_digits().target
    for image, labels in zip(range(1, 1797, 10), data.rows["test"][1][::2], strict=True):
        said = {name for name, label in zip(names, labels, strict=True) if label}
        digit = int(digits[image])
        assert ("even" in said, "above four" in said) == (digit % 2 == 0, digit > 4)
        assert ("prime" in said) == (digit > 1 and all(digit % k for k in range(2, digit)))


def test_a_threshold_that_is_no_probability() -> None:
    """An option of our own is checked like the others."""
    from zoo_multilabel import MultilabelClassification

    from zoo import InputError

    with pytest.raises(InputError, match="threshold=2: a probability between 0 and 1"):
        MultilabelClassification.check_options(threshold=2)


def test_from_the_command_line(tmp_path, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """``zoo fit`` names our command at its end, and ``zoo predict`` prints our columns."""
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
