"""Options of experiments; this module imports no torch."""

from dataclasses import dataclass, field
from typing import Any

from zoo.errors import check_rules
from zoo.training.options import Fit


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


@dataclass
class PruningOptions:
    """Which weights a round prunes, see zoo.pruning.LotteryTicket.

    Args:
        score: What is pruned where it is lowest: magnitude, random, movement or snip.
        scope: What is ranked together: tensor, component or global.
        unit: number, or element: algebra elements with all components.
        pattern: N,M to keep at most N of every M along the input axis, such as 2,4, in place of the rate.
        matrices: all, or qkv: queries, keys and values alone.
        include: Shell patterns of names of further parameters, with commas between.
        exclude: Shell patterns of names of parameters that are not pruned, such as "*head*".
        rewind_step: Steps of round 0 after which the weights to rewind to are taken; 0 for the initialisation.
    """

    score: str = "magnitude"
    scope: str = "tensor"
    unit: str = "number"
    pattern: tuple[int, int] | None = None
    matrices: str = "all"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rewind_step: int = 0


@dataclass
class Lottery(Fit):
    """Rounds of lottery tickets; what is not listed here is an option of every round, see `Fit`.

    Args:
        algebra: Spec of the algebra; with --compare it may be left out.
        rate: Share of the surviving weights that each round prunes, or a schedule such as "cubic(final=0.95, rounds=10)".
        rounds: Pruned rounds after the dense round 0; by default 10.
        until: Share of the weights, such as 0.01: as many rounds as leave at most that.
        compare: Algebras to compare with the same data, seeds and schedule, such as real,quaternion,phm-4.
        seeds: Seeds of every algebra, from --seed on.
        controls: Control arms: random (masks at random, so many survivors) and reinit (the masks, other initial weights).
        collapse: Share of its figure of round 0 that an arm may lose in validation before its rounds end; 1 for all of it. By
            default 0.5 for a figure that is to be high, such as an accuracy; one that is to be low ends no arm.
        pruning: Which weights a round prunes.
        jobs: Rounds side by side on this machine, each with its share of the cores.
        on: here, or ray: the Ray cluster of RAY_ADDRESS or of this machine, whose nodes share the folder.
        cpus: Cores of a round, on Ray.
        gpus: GPUs of a round, on Ray; 0.5 for two rounds on one.
        only: Folder of the one round to train, in the experiment that --resume names; its row is written by the experiment.
    """

    algebra: str = ""
    rate: float | str = 0.4
    rounds: int | None = None
    until: float | None = None
    compare: tuple[str, ...] = ()
    seeds: int = 1
    controls: tuple[str, ...] = ()
    collapse: float | None = None
    pruning: PruningOptions = field(default_factory=PruningOptions)
    jobs: int = 1
    on: str = "here"
    cpus: float = 1.0
    gpus: float = 0.0
    only: str | None = None
