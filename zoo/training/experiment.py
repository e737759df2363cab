"""The arms, rounds and results of an experiment with lottery tickets, and its folder; nothing is trained here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from zoo.checkpoint.atomic import write_json
from zoo.checkpoint.lottery import FORMAT, RESULTS, check_links, is_name, read_results, row_problem
from zoo.checkpoint.manifest import read_json
from zoo.errors import InputError, check_rules
from zoo.pruning import LotteryTicket, rounds_until
from zoo.registry.spec import Spec, split_specs
from zoo.training.checkpoint_io import read_checkpoint
from zoo.training.folder import (
    FREE,
    RunFolder,
    config_values,
    file_name,
    flat,
    read_config,
    run_name,
    shortest,
    write_config,
)
from zoo.training.options import Fit, Lottery, without_tuples
from zoo.training.resolve import Plan, plan

CONTROLS = ("random", "reinit")
DIVERGED = "training diverged"
"""Begins the text of a `zoo.training.callbacks.DivergenceError`."""
_ROUNDS, _MOST = 10, 200
_MAY_CHANGE = {"algebra", "compare", "controls", "seeds", "rounds", "until", "collapse", *FREE}


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

    def is_of(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a row is one of this arm."""
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
    planned = [plan(replace(options, algebra=name)) for name in names]
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


def experiment_name(options: Lottery) -> str:
    """Name the folder of an experiment after its backbone, algebras and data."""
    if len(options.compare) == 1:
        return f"lottery-{run_name(replace(options, algebra=options.compare[0]))}"
    algebras = [shortest("zoo.algebras", name) for name in options.compare]
    parts = [shortest("zoo.backbones", options.backbone), *algebras, shortest("zoo.datasets", options.data or "")]
    return f"lottery-{file_name('-'.join(parts))}"


# --- the folder ---


def begin_experiment(folder: RunFolder, options: Lottery) -> dict[str, Any]:
    """Write config.yaml, and return what there is of the parts of an `Experiment`; in process 0."""
    found: dict[str, Any] = {"rows": [], "stopped": [], "metric": "loss", "mode": "min"}
    path = folder.path / RESULTS
    if folder.resumed:
        check_links(folder.path)
        check_changes(folder.path, options)
        if path.exists():
            try:
                found = read_results(path)
            except InputError as error:
                raise InputError(f"{error}; remove the file, and it is written anew") from error
        for row in found["rows"]:
            shutil.rmtree(folder.path / row["folder"] / "checkpoints", ignore_errors=True)
    write_config(folder.path, options)
    diverged = [one for one in found["stopped"] if one["reason"].startswith(DIVERGED)]
    return {"metric": (found["metric"], found["mode"]), "rows": found["rows"], "diverged": diverged}


def check_changes(folder: Path, options: Lottery) -> None:
    """Refuse to go on with an experiment under options that its finished rounds did not have."""
    old, new = flat(read_config(folder)), flat(config_values(options))
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name) and name not in _MAY_CHANGE:
            text = f"the experiment '{folder}' has {name}={old.get(name)}, not {new.get(name)}"
            raise InputError(f"{text}: begin a new one (rounds, seeds, algebras and controls can be added to this one)")


def read_ticket(path: Path) -> dict[str, Any]:
    """Read ticket.ckpt; names and shapes are compared with the network when a round begins."""
    state = read_checkpoint(path)
    ticket: dict[str, Any] = state["ticket"] if isinstance(state.get("ticket"), dict) else {}
    since: Any = state.get("pruned_from")
    tables = [since, *(ticket.get(name) for name in ("masks", "rewind_point", "sums"))]
    tensors = all(isinstance(one, dict) and all(isinstance(value, Tensor) for value in one.values()) for one in tables)
    if not tensors or not isinstance(ticket.get("options"), dict) or not {"round", "is_due"} <= ticket.keys():
        raise InputError(f"'{path}' is no lottery ticket: begin a new experiment")
    shapes = [{name: (value.shape, value.dtype) for name, value in one.items()} for one in (ticket["masks"], since)]
    if shapes[0] != {name: (shape, torch.bool) for name, (shape, _) in shapes[1].items()}:
        raise InputError(f"'{path}' is no lottery ticket, for its masks differ: begin a new experiment")
    return state


@dataclass
class Experiment:
    """What is to be trained, and what is done; the same in all processes.

    Attributes:
        folder: Its folder.
        options: Its options, with everything filled in.
        task: The spec of its task.
        metric: The figure that is shown and watched, and whether it is to be high (``max``) or low (``min``).
        arms: Its arms.
        rows: A row of lottery.json for every round that is done.
        diverged: Arms whose training has diverged, as lottery.json names them.
    """

    folder: Path
    options: Lottery
    task: str
    metric: tuple[str, str]
    arms: list[Arm]
    rows: list[dict[str, Any]] = field(default_factory=list)
    diverged: list[dict[str, Any]] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        """How many rounds follow round 0."""
        return self.options.rounds or 0

    def round_folder(self, arm: Arm, number: int) -> Path:
        """Return the folder of a round."""
        return self.folder / arm.folder / f"round-{number:02d}"

    def row(self, arm: Arm, number: int) -> dict[str, Any] | None:
        """Return the row of a round; None if it is not done."""
        return next((row for row in self.rows if row["round"] == number and arm.is_of(row)), None)

    def open_rounds(self) -> Iterator[tuple[Arm, int]]:
        """Yield the rounds that are still to be trained, as long as the arm they are of goes on."""
        for arm in self.arms:
            for number in self.numbers(arm):
                if self.stopped(arm) or (arm.control and self.row(arm.ticket, number) is None):
                    break
                if self.row(arm, number) is None:
                    yield arm, number

    def numbers(self, arm: Arm) -> range:
        """Return the rounds of an arm: a control has none in which nothing is pruned."""
        dense = arm.control is not None and self.options.pruning.score != "snip"
        return range(int(dense), self.rounds + 1)

    def left(self) -> int:
        """Count the rounds to be trained if no further arm ends early."""
        arms = [arm for arm in self.arms if not self.stopped(arm) and not self.stopped(arm.ticket)]
        return sum(self.row(arm, number) is None for arm in arms for number in self.numbers(arm))

    def stopped(self, arm: Arm) -> dict[str, Any] | None:
        """Say why an arm has no more rounds: its training diverged, or its figure in validation collapsed."""
        if found := next((one for one in self.diverged if arm.is_of(one)), None):
            return found
        first = next((row for row in self.rows if arm.ticket.is_of(row) and row["round"] == 0), None)
        name, high = self.metric[0], self.metric[1] == "max"
        start = None if first is None else first["val"].get(name)
        collapse = self.options.collapse or (0.5 if high else 1.0)
        if start is None or start <= 0 or collapse == 1:
            return None
        limit = start * (1 - collapse) if high else start / (1 - collapse)
        for row in self.rows:
            value = row["val"].get(name) if arm.is_of(row) and row["round"] < self.rounds else None
            if value is not None and (value < limit if high else value > limit):
                side = "below" if high else "above"
                reason = f"{name} {value:.4g} in validation is {side} {limit:.4g} (--collapse {collapse:g})"
                return self.note(arm, row["round"], reason)
        return None

    @staticmethod
    def note(arm: Arm, number: int, reason: str) -> dict[str, Any]:
        """Return what lottery.json says of an arm that has no more rounds."""
        return {"algebra": arm.algebra, "control": arm.control, "seed": arm.seed, "round": number, "reason": reason}

    def read_row(self, arm: Arm, number: int) -> tuple[dict[str, Any], tuple[str, str]]:
        """Read from its summary what a round came to, and the figure that is watched."""
        folder = self.round_folder(arm, number)
        summary = read_json(folder / "summary.json")
        found = summary.get("lottery")
        found = found if isinstance(found, dict) else {}
        row = {"algebra": arm.algebra, "control": arm.control, "seed": arm.seed, "round": number}
        row |= {name: found.get(name) for name in ("survivors", "weights", "real_weights", "val")}
        row |= {"test": summary.get("metrics"), "epoch": found.get("epoch"), "seconds": summary.get("seconds")}
        row |= {"folder": str(folder.relative_to(self.folder))}
        metric, mode = found.get("metric"), found.get("mode")
        fine = is_name(metric) and mode in ("min", "max")
        if problem := row_problem(row) or ("" if fine else "has no metric"):
            raise InputError(f"'{folder / 'summary.json'}' is not that of a round (it {problem}): begin a new experiment")
        return row, (str(metric), str(mode))

    def results(self) -> dict[str, Any]:
        """Return what lottery.json holds."""
        options = self.options
        found: dict[str, Any] = {"format": FORMAT, "backbone": options.backbone, "data": options.data, "task": self.task}
        found |= {"metric": self.metric[0], "mode": self.metric[1], "rate": options.rate, "rounds": self.rounds}
        stopped = [one for arm in self.arms if (one := self.stopped(arm))]
        found |= {"pruning": asdict(options.pruning, dict_factory=without_tuples), "rows": self.rows, "stopped": stopped}
        return found | {"left": self.left()}

    def write(self) -> None:
        """Write lottery.json; in process 0."""
        write_json(self.folder / RESULTS, self.results())
