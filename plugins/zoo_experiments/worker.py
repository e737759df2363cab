"""Processes that run commands of ``zoo`` one after the other and import modules only once.

``python -m zoo_experiments.worker`` imports what most runs need, and forks for each command. A fork starts like a new process
that has imported the same modules: no run sees changes of another one, and a run that crashes or leaks memory ends alone. Where
forking is not safe, a worker runs a single command itself and ends.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from zoo.training.processes import PARENT, end_with_parent

IMPORTED = ("zoo.cli.fit", "zoo.training.fit", "timm.optim", "torch.utils.tensorboard", "sklearn.datasets")
"""Modules that most runs import."""


class Worker:
    """A process that runs commands of ``zoo``, each on ``threads`` threads, and ends with this one."""

    def __init__(self, threads: str | None = None) -> None:
        # In its own session, so that Ctrl-C does not reach it.
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        options = pipes | {"text": True, "encoding": "utf-8", "start_new_session": True}
        self.process = subprocess.Popen(**python_process(__name__, [], threads), **options)

    @property
    def is_alive(self) -> bool:
        """Whether the process can run another command."""
        return self.process.poll() is None

    def run(self, arguments: list[str], log: Path) -> int:
        """Run a command and return its exit code, negative for a signal; its output is appended to a file."""
        requests, answers = self.process.stdin, self.process.stdout
        assert requests is not None
        assert answers is not None
        with suppress(BrokenPipeError):
            print(json.dumps([arguments, str(log)]), file=requests, flush=True)
        answer = answers.readline()
        return int(answer) if answer else self.process.wait()

    def terminate(self) -> None:
        """Send SIGTERM to the running command."""
        self.process.terminate()

    def kill(self) -> None:
        """Kill the process and the running command."""
        self.process.kill()

    def close(self) -> None:
        """End the process after the running command."""
        self.process.communicate()


def python_process(module: str, arguments: list[str], threads: str | None = None) -> dict[str, Any]:
    """Return the keywords of `subprocess.Popen` for ``python -m module``, which ends with this process."""
    environment = {**({"OMP_NUM_THREADS": threads} if threads else {}), **os.environ, PARENT: str(os.getpid())}
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # see `zoo.cli.commands.main`
    if not {"", os.getcwd()} & set(sys.path):  # then python -m must not import modules of this folder
        environment["PYTHONSAFEPATH"] = "1"
    return {"args": [sys.executable, "-m", module, *arguments], "env": environment}


def serve() -> None:
    """Run the commands of standard input, lines of [arguments, log], and answer each with its exit code."""
    end_with_parent()
    requests, answers = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    redirect(os.devnull)
    for name in IMPORTED:
        with suppress(Exception):  # the run raises it again and logs it
            import_module(name)
    forks, server = can_fork(), os.getpid()
    for line in requests:
        if forks and (code := fork()) is not None:
            print(code, file=answers, flush=True)
            continue
        requests.close()
        answers.close()
        if forks:
            os.environ[PARENT] = str(server)
        sys.argv[1:], log = json.loads(line)
        redirect(log)
        runpy.run_module("zoo", run_name="__main__", alter_sys=True)  # which exits


def can_fork() -> bool:
    """Return whether a fork of this process equals a new process: nothing has started threads or initialized CUDA."""
    if sys.platform != "linux" or threading.active_count() > 1:
        return False
    import torch

    if (child := os.fork()) == 0:
        os._exit(torch.cuda._is_in_bad_fork())
    return os.waitpid(child, 0)[1] == 0


def fork() -> int | None:
    """Fork and return the exit code of the fork, negative for a signal; SIGTERM is forwarded to it. Return None in the fork."""
    assert sys.platform == "linux"
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    child = os.fork()
    before = signal.signal(signal.SIGTERM, (lambda number, _: os.kill(child, number)) if child else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    if not child:
        return None
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    signal.signal(signal.SIGTERM, before)  # before the number of the process can be used again
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def redirect(log: str) -> None:
    """Append the output of this process to a file, and read nothing."""
    for target, flags in (((0,), os.O_RDONLY), ((1, 2), os.O_WRONLY | os.O_APPEND)):
        file = os.open(os.devnull if target == (0,) else log, flags)
        for number in target:
            os.dup2(file, number)
        os.close(file)


if __name__ == "__main__":
    serve()
