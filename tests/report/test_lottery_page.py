"""The page of a lottery report in a browser: the numbers are read from the plots as they stand on the screen."""

import json
import shutil
import subprocess
from html import unescape

import numpy as np
import pytest

import zoo
from zoo.pruning import prunable

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")

# Positions of the drawn markers go back through the axes of the plot. A layer and a round are chosen as a reader would.
PROBE = """
<pre id="probe"></pre>
<script>
setTimeout(() => {
  const curves = document.getElementById("curves"), {xaxis, yaxis} = curves._fullLayout;
  const lines = [...curves.querySelectorAll(".scatterlayer .trace")].filter(g => g.querySelector("path.point"));
  const drawn = lines.map(g => [...g.querySelectorAll("path.point")].map(point => {
    const [x, y] = point.getAttribute("transform").match(/[-\\d.]+/g).map(Number);
    return [xaxis.p2d(x), yaxis.p2d(y)];
  }));
  const full = curves._fullData, named = full.filter(t => t.mode === "lines+markers");
  const select = document.getElementById("layer"), slider = document.getElementById("round");
  select.value = "blocks.0.mlp.fc1"; slider.value = 2;
  select.dispatchEvent(new Event("input")); slider.dispatchEvent(new Event("input"));
  const panels = [...document.querySelectorAll("#histograms .js-plotly-plot")];
  const maps = [...document.querySelectorAll("#shares .js-plotly-plot")];
  Plotly.Fx.hover(curves, [{curveNumber: full.indexOf(named[1]), pointNumber: 2}]);
  setTimeout(() => document.getElementById("probe").textContent = JSON.stringify({
    drawn, names: named.map(t => t.name), dash: named.map(t => t.line.dash),
    ticks: [...curves.querySelectorAll(".xtick text")].map(t => t.textContent),
    legend: [...curves.querySelectorAll(".legendtext")].map(t => t.textContent),
    hover: [...curves.querySelectorAll(".hoverlayer tspan")].map(t => t.textContent).filter(Boolean),
    dense: full.filter(t => t.meta === "dense").map(t => t.y[0]),
    spread: full.filter(t => t.meta === "spread").map(t => [...t.y]),
    bars: panels.map(p => p.calcdata[0].map(bar => [bar.p, bar.s])),
    shares: maps.map(m => m._fullData[0].z.map(row => [...row].map(z => 10 ** z))),
    mapped: maps.map(m => m.querySelectorAll(".hm image").length),
    fetched: performance.getEntriesByType("resource").map(r => r.name),
    overflow: document.documentElement.scrollWidth - window.innerWidth,
  }), 500);
}, 500);
</script>
"""


def look(page: bytes, folder, width: int) -> dict:
    """Open a page in a window of this width and return what the probe reads."""
    file = folder / f"page-{width}.html"
    file.write_bytes(page + PROBE.encode())
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    flags += [f"--window-size={width},900", "--virtual-time-budget=10000", "--dump-dom"]
    done = subprocess.run([BROWSER, *flags, file.as_uri()], capture_output=True, text=True, timeout=120, check=False)
    text = done.stdout.partition('<pre id="probe">')[2].partition("</pre>")[0]
    assert text, done.stderr[-2000:]
    return json.loads(unescape(text))


@pytest.fixture(scope="module")
def seen(report, tmp_path_factory):
    return look(report.files["lottery.html"], tmp_path_factory.mktemp("browser"), 1100)


def test_the_drawn_points_are_the_numbers_of_the_report(seen, report):
    arms = report.values["arms"]
    assert seen["names"] == list(arms)
    assert seen["dash"] == ["solid", "solid", "dash"]
    assert len(seen["drawn"]) == len(arms)
    for drawn, points in zip(seen["drawn"], arms.values(), strict=True):
        assert [x for x, _ in drawn] == pytest.approx([point["percent"] for point in points], rel=0.01)
        assert [y for _, y in drawn] == pytest.approx([point["mean"] for point in points], abs=0.005)
    assert seen["dense"] == [pytest.approx(arms["real"][0]["mean"])]
    points = arms["real"]
    assert seen["spread"][0] == pytest.approx([point["mean"] + point["spread"] for point in points])
    assert seen["spread"][1] == pytest.approx([point["mean"] - point["spread"] for point in points])


def test_the_axis_has_ticks_in_percent(seen):
    assert seen["ticks"] == ["5", "10", "20", "50", "100"]
    assert seen["legend"] == ["real", "real, dense", "quaternion", "quaternion, random masks"]


def test_hovering_over_a_point_tells_its_numbers(seen, report):
    point = report.values["arms"]["quaternion"][2]
    text = " ".join(seen["hover"])
    assert "quaternion" in text
    assert f"round 2, 2 seeds {point['percent']:.3g} %, {point['survivors']:,.0f} weights" in text
    assert f"accuracy {point['mean']:#.4g} ± {point['spread']:#.2g}" in text


def test_the_bars_are_the_weights_of_the_chosen_layer_and_round(seen, run_with_models):
    for bars, arm in zip(seen["bars"], ("real", "quaternion", "quaternion-random"), strict=True):
        net = zoo.load(run_with_models / arm / "seed-0/round-02").net
        name, weight = next((name, one.parameter) for name, one in prunable(net).items() if "mlp.fc1" in name)
        left = weight.detach().numpy()[weight.detach().numpy() != 0]
        middles = np.array([middle for middle, _ in bars])
        half = (middles[1] - middles[0]) / 2
        edges = np.append(middles - half, middles[-1] + half)
        inside = np.histogram(left, edges)[0]
        counts = np.array([count for _, count in bars])
        assert np.abs(np.cumsum(inside) - np.cumsum(counts)).max() <= 2, name  # a weight may lie on an edge
        assert counts.sum() > 0.9 * len(left)


def test_the_maps_have_the_share_of_each_layer(seen, run_with_models):
    net = zoo.load(run_with_models / "quaternion/seed-0/round-03").net
    left = [float((one.parameter != 0).float().mean()) * 100 for one in prunable(net).values()]
    assert [row[3] for row in seen["shares"][1]] == pytest.approx(left, rel=1e-4)
    assert [row[0] for row in seen["shares"][1]] == pytest.approx([100.0] * len(left))
    assert all(seen["mapped"])


def test_nothing_is_fetched(seen):
    assert seen["fetched"] == []


def test_it_fits_a_narrow_window(report, tmp_path):
    narrow = look(report.files["lottery.html"], tmp_path, 500)
    assert narrow["overflow"] <= 0
    assert len(narrow["drawn"]) == 3
