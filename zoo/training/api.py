"""The command line's verbs for Python."""

from typing import Any

from zoo.training.options import Fit, build


def fit(**options: Any) -> dict[str, Any]:
    """Train a network over an algebra; the same options as ``zoo fit``, the same run folder, the same summary.

    Args:
        options: See `zoo.training.options.Fit`; ``optimizer``, ``schedule`` and ``trainer`` are dicts, as in
            ``zoo.fit(backbone="vit", algebra="quaternion", trainer={"max_epochs": 5})``.

    Returns:
        The summary that is also written to summary.json.

    Raises:
        InputError: If a name, an option, the data or the folder is wrong.
    """
    from zoo.training.fit import fit as run
    from zoo.training.folds import cross_validate

    spec = getattr(options.get("algebra"), "spec", None)  # an Algebra that was made from a spec stands for it
    built = build(Fit, options | {"algebra": spec} if spec else options)
    return run(built) if built.folds is None else cross_validate(built)
