"""The mean of a run's last weights, as a model of its own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from zoo.atomic import scratch_folder
from zoo.checkpoint import find, load_network, read_config, save
from zoo.checkpoint.folder import model_files
from zoo.checkpoint.manifest import read_json
from zoo.errors import InputError, check_rules
from zoo.inference.model import load
from zoo.training.checkpoint_io import checkpoint_files, kept_checkpoints
from zoo.training.fit import finite
from zoo.training.folder import read_config as read_run_config
from zoo.training.options import Average, Measuring
from zoo.training.resume import network_state, read_own
from zoo.training.trainer import check_trainer


def average(run: str | Path, options: Average) -> dict[str, Any]:
    """Write a model with the mean weights of the run's last checkpoints (Vaswani et al. 2017, section 6.1), and measure it."""
    check_one_device("zoo average", options.trainer)
    config, model = read_config(run), find(run)
    folder = Path(run).expanduser() if model != Path(run).expanduser() else model.parent
    out = new_path(folder / "average" if options.out is None else options.out, "--out")
    paths = last(folder, options.last)
    net = load_network(run, config)
    net.load_state_dict(mean(paths, net.state_dict()))
    manifest, summary = read_json(model / "manifest.json"), read_json(folder / "summary.json")
    files = model_files(model)
    splits = ("validation", "metrics") if manifest["metrics"] else ("validation",)
    before = measured(run, splits, options)  # anew: the run may have measured on other amounts of data
    with scratch_folder(out) as part:  # measured as everybody will: from its folder
        save(part / "model", net, config, summary, files)
        measurements = measured(part, splits, options)
    averaged = [path.name for path in paths]
    save(out, net, config, summary | measurements | {"averaged": averaged}, files)
    return {"folder": str(out), "averaged": averaged, **measurements, "before": before}


def check_one_device(command: str, trainer: Mapping[str, Any]) -> None:
    """Check that the Trainer's arguments ask for one device."""
    devices = trainer.get("devices", 1)
    check_rules((str(devices) == "1", f"{command} works on one device, not on --trainer.devices {devices}: leave it out"))


def new_path(path: str | Path, flag: str) -> Path:
    """Return the path of a new file or folder after checking that it does not exist."""
    path = Path(path).expanduser()
    check_rules((not path.exists(), f"'{path}' exists: choose another folder with {flag}, or remove it"), code="conflict")
    return path


def measured(
    run: str | Path, splits: Sequence[str], options: Measuring, data: str | None = None
) -> dict[str, dict[str, float | None]]:
    """Return the metrics of a model on the validation and test (``metrics``) splits of its data, or of others.

    A split that is not asked for is empty.
    """
    result: dict[str, dict[str, float | None]] = {"validation": {}, "metrics": {}}
    for split in splits:
        stage = "val" if split == "validation" else "test"
        sizes = {"batch_size": options.batch_size, "num_workers": options.num_workers}
        trainer = check_trainer({"devices": 1} | options.trainer)
        metrics = load(run, device="auto").evaluate(data, stage, trainer=trainer, **sizes)
        result[split] = {name: finite(value) for name, value in metrics.items()}
    return result


def last(folder: Path, count: int) -> list[Path]:
    """Return the last so many checkpoints that a run has kept, the oldest first."""
    paths = kept_checkpoints(checkpoint_files(folder / "checkpoints"))[-read_run_config(folder).get("keep", 1) :]
    if count < 1:
        raise InputError(f"--last {count}: use a whole number from 1")
    if len(paths) < count:
        some = f", or take --last {len(paths)}" if len(paths) > 1 else ""
        raise InputError(
            f"{folder} has {len(paths)} kept checkpoints, not {count}: train with --keep {max(count, 2)} and as many epochs or "
            f"validations, or --checkpoint-every 500steps{some}"
        )
    return paths[-count:]


def mean(paths: Sequence[Path], net: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the mean of the networks in checkpoints, summed in double precision; whole numbers are the last ones."""
    total: dict[str, Tensor] = {}
    for path in paths:
        for name, value in weights(path, net).items():
            exact = value.double() if value.is_floating_point() else value
            total[name] = total[name] + exact if name in total and value.is_floating_point() else exact
    return {
        name: (value / len(paths) if value.is_floating_point() else value).to(net[name].dtype) for name, value in total.items()
    }


def weights(path: Path, net: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the state of the network in a checkpoint."""
    state = network_state(read_own(path, path.parents[1]))
    if {name: value.shape for name, value in state.items()} != {name: value.shape for name, value in net.items()}:
        raise InputError(f"'{path}' is of another network than the run's model; remove it", code="mismatch")
    return state
