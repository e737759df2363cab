"""Two processes, started by Lightning or torchrun, of which one is killed, fails or hangs."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

GRACE = 15
"""Seconds after the timeout in which everything must be over."""
LONG = 280
"""Seconds that whatever is not measured has."""
AGENT = 30
"""Seconds that torchrun leaves a process that hangs between SIGTERM and SIGKILL."""
TRAIN = """
import os, signal, sys, time
from pathlib import Path
from lightning.pytorch import Callback
import zoo
import zoo.training.fit  # what takes long

RANK, BAD, HOW, WHEN = int(os.environ.get("LOCAL_RANK", 0)), int(sys.argv[1]), sys.argv[2], sys.argv[3]


def go_wrong():
    if RANK != BAD:
        return
    while len(list(Path().glob("rank-*"))) < 2:  # the other one is there
        time.sleep(0.1)
    Path(f"wrong-{os.getpid()}").touch()
    if HOW == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if HOW == "raise":
        raise RuntimeError("a rank is gone")
    if HOW == "hang":
        time.sleep(1000)
    if HOW == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)


class Wrong(Callback):
    def on_train_batch_end(self, trainer, task, outputs, batch, index):
        if trainer.global_step == 3 and WHEN == "step":
            go_wrong()


Path(f"rank-{os.getpid()}").touch()
if WHEN == "start" and BAD == 0 and "TORCHELASTIC_RUN_ID" not in os.environ:  # before they meet
    from lightning.pytorch.strategies.launchers.subprocess_script import _SubprocessScriptLauncher as Launcher
    launch = Launcher.launch
    Launcher.launch = lambda self, *args, **options: (launch(self, *args, **options), go_wrong())[0]
elif WHEN == "start":
    go_wrong()
trainer = {"devices": 2, "accelerator": "cpu", "max_epochs": 2, "enable_progress_bar": False, "callbacks": [Wrong()]}
zoo.fit(backbone="vit(dim=16,depth=1,heads=1)", algebra="quaternion", data="digits", batch_size=128, run_dir="run",
        resume="auto", ddp_timeout=%d, trainer=trainer)
"""


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    Attributes:
        code: Its exit code.
        seconds: From the moment when something went wrong until the last process was gone; None if nothing went wrong.
        orphans: Processes that were left then.
        model: Whether there is a model folder.
        output: What was printed.
    """

    code: int
    seconds: float | None
    orphans: int
    model: bool
    output: str


def alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def command(launcher: str, *arguments: str) -> list[str]:
    """Return the command line that lets Lightning or torchrun start both processes."""
    if launcher == "lightning":
        return [sys.executable, "train.py", *arguments]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}"]
    return [*launch, "train.py", *arguments]


def train(folder: Path, arguments: list[str], timeout: int) -> subprocess.Popen[bytes]:
    """Start a run in a folder, with what is printed in its file ``out``."""
    (folder / "train.py").write_text(TRAIN % timeout)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    with (folder / "out").open("wb") as out:
        return subprocess.Popen(arguments, cwd=folder, env=env, stdout=out, stderr=out, start_new_session=True)


def lose(folder: Path, rank: int, how: str, when: str, timeout: int, launcher: str = "lightning") -> Ending:
    """Train with two processes in a folder, of which one goes wrong.

    Args:
        folder: An empty folder.
        rank: Which one.
        how: ``kill``, ``raise``, ``hang`` or ``terminate``.
        when: At the ``start``, before the processes meet, or after a ``step``.
        timeout: Seconds that a process waits for the others.
        launcher: ``lightning`` or ``torchrun``.
    """
    process = train(folder, command(launcher, str(rank), how, when), timeout)
    try:
        process.wait(timeout=LONG)
        wrong = [path.stat().st_mtime for path in folder.glob("wrong-*")]
        pids = [int(path.name.partition("-")[2]) for path in folder.glob("rank-*")]
        ended = time.monotonic()
        while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() - ended < timeout + GRACE:
            time.sleep(0.1)
        seconds = time.time() - wrong[0] if wrong else None
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return Ending(process.returncode, seconds, len(left), (folder / "run" / "model").exists(), (folder / "out").read_text())


def lose_and_resume(folder: Path, rank: int, how: str, when: str, timeout: int, launcher: str) -> tuple[Ending, str]:
    """Lose a process and run the same command again without a fault; say what is wrong with the run, if anything is.

    The weights are compared with those of ``folder / "whole"``, the undisturbed run, which is trained if it is not there.
    """
    whole, place = folder / "whole", folder / f"{launcher}-{rank}-{how}-{when}"
    if not whole.exists():
        whole.mkdir()
        assert train(whole, command("lightning", "9", "", ""), LONG).wait(timeout=LONG) == 0, (whole / "out").read_text()
    for _ in range(3):  # a busy machine may keep them from meeting
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        ending = lose(place, rank, how, when, timeout, launcher)
        if ending.seconds is not None:
            break
    code = train(place, command(launcher, "9", "", ""), LONG).wait(timeout=LONG)
    weights = [path / "run" / "model" / "model.safetensors" for path in (whole, place)]
    same = code == 0 and weights[0].read_bytes() == weights[1].read_bytes()
    said = (place / "out").read_text()
    shutil.rmtree(place)
    return ending, "" if same else f"other weights, exit code {code}: {said[-200:]}"
