"""``zoo info``, ``bench``, ``report`` and ``verify``: the size and speed of a network, and what a trained model holds."""

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
    """The options of `zoo info`; those of a trained model are its own."""

    def split(self, argv: list[str]) -> Words:
        """Tell flags from positional arguments, and put the specs of a model in the place of flags."""
        words = super().split(argv)
        if not words.positional:
            return words
        if flags := sorted(map(flag_of, words.flags.keys() - {"json", "kernels", "help"})):
            raise InputError(f"zoo info {words.positional[0]}: the model knows its specs, leave {', '.join(flags)} out")
        config = trained_config(words.positional[0])
        keys = ("backbone", "algebra", "data", "scope", "embedding", "task")
        return words._replace(flags=words.flags | {key: config[key] for key in keys if config[key] is not None})


def trained_config(source: str) -> dict[str, Any]:
    """Return the configuration of a trained model whose network has a spec."""
    from zoo.checkpoint import read_config
    from zoo.hub.sources import locate

    config = read_config(locate(source))
    if config["backbone"] is None or config["algebra"] is None:
        raise InputError(f"'{source}' holds a network that no spec names: load it with zoo.load(FOLDER, module=...)")
    return config


def make_parser(command: str) -> Parser:
    """Return the parser of any of the four commands."""
    if command == "bench":
        parser = Parser(command, "Time a network against the same network over the reals.", Bench)
    elif command == "info":
        parser = InfoParser(command, "Count the parameters of a network and of the same network over the reals.", Info)
        parser.positional("run", f"{RUN}, in place of the specs", "?")
        parser.switch("--kernels", "list the kernels of the layers and their predicted times instead")
    elif command == "verify":
        parser = Parser(command, "Check all files of a trained model and its training checkpoints.")
        parser.positional("run", RUN)
    else:
        parser = Parser(command, "Make a report on a model or an experiment.")
        parser.positional("report", 'spec of the report, such as lottery or "frequencies(top=20)" (zoo list reports)')
        parser.positional("run", "a run (runs/NAME) or a model folder; for lottery, runs of zoo lottery")
        parser.positional("more", "more runs, for a report on several", "*")
        parser.value("--out", "new folder for the files, instead of the run folder; required for several runs")
    return parser.switch("--json", "print JSON")


def run(command: str, values: dict[str, Any]) -> int:
    """Count or time a network, report on a run, or check its files."""
    return {"info": info, "bench": bench, "report": report, "verify": verify}[command](values)


def bench(values: dict[str, Any]) -> int:
    """Time a network."""
    as_json = values.pop("json")
    options = build(Bench, values)
    if not (options.backbone and options.algebra):
        raise InputError("give --backbone and --algebra of a network", code="missing")
    from zoo.training.bench import bench, print_bench

    quiet()
    show(bench(options), as_json, print_bench)
    return 0


def info(values: dict[str, Any]) -> int:
    """Print the table of a network's parameters."""
    as_json, kernels, run = values.pop("json"), values.pop("kernels"), values.pop("run")
    if kernels:
        from zoo.training.bench import kernel_table, print_kernels

        quiet()
        show(kernel_table(Fit(**asdict(build(Info, values)))), as_json, print_kernels)
        return 0
    from zoo.report.parameters import layer_table, print_table
    from zoo.tasks import task_type
    from zoo.training.resolve import load_data, resolve

    quiet()
    options = resolve(Fit(**asdict(build(Info, values))))
    if run is None:
        sizes = load_data(options).info.model_kwargs
    else:  # as it was trained, without its data
        config = trained_config(run)
        info = config["info"] and task_type(config["task"])[0].info_type.from_dict(config["info"])
        sizes = info.model_kwargs if info else config["model_kwargs"]
    show(layer_table(options, sizes), as_json, print_table)
    return 0


def report(values: dict[str, Any]) -> int:
    """Make a report of a trained model or of several runs, print it and write its files into a folder."""
    runs, spec = [values["run"], *values["more"]], values["report"]
    entry, _ = registry.resolve("zoo.reports", spec)
    folder = Path(values["out"]).expanduser() if values["out"] is not None else None
    if folder is not None and (folder.exists() or not values["out"]):
        raise InputError(f"'{folder}' exists: choose another folder with --out, or remove it")
    from zoo.report import takes_runs

    several = takes_runs(registry.load(entry))
    if len(runs) > 1 and not several:
        raise InputError(f"{entry.name} reports on one model: give one run")
    if len(runs) > 1 and folder is None:
        raise InputError("the files of a report on several runs need a folder: --out FOLDER")
    if several:
        result, own, head = registry.create("zoo.reports", spec, runs), Path(runs[0]).expanduser() / "report", {"runs": runs}
    else:
        (result, own), head = of_model(spec, runs[0]), {"run": runs[0]}
    written = write_report(result, folder, own)
    text = f"{result.text}\nwritten to {folder or own}: {', '.join(result.files)}"
    show({**head, **result.values, **written}, values["json"], lambda _: print(text))
    return 0


def of_model(spec: str, run: str) -> tuple[Any, Path]:
    """Make a report of a trained model; return it, and the folder of its run."""
    from zoo.checkpoint import find
    from zoo.hub.sources import locate
    from zoo.inference.model import load

    quiet()
    path = locate(run)
    model_folder = find(path)
    # Not into the model folder: its manifest lists every file in it. Nor beside one that was pulled.
    target = path if model_folder != path else model_folder.parent if Path(run).expanduser() == path else Path("report")
    return registry.create("zoo.reports", spec, load(path)), target


def write_report(made: Any, folder: Path | None, own: Path) -> dict[str, str]:
    """Write the files of a report into a new folder or that of its run; return their paths."""
    from zoo.atomic import new_folder, write_bytes

    if folder is None:
        if own.is_file():
            raise InputError(f"'{own}' is a file: move it, or choose a folder with --out")
        own.mkdir(exist_ok=True)
        for name, content in made.files.items():
            write_bytes(own / name, content)
    else:
        with new_folder(folder) as part:
            for name, content in made.files.items():
                (part / name).write_bytes(content)
    endings = Counter(Path(name).suffix for name in made.files)
    keys = {name: Path(name).suffix.lstrip(".") if endings[Path(name).suffix] == 1 else name for name in made.files}
    return {key: str((folder or own) / name) for name, key in keys.items()}


def verify(values: dict[str, Any]) -> int:
    """Print the state of every file of a run or a model; exit 1 if one is damaged."""
    from zoo.hub.sources import locate
    from zoo.training.resume import verify as check

    quiet()
    rows = check(locate(values["run"]))
    width = max(len(row["file"]) for row in rows)
    show(rows, values["json"], lambda _: print("\n".join(f"{r['status']:<9} {r['file']:<{width}}  {r['note']}" for r in rows)))
    return 1 if any(row["status"] == "damaged" for row in rows) else 0
