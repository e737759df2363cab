"""Full and read-only disks, removed folders, two runs in one folder, a clock that runs backwards."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.faults.kills import Case, compare, undisturbed
from tests.faults.process import Ended, Running, zoo_command

CASE = Case("images")


class Disk:
    """A tmpfs of `size` bytes, mounted at a new folder."""

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
    """Return whether this process may mount file systems."""
    try:
        with Disk(folder / "disk", 2**20):
            return True
    except (OSError, subprocess.CalledProcessError):
        (folder / "disk").rmdir()
        return False


def remove_at(events: int, run: str) -> None:
    """Remove the folder of a run at its nth renaming of a file."""
    left = [events]

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if event == "os.rename" and str(arguments[0]).startswith(run):
            left[0] -= 1
            if left[0] == 0:
                shutil.rmtree(run, ignore_errors=True)

    sys.addaudithook(watch)


def turn_clock_back() -> None:
    """Turn the clock back by a minute at every call of `time.time`."""
    import time

    now = [time.time()]

    def earlier() -> float:
        now[0] -= 60
        return now[0]

    time.time = earlier


def full(folder: Path, points: int) -> Iterator[str]:
    """Train on disks that become full at different points, and resume; yield what is wrong, if anything."""
    whole = undisturbed(CASE, folder)
    files = [path for path in (folder / f"whole-{CASE.name}").rglob("*") if path.is_file()]
    room = sum(4096 * -(-path.stat().st_size // 4096) for path in files) + 4096 * len(files) + 2**17
    for point in range(1, points + 1):
        with Disk(folder / "disk", size := 4096 * (room * point // points // 4096)) as disk:
            ended = train("disk/run", folder)
            wrong = problem(ended, ended.code == 0, f"{size:,} bytes")
            disk.remount(f"size={2**26}")
            again = train("disk/run", folder)
            yield wrong or ("" if ended.code == 0 else compare(CASE, [again], whole, folder / "disk/run"))


def read_only(folder: Path) -> Iterator[str]:
    """Train on a read-only disk; yield what is wrong, if anything."""
    with Disk(folder / "disk", 2**26) as disk:
        disk.remount("ro")
        yield problem(train("disk/run", folder), False, "read-only")


def removed(folder: Path, points: int) -> Iterator[str]:
    """Remove the folder during a run; yield what is wrong unless it succeeds or ends with a clear error."""
    for point in range(1, points + 1):
        ended = train("gone", folder, (remove_at, (point, "gone")))
        is_whole = ended.code == 0 and (folder / "gone/model/model.safetensors").exists()
        yield problem(ended, is_whole, f"rename {point}")
        shutil.rmtree(folder / "gone", ignore_errors=True)


def two_at_once(folder: Path, times: int) -> Iterator[str]:
    """Start two runs in one folder at the same time; yield what is wrong unless one trains and the other is refused."""
    words = [word for word in CASE.words("both") if word not in ("--resume", "auto")]
    for _ in range(times):
        ended = [process.ended(120) for process in [Running(words, folder) for _ in range(2)]]
        codes, err = sorted(process.code for process in ended), "".join(process.err for process in ended)
        yield "" if codes == [0, 2] and len(err.splitlines()) == 1 else f"exit codes {codes}: {err[-300:]}"
        shutil.rmtree(folder / "both", ignore_errors=True)


def backwards(folder: Path) -> Iterator[str]:
    """Train while the clock runs backwards; yield what is wrong, if anything."""
    whole = undisturbed(CASE, folder)
    yield compare(CASE, [train("back", folder, (turn_clock_back, ()))], whole, folder / "back")


def train(run: str, folder: Path, prepare: Any = None) -> Ended:
    """Train a run in this process group until it ends."""
    return zoo_command(CASE.words(run), folder, timeout=120, prepare=prepare)


def problem(ended: Ended, is_fine: bool, where: str) -> str:
    """Return what is wrong with a run that must be fine or fail with a clear error of at most two lines."""
    is_clear = ended.code not in (0, None) and 1 <= len(ended.err.splitlines()) <= 2 and "Traceback" not in ended.err
    return "" if is_fine or is_clear else f"{where}: exit code {ended.code}: {ended.err[-300:]}"


def checks(folder: Path) -> dict[str, Callable[[], Iterator[str]]]:
    """Return the checks of the long version by name."""
    found: dict[str, Callable[[], Iterator[str]]] = {
        "the folder is removed during the run": lambda: removed(folder, 8),
        "two runs in one folder at the same moment": lambda: two_at_once(folder, 6),
        "the clock goes backwards": lambda: backwards(folder),
    }
    if can_mount(folder):
        found |= {"the disk is full": lambda: full(folder, 20), "the disk is read-only": lambda: read_only(folder)}
    return found
