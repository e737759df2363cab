"""``zoo.fit``: the options of ``zoo fit`` by keyword, and Python objects wherever an option takes a spec."""

from typing import Any

from zoo.errors import InputError
from zoo.training.fit import fit as run
from zoo.training.folds import cross_validate
from zoo.training.objects import Objects, take_objects
from zoo.training.options import Fit, build


def fit(**options: Any) -> dict[str, Any]:
    """Train a network over an algebra; the same options as ``zoo fit``, the same run folder, the same summary.

    Args:
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
    built = build(Fit, named)
    if built.folds is None:
        return run(built, objects)
    if objects != Objects():
        raise InputError("folds: every fold builds its own objects, so give specs; zoo.register makes a name for yours")
    return cross_validate(built)
