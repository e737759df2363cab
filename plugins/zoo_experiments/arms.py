"""The options and the arms of an experiment with lottery tickets; nothing is trained here."""

from __future__ import annotations

import shlex
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from zoo.errors import check_choice, check_rules
from zoo.pruning import LotteryTicket, rounds_until
from zoo.registry.spec import Spec, split_at_commas
from zoo.training.folder import file_name, read_run_config, run_name, short_spec
from zoo.training.options import FREE, Fit, config_values
from zoo.training.resolve import Plan, plan_run
from zoo_experiments.grid import Point
from zoo_experiments.options import Lottery, check_execution

MAY_CHANGE = {"algebra", "compare", "controls", "seeds", "rounds", "until", "collapse", *FREE}
"""Options that may change on resume."""
_ROUNDS, _MOST_ROUNDS = 10, 200


class Arm(NamedTuple):
    """The rounds of one algebra and seed, of the ticket (control None) or of a control; `name` is the folder of the algebra."""

    algebra: str
    control: str | None
    seed: int
    name: str

    @property
    def folder(self) -> str:
        """The folder of the arm in that of the experiment."""
        return f"{self.name}{f'-{self.control}' if self.control else ''}/seed-{self.seed}"

    @property
    def title(self) -> str:
        """The name of the arm in messages."""
        return f"{self.algebra}{f' ({self.control})' if self.control else ''}, seed {self.seed}"

    @property
    def ticket(self) -> Arm:
        """The ticket of a control; a ticket itself."""
        return self._replace(control=None)

    @property
    def key(self) -> dict[str, Any]:
        """The keys of the arm in its rows."""
        return {"algebra": self.algebra, "control": self.control, "seed": self.seed}

    def point(self, number: int) -> str:
        """Return the name of a round, which is also its folder."""
        return f"{self.folder}/round-{number:02d}"


def check_lottery(options: Lottery) -> tuple[Lottery, Plan]:
    """Check the options; return them with all defaults filled in, and the plan of the first arm.

    On resume, algebras and controls are added to those of the experiment.
    """
    before = read_run_config(Path(options.resume).expanduser()) if options.resume not in (None, "auto") else {}
    text = f"'{options.resume}' is a single run, not an experiment with lottery tickets: use the folder with lottery.json"
    check_rules((not before or "rate" in before, text), code="mismatch")
    names = merge_names([options.algebra] if options.algebra else [], merge_names(before.get("compare"), options.compare))
    options = replace(options, controls=merge_names(before.get("controls"), options.controls))
    check_rules((bool(names), "missing --algebra, or --compare with several of them (see zoo lottery --help)"), code="missing")
    check_options(options)
    rounds = options.rounds if options.rounds is not None else 1 if options.pruning.pattern else _ROUNDS
    if options.until is not None:
        rounds = rounds_until(options.until, options.rate) - (options.pruning.score == "snip")  # which prunes in round 0
    check_rules((0 <= rounds <= _MOST_ROUNDS, f"rounds={rounds}: must be between 0 and {_MOST_ROUNDS}"))
    plans = [plan_run(replace(options, algebra=name, rounds=rounds, until=None), try_network=True) for name in names]
    algebras = {folder_name(planned.options.algebra): planned.options.algebra for planned in plans}  # phm-4 is phm(n=4)
    filled = plans[0].options
    assert isinstance(filled, Lottery)
    return replace(filled, algebra="", compare=tuple(algebras.values())), plans[0]


def check_options(options: Lottery) -> None:
    """Check the options that a single round does not have, and refuse those that rounds do not support."""
    LotteryTicket(**ticket_options(options, 0))
    check_execution(options)
    for name in options.controls:
        check_choice("control", name, ("random", "reinit"))
    pretrained = options.init_from or Spec.parse(options.backbone).options.get("pretrained")
    writes = options.trainer.get("enable_checkpointing") is not False and not options.trainer.get("fast_dev_run")
    check_rules(
        (not pretrained or "reinit" not in options.controls, "--controls reinit excludes pretrained weights"),
        (options.folds is None, "--folds is not supported: a round is one training"),
        (writes, "rounds need training checkpoints: leave --trainer.enable_checkpointing and fast_dev_run out"),
        code="conflict",
    )
    check_rules(
        (options.seeds >= 1, f"seeds={options.seeds}: must be 1 or more"),
        (options.collapse is None or 0 < options.collapse <= 1, f"collapse={options.collapse}: must be in (0, 1]; 1 for never"),
    )


def merge_names(first: Any, second: Any) -> tuple[str, ...]:
    """Return the names of two lists without repetitions; a string is a list separated by commas."""
    lists = (split_at_commas(names) if isinstance(names, str) else names or () for names in (first, second))
    return tuple(dict.fromkeys(name for names in lists for name in names))


def ticket_options(options: Lottery, seed: int) -> dict[str, Any]:
    """Return the keywords of the `LotteryTicket` of an experiment."""
    return {"rate": options.rate, **asdict(options.pruning), "seed": seed}


def arms_of(options: Lottery) -> list[Arm]:
    """Return the arms in training order: one seed of all algebras with their controls, then the next seed."""
    return [
        Arm(algebra, control, seed, folder_name(algebra))
        for seed in range(options.seed, options.seed + options.seeds)
        for algebra in options.compare
        for control in (None, *options.controls)
    ]


def lottery_points(options: Lottery) -> list[Point]:
    """Return the rounds of all arms; a round follows the previous one, and that of a control its ticket's round.

    A control has no dense round.
    """
    points, shared = [], {option.name: getattr(options, option.name) for option in fields(Fit)}
    for arm in arms_of(options):
        start = int(arm.control is not None and options.pruning.score != "snip")
        run = Fit(**shared | {"algebra": arm.algebra, "seed": arm.seed, "run_dir": None, "resume": None})
        for number in range(start, (options.rounds or 0) + 1):
            after = [arm.ticket.point(number)] if arm.control else []
            after += [arm.point(number - 1)] if number > start else []
            points.append(Point(arm.point(number), {"arm": arm, "round": number}, run, tuple(after)))
    return points


def folder_name(algebra: str) -> str:
    """Return the folder of an algebra."""
    return file_name(short_spec("zoo.algebras", algebra))


def experiment_name(options: Lottery) -> str:
    """Name the folder of an experiment after the run of its first algebra, and the other algebras."""
    first, *others = options.compare
    return "-".join(["lottery", run_name(config_values(replace(options, algebra=first))), *map(folder_name, others)])


def resume_text(folder: Path) -> str | None:
    """Say how to resume an experiment; None before the first checkpoint of its first round."""
    saved = any(any(folder.glob(f"*/seed-*/round-*/{name}")) for name in ("checkpoints/*.ckpt", "summary.json"))
    return f"progress is saved; resume with: zoo lottery --resume {shlex.quote(str(folder))}" if saved else None
