"""Options of experiments; this module imports no torch."""

from dataclasses import dataclass, field

from zoo.errors import InputError
from zoo.registry.limits import bounded, check_processes
from zoo.training.options import Fit, Options


@dataclass
class Execution(Options):
    """Where the runs of an experiment are trained.

    Args:
        jobs: Parallel runs on this machine, each with its share of the cores.
        on: here, or ray for the Ray cluster of RAY_ADDRESS or of this machine, whose nodes share the folder.
        cpus: Cores per run, on Ray.
        gpus: GPUs per run, on Ray; 0.5 for two runs on one.
    """

    jobs: int = bounded("[1, 1024]", 1)
    on: str = "here"
    cpus: float = bounded("[0, 1e6]", 1.0)
    gpus: float = bounded("[0, 1e6]", 0.0)

    def __post_init__(self) -> None:
        """Raise `InputError` if a value is out of range, or two exclude each other."""
        super().__post_init__()
        if self.on not in ("here", "ray"):
            raise InputError(f"--on {self.on}: use here or ray")
        check_processes("jobs", self.jobs)
        if self.on != "here" and self.jobs != 1:
            raise InputError("--jobs applies to this machine; on Ray use --cpus and --gpus", code="conflict")


@dataclass
class Experiment(Execution):
    """An experiment in one file.

    Args:
        run_dir: Folder of the runs; by default runs/COMMAND-NAME after the file. Finished runs in it are not repeated.
    """

    run_dir: str | None = None


@dataclass
class Sweep(Experiment):
    """A grid of runs in one file.

    Args:
        only: Names of the runs to train, separated by commas, * for anything; by default all of them.
    """

    only: str = ""


@dataclass
class PruningOptions:
    """Pruning of a round, see zoo.pruning.LotteryTicket.

    Args:
        score: Pruning score: magnitude, random, movement or snip; the lowest are pruned.
        scope: Scope of the ranking: tensor, component or global.
        unit: number, or element to prune all components of an algebra element together.
        pattern: N,M keeps at most N of every M weights along the input axis, such as 2,4, instead of a rate.
        matrices: all, or qkv for queries, keys and values only.
        include: Shell patterns of additional parameter names, separated by commas.
        exclude: Shell patterns of parameter names that are not pruned, such as "*head*".
        rewind_step: Step of round 0 to rewind to; 0 is the initialization.
    """

    score: str = "magnitude"
    scope: str = "tensor"
    unit: str = "number"
    pattern: tuple[int, int] | None = None
    matrices: str = "all"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rewind_step: int = bounded("[0, 1e12]", 0)


@dataclass
class Lottery(Execution, Fit):
    """Rounds of lottery tickets; every other option of `Fit` applies to all rounds.

    Args:
        algebra: Spec of the algebra; optional with --compare.
        rate: Fraction of the remaining weights to prune in each round, or a schedule such as "cubic(final=0.95, rounds=10)".
        rounds: Number of pruned rounds after the dense round 0; by default 10.
        until: Instead of rounds: prune until at most this fraction of the weights remains, such as 0.01.
        compare: Algebras to compare with the same data, seeds and schedule, such as real,quaternion,phm-4.
        seeds: Number of seeds per algebra, from --seed on.
        controls: Control arms: random (random masks with as many weights) and reinit (the same masks, other initial weights).
        collapse: Relative loss of the validation metric of round 0 that ends an arm; 1 for never. By default 0.5 for a metric
            to maximize, such as accuracy; a metric to minimize ends no arm.
        pruning: Options of pruning.
        only: Folder of a single round to train, in the experiment given by --resume.
    """

    algebra: str = ""
    rate: float | str = 0.4
    rounds: int | None = bounded("[0, 200]", None)
    until: float | None = bounded("(0, 1)", None)
    compare: tuple[str, ...] = ()
    seeds: int = bounded("[1, 1000]", 1)
    controls: tuple[str, ...] = ()
    collapse: float | None = bounded("(0, 1]", None)
    pruning: PruningOptions = field(default_factory=PruningOptions)
    only: str | None = None

    def __post_init__(self) -> None:
        """Raise `InputError` if a value is wrong, or a new experiment has no algebra; a resumed one has those of its folder."""
        super().__post_init__()
        if not self.algebra and not self.compare and self.resume in (None, "auto"):
            raise InputError("missing --algebra, or --compare with several of them (see zoo lottery --help)", code="missing")
