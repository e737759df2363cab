"""The Lightning callback that trains lottery tickets."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, SingleDeviceStrategy
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from zoo.errors import InputError, check_rules
from zoo.pruning.masks import (
    Masks,
    Prunable,
    Pruning,
    bit_mask,
    clear_bits,
    digest,
    full_masks,
    next_masks,
    prunable,
    random_values,
    remaining,
)
from zoo.pruning.schedule import PruningSchedule, pruning_schedule


class LotteryTicket(Callback):
    """Train lottery tickets (Frankle and Carbin 2019): prune, rewind what survives, train again.

    It works on any LightningModule, in any Trainer of one device or of DDP. A round is one ``fit`` of a new Trainer that is
    given this same object, with a module whose parameters have the same names every time. At the start of a round all
    parameters and buffers are set to the rewind point bit for bit and the masks are laid over them; gradients are masked before
    each step of an optimizer (before they are clipped) and weights after it. Nothing is added to the module, so a forward costs
    what it did. After the round `prune` makes the masks of the next one from the trained weights, which stay as they are.

    A checkpoint of Lightning holds masks, round and rewind point as plain tensors, and ``fit(ckpt_path=...)`` goes on within
    the round. With DDP the masks of rank 0 count, and at the start of every round the ranks compare a SHA-256 of masks and
    weights.

    Args:
        rate: Share of the survivors that a round prunes, or a schedule, see `zoo.pruning.schedule`.
        score: ``magnitude``, ``random``, ``movement`` or ``snip``, see `zoo.pruning.Pruning`. With ``snip`` every round prunes
            in its own first step, the first round too.
        scope: ``tensor``, ``component`` or ``global``.
        unit: ``number`` or ``element``.
        pattern: (N, M) in place of a rate.
        matrices: ``all`` or ``qkv``, see `zoo.pruning.prunable`, as for ``include`` and ``exclude``.
        include: Shell patterns of names of further parameters.
        exclude: Shell patterns of names that are not pruned.
        rewind_step: Steps of the first round after which the rewind point is taken (Frankle et al. 2020), in
            ``trainer.global_step``; 0 for the initialisation. Schedules start anew in every round all the same.
        seed: Seed of random scores.

    Attributes:
        round: Rounds that were pruned, from 0.
        masks: True where a weight survives, by parameter name; empty before the first fit.
        rewind_point: Copies of all parameters and buffers by name; empty until it is taken.

    Raises:
        InputError: If an option is out of range.
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
        whole = isinstance(rewind_step, int) and rewind_step >= 0
        check_rules(
            (whole, f"rewind_step={rewind_step!r}: use a number of steps, 0 for the initialisation"),
            (not rewind_step or score != "snip", "snip prunes at the initialisation: leave rewind_step out"),
        )
        self.round = 0
        self.masks: Masks = {}
        self.rewind_point: dict[str, Tensor] = {}
        self._sums: dict[str, Tensor] = {}
        self._is_due = True
        """Whether snip has not pruned in this round."""
        self._fitted: nn.Module | None = None
        self._is_resumed = self._is_testing = False
        self._found: dict[str, Prunable] = {}
        self._pruned: list[tuple[nn.Parameter, Tensor]] = []
        self._hooks: list[RemovableHandle] = []
        self._is_unhooked = False

    # --- between rounds ---

    def prune(self, module: nn.Module | None = None) -> None:
        """End a round: make the masks of the next one from trained weights, which are not changed.

        Args:
            module: The weights that decide; by default those of the module that was fitted last, as they are now.

        Raises:
            InputError: If nothing was fitted, there is no rewind point, or the module is another one.
        """
        module = self._fitted if module is None else module
        if module is None or not self.masks:
            raise InputError("nothing was trained with this ticket: call trainer.fit with callbacks=[ticket] first")
        if not self.rewind_point:
            raise InputError(f"the first round ended before rewind_step={self.rewind_step}: train longer or rewind to less")
        found = self._matching(module)
        score = self.pruning.score
        if score == "movement" and not self._sums:
            raise InputError("movement is summed in training, and this round had no step: call trainer.fit first")
        if score != "snip":
            weights = {name: one.parameter for name, one in found.items()}
            values = {"magnitude": weights, "movement": self._sums}.get(score) or random_values(found, self.seed, self.round)
            self._prune(found, values)
        self.round, self._sums, self._is_due = self.round + 1, {}, True

    def pruning_of(self, round: int) -> Pruning:
        """Return how a round prunes."""
        return replace(self.pruning, rate=self.schedule(round))

    def count(self) -> tuple[int, int]:
        """Count the surviving and all prunable weights."""
        return remaining(self.masks), sum(mask.numel() for mask in self.masks.values())

    def remember(self, module: nn.Module) -> None:
        """Take the rewind point from a module; of one that is drawn anew for the control with another initialisation."""
        self.rewind_point = {name: t.detach().to("cpu", copy=True) for name, t in _tensors(module)}

    def _prune(self, found: dict[str, Prunable], values: Any) -> None:
        masks = {name: self.masks[name].to(one.parameter.device) for name, one in found.items()}
        self.masks = {name: mask.cpu() for name, mask in next_masks(found, values, masks, self.pruning_of(self.round)).items()}

    def _matching(self, module: nn.Module) -> dict[str, Prunable]:
        """Return what can be pruned, after comparing it with the masks."""
        found = prunable(module, self.matrices, include=self.include, exclude=self.exclude)
        shapes = _shapes({name: one.parameter for name, one in found.items()})
        _compare(_shapes(self.masks) or shapes, shapes, "masked parameter")
        return found

    # --- a round ---

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse strategies that shard weights over devices, or whose processes end with a fit."""
        self._is_testing = stage != "fit"
        if self._is_testing:
            return
        self._is_resumed = False
        strategy = trainer.strategy
        name = type(strategy).__name__.removesuffix("Strategy")
        if not isinstance(strategy, SingleDeviceStrategy | DDPStrategy) or isinstance(strategy, DeepSpeedStrategy):
            raise InputError(f"{name} shards weights, and lottery tickets need whole ones: use one device, or strategy='ddp'")
        if strategy.launcher is not None and not isinstance(strategy.launcher, _SubprocessScriptLauncher):
            raise InputError("processes by spawn or fork end with their round and lose the ticket: use strategy='ddp'")

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin a round: rewind, unless a checkpoint was loaded, and lay the masks over the weights."""
        if self.pruning.score in ("movement", "snip") and len(trainer.optimizers) != 1:
            raise InputError(f"{self.pruning.score} is measured in the steps of one optimizer: this module has several")
        self._found = self._matching(pl_module)
        self._fitted = pl_module
        self.masks = trainer.strategy.broadcast(self.masks or {k: m.cpu() for k, m in full_masks(self._found).items()})
        if not self._is_resumed:
            self._sums = {}
            if self.rewind_point:
                self._rewind(pl_module)
            elif not self.rewind_step:
                self.remember(pl_module)
        self._lay_masks()
        self._check_ranks(trainer, pl_module)
        self._hooks = [one.register_step_post_hook(self._mask_weights) for one in trainer.optimizers]
        # Some wrappers of optimizers have a step of their own, without torch's hooks.
        self._is_unhooked = not all(getattr(type(one).step, "hooked", False) for one in trainer.optimizers)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse a rewind point that training does not reach."""
        if not self.rewind_point and trainer.estimated_stepping_batches < self.rewind_step:
            steps = f"the round has {trainer.estimated_stepping_batches} steps"
            raise InputError(f"rewind_step={self.rewind_step} is never reached: {steps}")

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Mask the gradients, before they are clipped; measure movement or the sensitivity of snip."""
        score, is_due = self.pruning.score, self.pruning.score == "snip" and self._is_due
        products = self._products() if score == "movement" or is_due else {}
        if getattr(trainer.precision_plugin, "scaler", None) is not None:  # which skips a step that overflows in float16
            products = products if all(bool(product.isfinite().all()) for product in products.values()) else {}
        if score == "movement":
            for name, product in products.items():
                self._sums[name] = self._sums[name].to(product) - product if name in self._sums else -product
        elif products:
            self._prune(self._found, products)
            self.masks, self._is_due = trainer.strategy.broadcast(self.masks), False
            self._lay_masks()
        for parameter, bits in self._pruned:
            if (grad := parameter.grad) is not None and not grad.is_sparse:
                clear_bits(grad, bits)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Take a late rewind point."""
        if self._is_unhooked:
            self._mask_weights()
        if not self.rewind_point and trainer.global_step >= self.rewind_step:
            self.remember(pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End training; the masks stay laid over the trained weights."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """End a fit or a test."""
        self._is_testing = False

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """End a fit or a test that fails."""
        self._is_testing = False

    def _products(self) -> dict[str, Tensor]:
        """Return w dL/dw of the prunable weights; without a gradient, zero."""
        pairs = {name: (one.parameter.detach(), one.parameter.grad) for name, one in self._found.items()}
        return {name: torch.zeros_like(w) if g is None else w * g for name, (w, g) in pairs.items()}

    def _rewind(self, module: nn.Module) -> None:
        tensors = dict(_tensors(module))
        _compare(_shapes(self.rewind_point), _shapes(tensors), "tensor")
        with torch.no_grad():
            for name, tensor in tensors.items():
                tensor.copy_(self.rewind_point[name])

    def _lay_masks(self) -> None:
        """Lay the masks over the weights, of which those without a pruned weight need none."""
        masks = ((one.parameter, self.masks[name]) for name, one in self._found.items())
        self._pruned = [(parameter, bit_mask(mask, parameter)) for parameter, mask in masks if not mask.all()]
        self._mask_weights()

    def _mask_weights(self, *_: Any) -> None:
        for parameter, bits in self._pruned:
            clear_bits(parameter, bits)

    def _check_ranks(self, trainer: Trainer, module: nn.Module) -> None:
        """Compare masks and weights of all ranks."""
        if trainer.world_size == 1:
            return
        own = bytes.fromhex(digest(self.masks) + digest(dict(module.named_parameters())))
        sent = torch.tensor(list(own), dtype=torch.uint8, device=trainer.strategy.root_device)
        first, *others = trainer.strategy.all_gather(sent).cpu().tolist()
        for rank, other in enumerate(others, 1):
            if other != first:
                what = "masks" if other[:32] != first[:32] else "weights"
                raise InputError(f"rank {rank} has other {what} than rank 0 at the start of round {self.round}: stopped")

    # --- checkpoints ---

    def state_dict(self) -> dict[str, Any]:
        """Return masks, round and rewind point, for checkpoints of Lightning."""
        state = {"round": self.round, "masks": self.masks, "rewind_point": self.rewind_point}
        return state | {"sums": self._sums, "is_due": self._is_due, "options": self._options()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with a ticket that was saved.

        Raises:
            InputError: If it was pruned with other options.
        """
        if self._is_testing:  # Lightning loads callbacks then too, but the ticket is that of the training
            return
        for name, value in self._options().items():
            saved = state_dict["options"].get(name)
            check_rules((saved == value, f"the saved lottery ticket has {name}={saved!r}, not {value!r}: use the same options"))
        self.round, self.masks, self.rewind_point = (state_dict[key] for key in ("round", "masks", "rewind_point"))
        self._sums, self._is_due, self._is_resumed = state_dict["sums"], state_dict["is_due"], True

    def _options(self) -> dict[str, Any]:
        names = ("matrices", "include", "exclude", "rewind_step", "seed")
        rate = repr(self.rate) if callable(self.rate) else self.rate
        return {name: getattr(self, name) for name in names} | vars(self.pruning) | {"rate": rate}


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Name all parameters and buffers."""
    return chain(module.named_parameters(), module.named_buffers())


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, list[int]]:
    return {name: list(tensor.shape) for name, tensor in tensors.items()}


def _compare(expected: dict[str, list[int]], found: dict[str, list[int]], what: str) -> None:
    """Compare names and shapes of a module with those of the first round."""
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            shapes = f"{expected.get(name, 'missing')} in the first round, {found.get(name, 'missing')} now"
            raise InputError(f"{what} '{name}': {shapes}; build the same module in every round", code="mismatch")
