"""Optimizers of timm and learning rate schedules: checked, grouped and built."""

import difflib
import math
from typing import Any

import torch
from torch import nn

from zoo.errors import InputError
from zoo.layers.weight import Weight

SCHEDULES = ("cosine", "linear", "constant", "inverse_sqrt")
FALLING = ("cosine", "linear")
"""The schedules that end at a floor."""

Betas = tuple[float, float] | None


def lr_factor(step: int, steps: int, schedule: str = "cosine", warmup: float = 0.1, floor: float = 0.0) -> float:
    """Return the share of the peak learning rate at a step, counted from 0, of that many steps of the optimizer.

    ``inverse_sqrt`` is Equation 3 of Vaswani et al. (2017) over its own maximum: with w steps of warm-up it is
    min(s / w, sqrt(w / s)) at step s, counted from 1.

    Example:
        >>> [round(lr_factor(step, 10, warmup=0.2), 2) for step in (0, 1, 2, 6, 10)]
        [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    warm = round(warmup * steps)
    if step < warm:
        return (step + 1) / warm
    if schedule == "inverse_sqrt":
        return math.sqrt(max(1, warm) / (step + 1))
    done = min(1.0, (step - warm) / max(1, steps - warm))
    share = {"cosine": 0.5 * (1 + math.cos(math.pi * done)), "linear": 1 - done, "constant": 1.0}[schedule]
    return floor + (1 - floor) * share


def check_schedule(name: str, warmup: float = 0.1, floor: float = 0.0, prefix: str = "") -> None:
    """Check a schedule: a known name, a warm-up and a floor that are shares, and no floor where nothing falls.

    Args:
        name: One of `SCHEDULES`.
        warmup: Share of all steps.
        floor: Share of the peak.
        prefix: What messages put before the names of options.

    Raises:
        InputError: If one of them is wrong.
    """
    if name not in SCHEDULES:
        raise InputError(f"unknown schedule '{name}': use {', '.join(SCHEDULES)}")
    if not 0 <= warmup <= 1:
        raise InputError(f"{prefix}warmup={warmup} is a share of all steps: use 0 to 1")
    if not 0 <= floor <= 1:
        raise InputError(f"{prefix}floor={floor} is a share of the peak: use 0 to 1")
    if floor and name not in FALLING:
        raise InputError(f"{prefix}floor is for {' and '.join(FALLING)}, not for {name}: leave it out")


def make_optimizer(
    net: nn.Module, name: str, lr: float, weight_decay: float, betas: Betas = None, eps: float | None = None
) -> torch.optim.Optimizer:
    """Build an optimizer of timm; vectors, biases and what a module keeps from decay are in a group without decay."""
    from timm.optim import create_optimizer_v2, param_groups_weight_decay

    groups = param_groups_weight_decay(net, weight_decay, no_weight_decay_list=undecayed(net))
    return create_optimizer_v2(groups, opt=name, lr=lr, weight_decay=0.0, **_given(betas, eps))


def undecayed(net: nn.Module) -> set[str]:
    """Name the parameters that a module of the network keeps from weight decay, by timm's ``no_weight_decay()``."""
    kept: set[int] = set()
    for module in net.modules():
        names = module.no_weight_decay() if hasattr(module, "no_weight_decay") else ()  # type: ignore[operator]
        own = dict(module.named_parameters())
        kept |= {id(own[name]) for name in names if name in own}  # networks of timm name some that they may lack
    return {name for name, parameter in net.named_parameters() if id(parameter) in kept}


def check_network(net: nn.Module, optimizer: str) -> None:
    """Check that an optimizer can train a network.

    Muon orthogonalises every parameter as one matrix (Jordan et al. 2024); components [n, out / n, in / n] are none, and timm
    would flatten them to n rows.

    Raises:
        InputError: If it cannot.
    """
    if "muon" in optimizer and any(isinstance(part, Weight) and not part.is_matrix for part in net.modules()):
        raise InputError(f"optimizer '{optimizer}' needs real matrices, and components over an algebra are none: use adamw")


def check_optimizer(
    name: str,
    lr: float | None,
    weight_decay: float = 0.05,
    betas: Betas = None,
    eps: float | None = None,
    prefix: str = "",
) -> None:
    """Check that timm knows an optimizer, and that its numbers can work.

    Args:
        name: Of the optimizer.
        lr: Peak learning rate.
        weight_decay: Decay of matrices.
        betas: Two numbers, or None for the optimizer's own.
        eps: A number above zero, or None for the optimizer's own.
        prefix: What messages put before the names of options.

    Raises:
        InputError: If one of them is wrong.
    """
    from timm.optim import create_optimizer_v2, list_optimizers

    names = [str(known) for known in list_optimizers()]
    if name not in names:
        close = difflib.get_close_matches(name, names, n=3)
        hint = f": did you mean {', '.join(close)}?" if close else f": use one of timm's, such as {', '.join(names[:8])}"
        raise InputError(f"unknown optimizer '{name}'{hint}")
    if lr is None or not 0 < lr < math.inf:
        raise InputError(f"{prefix}lr={lr}: a learning rate is above zero")
    if not 0 <= weight_decay < math.inf:
        raise InputError(f"{prefix}weight_decay={weight_decay}: a decay is zero or more")
    _check_moments(name, betas, eps, prefix)
    try:
        create_optimizer_v2([nn.Parameter(torch.zeros(2, 2))], opt=name, lr=lr, **_given(betas, eps))
    except (AssertionError, ImportError, RuntimeError, ValueError, TypeError) as error:
        raise InputError(f"optimizer '{name}' does not work here: {str(error) or type(error).__name__}") from error


def _given(betas: Betas, eps: float | None) -> dict[str, Any]:
    """Return the options that are not left to the optimizer."""
    return {name: value for name, value in (("betas", betas), ("eps", eps)) if value is not None}


def _check_moments(name: str, betas: Any, eps: float | None, prefix: str) -> None:
    """Check betas and eps, and that the optimizer has such options."""
    from timm.optim import get_optimizer_info

    knows = get_optimizer_info(name)
    for option, value, known in (("betas", betas, knows.has_betas), ("eps", eps, knows.has_eps)):
        if value is not None and not known:
            raise InputError(f"optimizer '{name}' has no {option}: leave {prefix}{option} out")
    if betas is not None and not (isinstance(betas, tuple | list) and len(betas) == 2 and all(map(_is_beta, betas))):
        raise InputError(f"{prefix}betas={betas!r}: use two numbers from 0 to below 1, such as 0.9,0.98")
    if betas is not None and knows.num_betas != 2:
        raise InputError(f"optimizer '{name}' has {knows.num_betas} betas, not two: leave {prefix}betas out")
    if eps is not None and not 0 < eps < math.inf:
        raise InputError(f"{prefix}eps={eps}: a denominator needs a small number above zero")


def _is_beta(value: object) -> bool:
    """Tell whether a value can be the decay of a running mean."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1
