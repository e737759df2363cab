"""Damage to files of a run: flipped bits, truncation, zeros, files of another run. It must be detected and the file named."""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import zoo
from tests.faults.kills import watch_changes
from tests.faults.process import zoo_command
from tests.faults.runs import fit_words
from zoo.errors import InputError
from zoo.training.resume import read_checkpoint
from zoo.training.runs import verify

Damage = Callable[[bytes, random.Random], bytes]


def make_runs(folder: Path) -> None:
    """Train a run, one with another seed, and a repetition of the first that is killed in its second epoch."""
    for run, seed in (("one", 0), ("other", 1)):
        ended = zoo_command(fit_words("images", run, seed), folder)
        assert ended.code == 0, ended.err
    ended = zoo_command(fit_words("images", "part"), folder, prepare=(watch_changes, ("part", os.devnull, 60)))
    assert ended.code < 0
    assert (folder / "part" / "checkpoints" / "epoch-0001.ckpt").exists()


def read(run: Path, path: Path) -> None:
    """Read and check a file of a run; raise an error that names it if it is damaged or missing."""
    if path.parent.name == "model":
        zoo.load(path.parent)
    elif path.parent.name == "checkpoints":
        read_checkpoint(path)
    elif damaged := [row["note"] for row in verify(run) if row["status"] == "damaged"]:
        raise InputError(f"{path.name}: {damaged[0]}", code="corrupt")


def is_detected(run: Path, path: Path, content: bytes) -> bool:
    """Replace the content of a file, and return whether reading it fails in one line that names a file of its folder."""
    names, before = [file.name for file in path.parent.iterdir()], path.read_bytes()
    path.write_bytes(content)
    try:
        read(run, path)
    except InputError as error:
        return any(name in str(error) for name in names) and "\n" not in str(error)
    except Exception:  # any other error is a defect
        return False
    else:
        return False
    finally:
        path.write_bytes(before)


def flip(content: bytes, draw: random.Random) -> bytes:
    """Flip a random bit."""
    changed, bit = bytearray(content), draw.randrange(8 * len(content)) if content else 0
    if content:
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def truncate(content: bytes, draw: random.Random) -> bytes:
    """Truncate a file."""
    return content[: draw.randrange(len(content))]


def zero(content: bytes, draw: random.Random) -> bytes:
    """Fill a block of 512 bytes with zeros."""
    start = draw.randrange(max(1, len(content) - 512))
    return content[:start] + bytes(min(512, len(content) - start)) + content[start + 512 :]


def damaged(run: Path, damage: Damage, count: int, seed: int = 0) -> Iterator[tuple[Path, int, bool]]:
    """Damage files of a run one at a time; yield the file, the number of the attempt, and whether it is detected."""
    draw, files = random.Random(seed), sorted(path for path in run.rglob("*") if path.is_file())
    for number in range(count):
        path = draw.choice(files)
        content = path.read_bytes()
        if (changed := damage(content, draw)) != content:
            yield path, number, is_detected(run, path, changed)


def resumed_flips(part: Path, count: int, seed: int = 0) -> Iterator[tuple[Path, int, bool]]:
    """Flip random bits of an unfinished run and resume it; it must finish, or be refused in one line."""
    draw, files = random.Random(seed), sorted(path for path in part.rglob("*") if path.is_file() and path.name != ".lock")
    for number in range(count):
        path, copy = files[number % len(files)], part.with_name("copy")
        shutil.copytree(part, copy)
        (copy / path.relative_to(part)).write_bytes(flip(path.read_bytes(), draw))
        ended = zoo_command(["fit", "--resume", "copy"], part.parent, timeout=300)
        yield path, number, ended.code == 0 or ended.refused
        shutil.rmtree(copy)


def swapped(run: Path, other: Path) -> Iterator[tuple[Path, bool]]:
    """Replace each file of a model folder by that of another run; yield it, and whether this is detected."""
    for path in sorted((run / "model").iterdir()):
        if (replacement := (other / "model" / path.name).read_bytes()) != path.read_bytes():
            yield path, is_detected(run, path, replacement)
