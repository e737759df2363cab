"""Train the small vision transformer on digits over several algebras: ``python -m benchmarks.studies.digits``.

Each run is ``zoo fit --backbone vit --algebra ALGEBRA --seed SEED`` with default options. Real networks with the same number of
weights have another width (``zoo.backbones.build.equal_size``). The checkpoint with the best validation result is tested once.
Writes results/digits.json, keeping the rows of other networks, and the table in README.md and docs/index.md.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import zoo
from benchmarks import machine
from benchmarks.studies import readme

ALGEBRAS = ("real", "complex", "quaternion", "octonion", "phm-4", "clifford(p=0, q=2)", "dual")
RESULTS = machine.RESULTS / "digits.json"
SAME_SIZE = ("vit(dim=44)", "vit(dim=32)", "vit(dim=24)")
"""Real networks with as many weights as those over the complex numbers, quaternions and octonions."""
STORED = ("algebra", "seed", "parameters", "metrics", "seconds", "epochs", "data_sha256")


def measure(networks: list[tuple[str, str]], seeds: int, trainer: dict[str, Any]) -> dict[str, Any]:
    """Train each network (backbone, algebra) with each seed in a temporary folder, and return the results by seed."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(seeds):
            for number, (backbone, algebra) in enumerate(networks):
                run_dir = f"{folder}/{seed}-{number}"
                summary = zoo.fit(backbone=backbone, algebra=algebra, seed=seed, run_dir=run_dir, trainer=trainer)
                date = machine.info()["date"]
                rows.append({"backbone": backbone, "date": date} | {key: summary[key] for key in STORED})
                print(
                    f"{backbone} {algebra} seed {seed}: {summary['metrics']['accuracy']:.4f} in {summary['seconds']:.0f} s",
                    flush=True,
                )
    return {"machine": machine.info(), "backbone": "vit", "data": "digits", "rows": rows}


def main(argv: list[str] | None = None) -> None:
    """Train the networks and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algebras", nargs="*", default=list(ALGEBRAS))
    parser.add_argument("--real", nargs="*", default=list(SAME_SIZE), help="backbones of additional real networks")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="number of epochs for a trial; the result is then not comparable")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    trainer = {} if options.epochs is None else {"max_epochs": options.epochs}
    networks = [("vit", algebra) for algebra in options.algebras] + [(backbone, "real") for backbone in options.real]
    results = measure(networks, options.seeds, trainer | {"enable_progress_bar": False})
    if options.out.exists():
        stored = json.loads(options.out.read_text(encoding="utf-8"))
        others = [row for row in stored["rows"] if (row["backbone"], row["algebra"]) not in networks]
        results |= {"rows": others + results["rows"]} | ({"machine": stored["machine"]} if others else {})
    machine.write(options.out, results)
    if options.out == RESULTS:
        readme.update()


if __name__ == "__main__":
    main()
