"""A running mean of the weights, which is what is measured and kept."""

from lightning.pytorch.callbacks import WeightAveraging
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from zoo.errors import InputError


class MovingAverage(WeightAveraging):
    """Keep the exponential moving average of weights and of buffers, m <- d m + (1 - d) w after each step of the optimizer.

    Validation measures it, and ``state_dict`` in every checkpoint holds it. A buffer that does not change keeps its value to
    the bit, and one of whole numbers is that of the network.

    Args:
        decay: d, above 0 and below 1.

    Raises:
        InputError: If it is another number.
    """

    def __init__(self, decay: float) -> None:
        if not 0 < decay < 1:
            raise InputError(f"ema={decay} is the decay of a mean: use a number between 0 and 1, such as 0.999")
        move = get_ema_multi_avg_fn(decay)

        def average(means: list[Tensor], weights: list[Tensor], count: Tensor) -> None:
            """Move the means, all of one dtype, towards the weights."""
            if means[0].is_floating_point() or means[0].is_complex():
                move(means, weights, count)
            else:
                for mean, weight in zip(means, weights, strict=True):
                    mean.copy_(weight)

        super().__init__(multi_avg_fn=average)
