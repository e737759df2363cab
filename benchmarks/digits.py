"""Train the small vision transformer on digits over several algebras: ``python -m benchmarks.digits``.

Every run is ``zoo fit --backbone vit --algebra ALGEBRA --seed SEED`` with its defaults; real networks of the same sizes have
another width (``zoo.backbones.build.equal_size``). The test split is read once, by the epoch that validation chose. Writes
results/digits.json, keeping the rows of networks that are not measured again, and the table in README.md and docs/index.md.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import zoo
from benchmarks import machine, readme

ALGEBRAS = ("real", "complex", "quaternion", "octonion", "phm-4", "clifford(p=0, q=2)", "dual")
RESULTS = Path(__file__).parent / "results" / "digits.json"
SAME_SIZE = ("vit(dim=44)", "vit(dim=32)", "vit(dim=24)")
"""Real networks of the sizes of complex numbers, of quaternions and of octonions."""
STORED = ("algebra", "seed", "parameters", "metrics", "seconds", "epochs", "data_sha256")


def measure(networks: list[tuple[str, str]], seeds: int, trainer: dict[str, Any]) -> dict[str, Any]:
    """Train every network, (backbone, algebra), with every seed in a temporary folder and return the rows, seed by seed."""
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
    """Parse the flags, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algebras", nargs="*", default=list(ALGEBRAS))
    parser.add_argument("--real", nargs="*", default=list(SAME_SIZE), help="backbones of further real networks")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="fewer for a trial; the result is then not comparable")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    trainer = {} if options.epochs is None else {"max_epochs": options.epochs}
    networks = [("vit", algebra) for algebra in options.algebras] + [(backbone, "real") for backbone in options.real]
    results = measure(networks, options.seeds, trainer | {"enable_progress_bar": False})
    if options.out.exists():
        stored = json.loads(options.out.read_text(encoding="utf-8"))
        kept = [row for row in stored["rows"] if (row["backbone"], row["algebra"]) not in networks]
        results |= {"rows": kept + results["rows"]} | ({"machine": stored["machine"]} if kept else {})
    options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.out == RESULTS:
        readme.update()


if __name__ == "__main__":
    main()
