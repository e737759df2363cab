"""Options of experiments; this module imports no torch."""

from dataclasses import dataclass
from typing import Any

from zoo.errors import check_rules


@dataclass
class Execution:
    """Where the runs of an experiment are trained.

    Args:
        jobs: Runs side by side on this machine, each with its share of the cores.
        on: here, or ray: the Ray cluster of RAY_ADDRESS or of this machine, whose nodes share the folder.
        cpus: Cores of a run, on Ray.
        gpus: GPUs of a run, on Ray; 0.5 for two runs on one.
    """

    jobs: int = 1
    on: str = "here"
    cpus: float = 1.0
    gpus: float = 0.0


def check_execution(options: Any) -> None:
    """Check the options of an `Execution`.

    Raises:
        InputError: If one is out of range, or ``jobs`` and Ray are combined.
    """
    check_rules(
        (options.on in ("here", "ray"), f"--on {options.on}: use here or ray"),
        (options.jobs >= 1, f"--jobs {options.jobs}: use a whole number from 1"),
        (options.on == "here" or options.jobs == 1, "--jobs is for this machine; on Ray use --cpus and --gpus"),
        (options.cpus >= 0 and options.gpus >= 0, "--cpus and --gpus cannot be negative"),
    )


@dataclass
class Sweep(Execution):
    """A grid of runs in one file.

    Args:
        run_dir: Folder of the sweep; by default runs/sweep-NAME after the file. Runs that it contains are not run again.
        only: Names of the runs to train, separated by commas, * for anything; by default all of them.
    """

    run_dir: str | None = None
    only: str = ""
