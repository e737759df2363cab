"""Ctrl-C and SIGTERM: in training they end a run at the next step, elsewhere at once."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from zoo.errors import Stop
from zoo.training.private_names import disable_sigterm

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Handle both signals while a run lasts; as a context manager.

    Attributes:
        received: The signal that came while the run was `graceful`, or 0.
        graceful: Whether somebody looks at `received` and ends the run; otherwise a signal raises `Stop` wherever it comes. A
            second Ctrl-C always does.
        launcher: Lightning's, if it has started other processes of the run: they are told.
    """

    def __init__(self) -> None:
        self.received, self.graceful, self.launcher = 0, False, None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in SIGNALS}
            for number, handler in self._before.items():
                if handler is not signal.SIG_IGN:  # as nohup and a shell's `&` ask for
                    signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def take_over(self, trainer: Any) -> None:
        """Handle SIGTERM in place of Lightning."""
        disable_sigterm(trainer)
        self.launcher = trainer.strategy.launcher

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        again = self.received == signum == signal.SIGINT
        self.received = self.received or signum
        if again or not self.graceful:
            if signum == signal.SIGTERM:  # Ctrl-C reaches all processes of a terminal by itself
                for process in getattr(self.launcher, "procs", []):
                    process.send_signal(signum)
            raise Stop(signum)
        if signum == signal.SIGINT and sys.stderr.isatty():
            print("\nstopping after this step; Ctrl-C again stops at once", file=sys.stderr)  # noqa: T201
