"""``zoo bench``: a network beside its twin over the reals, or the numbers of this machine that kernels are planned with."""

import json
from typing import Any

from zoo.cli.commands import quiet, show
from zoo.cli.parser import Parser
from zoo.errors import InputError
from zoo.training.options import Bench, build


def make_parser(command: str) -> Parser:
    """Return the parser of the command."""
    parser = Parser(command, "Time a network beside its twin over the reals, or measure the machine for the plan.", Bench)
    parser.switch("--calibrate", "measure the machine and store the numbers that kernels are planned with, instead")
    return parser.switch("--json", "print JSON")


def run(command: str, values: dict[str, Any]) -> int:
    """Time a network, or measure the machine and store what was found."""
    as_json, is_calibration = values.pop("json"), values.pop("calibrate")
    options = build(Bench, values)
    if is_calibration:
        if options.backbone or options.algebra:
            raise InputError("--calibrate measures the machine, not a network: leave --backbone and --algebra out")
        quiet()
        show(calibrated(), as_json, print_numbers)
        return 0
    if not (options.backbone and options.algebra):
        raise InputError("give --backbone and --algebra of a network, or --calibrate to measure the machine")
    from zoo.training.bench import bench, print_bench

    quiet()
    show(bench(options), as_json, print_bench)
    return 0


def calibrated() -> dict[str, Any]:
    """Measure this machine and store the numbers beside those of others."""
    import torch

    from zoo.checkpoint.atomic import write_bytes
    from zoo.kernels.calibration import calibrate, calibrate_gpu
    from zoo.kernels.plan import gpu_name, name, path, stored
    from zoo.kernels.triton_linear import DTYPES, missing

    try:
        found = {machine: numbers._asdict() for machine, numbers in stored().items()}
    except InputError:  # damaged, and measured anew
        found = {}
    own = {name(): calibrate()._asdict()}
    if torch.cuda.is_available() and missing() is None:
        own |= {gpu_name(dtype): calibrate_gpu(dtype)._asdict() for dtype in DTYPES}
    own = {machine: {key: float(f"{value:.4g}") for key, value in numbers.items()} for machine, numbers in own.items()}
    path().parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path(), (json.dumps(found | own, indent=1) + "\n").encode())
    gpus = {machine: numbers for machine, numbers in own.items() if machine != name()}
    return {"machine": name(), "file": str(path()), **own[name()]} | ({"gpu": gpus} if gpus else {})


def print_numbers(found: dict[str, Any]) -> None:
    """Print the numbers with their units."""
    print(f"{found['machine']}, stored in {found['file']}")
    print(f"{found['speed'] / 1e9:8.1f} G operations a second, one thread on large float32 matrices")
    print(f"{found['half_width']:8.1f} features of a matrix at which that is half")
    print(f"{found['traffic'] / 1e9:8.1f} GB a second, one thread that combines components")
    print(f"{found['reading'] / 1e9:8.1f} GB a second, all threads that read a matrix for one row")
    print(f"{found['call'] * 1e6:8.1f} microseconds for an operation that does almost nothing")
    print(f"{found['handover'] * 1e6:8.1f} microseconds to share out work and to wait for it")
    for gpu, numbers in found.get("gpu", {}).items():
        print(f"\n{gpu}")
        print(f"{numbers['speed'] / 1e12:8.1f} T operations a second on large matrices")
        kinds = "fused", "grouped", "fused_training", "grouped_training"
        speeds = ", ".join(f"{numbers[kind] / 1e12:.1f}" for kind in kinds)
        print(f"{speeds} T in Triton's kernel: few terms, many; forward and backward: few, many")
        print(f"{numbers['traffic'] / 1e9:8.1f} GB a second, {numbers['call'] * 1e6:.1f} microseconds for a small product")
