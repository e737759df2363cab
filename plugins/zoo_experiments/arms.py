"""The options of an experiment with lottery tickets, and its arms; nothing is trained here."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from zoo.errors import InputError, check_rules
from zoo.pruning import LotteryTicket, rounds_until
from zoo.registry.spec import Spec, split_specs
from zoo.training.checkpoints import checkpoint_files
from zoo.training.folder import FREE, file_name, read_config, run_name, shortest
from zoo.training.options import Fit
from zoo.training.resolve import Plan, plan
from zoo_experiments.grid import Point
from zoo_experiments.options import Lottery, check_execution

CONTROLS = ("random", "reinit")
MAY_CHANGE = {"algebra", "compare", "controls", "seeds", "rounds", "until", "collapse", *FREE}
"""Options that may change when an experiment is resumed."""
_ROUNDS, _MOST = 10, 200


class Arm(NamedTuple):
    """The rounds of one algebra and seed, of its ticket or of a control.

    Attributes:
        algebra: Its spec.
        control: None for the ticket, ``random`` or ``reinit``.
        seed: The seed of its rounds.
        name: What the folders of its algebra begin with.
    """

    algebra: str
    control: str | None
    seed: int
    name: str

    @property
    def folder(self) -> str:
        """Its folder in that of the experiment."""
        return f"{self.name}{f'-{self.control}' if self.control else ''}/seed-{self.seed}"

    @property
    def title(self) -> str:
        """What lines on the screen call it."""
        return f"{self.algebra}{f' ({self.control})' if self.control else ''}, seed {self.seed}"

    @property
    def ticket(self) -> Arm:
        """The arm that this one is a control of; the ticket itself."""
        return self._replace(control=None)

    def point(self, number: int) -> str:
        """Return the name of a round, which is also its folder."""
        return f"{self.folder}/round-{number:02d}"

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row belongs to this arm."""
        return (row["algebra"], row["control"], row["seed"]) == (self.algebra, self.control, self.seed)


# --- options ---


def check(options: Lottery) -> tuple[Lottery, Plan]:
    """Check the options of an experiment; return them with everything filled in, and the plan of a round of its first arm."""
    before = read_config(Path(options.resume).expanduser()) if options.resume not in (None, "auto") else {}
    text = f"'{options.resume}' is a single run, no experiment with lottery tickets: give the folder with lottery.json in it"
    check_rules((not before or "rate" in before, text))
    if options.until is not None and options.rounds == before.get("rounds"):
        options = replace(options, rounds=None)  # that of the experiment so far
    together = {name: join(before.get(name), getattr(options, name)) for name in ("compare", "controls")}
    names = join([options.algebra] if options.algebra else [], together.pop("compare"))
    options = replace(options, controls=together["controls"])
    check_numbers(options)
    check_rules((bool(names), "missing --algebra, or --compare with several of them (see zoo lottery --help)"))
    if options.until is None and options.rounds is None:
        options = replace(options, rounds=1 if options.pruning.pattern else _ROUNDS)
    options = replace(options, rounds=number_of_rounds(options), until=None)
    planned = [plan(replace(options, algebra=name), try_network=True) for name in names]
    filled = planned[0].options
    assert isinstance(filled, Lottery)
    algebras = tuple(one.options.algebra for one in planned)
    options = replace(filled, algebra="", compare=algebras)
    folders = [file_name(shortest("zoo.algebras", name)) for name in algebras]
    for number, folder in enumerate(folders):
        if (other := folders.index(folder)) != number:
            raise InputError(
                f"--compare: the folders of '{algebras[other]}' and '{algebras[number]}' would both be '{folder}': is it one?"
            )
    return options, planned[0]


def check_numbers(options: Lottery) -> None:
    """Check what is no option of a single round, and refuse those of a single run that make no sense for rounds."""
    LotteryTicket(**ticket_options(options, 0))
    check_execution(options)
    unknown = [name for name in options.controls if name not in CONTROLS]
    trainer, score = options.trainer, options.pruning.score
    writes = trainer.get("enable_checkpointing") is not False and not trainer.get("fast_dev_run")
    number = isinstance(options.rounds, int) and 0 <= options.rounds <= _MOST
    both = "random" in options.controls and score == "random"
    last = options.seed + options.seeds - 1
    once = options.until is None and options.rounds in (None, 0, 1)
    share = options.collapse is None or 0 < options.collapse <= 1
    check_rules(
        (not unknown, f"unknown control '{unknown[:1] and unknown[0]}': use {' or '.join(CONTROLS)}"),
        ("reinit" not in options.controls or not options.init_from, "--controls reinit draws weights, and --from gives them"),
        (
            "reinit" not in options.controls or not Spec.parse(options.backbone).options.get("pretrained"),
            "--controls reinit draws weights, and pretrained=true gives them",
        ),
        (not both, "--pruning.score random is what --controls random is compared with: leave one of them out"),
        (options.rounds is None or options.until is None, "--rounds and --until both say how many rounds there are: give one"),
        (options.rounds is None or number, f"rounds={options.rounds}: use a whole number from 0 to {_MOST}"),
        (once or not options.pruning.pattern, "a pattern prunes once: give --rounds 1 and no --until"),
        (options.seeds >= 1, f"seeds={options.seeds}: use a whole number from 1"),
        (last < 2**32, f"seeds={options.seeds}: the last one is {last}, and the largest {2**32 - 1}"),
        (share, f"collapse={options.collapse}: use a share above 0, or 1 for never"),
        (options.folds is None, "--folds is for zoo fit: a round is one training"),
        (options.keep == 1, "--keep keeps training checkpoints, and those of a round go when it is done: leave it out"),
        (writes, "rounds need training checkpoints: leave --trainer.enable_checkpointing and fast_dev_run out"),
    )
    if options.until is not None:
        check_rules((number_of_rounds(options) <= _MOST, f"until={options.until} takes more than {_MOST} rounds: raise --rate"))


def join(first: Any, second: Any) -> tuple[str, ...]:
    """Return the names of two lists, each once; a text is a list with commas."""
    lists = (split_specs(names) if isinstance(names, str) else names or () for names in (first, second))
    return tuple(dict.fromkeys(name for names in lists for name in names))


def number_of_rounds(options: Lottery) -> int:
    """Return how many rounds follow round 0, from one option or the other."""
    if options.until is None:
        return options.rounds or 0
    found = rounds_until(options.until, options.rate)
    return found - 1 if options.pruning.score == "snip" else found  # which prunes in round 0


def ticket_options(options: Lottery, seed: int) -> dict[str, Any]:
    """Return the keywords of the `LotteryTicket` of an experiment."""
    return {"rate": options.rate, **asdict(options.pruning), "seed": seed}


def run_options(options: Lottery) -> Fit:
    """Return the options of one round, which are those of a run."""
    return Fit(**{one.name: getattr(options, one.name) for one in fields(Fit)} | {"run_dir": None, "resume": None})


def arms_of(options: Lottery) -> list[Arm]:
    """Return the arms in the order in which they are trained: first one seed of all algebras, each with its controls."""
    return [
        Arm(algebra, control, seed, file_name(shortest("zoo.algebras", algebra)))
        for seed in range(options.seed, options.seed + options.seeds)
        for algebra in options.compare
        for control in (None, *options.controls)
    ]


def points_of(options: Lottery) -> list[Point]:
    """Return the rounds of all arms; a round follows the one before it, and that of a control its ticket's round.

    A control has no round in which nothing is pruned.
    """
    made = []
    for arm in arms_of(options):
        start = int(arm.control is not None and options.pruning.score != "snip")
        for number in range(start, (options.rounds or 0) + 1):
            before = (arm.point(number - 1),) if number > start else ()
            after = (arm.ticket.point(number), *before) if arm.control else before
            made.append(Point(arm.point(number), {"arm": arm, "round": number}, after=after))
    return made


def experiment_name(options: Lottery) -> str:
    """Name the folder of an experiment after its backbone, algebras and data."""
    if len(options.compare) == 1:
        return f"lottery-{run_name(replace(options, algebra=options.compare[0]))}"
    algebras = [shortest("zoo.algebras", name) for name in options.compare]
    parts = [shortest("zoo.backbones", options.backbone), *algebras, shortest("zoo.datasets", options.data or "")]
    return f"lottery-{file_name('-'.join(parts))}"


def resume_text(folder: Path) -> str | None:
    """Say how to resume an experiment; None if no round has begun to learn."""
    began = (path for path in folder.glob("*/seed-*/round-*") if checkpoint_files(path / "checkpoints"))
    if any(folder.glob("*/seed-*/round-*/summary.json")) or any(began):
        return f"what was trained is kept, go on with: zoo lottery --resume {shlex.quote(str(folder))}"
    return None
