"""The study of adapters: equal weights, the search of learning rates, and no selection on the test split."""

import pytest
import torch

import zoo

pytest.importorskip("peft")
study = pytest.importorskip("benchmarks.studies.adapters")


def network(case):
    options = {} if study.CASES[case].is_text else {"num_classes": 6}
    return zoo.fold(zoo.backbone(study.CASES[case].backbone, "real", vocab_size=20, max_length=128, **options))


@pytest.mark.parametrize("budget", study.BUDGETS)
def test_all_methods_have_the_weights_of_lora(budget):
    counts = {method: study.adapt(network("trec"), method, budget) for method in study.METHODS if method != "full"}
    assert all(1 <= count / counts["lora"] <= (1.13 if method == "phm-8" else 1.04) for method, count in counts.items()), counts


@pytest.mark.parametrize("method", ["lora", "compacter", "octonion"])
def test_networks_do_not_change_before_training(method):

    torch.manual_seed(0)
    net, tokens = network("shakespeare").eval(), torch.randint(2, 20, (2, 16))
    before = net(tokens)
    study.adapt(net, method, 1)
    torch.testing.assert_close(net(tokens), before)
    net(tokens).square().mean().backward()
    assert any(parameter.grad is not None and parameter.grad.norm() > 0 for parameter in net.parameters())


def rows(values, seeds=1):
    return [
        {"case": "shakespeare", "method": "lora", "budget": 2, "rate": rate, "seed": seed, "validation": loss, "test": -loss}
        for rate, loss in values.items()
        for seed in range(seeds)
    ]


def due(stored):
    return [(run.rate, run.seed) for run in study.due("shakespeare", "lora", 2, stored)]


def test_the_search_ends_with_the_best_rate_inside():
    low, middle, high = study.RATES
    assert due([]) == [(low, 0), (middle, 0), (high, 0)]
    assert due(rows({low: 1.0, middle: 2.0, high: 3.0})) == [(low * 10**-0.5, 0)]
    assert due(rows({low: 3.0, middle: 2.0, high: 1.0})) == [(high * 10**0.5, 0)]
    assert due(rows({low: 3.0, middle: 1.0, high: float("nan")})) == [(middle, seed) for seed in range(1, study.SEEDS)]
    assert due(rows({low: 3.0, middle: 1.0, high: 2.0}, study.SEEDS)) == []


def test_accuracy_is_better_when_it_is_higher():
    low, middle, high = study.RATES
    found = study.rows_of([row | {"case": "trec"} for row in rows({low: 0.7, middle: 0.9, high: 0.8})], "trec", "lora", 2)
    assert study.best_rate("trec", found) == middle
