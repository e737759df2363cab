"""What an optimizer of timm is told, and whether it can work."""

import difflib
import math
from typing import Any

import torch
from torch import nn

from zoo.errors import InputError
from zoo.options import Optimizer


def undecayed(net: nn.Module) -> set[str]:
    """Name the parameters that a module of the network keeps from weight decay, by timm's ``no_weight_decay()``."""
    keepers: list[tuple[str, Any]] = [
        (name, module) for name, module in net.named_modules() if hasattr(module, "no_weight_decay")
    ]
    return {f"{name}.{own}" if name else own for name, module in keepers for own in module.no_weight_decay()}


def extra(optimizer: Optimizer) -> dict[str, Any]:
    """What an optimizer is told beyond what all of them are told."""
    return {name: getattr(optimizer, name) for name in ("betas", "eps") if getattr(optimizer, name) is not None}


def check_optimizer(optimizer: Optimizer) -> None:
    """Refuse an optimizer that timm does not know, or numbers that cannot work."""
    from timm.optim import create_optimizer_v2, list_optimizers

    names = [str(name) for name in list_optimizers()]
    if optimizer.name not in names:
        close = difflib.get_close_matches(optimizer.name, names, n=3)
        hint = f": did you mean {', '.join(close)}?" if close else f": use one of timm's, such as {', '.join(names[:8])}"
        raise InputError(f"unknown optimizer '{optimizer.name}'{hint}")
    if optimizer.lr is None or not 0 < optimizer.lr < math.inf:
        raise InputError(f"optimizer.lr={optimizer.lr}: a learning rate is above zero")
    if not 0 <= optimizer.weight_decay < math.inf:
        raise InputError(f"optimizer.weight_decay={optimizer.weight_decay}: a decay is zero or more")
    check_moments(optimizer)
    try:
        create_optimizer_v2([nn.Parameter(torch.zeros(2, 2))], opt=optimizer.name, lr=optimizer.lr, **extra(optimizer))
    except (AssertionError, ImportError, RuntimeError, ValueError, TypeError) as error:
        raise InputError(f"optimizer '{optimizer.name}' does not work here: {str(error) or type(error).__name__}") from error


def check_moments(optimizer: Optimizer) -> None:
    """Refuse betas and eps that cannot work, or that the optimizer would not hear of."""
    from timm.optim import get_optimizer_info

    knows, betas, eps = get_optimizer_info(optimizer.name), optimizer.betas, optimizer.eps
    for name, value, known in (("betas", betas, knows.has_betas), ("eps", eps, knows.has_eps)):
        if value is not None and not known:
            raise InputError(f"optimizer '{optimizer.name}' has no {name}: leave optimizer.{name} out")
    if betas is not None and not (isinstance(betas, tuple | list) and len(betas) == 2 and all(map(is_beta, betas))):
        raise InputError(f"optimizer.betas={betas!r}: use two numbers from 0 to below 1, such as 0.9,0.98")
    if betas is not None and knows.num_betas != 2:
        raise InputError(f"optimizer '{optimizer.name}' has {knows.num_betas} betas, not two: leave optimizer.betas out")
    if eps is not None and not 0 < eps < math.inf:
        raise InputError(f"optimizer.eps={eps}: a denominator needs a small number above zero")


def is_beta(value: object) -> bool:
    """Tell whether a value can be the decay of a running mean."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1
