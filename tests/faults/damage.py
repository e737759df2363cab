"""Damage to what a run leaves: bits that flip, files cut short, zeros, files of another run; each must be noticed and named."""

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
    """Train a small run, the same with another seed, and the first one once more, which is killed in its second epoch."""
    for run, seed in (("one", 0), ("other", 1)):
        ended = zoo_command(fit_words("images", run, seed), folder)
        assert ended.code == 0, ended.err
    ended = zoo_command(fit_words("images", "part"), folder, prepare=(die_before, (60, "part")))
    assert ended.code < 0
    assert (folder / "part" / "checkpoints" / "epoch-0001.ckpt").exists()


def whole_files(folder: Path) -> dict[Path, Read]:
    """Return the files of a run that its reader must check, each with a function that reads it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    readers: dict[str, Read] = {"model": lambda path: zoo.load(path.parent), "checkpoints": read_checkpoint}
    verified = partial(check_file, folder)
    return {path: verified if path.name == "run_id" else readers.get(path.parent.name, verified) for path in files}


def check_file(run: Path, path: Path) -> None:
    """Raise an error if ``zoo verify`` reports the file as damaged, or the list of checksums, or a file that is missing."""
    for row in verify(run):
        if row["status"] == "damaged":
            raise InputError(f"{path.name}: {row['note']}", code="corrupt")


def noticed(path: Path, read: Read, content: bytes) -> bool:
    """Put other content into a file, and tell whether reading it fails in one line that names the file."""
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        read(path)
    except InputError as error:
        return path.name in str(error) and "\n" not in str(error)
    except Exception:  # anything else is a defect
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


def cut(content: bytes, draw: random.Random) -> tuple[int, bytes]:
    """Cut a file short."""
    length = draw.randrange(len(content))
    return length, content[:length]


def zero(content: bytes, draw: random.Random) -> tuple[int, bytes]:
    """Fill a block of 512 bytes with zeros."""
    place = draw.randrange(max(1, len(content) - 512))
    return place, content[:place] + bytes(min(512, len(content) - place)) + content[place + 512 :]


def damaged(run: Path, damage: Damage, count: int, seed: int = 0) -> Iterator[tuple[Path, int, bool]]:
    """Damage files of a run, one after the other; yield the file, where, and whether it was noticed."""
    draw, files = random.Random(seed), whole_files(run)
    for _ in range(count):
        path = draw.choice([*files])
        content = path.read_bytes()
        place, changed = damage(content, draw)
        if changed != content:
            yield path, place, noticed(path, files[path], changed)


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
    """Replace each file of a model folder by that of another run; yield the file, and whether a file of the folder is named.

    It cannot be told whether a file or the manifest is the stale one.
    """
    names = [path.name for path in sorted((run / "model").iterdir())]
    for name in names:
        path, theirs = run / "model" / name, (other / "model" / name).read_bytes()
        if theirs != path.read_bytes():
            before = path.read_bytes()
            path.write_bytes(theirs)
            try:
                zoo.load(path.parent)
                yield path, False
            except InputError as error:
                yield path, any(each in str(error) for each in names)
            path.write_bytes(before)


def swapped_checkpoints(part: Path, whole: Path, other: Path) -> Iterator[tuple[Path, bool]]:
    """Replace each checkpoint of a run that was killed by that of another, and go on; yield it, and whether no problems found.

    A checkpoint is sound in itself. The run must notice that it is another's and use the one before, or not read it: it must
    become what the undisturbed run is, or be refused in a line that names the file.
    """
    wanted = (whole / "model" / "model.safetensors").read_bytes()
    for path in sorted((part / "checkpoints").glob("*.ckpt")):
        copy = part.with_name("copy")
        shutil.copytree(part, copy)
        theirs = other / "checkpoints" / path.name
        shutil.copyfile(theirs if theirs.exists() else max(theirs.parent.glob("*.ckpt")), copy / "checkpoints" / path.name)
        ended = zoo_command(["fit", "--resume", "copy"], part.parent)
        model = copy / "model" / "model.safetensors"
        yield path, model.read_bytes() == wanted if ended.code == 0 else ended.refused and path.name in ended.err
        shutil.rmtree(copy)
