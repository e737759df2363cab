"""Run the runs of a sweep as processes of their own: side by side on this machine, or where a Ray cluster has room."""

from __future__ import annotations

import fnmatch
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from zoo.checkpoint.sweep import RESULTS
from zoo.errors import InputError, Interrupted, Stop, one_line
from zoo.training.folder import RUNS, claim, file_name, hold
from zoo.training.options import Fit
from zoo.training.processes import SWEEP
from zoo.training.signals import Signals
from zoo.training.sweep import Point, Study, points
from zoo.training.sweep_options import Sweep

PATIENCE = 120.0
"""Seconds that runs have to write a checkpoint when a sweep is stopped."""
LOST = "lost by Ray: "
_POLL = 0.1

Ended = Iterator[tuple[Point, int]]


def sweep(
    values: Mapping[str, Any],
    file: str,
    options: Sweep | None = None,
    *,
    say: Callable[[str], None] = print,
    finished: Callable[[Mapping[str, Any]], None] = lambda row: None,
) -> dict[str, Any]:
    """Run what is missing of a sweep, and return what all of it came to.

    Every run is a process of ``zoo fit`` in a folder of its own. One that was stopped or killed goes on from its last
    checkpoint; one that fails is said, and the others go on.

    Args:
        values: The sweep, see `zoo.training.sweep`.
        file: The name of its file.
        options: Where its folder is, which of its runs are wanted, and where they run.
        say: Prints a line of progress.
        finished: Called with the row of each run that ends well.

    Returns:
        ``run_dir``, the ``rows`` of results.jsonl, and ``failed``, with the reason by name of the run.

    Raises:
        InputError: If the sweep is wrong, its folder holds another one, or the cluster cannot be reached.
        Interrupted: At Ctrl-C or SIGTERM; the text says how to go on.
    """
    options = options or Sweep()
    grid = points(values, file)
    wanted = only(grid, [name.strip() for name in options.only.split(",") if name.strip()], file)
    folder = Path(options.run_dir).expanduser() if options.run_dir is not None else RUNS / f"sweep-{file_name(Path(file).stem)}"
    with ExitStack() as stack:
        begun = os.path.isfile(folder / RESULTS)
        stack.enter_context(hold(folder) if begun else claim(Fit("", "", run_dir=str(folder))))
        study = Study(folder, grid)
        missing, failed = [point for point in study.open() if point.name in wanted], dict[str, str]()
        signals = stack.enter_context(Signals())
        try:
            say(f"{len(wanted)} runs, {len(wanted) - len(missing)} are done; everything is in {folder}")
            ray = options.on == "ray"
            ended = on_ray(study, missing, options.cpus, options.gpus) if ray else here(study, missing, options.jobs)
            for number, (point, code) in enumerate(ended, 1):
                if code == 0 and (study.path(point) / "summary.json").is_file():
                    row = study.finish(point)
                    say(f"{number}/{len(missing)} {point.name}: {text_of(row)}")
                    finished(row)
                else:
                    failed[point.name] = reason(study, point, code)
                    say(f"{number}/{len(missing)} {point.name} failed: {failed[point.name]}")
        except (Stop, KeyboardInterrupt) as stop:
            number = getattr(stop, "signum", signals.received or signal.SIGINT)
            done = sum(name in study.rows for name in wanted)
            text = f"stopped; {done} of {len(wanted)} runs are done, give the same command again to go on"
            raise Interrupted(text, number) from stop
    rows = [study.rows[name] for name in wanted if name in study.rows]
    return {"run_dir": str(folder), "rows": rows, "failed": failed}


def only(grid: Sequence[Point], patterns: Sequence[str], file: str) -> list[str]:
    """Return the names of the runs that match one of the patterns, or of all if there is none."""
    names = [point.name for point in grid]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            close = get_close_matches(pattern, names, 1)
            hint = f"did you mean '{close[0]}'?" if close else f"its first is '{names[0]}'"
            raise InputError(f"--only {pattern}: no run of '{file}' is named so: {hint}")
    return [name for name in names if not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def text_of(row: Mapping[str, Any]) -> str:
    """Write what a run came to in a few words."""
    from zoo.checkpoint.card import number

    figures = ", ".join(f"{name} {number(value)}" for name, value in row["metrics"].items() if value is not None)
    chosen = row.get("validation") or {}
    seen = "not measured" if chosen.get("value") is None else f"validation {chosen['metric']} {number(chosen['value'])}"
    return f"{f'test {figures}' if figures else seen}; {row.get('seconds', 0):.0f} s"


def reason(study: Study, point: Point, code: int) -> str:
    """Return what a run has said of its failure, or else how it ended and its last line; and where the rest of it is."""
    log, text = log_of(study, point), ""
    with suppress(OSError):  # somebody has removed it
        text = log.read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line.removeprefix("zoo: ") for line in lines if code > 0 and line.startswith(("zoo: ", LOST))]
    ended = f"exit code {code}" if code >= 0 else f"signal {-code}, {signal.strsignal(-code)}"
    text = said[-1] if said else "; ".join([ended, *lines[-1:]])
    return f"{text[:300]} (all it wrote: {log})"


def log_of(study: Study, point: Point) -> Path:
    """Return the file that a run writes its output to."""
    return study.folder / "logs" / f"{point.name}.log"


# --- on this machine ---


def here(study: Study, missing: Sequence[Point], jobs: int) -> Ended:
    """Run processes side by side, and yield every run with its exit code when it ends."""
    waiting, running = list(missing), dict[str, tuple[Point, subprocess.Popen[bytes]]]()
    threads = str(max(1, available_cores() // jobs)) if jobs > 1 else None
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                point = waiting.pop(0)
                running[point.name] = point, start(study, point, threads)
            time.sleep(_POLL)
            for point, process in [one for one in running.values() if one[1].poll() is not None]:
                del running[point.name]
                yield point, process.returncode
    finally:
        stop([process for _, process in running.values()])


def available_cores() -> int:
    """Return the cores that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start(study: Study, point: Point, threads: str | None) -> subprocess.Popen[bytes]:
    """Start the process of a run, which ends with this one, and writes to a log."""
    log = log_of(study, point)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "zoo", *study.begin(point)],
            env=environment(threads),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # so that Ctrl-C reaches it once, from here
        )


def environment(threads: str | None) -> dict[str, str]:
    """Return the environment of a run."""
    own = {SWEEP: str(os.getpid())}
    if not {"", os.getcwd()} & set(sys.path):  # then Python's -m must not put modules of this folder before those of packages
        own["PYTHONSAFEPATH"] = "1"
    return {**({"OMP_NUM_THREADS": threads} if threads else {}), **os.environ, **own}


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Have runs write a checkpoint and end; kill those that do not."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# --- on a cluster ---


def on_ray(study: Study, missing: Sequence[Point], cpus: float, gpus: float) -> Ended:
    """Hand runs to a Ray cluster that exists, which retries those that it loses, and yield each when it ends."""
    try:
        import ray
    except ImportError as error:
        raise InputError("--on ray needs Ray: pip install 'hypercomplex-zoo[ray]'") from error
    handler, address = signal.getsignal(signal.SIGTERM), os.environ.get("RAY_ADDRESS", "auto")
    try:
        host, _, port = address.rpartition("/")[2].rpartition(":")
        if host and port.isdigit():  # Ray itself tries for six minutes, and ends the process
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        signal.signal(signal.SIGTERM, handler)  # Ray has put its own in its place
    except Exception as error:  # of Ray's, of gRPC, of sockets
        raise InputError(
            f"cannot reach a Ray cluster: {one_line(error, 150)}; start one (ray start --head) or set RAY_ADDRESS"
        ) from error
    try:
        task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=3)(run_there)
        folder = Path.cwd()
        running = {}
        for point in missing:
            log = log_of(study, point).absolute()
            log.parent.mkdir(parents=True, exist_ok=True)
            running[task.remote(study.begin(point), str(folder), str(log))] = point
        while running:
            done, _ = ray.wait(list(running), num_returns=1, timeout=1.0)
            for one in done:
                point = running.pop(one)
                try:
                    code = ray.get(one)
                except ray.exceptions.RayError as error:
                    with log_of(study, point).open("a", encoding="utf-8") as file:
                        file.write(f"\n{LOST}{one_line(error, 200)}\n")
                    code = 1
                yield point, code
    finally:
        ray.shutdown()


def run_there(words: list[str], folder: str, log: str) -> int:
    """Run ``zoo`` with these words in a folder, on the node of a cluster; return its exit code."""
    with Path(log).open("ab") as output:
        line = [sys.executable, "-m", "zoo", *words]
        done = subprocess.run(
            line, cwd=folder, env=environment(None), stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
        )
    return done.returncode
