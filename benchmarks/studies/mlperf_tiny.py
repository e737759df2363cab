"""Measure accuracy against bytes on CIFAR-10: ``python -m benchmarks.studies.mlperf_tiny --root DATA --epochs 50 --seeds 1``.

Trains ResNet-8 of MLPerf Tiny (Banbury et al. 2021) and other widths of it, over the reals and over algebras, with the weights
that the exported file has (``zoo fit --quantize-aware``), with one recipe; exports the model of the best validation loss with
``zoo export --format onnx --quantize``, and measures its accuracy on the test split, which selects nothing. The reference file
of MLPerf Tiny has `REFERENCE` bytes; the other networks must have at most half of them.

Each finished run is a row of benchmarks/results/mlperf_tiny.json and is not run again; interrupted runs in ``--runs`` are
resumed.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import zoo
from benchmarks import machine
from benchmarks.studies.command import result_of
from benchmarks.studies.papers_rows import rooted

RESULTS = machine.RESULTS / "mlperf_tiny.json"
REFERENCE = 98_496
RECIPE: dict[str, Any] = {
    "data": "cifar10",
    "optimizer": {"name": "adamw", "lr": 0.032, "weight_decay": 0.01},
    "schedule": {"name": "cosine", "warmup": 0.25},
    "batch_size": 128,
    "trainer": {"precision": "bf16-mixed", "enable_progress_bar": False},
}
"""That of configs/frontier/cifar10.yaml, whose rate was the best of five for each of these algebras in short runs."""


class Network(NamedTuple):
    """A ResNet-8 with channels c, 2c and 4c in its stages."""

    algebra: str
    channels: int
    bits: str

    @property
    def spec(self) -> str:
        """The spec of the backbone."""
        return f"convnet/resnet-8(channels={[self.channels * factor for factor in (1, 2, 4)]})"

    def __str__(self) -> str:
        return f"{self.algebra}-{self.channels}-{self.bits}"


NETWORKS = (
    Network("phm-4", 24, "int4"),
    Network("real", 14, "int4"),
    Network("real", 16, "int8"),
    Network("octonion", 32, "int4"),
    Network("quaternion", 24, "int4"),
    Network("real", 11, "int8"),
)
"""In the order of the runs; real-16-int8 is the reference, and the other real ones are the widest of at most half its bytes."""


def run(network: Network, epochs: int, seed: int, runs: Path, root: Path | None) -> dict[str, Any]:
    """Train a network, or resume its training, export it and return its row."""
    folder = runs / f"{network}-{epochs}-{seed}"
    options = RECIPE | {"data": rooted(RECIPE["data"], root), "algebra": network.algebra, "backbone": network.spec}
    options |= {"seed": seed, "quantize_aware": network.bits, "trainer": RECIPE["trainer"] | {"max_epochs": epochs}}
    start = time.monotonic()
    if not (folder / "summary.json").exists():
        zoo.fit(verbose=False, **({"resume": str(folder)} if folder.exists() else options | {"run_dir": str(folder)}))
    seconds = round(time.monotonic() - start, 1)
    with TemporaryDirectory() as scratch:
        words = "--format", "onnx", "--quantize", network.bits, "--to", f"{scratch}/exported"
        exported = result_of("export", str(folder), *words)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    row = {"network": str(network), "algebra": network.algebra, "channels": network.channels, "bits": network.bits}
    row |= {"epochs": epochs, "seed": seed, "weights": summary["parameters"]["total"], "bytes": exported["bytes"]}
    row |= {"accuracy": exported["metrics"]["accuracy"], "float_accuracy": exported["float_metrics"]["accuracy"]}
    return row | {"difference": exported["max_difference"], "seconds": seconds, "commit": machine.commit()} | machine.info()


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


def main(argv: list[str] | None = None) -> None:
    """Run what is due and store it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="folder that contains a folder for each data set")
    parser.add_argument("--runs", type=Path, default=Path("runs/mlperf_tiny"), help="folder of the runs")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    for network, seed in due(read(options.out)["rows"], options.epochs, options.seeds):
        row = run(network, options.epochs, seed, options.runs, options.root)
        print(
            f"{network}, seed {seed}: {row['bytes']} bytes, accuracy {row['accuracy']:.4f}, {row['seconds']:.0f} s", flush=True
        )
        machine.write_rows(options.out, {"recipe": RECIPE, "rows": [*read(options.out)["rows"], row]})


if __name__ == "__main__":
    main()
