"""The options of ``zoo sweep``."""

from dataclasses import dataclass


@dataclass
class Sweep:
    """A grid of runs in one file.

    Args:
        run_dir: Folder of the sweep; by default runs/sweep-NAME after the file. Runs that are in it are not run again.
        only: Names of the runs that are wanted, separated by commas, * for anything; by default all of them.
        jobs: Runs side by side on this machine, each with its share of the cores.
        on: here, or ray: the Ray cluster of RAY_ADDRESS or of this machine, whose nodes share the folder.
        cpus: Cores of a run, on Ray.
        gpus: GPUs of a run, on Ray; 0.5 for two runs on one.
    """

    run_dir: str | None = None
    only: str = ""
    jobs: int = 1
    on: str = "here"
    cpus: float = 1.0
    gpus: float = 0.0
