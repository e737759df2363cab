"""``zoo.fit`` and ``zoo.lottery``: the options of the commands as keywords; `fit` also accepts objects in place of specs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.errors import InputError
from zoo.training.fit import fit as run
from zoo.training.folder import read_run_config
from zoo.training.objects import Objects, take_objects
from zoo.training.options import Fit, build
from zoo.training.processes import is_first_process
from zoo.training.summary import print_summary, quiet_libraries


def fit(*, verbose: bool = True, **options: Any) -> dict[str, Any]:
    """Train a network over an algebra, with the options, run folder and summary of ``zoo fit``.

    Args:
        verbose: Print progress, the table of results and the next commands, as the command line does.
        options: See `zoo.training.options.Fit`; ``optimizer``, ``schedule`` and ``trainer`` are dicts, as in
            ``zoo.fit(backbone="vit", algebra="quaternion", trainer={"max_epochs": 5})``. Objects may replace specs:
            ``algebra`` may be an `Algebra`, ``backbone`` a network or a factory ``(layers, **info)``, ``data`` a data module
            and ``task`` a `Task` or a subclass. A network is trained as it is, so ``algebra`` can be left out. config.yaml
            cannot repeat a run with objects that have no spec, and `zoo.load` of the model needs them again.

    Returns:
        The content of summary.json.

    Raises:
        InputError: If a name, an option, the data or the folder is wrong.
    """
    objects, named = take_objects(options)
    built = build(Fit, merge_resumed(named))
    if not verbose:
        built.trainer = {"enable_progress_bar": False, **built.trainer}
    if built.folds is not None and objects != Objects():
        raise InputError("folds: use specs instead of objects, because every fold builds its own (zoo.register gives a name)")
    with quiet_libraries():
        summary = run(built, objects)
    if verbose and is_first_process():
        print_summary(summary)
    return summary


def lottery(**options: Any) -> dict[str, Any]:
    """Train rounds of lottery tickets, with the options, folder and results of ``zoo lottery``.

    Args:
        options: See `zoo_experiments.options.Lottery`; ``pruning`` is a dict, like those of `fit`. Only callbacks and
            loggers may be objects, and they are shared by all rounds; everything else is a spec.

    Returns:
        The content of lottery.json, and ``run_dir``.

    Raises:
        InputError: If a name, an option, the data or the folder is wrong.
    """
    objects, named = take_objects(options)
    if objects != Objects():
        raise InputError("use specs instead of objects, because every round builds its own (zoo.register gives a name)")
    with quiet_libraries():
        experiment = registry.load(registry.resolve("zoo.experiments", "lottery")[0])
        return experiment(merge_resumed(named))  # type: ignore[no-any-return]


def merge_resumed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Merge options into those of the run that ``resume`` names, if it names one."""
    if options.get("resume") in (None, "auto"):
        return dict(options)
    if options.get("run_dir") is not None:
        raise InputError("run_dir and resume exclude each other: a run resumes in its own folder", code="conflict")
    merged = read_run_config(Path(options["resume"]).expanduser())
    for name, value in options.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = {**merged[name], **value} if both else value
    return merged
