"""Private names of torch that kernels and layers use; tests/test_private_names.py lists all that the zoo uses."""

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active as is_transformed
from torch._C import _is_any_autocast_enabled as is_any_autocast_enabled
from torch._C import _is_tracing as is_tracing
from torch._C import _len_torch_dispatch_stack as count_dispatch_modes
from torch._higher_order_ops.scan import scan
from torch.autograd import forward_ad

__all__ = ["autocast_dtype", "count_dispatch_modes", "is_any_autocast_enabled", "is_plain_mode", "is_recording", "scan"]

CONV_FORWARD = "_conv_forward"  # the method of torch's convolutions that takes the kernel and the bias as arguments


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """Return the dtype of autocast on a device, or None if it is disabled."""
    if is_any_autocast_enabled() and torch.is_autocast_enabled(device.type):
        return torch.get_autocast_dtype(device.type)
    return None


def is_plain_mode() -> bool:
    """Return whether operations of this thread are neither traced nor transformed (vmap, jvp, forward-mode AD)."""
    return not (is_tracing() or is_transformed() or forward_ad._current_level >= 0)


def is_recording(tensor: Tensor) -> bool:
    """Return whether operations are recorded for later replay, by torch.jit.trace or in a CUDA graph."""
    return bool(is_tracing() or (tensor.is_cuda and torch.cuda.is_current_stream_capturing()))
