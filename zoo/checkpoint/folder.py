"""Write and read the folder of a trained model."""

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model
from torch import nn

from zoo.backbones.build import backbone, untrained
from zoo.checkpoint.atomic import new_folder, write_json, write_text
from zoo.checkpoint.card import card
from zoo.checkpoint.integrity import describe, read_json, verify
from zoo.checkpoint.table import check_table, table_of
from zoo.errors import InputError
from zoo.tasks import info_of

FORMAT = 1
KEYS = ("backbone", "algebra", "scope", "init", "task", "data", "info")


def save(
    folder: Path,
    net: nn.Module,
    config: Mapping[str, Any],
    summary: Mapping[str, Any],
    files: Mapping[str, str] | None = None,
) -> None:
    """Write a model folder as a whole or not at all.

    Args:
        folder: Where; an older model folder there is replaced.
        net: The network.
        config: What rebuilds it: backbone, algebra, scope, init, task, data, info, embedding (all JSON values).
        summary: What was measured; goes into the manifest and the card. Of a mean of several checkpoints also ``validation``
            (metrics) and ``averaged`` (names).
        files: Texts that the model needs beside its weights, by file name: its tokenizer.
    """
    with new_folder(folder) as part:
        values = {"format": FORMAT} | {key: config[key] for key in KEYS} | {"versions": summary["versions"]}
        values |= {"embedding": config.get("embedding"), "algebra_sha256": table_of(config["algebra"])}
        values |= {"decoding": config["decoding"]} if config.get("decoding") else {}
        write_json(part / "config.json", values)
        write_weights(net, part / "model.safetensors")
        for name, text in (files or {}).items():
            write_text(part / name, text)
        write_text(part / "README.md", card(config, summary))
        sums = {path.name: describe(path) for path in sorted(part.iterdir())}
        measured = {key: summary[key] for key in ("metrics", "validation", "averaged") if key in summary}
        write_json(part / "manifest.json", {"files": sums} | measured)


def write_weights(net: nn.Module, path: Path) -> None:
    """Write the weights of a network.

    Raises:
        OSError: If there is no room for them; the library below has an error of its own for that.
    """
    try:
        save_model(net, str(path))
    except SafetensorError as error:
        raise OSError(errno.EIO, str(error).partition(": ")[2] or str(error), str(path)) from error


def find(path: str | Path) -> Path:
    """Return the model folder of a run folder, or the path itself if it is one.

    Raises:
        InputError: If there is none.
    """
    path = Path(path).expanduser()
    for folder in (path, path / "model"):
        if (folder / "config.json").is_file():
            return folder
    if not path.exists():
        raise InputError(f"there is no folder '{path}': give a run (runs/...) or a model folder")
    if path.is_file():
        raise InputError(f"'{path}' is a file: give the run's folder (runs/...) or its model folder")
    if runs := sorted(str(folder.parent.parent) for folder in path.glob("*/model/config.json")):
        raise InputError(f"'{path}' is a folder of runs: give one of them, such as {runs[0]}")
    raise InputError(f"'{path}' holds no finished model (no model/config.json): was the run stopped before its end?")


def read_config(path: str | Path) -> dict[str, Any]:
    """Verify a model folder (or that of a run) and return its configuration.

    Raises:
        InputError: If it is damaged, or written by a later version of the zoo.
    """
    folder = find(path)
    verify(folder)
    config = read_json(folder / "config.json")
    if config.get("format") != FORMAT:
        raise InputError(f"{folder} has format {config.get('format')}, this version reads {FORMAT}: update hypercomplex-zoo")
    if missing := [key for key in KEYS if key not in config]:
        raise InputError(f"{folder / 'config.json'} lacks {', '.join(missing)}")
    if wrong := [key for key in KEYS if not isinstance(config[key], dict if key == "info" else str)]:
        raise InputError(f"{folder / 'config.json'} has a value of the wrong kind for {', '.join(wrong)}")
    if not isinstance(config.get("embedding"), str | None):
        raise InputError(f"{folder / 'config.json'} has a value of the wrong kind for embedding")
    return config


def load(path: str | Path, config: Mapping[str, Any] | None = None) -> nn.Module:
    """Rebuild a trained network from a run or model folder, verified, in evaluation mode, on the CPU.

    Args:
        path: The folder.
        config: What `read_config` returned for it, if that was called already.

    Raises:
        InputError: If the folder is damaged, or an algebra or backbone it names is not installed.
    """
    config = read_config(path) if config is None else config
    check_table(config)
    options: dict[str, Any] = {"scope": config["scope"], "init": config["init"], "embedding": config.get("embedding")}
    with torch.random.fork_rng(devices=[]):
        net = backbone(untrained(config["backbone"]), config["algebra"], **options, **sizes(config["task"], config["info"]))
    folder = find(path)
    try:
        load_model(net, str(folder / "model.safetensors"))
    except (RuntimeError, SafetensorError) as error:
        raise InputError(f"the weights in {folder} do not fit {config['backbone']}: {reason(error)}") from error
    return net.eval()


def sizes(task: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """What the network was told of its data, from info that may have come from anywhere.

    Raises:
        InputError: If a fact is missing, unknown, or a size is no whole number above zero.
    """
    info = info_of(task, values)
    return {**info.model_kwargs, "vectors": getattr(info, "vectors", None)}


def reason(error: Exception) -> str:
    """The line of an error that says what is wrong; torch and safetensors begin with one that does not."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[min(1, len(lines) - 1)] if lines else type(error).__name__
