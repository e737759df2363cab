"""Optimizers of timm and learning rate schedules: checked, grouped and built."""

import math
from difflib import get_close_matches
from typing import Any

import torch
from torch import nn

from zoo.errors import InputError, check_rules
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


def make_optimizer(
    net: nn.Module,
    name: str,
    lr: float,
    weight_decay: float,
    betas: Betas = None,
    eps: float | None = None,
    mup_base_width: int | None = None,
) -> torch.optim.Optimizer:
    """Build an optimizer of timm; vectors, biases and what a module keeps from decay are in a group without decay.

    A module may have a method ``lr_scale()`` that returns factors on ``lr`` by names of its parameters: groups of their own.
    With ``mup_base_width`` matrices have the factors of `mup_scales` too.
    """
    from timm.optim import create_optimizer_v2, param_groups_weight_decay

    groups = param_groups_weight_decay(net, weight_decay, no_weight_decay_list=undecayed(net))
    groups = _scaled(net, groups, lr, {} if mup_base_width is None else mup_scales(net, mup_base_width))
    return create_optimizer_v2(groups, opt=name, lr=lr, weight_decay=0.0, **_given(betas, eps))


def undecayed(net: nn.Module) -> set[str]:
    """Name the parameters that a module of the network keeps from weight decay, by timm's ``no_weight_decay()``."""
    undecayed_ids: set[int] = set()
    for module in net.modules():
        names = module.no_weight_decay() if hasattr(module, "no_weight_decay") else ()  # type: ignore[operator]
        parameters = dict(module.named_parameters())
        undecayed_ids |= {
            id(parameters[name]) for name in names if name in parameters
        }  # networks of timm name some that they may lack
    return {name for name, parameter in net.named_parameters() if id(parameter) in undecayed_ids}


def mup_scales(net: nn.Module, base_width: int) -> dict[int, float]:
    r"""Return the factor on the learning rate of each matrix by the id of its parameter, for optimizers such as Adam.

    The update of Adam has entries of one size, the learning rate eta. Maximal update parametrization (Yang et al. 2022, Table
    3) asks that a step moves the outputs of a layer equally at every width. For inputs x of variance 1 and fan-in d:

    - Over the reals the update eta sign(g x^T) moves each output by eta sum_b |x_b|, proportional to eta d.
    - Over an algebra of dimension n the component w_i[a, b] stands in n rows k of the matrix, with sum_j A[i, j, k] x_j[b] as
      its input. Its gradient sums n products of which a row is one, so its sign agrees with the sign that the row wants with a
      correlation of about 1 / sqrt(n). The d terms of an output move it by eta d / sqrt(n) if every entry of the matrix is one
      signed component (complex numbers, quaternions, octonions), and in general by eta d ||A||_F / n^(3/2), because the
      variance of that input is ||A||_F^2 / n^2 on average.

    So the factor is (base_width / d) n^(3/2) / ||A||_F, which is sqrt(n) base_width / d for a signed table: a real matrix of
    fan-in ``base_width`` has the factor 1. Embedding tables, whose inputs are one-hot, norms, biases and a learned product have
    the factor 1, as have modules of torch that no `Layers` has made.

    Args:
        net: The network.
        base_width: Fan-in at which a real matrix has the learning rate of the options.
    """
    scales: dict[int, float] = {}
    for weight in net.modules():
        if isinstance(weight, Weight) and not weight.transposed:
            n, size = weight.algebra.n, float(weight.algebra.structure.detach().norm())
            fan_in = n * weight.elements[0, 0].numel()
            scales[id(weight.components)] = base_width / fan_in * n**1.5 / size
    return scales


def _scaled(net: nn.Module, groups: list[dict[str, Any]], lr: float, scales: dict[int, float]) -> list[dict[str, Any]]:
    """Split groups of parameters by the factors on their learning rates; the same groups where every factor is one."""
    for module in net.modules():
        named = module.lr_scale() if hasattr(module, "lr_scale") else {}  # type: ignore[operator]
        parameters = dict(module.named_parameters())
        for parameter, factor in ((parameters[name], factor) for name, factor in named.items() if name in parameters):
            scales[id(parameter)] = scales.get(id(parameter), 1.0) * factor
    scales = {parameter: factor for parameter, factor in scales.items() if factor != 1}
    if not scales:
        return groups
    parts = [(group, factor) for group in groups for factor in sorted({1.0, *scales.values()}, reverse=True)]
    chosen = [[p for p in group["params"] if scales.get(id(p), 1.0) == factor] for group, factor in parts]
    split = zip(parts, chosen, strict=True)
    return [group | {"params": params, "lr": factor * lr} for (group, factor), params in split if params]


def check_schedule(name: str, warmup: float = 0.1, floor: float = 0.0, prefix: str = "") -> None:
    """Check a schedule; ``prefix`` is what messages put before the names of options."""
    check_rules(
        (name in SCHEDULES, f"unknown schedule '{name}': use {', '.join(SCHEDULES)}"),
        (0 <= warmup <= 1, f"{prefix}warmup={warmup} is a share of all steps: use 0 to 1"),
        (0 <= floor <= 1, f"{prefix}floor={floor} is a share of the peak: use 0 to 1"),
        (not floor or name in FALLING, f"{prefix}floor is for {' and '.join(FALLING)}, not for {name}: leave it out"),
    )


def check_network(net: nn.Module, optimizer: str) -> None:
    """Check that an optimizer can train a network.

    Muon orthogonalises every parameter as one matrix (Jordan et al. 2024); components [n, out / n, in / n] are none, and timm
    would flatten them to n rows.
    """
    if "muon" in optimizer and any(isinstance(part, Weight) and not part.is_matrix for part in net.modules()):
        raise InputError(f"optimizer '{optimizer}' needs real matrices, and components over an algebra are none: use adamw")


def check_optimizer(
    name: str,
    lr: float | None,
    weight_decay: float = 0.05,
    betas: Betas = None,
    eps: float | None = None,
    mup_base_width: int | None = None,
    prefix: str = "",
) -> None:
    """Check that timm knows an optimizer, and that its numbers can work; ``prefix`` is as in `check_schedule`."""
    from timm.optim import create_optimizer_v2, get_optimizer_info, list_optimizers

    names = [str(known) for known in list_optimizers()]
    if name not in names:
        close = get_close_matches(name, names, n=3)
        hint = f": did you mean {', '.join(close)}?" if close else f": use one of timm's, such as {', '.join(names[:8])}"
        raise InputError(f"unknown optimizer '{name}'{hint}")
    knows = get_optimizer_info(name)
    pair = betas is None or (isinstance(betas, tuple | list) and len(betas) == 2 and all(map(_is_beta, betas)))
    check_rules(
        (lr is not None and 0 < lr < math.inf, f"{prefix}lr={lr}: a learning rate is above zero"),
        (0 <= weight_decay < math.inf, f"{prefix}weight_decay={weight_decay}: a decay is zero or more"),
        (betas is None or knows.has_betas, f"optimizer '{name}' has no betas: leave {prefix}betas out"),
        (eps is None or knows.has_eps, f"optimizer '{name}' has no eps: leave {prefix}eps out"),
        (pair, f"{prefix}betas={betas!r}: use two numbers from 0 to below 1, such as 0.9,0.98"),
        (
            betas is None or knows.num_betas == 2,
            f"optimizer '{name}' has {knows.num_betas} betas, not two: leave {prefix}betas out",
        ),
        (mup_base_width is None or mup_base_width >= 1, f"{prefix}mup_base_width={mup_base_width}: must be 1 or more"),
        (
            mup_base_width is None or "sgd" not in name,
            f"{prefix}mup_base_width is derived for optimizers such as adamw, not for {name}: leave it out",
        ),
        (eps is None or 0 < eps < math.inf, f"{prefix}eps={eps}: a denominator needs a small number above zero"),
    )
    try:
        create_optimizer_v2([nn.Parameter(torch.zeros(2, 2))], opt=name, lr=lr, **_given(betas, eps))
    except (AssertionError, ImportError, RuntimeError, ValueError, TypeError) as error:
        raise InputError(f"optimizer '{name}' does not work here: {str(error) or type(error).__name__}") from error


def _given(betas: Betas, eps: float | None) -> dict[str, Any]:
    """Return the options that are not left to the optimizer."""
    return {name: value for name, value in (("betas", betas), ("eps", eps)) if value is not None}


def _is_beta(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1
