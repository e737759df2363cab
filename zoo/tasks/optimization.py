"""Optimizers of timm, parameter groups, and learning rate schedules."""

import math
from difflib import get_close_matches
from typing import Any

import torch
from torch import nn

from zoo.errors import InputError, check_choice, check_rules, one_line
from zoo.nn.weight import Weight
from zoo.registry.resolution import OF_VALUES

SCHEDULES = ("cosine", "linear", "constant", "inverse_sqrt")
DECAYING = ("cosine", "linear")
"""The schedules with a final learning rate."""

Betas = tuple[float, float] | None


def lr_factor(step: int, steps: int, schedule: str = "cosine", warmup: float = 0.1, floor: float = 0.0) -> float:
    """Return the learning rate at a step in [0, steps), as a fraction of the peak.

    ``inverse_sqrt`` is Equation 3 of Vaswani et al. (2017) over its maximum: with w steps of warm-up it is
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
    progress = min(1.0, (step - warm) / max(1, steps - warm))
    factor = {"cosine": 0.5 * (1 + math.cos(math.pi * progress)), "linear": 1 - progress, "constant": 1.0}[schedule]
    return floor + (1 - floor) * factor


def make_optimizer(
    net: nn.Module,
    name: str,
    lr: float,
    weight_decay: float,
    betas: Betas = None,
    eps: float | None = None,
    mup_base_width: int | None = None,
) -> torch.optim.Optimizer:
    """Build an optimizer of timm, without weight decay of vectors, biases and the parameters of `undecayed`.

    A module may define ``lr_scale()``, which returns factors on ``lr`` by names of its parameters. With ``mup_base_width``
    the learning rates of matrices also have the factors of `mup_scales`. On CPUs, torch's fused steps are used if available.
    """
    from timm.optim import create_optimizer_v2, param_groups_weight_decay

    groups = param_groups_weight_decay(net, weight_decay, no_weight_decay_list=undecayed(net))
    groups = _scaled(net, groups, lr, {} if mup_base_width is None else mup_scales(net, mup_base_width))
    optimizer = create_optimizer_v2(groups, opt=name, lr=lr, weight_decay=0.0, **_given(betas, eps))
    for group in optimizer.param_groups:
        if "fused" in group and all(parameter.device.type == "cpu" for parameter in group["params"]):
            group["fused"] = True  # with the argument fused=True, Lightning does not clip gradients under autocast
    return optimizer


def undecayed(net: nn.Module) -> set[str]:
    """Return the names of the parameters that ``no_weight_decay()`` of any module (a method of timm's) excludes."""
    undecayed_ids: set[int] = set()
    for module in net.modules():
        names = module.no_weight_decay() if hasattr(module, "no_weight_decay") else ()  # type: ignore[operator]
        parameters = dict(module.named_parameters())  # timm also returns names of optional parameters
        undecayed_ids |= {id(parameters[name]) for name in names if name in parameters}
    return {name for name, parameter in net.named_parameters() if id(parameter) in undecayed_ids}


def mup_scales(net: nn.Module, base_width: int) -> dict[int, float]:
    r"""Return the factor on the learning rate of each matrix by the id of its parameter, for optimizers such as Adam.

    All entries of an update of Adam have the size of the learning rate eta. In the maximal update parametrization (Yang et al.
    2022, Table 3) a step changes the outputs of a layer equally at every width. For inputs x of variance 1 and fan-in d:

    - Over the reals the update eta sign(g x^T) changes each output by eta sum_b |x_b|, proportional to eta d.
    - Over an algebra of dimension n the component w_i[a, b] occurs in n rows k of the matrix, with the input
      sum_j A[i, j, k] x_j[b]. Its gradient is a sum over these rows, so its sign has a correlation of about 1 / sqrt(n) with
      the term of one row. The d terms of an output change it by eta d / sqrt(n) if every entry of the matrix is one signed
      component (complex numbers, quaternions, octonions), and in general by eta d ||A||_F / n^(3/2), because the mean variance
      of the inputs is ||A||_F^2 / n^2.

    The factor is therefore (base_width / d) n^(3/2) / ||A||_F, or sqrt(n) base_width / d for a signed table: 1 for a real
    matrix of fan-in ``base_width``. It is also 1 for embedding tables, whose inputs are one-hot, for norms, biases and learned
    products, and for torch modules that were not built by `Layers`.
    """
    scales: dict[int, float] = {}
    for weight in net.modules():
        if isinstance(weight, Weight) and not weight.transposed:
            n, size = weight.algebra.n, float(weight.algebra.structure.detach().norm())
            fan_in = n * weight.elements[0, 0].numel()
            scales[id(weight.components)] = base_width / fan_in * n**1.5 / size
    return scales


def _scaled(net: nn.Module, groups: list[dict[str, Any]], lr: float, scales: dict[int, float]) -> list[dict[str, Any]]:
    """Split parameter groups by the factors on their learning rates."""
    for module in net.modules():
        named = module.lr_scale() if hasattr(module, "lr_scale") else {}  # type: ignore[operator]
        parameters = dict(module.named_parameters())
        for parameter, factor in ((parameters[name], factor) for name, factor in named.items() if name in parameters):
            scales[id(parameter)] = scales.get(id(parameter), 1.0) * factor
    scales = {parameter: factor for parameter, factor in scales.items() if factor != 1}
    if not scales:
        return groups
    split = []
    for group in groups:
        for factor in sorted({1.0, *scales.values()}, reverse=True):
            if params := [p for p in group["params"] if scales.get(id(p), 1.0) == factor]:
                split.append(group | {"params": params, "lr": factor * lr})
    return split


def check_schedule(name: str, warmup: float = 0.1, floor: float = 0.0) -> None:
    """Check a schedule."""
    check_choice("schedule", name, SCHEDULES)
    check_rules(
        (0 <= warmup <= 1, f"schedule.warmup={warmup}: must be in [0, 1], a fraction of all steps"),
        (0 <= floor <= 1, f"schedule.floor={floor}: must be in [0, 1], a fraction of the peak"),
        (not floor or name in DECAYING, f"floor requires schedule={' or '.join(DECAYING)}, got {name}: leave it out"),
    )


def check_network(net: nn.Module, optimizer: str) -> None:
    """Check that an optimizer supports a network.

    Muon orthogonalises 2-D parameters (Jordan et al. 2024); timm would flatten components [n, out / n, in / n] to n rows.
    """
    if "muon" in optimizer and any(isinstance(part, Weight) and not part.is_matrix for part in net.modules()):
        supported = "supports only 2-D parameters, and hypercomplex weights have 3 or more dimensions"
        raise InputError(f"optimizer '{optimizer}' {supported}: use adamw")


def check_optimizer(
    name: str,
    lr: float,
    weight_decay: float = 0.05,
    betas: Betas = None,
    eps: float | None = None,
    mup_base_width: int | None = None,
) -> None:
    """Check the name of an optimizer of timm and its options."""
    from timm.optim import create_optimizer_v2, get_optimizer_info, list_optimizers

    names = [str(known) for known in list_optimizers()]
    if name not in names:
        close = get_close_matches(name, names, n=3)
        hint = f"did you mean {', '.join(close)}?" if close else f"use one of timm's, such as {', '.join(names[:8])}"
        raise InputError(f"unknown optimizer '{name}': {hint}", code="unknown")
    info = get_optimizer_info(name)
    is_pair = betas is None or (len(betas) == 2 and all(0 <= beta < 1 for beta in betas))
    check_rules(
        (0 < lr < math.inf, f"optimizer.lr={lr}: must be positive"),
        (0 <= weight_decay < math.inf, f"optimizer.weight_decay={weight_decay}: must be 0 or more"),
        (betas is None or (info.has_betas and info.num_betas == 2), f"optimizer '{name}' has no two betas: leave betas out"),
        (is_pair, f"optimizer.betas={betas}: use two numbers in [0, 1), such as 0.9,0.98"),
        (eps is None or info.has_eps, f"optimizer '{name}' has no eps: leave eps out"),
        (eps is None or 0 < eps < math.inf, f"optimizer.eps={eps}: must be positive"),
        (mup_base_width is None or mup_base_width >= 1, f"optimizer.mup_base_width={mup_base_width}: must be 1 or more"),
        (mup_base_width is None or "sgd" not in name, f"mup_base_width does not support {name}: use adamw"),
    )
    try:
        with torch.inference_mode(False), torch.enable_grad():
            weight = nn.Parameter(torch.ones(2, 2, device="cpu"))
            optimizer = create_optimizer_v2([weight], opt=name, lr=lr, **_given(betas, eps))
            weight.sum().backward()
            optimizer.step()  # AdaHessian needs second derivatives, which training does not compute
    except (ImportError, *OF_VALUES) as error:
        raise InputError(f"cannot use optimizer '{name}': {one_line(error)}") from error


def _given(betas: Betas, eps: float | None) -> dict[str, Any]:
    """Return the options that are not None."""
    return {name: value for name, value in (("betas", betas), ("eps", eps)) if value is not None}
