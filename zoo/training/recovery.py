"""The model of a run that ended before it could write one."""

from pathlib import Path
from typing import Any

from zoo.backbones.build import backbone, untrained
from zoo.checkpoint import save
from zoo.errors import InputError
from zoo.training.checkpoints import model_of, network_state, read_checkpoint
from zoo.training.folder import hold


def recover(run: str | Path) -> dict[str, Any]:
    """Write the model folder of a run from checkpoints/best.ckpt, without its data; the model is not tested.

    Args:
        run: The folder of a run that was killed, crashed or ran out of memory or disk.

    Returns:
        ``folder`` of the model, ``checkpoint`` and ``epoch`` (from 1) that it was made of.

    Raises:
        InputError: If the run has a model or no best checkpoint, is still under way, or was made of Python objects that
            cannot be rebuilt.
    """
    folder = Path(run).expanduser()
    if not folder.is_dir():
        raise InputError(f"there is no run folder '{folder}'")
    if (folder / "model").exists():
        raise InputError(f"'{folder}' has its model: there is nothing to recover")
    best = folder / "checkpoints" / "best.ckpt"
    if not best.is_file():
        raise InputError(f"'{folder}' has no checkpoints/best.ckpt: no epoch of it was finished")
    with hold(folder):
        checkpoint = read_checkpoint(best)
        model = model_of(checkpoint)
        if not model:
            raise InputError(f"'{best}' is of Python objects that no spec names: build the network and load its state_dict")
        config = model["config"]
        net = backbone(untrained(config["backbone"]), config["algebra"], **model["network"])
        net.load_state_dict(network_state(checkpoint))
        save(folder / "model", net, config, config | {"metrics": {}, "epochs": checkpoint["epoch"] + 1}, model["files"])
    return {"folder": str(folder / "model"), "checkpoint": str(best), "epoch": checkpoint["epoch"] + 1}
