"""The report on lottery tickets: numbers, files and errors."""

import json
import shutil
from base64 import b64decode
from math import log10
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from zoo_reports.crossing import Crossing, compare_all, overtakes
from zoo_reports.lottery import lottery
from zoo_reports.plots import histograms, sparsity, styles
from zoo_reports.rows import Curve, collect, lottery_metric, read_runs
from zoo_reports.weights import ALL, Ticket, layer, read_ticket_weights

import zoo
from tests.errors import raises
from zoo.cli import main
from zoo.errors import InputError
from zoo.pruning import prunable

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
    assert ours.points[0].percent == 100 * row["weights"] / row["real_weights"] < 30
    assert ours.points[1].survivors == ours.rows[0, 1]["survivors"]


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
    assert found.lead_spread == pytest.approx(0.1)
    assert found.interval == pytest.approx(4.303 * 0.1 / 3**0.5, rel=1e-3)
    assert "from 15.8 % of the real weights down to 0.812 %" in found.statement
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
    assert "everywhere between" in ahead.statement
    behind = crossing_of(lottery_run(lambda algebra, *_: float(algebra == "real"), seeds=2, name="behind"))
    assert (behind.below, behind.crossings) == (None, [])
    assert "no crossing" in behind.statement
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
    record["stopped"] = [{"algebra": "real", "control": None, "seed": 1, "round": 2, "reason": "accuracy collapsed"}]
    (run / "lottery.json").write_text(json.dumps(record))
    real = arms_of(run)[0]
    assert [point.round for point in real.complete] == [0, 1, 2]
    assert real.points[3].mean == 0.1
    assert crossing_of(run).low == real.points[2].percent
    notes = lottery([str(run)]).values["notes"]
    assert "real: round 3 with fewer than 2 seeds (hollow points)" in notes
    assert "real, seed 1: no round after 2, accuracy collapsed" in notes


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
    assert "several runs" in compare_all(arms_of(one, two, alone), "max")[1][0]
    assert "no run" in compare_all(arms_of(alone), "max")[1][0]


def test_algebras_keep_their_colours(lottery_run):
    pair = styles(arms_of(lottery_run(lambda *_: 0.5)))
    more = lottery_run(lambda *_: 0.5, name="more", algebras=["octonion", "quaternion", ("quaternion", "random"), "phm-4"])
    look = styles(arms_of(more))
    assert look["quaternion"].color == look["quaternion, random masks"].color == pair["quaternion"].color
    assert look["quaternion"].dash != look["quaternion, random masks"].dash
    assert len({style.color for style in look.values()} | {pair["real"].color}) == 4


# --- weights ---


def test_histograms_count_surviving_weights(run_with_models):
    arm = next(arm for arm in arms_of(run_with_models) if arm.label == "quaternion")
    ticket, notes = read_ticket_weights(arm)
    assert notes == []
    assert (ticket.seed, ticket.rounds) == (0, [0, 1, 2, 3])
    net = zoo.load(run_with_models / "quaternion/seed-0/round-02").net
    weights = {name: one.parameter.detach().numpy() for name, one in prunable(net).items()}
    assert len(ticket.layers) == 1 + len(weights)
    every = ticket.layers[ALL]
    assert every.left[2] == sum(np.count_nonzero(weight) for weight in weights.values()) == arm.rows[0, 2]["survivors"]
    assert every.numbers == arm.rows[0, 2]["weights"]
    fc1 = ticket.layers["blocks.0.mlp.fc1"]
    weight = weights["blocks.0.mlp.fc1.weight_module.components"]
    assert fc1.counts[2] == np.histogram(weight[weight != 0], fc1.edges)[0].tolist()
    assert sum(fc1.counts[2]) == pytest.approx(fc1.left[2], abs=2)
    assert fc1.numbers == weight.size
    middle = len(fc1.edges) // 2
    assert fc1.counts[3][middle] == 0 < fc1.counts[0][middle]


def test_missing_and_damaged_models_are_noted(run_with_models, tmp_path):
    run = shutil.copytree(run_with_models, tmp_path / "run")
    weights = run / "real/seed-0/round-01/model/model.safetensors"
    tensors = load_file(weights)
    tensors["head.weight"][0] = torch.nan
    save_file(tensors, weights)
    shutil.rmtree(run / "real/seed-0/round-03")
    shutil.copytree(run / "real/seed-0/round-02", run / "quaternion/seed-0/round-02", dirs_exist_ok=True)
    arms = arms_of(run)
    ticket, notes = read_ticket_weights(arms[0])
    assert ticket.rounds == [0, 2]
    starts = [f"real, seed 0: no histogram of round {number}: " for number in (1, 3)]
    assert [note.startswith(start) for note, start in zip(notes, starts, strict=True)] == [True, True]
    assert read_ticket_weights(arms[1])[0].rounds == [0, 1, 3]


def test_layers_without_weights_are_grey():
    from matplotlib.colors import to_rgba

    weights = {0: np.linspace(-1, 1, 10), 1: np.array([0.5]), 2: np.array([])}
    rows = {ALL: layer(weights, 10), "fc1": layer(weights, 10)}
    figure = sparsity({"real": Ticket(0, rows)}, "title")
    figure.canvas.draw()
    image = figure.axes[0].images[0]
    colors = [tuple(color) for color in image.to_rgba(image.get_array())[0]]
    assert colors[2] == pytest.approx(to_rgba("#d0d0d0"))
    assert len(set(colors)) == 3
    histograms([("real", row, "#000000") for row in rows.values()], "title").canvas.draw()


def test_excluded_layers_are_not_drawn(run_with_models):
    arm = arms_of(run_with_models)[0]
    arm.run.record["pruning"] = {"matrices": "all", "exclude": ["net.head.*"]}
    ticket, notes = read_ticket_weights(arm)
    assert ticket is None
    assert "weights of its model differ" in notes[0]
    for row in arm.rows.values():
        row["weights"] -= 16 * 4
    assert "head" not in read_ticket_weights(arm)[0].layers


# --- files ---


def test_pictures(report):
    names = {"lottery", "weights", "sparsity", "weights-real", "weights-quaternion", "weights-quaternion-random-masks"}
    assert set(report.files) == {f"{name}.{kind}" for name in names for kind in ("png", "svg")} | {"lottery.md", "lottery.html"}
    for name, content in report.files.items():
        if name.endswith(".png"):
            assert content.startswith(b"\x89PNG"), name
        if name.endswith(".svg"):
            assert ElementTree.fromstring(content).tag == "{http://www.w3.org/2000/svg}svg", name


def test_the_table_has_all_rounds(report, run_with_models):
    lines = report.files["lottery.md"].decode().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| quaternion |")]
    arm = next(arm for arm in arms_of(run_with_models) if arm.label == "quaternion")
    assert len(rows) == 1 + len(arm.points)  # one of the crossing points
    point = arm.points[1]
    sizes = [f"{point.percent:.3g} %", f"{point.survivors:,.0f}", "2"]
    assert rows[2] == ["quaternion", "1", *sizes, f"{point.mean:.4f} ± {point.spread:.4f}"]
    assert float(rows[0][1].removesuffix(" %")) == pytest.approx(report.values["crossings"][0]["below"], rel=0.01)


def test_the_page_is_self_contained(report):
    page = report.files["lottery.html"].decode()
    assert "default-src 'none'" in page
    assert "http:" not in page.replace("http-equiv", "")
    pictures = [content for name, content in report.files.items() if name.endswith(".svg")]
    assert [b64decode(text.partition('"')[0]) for text in page.split("svg+xml;base64,")[1:]] == pictures
    for arm, points in report.values["arms"].items():
        assert all(f"<td>{arm}</td><td>{point['round']}</td>" in page for point in points)


def test_untrusted_names_are_escaped_and_missing_glyphs_do_not_warn(lottery_run, recwarn):
    run = lottery_run(lambda *_: 0.5, algebras=["real"], rounds=1)
    name = "\u6570\u636e</script><script>alert(1)</script>"
    text = (run / "lottery.json").read_text().replace('"digits"', json.dumps(name))
    (run / "lottery.json").write_text(text.replace('"real"', '"real<img src=x>"'))
    files = lottery([str(run)]).files
    page = files["lottery.html"].decode()
    assert "\u6570" in page
    assert "<script>alert" not in page
    assert b"real&lt;img" in files["lottery.md"]
    assert not [name for name, content in files.items() if b"<img src=x" in content]
    assert not recwarn


def call(capsys, *words):
    code = main(["report", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_can_be_repeated(lottery_run, capsys):
    run = lottery_run(lambda *_: 0.5)
    for _ in range(2):
        code, out, err = call(capsys, "lottery", run)
        assert (code, err) == (0, "")
        assert f"written to {run / 'report'}: lottery.png" in out
    assert {path.name for path in (run / "report").iterdir()} == {f"lottery.{kind}" for kind in ("png", "svg", "md", "html")}


def test_several_runs_need_a_new_folder(lottery_run, capsys, tmp_path):
    runs = [lottery_run(lambda *_: 0.5, name=name) for name in ("one", "two")]
    assert call(capsys, "lottery", *runs)[0] == 2  # --out is missing
    code, out, _ = call(capsys, "lottery(split=val)", *runs, "--out", tmp_path / "both", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["split"] == "val"
    assert found["html"] == str(tmp_path / "both/lottery.html")
    assert (tmp_path / "both/lottery.html").is_file()
    assert found["arms"]["real (two)"][0]["mean"] == 0.25
    assert call(capsys, "lottery", *runs, "--out", tmp_path / "both")[0] == 2  # it exists
    assert call(capsys, "frequencies", *runs)[0] == 2  # it reports on one model


def test_invalid_runs(lottery_run, tmp_path):
    run = lottery_run(lambda *_: 0.5, algebras=["real"], rounds=1)
    record = json.loads((run / "lottery.json").read_text())
    row = record["rows"][0]
    contents = {
        "later": ("format 2", record | {"format": 2}),
        "kind": ("rows[0]", record | {"rows": [row | {"survivors": "12"}]}),
        "keys": ("damaged", {"format": 1}),
    }
    for name, (value, content) in contents.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "lottery.json").write_text(json.dumps(content))
        with pytest.raises(InputError) as caught:
            lottery([str(folder)])
        assert value in str(caught.value), name
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun/lottery.json").write_text(json.dumps(record | {"rows": []}))
    with raises("missing", "begun"):
        lottery([str(tmp_path / "begun")])
    with raises("missing", "nowhere", "lottery.json"):
        lottery(["nowhere"])
    other = lottery_run(lambda *_: 0.5, algebras=["real"], rounds=1, name="other", metric="loss")
    with raises("mismatch", "accuracy", "loss"):
        lottery([str(run), str(other)])
    with raises("invalid", "train"):
        lottery([str(run)], split="train")


def test_unknown_metric(lottery_run):
    run = lottery_run(lambda *_: 0.5, algebras=["real"], rounds=1)
    (run / "lottery.json").write_text((run / "lottery.json").read_text().replace('"test": {"accuracy"', '"test": {"loss"'))
    with raises("unknown", "accuracy", "loss"):
        lottery([str(run)])
    assert lottery([str(run)], split="val").values["arms"]["real"][0]["mean"] == 0.25
    assert lottery([str(run)], metric="loss", mode="min").values["mode"] == "min"
    with raises("invalid", "mode=min"):
        lottery([str(run)], metric="loss")
