"""``zoo info``, ``bench``, ``report`` and ``verify``: sizes and speed of networks, reports and checks of trained models."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.cli.commands import quiet, show
from zoo.cli.models import RUN
from zoo.cli.parser import Parser, Words, flag_of
from zoo.errors import InputError
from zoo.training.options import Bench, Fit, Info, build


class InfoParser(Parser):
    """Parser of ``zoo info``; the specs of a trained model replace flags."""

    def split(self, argv: list[str]) -> Words:
        """Split the words, and add the specs of a trained model as flags."""
        words = super().split(argv)
        if not words.positional:
            return words
        if flags := sorted(map(flag_of, words.flags.keys() - {"json", "kernels", "help"})):
            raise InputError(f"zoo info {words.positional[0]}: the specs are those of the model, remove {', '.join(flags)}")
        config = trained_config(words.positional[0])
        keys = ("backbone", "algebra", "data", "scope", "embedding", "task")
        return words._replace(flags=words.flags | {key: config[key] for key in keys if config[key] is not None})


def trained_config(source: str) -> dict[str, Any]:
    """Return the configuration of a trained model that has a spec."""
    from zoo.checkpoint import read_config
    from zoo.hub.sources import locate

    config = read_config(locate(source))
    if config["backbone"] is None or config["algebra"] is None:
        raise InputError(f"'{source}' contains a network without a spec: use zoo.load(FOLDER, module=...)")
    return config


def make_parser(command: str) -> Parser:
    """Return the parser of a command."""
    if command == "bench":
        parser = Parser(command, "Time a network against the same network over the reals.", Bench)
    elif command == "info":
        parser = InfoParser(command, "Count the parameters of a network and of the same network over the reals.", Info)
        parser.positional("run", f"{RUN}, instead of specs", "?")
        parser.switch("--kernels", "list the kernels of the layers and their predicted times instead")
    elif command == "verify":
        parser = Parser(command, "Check all files of a trained model and its training checkpoints.")
        parser.positional("run", RUN)
    else:
        parser = Parser(command, "Make a report on a model or an experiment.")
        parser.positional("report", 'spec of the report, such as lottery or "frequencies(top=20)" (zoo list reports)')
        parser.positional("run", "a run (runs/NAME) or a model folder; for lottery, runs of zoo lottery")
        parser.positional("more", "more runs, for a report on several runs", "*")
        parser.value("--out", "new folder for the files, instead of the run folder; required for several runs")
    return parser.switch("--json", "print JSON")


def run(command: str, values: dict[str, Any]) -> int:
    """Run a command."""
    return {"info": info, "bench": bench, "report": report, "verify": verify}[command](values)


def bench(values: dict[str, Any]) -> int:
    """Time a network against its real twin, and print the table."""
    as_json = values.pop("json")
    options = build(Bench, values)
    if not (options.backbone and options.algebra):
        raise InputError("missing --backbone or --algebra (see zoo bench --help)", code="missing")
    from zoo.training.bench import bench, print_bench

    quiet()
    return show(bench(options), as_json, print_bench)


def info(values: dict[str, Any]) -> int:
    """Print the parameters or kernels of each layer."""
    as_json, kernels, run = values.pop("json"), values.pop("kernels"), values.pop("run")
    options = Fit(**asdict(build(Info, values)))
    if kernels:
        from zoo.training.bench import kernel_table, print_kernels

        quiet()
        return show(kernel_table(options), as_json, print_kernels)
    from zoo.report.parameters import layer_table, print_table
    from zoo.tasks import task_type
    from zoo.training.resolve import load_data, resolve

    quiet()
    options = resolve(options)
    if run is None:
        sizes = load_data(options).info.model_kwargs
    else:  # the sizes at training, without loading its data
        config = trained_config(run)
        info = config["info"] and task_type(config["task"])[0].info_type.from_dict(config["info"])
        sizes = info.model_kwargs if info else config["model_kwargs"]
    return show(layer_table(options, sizes), as_json, print_table)


def report(values: dict[str, Any]) -> int:
    """Create a report on a model or on several runs, print it and write its files."""
    runs, spec = [values["run"], *values["more"]], values["report"]
    entry, _ = registry.resolve("zoo.reports", spec)
    folder = Path(values["out"]).expanduser() if values["out"] is not None else None
    if folder is not None and (folder.exists() or not values["out"]):
        raise InputError(f"'{folder}' exists: choose another folder with --out, or delete it")
    from zoo.report import takes_runs

    several = takes_runs(registry.load(entry))
    if len(runs) > 1 and not several:
        raise InputError(f"{entry.name} is a report on one model, got {len(runs)} runs")
    if len(runs) > 1 and folder is None:
        raise InputError("missing --out: use --out FOLDER for a report on several runs")
    if several:
        result, default = registry.create("zoo.reports", spec, runs), Path(runs[0]).expanduser() / "report"
    else:
        result, default = report_on_model(spec, runs[0])
    head: dict[str, Any] = {"runs": runs} if several else {"run": runs[0]}
    written = write_report(result, folder, default)
    text = f"{result.text}\nwritten to {folder or default}: {', '.join(result.files)}"
    return show({**head, **result.values, **written}, values["json"], lambda _: print(text))


def report_on_model(spec: str, run: str) -> tuple[Any, Path]:
    """Create a report on a trained model; return it and the default folder of its files."""
    from zoo.checkpoint import find
    from zoo.hub.sources import locate
    from zoo.inference.model import load

    quiet()
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


def verify(values: dict[str, Any]) -> int:
    """Print the status of every file of a run or a model; exit 1 if a file is damaged."""
    from zoo.hub.sources import locate
    from zoo.training.resume import verify as check

    quiet()
    rows = check(locate(values["run"]))
    width = max(len(row["file"]) for row in rows)
    show(rows, values["json"], lambda _: print("\n".join(f"{r['status']:<9} {r['file']:<{width}}  {r['note']}" for r in rows)))
    return 1 if any(row["status"] == "damaged" for row in rows) else 0
