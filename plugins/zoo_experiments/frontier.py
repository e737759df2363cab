"""Frontiers of quality against weights: train networks at their best learning rates, with several seeds.

The file describes a sweep with an axis ``net`` of labels, an axis ``seed``, and an axis ``optimizer.lr`` unless the networks
set their own rates. Instead of the whole grid, three steps are trained:

1. every network at every rate with the first seed;
2. further rates, by factors of 2, while the lowest or highest rate of a network is the best one;
3. the other seeds at the best rate of each network.

If another rate is better than their mean, steps 2 and 3 follow for it. If the lowest or highest rate is better than one of the
runs at the best rate, the optimum may lie beyond it, and further rates follow on that side.

The best rate has the best mean validation metric over its seeds; the test split never chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from safetensors.torch import save_model
from torch.utils.flop_counter import FlopCounterMode
from zoo_export.export import export

from zoo.atomic import write_json
from zoo.checkpoint import ModelConfig
from zoo.checkpoint.manifest import read_json
from zoo.errors import InputError
from zoo.inference.model import Model
from zoo.nn import keep_matrices
from zoo.tasks import Task
from zoo.training.bench import batch_length, evaluation_step, first_batch, side_by_side, training_step
from zoo.training.folder import RUNS, file_name
from zoo.training.options import Fit
from zoo_experiments.grid import processes
from zoo_experiments.options import Experiment, Sweep
from zoo_experiments.sweep import ROWS, grid_points, known_rows, read_rows, sweep, sweep_points, well_formed

RATE = "optimizer.lr"
RESULT = "frontier.json"
MAX_EXTRA_RATES = 5
"""Maximum number of rates that a search adds to those of the file, per network."""
TURNS = 20
"""Timed steps of each network."""

Row = Mapping[str, Any]
Run = tuple[str, float | None, int]
"""Network, learning rate and seed."""


def frontier(
    values: Mapping[str, Any], file: str, options: Experiment | None = None, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Train the missing runs of a frontier and write frontier.json, which the report ``frontier`` reads.

    Rows of an existing frontier.json count as finished runs, even if their folders were removed. It is also written at an
    interruption. The costs of the networks are measured once, see `costs`. Arguments, result and errors are those of `sweep`,
    with rows of `summarize`.
    """
    options = options or Experiment()
    with well_formed(file):
        check_frontier(values, file)
        axes = {axis: values["axes"][axis] for axis in ("net", RATE, "seed") if axis in values["axes"]}  # the order in `name`
        axes["net"] = {str(label): net for label, net in axes["net"].items()}  # YAML reads 64 as a number
        values = {**values, "axes": axes}
        folder = Path(options.run_dir).expanduser() if options.run_dir else RUNS / f"frontier-{file_name(Path(file).stem)}"
        try:
            rates, seeds = [float(rate) for rate in axes.get(RATE, ())], [int(seed) for seed in axes["seed"]]
        except (TypeError, ValueError) as error:
            raise InputError(f"'{file}': the axes {RATE} and seed must be lists of numbers") from error
        check_stored(folder / RESULT, values)
        check_rows(folder, values, file)
    if (folder / RESULT).exists():
        (folder / ROWS).touch()  # without it, a sweep refuses a folder that is not empty
    failed = set[Run]()
    with ExitStack() as stack:
        stack.callback(write_result, folder, values)  # also at an interruption
        executor = None
        while due := next_runs(list(axes["net"]), rates, seeds, read_runs(folder), failed):
            known = {row["lr"] for row in read_runs(folder)} | {rate for _, rate, _ in due} | set(rates)
            grid = dict(axes) | ({RATE: sorted(rate for rate in known if rate)} if rates else {})
            wanted = Sweep(**vars(options) | {"run_dir": str(folder), "only": ",".join(name(run) for run in due)})
            executor = executor or stack.enter_context(processes(options))
            sweep({**values, "axes": grid}, file, wanted, say=say, executor=executor)
            failed |= set(due) - {run_of(row) for row in read_runs(folder)}
    if set(stored_costs(folder)) != set(axes["net"]):
        say(f"measuring the costs of {len(axes['net'])} networks")
        write_result(folder, values, costs(values, file))
    return {"run_dir": str(folder), "rows": read_runs(folder), "failed": sorted(name(run) for run in failed)}


def stored_costs(folder: Path) -> dict[str, Any]:
    """Return the costs in the frontier.json of a folder; none if there is no such file."""
    return dict(read_json(folder / RESULT).get("costs", {})) if (folder / RESULT).exists() else {}


def write_result(folder: Path, values: Mapping[str, object], measured: dict[str, Any] | None = None) -> None:
    """Write frontier.json with the finished runs of a folder and the costs of its networks, by default the stored ones."""
    if rows := read_runs(folder):
        write_json(folder / RESULT, {"config": values, "rows": rows, "costs": measured or stored_costs(folder)})


def check_stored(path: Path, values: Mapping[str, Any]) -> None:
    """Check that the rows of a frontier.json, which count as finished runs, have the options of the file."""
    stored = read_json(path)["config"] if path.exists() else values
    nets, stored_nets = values["axes"]["net"], stored["axes"]["net"]
    changed = [net for net in nets if net in stored_nets and nets[net] != stored_nets[net]]
    if changed or stored.get("base") != values.get("base"):
        what = f"other options for {changed[0]}" if changed else "another base"
        raise InputError(f"'{path}' has {what} than the file: choose another --run-dir", code="conflict")


def check_rows(folder: Path, values: Mapping[str, Any], file: str) -> None:
    """Check that the results of a folder belong to this frontier, at any learning rate."""
    tried = {float(row["axes"][RATE]) for row in read_rows(folder) if RATE in row["axes"]}
    axes = values["axes"] | ({RATE: sorted(tried)} if RATE in values["axes"] else {})
    known_rows(folder, list(grid_points({**values, "axes": axes}, file)))


def check_frontier(values: Mapping[str, Any], file: str) -> None:
    """Raise `InputError` if a sweep is not a frontier."""
    axes = values.get("axes") or {}
    nets = axes.get("net")
    if not isinstance(nets, Mapping) or not set(axes) <= {"net", RATE, "seed"} or axes.get("seed", []) == []:
        raise InputError(f"'{file}': a frontier has the axes net (with labels), {RATE} and seed", code="missing")
    if values.get("exclude"):
        raise InputError(f"'{file}': a frontier trains every net with every seed: leave exclude out", code="unsupported")
    algebra = (values.get("base") or {}).get("algebra")
    if all((options or {}).get("algebra", algebra) != "real" for options in nets.values()):
        raise InputError(f"'{file}': no network of the axis net has algebra: real to compare with", code="missing")


def name(run: Run) -> str:
    """Return the name of a run in its sweep."""
    net, rate, seed = run
    return file_name("-".join([net, *([f"lr{rate}"] if rate else []), f"seed{seed}"]))


def read_runs(folder: Path) -> list[dict[str, Any]]:
    """Read the finished runs of a folder: those of its sweep, and those that its frontier.json already has."""
    stored, rows = folder / RESULT, [summarize(row) for row in read_rows(folder)]
    known = {run_of(row) for row in rows}
    return rows + [row for row in (read_json(stored)["rows"] if stored.exists() else ()) if run_of(row) not in known]


def run_of(row: Row) -> Run:
    """Return the run of a row."""
    return row["net"], row["lr"], row["seed"]


def summarize(row: Row) -> dict[str, Any]:
    """Return what a frontier needs from the row of a run."""
    rate, validation = row["axes"].get(RATE), row.get("validation")
    if not validation or not row["metrics"]:
        text = f"run {row['name']} has no {'test' if validation else 'validation'} metrics, which a frontier needs"
        raise InputError(f"{text}: choose data with both splits", code="missing")
    metric = validation["metric"] if validation["metric"] in row["metrics"] else next(iter(row["metrics"]))
    return {
        "net": row["axes"]["net"],
        "algebra": row["options"]["algebra"],
        "lr": None if rate is None else float(rate),
        "seed": int(row["axes"]["seed"]),
        "weights": row["parameters"]["total"],
        "embedding": row["parameters"].get("embedding", 0),
        "validation": validation["value"],
        "mode": validation["mode"],
        "metric": metric,
        "test": row["metrics"][metric],
        "seconds": row["seconds"],
    }


def next_runs(
    nets: Sequence[str], rates: Sequence[float], seeds: Sequence[int], rows: Sequence[Row], failed: set[Run]
) -> list[Run]:
    """Return the missing runs of the next step of each network, see the top of this file; the first seed searches the rates.

    If the networks set their own rates (`rates` is empty), all runs are one step. A rate with a failed run, for example a
    diverged one, is not the best.
    """
    done = {run_of(row) for row in rows} | failed
    first, *others = seeds
    if not rates:
        return [run for seed in seeds for net in nets if (run := (net, None, seed)) not in done]
    excluded, due = {(net, rate) for net, rate, _ in failed}, list[Run]()
    for net in nets:
        tried = {rate for other, rate, seed in done if (other, seed) == (net, first) and rate is not None}
        finished = [row for row in rows if row["net"] == net and (net, row["lr"]) not in excluded]
        losses, best = validation_losses(finished), best_rate(finished)
        if not tried.issuperset(rates):
            runs = [(net, rate, first) for rate in rates]
        elif best is None:
            continue
        else:
            ends = {min(tried): min(tried) / 2, max(tried): max(tried) * 2}
            runs = [(net, ends[end], first) for end in ends if end in losses and mean(losses[end]) <= max(losses[best])]
            if not runs or len(tried) >= len(rates) + MAX_EXTRA_RATES:
                runs = [(net, best, seed) for seed in others]
        due += [run for run in runs if run not in done]
    return due


def best_rate(rows: Iterable[Row]) -> float | None:
    """Return the learning rate of one network with the best mean validation metric over its seeds; None without runs."""
    losses = validation_losses(rows)
    return min(losses, key=lambda rate: mean(losses[rate]), default=None)


def validation_losses(rows: Iterable[Row]) -> dict[float, list[float]]:
    """Return the validation metrics of one network by learning rate, lowest rate first; lower is better, also for accuracy."""
    losses: dict[float, list[float]] = {}
    for row in sorted(rows, key=lambda row: row["lr"] or 0.0):
        if row["validation"] is not None:
            losses.setdefault(row["lr"], []).append(-row["validation"] if row["mode"] == "max" else row["validation"])
    return losses


# --- costs ---


def costs(values: Mapping[str, Any], file: str) -> dict[str, dict[str, float]]:
    """Measure the networks of a frontier in turns in one process, on the first batch of their training data.

    Returns:
        For each network ``bytes`` of its weights file, ``int8_bytes`` of its ONNX file with 8-bit weights if it can be
        exported, ``multiply_adds`` of the forward pass of one example, and the medians ``step_ms`` (forward, backward and
        AdamW) and ``inference_ms`` (with `zoo.keep_matrices`) of a batch.
    """
    points = {point.axes["net"]: point for point in reversed(sweep_points(values, file))}
    tasks = {net: first_batch(points[net].fit) for net in values["axes"]["net"]}
    steps = side_by_side({net: training_step(task, batch) for net, (task, batch) in tasks.items()}, TURNS)
    measured = {}
    with ExitStack() as stack:
        for task, _ in tasks.values():
            stack.enter_context(keep_matrices(task.net))
        inferences = side_by_side({net: evaluation_step(task, batch) for net, (task, batch) in tasks.items()}, TURNS)
        for net, (task, batch) in tasks.items():
            task.requires_grad_(False)  # FlopCounterMode cannot hook parameters with gradients in inference mode
            with FlopCounterMode(display=False) as counter:
                evaluation_step(task, batch)()
            adds = counter.get_total_flops() // 2 // batch_length(batch)
            with TemporaryDirectory() as folder:
                save_model(task.net, f"{folder}/model.safetensors")
                size = Path(folder, "model.safetensors").stat().st_size
            times = {"step_ms": steps[net]["ms"], "inference_ms": inferences[net]["ms"]}
            exported = int8_bytes(task, points[net].fit)
            measured[net] = {"bytes": size, "multiply_adds": adds, **times, **({"int8_bytes": exported} if exported else {})}
    return measured


def int8_bytes(task: Task, options: Fit) -> int | None:
    """Return the bytes of the ONNX file of a network with 8-bit weights; None if it, or this installation, has no such file."""
    model = Model(task.net, ModelConfig(backbone=options.backbone, algebra=options.algebra), task)
    with TemporaryDirectory() as folder:
        try:
            written = export(model, Path(folder, "int8"), "onnx", quantize="int8", measure=False)
        except InputError:
            return None
    return int(written["bytes"])
