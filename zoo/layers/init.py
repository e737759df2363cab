"""Initialisation of components: a variance-preserving one for every algebra, and two published ones."""

import math

import torch
from torch import Tensor

from zoo.errors import InputError, check_choice

INITS = ("variance", "glorot", "polar")


def draw_components(
    components: Tensor, structure: Tensor, fan_in: float, fan_out: float, init: str = "variance", gain: float = 1.0
) -> None:
    r"""Initialize components w, [m, out, in, *kernel], in place (m = n unless the weights lie in a subspace).

    ``variance`` (default) is normal with std = gain / sqrt(fan_in * ||A||_F^2 / n): each output component sums fan_in terms
    A[i, j, k] w_i x_j for every (i, j), so for unit-variance input the output variance, averaged over components, is gain^2
    for every A.
    ``glorot`` is uniform in each component with the bound gain * sqrt(6 / (fan_in + fan_out)), as in QuaternionNLP (Tay et al.
    2019, section 3.5).
    ``polar`` draws w = r (cos t + u sin t) with r from a chi distribution of n degrees of freedom times
    gain / sqrt(2 (fan_in + fan_out)), t uniform in [-pi, pi] and u a uniform imaginary unit vector (Gaudet and Maida 2018,
    section 3.4; their quaternion initialisation for n = 4). Component 0 is the real part.

    The structure is A, [m, n, n]. ``fan_in`` is the number of input elements of an output element, times the kernel area,
    without padding: real sizes divided by n. ``fan_out`` is the same with inputs and outputs swapped.
    """
    check_choice("initialisation", init, INITS)
    if init == "polar" and len(components) < structure.shape[1]:
        raise InputError("init=polar is not supported for weights in a subspace: they have no real part")
    if components.is_meta:
        return
    with torch.no_grad():
        if init == "variance":
            energy = structure.detach().square().sum().item() / structure.shape[1]
            components.normal_(std=gain / math.sqrt(fan_in * energy) if energy else 0.0)
        elif init == "glorot":
            bound = gain * math.sqrt(6 / (fan_in + fan_out))
            components.uniform_(-bound, bound)
        else:
            # The norm of n standard normals is chi distributed, and the direction of the last n - 1 is uniform.
            modulus = torch.randn_like(components).norm(dim=0) * gain / math.sqrt(2 * (fan_in + fan_out))
            phase = torch.empty_like(modulus).uniform_(-math.pi, math.pi)
            components.normal_()
            components[1:] *= modulus * phase.sin() / components[1:].norm(dim=0).clamp_min(1e-12)
            components[0] = modulus * phase.cos()
