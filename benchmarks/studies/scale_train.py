"""The training of `benchmarks.studies.scale`: one recipe for all networks and devices."""

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic products on a GPU; read when they are first used

import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import zoo
from benchmarks import machine
from benchmarks.studies.papers_rows import rooted
from benchmarks.studies.scale_plan import LENGTH, Network, Run, Variant, spec_of
from zoo import registry
from zoo.data import ready
from zoo.nn import Weight
from zoo.tasks import Optimizer, Schedule
from zoo.tasks.optimization import lr_factor, make_optimizer
from zoo.training.bench import side_by_side

DATA = {
    "shakespeare": "shakespeare(max_length={length})",
    "glosses": "glosses(task=language_model, tokenizer=char, max_length={length})",
}


PAD = 0
"""Padding in `zoo.data.text.Tokenizer`."""


class Recipe(NamedTuple):
    """The training of all networks, on every device.

    Attributes:
        batch, length: Rows of a batch, and tokens of a row; a row starts at a random position of the training text.
        warmup: Fraction of the steps with a rising rate; then it follows a cosine to zero.
        validate: Steps between two validations; the last step is followed by one, too. The best one counts.
        precision: Of the products, by autocast; weights and the optimizer are float32.
        blocks: Maximum number of blocks of the validation and the test text; None for all of them.
    """

    batch: int = 16
    length: int = LENGTH
    optimizer: str = "adamw"
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.1
    warmup: float = 0.1
    schedule: str = "cosine"
    validate: int = 244
    precision: str = "bfloat16"
    blocks: int | None = None


RECIPE = Recipe()
SMALL = Recipe(batch=2, length=32, validate=2, blocks=64)
"""The recipe of a dry run."""
EVALUATED = 64
"""Blocks of an evaluated batch."""


class Texts(NamedTuple):
    """A text by characters on a device: training tokens [N], and (tokens, targets) [B, L] of the other splits."""

    train: Tensor
    val: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    vocab_size: int


@lru_cache
def load(task: str, root: Path | None, recipe: Recipe, device: str) -> Texts:
    """Read a text, and check that its splits are disjoint."""
    data: Any = ready(registry.create("zoo.datasets", rooted(DATA[task].format(length=recipe.length), root)))
    splits = {name: torch.from_numpy(data.splits[name].astype("int64")) for name in ("train", "val", "test")}
    check_disjoint(splits)
    blocks = {}
    for name in ("val", "test"):
        starts = range(0, len(splits[name]) - 1, recipe.length)[: recipe.blocks]
        tokens, targets, _ = data.dataset(name).__getitems__(list(starts))
        blocks[name] = tokens.to(device), targets.to(device)
    return Texts(splits["train"].to(device), blocks["val"], blocks["test"], data.info.vocab_size)


def check_disjoint(splits: dict[str, Tensor], length: int = LENGTH) -> None:
    """Exit if a block of ``length`` tokens of a split occurs in an earlier one, or if a token is padding and is not counted."""
    seen = torch.empty(0, dtype=torch.int64)
    for name in ("train", "val", "test"):
        if torch.isin(windows(splits[name], length)[::length], seen).any():
            raise SystemExit(f"benchmarks.studies.scale: a block of the {name} split occurs in another split")
        if int(splits[name].min()) <= PAD:
            raise SystemExit(f"benchmarks.studies.scale: the {name} split contains padding, so its tokens cannot be counted")
        seen = torch.cat([seen, windows(splits[name], length)])


def windows(tokens: Tensor, length: int) -> Tensor:
    """Return sum_k t[k] b^k modulo 2^64 for each window t of ``length`` tokens: equal windows have equal numbers."""
    base, modulus = 0x9E3779B97F4A7C15, 2**64
    count, inverse = len(tokens), pow(base, -1, modulus)

    def powers(factor: int) -> Tensor:
        signed = factor - modulus if factor >= modulus // 2 else factor  # int64 wraps around
        return torch.cat([torch.ones(1, dtype=torch.int64), torch.full((count,), signed).cumprod(0)])

    sums = torch.cat([torch.zeros(1, dtype=torch.int64), (tokens * powers(base)[:-1]).cumsum(0)])
    return (sums[length:] - sums[:-length]) * powers(inverse)[: count - length + 1]


# --- training ---


def build(network: Network, recipe: Recipe, vocab_size: int, device: str) -> nn.Module:
    """Create a network on a device."""
    spec, scope, init = spec_of(network), network.changed.scope, network.changed.init
    facts: dict[str, Any] = {"vocab_size": vocab_size, "max_length": recipe.length}
    return zoo.backbone(spec, network.algebra, scope=scope, init=init, **facts).to(device)


def optimizer_of(net: nn.Module, rate: float, recipe: Recipe, variant: Variant) -> torch.optim.Optimizer:
    """Create the optimizer; the components of weights over an algebra get the rate and the decay of the variant."""
    options = Optimizer(recipe.optimizer, rate, recipe.weight_decay, recipe.betas, mup_base_width=variant.mup_base_width)
    optimizer = make_optimizer(net, options)
    weights = [part for part in net.modules() if isinstance(part, Weight) and part.algebra.n > 1]
    n = weights[0].algebra.n if weights else 1
    components = {id(weight.components) for weight in weights}
    for group in list(optimizer.param_groups):
        group["fused"] = True
        changed = [parameter for parameter in group["params"] if id(parameter) in components]
        if changed and (variant.rate or variant.decay):
            group["params"] = [parameter for parameter in group["params"] if id(parameter) not in components]
            factors = {"lr": group["lr"] * n**variant.rate, "weight_decay": group["weight_decay"] * n**variant.decay}
            optimizer.add_param_group(group | {"params": changed} | factors)
    return optimizer


def autocast(device: str, recipe: Recipe) -> Any:
    """Return the context of mixed precision."""
    return torch.autocast(device, getattr(torch, recipe.precision))


@torch.no_grad()
def loss_of(net: nn.Module, split: tuple[Tensor, Tensor], recipe: Recipe) -> float:
    """Return the mean loss of all targets of a split, in nats."""
    net.eval()
    total = torch.zeros((), dtype=torch.float64, device=split[0].device)
    with autocast(split[0].device.type, recipe):
        for tokens, targets in zip(*(part.split(EVALUATED) for part in split), strict=True):
            logits = net(tokens).flatten(0, -2).float()
            total += F.cross_entropy(logits, targets.flatten(), ignore_index=PAD, reduction="sum")
    net.train()
    return float(total / (split[1] != PAD).sum())


def training_step(net: nn.Module, optimizer: torch.optim.Optimizer, rows: Tensor, recipe: Recipe) -> int:
    """Update a network on rows of tokens [B, L + 1], and return the number of its targets."""
    targets = rows[:, 1:].flatten()
    with autocast(rows.device.type, recipe):
        loss = F.cross_entropy(net(rows[:, :-1]).flatten(0, -2), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return targets.numel()


def batches(train: Tensor, steps: int, seed: int, recipe: Recipe) -> Iterable[Tensor]:
    """Yield the rows of each step, [B, L + 1] at random positions; they depend on the seed only, not on the device."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(train) - recipe.length, (steps, recipe.batch, 1), generator=generator).to(train.device)
    offsets = torch.arange(recipe.length + 1, device=train.device)
    for start in starts:
        yield train[start + offsets]


def train(run: Run, texts: Texts, recipe: Recipe) -> dict[str, Any]:
    """Train a network and return its losses; a run that diverges has a reason instead."""
    network, device = run.network, texts.train.device.type
    torch.manual_seed(run.seed)
    net = build(network, recipe, texts.vocab_size, device).train()
    optimizer = optimizer_of(net, run.rate, recipe, network.changed)
    peaks = [group["lr"] for group in optimizer.param_groups]
    schedule = Schedule(recipe.schedule, recipe.warmup)
    steps, tokens = network.tokens // (recipe.batch * recipe.length), 0
    best: dict[str, Any] = {"validation": math.inf, "test": None, "best_step": None, "diverged": None}
    for step, rows in enumerate(batches(texts.train, steps, run.seed, recipe), 1):
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["lr"] = peak * lr_factor(step - 1, steps, schedule)
        tokens += training_step(net, optimizer, rows, recipe)
        if step % recipe.validate == 0 or step == steps:
            validation = loss_of(net, texts.val, recipe)
            if not math.isfinite(validation):
                reason = f"the validation loss is {validation} after step {step} of {steps}"
                best |= {"validation": None, "best_step": None, "diverged": reason}
                break
            if validation < best["validation"]:
                best |= {"validation": validation, "best_step": step}
                weights = {name: value.clone() for name, value in net.state_dict().items()}
    if best["diverged"] is None and network.variant == "base":
        net.load_state_dict(weights)
        best["test"] = loss_of(net, texts.test, recipe)
    return {"weights": zoo.count(net)["total"], "trained_tokens": tokens} | best


def prepare(threads: int) -> None:
    """Set the threads of this process, and make its results repeatable."""
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def row_of(run: Run, root: Path | None, recipe: Recipe, device: str, threads: int) -> dict[str, Any]:
    """Train in a worker process and return the row of a run."""
    prepare(threads)
    texts, start = load(run.network.task, root, recipe, device), time.monotonic()
    measured = train(run, texts, recipe)
    about = machine.info() | {"commit": machine.commit(), "seconds": round(time.monotonic() - start, 1), "step_ms": None}
    return run.as_row() | {"spec": spec_of(run.network)} | measured | {"kind": device} | about


def step_times(networks: Sequence[Network], root: Path | None, recipe: Recipe, device: str, rounds: int) -> list[float]:
    """Return the milliseconds of a training step of networks for one task, measured in turns in this process."""
    texts = load(networks[0].task, root, recipe, device)
    rows = next(iter(batches(texts.train, 1, 0, recipe)))
    calls: dict[str, Callable[[], Any]] = {}
    for number, network in enumerate(networks):
        net = build(network, recipe, texts.vocab_size, device).train()
        step = partial(training_step, net, optimizer_of(net, 1e-3, recipe, network.changed), rows, recipe)
        calls[str(number)] = step if device == "cpu" else partial(synchronized, step)
    return [row["ms"] for row in side_by_side(calls, rounds, warmup=2).values()]


def synchronized(step: Callable[[], Any]) -> None:
    """Run a step to its end on the GPU."""
    step()
    torch.cuda.synchronize()
