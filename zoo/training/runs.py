"""Average and recover models from the checkpoints of a run, measure them, and verify the files of a run."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from torch import Tensor

from zoo.atomic import scratch_folder
from zoo.backbones.build import backbone, untrained
from zoo.checkpoint import ModelConfig, find, load_network, read_config, save
from zoo.checkpoint.folder import model_files
from zoo.checkpoint.manifest import check_single, is_intact, is_record, read_json
from zoo.checkpoint.run_config import read_run_config
from zoo.errors import InputError
from zoo.inference.model import load
from zoo.training.folder import CHECKSUMS, finite, has_checksum, lock_folder
from zoo.training.options import Average, Measuring
from zoo.training.quantization import rounded
from zoo.training.resume import MODEL, STATE, checkpoint_files, kept_checkpoints, network_state, newest, read_checkpoint
from zoo.training.trainer import check_trainer


def average(run: str | Path, options: Average) -> dict[str, Any]:
    """Save and measure a model with the mean weights of a run's last checkpoints (Vaswani et al. 2017, section 6.1)."""
    config, model = read_config(run), find(run)
    folder = model.parent
    out = new_path(folder / "average" if options.out is None else options.out, "--out")
    paths = _last_checkpoints(folder, options.last)
    net = load_network(run, config)
    net.load_state_dict(_mean(paths, net.state_dict()))
    facts, files = read_json(model / "manifest.json") | {"versions": config.versions}, model_files(model)
    splits = ("validation", "metrics") if facts["metrics"] else ("validation",)
    before = measure_splits(run, splits, options)  # again, because the run may have limited its batches
    averaged = [path.name for path in paths]
    with rounded(net, read_run_config(folder).get("quantize_aware")):
        with scratch_folder(out) as temporary:
            save(temporary / "model", net, config, facts, files)
            measurements = measure_splits(temporary, splits, options)
        save(out, net, config, facts | measurements | {"averaged": averaged}, files)
    return {"folder": str(out), "averaged": averaged, **measurements, "before": before}


def new_path(path: str | Path, flag: str) -> Path:
    """Return the path of a new file or folder after checking that it does not exist."""
    path = Path(path).expanduser()
    if path.exists():
        raise InputError(f"'{path}' already exists: use another {flag}, or delete it", code="conflict")
    return path


def measure_splits(
    run: str | Path, splits: Sequence[str], options: Measuring, data: str | None = None
) -> dict[str, dict[str, float | None]]:
    """Return the metrics of a model on the ``validation`` and test (``metrics``) splits; none for a split that is not given."""
    result: dict[str, dict[str, float | None]] = {"validation": {}, "metrics": {}}
    for split in splits:
        stage = "val" if split == "validation" else "test"
        sizes = {"batch_size": options.batch_size, "num_workers": options.num_workers}
        trainer = check_trainer(options.trainer | {"devices": 1})
        metrics = load(run, device="auto").evaluate(data, stage, trainer=trainer, **sizes)
        result[split] = {name: finite(value) for name, value in metrics.items()}
    return result


def _last_checkpoints(folder: Path, count: int) -> list[Path]:
    """Return the last `count` checkpoints of a run that `Fit.keep` counts, oldest first."""
    paths = kept_checkpoints(checkpoint_files(folder / "checkpoints"))[-read_run_config(folder).get("keep", 1) :]
    if count > len(paths):
        advice = f"use a smaller --last, or train with --keep {max(count, 2)} and more"
        text = f"--last {count}: '{folder}' has {len(paths)} kept checkpoints: {advice}"
        raise InputError(f"{text} epochs, validations or --checkpoint-every 500steps")
    return paths[-count:]


def _mean(paths: Sequence[Path], net: Mapping[str, Tensor]) -> dict[str, Tensor]:
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


def recover(run: str | Path) -> dict[str, Any]:
    """Save the model folder of a run from its best checkpoint, without loading data and without testing the model."""
    folder = Path(run).expanduser()
    if not folder.is_dir():
        raise InputError(f"the run folder '{folder}' does not exist", code="missing")
    check_single(folder, "checkpoints/*.ckpt")
    if (folder / "model").exists():
        raise InputError(f"'{folder}' already has a model folder: there is nothing to recover")
    with lock_folder(folder):
        best = newest(folder)[1][STATE]["best"]
        if best is None:
            command = f"zoo fit --resume {quote(str(folder))}"
            raise InputError(f"'{folder}' was stopped before its first validation: resume it with {command}")
        path = folder / "checkpoints" / best["file"]
        checkpoint = read_checkpoint(path)
        model = checkpoint[MODEL]
        if not model or model["network"] is None:
            raise InputError(f"'{path.name}' has objects without a spec: load its state_dict into the network in Python")
        config, summary = ModelConfig.from_json(model["config"], path), model["summary"] | {"epochs": best["epoch"]}
        net = backbone(untrained(str(config.backbone)), str(config.algebra), **model["network"])
        net.load_state_dict(network_state(checkpoint))
        with rounded(net, read_run_config(folder).get("quantize_aware")):
            save(folder / "model", net, config, summary, model["files"])
    return {"folder": str(folder / "model"), "checkpoint": str(path), "epoch": best["epoch"]}


def verify(run: Path) -> list[dict[str, str]]:
    """Verify all files of a run that have a checksum, and its model folder, without unpickling; return a row for each."""
    rows, checkpoints = [], checkpoint_files(run / "checkpoints")
    if not checkpoints or (run / "model").exists():
        folder = find(run)
        rows.append(_row(folder, lambda: _describe(read_config(folder))))
    rows += [_row(path, partial(_verify_checkpoint, path)) for path in checkpoints]
    if os.path.lexists(file := run / CHECKSUMS) or (run / "summary.json").is_file():  # which a finished run has both
        rows.append(_row(file, lambda: f"lists {len(_checksums(file))} files"))
        sums = _checksums(file) if rows[-1]["status"] == "ok" else {}
        rows += [_row(run / name, partial(_verify_file, run / name, record)) for name, record in sums.items()]
    return rows


def _describe(config: ModelConfig) -> str:
    return f"{config.backbone} over {config.algebra}"


def _checksums(file: Path) -> dict[str, Any]:
    """Read checksums.json, whose files are those that the end of a run writes."""
    sums = read_json(file)
    if not all(map(has_checksum, sums)):
        raise InputError("lists files that a run does not write", code="corrupt")
    return sums


def _row(path: Path, verify_file: Callable[[], str]) -> dict[str, str]:
    try:
        return {"file": str(path), "status": "ok", "note": verify_file()}
    except InputError as error:
        return {"file": str(path), "status": "damaged", "note": str(error)}


def _verify_checkpoint(path: Path) -> str:
    return f"after step {read_checkpoint(path)['global_step']}"


def _verify_file(path: Path, record: Any) -> str:
    if not is_record(record) or not is_intact(path, record):
        raise InputError("changed since the run ended" if path.exists() else "missing", code="corrupt")
    return "checksum matches"
