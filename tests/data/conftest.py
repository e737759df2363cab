"""Small images, and data sets that are built once."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from zoo import registry
from zoo.data import DataModule, ready

SHARED = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("no ../shared/data beside the repository")
    return SHARED


@pytest.fixture(scope="session")
def built() -> Callable[[str], DataModule]:
    """Return a function that builds a data set, with batches of 16 rows, at its first call."""
    return cache(lambda spec: ready(registry.create("zoo.datasets", spec, batch_size=16, num_workers=0, seed=0, stream=False)))


@pytest.fixture
def pixels() -> Callable[..., np.ndarray]:
    def draw(*shape: int, seed: int = 0) -> np.ndarray:
        return np.random.RandomState(seed).randint(0, 256, shape).astype(np.uint8)

    return draw


@pytest.fixture
def folder(tmp_path: Path, pixels: Callable[..., np.ndarray]) -> Callable[..., Path]:
    """Write `per_class` RGB images of 10 x 12 pixels for every class and split ("" for none)."""

    def write(splits: tuple[str, ...] = ("",), classes: tuple[str, ...] = ("cat", "dog"), per_class: int = 10) -> Path:
        for place, (split, name) in enumerate((split, name) for split in splits for name in classes):
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(per_class):
                image = Image.fromarray(pixels(10, 12, 3, seed=1000 * place + i))
                image.save(tmp_path / split / name / f"{i}.png")
        return tmp_path

    return write
