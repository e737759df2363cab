"""Lottery tickets in a Trainer: schedules, rewinding, masks with many optimizers and precisions, checkpoints, errors."""

import copy
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import LearningRateFinder
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.strategies import FSDPStrategy
from timm.optim import Lookahead
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import zoo
from tests.errors import raises
from zoo.pruning import CubicSparsity, LotteryTicket, iterate_rounds, prunable, rounds_until
from zoo.pruning import masks as lib
from zoo.training.trainer import FoundRate, moving_average


class Net(LightningModule):
    """A network with batch norm, dropout, a hypercomplex and a real layer."""

    def __init__(self, optimizer=None, algebra="quaternion"):
        super().__init__()
        self.inner = zoo.nn.Linear(8, 16, algebra=zoo.algebra(algebra))
        self.norm, self.drop, self.head = nn.BatchNorm1d(16), nn.Dropout(0.1), nn.Linear(16, 3)
        self.make = optimizer or (lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.5))

    def forward(self, x):
        return self.head(self.drop(self.norm(self.inner(x)).relu()))

    def training_step(self, batch, index):
        return F.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return self.make(self.parameters())


QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}


def trainer(*callbacks, **options):
    options = QUIET | {"max_epochs": 2, "accelerator": "cpu", "num_sanity_val_steps": 0} | options
    return Trainer(callbacks=list(callbacks), **options)


def data(seed=0):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(64, 8, generator=draw)
    return DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=16)


def tensors(module):
    return {name: t.detach().clone() for name, t in (*module.named_parameters(), *module.named_buffers())}


def net(**options):
    torch.manual_seed(0)
    return Net(**options)


def same_bits(a, b):
    return a.dtype == b.dtype and torch.equal(
        a.contiguous().flatten().view(torch.uint8), b.contiguous().flatten().view(torch.uint8)
    )


class Look(Callback):
    """Record the weights and the optimizer state at the start of a round."""

    def __init__(self, seen):
        self.seen = seen

    def on_train_start(self, trainer, module):
        self.seen.append((tensors(module), copy.deepcopy(trainer.optimizers[0].state_dict()["state"])))


def assert_starts_at(start, ticket):
    """Check that the survivors start at the rewind point, bit for bit."""
    for name, value in start.items():
        mask = ticket.masks.get(name, torch.ones_like(value, dtype=torch.bool))
        assert same_bits(value[mask], ticket.rewind_point[name][mask]), name


@pytest.mark.parametrize("rewind_step", [0, 3])
@pytest.mark.parametrize("unit", ["number", "element"])
def test_rounds_start_at_the_rewind_point_with_exact_counts(rewind_step, unit):
    ticket, seen, made, ends = LotteryTicket(0.4, rewind_step=rewind_step, unit=unit), [], [], []

    def fit_one(ticket):
        made.append(net())
        trainer(ticket, Look(seen)).fit(made[-1], data())
        ends.append(tensors(made[-1]))

    rounds = list(iterate_rounds(fit_one, ticket, 3))
    left = {"inner.weight_module.components": 32 // (4 if unit == "element" else 1), "head.weight": 48}
    for number, done in enumerate(rounds):
        survivors = left["inner.weight_module.components"] * (4 if unit == "element" else 1) + left["head.weight"]
        assert (done.number, done.survivors, done.weights) == (number, survivors, 80)
        left = {name: count - round(0.4 * count) for name, count in left.items()}
    point = ticket.rewind_point
    assert point.keys() == seen[0][0].keys()
    for start, optimizer in seen[(rewind_step > 0) :]:
        assert optimizer == {}, "a new optimizer"
        assert_starts_at(start, ticket)
    if rewind_step:
        assert not torch.equal(point["head.weight"], seen[0][0]["head.weight"])
        assert int(point["norm.num_batches_tracked"]) == 3
    # The last round is trained under its masks and not pruned again.
    for name, mask in ticket.masks.items():
        assert ((ends[-1][name] != 0) == mask).all()
        assert not torch.equal(ends[-1][name], point[name] * mask)


def test_the_seed_determines_a_round():
    """A round of a loaded ticket equals the same round in one process: the ticket contains all state."""
    ends = []
    for _ in range(2):
        ticket = LotteryTicket(0.3)

        def fit_one(ticket):
            module = Net()
            trainer(ticket).fit(module, data())
            return tensors(module)

        *_, last = iterate_rounds(fit_one, ticket, 2, seed=7)
        ends.append(last.result)
    fresh, end = LotteryTicket(0.3), None
    fresh.load_state_dict(copy.deepcopy(ticket.state_dict()))
    for done in iterate_rounds(fit_one, fresh, 2, seed=7):
        end = done.result
        assert done.number == 2
    for name, value in ends[0].items():
        assert same_bits(value, ends[1][name])
        assert same_bits(value, end[name])


class Noisy(torch.optim.SGD):
    """An optimizer that changes weights without a gradient."""

    @torch.no_grad()
    def step(self, closure=None):
        loss = super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(0.1)
        return loss


KINDS = {
    "accumulate": ({}, {"accumulate_grad_batches": 2}),
    "ema": ({}, {}),
    "lookahead": ({"optimizer": lambda p: Lookahead(Noisy(p, lr=0.1), k=2)}, {}),
    "lbfgs": ({"optimizer": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3)}, {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_pruned_weights_stay_zero(kind):
    options, settings = KINDS[kind]
    ticket, steps = LotteryTicket(0.6), []

    class Watch(Callback):
        def on_train_batch_end(self, trainer, module, *_):
            parameters = dict(module.named_parameters())
            assert all(not parameters[name][~mask].any() for name, mask in ticket.masks.items())
            steps.append(sum(int((parameters[name] != 0).sum()) for name in ticket.masks))

    for number in range(2):
        average = [moving_average(0.5)] if kind == "ema" else []
        module = net(**options)
        # Callbacks before the ticket also see masked weights, unless the optimizer does not call hooks.
        order = [ticket, Watch()] if kind == "lookahead" else [Watch(), *average, ticket]
        trainer(*order, **settings).fit(module, data())
        weights = dict(module.named_parameters())
        for name, mask in ticket.masks.items():
            assert not weights[name][~mask].any()
            assert not torch.equal(weights[name].float(), ticket.rewind_point[name].float() * mask), "it was trained"
        if not number:
            ticket.prune()
    survivors, weights = ticket.count()
    assert survivors == 80 - round(0.6 * 32) - round(0.6 * 48)
    assert weights == 80
    assert steps[-1] == survivors


class Searching(Net):
    """A network with a learning rate, whose optimizer moves pruned weights."""

    lr = 0.1

    def configure_optimizers(self):
        return Noisy(self.parameters(), lr=self.lr)


def test_a_search_of_the_learning_rate_neither_moves_the_rewind_point_nor_prevents_rewinding(tmp_path):
    """Lightning's finder restores a checkpoint before the round starts, and the zoo then builds a new optimizer."""
    ticket, seen = LotteryTicket(0.5), []
    for number in range(2):
        torch.manual_seed(number)
        module = Searching()
        start = tensors(module)
        callbacks = [LearningRateFinder(num_training_steps=4, update_attr=False), ticket, FoundRate(), Look(seen)]
        trainer(*callbacks, default_root_dir=tmp_path).fit(module, data())
        if not number:
            assert all(same_bits(value, ticket.rewind_point[name]) for name, value in start.items())
            ticket.prune()
    assert_starts_at(seen[-1][0], ticket)
    assert all(not dict(module.named_parameters())[name][~mask].any() for name, mask in ticket.masks.items())


def test_gradients_are_masked_before_clipping():
    """Gradients of pruned weights must not contribute to the norm."""
    norms = []

    class Net2(Net):
        def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None):
            grads = {name: p.grad for name, p in self.named_parameters()}
            norms.append(all(not grads[name][~mask].any() for name, mask in ticket.masks.items()))
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    ticket = LotteryTicket(0.9)
    for _ in range(2):
        trainer(ticket, gradient_clip_val=0.1).fit(Net2(), data())
        ticket.prune() if not ticket.round else None
    assert norms
    assert all(norms[8:])


def test_the_module_is_not_changed():
    ticket, module = LotteryTicket(0.5), net()
    modules, start = list(module.modules()), tensors(module)
    for _ in range(2):
        trainer(ticket).fit(module, data())
        trained = tensors(module)
        ticket.prune()
        assert all(same_bits(value, trained[name]) for name, value in tensors(module).items()), "pruning changes no weight"
    assert all(same_bits(value, start[name]) for name, value in ticket.rewind_point.items())
    assert list(tensors(module)) == list(start)
    assert list(module.modules()) == modules
    assert not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in module.modules())


def test_snip_and_movement_equal_their_definitions():
    module, batch = net(optimizer=lambda p: torch.optim.SGD(p, lr=0.1)), next(iter(data()))
    module.drop.p = 0.0
    copied = copy.deepcopy(module)
    names = list(prunable(copied))
    snip, movement = LotteryTicket(0.5, score="snip"), LotteryTicket(0.5, score="movement")
    trainer(snip, max_steps=1).fit(copy.deepcopy(module), data())
    trainer(movement, max_steps=2).fit(module, data())
    sums, parameters = {}, dict(copied.named_parameters())
    optimizer = torch.optim.SGD(copied.parameters(), lr=0.1)
    for batch in list(data())[:2]:
        optimizer.zero_grad()
        copied.training_step(batch, 0).backward()
        if not sums:
            expected = {name: (parameters[name] * parameters[name].grad).detach().abs() for name in names}
        sums = {name: sums.get(name, 0) - (parameters[name] * parameters[name].grad).detach() for name in names}
        optimizer.step()
    movement.prune()
    for name in names:
        for masks, values in ((snip.masks, expected), (movement.masks, sums)):
            kept = masks[name]
            assert int(kept.sum()) == kept.numel() // 2
            assert values[name][kept].min() > values[name][~kept].max()


def test_movement_ignores_steps_that_overflow_in_float16():
    """GradScaler skips such steps."""
    fake = SimpleNamespace(precision_plugin=SimpleNamespace(scaler=object()))
    ticket, module = LotteryTicket(0.5, score="movement"), nn.Linear(3, 3, bias=False)
    ticket._prunable = lib.prunable(module)
    for gradient in (float("inf"), 2.0):
        module.weight.grad = torch.full((3, 3), gradient)
        ticket.on_before_optimizer_step(fake, module, None)
    assert torch.equal(ticket._sums["weight"], -2.0 * module.weight.detach())


def test_a_ticket_resumes_from_a_checkpoint_bit_for_bit(tmp_path):
    """Interrupted within the second round."""
    ends = []
    for stop in (False, True):
        ticket, module = LotteryTicket(0.5, score="movement"), net()
        trainer(ticket).fit(module, data())
        ticket.prune()
        module = net()
        module.drop.p = 0.0
        if stop:
            path = tmp_path / "stopped.ckpt"
            first = trainer(ticket, max_epochs=1)
            first.fit(module, data())
            first.save_checkpoint(path)
            ticket, module = LotteryTicket(0.5, score="movement"), Net()
            module.drop.p = 0.0
            trainer(ticket).fit(module, data(), ckpt_path=path, weights_only=True)
        else:
            trainer(ticket).fit(module, data())
        ticket.prune()
        ends.append((tensors(module), ticket))
    (one, a), (two, b) = ends
    assert all(same_bits(value, two[name]) for name, value in one.items())
    assert a.round == b.round == 2
    assert lib.tensor_digest(a.masks) == lib.tensor_digest(b.masks)
    assert all(same_bits(value, b.rewind_point[name]) for name, value in a.rewind_point.items())


def test_errors():
    with raises("conflict", "rewind_step"):
        LotteryTicket(0.5, rewind_step=5, score="snip")
    with raises("missing", "trainer.fit"):
        LotteryTicket(0.5).prune()
    with raises("unsupported", "FSDP"):
        LotteryTicket(0.5).setup(SimpleNamespace(strategy=FSDPStrategy()), None, "fit")
    ticket, other = LotteryTicket(0.5), net()
    trainer(ticket).fit(net(), data())
    ticket.prune()
    other.head = nn.Linear(16, 4)
    with raises("mismatch", "'head.weight' is [4, 16]"):
        trainer(ticket).fit(other, data())
    late = LotteryTicket(0.5, rewind_step=99)
    trainer(late).fit(net(), data())
    with raises("invalid", "rewind_step=99"):
        late.prune()


# --- schedules ---


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("rate", "survivors"),
    [(lambda round: (0.5, 0.0, 0.75)[round], [64, 32, 32, 8]), ("cubic(final=0.75, rounds=2)", [64, 22, 16, 16])],
)
def test_any_function_of_the_round_is_a_schedule(rate, survivors):
    def fit_one(ticket):
        Trainer(fast_dev_run=True, callbacks=[ticket], accelerator="cpu").fit(BoringModel())

    assert [done.survivors for done in iterate_rounds(fit_one, LotteryTicket(rate), 3)] == survivors


def test_the_cubic_schedule_reaches_its_sparsity():
    schedule, survivors = CubicSparsity(final=0.9, rounds=4), 1.0
    for number in range(4):
        survivors *= 1 - schedule(number)
        assert 1 - survivors == pytest.approx(0.9 * (1 - (1 - (number + 1) / 4) ** 3))
    assert schedule(4) == 0
    assert rounds_until(0.1, schedule) == 4


def test_rounds_until_counts_a_share_that_is_reached_exactly():
    assert rounds_until(0.25, 0.5) == 2


def test_invalid_schedules():
    with raises("invalid", "rate=1.0"):
        LotteryTicket(1.0)
    with raises("invalid", "until=0.01"):
        rounds_until(0.01, CubicSparsity(0.9))


def test_the_code_of_the_documentation_runs(tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "docs" / "pruning.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(block, "pruning.md", "exec"), names)
    saved, loaded = names["net"].state_dict(), names["same"].state_dict()
    assert all(torch.equal(saved[name], loaded[name]) for name in saved)
    assert names["done"].number == 2
    assert 0.35 < names["done"].survivors / names["done"].weights < 0.37


@pytest.mark.parametrize("rate", [1.5, 1.0, -0.1, float("nan")])
def test_rounds_need_a_fraction_to_prune(rate):
    with raises("invalid", "rate"):
        rounds_until(0.1, rate)
