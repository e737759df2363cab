"""Small runs: real digits, a network of a few thousand weights, a few steps."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

TINY = "vit(dim=32,depth=1)"


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Networks this small only wait for the threads of one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def archive(tmp_path: Path) -> Callable[..., Path]:
    """Write an .npz with bright and dark images, two classes, in these splits."""

    def write(*splits: str, count: int = 40, name: str = "two.npz") -> Path:
        arrays = {}
        for seed, split in enumerate(splits):
            labels = np.arange(count) % 2
            noise = np.random.RandomState(seed).randint(0, 120, (count, 8, 8))
            arrays[f"{split}_images"] = (noise + 100 * labels[:, None, None]).astype(np.uint8)
            arrays[f"{split}_labels"] = labels
        np.savez(tmp_path / name, **arrays)
        return tmp_path / name

    return write


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, object]]:
    """Options of ``zoo.fit`` for a run of a few steps in ``tmp_path``."""
    monkeypatch.chdir(tmp_path)

    def make(trainer: dict[str, object] | None = None, **changes: object) -> dict[str, object]:
        base = {"max_epochs": 1, "limit_train_batches": 2, "accelerator": "cpu"}
        return {"backbone": TINY, "algebra": "quaternion", "data": "digits"} | changes | {"trainer": base | (trainer or {})}

    return make
