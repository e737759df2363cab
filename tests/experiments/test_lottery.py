"""``zoo lottery``: results, resuming, pruning options, arms that end, and invalid calls."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import EarlyStopping
from zoo_experiments import lottery as experiments
from zoo_experiments.lottery import Tickets, arms_of
from zoo_experiments.options import Lottery
from zoo_experiments.round import RoundExtension
from zoo_experiments.rows import GridRow
from zoo_reports.lottery import lottery as lottery_report

import zoo
from tests.errors import raises
from zoo.cli import main
from zoo.pruning import Pruning, prunable
from zoo.pruning.masks import full_masks, next_masks, tensor_digest
from zoo.training import fit as module
from zoo.training.checkpoints import DivergenceError
from zoo.training.folder import lock_folder
from zoo.training.resume import AtomicCheckpointIO, read_checkpoint

TINY = "vit(dim=16,depth=1,heads=1,dropout=0.1)"
TRAINER = {"max_epochs": 2, "accelerator": "cpu", "limit_train_batches": 2, "logger": False, "enable_progress_bar": False}
OPTIONS = {"backbone": TINY, "algebra": "quaternion", "data": "digits", "rounds": 2, "batch_size": 128, "collapse": 1.0}
OPTIONS |= {"optimizer": {"lr": 0.2}, "schedule": {"name": "constant", "warmup": 0.0}}


class Recorder(Callback):
    """Records the weights at the start and end of each training."""

    def __init__(self):
        self.began, self.ended = [], []

    def on_train_start(self, trainer, pl_module):
        self.began.append({name: p.detach().clone() for name, p in pl_module.named_parameters()})

    def on_train_end(self, trainer, pl_module):
        self.ended.append({name: p.detach().clone() for name, p in pl_module.named_parameters()})


def options(trainer=None, **changes):
    return {**OPTIONS, **changes, "trainer": {**TRAINER, **(trainer or {})}}


def results_of(run):
    """Return the results of an experiment without times."""
    run = Path(run)
    results = {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("model/model.safetensors")}
    for path in run.rglob("ticket.ckpt"):
        state = read_checkpoint(path)
        parts = (state["ticket"]["masks"], state["ticket"]["rewind_point"], state["pruned_from"])
        results[str(path.relative_to(run))] = [state["ticket"]["round"], *map(tensor_digest, parts)]
    rows = json.loads((run / "lottery.json").read_text())["rows"]
    return results | {"rows": [{**row, "seconds": 0} for row in rows]}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The results of an experiment with both controls, its `Recorder` and its folder."""
    workdir, recorder = tmp_path_factory.mktemp("lottery"), Recorder()
    before = os.getcwd()
    os.chdir(workdir)
    try:
        results = zoo.lottery(**options(controls=["random", "reinit"], trainer={"callbacks": [recorder]}))
    finally:
        os.chdir(before)
    return results, recorder, workdir / results["run_dir"]


def test_the_results_of_an_experiment(finished):
    results, _, run = finished
    assert run.name == "lottery-vit-depth1-dim16-dropout0.1-heads1-quaternion-digits-seed0"
    assert json.loads((run / "lottery.json").read_text()) == {k: v for k, v in results.items() if k != "run_dir"}
    assert (results["metric"], results["mode"], results["rounds"], results["stopped"]) == ("accuracy", "max", 2, [])
    arms = [(row["control"], row["round"]) for row in results["rows"]]
    assert arms == [(None, 0), (None, 1), (None, 2), ("random", 1), ("random", 2), ("reinit", 1), ("reinit", 2)]
    by_round = [{row["survivors"] for row in results["rows"] if row["round"] == number} for number in range(3)]
    masks = [192, 64, 256, 256, 64, 160]  # qkv, proj, fc1, fc2, patches, head
    counts = [sum(masks), *(sum(round_(size, number) for size in masks) for number in (1, 2))]
    assert by_round == [{count} for count in counts]
    for row in results["rows"]:
        assert (row["weights"], row["real_weights"]) == (sum(masks), 3296)
        folder = run / row["folder"]
        assert not (folder / "checkpoints").exists()
        assert "LotteryTicket" not in (folder / "config.yaml").read_text()  # so that it describes an ordinary run
        assert {"loss", "accuracy"} <= row["val"].keys() & row["test"].keys()
        assert json.loads((folder / "model/manifest.json").read_text())["metrics"] == row["test"]
    assert [*run.glob("*/seed-0/ticket.ckpt")] == [run / "quaternion/seed-0/ticket.ckpt"]


def round_(size, number):
    """Return the number of weights of a tensor after a round; a fused qkv is three tensors."""
    parts = 3 if size == 192 else 1
    remaining = size // parts
    for _ in range(number):
        remaining -= round(0.4 * remaining)
    return parts * remaining


def test_survivors_are_rewound_and_masks_come_from_the_last_weights(finished):
    results, recorder, run = finished
    state = read_checkpoint(run / "quaternion/seed-0/ticket.ckpt")
    since, rewind = state["pruned_from"], state["ticket"]["rewind_point"]
    for row, began in zip(results["rows"], recorder.began, strict=True):
        expected = {name: value.clone() for name, value in rewind.items() if name in began}
        masks = {name: rounds > row["round"] for name, rounds in since.items()}
        same = {name: torch.equal(began[name] != 0, mask) for name, mask in masks.items()}
        if row["control"] == "random":
            assert not any(same.values())
            masks = {name: began[name] != 0 for name in masks}
        else:
            assert all(same.values())
        for name, mask in masks.items():
            expected[name][~mask] = 0
        assert (tensor_digest(expected) == tensor_digest(began)) == (row["control"] != "reinit")
    reinit = [began for row, began in zip(results["rows"], recorder.began, strict=True) if row["control"] == "reinit"]
    first, second = (one["net.blocks.0.attn.qkv.weight_module.components"] for one in reinit)
    kept = second != 0
    assert torch.equal(first[kept], second[kept]), "all rounds must have the same other initialization"
    assert results["rows"][0]["epoch"] == 1, "the best weights must not be the last ones"
    for name, one in prunable(zoo.load(run / "quaternion/seed-0/round-02").net).items():
        assert torch.equal(one.parameter != 0, since[f"net.{name}"] > 2)
    # The masks of round 1 come from the last weights of round 0, not from the model, which has those of the best epoch.
    net = prunable(zoo.load(run / "quaternion/seed-0/round-00").net)
    ended = {name.removeprefix("net."): value for name, value in recorder.ended[0].items()}
    assert any(not torch.equal(one.parameter, ended[name]) for name, one in net.items())
    masks = next_masks(net, {name: ended[name] for name in net}, full_masks(net), Pruning(0.4))
    assert tensor_digest(masks) == tensor_digest({name.removeprefix("net."): rounds > 1 for name, rounds in since.items()})


def test_rewinding_to_a_later_step(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first_steps, recorder = [], Recorder()

    class Steps(Callback):
        def on_train_batch_end(self, trainer, pl_module, *_):
            if trainer.global_step == 1:
                first_steps.append({name: p.detach().clone() for name, p in pl_module.named_parameters()})

    zoo.lottery(**options(rounds=1, pruning={"rewind_step": 1}, trainer={"max_epochs": 1, "callbacks": [recorder, Steps()]}))
    for name, value in recorder.began[1].items():
        kept = value != 0
        assert torch.equal(value[kept], first_steps[0][name][kept]), name
    assert tensor_digest(first_steps[0]) != tensor_digest(recorder.began[0])


class Crash(BaseException):
    """Simulates the end of a process."""


def test_a_crash_in_any_phase_changes_nothing(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chosen = options(controls=["random", "reinit"], checkpoint_every="1steps", run_dir="run")
    calls = {"n": 0}

    def after(count, function):
        def wrapped(*args, **kwargs):
            calls["n"] += 1
            if calls["n"] == count:
                raise Crash
            return function(*args, **kwargs)

        return wrapped

    crashes = [
        (AtomicCheckpointIO, "save_checkpoint", 4),
        (module, "save_model", 1),
        (Tickets, "read_row", 1),
        (Tickets, "finish", 1),
        (AtomicCheckpointIO, "save_checkpoint", 3),
        (RoundExtension, "_prune", 1),
        (module, "evaluate", 2),
    ]
    for owner, name, count in crashes:
        calls["n"] = 0
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, after(count, getattr(owner, name)))
            with pytest.raises(Crash):
                zoo.lottery(**chosen)
        chosen = {"resume": "run"}
    zoo.lottery(resume="run")
    assert results_of("run") == results_of(finished[2])


def test_rounds_and_algebras_are_added(finished, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first = zoo.lottery(**options(rounds=0, run_dir="run"))
    more = zoo.lottery(resume="run", rounds=1, compare="complex")
    rows = [(row["algebra"], row["round"]) for row in more["rows"]]
    assert more["rows"][0] == first["rows"][0]
    assert sorted(rows) == sorted((algebra, number) for algebra in ("quaternion", "complex") for number in (0, 1))
    assert zoo.lottery(resume="run", until=0.7) == more, "one round is enough"
    assert "1 finished" in capsys.readouterr().out
    shares = {row["algebra"]: row["weights"] / row["real_weights"] for row in more["rows"]}
    assert 1 > shares["complex"] > shares["quaternion"]


# --- arms that end ---


def experiment(values, high=True, **changes):
    """Return an experiment with two arms whose ticket has the given metric by round, and the arms."""
    chosen = Lottery("b", compare=("a",), **{"rounds": 4, "controls": ("random",), **changes})
    grid = Tickets(Path("e"), chosen, "t", None)
    arms, facts = arms_of(chosen), {"metric": "x", "mode": "max" if high else "min", "test": {}, "folder": ""}
    facts |= {"survivors": 1, "weights": 1, "real_weights": 1}
    grid.rows = {arms[0].point(i): GridRow(**arms[0].key, **facts, round=i, val={"x": v}) for i, v in enumerate(values)}
    return grid, arms


def upcoming(grid, control):
    """Return the remaining rounds of the ticket or its control."""
    return [point.axes["round"] for point in grid.remaining() if point.axes["arm"].control == control]


@pytest.mark.parametrize(
    ("values", "high", "changes", "ends"),
    [
        ([0.8, 0.7, 0.39], True, {}, 2),
        ([0.8, 0.7, 0.7, 0.7, 0.1], True, {}, None),  # no round follows the last one
        ([0.2, 0.9], False, {"collapse": 0.5}, 1),
    ],
)
def test_an_arm_ends_when_its_metric_collapses(values, high, changes, ends):
    grid, arms = experiment(values, high, **changes)
    stopped = grid.stopped(arms[0])
    assert (stopped and stopped.round) == ends
    assert upcoming(grid, None) == ([] if ends else [*range(len(values), 5)])
    assert upcoming(grid, "random") == [*range(1, 1 + (ends or 4))], "a control has the same rounds as its ticket"


def test_a_diverged_arm_does_not_end_the_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train = module.train

    def diverge(run, *rest):
        if run.plan.options.algebra == "real" and "round-01" in str(run.folder.path):
            raise DivergenceError("training diverged in epoch 1: the loss is not finite")
        return train(run, *rest)

    monkeypatch.setattr(module, "train", diverge)
    results = zoo.lottery(**options(algebra="", compare=("real", "quaternion"), rounds=1, run_dir="run"))
    assert [(row["algebra"], row["round"]) for row in results["rows"]] == [("real", 0), ("quaternion", 0), ("quaternion", 1)]
    assert [(note["algebra"], note["round"]) for note in results["stopped"]] == [("real", 1)]
    assert zoo.lottery(resume="run") == results


def test_failed_rounds_are_left_to_be_retried(tmp_path, monkeypatch, capsys):
    """A process that runs out of memory ends a round, but not the experiment."""
    monkeypatch.chdir(tmp_path)
    grid, arms = experiment([0.8, 0.7])
    grid.failed[arms[0].point(2)] = "out of memory (log: LOG)"
    results = grid.results()
    assert (upcoming(grid, None), results.stopped, results.left) == ([], [], 3 + 4)
    monkeypatch.setattr(experiments, "lottery", lambda options: results.to_json() | {"run_dir": "run"})
    assert main(["lottery", "--backbone", TINY, "--algebra", "quaternion"]) == 1
    assert "zoo lottery --resume run  # retries the failed rounds, 7 to go" in capsys.readouterr().out


# --- several processes ---


@pytest.mark.slow
def test_two_processes_train_one_ticket(tmp_path):
    words = ["--backbone", TINY, "--algebra", "quaternion", "--data", "digits", "--rounds", "1", "--run-dir", "run"]
    words += ["--trainer.max_epochs", "1", "--trainer.limit_train_batches", "2", "--trainer.accelerator", "cpu"]
    command = [sys.executable, "-m", "zoo", "lottery", *words, "--trainer.devices", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = json.loads((tmp_path / "run/lottery.json").read_text())["rows"]
    assert [row["survivors"] for row in rows] == [992, 594]


# --- invalid calls ---


@pytest.mark.parametrize(
    ("changes", "code", "value"),
    [
        ({"controls": ("reinit",), "backbone": "timm/resnet18(pretrained=true)"}, "conflict", "pretrained"),
        ({"folds": 2}, "conflict", "--folds"),
        ({"compare": ("octonoin",)}, "unknown", "octonion"),
        ({"pruning": {"pattern": (2, 4)}, "rounds": 1}, "invalid", "patch_embed.proj.weight"),
        ({"trainer": {"callbacks": [EarlyStopping("val_loss")]}}, "invalid", "EarlyStopping"),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
def test_mistakes_leave_no_folder(changes, code, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with raises(code, value):
        zoo.lottery(**options(**changes))
    assert [*tmp_path.iterdir()] == []


@pytest.fixture
def begun(finished, tmp_path, monkeypatch):
    """A copy of the experiment, without objects in its configuration."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished[2], "run")
    config = Path("run/config.yaml")
    lines = [line for line in config.read_text().splitlines() if "callbacks" not in line and "object given" not in line]
    config.write_text("\n".join(lines) + "\n")
    return Path("run")


@pytest.mark.parametrize("changes", [{"rate": 0.2}, {"pruning": {"scope": "global"}}], ids=str)
def test_changed_options_are_refused(begun, changes):
    before = results_of(begun), (begun / "config.yaml").read_text()
    with raises("mismatch", next(iter(changes))):
        zoo.lottery(resume="run", **changes)
    assert (results_of(begun), (begun / "config.yaml").read_text()) == before


def test_wrong_and_locked_folders(begun):
    with raises("mismatch", "round-01", "lottery.json"):
        zoo.lottery(resume="run/quaternion/seed-0/round-01")
    for run in ("run", "run/quaternion/seed-0/round-01"):
        with raises("mismatch", "zoo lottery --resume"):
            zoo.fit(resume=run)
    with lock_folder(begun), raises("busy", "run"):
        zoo.lottery(resume="run", rounds=3)


def test_damaged_and_missing_results(begun):
    file = begun / "lottery.json"
    text = file.read_text()
    file.write_text("{")
    with raises("corrupt", "lottery.json"):
        lottery_report(["run"])
    zoo.lottery(resume="run")
    assert file.read_text() == text, "rebuilt from the summaries"
    (begun / "quaternion/seed-0/ticket.ckpt").write_bytes(b"cut")
    with raises("corrupt", "ticket.ckpt"):
        zoo.lottery(resume="run", rounds=3)
    folder = begun / "quaternion/seed-0/round-02"
    (folder / "checkpoints").mkdir()
    (folder / "summary.json").write_text("{")
    with raises("corrupt", "summary.json"):
        zoo.lottery(resume="run")
    assert (folder / "checkpoints").is_dir(), "the round can be trained again"


def test_the_report_reads_the_experiment(finished):
    results, _, run = finished
    report = lottery_report([str(run)])
    assert not [note for note in report.values["notes"] if "no histogram" in note]
    drawn = [point for points in report.values["arms"].values() for point in points]
    assert sum(len(point["seeds"]) for point in drawn) == len(results["rows"])
    assert {"weights.png", "weights-quaternion.png", "weights-quaternion-random-masks.png"} <= set(report.files)
