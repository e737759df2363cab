"""The teacher of a run: a trained model that the network of the run learns from."""

from typing import Any

from zoo.checkpoint import find, read_config
from zoo.errors import InputError, check_rules
from zoo.hub.sources import locate
from zoo.inference.evaluation import fixed
from zoo.inference.model import load
from zoo.tasks.base import Task
from zoo.tasks.distillation import Distillation, check_distillation, check_distilled
from zoo.training.options import DistillationOptions, Fit


def check_teacher(options: Fit, task: type[Task]) -> None:
    """Check all of a teacher that needs no data.

    Raises:
        InputError: If there is no such model, an option is wrong, or the task has no soft targets.
    """
    own = options.distillation
    check_distillation(own.temperature, own.weight)
    if options.teacher is None:
        check_rules(
            (own == DistillationOptions(), "--distillation is how a teacher is used: give --teacher too, or leave it out")
        )
        return
    check_distilled(task)
    read_config(locate(options.teacher))


def read_teacher(options: Fit, data: Any) -> Distillation:
    """Load the teacher of a run whose data are set up.

    Raises:
        InputError: If it tells apart other classes, reads other inputs or other tokens, or prepares images in another way.
    """
    source, info = str(options.teacher), getattr(data, "info", None)
    path = locate(source)
    teacher = load(path)
    if info is None or teacher.info is None:
        raise InputError(f"--teacher {source}: what it was trained on is not known, so that its answers mean nothing here")
    theirs, ours = fixed(teacher.info), fixed(info)
    for key in theirs | ours:
        if theirs.get(key) != ours.get(key):
            one, two = (_told(values.get(key)) for values in (theirs, ours))
            raise InputError(f"--teacher {source}: it has {key} = {one}, and '{options.data}' has {two}")
    for name, text in dict(getattr(data, "files", {})).items():
        file = find(path) / name
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            raise InputError(f"--teacher {source}: its tokenizer is not that of '{options.data}': train both on the same data")
    for key in ("mean", "std"):
        if getattr(teacher.info, key, None) != getattr(info, key, None):
            raise InputError(f"--teacher {source}: the {key} of its training images is not that of '{options.data}'")
    own = options.distillation
    return Distillation(teacher.net, own.temperature, own.weight)


def _told(value: Any) -> str:
    """Write a value for a message: of many classes their number and the first ones."""
    if not isinstance(value, tuple):
        return str(value)
    first = ", ".join(map(str, value[:3]))
    return f"{len(value)} ({first}, ...)" if len(value) > 3 else f"{len(value)} ({first})"
