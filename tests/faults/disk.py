"""Disks that are full or read-only, folders that go away, two runs in one folder, a clock that goes backwards."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults.kills import Case, compare, undisturbed
from tests.faults.process import Ended, Running, zoo_command

CASE = Case("images")


class Disk:
    """A small file system in memory, mounted at a folder.

    Args:
        folder: An empty folder.
        size: Bytes that it has room for.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True, capture_output=True)

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", self.folder], check=True, capture_output=True)

    def __enter__(self) -> "Disk":
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "-l", self.folder], check=True, capture_output=True)
        self.folder.rmdir()


def can_mount(folder: Path) -> bool:
    """Tell whether this system lets us have a disk of our own."""
    try:
        with Disk(folder / "disk", 2**20):
            return True
    except (OSError, subprocess.CalledProcessError):
        (folder / "disk").rmdir()
        return False


def clear(ended: Ended) -> bool:
    """Tell whether a run ended with an error in at most two lines."""
    return ended.code not in (0, None) and 1 <= len(ended.err.splitlines()) <= 2 and "Traceback" not in ended.err


def remove_at(events: int, run: str) -> None:
    """Remove the folder of a run at its nth change of a file."""
    left = [events]

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if event == "os.rename" and str(arguments[0]).startswith(run):
            left[0] -= 1
            if left[0] == 0:
                shutil.rmtree(run, ignore_errors=True)

    sys.addaudithook(watch)


def turn_clock_back() -> None:
    """Let the time of day go backwards, a minute at every look."""
    import time

    now = [time.time()]

    def earlier() -> float:
        now[0] -= 60
        return now[0]

    time.time = earlier


def full(folder: Path, points: int) -> Iterator[tuple[str, str]]:
    """Fill the disk at so many points of a run; yield where, and what is wrong, nothing if the resumed run is the same."""
    whole = undisturbed(CASE, folder)
    files = [path for path in (folder / f"whole-{CASE.name}").rglob("*") if path.is_file()]
    room = sum(4096 * -(-path.stat().st_size // 4096) for path in files) + 4096 * len(files) + 2**17
    for point in range(1, points + 1):
        with Disk(folder / "disk", size := 4096 * (room * point // points // 4096)) as disk:
            ended = zoo_command(CASE.words("disk/run"), folder, timeout=120)
            wrong = "" if ended.code == 0 or clear(ended) else f"exit code {ended.code}: {ended.err[-300:]}"
            disk.remount(f"size={2**26}")
            again = zoo_command(CASE.words("disk/run"), folder, timeout=120)
            yield f"{size:,} bytes", wrong or ("" if ended.code == 0 else compare(CASE, [again], whole, folder / "disk/run"))


def read_only(folder: Path) -> Iterator[tuple[str, str]]:
    """Train on a disk that cannot be written to; yield what is wrong."""
    with Disk(folder / "disk", 2**26) as disk:
        disk.remount("ro")
        ended = zoo_command(CASE.words("disk/run"), folder, timeout=120)
        yield "before", "" if clear(ended) else f"exit code {ended.code}: {ended.err[-300:]}"


def removed(folder: Path, points: int) -> Iterator[tuple[str, str]]:
    """Remove the folder of a run under way; yield when, and what is wrong: nothing if it ends with a clear line or is whole."""
    for point in range(1, points + 1):
        ended = zoo_command(CASE.words("gone"), folder, timeout=120, prepare=(remove_at, (point, "gone")))
        whole = ended.code == 0 and (folder / "gone/model/model.safetensors").exists()
        yield f"rename {point}", "" if clear(ended) or whole else f"exit code {ended.code}: {ended.err[-300:]}"
        shutil.rmtree(folder / "gone", ignore_errors=True)


def two_at_once(folder: Path, times: int) -> Iterator[tuple[str, str]]:
    """Begin two runs in one folder at the same moment; yield what is wrong: nothing if one trains and the other is refused."""
    words = [word for word in CASE.words("both") if word not in ("--resume", "auto")]
    for number in range(times):
        ended = [each.ended(120) for each in [Running(words, folder) for _ in range(2)]]
        codes = sorted(each.code for each in ended)
        said = "".join(each.err for each in ended)
        yield (
            f"try {number + 1}",
            "" if codes == [0, 2] and len(said.splitlines()) == 1 else f"exit codes {codes}: {said[-300:]}",
        )
        shutil.rmtree(folder / "both", ignore_errors=True)


def backwards(folder: Path) -> Iterator[tuple[str, str]]:
    """Train while the clock goes backwards; yield what is wrong."""
    whole = undisturbed(CASE, folder)
    ended = zoo_command(CASE.words("back"), folder, timeout=120, prepare=(turn_clock_back, ()))
    same = ended.code == 0 and (folder / "back/model/model.safetensors").read_bytes() == whole.made["weights"]
    yield "a minute at every look", "" if same else f"exit code {ended.code}: {ended.err[-300:]}"


def checks(folder: Path) -> dict[str, Callable[[], Iterator[tuple[str, str]]]]:
    """Return what the long version tries, by name."""
    found: dict[str, Callable[[], Iterator[tuple[str, str]]]] = {
        "the folder is removed under way": lambda: removed(folder, 8),
        "two runs in one folder at the same moment": lambda: two_at_once(folder, 6),
        "the clock goes backwards": lambda: backwards(folder),
    }
    if can_mount(folder):
        found |= {"the disk is full": lambda: full(folder, 20), "the disk is read-only": lambda: read_only(folder)}
    return found
