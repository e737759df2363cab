"""Work shared out to threads that never meet before it is done.

Torch shares out every operation by itself, and waits for all threads at the end of each. A product of many short steps then
spends its time waiting, the more so on a busy machine or where waking a thread takes long.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import torch
from torch import Tensor

from zoo.kernels.internals import count_dispatch_modes

S = TypeVar("S")
T = TypeVar("T")

_LOCK = threading.Lock()
_POOLS: dict[int, ThreadPoolExecutor] = {}
_OWN = threading.local()


def in_threads(work: Callable[[S], T], shares: Sequence[S]) -> list[T]:
    """Call ``work`` on every share, in as many threads as torch uses, and return the results in order.

    What counts or records the operations of this thread (a dispatch mode of torch) sees them all: then it works alone.
    """
    threads = torch.get_num_threads()
    if threads == 1 or count_dispatch_modes():
        return [work(share) for share in shares]
    inference = torch.is_inference_mode_enabled()

    def one(share: S) -> T:
        with torch.inference_mode(inference), torch.no_grad():
            return work(share)

    others = [_pool(threads).submit(one, share) for share in shares[1:]]
    try:
        torch.set_num_threads(1)
        first = work(shares[0])
    finally:
        torch.set_num_threads(threads)
        wait(others)
    return [first, *(other.result() for other in others)]


def alone_if(small: bool, function: Callable[[], T]) -> T:
    """Call a function, in this thread alone if what it computes is so small that to wake the others would take longer."""
    threads = torch.get_num_threads()
    if threads == 1 or not small:
        return function()
    torch.set_num_threads(1)
    try:
        return function()
    finally:
        torch.set_num_threads(threads)


def scratch(size: int, like: Tensor, purpose: str = "") -> Tensor:
    """Return ``size`` numbers of undefined value, until this thread asks again: memory that is not given back and forth."""
    if like.device.type != "cpu":
        return like.new_empty(size)
    key = f"{like.dtype} {purpose}"
    kept: Tensor | None = getattr(_OWN, key, None)
    if kept is None or kept.numel() < size:
        with torch.inference_mode(False):
            kept = torch.empty(size, dtype=like.dtype)
        setattr(_OWN, key, kept)
    return kept[:size]


def _pool(threads: int) -> ThreadPoolExecutor:
    with _LOCK:
        if threads not in _POOLS:
            pool = ThreadPoolExecutor(threads - 1, "zoo-kernel", initializer=_work_alone)
            meeting = threading.Barrier(threads - 1)
            list(pool.map(lambda _: meeting.wait(), range(threads - 1)))
            # What the new threads set for themselves is also what threads begun later would take over.
            torch.set_num_threads(threads)
            _POOLS[threads] = pool
        return _POOLS[threads]


def _work_alone() -> None:
    torch.get_num_threads()  # A new thread takes over the number of the process when it first asks, and never again.
    torch.set_num_threads(1)


def _forget_pools() -> None:
    """Start anew in a forked process, which has none of its parent's threads."""
    global _LOCK
    _LOCK = threading.Lock()
    _POOLS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)
