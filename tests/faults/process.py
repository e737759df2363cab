"""Start commands in milliseconds by forking from a process that has imported everything."""

import multiprocessing
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from multiprocessing.forkserver import set_forkserver_preload
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

PRELOADED = ("tests.faults.preloaded",)
ADDRESSES = 8 * 2**30
"""Address space limit of a process beyond its initial size, so that a memory bomb kills only the process."""
TIMED_OUT = -signal.SIGKILL


@dataclass(frozen=True)
class Ended:
    """The result of a command.

    Attributes:
        code: The exit code; minus the signal number if a signal ended it.
        out: The content of stdout.
        err: The content of stderr.
        seconds: CPU time.
        memory: Peak memory in bytes beyond the initial memory, sampled every 10 ms.
    """

    code: int
    out: str
    err: str
    seconds: float
    memory: int

    @property
    def refused(self) -> bool:
        """Whether the command was refused as a user's mistake: exit code 2, at most three lines, no traceback."""
        lines = self.err.splitlines()
        clean = all(line.isprintable() for line in lines)
        return self.code == 2 and 1 <= len(lines) <= 3 and clean and "Traceback" not in self.err


def forked(function: Callable[..., Any], *arguments: Any) -> BaseProcess:
    """Call a function of a module in a new process, whose working directory is that of the test run."""
    set_forkserver_preload([*PRELOADED])
    process = multiprocessing.get_context("forkserver").Process(target=function, args=arguments)
    with chdir(Path(__file__).parents[2]):  # a fork server that starts now imports the preloaded modules from there
        process.start()
    return process


class Running:
    """A running command.

    Args:
        words: The words after ``zoo``.
        folder: The working directory.
        env: Further environment variables.
        prepare: A function of a module and its arguments, called in the process before the command.
    """

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        env: Mapping[str, str] | None = None,
        prepare: tuple[Callable[..., Any], tuple[Any, ...]] | None = None,
    ) -> None:
        self.outputs = folder / f".{time.monotonic_ns()}"
        self.process = forked(_command, [*words], folder, dict(env or {}), prepare, self.outputs)

    def ended(self, timeout: float = 60) -> Ended:
        """Wait for the end of the command; kill it at the timeout."""
        start, seconds = time.monotonic(), 0.0
        memory = [own_memory(self.process.pid)]
        while self.process.exitcode is None and time.monotonic() - start < timeout:
            self.process.join(0.01)
            memory.append(own_memory(self.process.pid))
            seconds = max(seconds, processor_time(self.process.pid))
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        code = self.process.exitcode
        assert code is not None
        return Ended(code, self._output("out"), self._output("err"), seconds, max(memory) - memory[0])

    def _output(self, name: str) -> str:
        path = self.outputs.with_suffix(f".{name}")
        try:
            return path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        finally:
            path.unlink(missing_ok=True)


def zoo_command(words: Sequence[str], folder: Path, timeout: float = 60, **options: Any) -> Ended:
    """Run ``zoo`` in a folder and wait for its end, see `Running`."""
    return Running(words, folder, **options).ended(timeout)


def srun(folder: Path, words: Sequence[str]) -> list[Running]:
    """Start ``zoo`` in two processes like srun on one node."""
    shared = {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NNODES": "1", "SLURM_JOB_ID": "12345"}
    shared |= {"SLURM_JOB_NAME": "train", "SLURM_NODEID": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    tasks = [shared | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in (0, 1)]
    return [Running(words, folder, task) for task in tasks]


def torchrun(folder: Path, words: Sequence[str]) -> list[Running]:
    """Start ``zoo`` in two processes with torchrun's launcher, which forks them."""
    return [Running(words, folder, prepare=(_elastic, ()))]


def _elastic() -> None:
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    endpoint = f"127.0.0.1:{free_port()}"
    nodes = {"min_nodes": 1, "max_nodes": 1, "nproc_per_node": 2, "rdzv_backend": "c10d", "rdzv_endpoint": endpoint}
    elastic_launch(LaunchConfig(**nodes, start_method="fork", run_id="tests"), _rank)()
    sys.exit()


def _rank() -> None:
    from zoo.cli import main

    sys.exit(main())


def free_port() -> str:
    """Return a free port of 127.0.0.1."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def own_memory(pid: int | None) -> int:
    """Return the private memory of a process in bytes, without libraries and mapped files; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


def processor_time(pid: int | None) -> float:
    """Return the CPU time of a process; 0 if it has ended."""
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
    outputs: Path,
) -> None:
    multiprocessing.set_start_method("fork", force=True)  # of loader workers, as by default
    os.environ.update(env)
    os.chdir(folder)
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(outputs.with_suffix(f".{name}"), os.O_WRONLY | os.O_CREAT, 0o644)
        os.dup2(file, number)
        os.close(file)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w", buffering=1), open(2, "w", buffering=1)  # noqa: SIM115
    sys.argv = ["zoo", *words]
    initial = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (initial + ADDRESSES,) * 2)
    if prepare is not None:
        prepare[0](*prepare[1])
    from zoo.cli import main

    code: int | str | None = 1
    try:
        code = main()
    except SystemExit as error:  # help pages
        code = error.code
    sys.stdout.flush()
    sys.exit(code)
