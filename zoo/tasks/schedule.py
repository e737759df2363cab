"""How the learning rate moves, step by step."""

import math

from zoo.errors import InputError
from zoo.options import Schedule

SCHEDULES = ("cosine", "linear", "constant", "inverse_sqrt")
FALLING = ("cosine", "linear")
"""Those that a floor stops."""


def lr_factor(schedule: Schedule, step: int, steps: int) -> float:
    """Return the share of the peak learning rate at a step, counted from 0, of that many steps of the optimizer.

    ``inverse_sqrt`` is Equation 3 of Vaswani et al. (2017) over its own maximum: with w steps of warm-up it is
    min(s / w, sqrt(w / s)) at step s, counted from 1.

    Example:
        >>> [round(lr_factor(Schedule("cosine", warmup=0.2), step, 10), 2) for step in (0, 1, 2, 6, 10)]
        [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    warm = round(schedule.warmup * steps)
    if step < warm:
        return (step + 1) / warm
    if schedule.name == "inverse_sqrt":
        return math.sqrt(max(1, warm) / (step + 1))
    done = min(1.0, (step - warm) / max(1, steps - warm))
    share = {"cosine": 0.5 * (1 + math.cos(math.pi * done)), "linear": 1 - done, "constant": 1.0}[schedule.name]
    return schedule.floor + (1 - schedule.floor) * share


def check_schedule(schedule: Schedule) -> None:
    """Refuse an unknown schedule, a warm-up or a floor that is no share, or a floor where nothing falls."""
    if schedule.name not in SCHEDULES:
        raise InputError(f"unknown schedule '{schedule.name}': use {', '.join(SCHEDULES)}")
    if not 0 <= schedule.warmup <= 1:
        raise InputError(f"schedule.warmup={schedule.warmup} is a share of all steps: use 0 to 1")
    if not 0 <= schedule.floor <= 1:
        raise InputError(f"schedule.floor={schedule.floor} is a share of the peak: use 0 to 1")
    if schedule.floor and schedule.name not in FALLING:
        raise InputError(f"schedule.floor is for {' and '.join(FALLING)}, not for {schedule.name}: leave it out")
