"""Kill runs at random points and resume them; they must equal the uninterrupted run bit for bit."""

import json
import os
import random
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.process import Ended, Running, free_port, zoo_command
from tests.faults.runs import fit_words
from zoo.pruning.masks import tensor_digest
from zoo.training.resume import read_checkpoint

CHANGES = ("open", "os.rename", "os.remove", "os.mkdir")
"""Audit events that change files."""


@dataclass(frozen=True)
class Case:
    """A run to kill: its kind of data, number of loader workers and number of ranks."""

    kind: str
    workers: int = 0
    ranks: int = 1

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.workers}-{self.ranks}"

    def words(self, run: str) -> list[str]:
        return [*fit_words(self.kind, run, workers=self.workers), "--resume", "auto"]

    def stage(self, run: Path) -> str:
        """Return the stage of a run according to its folder."""
        if (run / "summary.json").exists():
            return "over"
        if (run / "model").exists():
            return "test"
        kept = [path.name for path in run.glob("checkpoints/*.ckpt")]
        return "training" if kept else "before the first checkpoint"

    def made(self, run: Path) -> dict[str, Any]:
        """Return the results of a finished run by name."""
        return {"weights": (run / "model/model.safetensors").read_bytes(), "metrics.csv": (run / "metrics.csv").read_text()}


class Rounds(Case):
    """A lottery experiment with four rounds, and three of a control arm."""

    @property
    def name(self) -> str:
        return f"lottery-{super().name}"

    def words(self, run: str) -> list[str]:
        return ["lottery", *super().words(run)[1:], "--rounds", "3", "--controls", "reinit", "--collapse", "1"]

    def stage(self, run: Path) -> str:
        done, begun = (len([*run.glob(f"*/seed-0/round-*/{name}")]) for name in ("summary.json", "config.yaml"))
        at = "between rounds" if begun == done else "test" if len([*run.glob("*/seed-0/round-*/model")]) > done else "training"
        return "over" if done == 7 else f"{at}, {done} of 7 rounds done"

    def made(self, run: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for path in sorted(run.glob("*/seed-0/round-*")):
            name = "/".join(path.parts[-3:])
            found |= {f"{key} of {name}": value for key, value in super().made(path).items()}
        state = read_checkpoint(run / "quaternion/seed-0/ticket.ckpt")
        ticket = state["ticket"]
        tensors = {"masks": ticket["masks"], "rewind point": ticket["rewind_point"], "pruned from": state["pruned_from"]}
        found |= {name: tensor_digest(value) for name, value in tensors.items()} | {"round": ticket["round"]}
        rows = json.loads((run / "lottery.json").read_text())["rows"]
        strays = [str(path) for path in run.rglob("checkpoints")]
        return found | {"rows": [{**row, "seconds": 0} for row in rows], "checkpoints": strays}


@dataclass(frozen=True)
class Killed:
    """A run that was killed at a point (seconds or file change) in a stage, and what is wrong after resuming, if anything."""

    case: Case
    point: str
    stage: str
    wrong: str


def changes(event: str, arguments: tuple[Any, ...], folder: str) -> bool:
    """Return whether an audit event changes a file below a folder."""
    if event not in CHANGES or not os.path.abspath(str(arguments[0])).startswith(os.path.abspath(folder)):
        return False
    if event != "open":
        return True
    mode, flags = arguments[1:3]
    return any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool(flags & (os.O_WRONLY | os.O_RDWR))


def watch_changes(folder: str, report: str, last: int = 0) -> None:
    """Write the number of file changes below a folder to a report; kill this process before the last one, if it is given."""
    seen = [0]

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if changes(event, arguments, folder):
            seen[0] += 1
            if seen[0] == last:
                os.kill(os.getpid(), signal.SIGKILL)
            descriptor = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.write(descriptor, str(seen[0]).encode())
            os.close(descriptor)

    sys.addaudithook(watch)


def start(case: Case, folder: Path, run: str, prepare: Any = None) -> list[Running]:
    """Start the processes of a run, like torchrun if there are several; call `prepare` in the first."""
    words = case.words(run)
    if case.ranks == 1:
        return [Running(words, folder, prepare=prepare)]
    shared = {"TORCHELASTIC_RUN_ID": "x", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": "2"}
    shared |= {"LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"}
    ranks = [shared | {"RANK": str(number), "LOCAL_RANK": str(number)} for number in range(case.ranks)]
    return [Running(words, folder, env, None if number else prepare) for number, env in enumerate(ranks)]


def finish(case: Case, folder: Path, run: str, prepare: Any = None) -> list[Ended]:
    """Train to the end."""
    return [process.ended(900) for process in start(case, folder, run, prepare)]


@dataclass(frozen=True)
class Whole:
    """The uninterrupted run: its results, time and number of file changes."""

    made: dict[str, Any]
    seconds: float
    changes: int


def undisturbed(case: Case, folder: Path) -> Whole:
    """Train without interruption."""
    zoo_command(["list"], folder)  # starts the process that all others are forked from
    began, run = time.monotonic(), f"whole-{case.name}"
    report = folder / f"changes-{case.name}"
    shutil.rmtree(folder / run, ignore_errors=True)
    ended = finish(case, folder, run, (watch_changes, (run, str(report))))
    assert {process.code for process in ended} == {0}, ended[0].err
    return Whole(case.made(folder / run), time.monotonic() - began, int(report.read_text()))


def kill_and_resume(case: Case, whole: Whole, folder: Path, draw: random.Random, run: str) -> Killed:
    """Kill a run at a random point, resume it, and compare it with the uninterrupted one."""
    stage = "over"
    while stage == "over":
        shutil.rmtree(folder / run, ignore_errors=True)
        change = draw.randrange(1, whole.changes + 1) if draw.random() < 0.5 else 0
        seconds = draw.uniform(0.1, 1) * whole.seconds
        processes = start(case, folder, run, (watch_changes, (run, os.devnull, change)) if change else None)
        if not change:
            time.sleep(seconds)
            processes[draw.randrange(case.ranks)].process.kill()
        processes[0].process.join(60)
        for process in processes:  # like torchrun if one is lost
            process.process.join(1)
            process.process.kill()
        lost = [process.ended() for process in processes]
        stage = case.stage(folder / run) if any(process.code for process in lost) else "over"
    point = f"change {change}" if change else f"{seconds:.2f} s"
    ended = finish(case, folder, run)
    return Killed(case, point, stage, compare(case, ended, whole, folder / run))


def compare(case: Case, ended: list[Ended], whole: Whole, run: Path) -> str:
    """Return what is wrong with a resumed run, if anything."""
    if any(process.code for process in ended):
        return f"exit codes {[process.code for process in ended]}: {' | '.join(process.err[-300:] for process in ended)}"
    made = case.made(run)
    if different := [name for name in made.keys() | whole.made.keys() if made.get(name) != whole.made.get(name)]:
        return f"other {', '.join(sorted(different))}"
    strays = [path.name for path in run.rglob("*") if path.name.startswith(".")]
    return f"left behind: {', '.join(strays)}" if strays else ""
