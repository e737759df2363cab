"""``zoo.fit`` and ``zoo.lottery``: the options of the commands by keyword, and for `fit` objects wherever it takes a spec."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.errors import InputError
from zoo.training.fit import fit as run
from zoo.training.folder import read_config
from zoo.training.objects import Objects, take_objects
from zoo.training.options import Fit, build, check_single
from zoo.training.processes import is_first_process
from zoo.training.summary import print_summary, quiet_libraries


def fit(*, verbose: bool = True, **options: Any) -> dict[str, Any]:
    """Train a network over an algebra; the same options as ``zoo fit``, the same run folder, the same summary.

    Args:
        verbose: Print progress, the table of results and the next commands, as the command line does.
        options: See `zoo.training.options.Fit`; ``optimizer``, ``schedule`` and ``trainer`` are dicts, as in
            ``zoo.fit(backbone="vit", algebra="quaternion", trainer={"max_epochs": 5})``. Objects stand for specs: ``algebra``
            may be an `Algebra`, ``backbone`` a network or a factory ``(layers, **info)``, ``data`` a data module and ``task``
            a `Task` or a subclass. A network is trained as it is, so ``algebra`` can be left out. What no spec names cannot
            be repeated from config.yaml, and `zoo.load` of the model needs it again.

    Returns:
        The summary that is also written to summary.json.

    Raises:
        InputError: If a name, an option, the data or the folder is wrong.
    """
    objects, named = take_objects(options)
    if isinstance(named.get("resume"), str | Path):
        check_single(str(named["resume"]))
    built = build(Fit, with_run(named))
    if not verbose:
        built.trainer = {"enable_progress_bar": False, **built.trainer}
    if built.folds is not None and objects != Objects():
        raise InputError("folds: every fold builds its own objects, so give specs; zoo.register makes a name for yours")
    with quiet_libraries():
        summary = run(built, objects)
    if verbose and is_first_process():
        print_summary(summary)
    return summary


def lottery(**options: Any) -> dict[str, Any]:
    """Train lottery tickets round after round; the same options as ``zoo lottery``, the same folder, the same results.

    Args:
        options: See `zoo_experiments.options.Lottery`; ``pruning`` is a dict, like those of `fit`. Give specs: every round
            builds its own objects, but callbacks and loggers that are objects see all rounds.

    Returns:
        What is also written to lottery.json, and ``run_dir``.

    Raises:
        InputError: If a name, an option, the data or the folder is wrong.
    """
    objects, named = take_objects(options)
    if objects != Objects():
        raise InputError("every round builds its own objects, so give specs; zoo.register makes a name for yours")
    with quiet_libraries():
        experiment = registry.load(registry.resolve("zoo.experiments", "lottery")[0])
        return experiment(with_run(named))  # type: ignore[no-any-return]


def with_run(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options, and for what was not given those of the run that `resume` names."""
    given = dict(options)
    if given.get("resume") in (None, "auto"):
        return given
    if given.get("run_dir") is not None:
        raise InputError("resume continues in the folder of the run: leave run_dir out", code="conflict")
    merged = read_config(Path(given["resume"]).expanduser())
    for name, value in given.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = {**merged[name], **value} if both else value
    return merged
