"""The scope of `zoo.keep_matrices` in the Trainer's evaluation loops, where nothing writes to the network."""

from contextlib import ExitStack
from typing import Any

from lightning.pytorch import Callback

from zoo.layers import keep_matrices


class EvaluationScope(Callback):
    """Let weights cache their matrices from the first batch of an evaluation epoch to its last.

    Callbacks that exchange weights for an evaluation (moving averages) do it before the epoch starts and after it has ended.
    """

    def __init__(self) -> None:
        self._scope = ExitStack()

    def _open(self, trainer: Any, pl_module: Any) -> None:
        self._scope.close()
        self._scope.enter_context(keep_matrices(pl_module))

    def _close(self, *_: Any, **__: Any) -> None:
        self._scope.close()

    on_validation_epoch_start = on_test_epoch_start = on_predict_epoch_start = _open
    on_validation_epoch_end = on_test_epoch_end = on_predict_epoch_end = _close
    on_exception = teardown = _close
