"""Lottery tickets: a Lightning callback, the loop over rounds, and the schedule of the fraction that each round prunes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from multiprocessing import parent_process
from typing import Any, NamedTuple

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from zoo import registry
from zoo.errors import InputError
from zoo.pruning.masks import Prunable, Pruning, bit_mask, clear_bits, next_masks, prunable, random_values, tensor_digest

PruningSchedule = Callable[[int], float]
"""Maps the number of a round, from 0, to the fraction of the survivors to prune, in [0, 1)."""
_MAX_ROUNDS = 1000


# --- schedules ---


@dataclass(frozen=True)
class ConstantRate:
    """Prune the same fraction, in (0, 1), in every round (Frankle and Carbin 2019)."""

    rate: float

    def __call__(self, round: int) -> float:
        """Return the rate."""
        return self.rate


@dataclass(frozen=True)
class CubicSparsity:
    """Raise the sparsity to ``final``: s(t) = final (1 - (1 - t / rounds)^3) after t rounds (Zhu and Gupta 2017, Eq. 1).

    Example:
        >>> schedule = CubicSparsity(final=0.9, rounds=3)
        >>> [round(schedule(number), 3) for number in range(4)]
        [0.633, 0.636, 0.25, 0.0]
    """

    final: float = 0.95
    rounds: int = 10

    def __post_init__(self) -> None:
        """Check the options."""
        if not 0 < self.final < 1 or self.rounds < 1:
            raise InputError(f"final={self.final}, rounds={self.rounds}: use a sparsity in (0, 1) and 1 or more rounds")

    def __call__(self, round: int) -> float:
        """Return the fraction of the survivors to prune, from s(round) to s(round + 1)."""
        before, after = (self.final * (1 - (1 - min(t / self.rounds, 1.0)) ** 3) for t in (round, round + 1))
        return 1 - (1 - after) / (1 - before)


def pruning_schedule(rate: float | str | PruningSchedule) -> PruningSchedule:
    """Return the schedule for a constant rate, a spec of the entry-point group ``zoo.schedules``, or a callable."""
    if isinstance(rate, str):
        schedule: PruningSchedule = registry.create("zoo.schedules", rate)
        return schedule
    return rate if callable(rate) else ConstantRate(rate)


def rounds_until(share: float, rate: float | str | PruningSchedule) -> int:
    """Return the number of rounds after which at most this fraction of the weights survives, without rounding.

    Raises:
        InputError: If the fraction is not in (0, 1), or not reached within 1,000 rounds.

    Example:
        >>> rounds_until(0.01, 0.4), rounds_until(0.1, CubicSparsity(0.9, rounds=3))
        (10, 3)
    """
    schedule = pruning_schedule(rate)
    if not isinstance(share, float) or not 0 < share < 1:
        raise InputError(f"until={share!r}: the fraction of weights must be in (0, 1)")
    survivors, rounds = Fraction(1), 0
    while survivors > Fraction(str(share)) + Fraction(1, 10**12):
        if rounds >= _MAX_ROUNDS:
            raise InputError(f"until={share}: not reached within {_MAX_ROUNDS} rounds of the schedule")
        pruned = schedule(rounds)
        if not 0 <= pruned < 1:
            raise InputError(f"rate={pruned}: the fraction to prune must be in [0, 1)")
        survivors *= 1 - Fraction(str(pruned))
        rounds += 1
    return rounds


# --- the callback ---


class LotteryTicket(Callback):
    """Find lottery tickets by iterative magnitude pruning with rewinding (Frankle and Carbin 2019).

    A round is one ``fit`` of a new Trainer with this callback and any module with the same parameter names, on one device or
    with DDP. It starts bit for bit from the rewind point, masked; gradients are masked before each optimizer step (before
    clipping) and weights after it. The module itself is not changed. After a round, `prune` computes the masks of the next one.

    Checkpoints contain masks, round and rewind point as plain tensors; ``fit(ckpt_path=...)`` resumes within a round. With
    DDP, the masks of rank 0 are broadcast, and all ranks compare a SHA-256 of masks and weights at the start of a round.

    Args:
        rate: Fraction of the survivors to prune in a round, or a schedule: a spec, or a function of the round.
        score: ``magnitude``, ``random``, ``movement`` or ``snip``, see `zoo.pruning.Pruning`. With ``snip`` every round,
            including the first, prunes in its first step.
        scope: ``tensor``, ``component`` or ``global``.
        unit: ``number`` or ``element``.
        pattern: (N, M) instead of a rate.
        matrices: See `zoo.pruning.prunable`, also for ``include`` and ``exclude``.
        rewind_step: ``trainer.global_step`` in the first round at which to take the rewind point (Frankle et al. 2020); 0 for
            the initialization. Learning rate schedules restart in every round.
        seed: Seed of random scores.

    Attributes:
        round: Number of times the ticket was pruned.
        masks: True where a weight survives, by parameter name; empty before the first fit.
        rewind_point: Copies of all parameters and buffers by name; empty until it is taken.
    """

    def __init__(
        self,
        rate: float | str | PruningSchedule = 0.2,
        *,
        score: str = "magnitude",
        scope: str = "tensor",
        unit: str = "number",
        pattern: tuple[int, int] | None = None,
        matrices: str = "all",
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        rewind_step: int = 0,
        seed: int = 0,
    ) -> None:
        self.rate, self.schedule = rate, pruning_schedule(rate)
        self.pruning = Pruning(self.schedule(0), score, scope, unit, pattern)
        self.matrices, self.include, self.exclude = matrices, tuple(include), tuple(exclude)
        self.rewind_step, self.seed = rewind_step, seed
        if rewind_step < 0:
            raise InputError(f"rewind_step={rewind_step}: must be 0 or more")
        if rewind_step and score == "snip":
            raise InputError("score=snip prunes at the initialization: leave rewind_step out", code="conflict")
        self.round = 0
        self.masks: dict[str, Tensor] = {}
        self.rewind_point: dict[str, Tensor] = {}
        self._sums: dict[str, Tensor] = {}
        self._is_due = True  # snip has not pruned yet in this round
        self._fitted: nn.Module | None = None
        self._has_started = self._is_testing = self._is_unhooked = False
        self._prunable: dict[str, Prunable] = {}
        self._pruned: list[tuple[nn.Parameter, Tensor]] = []
        self._hooks: list[RemovableHandle] = []

    # --- between rounds ---

    def prune(self, module: nn.Module | None = None) -> None:
        """End a round: compute the masks of the next one from the trained weights, by default of the last fitted module.

        Raises:
            InputError: If nothing was fitted, there is no rewind point, or the module differs from the fitted one.
        """
        module, score = self._fitted if module is None else module, self.pruning.score
        if module is None or not self.masks or (score == "movement" and not self._sums):
            raise InputError("this ticket was not trained: call trainer.fit with callbacks=[ticket] first", code="missing")
        if not self.rewind_point:
            early = f"the first round ended before rewind_step={self.rewind_step}: train longer or use an earlier step"
            raise InputError(early)
        parameters = self._matching(module)
        if score != "snip":
            weights: dict[str, Tensor] = {name: matrix.parameter for name, matrix in parameters.items()}
            values = {"magnitude": weights, "movement": self._sums}.get(score)
            self._prune(parameters, values or random_values(parameters, self.seed, self.round))
        self.round, self._sums, self._is_due = self.round + 1, {}, True

    def pruning_of(self, round: int) -> Pruning:
        """Return the pruning options of a round."""
        return replace(self.pruning, rate=self.schedule(round))

    def count(self) -> tuple[int, int]:
        """Return the numbers of surviving and of all prunable weights."""
        return sum(int(mask.sum()) for mask in self.masks.values()), sum(mask.numel() for mask in self.masks.values())

    def remember(self, module: nn.Module) -> None:
        """Take the rewind point from a module, for example from another initialization as a control."""
        self.rewind_point = {name: t.detach().to("cpu", copy=True) for name, t in _tensors(module)}

    def _prune(self, parameters: dict[str, Prunable], values: dict[str, Tensor]) -> None:
        masks = {name: self.masks[name].to(matrix.parameter.device) for name, matrix in parameters.items()}
        masks = next_masks(parameters, values, masks, self.pruning_of(self.round))
        self.masks = {name: mask.cpu() for name, mask in masks.items()}

    def _matching(self, module: nn.Module) -> dict[str, Prunable]:
        """Return the prunable parameters of a module, after comparing them with the masks."""
        parameters = prunable(module, self.matrices, include=self.include, exclude=self.exclude)
        if self.masks:
            _compare(self.masks, {name: matrix.parameter for name, matrix in parameters.items()})
        return parameters

    # --- a round ---

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Check that the strategy does not shard weights and keeps its processes after a fit."""
        self._is_testing = stage != "fit"
        if self._is_testing:
            return
        self._has_started = False
        name = type(trainer.strategy).__name__.removesuffix("Strategy")
        # DeepSpeed shards weights, but is a subclass of DDPStrategy.
        if not isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy) or name == "DeepSpeed":
            text = f"{name} shards weights, which lottery tickets do not support: use one device or strategy='ddp'"
            raise InputError(text, code="unsupported")
        if trainer.strategy.launcher is not None and parent_process() is not None:
            text = "spawned and forked processes end with the round and lose the ticket: use strategy='ddp'"
            raise InputError(text, code="unsupported")

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start a round: rewind, unless a checkpoint from within it was loaded, and mask the weights."""
        if self.pruning.score in ("movement", "snip") and len(trainer.optimizers) != 1:
            text = f"score={self.pruning.score} supports one optimizer, this module has {len(trainer.optimizers)}"
            raise InputError(text, code="unsupported")
        self._prunable, self._fitted = self._matching(pl_module), pl_module
        dense = {name: torch.ones(matrix.parameter.shape, dtype=torch.bool) for name, matrix in self._prunable.items()}
        self.masks = trainer.strategy.broadcast(self.masks or dense)
        if not self._has_started:
            self._sums, self._has_started = {}, True
            if self.rewind_point:
                _compare(self.rewind_point, dict(_tensors(pl_module)))
                for name, tensor in _tensors(pl_module):
                    tensor.detach().copy_(self.rewind_point[name])
            elif not self.rewind_step:
                self.remember(pl_module)
        self._apply_masks()
        self._check_ranks(trainer, pl_module)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Mask the weights after every step of the optimizers, which another callback may have replaced until now."""
        self._hooks = [optimizer.register_step_post_hook(self._mask_weights) for optimizer in trainer.optimizers]
        # Some optimizer wrappers override step without calling torch's hooks.
        self._is_unhooked = not all(getattr(type(optimizer).step, "hooked", False) for optimizer in trainer.optimizers)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Mask the gradients before they are clipped; accumulate scores of movement, or prune with snip."""
        score, is_due = self.pruning.score, self.pruning.score == "snip" and self._is_due
        products = self._products() if score == "movement" or is_due else {}
        if getattr(trainer.precision_plugin, "scaler", None) is not None:  # the scaler skips steps that overflow in float16
            products = products if all(bool(product.isfinite().all()) for product in products.values()) else {}
        if score == "movement":
            for name, product in products.items():
                self._sums[name] = self._sums[name].to(product) - product if name in self._sums else -product
        elif products:
            self._prune(self._prunable, products)
            self.masks, self._is_due = trainer.strategy.broadcast(self.masks), False
            self._apply_masks()
        for parameter, bits in self._pruned:
            if (grad := parameter.grad) is not None and not grad.is_sparse:
                clear_bits(grad, bits)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Take the rewind point at ``rewind_step``."""
        if self._is_unhooked:
            self._mask_weights()
        if not self.rewind_point and trainer.global_step >= self.rewind_step:
            self.remember(pl_module)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Remove the hooks that mask weights."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._is_testing = [], False

    def _products(self) -> dict[str, Tensor]:
        """Return w dL/dw of the prunable weights, or zero without a gradient."""
        pairs = {name: (matrix.parameter.detach(), matrix.parameter.grad) for name, matrix in self._prunable.items()}
        return {name: torch.zeros_like(w) if g is None else w * g for name, (w, g) in pairs.items()}

    def _apply_masks(self) -> None:
        masks = ((matrix.parameter, self.masks[name]) for name, matrix in self._prunable.items())
        self._pruned = [(parameter, bit_mask(mask, parameter)) for parameter, mask in masks if not mask.all()]
        self._mask_weights()

    def _mask_weights(self, *_: object) -> None:
        for parameter, bits in self._pruned:
            clear_bits(parameter, bits)

    def _check_ranks(self, trainer: Trainer, module: nn.Module) -> None:
        """Check that masks and weights are equal on all ranks."""
        if trainer.world_size == 1:
            return
        local = bytes.fromhex(tensor_digest(self.masks) + tensor_digest(dict(module.named_parameters())))
        sent = torch.tensor(list(local), dtype=torch.uint8, device=trainer.strategy.root_device)
        first, *others = trainer.strategy.all_gather(sent).cpu().tolist()
        for rank, other in enumerate(others, 1):
            kind = "masks" if other[:32] != first[:32] else "weights"
            if other != first:
                text = f"the {kind} of rank {rank} differ from those of rank 0 at the start of round {self.round}"
                raise InputError(text, code="mismatch")

    # --- checkpoints ---

    def state_dict(self) -> dict[str, Any]:
        """Return masks, round and rewind point for checkpoints."""
        state = {"round": self.round, "masks": self.masks, "rewind_point": self.rewind_point}
        state |= {"sums": self._sums, "is_due": self._is_due, "options": self._options()}
        # Finders of Lightning save and restore a checkpoint before the round starts.
        return state | {"has_started": self._has_started}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a ticket with the same options from a checkpoint."""
        if self._is_testing:  # Lightning also restores callbacks for tests, which must not change the ticket
            return
        for name, value in self._options().items():
            saved = state_dict["options"].get(name)
            if saved != value:
                text = f"the saved lottery ticket has {name}={saved!r}, not {value!r}: use the same options"
                raise InputError(text, code="mismatch")
        self.round, self.masks, self.rewind_point = (state_dict[key] for key in ("round", "masks", "rewind_point"))
        self._sums, self._is_due = state_dict["sums"], state_dict["is_due"]
        self._has_started = state_dict.get("has_started", True)

    def _options(self) -> dict[str, object]:
        names = ("matrices", "include", "exclude", "rewind_step", "seed")
        rate = repr(self.rate) if callable(self.rate) else self.rate
        return {name: getattr(self, name) for name in names} | vars(self.pruning) | {"rate": rate}


class Round(NamedTuple):
    """A trained round: its number, the surviving and all prunable weights, and the result of ``fit_one``."""

    number: int
    survivors: int
    weights: int
    result: Any


def iterate_rounds(
    fit_one: Callable[[LotteryTicket], Any], ticket: LotteryTicket, rounds: int, *, seed: int = 0
) -> Iterator[Round]:
    """Train and prune a ticket in rounds: yield the dense round 0, then the pruned rounds.

    Between rounds, the caller may save ``ticket.state_dict()`` to resume later, or stop iterating.

    Args:
        fit_one: Trains one round: builds module, data and a new Trainer with ``callbacks=[ticket]``, fits, and returns any
            result, such as metrics.
        ticket: The ticket.
        rounds: Number of pruned rounds.
        seed: The seed of Python, NumPy and torch at the start of every round.
    """
    while ticket.round <= rounds:
        seed_everything(seed, workers=True, verbose=False)
        result = fit_one(ticket)
        yield Round(ticket.round, *ticket.count(), result)
        if ticket.round == rounds:
            return
        ticket.prune()


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield all parameters and buffers with their names."""
    return chain(module.named_parameters(), module.named_buffers())


def _compare(expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Check that the names and shapes of a module equal those of the first round."""
    for name in sorted(expected.keys() | tensors.keys()):
        first, current = (list(x[name].shape) if name in x else "missing" for x in (expected, tensors))
        if first != current:
            text = f"the shape of '{name}' is {current}, in the first round it was {first}"
            raise InputError(f"{text}: build the same module in every round", code="mismatch")
