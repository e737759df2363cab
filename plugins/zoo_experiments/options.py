"""Options of experiments; this module imports no torch."""

from dataclasses import dataclass, field
from typing import Any

from zoo.errors import check_rules
from zoo.training.options import Fit


@dataclass
class Execution:
    """Where the runs of an experiment are trained.

    Args:
        jobs: Parallel runs on this machine, each with its share of the cores.
        on: here, or ray for the Ray cluster of RAY_ADDRESS or of this machine, whose nodes share the folder.
        cpus: Cores per run, on Ray.
        gpus: GPUs per run, on Ray; 0.5 for two runs on one.
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
        (options.jobs >= 1, f"--jobs {options.jobs}: must be 1 or more"),
        (options.cpus >= 0 and options.gpus >= 0, "--cpus and --gpus must not be negative"),
    )
    text = "--jobs applies to this machine; on Ray use --cpus and --gpus"
    check_rules((options.on == "here" or options.jobs == 1, text), code="conflict")


@dataclass
class Sweep(Execution):
    """A grid of runs in one file.

    Args:
        run_dir: Folder of the sweep; by default runs/sweep-NAME after the file. Finished runs in it are not repeated.
        only: Names of the runs to train, separated by commas, * for anything; by default all of them.
    """

    run_dir: str | None = None
    only: str = ""


@dataclass
class PruningOptions:
    """Which weights a round prunes, see zoo.pruning.LotteryTicket.

    Args:
        score: Prune where it is lowest: magnitude, random, movement or snip.
        scope: What is ranked together: tensor, component or global.
        unit: number, or element for algebra elements with all their components.
        pattern: N,M to keep at most N of every M along the input axis, such as 2,4, instead of the rate.
        matrices: all, or qkv for queries, keys and values only.
        include: Shell patterns of further parameter names, separated by commas.
        exclude: Shell patterns of parameter names that are not pruned, such as "*head*".
        rewind_step: Steps of round 0 after which the rewind point is taken; 0 for the initialisation.
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
class Lottery(Execution, Fit):
    """Rounds of lottery tickets; every other option of `Fit` applies to all rounds.

    Args:
        algebra: Spec of the algebra; optional with --compare.
        rate: Share of the remaining weights that each round prunes, or a schedule such as "cubic(final=0.95, rounds=10)".
        rounds: Pruned rounds after the dense round 0; by default 10.
        until: Share of the weights, such as 0.01: as many rounds as leave at most that.
        compare: Algebras to compare with the same data, seeds and schedule, such as real,quaternion,phm-4.
        seeds: Number of seeds per algebra, from --seed on.
        controls: Control arms: random (random masks with as many weights) and reinit (the same masks, other initial weights).
        collapse: Relative loss of the validation metric of round 0 that ends an arm; 1 for never. By default 0.5 for a metric
            to maximise, such as accuracy; a metric to minimise ends no arm.
        pruning: Which weights a round prunes.
        only: Folder of the one round to train, in the experiment that --resume names; the experiment writes its row.
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
    only: str | None = None
