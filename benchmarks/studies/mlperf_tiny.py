"""Measure accuracy against bytes on CIFAR-10: ``python -m benchmarks.studies.mlperf_tiny --root DATA --epochs 50 --seeds 1``.

Trains ResNet-8 of MLPerf Tiny (Banbury et al. 2021) and other widths of it, over the reals and over algebras, with the weights
that the exported file has (``zoo fit --quantize-aware``), with one recipe; exports the model of the best validation loss with
``zoo export --format onnx --quantize``, and measures its accuracy on the test split, which selects nothing. The reference file
of MLPerf Tiny has `REFERENCE` bytes; the other networks must have at most half of them.

Each finished run is a row of benchmarks/results/mlperf_tiny.json and is not run again; interrupted runs in ``--runs`` are
resumed. ``--report`` trains nothing and writes the table in docs/exporting.md and its picture.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from zoo_reports.page import MARKERS, Table, colors_of, pictures, plain_axes
from zoo_reports.statistics import Score, compare

import zoo
from benchmarks import machine
from benchmarks.machine import IMAGES, ROOT
from benchmarks.studies.command import result_of
from benchmarks.studies.papers_rows import rooted

RESULTS = machine.RESULTS / "mlperf_tiny.json"
PAGE, PICTURE = ROOT / "docs" / "exporting.md", "mlperf_tiny"
BEGIN = "<!-- made by benchmarks/studies/mlperf_tiny.py -->"
REFERENCE, TARGET, TESTED = 98_496, 0.85, 10_000
"""Bytes of MLPerf Tiny's int8 file, the accuracy that it asks for, and the images of the test split."""
FLASH = 64_000
"""Bytes of a small microcontroller, for which the page names a network."""
RECIPE: dict[str, Any] = {
    "data": "cifar10",
    "optimizer": {"name": "adamw", "lr": 0.032, "weight_decay": 0.01},
    "schedule": {"name": "cosine", "warmup": 0.25},
    "batch_size": 128,
    "trainer": {"precision": "bf16-mixed", "enable_progress_bar": False},
}
"""That of configs/frontier/cifar10.yaml, whose rate was the best of four or five for such networks in short runs."""


class Network(NamedTuple):
    """A ResNet-8 with the channels of its three stages, and the bits of its weights in the file."""

    algebra: str
    channels: tuple[int, int, int]
    bits: str

    @property
    def spec(self) -> str:
        """The spec of the backbone."""
        return f"convnet/resnet-8(channels={list(self.channels)})"

    def __str__(self) -> str:
        return f"{self.algebra} {'-'.join(map(str, self.channels))} {self.bits}"


NETWORKS = (
    Network("phm-4", (24, 48, 96), "int4"),
    Network("real", (15, 30, 58), "int4"),
    Network("real", (16, 32, 64), "int8"),
    Network("phm-4", (24, 52, 104), "int4"),
    Network("quaternion", (28, 56, 104), "int4"),
    Network("octonion", (40, 72, 128), "int4"),
    Network("real", (11, 23, 46), "int8"),
)
"""In the order of the runs; the third is the reference, and the others but the first are about as wide as the limit allows
for trained weights (in a new network, vectors that are equal are stored once)."""


def run(network: Network, epochs: int, seed: int, runs: Path, root: Path | None) -> dict[str, Any]:
    """Train a network, or resume its training, export it and return its row."""
    folder = runs / f"{network} {epochs} {seed}".replace(" ", "-")
    options = RECIPE | {"data": rooted(RECIPE["data"], root), "algebra": network.algebra, "backbone": network.spec}
    options |= {"seed": seed, "quantize_aware": network.bits, "trainer": RECIPE["trainer"] | {"max_epochs": epochs}}
    if not (folder / "summary.json").exists():
        zoo.fit(verbose=False, **({"resume": str(folder)} if folder.exists() else options | {"run_dir": str(folder)}))
    with TemporaryDirectory() as scratch:
        words = "--format", "onnx", "--quantize", network.bits, "--to", f"{scratch}/exported"
        exported = result_of("export", str(folder), *words)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    row: dict[str, Any] = {"network": str(network), **network._asdict()}
    row |= {"epochs": epochs, "seed": seed, "weights": summary["parameters"]["total"], "bytes": exported["bytes"]}
    row |= {
        "validation_loss": summary["validation"]["value"],
        "accuracy": exported["metrics"]["accuracy"],
    }
    return (
        row
        | {"difference": exported["max_difference"], "seconds": summary["seconds"], "commit": machine.commit()}
        | machine.info()
    )


def read(path: Path) -> dict[str, Any]:
    """Read the results."""
    return machine.read(path) if path.exists() else {"rows": []}  # type: ignore[no-any-return]


def due(rows: list[dict[str, Any]], epochs: int, seeds: int) -> Iterator[tuple[Network, int]]:
    """Yield the runs that are not finished, one seed of all networks after the other."""
    done = {(row["network"], row["epochs"], row["seed"]) for row in rows}
    for seed in range(seeds):
        for network in NETWORKS:
            if (str(network), epochs, seed) not in done:
                yield network, seed


# --- report ---


class Result(NamedTuple):
    """The runs of a network with a number of epochs."""

    network: Network
    epochs: int
    weights: int
    bytes: int
    accuracy: Score
    validation_loss: float

    @property
    def text(self) -> str:
        """The accuracy with its interval."""
        interval = self.accuracy.interval
        return f"{self.accuracy.mean:.4f}" + ("" if interval is None else f" ± {interval:.4f}")


def results(rows: Iterable[Mapping[str, Any]]) -> list[Result]:
    """Collect the runs of each network, smallest file first."""
    found: dict[tuple[Network, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault((Network(row["algebra"], tuple(row["channels"]), row["bits"]), row["epochs"]), []).append(row)
    made = [
        Result(
            *key,
            weights=runs[0]["weights"],
            bytes=runs[0]["bytes"],
            accuracy=Score(tuple(row["accuracy"] for row in runs), TESTED),
            validation_loss=mean(row["validation_loss"] for row in runs),
        )
        for key, runs in found.items()
    ]
    return sorted(made, key=lambda result: (result.epochs, result.bytes))


def answer(found: list[Result]) -> str:
    """Compare the algebra and the real network that validation prefers, of at most half the bytes of the reference."""
    small = [result for result in found if 2 * result.bytes <= REFERENCE]
    reals = [result for result in small if result.network.algebra == "real"]
    others = [result for result in small if result.network.algebra != "real"]
    if not reals or not others:
        return f"No comparison at {REFERENCE // 2:,} bytes, half of MLPerf Tiny's file, is finished."
    one, other = (min(group, key=lambda result: result.validation_loss) for group in (others, reals))
    difference = compare(one.accuracy, other.accuracy)
    verdict = "one seed decides nothing" if difference is None else f"the algebra is {difference.verdict}"
    reached = [str(result.network) for result in (one, other) if result.accuracy.mean >= TARGET]
    return (
        f"Best by validation loss with at most {REFERENCE // 2:,} bytes, half of MLPerf Tiny's file: {one.network} "
        f"({one.text}) among algebras, {other.network} ({other.text}) among real networks; {verdict}. "
        f"Its target of {TARGET:.0%} is reached by {' and '.join(reached) or 'neither'}."
    )


def advice(found: list[Result]) -> list[str]:
    """Name the network for a device with `FLASH` bytes, by validation loss, if a file fits."""
    fitting = [result for result in found if result.bytes <= FLASH]
    best = min(fitting, key=lambda result: result.validation_loss, default=None)
    return [f"With {FLASH // 1000} kB of flash, take {best.network}: of the files that fit, it validates best."] if best else []


def section(found: list[Result]) -> str:
    """Write the answer, the table and the picture."""
    lines = [
        [str(result.network), f"{result.weights:,}", f"{result.bytes:,}", result.text, str(len(result.accuracy.values))]
        for result in found
    ]
    head = ["network", "weights", "bytes", "accuracy", "seeds"]
    picture = f"![Test accuracy on CIFAR-10 against bytes of the ONNX file](images/{PICTURE}.png)"
    return "\n".join([" ".join([answer(found), *advice(found)]), "", *Table("", head, lines).as_markdown(), "", picture])


def draw(found: list[Result]) -> Figure:
    """Draw the accuracy against the bytes of the file."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    algebras = list(dict.fromkeys(result.network.algebra for result in found))
    for (algebra, color), marker in zip(colors_of(algebras).items(), MARKERS, strict=False):
        for bits, face in (("int4", color), ("int8", "white")):
            points = [one for one in found if (one.network.algebra, one.network.bits) == (algebra, bits)]
            if points:
                style: dict[str, Any] = {"color": color, "marker": marker, "markerfacecolor": face, "linestyle": ""}
                style |= {
                    "yerr": [point.accuracy.interval or 0.0 for point in points],
                    "capsize": 3,
                    "label": f"{algebra}, {bits}",
                }
                axes.errorbar([one.bytes / 1000 for one in points], [one.accuracy.mean for one in points], **style)
    axes.axvline(REFERENCE / 2000, color="#888888", linewidth=0.8, linestyle=":")
    axes.plot(REFERENCE / 1000, TARGET, "*", color="black", markersize=11, label="MLPerf Tiny: size and target")
    axes.set_xlabel("kB of the ONNX file")
    axes.set_ylabel("test accuracy")
    axes.legend(frameon=False)
    plain_axes(axes)
    return figure


def report() -> None:
    """Write the part of the page and the picture."""
    found = results(read(RESULTS)["rows"])
    text = machine.replace_table(PAGE.read_text(encoding="utf-8"), BEGIN, section(found))
    PAGE.write_text(text, encoding="utf-8")
    (IMAGES / f"{PICTURE}.png").write_bytes(pictures(PICTURE, lambda: draw(found))[f"{PICTURE}.png"])


def main(argv: list[str] | None = None) -> None:
    """Run what is due and store it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="folder that contains a folder for each data set")
    parser.add_argument("--runs", type=Path, default=Path("runs/mlperf_tiny"), help="folder of the runs")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--report", action="store_true", help="only write the page")
    options = parser.parse_args(argv)
    runs = [] if options.report else due(read(options.out)["rows"], options.epochs, options.seeds)
    for network, seed in runs:
        row = run(network, options.epochs, seed, options.runs, options.root)
        result = f"{row['bytes']} bytes, accuracy {row['accuracy']:.4f}, {row['seconds']:.0f} s"
        print(f"{network}, seed {seed}: {result}", flush=True)
        machine.write_rows(options.out, {"recipe": RECIPE, "rows": [*read(options.out)["rows"], row]})
    if options.report:
        report()


if __name__ == "__main__":
    main()
