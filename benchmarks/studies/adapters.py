"""Compare adapters with equal numbers of weights: ``python -m benchmarks.studies.adapters --bases FOLDER --root DATA``.

Two networks are pre-trained on WordNet glosses, a GPT on their characters and a Transformer on their topics, and adapted to
tiny Shakespeare and to the questions of TREC: fully, by adapters of PEFT (LoRA, LoKr, C3A), by those of Compacter, and by
`zoo.peft` over several algebras. A budget r allows the weights of LoRA of rank r. Each method is trained at learning rates in
steps of a factor of sqrt(10) until the rate with the best validation loss lies inside the rates, and then with five seeds at
that rate; the test split selects nothing. The new head of a classifier is trained by every method and not counted.

Each finished run is a row of benchmarks/results/adapters.json and is not run again.

    --costs    train nothing; measure the step times, the memory of a step and the error of merging
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import lightning.pytorch as pl
import torch
from peft import C3AConfig, LoKrConfig, LoraConfig, inject_adapter_in_model
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from torch.nn import functional as F

import zoo
from benchmarks import machine
from benchmarks.studies.papers_rows import rooted
from zoo.conversion.adapters import Rule, Sizes, Update
from zoo.peft import ZooConfig
from zoo.registry import create
from zoo.tasks import Classification, LanguageModel, Optimizer, Schedule

RESULTS = Path(__file__).parents[1] / "results" / "adapters.json"
RATES = tuple(10 ** (exponent / 2) for exponent in (-5, -4, -3))
"""The first learning rates of a search."""
EXTRA_RATES = 5
SEEDS = 5
BUDGETS = (2, 1, 4)
"""Ranks of LoRA, in the order in which they are run."""
BOTTLENECK = 128


class Case(NamedTuple):
    """A network to pre-train, and the data to adapt it to."""

    backbone: str
    pretraining: dict[str, Any]
    data: str
    steps: int
    is_text: bool


CASES = {
    "trec": Case(
        "transformer(dim=128, depth=2, heads=4, ffn=512, dropout=0.1)",
        {"data": "glosses(tokenizer=bpe, vocab=4000)", "trainer": {"max_epochs": 5}},
        "trec",
        300,
        False,
    ),
    "shakespeare": Case(
        "gpt/micro",
        {"data": "glosses(task=language_model, tokenizer=char, max_length=128, batch_size=16)", "trainer": {"max_epochs": 2}},
        "shakespeare(max_length=128, batch_size=16)",
        100,
        True,
    ),
}


class Run(NamedTuple):
    """One training."""

    case: str
    method: str
    budget: int
    rate: float
    seed: int


# --- methods ---


@lru_cache
def register_cyclic() -> None:
    """Register the algebra of plugins/README.md."""

    def cyclic(n: int) -> zoo.Algebra:
        i = torch.arange(n)
        return zoo.Algebra(torch.eye(n)[(i[:, None] + i) % n])

    zoo.register("algebras", "cyclic", cyclic)


def over(algebra: str, budget: int, targets: Sequence[str]) -> ZooConfig:
    """Return our adapters over an algebra."""
    register_cyclic()
    return ZooConfig(algebra=algebra, block_rank=budget, target_modules=list(targets))


def lora(budget: int, targets: Sequence[str]) -> LoraConfig:
    """Return LoRA (Hu et al. 2022)."""
    return LoraConfig(r=budget, lora_alpha=budget, target_modules=list(targets))


def lokr(budget: int, targets: Sequence[str]) -> LoKrConfig:
    """Return LoKr (Yeh et al. 2024): a matrix of 4 x 4 times one of rank 4 r, so many weights as LoRA of rank r and 16."""
    return LoKrConfig(r=4 * budget, alpha=4 * budget, decompose_factor=4, target_modules=list(targets))


def c3a(budget: int, targets: Sequence[str]) -> C3AConfig:
    """Return C3A (Chen et al. 2025): with these two block sizes a Transformer block has the weights of LoRA of rank r."""
    attention, feed_forward = 64 // budget, 128 // budget
    names = [name for name in targets if ".attention." in name]
    pattern = dict.fromkeys(names, attention)
    return C3AConfig(block_size=feed_forward, block_size_pattern=pattern, target_modules=list(targets))


class Compacter(nn.Module):
    """A layer followed by the adapter of Compacter (Karimi Mahabadi et al. 2021), y + W gelu(V y), without biases."""

    def __init__(self, base_layer: nn.Module, rule: Rule, rank: int) -> None:
        super().__init__()
        size = Sizes.of(base_layer).out
        self.base_layer = base_layer
        self.down = Update(rule, Sizes(size, BOTTLENECK), rank)
        nn.init.normal_(self.down.up, std=rank**-0.5)
        self.up = Update(rule, Sizes(BOTTLENECK, size), rank)

    def forward(self, x: Tensor) -> Tensor:
        """Add the output of the adapter to that of the layer."""
        y: Tensor = self.base_layer(x)
        return y + self.up(F.gelu(self.down(y)))


def add_compacter(net: nn.Module, budget: int) -> None:
    """Add adapters after the output layers of attention and of the feed-forward networks; all share the learned product."""
    net.requires_grad_(False)
    rule = Rule("phm(n=4, shared=True)")
    for name in branch_ends(net):
        net.set_submodule(name, Compacter(net.get_submodule(name), rule, 2 * budget))


METHODS: dict[str, Any] = {
    "full": None,
    "lora": lora,
    "lokr": lokr,
    "c3a": c3a,
    "compacter": add_compacter,
    "real": partial(over, "real"),
    "quaternion": partial(over, "quaternion"),
    "octonion": partial(over, "octonion"),
    "phm-2": partial(over, "phm(n=2, shared=True)"),
    "phm-4": partial(over, "phm(n=4, shared=True)"),
    "phm-8": partial(over, "phm(n=8, shared=True)"),
    "cyclic-4": partial(over, "cyclic(n=4)"),
}


def layers_of(net: nn.Module) -> list[str]:
    """Return the names of the linear layers of attention and of the feed-forward networks."""
    names = [name for name, module in net.named_modules() if isinstance(module, nn.Linear)]
    return [name for name in names if ".attention." in name or ".ffn." in name]


def branch_ends(net: nn.Module) -> list[str]:
    """Return the names of the layers whose outputs are added to the stream of a block."""
    return [name for name in layers_of(net) if name.endswith((".attention.proj", ".ffn.3"))]


def adapt(net: nn.Module, method: str, budget: int) -> int:
    """Give a network the trained weights of a method, and the new head; return the number of its weights without the head."""
    head = {id(parameter) for parameter in net.head.parameters()} if hasattr(net, "head") else set()
    make = METHODS[method]
    if make is add_compacter:
        add_compacter(net, budget)
    elif make is not None:
        inject_adapter_in_model(make(budget, layers_of(net)), net)
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad and id(parameter) not in head]
    for parameter in net.head.parameters() if head else ():
        parameter.requires_grad_()
    return sum(parameter.numel() for parameter in trained)


# --- training ---


def pretrain(case: Case, folder: Path) -> None:
    """Train the network that is adapted, unless its folder exists."""
    if not folder.exists():
        zoo.fit(backbone=case.backbone, algebra="real", run_dir=str(folder), verbose=False, **case.pretraining)


def prepared(name: str, bases: Path, root: Path | None, seed: int) -> tuple[nn.Module, Any]:
    """Return a pre-trained network of torch's layers, with a new head for other classes, and the data to adapt it to."""
    case, base = CASES[name], zoo.load(str(bases / name))
    data = create("zoo.datasets", rooted(case.data, root), tokenizer=base.task.tokenizer, seed=seed)
    data.setup()
    torch.manual_seed(seed)
    net = zoo.fold(base.task.net)
    if hasattr(net, "head"):
        net.head = nn.Linear(net.head.in_features, len(data.info.classes))
    return net, data


def train(run: Run, bases: Path, root: Path | None) -> dict[str, Any]:
    """Adapt a network in a worker process and return the row of a run."""
    torch.set_num_threads(1)
    start, case = time.monotonic(), CASES[run.case]
    net, data = prepared(run.case, bases, root, run.seed)
    weights = adapt(net, run.method, run.budget)
    task = task_of(case, net, data, run.rate)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(max_steps=case.steps, limit_val_batches=0, accelerator="cpu", **quiet)
    trainer.fit(task, data)
    metric = "loss" if case.is_text else "accuracy"
    losses = {}
    for split, measure in (("validation", trainer.validate), ("test", trainer.test)):
        trainer.limit_val_batches = 1.0
        (values,) = measure(task, datamodule=data, verbose=False)
        losses[split] = next(value for key, value in values.items() if key.endswith(metric))
    seconds = round(time.monotonic() - start, 1)
    return run._asdict() | {"weights": weights} | losses | {"commit": machine.commit(), "seconds": seconds}


def task_of(case: Case, net: nn.Module, data: Any, rate: float) -> Any:
    """Return the task of a case."""
    options: dict[str, Any] = {"optimizer": Optimizer(lr=rate, weight_decay=0.0), "schedule": Schedule("cosine", warmup=0.1)}
    if case.is_text:
        return LanguageModel(net, data.info.vocab_size, **options)
    return Classification(net, len(data.info.classes), **options)


# --- protocol ---


def rows_of(rows: Iterable[Mapping[str, Any]], case: str, method: str, budget: int) -> dict[float, dict[int, Any]]:
    """Return the rows of a method by learning rate and seed."""
    found: dict[float, dict[int, Any]] = {}
    for row in rows:
        if (row["case"], row["method"], row["budget"]) == (case, method, budget):
            found.setdefault(row["rate"], {})[row["seed"]] = row
    return found


def best_rate(case: str, found: Mapping[float, Mapping[int, Any]]) -> float:
    """Return the rate with the best validation result of seed 0."""
    sign = 1 if CASES[case].is_text else -1

    def order(rate: float) -> float:
        value = found[rate][0]["validation"]
        return sign * value if value is not None and math.isfinite(value) else math.inf

    return min(sorted(found), key=order)


def due(case: str, method: str, budget: int, rows: Iterable[Mapping[str, Any]]) -> list[Run]:
    """Return the runs of a method that are due next; none if it is finished or its best rate lies at an end after all."""
    found = rows_of(rows, case, method, budget)
    run = partial(Run, case, method, budget)
    first = [rate / 10 for rate in RATES] if method == "full" else list(RATES)
    wanted = [rate for rate in first if rate not in found]
    if wanted:
        return [run(rate, 0) for rate in wanted]
    best = best_rate(case, found)
    if best in (min(found), max(found)):
        step = 10 ** (0.5 if best == max(found) else -0.5)
        return [run(best * step, 0)] if len(found) < len(RATES) + EXTRA_RATES else []
    return [run(best, seed) for seed in range(1, SEEDS) if seed not in found[best]]


def plan(cases: Sequence[str], rows: Sequence[Mapping[str, Any]], budgets: Sequence[int] = BUDGETS) -> Iterator[Run]:
    """Yield the runs that are due, a budget after the other."""
    for budget in budgets:
        for case in cases:
            for method in METHODS:
                if method != "full" or budget == BUDGETS[0]:
                    yield from due(case, method, budget, rows)


def read(path: Path) -> dict[str, Any]:
    """Read the results."""
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"seeds": SEEDS, "rows": []}
    return stored


def measure(options: argparse.Namespace) -> None:
    """Run what is due in parallel processes until nothing is, or the time is over."""
    end, running = time.monotonic() + 60 * options.minutes, dict[Any, Run]()
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        while True:
            ready = [run for run in plan(options.cases, read(options.out)["rows"]) if run not in running.values()]
            ready = ready if time.monotonic() < end else []
            for run in ready[: options.jobs - len(running)]:
                running[pool.submit(train, run, options.bases, options.root)] = run
            if not running:
                return
            future = next(as_completed(running))
            run, row = running.pop(future), future.result()
            print(f"{run}: {row['weights']:,} weights, validation {row['validation']:.4f}, {row['seconds']} s", flush=True)
            stored = read(options.out)
            machine.write_rows(options.out, {**stored, "rows": [*stored["rows"], row]})


# --- costs ---


def step_of(name: str, method: str, bases: Path, root: Path | None) -> tuple[nn.Module, Callable[[], None], Tensor]:
    """Return a network with a method, a training step of it, and the tokens of the step."""
    net, data = prepared(name, bases, root, 0)
    adapt(net, method, BUDGETS[0])
    task = task_of(CASES[name], net, data, 1e-3).train()
    batch = next(iter(data.train_dataloader()))
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, fused=True)

    def step() -> None:
        task.step(batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return net, step, batch[0]


def saved_bytes(net: nn.Module, step: Callable[[], None]) -> int:
    """Return the bytes that a step saves for the backward pass, without parameters, with gradients and Adam's two means."""
    own, kept = {parameter.untyped_storage().data_ptr() for parameter in net.parameters()}, dict[int, int]()

    def save(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        step()
    trained = sum(parameter.nbytes for parameter in net.parameters() if parameter.requires_grad)
    return sum(kept.values()) + 3 * trained


@torch.no_grad()
def merge_error(net: nn.Module, tokens: Tensor) -> float | None:
    """Merge adapters of PEFT and return the largest change of an output, relative to the largest output."""
    adapters = [module for module in net.modules() if isinstance(module, BaseTunerLayer)]
    if not adapters:
        return None
    before = net.eval()(tokens)
    for adapter in adapters:
        adapter.merge()
    return float((net(tokens) - before).abs().max() / before.abs().max())


def costs(options: argparse.Namespace, rounds: int = 30) -> None:
    """Measure the costs of all methods in turns, and store them."""
    torch.set_num_threads(1)
    rows = []
    for name in options.cases:
        parts = {method: step_of(name, method, options.bases, options.root) for method in METHODS}
        times: dict[str, list[float]] = {method: [] for method in METHODS}
        for turn in range(rounds):
            for method, (_, step, _) in parts.items():
                start = time.perf_counter()
                step()
                if turn >= 2:
                    times[method].append(time.perf_counter() - start)
        for method, (net, step, tokens) in parts.items():
            row = {"case": name, "method": method, "ms": round(1e3 * median(times[method]), 2)}
            memory, error = saved_bytes(net, step), merge_error(net, tokens)
            rows.append(row | {"bytes": memory, "merge_error": error})
            print(rows[-1], flush=True)
    stored = read(options.out)
    machine.write_rows(options.out, {**machine.info(), "costs": rows, "rows": stored["rows"]})


def main() -> None:
    """Run the study."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.adapters", description=__doc__)
    parser.add_argument(
        "--bases", type=Path, required=True, help="folder of the pre-trained networks; missing ones are trained"
    )
    parser.add_argument("--root", type=Path, help="folder of the data sets")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no run after this time")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--costs", action="store_true")
    options = parser.parse_args()
    for name in options.cases:
        pretrain(CASES[name], options.bases / name)
    (costs if options.costs else measure)(options)


if __name__ == "__main__":
    main()
