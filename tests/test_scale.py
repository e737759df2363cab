"""The study of equal weights up to 12.8 million weights: its networks, its protocol, its training and its report."""

import csv
import json
import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import zoo
from benchmarks.studies import scale, scale_page
from benchmarks.studies.scale_plan import ALGEBRAS, LONG, SHORT, Network, Run, next_runs, run_of, spec_of
from benchmarks.studies.scale_train import RECIPE, SMALL, Texts, batches, build, check_disjoint, optimizer_of, row_of, train
from zoo.nn import Weight

SHAKESPEARE = [Network("shakespeare", algebra, 0.4, SHORT) for algebra in ALGEBRAS]
TINY = Network("glosses", "quaternion", 0.01, 4 * SMALL.batch * SMALL.length)


def row(run, validation, test=0.0, weights=400_000, step_ms=None):
    about = {"weights": weights, "kind": "cpu", "step_ms": step_ms, "spec": "", "seconds": 1.0, "date": "2026-11-28"}
    about |= {"torch": "2.15.0", "commit": "c", "processor": "p", "device": "cpu"}
    diverged = "the validation loss is nan" if validation is None else None
    return run.as_row() | {"validation": validation, "test": test, "diverged": diverged} | about


def simulate(networks, loss, most_seeds=5):
    """Run the whole protocol with given losses, and return the rows."""
    rows = []
    while due := next_runs(networks, rows, most_seeds):
        assert len(rows) < 2000
        assert due[0] not in {run_of(one) for one in rows}
        value = loss(due[0])
        rows.append(row(due[0], value, None if value is None else value + 1))
    return rows


@pytest.mark.parametrize(("size", "vocab_size"), [(0.1, 67), (0.2, 79), (0.4, 67), (0.8, 79), (12.8, 67)])
def test_networks_have_their_number_of_weights(size, vocab_size):
    """Within 3 % on both texts (5 % where widths are few), with ffn = 4 dim and widths of whole elements."""
    for algebra in ALGEBRAS:
        spec = spec_of(Network("glosses", algebra, size, SHORT))
        with torch.device("meta"):
            net = zoo.backbone(spec, algebra, vocab_size=vocab_size, max_length=RECIPE.length)
        assert zoo.count(net)["total"] == pytest.approx(1e6 * size, rel=0.03 if size > 0.2 else 0.05)
        dim, ffn = (int(spec.partition(f"{name}=")[2].partition(",")[0]) for name in ("dim", "ffn"))
        assert (ffn, dim % zoo.algebra(algebra).n) == (4 * dim, 0)


def test_the_width_does_not_depend_on_the_seed_nor_change_it():
    torch.manual_seed(0)
    first = torch.rand(())
    torch.manual_seed(0)
    spec_of.cache_clear()
    spec_of(Network("glosses", "phm-4", 0.4, SHORT, "depth-2"))
    assert torch.rand(()) == first


@pytest.mark.parametrize("best", [0.004, 0.064, 0.00025])
def test_the_search_ends_with_the_best_rate_inside_and_three_seeds_around_it(best):
    def loss(run):
        return None if run.rate > 8 * best else abs(math.log2(run.rate / best)) + 0.001 * run.seed

    rows = simulate(SHAKESPEARE[:1], loss)
    seeds = Counter(one["rate"] for one in rows)
    assert {rate for rate, count in seeds.items() if count == 3} == {best / 2, best, 2 * best}
    assert set(seeds.values()) <= {1, 3}
    assert min(seeds) < best < max(seeds)
    assert set(Counter(one["rate"] for one in simulate(SHAKESPEARE[:1], loss, 1)).values()) == {1}


def test_a_network_that_always_diverges_or_has_no_best_rate_inside_ends():
    assert all(one["diverged"] for one in simulate(SHAKESPEARE[:1], lambda run: None))
    assert len(simulate(SHAKESPEARE[:1], lambda run: run.rate)) < 20


def test_five_seeds_only_where_the_comparison_is_not_decided():
    """The noise of octonions is larger than their lead; quaternions are far ahead."""

    def loss(run):
        lead = {"real": 0.0, "quaternion": -1.0, "octonion": -0.01, "phm-4": 1.0}[run.network.algebra]
        return lead + 0.3 * abs(math.log2(run.rate / 0.004)) + 0.1 * (run.seed % 2)

    rows = simulate(SHAKESPEARE, loss)
    seeds = {algebra: {one["seed"] for one in rows if one["algebra"] == algebra} for algebra in ALGEBRAS}
    assert {algebra: len(found) for algebra, found in seeds.items()} == {"real": 5, "quaternion": 3, "octonion": 5, "phm-4": 3}
    assert max(one["seed"] for one in rows if one["rate"] != 0.004) == 2


def test_the_two_best_networks_and_the_real_one_are_trained_longer_around_their_best_rates():
    def loss(run):
        order = {"real": 3.0, "quaternion": 1.0, "octonion": 2.0, "phm-4": 4.0}[run.network.algebra]
        return order + abs(math.log2(run.rate / 0.008)) + 0.001 * run.seed

    long = [network._replace(tokens=LONG) for network in SHAKESPEARE]
    assert next_runs(long, [], 5) == []
    rows = simulate([*SHAKESPEARE, *long], loss)
    after = [one for one in rows if one["tokens"] == LONG]
    assert {one["algebra"] for one in after} == {"real", "quaternion", "octonion"}
    assert {one["rate"] for one in after} == {0.004, 0.008, 0.016}
    assert rows[-len(after) :] == after


def test_sizes_come_in_order_and_within_a_size_rates_before_seeds():
    sizes = [*SHAKESPEARE[:2], *(network._replace(size=0.8) for network in SHAKESPEARE[:2])]
    first = next_runs(sizes, [], 5)
    assert [(run.network.size, run.rate, run.network.algebra) for run in first[:3]] == [
        (0.4, 0.008, "real"),
        (0.4, 0.008, "quaternion"),
        (0.4, 0.004, "real"),
    ]
    done = [row(Run(sizes[0], rate, 0), abs(rate - 0.008)) for rate in (0.004, 0.008, 0.016)]
    due = next_runs(sizes, done, 5)
    assert [run.network.algebra for run in due[:3]] == ["quaternion"] * 3
    assert [run.network.size for run in due] == sorted(run.network.size for run in due)
    assert {run.seed for run in due if run.network == sizes[0]} == {1, 2}


@pytest.mark.parametrize(("variant", "count"), [("base", 4), ("mup", 4), ("decay-up", 3)])
def test_the_command_runs_what_was_chosen_in_the_order_of_the_options(variant, count, monkeypatch):
    seen = []
    monkeypatch.setattr(scale, "measure", lambda networks, *rest: seen.extend(networks))
    scale.main(["--tasks", "glosses", "--sizes", "3.2", "0.4", "--tokens", "4", "--variant", variant])
    assert [network.size for network in seen] == [3.2] * count + [0.4] * count
    assert {(network.task, network.tokens, network.variant) for network in seen} == {("glosses", SHORT, variant)}


def test_a_block_of_one_split_in_another_is_found():
    generator = torch.Generator().manual_seed(0)
    splits = {
        name: torch.randint(1, 9, (size,), generator=generator) for name, size in (("train", 900), ("val", 90), ("test", 90))
    }
    check_disjoint(splits, 16)
    for one, other in (("train", "val"), ("train", "test"), ("val", "test")):
        copied = splits[other].clone()
        copied[32:48] = splits[one][37:53]
        with pytest.raises(SystemExit, match=f"{other} split occurs"):
            check_disjoint({**splits, other: copied}, 16)
    with pytest.raises(SystemExit, match="padding"):
        check_disjoint({**splits, "val": splits["val"] * 0}, 16)


def test_batches_depend_on_the_seed_only_and_reach_both_ends_of_the_text():
    text = torch.arange(40)
    rows = torch.cat([*batches(text, 50, 3, SMALL)])
    assert rows.shape == (100, SMALL.length + 1)
    assert torch.equal(rows[:, 1:] - rows[:, :-1], torch.ones(100, SMALL.length, dtype=torch.int64))
    assert (int(rows.min()), int(rows.max())) == (0, 39)
    assert torch.equal(rows, torch.cat([*batches(text, 50, 3, SMALL)]))
    assert not torch.equal(rows, torch.cat([*batches(text, 50, 4, SMALL)]))


def small_texts():
    text = torch.randint(1, 9, (400,), generator=torch.Generator().manual_seed(0))
    blocks = text[: 2 * SMALL.length].view(2, -1), text[1 : 2 * SMALL.length + 1].view(2, -1)
    return Texts(text, blocks, blocks, 9)


def test_training_counts_its_tokens_and_repeats_exactly():
    """The same run twice, after other random numbers; the weights of the best validation are tested."""
    first = train(Run(TINY, 0.004, 1), small_texts(), SMALL)
    torch.rand(7)
    assert first == train(Run(TINY, 0.004, 1), small_texts(), SMALL)
    assert first["trained_tokens"] == TINY.tokens == 4 * SMALL.batch * SMALL.length
    assert first["test"] == first["validation"]  # the same text
    assert first != train(Run(TINY, 0.004, 2), small_texts(), SMALL)
    assert train(Run(TINY._replace(variant="dropout"), 0.004, 1), small_texts(), SMALL)["test"] is None


def test_a_diverged_run_has_a_reason():
    result = train(Run(TINY, 1e30, 0), small_texts(), SMALL)
    assert (result["validation"], result["test"]) == (None, None)
    assert "after step 2 of 4" in result["diverged"]


def test_variants_change_the_rate_and_the_decay_of_components_only():
    rates = {}
    for name in ("base", "rate-up", "decay-down"):
        network = TINY._replace(variant=name)
        net = build(network, SMALL, 9, "cpu")
        components = {id(part.components) for part in net.modules() if isinstance(part, Weight) and part.algebra.n > 1}
        optimizer = optimizer_of(net, 0.01, SMALL, network.changed)
        values = [
            (id(p) in components, group["lr"], group["weight_decay"])
            for group in optimizer.param_groups
            for p in group["params"]
        ]
        assert len(values) == len([*net.parameters()])
        rates[name] = set(values)
    others = {value for value in rates["base"] if not value[0]}
    assert rates["base"] - others == {(True, 0.01, 0.1)}
    assert rates["rate-up"] == {(True, 0.02, 0.1), *others}
    assert rates["decay-down"] == {(True, 0.01, 0.025), *others}


def test_a_dry_run_follows_the_protocol(monkeypatch, capsys):
    """Trained in threads, as new processes take long to start."""
    monkeypatch.setattr(scale, "ProcessPoolExecutor", lambda jobs, context: ThreadPoolExecutor(jobs))
    monkeypatch.setattr("benchmarks.studies.scale_train.prepare", lambda threads: None)
    monkeypatch.setattr(scale, "prepare", lambda threads: None)
    scale.main(["--dry-run", "--tasks", "glosses", "--algebras", "real", "octonion", "--seeds", "1"])
    assert "twice with the same losses on cpu" in capsys.readouterr().out


def test_results_are_resumed_merged_and_guarded(tmp_path, monkeypatch):
    out, other = tmp_path / "a.json", tmp_path / "b.json"
    runs = [Run(SHAKESPEARE[0], rate, 0) for rate in (0.002, 0.004)]
    scale.add(out, [row(runs[0], 2.0)], RECIPE)
    scale.add(other, [row(runs[1], 1.0), row(runs[0], 2.0, step_ms=3.0)], RECIPE)
    scale.main(["--out", str(out), "--add", str(other)])
    rows = json.loads(out.read_text())["rows"]
    assert [(one["rate"], one["validation"], one["step_ms"]) for one in rows] == [(0.002, 2.0, 3.0), (0.004, 1.0, None)]
    assert not {run_of(one) for one in rows} & set(next_runs(SHAKESPEARE, rows))
    monkeypatch.setattr(scale, "RECIPE", RECIPE._replace(batch=1))
    with pytest.raises(SystemExit, match="another recipe"):
        scale.main(["--out", str(out), "--add", str(other)])


def test_no_run_starts_that_would_end_too_late():
    rows = [row(Run(SHAKESPEARE[0], 0.002, 0), 2.0) | {"seconds": 50.0}]
    assert scale.expected_seconds(Run(SHAKESPEARE[0], 0.004, 0), rows) == 50
    assert scale.expected_seconds(Run(SHAKESPEARE[1], 0.004, 0), rows) == 0


def finished(network, loss, seeds=3, weights=400_000):
    """Rows of a network whose best rate is 0.004."""
    runs = [Run(network, rate, seed) for rate in (0.002, 0.004, 0.008) for seed in range(seeds)]
    return [row(run, loss + abs(run.rate - 0.004) + 0.001 * run.seed, loss + 1 + 0.001 * run.seed, weights) for run in runs]


def test_the_report_has_an_interval_only_where_three_seeds_exist(tmp_path):
    real, quaternion, phm, _ = SHAKESPEARE
    rows = finished(real, 2.0) + finished(quaternion, 1.5) + finished(phm, 1.0, seeds=1)
    table = {line[1]: line for line in scale_page.results(rows).rows}
    assert table["quaternion 0.4"][7].startswith("+0.500 [")
    assert table["quaternion 0.4"][8] == "ahead"
    assert "±" in table["real 0.4"][6]
    assert table["phm-4 0.4"][6:9] == ["2.0000", "-", "-"]
    text = "+0.500 to +1.001 (1 ahead, 1 without an interval) at 0.4 million after 4 million training tokens. In a first look"
    assert text in scale_page.limit(rows)
    searched = finished(real, 2.0, seeds=1) + finished(phm, 1.0, seeds=1)
    assert (
        "+1.000 at 0.4 million after 4 million training tokens. This decides nothing: each has one seed."
        in scale_page.limit(searched)
    )
    longer = [one | {"tokens": LONG, "test": one["test"] - 0.2 * (one["algebra"] == "real")} for one in searched]
    text = "+1.000 at 0.4 million after 4 million training tokens; +0.800 at 0.4 million after 16 million. This"
    assert text in scale_page.limit([*searched, *longer])
    [axes] = scale_page.draw([*searched, *longer]).axes
    assert len(axes.get_legend().texts) == 4
    large = [one | {"size": 3.2} for one in finished(real, 2.0, seeds=2) + finished(phm, 1.0, seeds=1)]
    assert scale_page.limit(large).endswith("This decides nothing: runs of one network differ by up to 0.00.")
    [found] = scale_page.findings(rows)
    assert found.startswith("**quaternion**, Tiny Shakespeare, 4 million tokens, a CPU: ahead at 0.4 (+0.500 [")
    assert scale_page.not_run(rows)[0].startswith(
        "Tiny Shakespeare, 4 million tokens: 0.1, 0.2, 0.4 (finished: real, quaternion), 0.8,"
    )
    assert scale_page.draw(rows).axes


def test_rows_of_different_devices_are_not_mixed():
    rows = finished(SHAKESPEARE[0], 2.0) + [one | {"kind": "cuda"} for one in finished(SHAKESPEARE[1], 1.0)]
    assert [line[7] for line in scale_page.results(rows).rows] == ["-", "-"]


def test_the_report_works_without_results():
    assert scale_page.results([]).rows == []
    assert "real networks are ahead by 0.06 to 0.11 nats" in scale_page.limit([])
    assert scale_page.not_run([]) == ["all comparisons"]


def test_what_is_written_by_hand_about_the_first_look_holds():
    rows = list(csv.DictReader(scale_page.FIRST_LOOK.read_text(encoding="utf-8").splitlines()))
    sizes = sorted({float(row["million weights"]) for row in rows})
    assert f"{sizes[0]:g} to {sizes[-1]:g} million weights" in scale_page.first_look()
    assert sizes[0] == scale_page.FIRST_LOOK_SIZE
    networks = {row["network"] for row in rows}
    for those in ([row for row in rows if row["network"] == network] for network in networks):
        best = min(those, key=lambda row: float(row["validation loss"]))
        assert best["learning rate"] == max((row["learning rate"] for row in those), key=float)


def test_variants_are_compared_on_validation_data():
    network = SHAKESPEARE[1]
    changed = [one | {"test": None} for one in finished(network._replace(variant="decay-up"), 1.25)]
    rows = finished(network, 1.5) + changed
    assert len(scale_page.results(rows).rows) == 1
    [line] = scale_page.variants(rows).rows
    assert line[0] == "decay-up"
    assert line[-2:] == ["1.2510", "1.5010"]


def test_a_row_says_all_that_is_needed_to_repeat_it(monkeypatch):
    monkeypatch.setattr("benchmarks.studies.scale_train.prepare", lambda threads: None)
    assert {"spec", "weights", "rate", "seed", "validation", "test", "step_ms", "device", "torch", "commit", "date"} <= set(
        row_of(Run(TINY, 0.004, 0), None, SMALL, "cpu", torch.get_num_threads())
    )
