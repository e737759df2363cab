"""The command line in a process of its own that begins in milliseconds: it is forked from one that has imported everything."""

import multiprocessing
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.forkserver import set_forkserver_preload
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

PRELOADED = ("tests.faults.preloaded",)
ADDRESSES = 8 * 2**30
"""Bytes of addresses that a process may take beyond those it begins with: a bomb ends it, and not the machine."""
TIMED_OUT = -signal.SIGKILL


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: Its exit code; negative is the number of the signal that ended it.
        out: What it printed.
        err: What it said on stderr.
        seconds: Processor time that it took; how long it took on the clock is a matter of what else runs.
        memory: The most bytes of its own that it took beyond those it began with, as seen every 10 ms.
    """

    code: int
    out: str
    err: str
    seconds: float
    memory: int

    @property
    def refused(self) -> bool:
        """Whether it is what a command line says of a mistake: exit code 2, at most three lines, no traceback."""
        lines = self.err.splitlines()
        clean = all(line.isprintable() for line in lines)
        return self.code == 2 and 1 <= len(lines) <= 3 and clean and "Traceback" not in self.err


def forked(function: Callable[..., Any], *arguments: Any) -> BaseProcess:
    """Start a function of a module in a process of its own, which begins in the folder that the tests were started in."""
    set_forkserver_preload([*PRELOADED])
    process = multiprocessing.get_context("forkserver").Process(target=function, args=arguments)
    process.start()
    return process


class Running:
    """A command under way.

    Args:
        words: The words after ``zoo``.
        folder: Its working directory.
        env: Further environment variables.
        prepare: Called in the process before the command begins; a function of a module, with its arguments.
    """

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        env: Mapping[str, str] | None = None,
        prepare: tuple[Callable[..., Any], tuple[Any, ...]] | None = None,
    ) -> None:
        self.notes = folder / f".{time.monotonic_ns()}"
        self.process = forked(_command, [*words], folder, dict(env or {}), prepare, self.notes)

    def ended(self, timeout: float = 60) -> Ended:
        """Wait for the end; a process that is not over then is killed."""
        start, seconds = time.monotonic(), 0.0
        taken = [own_memory(self.process.pid)]
        while self.process.exitcode is None and time.monotonic() - start < timeout:
            self.process.join(0.01)
            taken.append(own_memory(self.process.pid))
            seconds = max(seconds, processor_time(self.process.pid))
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        code = self.process.exitcode
        assert code is not None
        return Ended(code, self._note("out"), self._note("err"), seconds, max(taken) - taken[0])

    def _note(self, name: str) -> str:
        path = self.notes.with_suffix(f".{name}")
        try:
            return path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        finally:
            path.unlink(missing_ok=True)


def zoo_command(words: Sequence[str], folder: Path, timeout: float = 60, **options: Any) -> Ended:
    """Run ``zoo`` with these words in a folder, see `Running`."""
    return Running(words, folder, **options).ended(timeout)


def srun(place: Path, words: Sequence[str]) -> list[Running]:
    """Start ``zoo`` in two processes as srun does on one node."""
    shared = {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NNODES": "1", "SLURM_JOB_ID": "12345"}
    shared |= {"SLURM_JOB_NAME": "train", "SLURM_NODEID": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    tasks = [shared | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in (0, 1)]
    return [Running(words, place, task) for task in tasks]


def free_port() -> str:
    """Return a port of 127.0.0.1 that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def own_memory(pid: int | None) -> int:
    """Return the bytes that a process has for itself, without the pages of libraries and mapped files; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


def processor_time(pid: int | None) -> float:
    """Return the seconds that a process has computed; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _command(
    words: list[str],
    folder: Path,
    env: dict[str, str],
    prepare: tuple[Callable[..., Any], tuple[Any, ...]] | None,
    notes: Path,
) -> None:
    multiprocessing.set_start_method("fork", force=True)  # of loader workers, as in any other process
    os.environ.update(env)
    os.chdir(folder)
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(notes.with_suffix(f".{name}"), os.O_WRONLY | os.O_CREAT, 0o644)
        os.dup2(file, number)
        os.close(file)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w", buffering=1), open(2, "w", buffering=1)  # noqa: SIM115
    sys.argv = ["zoo", *words]
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + ADDRESSES,) * 2)
    if prepare is not None:
        prepare[0](*prepare[1])
    from zoo.cli import main

    code: int | str | None = 1
    try:
        code = main()
    except SystemExit as error:  # help pages end so
        code = error.code
    sys.stdout.flush()
    sys.exit(code)
