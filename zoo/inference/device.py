"""The device to compute on."""

import torch

from zoo.errors import InputError


def choose_device(name: str | torch.device) -> torch.device:
    """Return a device by its name; ``auto`` is the first of cuda, mps and cpu that is there.

    Raises:
        InputError: If there is no such device.

    Example:
        >>> choose_device("cpu")
        device(type='cpu')
    """
    there = ["cpu", *(["mps"] if torch.backends.mps.is_available() else []), *(["cuda"] if torch.cuda.is_available() else [])]
    if name == "auto":
        return torch.device(there[-1])
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"unknown device '{name}': use auto, {', '.join(there)}") from error
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    if device.type not in there or (device.index or 0) >= count:
        raise InputError(f"there is no device '{name}' here: use auto, {', '.join(there)}")
    return device
