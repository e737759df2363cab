"""The mean of a run's last weights, as a model of its own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from zoo.atomic import scratch_folder
from zoo.checkpoint import find, load_network, read_config, save
from zoo.checkpoint.manifest import read_json
from zoo.errors import InputError, check_rules
from zoo.inference.model import load
from zoo.training.checkpoint_io import RUN, checkpoint_files, kept_checkpoints
from zoo.training.fit import finite
from zoo.training.folder import read_config as read_run_config
from zoo.training.options import Average
from zoo.training.resume import network_state, read_own
from zoo.training.trainer import check_trainer

OWN = ("config.json", "model.safetensors", "README.md", "manifest.json")
"""What every model folder has; its other files are texts that the model needs."""
NETWORK = ("backbone", "algebra", "scope", "init", "data", "embedding")


def average(run: str | Path, options: Average) -> dict[str, Any]:
    """Write a model with the mean weights of the run's last checkpoints (Vaswani et al. 2017, section 6.1), and measure it."""
    devices = options.trainer.get("devices", 1)
    check_rules((str(devices) == "1", f"zoo average works on one device, not on --trainer.devices {devices}: leave it out"))
    config, model = read_config(run), find(run)
    folder = Path(run).expanduser() if model != Path(run).expanduser() else model.parent
    out = folder / "average" if options.out is None else Path(options.out).expanduser()
    if out.exists():
        raise InputError(f"'{out}' exists: choose another folder with --out, or remove it")
    paths = last(folder, options.last)
    net = load_network(run, config)
    net.load_state_dict(mean(paths, config, net.state_dict()))
    manifest, summary = read_json(model / "manifest.json"), read_json(folder / "summary.json")
    files = {name: (model / name).read_text(encoding="utf-8") for name in manifest["files"] if name not in OWN}
    splits = ("validation", "metrics") if manifest["metrics"] else ("validation",)
    before = measured(run, splits, options)  # anew: the run may have measured on other amounts of data
    with scratch_folder(out) as part:  # measured as everybody will: from its folder
        save(part / "model", net, config, summary, files)
        measurements = measured(part, splits, options)
    averaged = [path.name for path in paths]
    save(out, net, config, summary | measurements | {"averaged": averaged}, files)
    return {"folder": str(out), "averaged": averaged, **measurements, "before": before}


def measured(
    run: str | Path, splits: Sequence[str], options: Average, data: str | None = None
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


def mean(paths: Sequence[Path], config: Mapping[str, Any], net: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the mean of the networks in checkpoints, summed in double precision; whole numbers are the last ones."""
    total: dict[str, Tensor] = {}
    for path in paths:
        for name, value in weights(path, config, net).items():
            exact = value.double() if value.is_floating_point() else value
            total[name] = total[name] + exact if name in total and value.is_floating_point() else exact
    return {
        name: (value / len(paths) if value.is_floating_point() else value).to(net[name].dtype) for name, value in total.items()
    }


def weights(path: Path, config: Mapping[str, Any], net: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the state of the network in a checkpoint."""
    checkpoint = read_own(path, path.parents[1])
    theirs = checkpoint[RUN]
    for key in NETWORK:
        if theirs.get(key) != config.get(key):
            raise InputError(f"'{path}' is of another run: it has {key} = {theirs.get(key)}, not {config.get(key)}; remove it")
    state = network_state(checkpoint)
    shapes = {name: value.shape for name, value in state.items()}
    if shapes != {name: value.shape for name, value in net.items()}:
        raise InputError(f"'{path}' is of another network than the run's model; remove it")
    return state
