"""Damage to files of a run: flipped bits, truncation, zeros, files of another run. It must be detected and the file named."""

import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import zoo
from tests.faults.kills import die_before
from tests.faults.process import zoo_command
from tests.faults.runs import fit_words
from zoo.errors import InputError
from zoo.training.checkpoint_io import read_checkpoint
from zoo.training.resume import verify

Read = Callable[[Path], Any]
Damage = Callable[[bytes, random.Random], tuple[int, bytes]]


def make_runs(folder: Path) -> None:
    """Train a run, one with another seed, and a repetition of the first that is killed in its second epoch."""
    for run, seed in (("one", 0), ("other", 1)):
        ended = zoo_command(fit_words("images", run, seed), folder)
        assert ended.code == 0, ended.err
    ended = zoo_command(fit_words("images", "part"), folder, prepare=(die_before, (60, "part")))
    assert ended.code < 0
    assert (folder / "part" / "checkpoints" / "epoch-0001.ckpt").exists()


def readers_of(folder: Path) -> dict[Path, Read]:
    """Return the files of a run, each with a function that reads and checks it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    readers: dict[str, Read] = {"model": lambda path: zoo.load(path.parent), "checkpoints": read_checkpoint}
    verified = partial(check_file, folder)
    return {path: readers.get(path.parent.name, verified) for path in files}


def check_file(run: Path, path: Path) -> None:
    """Raise an error if ``zoo verify`` reports a damaged or missing file in the run."""
    for row in verify(run):
        if row["status"] == "damaged":
            raise InputError(f"{path.name}: {row['note']}", code="corrupt")


def is_detected(path: Path, read: Read, content: bytes) -> bool:
    """Replace the content of a file, and return whether reading it fails in one line that names the file."""
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        read(path)
    except InputError as error:
        return path.name in str(error) and "\n" not in str(error)
    except Exception:  # any other error is a defect
        return False
    else:
        return False
    finally:
        path.write_bytes(before)


def flipped(content: bytes, bit: int) -> bytes:
    """Flip one bit."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def flip(content: bytes, draw: random.Random) -> tuple[int, bytes]:
    """Flip a random bit."""
    bit = draw.randrange(8 * len(content))
    return bit, flipped(content, bit)


def truncate(content: bytes, draw: random.Random) -> tuple[int, bytes]:
    """Truncate a file."""
    length = draw.randrange(len(content))
    return length, content[:length]


def zero(content: bytes, draw: random.Random) -> tuple[int, bytes]:
    """Fill a block of 512 bytes with zeros."""
    start = draw.randrange(max(1, len(content) - 512))
    return start, content[:start] + bytes(min(512, len(content) - start)) + content[start + 512 :]


def damaged(run: Path, damage: Damage, count: int, seed: int = 0) -> Iterator[tuple[Path, int, bool]]:
    """Damage files of a run one at a time; yield the file, the position, and whether it is detected."""
    draw, readers = random.Random(seed), readers_of(run)
    for _ in range(count):
        path = draw.choice([*readers])
        content = path.read_bytes()
        position, changed = damage(content, draw)
        if changed != content:
            yield path, position, is_detected(path, readers[path], changed)


def resumed_flips(part: Path, count: int, seed: int = 0) -> Iterator[tuple[Path, int, bool]]:
    """Flip random bits of an unfinished run and resume it; it must finish, or be refused in one line."""
    draw, files = random.Random(seed), sorted(path for path in part.rglob("*") if path.is_file() and path.name != ".lock")
    for number in range(count):
        path = files[number % len(files)]
        copy = part.with_name("copy")
        shutil.copytree(part, copy)
        content = path.read_bytes()
        bit = draw.randrange(8 * len(content)) if content else 0
        (copy / path.relative_to(part)).write_bytes(flipped(content, bit) if content else b"")
        ended = zoo_command(["fit", "--resume", "copy"], part.parent)
        yield path, bit, ended.code == 0 or ended.refused
        shutil.rmtree(copy)


def swapped(run: Path, other: Path) -> Iterator[tuple[Path, bool]]:
    """Replace each file of a model folder by that of another run; yield it, and whether an error names a file of the folder.

    Either the file or the manifest may be the stale one.
    """
    names = [path.name for path in sorted((run / "model").iterdir())]
    for name in names:
        path, replacement = run / "model" / name, (other / "model" / name).read_bytes()
        if replacement != (before := path.read_bytes()):
            path.write_bytes(replacement)
            try:
                zoo.load(path.parent)
                yield path, False
            except InputError as error:
                yield path, any(file in str(error) for file in names)
            path.write_bytes(before)


def swapped_checkpoints(part: Path, whole: Path, other: Path) -> Iterator[tuple[Path, bool]]:
    """Replace each checkpoint of a killed run by one of another run, and resume it; yield the file and whether the test passes.

    The checkpoints are intact. The run must use the previous one and equal the uninterrupted run, or fail in one line that
    names the file.
    """
    expected = (whole / "model" / "model.safetensors").read_bytes()
    for path in sorted((part / "checkpoints").glob("*.ckpt")):
        copy = part.with_name("copy")
        shutil.copytree(part, copy)
        source = other / "checkpoints" / path.name
        shutil.copyfile(source if source.exists() else max(source.parent.glob("*.ckpt")), copy / "checkpoints" / path.name)
        ended = zoo_command(["fit", "--resume", "copy"], part.parent)
        model = copy / "model" / "model.safetensors"
        yield path, model.read_bytes() == expected if ended.code == 0 else ended.refused and path.name in ended.err
        shutil.rmtree(copy)
