"""Frontiers: selection of runs, comparison of networks; benchmark scripts run, and the pages match the stored results."""

import json
import math
import signal
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest
import yaml
from scipy.stats import t
from zoo_experiments import frontier as experiment
from zoo_experiments.frontier import best_rate, check_frontier, frontier, next_runs
from zoo_experiments.options import Experiment
from zoo_experiments.sweep import select
from zoo_experiments.sweep import sweep_points as runs_of
from zoo_reports.frontier import (
    COSTS,
    BestNetwork,
    Frontier,
    best_networks,
    draw_costs,
    mean_difference,
    network_table,
    opponents,
    sentences,
)
from zoo_reports.statistics import contrast

import zoo
from benchmarks import machine
from benchmarks.speed import fused, speed_page, speed_tables
from benchmarks.studies import digits, frontier_page, readme, recovery
from benchmarks.studies import frontier as benchmark
from tests.errors import raises
from zoo.cli import main
from zoo.errors import InputError, Interrupted

CONFIGS = sorted((Path(__file__).parents[1] / "configs" / "frontier").glob("*.yaml"))


def point(net, weights, *values, algebra="real"):
    return BestNetwork(values, net=net, algebra=algebra, weights=weights, total=weights, lr=0.1, rates=(0.1,))


def row(net, lr, seed, validation, test=0.0, weights=100, embedding=0, mode="min"):
    values = {"net": net, "algebra": net, "lr": lr, "seed": seed, "validation": validation, "test": test}
    return values | {"weights": weights, "embedding": embedding, "mode": mode, "seconds": 1.0}


def test_equal_weights_by_hand():
    """Means 2, 3 and 5 over three seeds; 400 weights are halfway between 100 and 1,600 on a logarithmic scale."""
    small, large = point("small", 100, 4.0, 5.0, 6.0), point("large", 1600, 2.0, 3.0, 4.0)
    one = point("algebra", 400, 1.5, 2.0, 2.5, algebra="quaternion")
    assert opponents(400, [large, small]) == {small: 0.5, large: 0.5}
    difference = mean_difference([(one, opponents(400, [large, small]))], lower=True)
    assert difference.estimate == pytest.approx(2.0)  # (5 + 3) / 2 - 2
    variances = [0.25 / 3, 0.25 * 1 / 3, 0.25 * 1 / 3]  # s^2 / 3 times the squared share
    freedom = sum(variances) ** 2 / sum(v**2 / 2 for v in variances)
    assert freedom == pytest.approx(6.0)
    assert (difference.high - difference.estimate) == pytest.approx(2.4469119 * 0.5)  # t(.975, 6) * sqrt(3 / 12)
    assert difference.low == pytest.approx(2.0 - float(t.ppf(0.975, 6)) * 0.5)
    assert difference.verdict == "ahead"
    assert mean_difference([(one, opponents(400, [large, small]))], lower=False).verdict == "behind"


def test_a_shared_opponent_counts_once():
    """The error of an opponent of both networks does not average out."""
    real = point("real", 100, 1.0, 3.0)
    nets = [point(name, 100, 2.0, 4.0, algebra="complex") for name in ("one", "two")]
    difference = mean_difference([(net, {real: 1.0}) for net in nets], lower=False)
    assert difference.estimate == pytest.approx(1.0)
    parts = [0.25, 0.25, 1.0]  # variances of means are 1
    freedom = sum(parts) ** 2 / sum(part**2 for part in parts)
    assert difference.high - 1.0 == pytest.approx(float(t.ppf(0.975, freedom)) * math.sqrt(1.5))
    assert difference.verdict == "not decided"


def test_the_size_effect_is_that_of_real_networks():
    """The largest real network is better by 5 - 3; networks over algebras do not count."""
    small, large, other = (
        point("small", 100, 4.0, 6.0),
        point("large", 400, 2.0, 4.0),
        point("a", 900, 1.0, 9.0, algebra="octonion"),
    )
    rows = [row(one.net, 0.1, 0, 1.0) | {"algebra": one.algebra, "metric": "loss"} for one in (small, large, other)]
    config = {"axes": {"net": {"small": {}, "large": {}, "a": {}}}}
    measured = Frontier("task", config, rows, [small, large, other], {})
    assert measured.size_effect.estimate == pytest.approx(2.0)
    assert sentences(measured)[-1].startswith("**real**: not decided, +2.000 [")
    assert replace(measured, points=[small, other]).size_effect is None
    assert len(sentences(replace(measured, points=[small, other]))) == 1


def test_equal_step_time_by_hand():
    """The step of ``a`` takes as long as halfway between the real ones; no real one takes as long as that of ``b``."""
    nets = [point("small", 100, 4.0, 6.0), point("large", 200, 2.0, 4.0)]
    nets += [point("a", 100, 1.0, 2.0, algebra="complex"), point("b", 100, 1.0, 2.0, algebra="octonion")]
    config = {"axes": {"net": {net.net: {} for net in nets}}}
    rows = [row(net.net, 0.1, 0, 1.0) | {"algebra": net.algebra, "metric": "loss"} for net in nets]
    times = {"small": 1.0, "large": 4.0, "a": 2.0, "b": 9.0}
    measured = Frontier("task", config, rows, nets, {net: {"step_ms": time} for net, time in times.items()})
    assert frontier_page.equal_step_time(measured, "complex").estimate == pytest.approx(2.5)  # (5 + 3) / 2 - 1.5
    assert frontier_page.equal_step_time(measured, "octonion").estimate == pytest.approx(1.5)


def test_costs_that_a_network_lacks_are_not_shown(monkeypatch):
    """A network that has no int8 file leaves its column and its panel out."""
    nets = [point("small", 100, 4.0, 6.0), point("a", 100, 1.0, 2.0, algebra="complex")]
    rows = [row(net.net, 0.1, 0, 1.0) | {"algebra": net.algebra, "metric": "loss"} for net in nets]
    config = {"base": {}, "axes": {"net": {net.net: {} for net in nets}}}
    full = dict.fromkeys(COSTS, 1.0)
    measured = Frontier("task", config, rows, nets, {"small": full, "a": full})
    titles = {title for title, _, _ in COSTS.values()}
    assert titles < set(network_table(measured).head)
    assert [axes.get_xlabel() for axes in draw_costs(measured).axes if axes.get_visible()] == [how[1] for how in COSTS.values()]
    partly = replace(measured, costs={"small": full, "a": {"bytes": 1.0, "step_ms": 2.0}})
    assert titles & set(network_table(partly).head) == {"bytes", "ms/step"}
    assert len(draw_costs(partly).axes) == 2
    added = replace(measured, costs={"small": full})  # stopped before the costs of a new network were measured
    assert not titles & set(network_table(added).head)


def of_loss(steps, *nets):
    """A frontier of networks with these means in nats, trained for a number of steps."""
    rows = [row(net.net, 0.1, 0, 1.0) | {"algebra": net.algebra, "metric": "loss"} for net in nets]
    config = {"base": {"trainer": {"max_steps": steps}}, "axes": {"net": {net.net: {} for net in nets}}}
    return Frontier("task", config, rows, list(nets), {})


def test_longer_training_is_compared_for_the_networks_of_both():
    real, ours = point("real", 100, 4.0, 6.0), point("a", 100, 3.0, 5.0, algebra="complex")
    extra = point("b", 100, 90.0, 92.0, algebra="complex")  # only in the shorter one
    longer = of_loss(4000, point("real", 100, 2.0, 4.0), point("a", 100, 1.5, 3.5, algebra="complex"))
    [text] = frontier_page.longer_training(longer, of_loss(1000, real, ours, extra))
    assert text == "complex +1.000 with 1,000 steps, +0.500 with 4,000"
    assert frontier_page.longer_training(longer, None) == []


def test_quaternions_are_compared_with_random_products():
    ours, other = (
        point(f"{name}-8", 100, loss, loss + 1, algebra=algebra)
        for name, loss, algebra in (("quaternion", 1.0, "quaternion"), ("random", 3.0, frontier_page.RANDOM_PRODUCTS))
    )
    [text] = frontier_page.from_controls(of_loss(1, ours, other))
    assert text.startswith("quaternion-8 against random-8 +2.000 [")
    assert frontier_page.from_controls(of_loss(1, ours)) == []


def test_no_comparison_out_of_range_or_with_one_seed():
    real = [point("small", 100, 1.0, 2.0), point("large", 200, 1.0, 2.0)]
    assert opponents(300, real) is None
    assert opponents(205, real) == {real[1]: 1.0}  # 2.5 % out of range
    assert opponents(104, real) == pytest.approx({real[0]: 1 - math.log2(1.04), real[1]: math.log2(1.04)})  # within the range
    assert mean_difference([(point("a", 150, 1.0), {real[0]: 1.0})], lower=True) is None
    assert contrast({point("a", 1, 1.0): 1.0}) is None


def test_rates_are_selected_by_validation_only():
    rows = [row("a", 0.1, 0, 2.0, test=9.0), row("a", 0.2, 0, 3.0, test=1.0), row("a", 0.1, 1, 3.0, test=7.0)]
    assert best_rate(rows) == 0.1
    assert best_rate([one | {"mode": "max"} for one in rows]) == 0.2
    (best,) = best_networks(rows)
    assert (best.lr, best.values, best.rates) == (0.1, (9.0, 7.0), (0.1, 0.2))


def test_an_undefined_test_metric_is_not_counted():
    rows = [row("a", 0.1, 0, 2.0, test=9.0), row("a", 0.1, 1, 2.0, test=None), row("b", 0.1, 0, 2.0, test=None)]
    (best,) = best_networks(rows)
    assert (best.net, best.values) == ("a", (9.0,))


def test_the_best_rate_has_the_best_mean_of_all_seeds():
    """A rate with one good run is trained with the other seeds, and does not count before these are finished."""
    rows = [row("a", 0.1, 0, 4), row("a", 0.2, 0, 2), row("a", 0.4, 0, 3), row("a", 0.2, 1, 6)]
    runs = ["a"], [0.1, 0.2, 0.4], [0, 1]
    assert best_rate(rows) == 0.4
    assert best_rate([row("a", 0.2, 0, 3), row("a", 0.1, 0, 3)]) == 0.1  # the lower one of equals
    assert best_networks(rows)[0].lr == 0.2
    rows.append(row("a", 0.8, 0, 5))
    assert next_runs(*runs, rows, set()) == [("a", 0.4, 1)]
    assert next_runs(*runs, rows, {("a", 0.4, 1)}) == [("a", 0.05, 0)]  # 0.4 failed; 0.1 is the best, and the lowest
    rows.append(row("a", 0.4, 1, 3.9))
    assert next_runs(*runs, rows, set()) == []
    assert best_networks(rows)[0].lr == 0.4


def test_large_word_embeddings_are_not_counted():
    rows = [row("a", 0.1, 0, 1.0, weights=100, embedding=30), row("b", 0.1, 0, 1.0, weights=80, embedding=10)]
    assert [(one.weights, one.total) for one in best_networks(rows)] == [(70, 100), (70, 80)]
    assert [one.weights for one in best_networks([rows[1]])] == [80]


def test_next_runs():
    nets, rates, seeds = ["a", "b"], [0.1, 0.2, 0.4], [0, 1]
    grid = [(net, rate, 0) for net in nets for rate in rates]
    assert next_runs(nets, rates, seeds, [], set()) == grid
    rows = [row("a", 0.1, 0, 4), row("a", 0.2, 0, 2), row("a", 0.4, 0, 4)]
    rows += [row("b", 0.1, 0, 4), row("b", 0.2, 0, 3)]
    assert next_runs(nets, rates, seeds, rows, set()) == [("a", 0.2, 1), ("b", 0.4, 0)]
    assert next_runs(nets, rates, seeds, rows, {("b", 0.4, 0)}) == [("a", 0.2, 1), ("b", 0.2, 1)]
    rows.append(row("b", 0.4, 0, 2))
    assert next_runs(nets, rates, seeds, rows, set()) == [("a", 0.2, 1), ("b", 0.8, 0)]
    rows += [row("b", 0.8, 0, 5), row("a", 0.2, 1, 3)]
    assert next_runs(nets, rates, seeds, rows, set()) == [("b", 0.4, 1)]
    assert next_runs(nets, rates, seeds, [*rows, row("b", 0.4, 1, 3)], set()) == []
    assert next_runs(nets, [], seeds, [row("a", None, 0, 1)], set()) == [("b", None, 0), ("a", None, 1), ("b", None, 1)]


@pytest.mark.parametrize("mode", ["min", "max"])
def test_the_search_continues_beyond_an_end_that_is_not_worse_than_every_run_of_the_best(mode):
    sign = 1 if mode == "min" else -1
    runs = ["a"], [0.1, 0.2, 0.4], [0, 1]
    rows = [row("a", *run, sign * value, mode=mode) for *run, value in ((0.1, 0, 9), (0.2, 0, 2), (0.4, 0, 3))]
    assert next_runs(*runs, rows, set()) == [("a", 0.2, 1)]
    assert next_runs(*runs, [*rows, row("a", 0.2, 1, sign * 2.5, mode=mode)], set()) == []
    rows.append(row("a", 0.2, 1, sign * 3.5, mode=mode))
    assert next_runs(*runs, rows, set()) == [("a", 0.8, 0)]
    assert next_runs(*runs, rows, {("a", 0.8, 0)}) == []
    assert next_runs(*runs, [*rows, row("a", 0.8, 0, sign * 1, mode=mode)], set()) == [("a", 1.6, 0)]
    rows[0]["validation"] = sign * 3
    assert next_runs(*runs, rows, set()) == [("a", 0.05, 0), ("a", 0.8, 0)]


def test_rows_in_frontier_json_count_as_finished(tmp_path):
    """Stored rows are not trained again, and are rejected if the configuration has changed."""
    nets = {"a": {"algebra": "real"}, "b": {"algebra": "quaternion"}}
    values = {"base": {"data": "digits"}, "axes": {"net": nets, "seed": [0, 1]}}
    rows = [row(net, None, seed, 1.0) for net in nets for seed in (0, 1)]
    (tmp_path / "frontier.json").write_text(json.dumps({"config": values, "rows": rows, "costs": {"a": {}, "b": {}}}))
    assert frontier(values, "file.yaml", Experiment(run_dir=str(tmp_path)))["rows"] == rows
    without = {"axes": values["axes"]}  # base is optional
    (tmp_path / "frontier.json").write_text(json.dumps({"config": without, "rows": rows, "costs": {"a": {}, "b": {}}}))
    assert frontier(without, "file.yaml", Experiment(run_dir=str(tmp_path)))["rows"] == rows
    with raises("conflict", str(tmp_path)):
        frontier(values | {"base": {"data": "glosses"}}, "file.yaml", Experiment(run_dir=str(tmp_path)))


@pytest.mark.parametrize(
    "axes", [{"algebra": "real"}, {"net": "a", "seed": "0"}, {"net": "a", "optimizer.lr": "0.1", "seed": "0"}]
)
def test_the_folder_of_another_sweep_is_refused_and_unchanged(axes, tmp_path):
    """Neither its runs count, even of the same names, nor is a frontier.json written."""
    values = {"base": {"data": "digits"}, "axes": {"net": {"a": {"algebra": "real"}}, "seed": [0]}}
    name = "real" if "algebra" in axes else "-".join(["a", *(["lr0.1"] if len(axes) == 3 else []), "seed0"])
    foreign = {"name": name, "axes": axes, "options": {"data": "glosses", "seed": 0}, "metrics": {}, "parameters": {}}
    (tmp_path / "results.jsonl").write_text(json.dumps(foreign) + "\n")
    with raises("mismatch", "another sweep", name):
        frontier(values, "file.yaml", Experiment(run_dir=str(tmp_path)))
    assert [path.name for path in tmp_path.iterdir()] == ["results.jsonl"]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_configurations_are_sweeps_with_real_networks(path):
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert runs_of(values, path.name)
    assert "real" in {net["algebra"] for net in values["axes"]["net"].values()}


@pytest.mark.parametrize(
    "axes",
    [
        {"seed": [0]},
        {"net": {"a": {"algebra": "quaternion"}}, "seed": [0]},
        {"net": {"a": {"algebra": "real"}}, "seed": [0], "trainer.max_epochs": [1]},
    ],
)
def test_invalid_axes_are_rejected(axes):
    with raises("missing", "a.yaml"):
        check_frontier({"axes": axes}, "a.yaml")


@pytest.mark.parametrize("values", [{"optimizer.lr": ["high"]}, {"seed": 0}, {"seed": ["first"]}])
def test_rates_and_seeds_must_be_numbers(values, tmp_path):
    axes = {"net": {"a": {"algebra": "real"}}, "seed": [0], **values}
    with raises("invalid", "a.yaml", "lists of numbers"):
        frontier({"axes": axes}, "a.yaml", Experiment(run_dir=str(tmp_path / "new")))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "values",
    [
        {"base": ["digits"], "axes": {"net": {"a": {"algebra": "real"}}, "seed": [0]}},
        {"base": {"algebra": "real"}, "axes": {"net": {"a": None}, "seed": [0]}},
        {"axes": {"net": {"a": "real"}, "seed": [0]}},
        {"axes": {"net": {"a": {"algebra": "real"}}, "seed": []}},
        {"axes": ["net", "seed"]},
    ],
)
def test_values_of_another_type_are_refused_in_one_line(values, tmp_path):
    with pytest.raises(InputError, match=r"a\.yaml"):
        frontier(values, "a.yaml", Experiment(run_dir=str(tmp_path / "new")))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("base", "net", "rate"),
    [
        ({"optimizer": "sgd(lr=0.5)"}, {}, "0.5"),
        ({"optimizer": "sgd(lr=0.5)"}, {"optimizer": {"lr": "2e-3"}}, "0.002"),
        ({"optimizer.lr": 0.25}, {}, "0.25"),
        ({"optimizer": "sgd"}, {}, "default"),
        (None, {}, "default"),
    ],
)
def test_the_table_has_the_rate_however_the_file_states_it(base, net, rate):
    config = {"base": base, "axes": {"net": {"a": net}, "seed": [0]}}
    networks = [BestNetwork((0.5,), net="a", algebra="real", weights=1, total=1)]
    rows = [row("a", None, 0, 1.0) | {"metric": "loss"}]
    assert network_table(Frontier("task", config, rows, networks, {})).rows[0][2] == rate


def test_networks_may_have_any_label_and_axes_any_order(tmp_path, monkeypatch):
    """Labels that are numbers, or that no file name may contain, name the runs of the grid."""
    nets = {"vit(dim=16, depth=1)": {"algebra": "real"}, 32: {"algebra": "complex"}}
    wanted = []

    def stop(values, file, options, say, executor):
        wanted.extend(select(runs_of(values, file), options.only.split(","), file))
        raise Interrupted("stopped", signal.SIGTERM)

    monkeypatch.setattr(experiment, "sweep", stop)
    values = {"base": {"backbone": "vit", "data": "digits"}, "axes": {"net": nets, "seed": [0], "optimizer.lr": [0.001]}}
    with pytest.raises(Interrupted):
        frontier(values, "a.yaml", Experiment(run_dir=str(tmp_path / "new")))
    assert wanted == ["vit-dim16-depth1-lr0.001-seed0", "32-lr0.001-seed0"]


def test_excluded_runs_are_refused_before_training():
    axes = {"net": {"a": {"algebra": "real"}, "b": {"algebra": "complex"}}, "seed": [0, 1]}
    with raises("unsupported", "a.yaml", "exclude"):
        check_frontier({"axes": axes, "exclude": [{"net": "b", "seed": 1}]}, "a.yaml")


@pytest.mark.parametrize(
    ("missing", "text"), [({"validation": None}, "no validation metrics"), ({"metrics": {}}, "no test metrics")]
)
def test_runs_without_validation_or_test_metrics_are_refused_in_one_line(missing, text):
    chosen = {"metric": "loss", "mode": "min", "value": 1.0}
    row = {"name": "a-seed0", "axes": {"net": "a", "seed": "0"}, "options": {"algebra": "real"}, "parameters": {"total": 1}}
    row |= {"seconds": 1.0, "metrics": {"loss": 1.0}, "validation": chosen}
    assert experiment.summarize(row)["test"] == 1.0
    with raises("missing", "a-seed0", text):
        experiment.summarize(row | missing)


TINY = """\
base:
  data: linear_map(features=8, rows=60)
  trainer: {max_epochs: 2}
axes:
  net:
    narrow: {algebra: real, backbone: "linear(rank=1)"}
    wide: {algebra: real, backbone: linear}
    quaternion: {algebra: quaternion, backbone: linear}
  seed: [0, 1]
"""


@pytest.mark.slow
def test_the_command_trains_compares_and_draws(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(TINY)
    assert main(["frontier", "tiny.yaml", "--run_dir", "out"]) == 0
    assert "6 runs, 0 finished" in capsys.readouterr().out
    assert Path("out/report/frontier.png").read_bytes().startswith(b"\x89PNG")
    stored = json.loads(Path("out/frontier.json").read_text())
    rows, costs = stored["rows"], stored["costs"]
    assert [costs[net]["multiply_adds"] for net in ("narrow", "wide", "quaternion")] == [16, 64, 64]
    assert costs["quaternion"]["bytes"] < costs["wide"]["bytes"]
    if find_spec("onnx"):
        assert all(cost["int8_bytes"] > 0 for cost in costs.values())
    assert {(row["net"], row["seed"]) for row in rows} == set(product(costs, (0, 1)))
    assert main(["frontier", "tiny.yaml", "--run_dir", "out", "--json"]) == 0  # all runs finished
    assert json.loads(capsys.readouterr().out)["rows"] == rows


def test_stored_results_continue_without_their_runs(tmp_path):
    """Only the missing run is trained in a folder that is restored from results."""
    values = yaml.safe_load(TINY)
    stored = [row(net, None, seed, 1.0) for net in values["axes"]["net"] for seed in (0, 1)][:-1]
    results, folder = tmp_path / "results.json", tmp_path / "runs"
    source = {"commit": "c", "processor": "p"}
    content = {"commit": "c", "machine": source, "rows": stored, "costs": {net: {} for net in values["axes"]["net"]}}
    results.write_text(json.dumps(content))
    benchmark.restore(results, folder, values)
    new, *others = frontier(values, "tiny.yaml", Experiment(run_dir=str(folder)))["rows"]
    assert (new["net"], new["seed"]) == ("quaternion", 1)
    assert others == [source | one for one in stored]


def test_an_interrupted_benchmark_stores_its_finished_runs(tmp_path, monkeypatch):
    """The rows of a sweep that has ended early are written; without any, nothing is."""

    def stop(values, file, options, say, executor):
        Path(options.run_dir).mkdir(parents=True, exist_ok=True)
        raise Interrupted("stopped", signal.SIGTERM)

    file, finished = tmp_path / "tiny.yaml", row("narrow", None, 0, 1.0) | {"axes": {}}
    file.write_text(TINY)
    monkeypatch.setattr(experiment, "sweep", stop)
    monkeypatch.setattr(benchmark, "RESULTS", tmp_path)
    for rows in ([], [finished]):
        monkeypatch.setattr(experiment, "read_rows", lambda folder, rows=rows: rows)
        monkeypatch.setattr(experiment, "summarize", lambda row: row)
        with pytest.raises(SystemExit, match="143"):
            benchmark.main([str(file), "--runs", str(tmp_path / "runs")])
        assert (tmp_path / "tiny.json").exists() == bool(rows)
    assert json.loads((tmp_path / "tiny.json").read_text())["rows"] == [finished]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("benchmark") / "digits.json"
    digits.main(["--algebras", "real", "quaternion", "--real", "--seeds", "2", "--epochs", "1", "--out", str(out)])
    return json.loads(out.read_text(encoding="utf-8"))


def test_digits_trains_each_algebra_with_each_seed(results):
    assert [(row["seed"], row["algebra"]) for row in results["rows"]] == [*product((0, 1), ("real", "quaternion"))]
    assert all(row["epochs"] == 1 and 0 < row["metrics"]["accuracy"] <= 1 for row in results["rows"])
    assert {"date", "processor", "cores", "device", "torch"} <= results["machine"].keys()


def test_the_readme_table_has_a_line_for_each_algebra(results):
    lines = readme.table(results).splitlines()
    real, quaternion = lines[2:4]
    scores = [row["metrics"]["accuracy"] for row in results["rows"] if row["algebra"] == "quaternion"]
    assert real.startswith("| `real` |")
    assert f"**{sum(scores) / 2:.3f}** ({scores[0]:.3f}, {scores[1]:.3f})" in quaternion


def test_the_recovery_table_matches_the_results():
    stored, page = recovery.read_all(), recovery.PAGE.read_text(encoding="utf-8")
    lines = recovery.table(stored)
    assert "\n".join([recovery.BEGIN, *lines, machine.END]) in page
    assert len(lines) == 2 + len(stored) >= 3
    assert recovery.RESULTS.with_suffix(".csv").read_text(encoding="utf-8") == recovery.runs_table(stored).as_csv()
    for results in stored:
        assert {row["seed"] for row in results["rows"]} == {teacher["seed"] for teacher in results["teachers"]}


def test_a_teacher_is_projected_by_the_command(tmp_path):
    spec, info = "vit(dim=16, depth=1, heads=2)", {"in_channels": 1, "image_size": 8, "num_classes": 4}
    zoo.save(zoo.backbone(spec, "real", **info), tmp_path / "teacher", backbone=spec, algebra="real", **info)
    for _ in range(2):  # the second replaces the first
        errors = recovery.project(tmp_path / "teacher", "quaternion", tmp_path / "start")
    assert 0.7 < errors["mean"] <= errors["worst"] < 1  # 0.866 for random matrices
    assert zoo.load(tmp_path / "start").config.algebra == "quaternion"
    with pytest.raises(SystemExit):
        recovery.project(tmp_path / "nothing", "quaternion", tmp_path / "other")


def test_the_speed_page_matches_the_results():
    assert speed_page.PAGE.read_text(encoding="utf-8") == speed_page.text()
    for name, table in speed_tables.tables().items():
        assert (speed_page.FOLDER / name).read_text(encoding="utf-8") == table.as_csv()


def test_speed_is_measured_once_per_commit(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fused.compiled, "is_available", lambda: True)
    monkeypatch.setattr(
        "sys.argv", ["fused", "--only", "256 features, batch 8", "--rounds", "2", "--out", str(tmp_path / "out")]
    )
    for measured in (2, 0):
        fused.main()
        assert capsys.readouterr().out.count("evaluation: ") == measured
    (rows,) = json.loads((tmp_path / "out").read_text()).values()  # of this instruction set
    assert [name.rpartition(", ")[2] for name in rows] == ["inside the scope", "outside"]
    assert all(row["ratio"] > 0 and row["goal"] is None for row in rows.values())
