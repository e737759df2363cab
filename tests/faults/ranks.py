"""Runs with two processes, started by Lightning, by torchrun or alone, one of which is killed, fails or hangs."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.faults.process import free_port

GRACE = 15
"""Seconds after the timeout within which all processes must have ended."""
LONG = 280
"""Timeout in seconds of steps that are not measured."""
AGENT = 30
"""Seconds that torchrun waits between SIGTERM and SIGKILL."""
TRAIN = """
import os, signal, sys, time
from pathlib import Path
from lightning.pytorch import Callback
import zoo
import zoo.training.fit  # slow to import

RANK, BAD, HOW, WHEN = int(os.environ.get("LOCAL_RANK", 0)), int(sys.argv[1]), sys.argv[2], sys.argv[3]


def go_wrong():
    if RANK != BAD:
        return
    while len(list(Path().glob("rank-*"))) < 2:  # until the other one has started
        time.sleep(0.1)
    Path(f"wrong-{os.getpid()}").touch()
    if HOW == "raise":
        raise RuntimeError("a rank is gone")
    if HOW == "hang":
        time.sleep(1000)
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}.get(HOW, signal.SIGTERM))


class Wrong(Callback):
    def on_train_batch_end(self, trainer, task, outputs, batch, index):
        if trainer.global_step == 3 and WHEN == "step":
            go_wrong()


Path(f"rank-{os.getpid()}").touch()
if WHEN == "start" and BAD == 0 and "TORCHELASTIC_RUN_ID" not in os.environ:  # before the process group exists
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
    """The end of a run.

    Attributes:
        codes: The exit codes of the processes that were started.
        seconds: Time from the fault until the last process ended; None without a fault.
        orphans: The number of processes that remain.
        model: Whether the run has a model folder.
        output: The output.
    """

    codes: list[int]
    seconds: float | None
    orphans: int
    model: bool
    output: str


def alive(pid: int) -> bool:
    """Return whether a process is running and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def train(folder: Path, launcher: str, timeout: int, *arguments: str) -> list[subprocess.Popen[bytes]]:
    """Start a run in a folder with a launcher, or both processes without one; write the output to the file ``out``."""
    (folder / "train.py").write_text(TRAIN % timeout)
    env, port, script = (
        {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
        free_port(),
        ["train.py", *arguments],
    )
    agent = ["-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}"] if launcher == "torchrun" else []
    ranks: list[dict[str, str]] = [{}]
    if launcher == "none":
        shared = {"TORCHELASTIC_RUN_ID": "x", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GROUP_RANK": "0"}
        shared |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        ranks = [shared | {"RANK": rank, "LOCAL_RANK": rank} for rank in "01"]
    with (folder / "out").open("wb") as out:
        start = {"cwd": folder, "stdout": out, "stderr": out, "start_new_session": True}
        return [subprocess.Popen([sys.executable, *agent, *script], env=env | rank, **start) for rank in ranks]  # type: ignore[call-overload]


def lose(folder: Path, rank: int, how: str, when: str, timeout: int, launcher: str = "lightning") -> Ending:
    """Train with two processes in a folder and inject a fault into one rank.

    Args:
        folder: An empty folder.
        rank: The rank.
        how: ``kill``, ``raise``, ``hang``, ``stop`` or ``terminate``.
        when: ``start``, before the process group exists, or ``step``.
        timeout: Timeout of the process group in seconds.
        launcher: ``lightning``, ``torchrun`` or ``none``.
    """
    processes = train(folder, launcher, timeout, str(rank), how, when)
    try:
        processes[1 - rank if launcher == "none" else 0].wait(timeout=LONG)
        wrong = [path.stat().st_mtime for path in folder.glob("wrong-*")]
        pids = [int(path.name.partition("-")[2]) for path in folder.glob("rank-*")]
        if launcher == "none":  # nobody ends the lost process
            processes[rank].kill()
        ended = time.monotonic()
        while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() - ended < timeout + GRACE:
            time.sleep(0.1)
        seconds = time.time() - wrong[0] if wrong else None
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    codes = [process.wait() for process in processes]
    return Ending(codes, seconds, len(left), (folder / "run" / "model").exists(), (folder / "out").read_text())


def lose_and_resume(folder: Path, rank: int, how: str, when: str, timeout: int, launcher: str) -> tuple[Ending, str]:
    """Lose a process, resume the run without a fault, and return what is wrong with it, if anything.

    The weights are compared with those of the uninterrupted run ``folder / "whole"``, which is trained if it is missing.
    """
    whole, run_folder = folder / "whole", folder / f"{launcher}-{rank}-{how}-{when}"
    if not whole.exists():
        whole.mkdir()
        assert train(whole, "lightning", LONG, "9", "", "")[0].wait(timeout=LONG) == 0, (whole / "out").read_text()
    for _ in range(3):  # they may fail to connect on a busy machine
        shutil.rmtree(run_folder, ignore_errors=True)
        run_folder.mkdir()
        ending = lose(run_folder, rank, how, when, timeout, launcher)
        if ending.seconds is not None:
            break
    codes = [process.wait(timeout=LONG) for process in train(run_folder, launcher, LONG, "9", "", "")]
    weights = [path / "run" / "model" / "model.safetensors" for path in (whole, run_folder)]
    same = not any(codes) and weights[0].read_bytes() == weights[1].read_bytes()
    output = (run_folder / "out").read_text()
    shutil.rmtree(run_folder)
    return ending, "" if same else f"other weights, exit codes {codes}: {output[-200:]}"
