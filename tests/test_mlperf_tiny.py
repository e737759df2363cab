"""The study of accuracy against bytes runs what is missing, and selects by validation."""

from itertools import islice

import pytest

from benchmarks import machine
from benchmarks.studies import mlperf_tiny
from benchmarks.studies.mlperf_tiny import NETWORKS, REFERENCE, Network, answer, due, read, results, run, section

OURS = Network("quaternion", (24, 48, 96), "int4")
REAL = Network("real", (14, 28, 56), "int4")
WORSE = Network("octonion", (32, 64, 128), "int4")


def row(network, seed, accuracy, validation_loss=0.5, bytes=40_000):
    facts = {"network": str(network), **network._asdict(), "epochs": 2, "seed": seed, "weights": 1000, "bytes": bytes}
    return facts | {"accuracy": accuracy, "validation_loss": validation_loss}


def test_the_runs_of_a_seed_come_before_those_of_the_next():
    assert list(islice(due([], 2, 3), len(NETWORKS) + 1)) == [*((network, 0) for network in NETWORKS), (NETWORKS[0], 1)]
    assert list(due([row(network, 0, 0.8) for network in NETWORKS[1:]], 2, 1)) == [(NETWORKS[0], 0)]
    assert len(list(due([row(network, 0, 0.8) for network in NETWORKS], 3, 1))) == len(NETWORKS)  # with other epochs


def test_the_answer_compares_the_networks_that_validation_prefers():
    rows = [row(OURS, seed, 0.86 + seed / 1000, 0.4) for seed in range(3)]
    rows += [row(REAL, seed, 0.80 + seed / 1000) for seed in range(3)]
    rows += [row(WORSE, seed, 0.9) for seed in range(3)]  # better on test data, worse on validation data
    rows += [row(Network("real", (16, 32, 64), "int8"), seed, 0.9, 0.1, REFERENCE) for seed in range(3)]  # too large
    text = answer(results(rows))
    assert "quaternion 24-48-96 int4 (0.8610 ± 0.0025) among algebras" in text
    assert "real 14-28-56 int4 (0.8010 ± 0.0025) among real networks; the algebra is ahead." in text
    assert text.endswith("is reached by quaternion 24-48-96 int4.")
    assert "one seed decides nothing" in answer(results(rows[:1] + rows[3:4]))
    assert answer(results(rows[:3])).startswith("No comparison at 49,248 bytes")


def test_the_advice_names_the_network_that_validates_best_of_those_that_fit():
    rows = [row(OURS, 0, 0.9, 0.5), row(REAL, 0, 0.8, 0.4, 64_000), row(WORSE, 0, 0.9, 0.3, 64_001)]
    assert "With 64 kB of flash, take real 14-28-56 int4:" in section(results(rows))
    assert "flash" not in section(results(rows[2:]))


def test_a_run_trains_the_network_that_its_file_contains(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime", reason="needs hypercomplex-zoo[onnx]")
    few = {"enable_progress_bar": False, "limit_train_batches": 2, "limit_val_batches": 1, "accelerator": "cpu"}
    monkeypatch.setattr(mlperf_tiny, "RECIPE", mlperf_tiny.RECIPE | {"data": "digits(size=32)", "trainer": few})
    made = run(Network("quaternion", (8, 16, 32), "int4"), 1, 0, tmp_path, None)
    assert made["network"] == "quaternion 8-16-32 int4"
    assert made["weights"] < made["bytes"] < REFERENCE
    assert made["difference"] < 1e-3
    assert 0 < made["accuracy"] <= 1


def test_the_part_of_the_page_matches_the_results():
    found = results(read(mlperf_tiny.RESULTS)["rows"])
    assert f"{mlperf_tiny.BEGIN}\n{section(found)}\n{machine.END}" in mlperf_tiny.PAGE.read_text(encoding="utf-8")
