"""`benchmarks.speed.communication`: the model of a step, what the processes were counted to send, and the page."""

import json

import pytest

from benchmarks.speed import communication


def simulated(forward: float, backward: float, update: float, sent: float, gbits: float, buckets: int) -> float:
    """Send equal buckets one after the other, each as soon as its part of the backward pass is done."""
    free = 0.0
    for bucket in range(1, buckets + 1):
        free = max(free, forward + backward * bucket / buckets) + 8e-9 * sent / gbits / buckets
    return free + update


@pytest.mark.parametrize("buckets", [1, 4, 24])
@pytest.mark.parametrize("gbits", [0.1, 1.0, 8.0, 1000.0])
def test_a_step_is_as_long_as_simulated(buckets, gbits):
    parts = 0.1, 0.2, 0.05, 1e8
    assert communication.predict(*parts, gbits, buckets) == pytest.approx(simulated(*parts, gbits, buckets))


def test_each_process_sends_the_bytes_of_its_gradients():
    rows = json.loads(communication.RESULTS.read_text(encoding="utf-8"))["rows"]
    assert [(row["processes"], row["algebra"]) for row in rows] == [
        (processes, algebra) for processes in communication.PROCESSES for algebra in communication.ALGEBRAS
    ]
    for row in rows:
        share = (row["processes"] - 1) / row["processes"]
        assert row["ddp_mb"] == pytest.approx(2 * share * 4e-6 * row["weights"], rel=1e-3)
        assert row["fsdp_mb"] <= 3 * share * 4e-6 * row["weights"] * 1.001


def test_the_page_matches_the_results():
    results = json.loads(communication.RESULTS.read_text(encoding="utf-8"))
    assert communication.PAGE.read_text(encoding="utf-8") == communication.text(results)
