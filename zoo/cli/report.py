"""``zoo info``, ``bench``, ``report`` and ``verify``: sizes and speed of networks, reports and checks of trained models."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo import registry
from zoo.cli.result import Result
from zoo.errors import InputError
from zoo.training.options import Bench, Fit, Info

if TYPE_CHECKING:
    from zoo.checkpoint import ModelConfig


def info(run: str | None = None, *, options: Info, kernels: bool = False) -> Result:
    """Count the parameters of a network and of the same network over the reals.

    Args:
        run: A run (runs/NAME), a model folder, a name of zoo list checkpoints or owner/name, instead of specs.
        kernels: List the kernels of the layers and their predicted times instead.
    """
    config = None if run is None else _trained_config(run, options)
    if config is not None:
        options = replace(
            options, **{key: value for key in asdict(options) if (value := getattr(config, key, None)) is not None}
        )
    network = Fit(**asdict(_with_names("info", options)))
    if kernels:
        from zoo.training.bench import kernel_table, print_kernels

        return Result(kernel_table(network), print_kernels)
    from zoo.reports import layer_table, print_table
    from zoo.tasks import task_type
    from zoo.training.resolve import load_data, resolve

    network = resolve(network)
    if config is None:
        sizes = load_data(network).info.model_kwargs
    else:  # the sizes at training, without loading its data
        facts = config.info and task_type(str(config.task))[0].info_type.from_dict(config.info)
        sizes = facts.model_kwargs if facts else config.model_kwargs or {}
    return Result(layer_table(network, sizes), print_table)


def _trained_config(source: str, options: Info) -> "ModelConfig":
    """Return the configuration of a trained model that has a spec; no option may be set."""
    from zoo.checkpoint import read_config
    from zoo.hub.sources import locate

    if options != Info():
        use = f"leave the flags out, or for a network that is not trained use zoo info --backbone '{source}'"
        raise InputError(f"zoo info {source}: a trained model has its own specs: {use}", code="conflict")
    config = read_config(locate(source))
    if config.backbone is None or config.algebra is None:
        raise InputError(f"'{source}' contains a network without a spec: use zoo.load(FOLDER, module=...)")
    return config


def _with_names(command: str, options: Info) -> Info:
    if missing := [f"--{name}" for name in ("backbone", "algebra") if not getattr(options, name)]:
        raise InputError(f"missing {', '.join(missing)} (see zoo {command} --help)", code="missing")
    return options


def bench(*, options: Bench) -> Result:
    """Time a network against the same network over the reals."""
    _with_names("bench", options)
    from zoo.training.bench import bench, print_bench

    return Result(bench(options), print_bench)


def report(report: str, run: str, more: Sequence[str] = (), *, out: str | None = None) -> Result:
    """Make a report on a model or an experiment.

    Args:
        report: Spec of the report, such as lottery or "frequencies(top=20)" (zoo list reports).
        run: A run (runs/NAME) or a model folder; for lottery, runs of zoo lottery.
        more: More runs, for a report on several runs.
        out: New folder for the files, instead of the run folder; required for several runs.
    """
    runs = [run, *more]
    entry, _ = registry.resolve("zoo.reports", report)
    folder = Path(out).expanduser() if out is not None else None
    if folder is not None and (folder.exists() or not out):
        raise InputError(f"'{folder}' exists: choose another folder with --out, or delete it", code="conflict")
    from zoo.reports import takes_runs

    several = takes_runs(registry.load(entry))
    if len(runs) > 1 and not several:
        raise InputError(f"{entry.name} is a report on one model, got {len(runs)} runs")
    if len(runs) > 1 and folder is None:
        raise InputError("missing --out: use --out FOLDER for a report on several runs", code="missing")
    head: dict[str, Any] = {"runs": runs} if several else {"run": run}
    if several:
        result, default = registry.create("zoo.reports", report, runs), Path(run).expanduser() / "report"
    else:
        result, default = _report_on_model(report, run)
    written = write_report(result, folder, default)
    text = f"{result.text}\nwritten to {folder or default}: {', '.join(result.files)}"
    return Result({**head, **result.values, **written}, text)


def _report_on_model(spec: str, run: str) -> tuple[Any, Path]:
    """Create a report on a trained model; return it and the default folder of its files."""
    from zoo.checkpoint import find
    from zoo.hub.sources import locate
    from zoo.inference.model import load

    path = locate(run)
    model_folder = find(path)
    # Neither into the model folder, whose manifest lists all files, nor next to a model in the cache.
    target = path if model_folder != path else model_folder.parent if Path(run).expanduser() == path else Path("report")
    return registry.create("zoo.reports", spec, load(path)), target


def write_report(result: Any, folder: Path | None, default: Path) -> dict[str, str]:
    """Write the files of a report to a new folder, or to the default folder, which may exist; return their paths."""
    from zoo.atomic import new_folder, write_bytes

    if folder is None:
        if default.is_file():
            raise InputError(f"'{default}' is a file: move it, or choose a folder with --out")
        default.mkdir(exist_ok=True)
        for name, content in result.files.items():
            write_bytes(default / name, content)
    else:
        with new_folder(folder) as part:
            for name, content in result.files.items():
                (part / name).write_bytes(content)
    suffixes = Counter(Path(name).suffix for name in result.files)
    keys = {name: Path(name).suffix.lstrip(".") if suffixes[Path(name).suffix] == 1 else name for name in result.files}
    return {key: str((folder or default) / name) for name, key in keys.items()}


def verify(run: str) -> Result:
    """Check all files of a trained model and its training checkpoints."""
    from zoo.hub.sources import locate
    from zoo.training.runs import verify

    rows = verify(locate(run))
    width = max(len(row["file"]) for row in rows)
    text = "\n".join(f"{row['status']:<9} {row['file']:<{width}}  {row['note']}" for row in rows)
    return Result(rows, text, 1 if any(row["status"] == "damaged" for row in rows) else 0)
