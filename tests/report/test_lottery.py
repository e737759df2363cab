"""The report on lottery tickets: numbers, files and errors."""

import json
from base64 import b64decode
from collections.abc import Callable, Iterable
from functools import partial
from math import log10
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from zoo_reports.curves import Crossing, Curve, collect, compare_all, lottery_metric, overtakes, read_runs
from zoo_reports.frontier import BestNetwork
from zoo_reports.lottery import ALL, lottery, read_ticket_weights

import zoo
from benchmarks.studies import tickets
from benchmarks.studies.lottery import surviving_weights
from benchmarks.studies.tickets import comparisons, finished_rows, interpolated
from tests.errors import raises
from zoo.cli import main
from zoo.pruning import Pruning, prunable
from zoo.pruning.masks import full_masks, next_masks, remaining
from zoo.reports import Report

BACKBONE, RATE = "vit(dim=16, depth=1, heads=2)", 0.5
INFO = {"in_channels": 1, "image_size": 8, "num_classes": 4}
Value = Callable[[str, int, float], float]


def write_run(
    parent: Path,
    value: Value,
    *,
    name: str = "run",
    algebras: Iterable[str | tuple[str, str]] = ("real", "quaternion"),
    seeds: int = 1,
    rounds: int = 3,
    metric: str = "accuracy",
    mode: str = "max",
    models: bool = False,
) -> Path:
    """Write a run with a test metric that depends on algebra, seed and percent of real weights; validation is half of it."""
    run = parent / name
    run.mkdir(parents=True)
    record: dict[str, Any] = {"format": 1, "backbone": BACKBONE, "data": "digits", "task": "image_classification"}
    record |= {"metric": metric, "mode": mode, "rate": RATE, "rounds": rounds, "pruning": {"matrices": "all"}}
    record |= {"rows": [], "stopped": []}
    real = weights_of(zoo.backbone(BACKBONE, "real", **INFO))
    for arm in algebras:
        algebra, control = (arm, None) if isinstance(arm, str) else arm
        for seed in range(seeds):
            torch.manual_seed(seed)
            net = zoo.backbone(BACKBONE, algebra, **INFO)
            matrices = prunable(net)
            masks = full_masks(matrices)
            for number in range(rounds + 1):
                masks = next_masks(matrices, pruned(net, masks), masks, Pruning(RATE)) if number else masks
                percent = 100 * remaining(masks) / real
                folder = f"{algebra}{f'-{control}' if control else ''}/seed-{seed}/round-{number:02}"
                row = {"algebra": algebra, "control": control, "seed": seed, "round": number, "folder": folder}
                row |= {"survivors": remaining(masks), "weights": weights_of(net), "real_weights": real}
                score = value(algebra, seed, percent)
                record["rows"].append(row | {"test": {metric: score}, "val": {metric: score / 2}, "epoch": 1, "seconds": 0.1})
                if models:
                    pruned(net, masks)
                    zoo.save(net, run / folder / "model", backbone=BACKBONE, algebra=algebra, sparse=True, **INFO)
    (run / "lottery.json").write_text(json.dumps(record))
    return run


def weights_of(net: torch.nn.Module) -> int:
    return sum(matrix.parameter.numel() for matrix in prunable(net).values())


def pruned(net: torch.nn.Module, masks: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Set pruned weights to zero, and return all weights."""
    weights = {name: matrix.parameter.detach() for name, matrix in prunable(net).items()}
    for name, weight in weights.items():
        weight.masked_fill_(~masks[name], 0.0)
    return weights


def falling(algebra: str, seed: int, percent: float) -> float:
    """Return a metric that falls with pruning, later over the quaternions."""
    top, knee = (0.98, 10.0) if algebra == "real" else (0.90, 2.0)
    return top - 0.01 * seed - 0.6 / (1 + (percent / knee) ** 2)


@pytest.fixture
def lottery_run(tmp_path: Path) -> Callable[..., Path]:
    """Return `write_run` for ``tmp_path``."""
    return partial(write_run, tmp_path)


@pytest.fixture(scope="session")
def run_with_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A read-only run with two seeds, its models and a control."""
    arms = ("real", "quaternion", ("quaternion", "random"))
    return write_run(tmp_path_factory.mktemp("lottery"), falling, algebras=arms, seeds=2, models=True)


@pytest.fixture(scope="session")
def report(run_with_models: Path) -> Report:
    """The report on `run_with_models`."""
    return lottery([str(run_with_models)])


# --- numbers ---


def arms_of(*runs, split="test") -> list[Curve]:
    return collect(read_runs([str(run) for run in runs]), split, "accuracy")


def crossing_of(run) -> Crossing:
    runs = read_runs([str(run)])
    metric, mode = lottery_metric(runs, "", "")
    found, notes = compare_all(collect(runs, "test", metric), mode)
    assert notes == []
    return found[0]


def test_percents_refer_to_the_real_network(lottery_run):
    real, ours = arms_of(lottery_run(lambda *_: 0.5))
    assert [point.percent for point in real.points] == pytest.approx([100, 50, 25, 12.5], rel=0.01)
    row = ours.rows[0, 0]
    assert ours.points[0].percent == 100 * row.weights / row.real_weights < 30
    assert ours.points[1].survivors == ours.rows[0, 1].survivors


def test_mean_and_spread_over_seeds(lottery_run):
    run = lottery_run(lambda algebra, seed, percent: (0.1, 0.4, 0.7)[seed], seeds=3)
    point = arms_of(run)[0].points[2]
    assert (point.mean, point.spread) == (pytest.approx(0.4), pytest.approx(0.3))
    assert point.seeds == {0: 0.1, 1: 0.4, 2: 0.7}
    assert arms_of(run, split="val")[0].points[2].mean == pytest.approx(0.2)


@pytest.mark.parametrize(("mode", "sign"), [("max", 1), ("min", -1)])
def test_the_crossing_point_of_two_lines(lottery_run, mode, sign):
    """Over log(percent) the reals fall from 1 at 100 % to 0 at 1 %; 0.5 + 0.1 s is overtaken at 10^(1 + 0.2 s) %."""
    run = lottery_run(
        lambda algebra, seed, percent: 2 + sign * (log10(percent) / 2 if algebra == "real" else 0.5 + 0.1 * seed),
        seeds=3,
        rounds=7,
        mode=mode,
        metric="perplexity",
    )
    found = crossing_of(run)
    assert found.below == pytest.approx(10**1.2)
    assert found.crossings == [found.below]
    assert found.by_seed == {0: pytest.approx(10.0), 1: pytest.approx(10**1.2), 2: pytest.approx(10**1.4)}
    assert found.lead == pytest.approx(0.6 - log10(found.low) / 2)
    assert found.difference.interval == pytest.approx(4.303 * 0.1 / 3**0.5, rel=1e-3)
    assert f"is better than real at {found.low:.3g} % of the real weights: +{found.lead:.3g} ± " in found.statement
    assert found.statement.endswith("; the means cross at 15.8 %")
    assert "not decided" in found._replace(lead=0.24).statement


def test_interpolation_on_a_logarithmic_axis(lottery_run):
    """In log-log the reals rise from 2 at 100 % to 2 * 100^2 at 1 %; the constant 50 is passed at 20 %."""
    run = lottery_run(lambda algebra, seed, p: 2 * (100 / p) ** 2 if algebra == "real" else 50.0, rounds=6, mode="min")
    found = crossing_of(run)
    assert found.below == pytest.approx(20.0)
    assert found.lead == pytest.approx(2 * (100 / found.low) ** 2 - 50)


def test_no_crossing(lottery_run):
    ahead = crossing_of(lottery_run(lambda algebra, *_: float(algebra != "real"), seeds=2, name="ahead"))
    assert (ahead.below, ahead.crossings) == (ahead.high, [])
    behind = crossing_of(lottery_run(lambda algebra, *_: float(algebra == "real"), seeds=2, name="behind"))
    assert (behind.below, behind.crossings) == (None, [])
    assert "is worse than real at" in behind.statement
    even = crossing_of(lottery_run(lambda *_: 0.5, name="even"))
    assert even.below is None
    assert "not decided" in even.statement  # one seed


def test_several_crossings():
    grid = np.array([1.0, 2.0, 4.0, 8.0])
    assert overtakes(grid, np.array([1.0, -1.0, 1.0, -1.0])) == (pytest.approx(2**0.5), pytest.approx([2**2.5, 2**1.5, 2**0.5]))
    assert overtakes(grid, np.array([-1.0, 1.0, 1.0, -3.0])) == (None, pytest.approx([2**2.25, 2**0.5]))
    assert overtakes(grid, np.array([1.0, 0.0, 0.0, -1.0])) == (2.0, [2.0])


def test_incomplete_rounds_are_ignored_for_crossings(lottery_run):
    run = lottery_run(lambda algebra, seed, percent: seed + 0.1, seeds=2)
    record = json.loads((run / "lottery.json").read_text())
    record["rows"] = [row for row in record["rows"] if not (row["seed"] == 1 and row["round"] == 3)]
    (run / "lottery.json").write_text(json.dumps(record))
    real = arms_of(run)[0]
    assert [point.round for point in real.complete] == [0, 1, 2]
    assert real.points[3].mean == 0.1
    assert crossing_of(run).low == real.points[2].percent


def test_the_difference_is_the_mean_of_runs_with_the_same_seed(lottery_run):
    """A seed that only the reals have is no part of the interval, so it must not move its centre."""
    run = lottery_run(lambda algebra, seed, percent: (0.1, 0.2, 0.9)[seed] + (algebra != "real") * (0.2 + seed / 100), seeds=3)
    record = json.loads((run / "lottery.json").read_text())
    record["rows"] = [row for row in record["rows"] if (row["algebra"], row["seed"]) != ("quaternion", 2)]
    (run / "lottery.json").write_text(json.dumps(record))
    found = crossing_of(run)
    assert found.difference.estimate == pytest.approx(0.205)
    assert found.difference.verdict == "ahead"


def test_values_that_are_not_finite_are_not_drawn(lottery_run):
    run = lottery_run(lambda algebra, seed, percent: 0.5)
    text = (run / "lottery.json").read_text()
    (run / "lottery.json").write_text(text.replace('"test": {"accuracy": 0.5}', '"test": {"accuracy": null}', 1))
    assert [point.round for point in arms_of(run)[0].points] == [1, 2, 3]
    assert "real, seed 0, round 0: no value, not drawn" in lottery([str(run)]).values["notes"]


def test_arms_are_compared_with_the_real_network_of_their_run(lottery_run):
    one = lottery_run(lambda algebra, *_: float(algebra != "real"), name="one")
    two = lottery_run(lambda algebra, *_: 2.0 * (algebra == "real"), name="two")
    found, notes = compare_all(arms_of(one, two), "max")
    assert [(cross.arm, cross.real, cross.below is None) for cross in found] == [
        ("quaternion (one)", "real (one)", False),
        ("quaternion (two)", "real (two)", True),
    ]
    assert notes == []
    alone = lottery_run(lambda *_: 0.7, name="alone", algebras=["octonion"])
    assert [cross.real for cross in compare_all(arms_of(one, alone), "max")[0]] == ["real", "real"]


# --- weights ---


def test_histograms_count_surviving_weights(run_with_models):
    arm = next(arm for arm in arms_of(run_with_models) if arm.label == "quaternion")
    layers, notes = read_ticket_weights(arm)
    assert notes == []
    net = zoo.load(run_with_models / "quaternion/seed-0/round-02").net
    weights = {name: one.parameter.detach().numpy() for name, one in prunable(net).items()}
    assert len(layers) == 1 + len(weights)
    every = layers[ALL]
    assert list(every.left) == [0, 1, 2, 3]
    assert every.left[2] == sum(np.count_nonzero(weight) for weight in weights.values()) == arm.rows[0, 2].survivors
    assert every.numbers == arm.rows[0, 2].weights
    fc1 = layers["blocks.0.mlp.fc1"]
    weight = weights["blocks.0.mlp.fc1.weight_module.components"]
    assert fc1.counts[2] == np.histogram(weight[weight != 0], fc1.edges)[0].tolist()
    assert fc1.numbers == weight.size
    assert surviving_weights(run_with_models)["quaternion"] == every._asdict()


# --- files ---


def test_pictures(report):
    names = {"lottery", "weights", "sparsity", "weights-real", "weights-quaternion", "weights-quaternion-random-masks"}
    assert set(report.files) == {f"{name}.{kind}" for name in names for kind in ("png", "svg")} | {"lottery.md", "lottery.html"}
    for name, content in report.files.items():
        if name.endswith(".png"):
            assert content.startswith(b"\x89PNG"), name
    page = report.files["lottery.html"].decode()  # is self-contained
    pictures = [content for name, content in report.files.items() if name.endswith(".svg")]
    assert [b64decode(text.partition('"')[0]) for text in page.split("svg+xml;base64,")[1:]] == pictures
    assert "http:" not in page.replace("http-equiv", "")


def test_the_table_has_all_rounds(report, run_with_models):
    lines = report.files["lottery.md"].decode().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| quaternion |")]
    arm = next(arm for arm in arms_of(run_with_models) if arm.label == "quaternion")
    assert len(rows) == 1 + len(arm.points)  # one of the crossing points
    point = arm.points[1]
    sizes = [f"{point.percent:.3g} %", f"{point.survivors:,.0f}", "2"]
    assert rows[2] == ["quaternion", "1", *sizes, f"{point.mean:.4f} ± {point.spread:.4f}"]
    assert float(rows[0][1].removesuffix(" %")) == pytest.approx(report.values["crossings"][0]["below"], rel=0.01)


def test_untrusted_names_are_escaped(lottery_run):
    run = lottery_run(lambda *_: 0.5, algebras=["real"], rounds=1)
    name = "</script><script>alert(1)</script>"
    text = (run / "lottery.json").read_text().replace('"digits"', json.dumps(name))
    (run / "lottery.json").write_text(text.replace('"real"', '"real<img src=x>"'))
    files = lottery([str(run)]).files
    page = files["lottery.html"].decode()
    assert "<script>alert" not in page
    assert b"real&lt;img" in files["lottery.md"]
    assert not [name for name, content in files.items() if b"<img src=x" in content]


def test_the_command_reports_on_several_runs(lottery_run, capsys, tmp_path):
    runs = [str(lottery_run(lambda *_: 0.5, name=name)) for name in ("one", "two")]
    assert main(["report", "lottery", *runs]) == 2  # --out is missing
    capsys.readouterr()
    assert main(["report", "lottery(split=val)", *runs, "--out", str(tmp_path / "both"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["html"] == str(tmp_path / "both/lottery.html")
    assert found["arms"]["real (two)"][0]["mean"] == 0.25
    assert {path.name for path in (tmp_path / "both").iterdir()} == {f"lottery.{kind}" for kind in ("png", "svg", "md", "html")}


def test_invalid_runs(lottery_run):
    one, other = (lottery_run(lambda *_: 0.5, name=name, metric=name) for name in ("accuracy", "loss"))
    with raises("mismatch", "accuracy", "loss"):
        lottery([str(one), str(other)])
    (one / "lottery.json").write_text(json.dumps(json.loads((one / "lottery.json").read_text()) | {"rows": []}))
    with raises("missing", str(one)):
        lottery([str(one)])
    with raises("missing", "'nowhere'"):
        lottery(["nowhere"])


@pytest.mark.parametrize("damage", [{"rows": [1]}, {"rows": [{"algebra": "real"}]}, {"unknown": 1}], ids=str)
def test_damaged_results(lottery_run, damage):
    run = lottery_run(lambda algebra, seed, percent: 0.5)
    record = json.loads((run / "lottery.json").read_text())
    if "unknown" in damage:
        del record["metric"]
    (run / "lottery.json").write_text(json.dumps(record | damage))
    with raises("corrupt", "lottery.json"):
        lottery([str(run)])


def ticket(network: str, number: int, seed: int, size: int, val: float, test: float) -> dict[str, Any]:
    sizes = {"left": size, "total": size + 50}
    return {"network": network, "seed": seed, "round": number, "seconds": 1.0, **sizes, "val": val, "test": test}


def ticket_results() -> dict[str, Any]:
    """Two rounds and seeds: at 200 weights `narrow` is better on validation (3.5 to 3), `wide` on test data."""
    networks = {"narrow": {"compare": "real"}, "wide": {"compare": "real"}, "wider": {"compare": "quaternion"}}
    sizes = {"narrow": ((400, 4), (100, 3)), "wide": ((200, 3), (50, 1)), "wider": ((200, 5), (50, 2))}
    rows = [
        ticket(net, number, seed, size, val, {"narrow": val - 2, "wide": 3, "wider": val - seed}[net])
        for net, rounds in sizes.items()
        for number, (size, val) in enumerate(rounds)
        for seed in (0, 1)
    ]
    config = {"base": {"seeds": 2, "rounds": 1, "data": "digits"}, "networks": networks}
    return {"config": config, "metric": "accuracy", "mode": "max", "commit": "c", "rows": rows}


def test_validation_chooses_the_real_ticket_at_equal_weights():
    """At 200 weights, halfway between the rounds of `narrow`, its test result is (2 + 1) / 2; at 50 only `wide` is left."""
    first, second = comparisons(ticket_results(), "left")
    assert first[:4] == ["wider", "200", "4.5000", "narrow 1.5000"]
    assert first[4].startswith("+3.000 [-3.35")  # one degree of freedom: 3 +- 12.706 / 2
    assert first[5] == "not decided"
    assert second[:4] == ["wider", "50", "1.5000", "wide 3.0000"]
    assert {row[1] for row in comparisons(ticket_results(), "total")} == {"250", "100"}


def test_rounds_are_interpolated_for_each_seed():
    """What one seed loses in a round and the other gains does not add to the spread."""
    first, second = (
        BestNetwork(values, net="real", algebra="real", weights=size, total=size) for size, values in ((9, (1, 3)), (5, (3, 1)))
    )
    rival = interpolated({first: 0.5, second: 0.5})
    assert (rival.mean, rival.variance) == (2.0, 0.0)
    assert interpolated({first: 0.75, second: 0.25}).values == (1.5, 2.5)


def test_complete_results_of_tickets_are_not_trained_again():
    results = ticket_results()
    options = results["config"]["base"] | results["config"]["networks"]["wide"]
    known = finished_rows(results, "wide", options)
    assert [(row["commit"], row["round"], row["seed"]) for row in known] == [("c", n, seed) for n in (0, 1) for seed in (0, 1)]
    assert finished_rows(results, "wide", options | {"rate": 0.4}) == []
    assert finished_rows(results, "wide", options | {"seeds": 3}) == []
    assert finished_rows({"rows": []}, "wide", options) == []


def test_tickets_are_stored_after_each_network(tmp_path, monkeypatch):
    """The second network fails at first; then only it is trained."""
    names, trained = iter(("narrow", "wide", "wide")), list[str]()

    def train(run_dir: str, seeds: int, rounds: int, compare: str, data: str) -> dict[str, Any]:
        trained.append(next(names))
        if len(trained) == 2:
            raise KeyboardInterrupt
        Path(run_dir, "round").mkdir(parents=True)
        Path(run_dir, "round", "summary.json").write_text('{"parameters": {"total": 450}}')
        sizes = {"weights": 400, "survivors": 100, "folder": "round", "seconds": 1.0}
        scores = {"val": {"accuracy": 0.5}, "test": {"accuracy": 0.25}}
        rows = [sizes | scores | {"seed": seed, "round": number} for seed in range(seeds) for number in range(rounds + 1)]
        return {"metric": "accuracy", "mode": "max", "rows": rows}

    networks = {name: {"compare": "real"} for name in ("narrow", "wide")}
    file = tmp_path / "tiny.yaml"
    file.write_text(json.dumps({"base": {"seeds": 2, "rounds": 1, "data": "digits"}, "networks": networks}))
    monkeypatch.setattr(tickets, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(zoo, "lottery", train)
    with pytest.raises(KeyboardInterrupt):
        tickets.run(file, tmp_path / "runs", None)
    stored = json.loads((tmp_path / "results" / "tiny.json").read_text())
    assert list(stored["config"]["networks"]) == ["narrow"]
    assert [(row["left"], row["total"], row["val"], row["test"]) for row in stored["rows"]] == [(100, 150, 0.5, 0.25)] * 4
    tickets.run(file, tmp_path / "runs", None)
    both = json.loads((tmp_path / "results" / "tiny.json").read_text())
    assert trained == ["narrow", "wide", "wide"]
    assert [row["network"] for row in both["rows"]] == ["narrow"] * 4 + ["wide"] * 4
