"""Shared fixtures and settings of all tests."""

import os
import random
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

# The same as in zoo/__init__.py. It must be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for subprocesses; in this process see `one_thread`
os.environ.setdefault("ZOO_FUSED", "0")  # only tests/kernels/test_fused.py needs the compiler
# A shell that runs the tests in the background ignores Ctrl-C, and the runs that tests interrupt would inherit this.
signal.signal(signal.SIGINT, signal.default_int_handler)

collect_ignore = ["faults/preloaded.py"]  # importing it changes the process, from which other tests fork

LONG = ("test_readme", "test_signals", "test_processes", "test_resume", "test_lottery", "test_zoo_gpu")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the slow files first to balance the workers."""
    items.sort(key=lambda item: item.path.stem not in LONG)


GOOD, BAD, FILLING = ("good", "fine", "great"), ("bad", "poor", "dull"), ("a", "film", "the", "plot", "and", "it")


def _text(draw: random.Random, words: tuple[str, ...]) -> str:
    chosen = [draw.choice(words), *draw.choices(FILLING, k=draw.randrange(1, 6))]
    draw.shuffle(chosen)
    return " ".join(chosen)


def _rows(kind: str, count: int, draw: random.Random) -> list[tuple[str, ...]]:
    if kind == "text":
        return [(_text(draw, (BAD, GOOD)[i % 2]), ("no", "yes")[i % 2]) for i in range(count)]
    if kind == "pairs":
        sides = [((BAD, GOOD)[i % 2], (BAD, GOOD)[i // 2 % 2]) for i in range(count)]
        return [(_text(draw, a), _text(draw, b), "same" if a is b else "other") for a, b in sides]
    questions = [(f"what is {(*GOOD, *BAD)[i % 6]} number {i}", (*GOOD, *BAD)[i % 6]) for i in range(count // 4)]
    return [(q, _text(draw, (word,) if k == 2 else FILLING), str(int(k == 2))) for q, word in questions for k in range(4)]


@pytest.fixture(scope="session")
def corpus() -> Callable[..., Path]:
    """Return a function that writes a small learnable data set with a header: `text`, `pairs` or `ranking`."""

    def write(path: Path, kind: str, count: int = 60, seed: int = 0) -> Path:
        header = {"text": "text\tlabel", "pairs": "first\tsecond\tlabel", "ranking": "query\tanswer\tlabel"}[kind]
        lines = [header, *("\t".join(row) for row in _rows(kind, count, random.Random(seed)))]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write


TINY = "vit(dim=32,depth=1)"


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread, because the networks are too small to benefit from more."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def generative_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a trained generative model by its name in `tests.generation.RUNS`."""
    from tests.generation import trained_run

    base = tmp_path_factory.getbasetemp()
    return partial(trained_run, (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "generation")


@pytest.fixture
def archive(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes an .npz with bright and dark images (two classes) in given splits."""

    import numpy as np

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
    """Return a function that creates options of ``zoo.fit`` for a run of a few steps in ``tmp_path``."""
    monkeypatch.chdir(tmp_path)

    def make(trainer: dict[str, object] | None = None, **changes: object) -> dict[str, object]:
        base = {"max_epochs": 1, "limit_train_batches": 2, "accelerator": "cpu"}
        return {"backbone": TINY, "algebra": "quaternion", "data": "digits"} | changes | {"trainer": base | (trainer or {})}

    return make
