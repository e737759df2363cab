"""Optimizers of timm, parameter groups, and the learning rate of a step."""

import math
from difflib import get_close_matches
from typing import Any

import torch
from torch import nn

from zoo.errors import InputError, one_line
from zoo.nn.weight import Weight
from zoo.registry.resolution import OF_VALUES
from zoo.tasks.options import Optimizer, Schedule

DEFAULT_LR = 1e-3
"""Peak learning rate of an `Optimizer` that leaves it to the backbone."""


def lr_factor(step: int, steps: int, schedule: Schedule) -> float:
    """Return the learning rate at a step in [0, steps), as a fraction of the peak.

    ``inverse_sqrt`` is Equation 3 of Vaswani et al. (2017) over its maximum: with w steps of warm-up it is
    min(s / w, sqrt(w / s)) at step s, counted from 1.

    Example:
        >>> [round(lr_factor(step, 10, Schedule("cosine", warmup=0.2)), 2) for step in (0, 1, 2, 6, 10)]
        [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    warm = round(schedule.warmup * steps)
    if step < warm:
        return (step + 1) / warm
    if schedule.name == "inverse_sqrt":
        return math.sqrt(max(1, warm) / (step + 1))
    progress = min(1.0, (step - warm) / max(1, steps - warm))
    factor = {"cosine": 0.5 * (1 + math.cos(math.pi * progress)), "linear": 1 - progress, "constant": 1.0}[schedule.name]
    return schedule.floor + (1 - schedule.floor) * factor


def make_optimizer(net: nn.Module, options: Optimizer) -> torch.optim.Optimizer:
    """Build an optimizer of timm, without weight decay of vectors, biases and the parameters of `undecayed`.

    A module may define ``lr_scale()``, which returns factors on ``lr`` by names of its parameters. With ``mup_base_width``
    the learning rates of matrices also have the factors of `mup_scales`. On CPUs, torch's fused steps are used if available.
    """
    from timm.optim import param_groups_weight_decay

    groups = param_groups_weight_decay(net, options.weight_decay, no_weight_decay_list=undecayed(net))
    scales = {} if options.mup_base_width is None else mup_scales(net, options.mup_base_width)
    optimizer = _create(_scaled(net, groups, options.lr or DEFAULT_LR, scales), options)
    for group in optimizer.param_groups:
        if "fused" in group and all(parameter.device.type == "cpu" for parameter in group["params"]):
            group["fused"] = True  # with the argument fused=True, Lightning does not clip gradients under autocast
    return optimizer


def _create(parameters: list[Any], options: Optimizer) -> torch.optim.Optimizer:
    from timm.optim import create_optimizer_v2

    given = {name: value for name in ("betas", "eps") if (value := getattr(options, name)) is not None}
    optimizer: torch.optim.Optimizer = create_optimizer_v2(
        parameters, opt=options.name, lr=options.lr or DEFAULT_LR, weight_decay=0.0, **given
    )
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


def check_network(net: nn.Module, optimizer: str) -> None:
    """Check that an optimizer supports a network.

    Muon orthogonalises 2-D parameters (Jordan et al. 2024); timm would flatten components [n, out / n, in / n] to n rows.
    """
    if "muon" in optimizer and any(isinstance(part, Weight) and not part.is_matrix for part in net.modules()):
        supported = "supports only 2-D parameters, and hypercomplex weights have 3 or more dimensions"
        raise InputError(f"optimizer '{optimizer}' {supported}: use adamw")


def check_optimizer(options: Optimizer) -> None:
    """Check that timm has an optimizer that can be used here, and that it supports the options."""
    if options == Optimizer():  # not imported for predictions
        return
    from timm.optim import get_optimizer_info, list_optimizers

    name, names = options.name, [str(known) for known in list_optimizers()]
    if name not in names:
        close = get_close_matches(name, names, n=3)
        hint = f"did you mean {', '.join(close)}?" if close else f"use one of timm's, such as {', '.join(names[:8])}"
        raise InputError(f"unknown optimizer '{name}': {hint}", code="unknown")
    info = get_optimizer_info(name)
    if options.betas is not None and not (info.has_betas and info.num_betas == 2):
        raise InputError(f"optimizer '{name}' has no two betas: leave betas out")
    if options.eps is not None and not info.has_eps:
        raise InputError(f"optimizer '{name}' has no eps: leave eps out")
    if options.mup_base_width is not None and "sgd" in name:
        raise InputError(f"mup_base_width does not support {name}: use adamw")
    try:
        with torch.inference_mode(False), torch.enable_grad():
            weight = nn.Parameter(torch.ones(2, 2, device="cpu"))
            optimizer = _create([weight], options)
            weight.sum().backward()
            optimizer.step()  # AdaHessian needs second derivatives, which training does not compute
    except (ImportError, *OF_VALUES) as error:
        raise InputError(f"cannot use optimizer '{name}': {one_line(error)}") from error
