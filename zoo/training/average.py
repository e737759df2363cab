"""Average the weights of a run's last checkpoints and save the result as a model folder."""

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
from zoo.training.checkpoint_io import checkpoint_files, kept_checkpoints, read_checkpoint
from zoo.training.fit import finite
from zoo.training.folder import read_run_config
from zoo.training.options import Average, Measuring
from zoo.training.resume import network_state
from zoo.training.trainer import check_trainer


def average(run: str | Path, options: Average) -> dict[str, Any]:
    """Save and measure a model with the mean weights of a run's last checkpoints (Vaswani et al. 2017, section 6.1)."""
    config, model = read_config(run), find(run)
    folder = model.parent
    out = new_path(folder / "average" if options.out is None else options.out, "--out")
    paths = last_checkpoints(folder, options.last)
    net = load_network(run, config)
    net.load_state_dict(mean(paths, net.state_dict()))
    manifest, summary = read_json(model / "manifest.json"), read_json(folder / "summary.json")
    files = model_files(model)
    splits = ("validation", "metrics") if manifest["metrics"] else ("validation",)
    before = measure_splits(run, splits, options)  # again, because the run may have limited its batches
    with scratch_folder(out) as temporary:
        save(temporary / "model", net, config, summary, files)
        measurements = measure_splits(temporary, splits, options)
    averaged = [path.name for path in paths]
    save(out, net, config, summary | measurements | {"averaged": averaged}, files)
    return {"folder": str(out), "averaged": averaged, **measurements, "before": before}


def new_path(path: str | Path, flag: str) -> Path:
    """Return the path of a new file or folder after checking that it does not exist."""
    path = Path(path).expanduser()
    check_rules((not path.exists(), f"'{path}' already exists: use another {flag}, or delete it"), code="conflict")
    return path


def measure_splits(
    run: str | Path, splits: Sequence[str], options: Measuring, data: str | None = None
) -> dict[str, dict[str, float | None]]:
    """Evaluate a model on the given splits of its data, or of other data.

    Returns:
        The metrics on the ``validation`` split and on the test split (``metrics``); empty for a split that is not given.
    """
    result: dict[str, dict[str, float | None]] = {"validation": {}, "metrics": {}}
    for split in splits:
        stage = "val" if split == "validation" else "test"
        sizes = {"batch_size": options.batch_size, "num_workers": options.num_workers}
        trainer = check_trainer(options.trainer | {"devices": 1})
        metrics = load(run, device="auto").evaluate(data, stage, trainer=trainer, **sizes)
        result[split] = {name: finite(value) for name, value in metrics.items()}
    return result


def last_checkpoints(folder: Path, count: int) -> list[Path]:
    """Return the last `count` checkpoints of a run that `Fit.keep` counts, oldest first."""
    paths = kept_checkpoints(checkpoint_files(folder / "checkpoints"))[-read_run_config(folder).get("keep", 1) :]
    if not 1 <= count <= len(paths):
        text = (
            f"'{folder}' has {len(paths)} kept checkpoints: use a smaller --last, or train with --keep {max(count, 2)} and more"
        )
        raise InputError(f"--last {count}: {text} epochs, validations or --checkpoint-every 500steps")
    return paths[-count:]


def mean(paths: Sequence[Path], net: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Average the networks in checkpoints, in double precision; integers are those of the last one, dtypes those of `net`."""
    total: dict[str, Tensor] = {}
    for path in paths:
        state = network_state(read_checkpoint(path))
        if {name: value.shape for name, value in state.items()} != {name: value.shape for name, value in net.items()}:
            raise InputError(f"'{path}' belongs to another network than the run's model: delete it", code="mismatch")
        for name, value in state.items():
            exact = value.double() if value.is_floating_point() else value
            total[name] = total[name] + exact if name in total and value.is_floating_point() else exact
    return {
        name: (value / len(paths) if value.is_floating_point() else value).to(net[name].dtype) for name, value in total.items()
    }
