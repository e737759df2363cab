"""Write and read the folder of a trained model."""

import errno
import math
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from zoo import registry
from zoo.algebras import Algebra
from zoo.atomic import new_folder, write_json, write_text
from zoo.backbones.build import backbone, untrained
from zoo.checkpoint.card import MEASURED, card
from zoo.checkpoint.integrity import Header, check_algebra, check_header, fingerprint_of, read_header
from zoo.checkpoint.manifest import file_record, find, read_json, sealed, verify
from zoo.conversion import convert
from zoo.errors import InputError, one_line
from zoo.layers.factory import ROLES
from zoo.pruning.packed import load_packed, pack_file, unpack_header
from zoo.registry.spec import Spec
from zoo.tasks import task_type

FORMAT = 2
LIBRARIES = ("hypercomplex-zoo", "torch", "lightning", "torchmetrics", "timm", "tokenizers")
OWN = {"config.json", "model.safetensors", "README.md", "manifest.json"}
"""What every model folder has; its other files are texts that the model needs."""
SPECS = ("backbone", "algebra", "scope", "init")
OPTIONAL: dict[str, type] = dict.fromkeys(("embedding", "task", "data"), str)
OPTIONAL |= dict.fromkeys(("info", "model_kwargs", "conversion", "decoding", "sparse"), dict)
"""Keys that may be missing, and the kinds of their values."""
TABLES = 50 * 2**20
"""Bytes that a network's tables, such as positions, may take beside twice the bytes of its weights."""


def save(
    folder: Path,
    net: nn.Module,
    config: Mapping[str, Any],
    summary: Mapping[str, Any],
    files: Mapping[str, str] | None = None,
    sparse: bool = False,
) -> None:
    """Write a model folder as a whole or not at all.

    Args:
        folder: The folder; an older model folder there is replaced.
        net: The network.
        config: JSON values that rebuild it: ``backbone`` (or ``conversion``, see `conversion_record`), ``algebra`` (or
            ``algebra_sha256``), ``scope``, ``init``, ``embedding``; with ``task``, ``data`` and ``info`` of a trained model, or
            the ``model_kwargs`` of a network alone. What no spec names is None.
        summary: ``versions``, ``metrics`` and the like, for the manifest and the card.
        files: Texts that the model needs beside its weights, by file name: its tokenizer.
        sparse: Whether to store only the numbers that are not zero, and one bit for each number (`zoo.pruning.packed`); the
            key ``sparse`` of the configuration then holds the shapes of such tensors.
    """
    spec = config["algebra"]
    values: dict[str, Any] = {"format": FORMAT, "algebra": spec}
    values |= {key: config[key] for key in (*SPECS, *OPTIONAL) if config.get(key) is not None and key != "sparse"}
    values["algebra_sha256"] = config["algebra_sha256"] if spec is None else fingerprint_of(spec)
    values["versions"] = summary["versions"]
    with new_folder(folder) as part:
        weights = part / "model.safetensors"
        save_weights(net, weights, folder)
        if sparse:
            with _naming(folder / weights.name):
                values["sparse"] = pack_file(weights)
        write_json(part / "config.json", values)
        for name, text in (files or {}).items():
            write_text(part / name, text)
        write_text(part / "README.md", card(config, summary))
        records = {path.name: file_record(path) for path in sorted(part.iterdir())}
        measured = {key: summary[key] for key in MEASURED if key in summary}
        write_json(part / "manifest.json", sealed({"files": records} | measured))


def save_weights(net: nn.Module, file: Path, folder: Path) -> None:
    """Write the weights of a network as safetensors into what will be a folder; an error names the file there."""
    with _naming(folder / file.name):
        save_model(net, str(file))


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    try:
        yield
    except SafetensorError as error:  # no room, for one; others expect an OSError
        raise OSError(errno.EIO, str(error).partition(": ")[2] or str(error), str(file)) from error


def read_config(path: str | Path) -> dict[str, Any]:
    """Verify a model folder (or that of a run) and return its configuration.

    Raises:
        InputError: If it is damaged, or written by an earlier or a later version of the zoo.
    """
    folder = find(path)
    verify(folder)
    file = folder / "config.json"
    config = read_json(file)
    if config.get("format") == 1:
        again = f"{folder.parent / 'config.yaml'}"
        raise InputError(f"{folder} was written by an earlier version (format 1): train it again with zoo fit -c {again}")
    if config.get("format") != FORMAT:
        raise InputError(f"{folder} has format {config.get('format')}, this version reads {FORMAT}: update hypercomplex-zoo")
    missing = [] if "algebra" in config else ["algebra"]
    config = dict.fromkeys((*SPECS, *OPTIONAL)) | config
    missing += [key for key in ("scope", "init", "versions") if config.get(key) is None]
    missing += [] if config["backbone"] or config["conversion"] else ["backbone"]
    missing += [] if any(config[key] is not None for key in ("info", "model_kwargs", "conversion")) else ["info"]
    if missing:
        raise InputError(f"{file} lacks {', '.join(missing)}")
    kinds = {**dict.fromkeys(SPECS, str), **OPTIONAL, "versions": dict}
    if wrong := [key for key, kind in kinds.items() if not isinstance(config[key], kind | None)]:
        raise InputError(f"{file} has a value of the wrong kind for {', '.join(wrong)}")
    if wrong := [key for key in (*SPECS, "embedding", "task") if not (config[key] or "").isprintable()]:
        raise InputError(f"{file} has characters that cannot be printed in {', '.join(wrong)}")
    return config


def load_network(
    path: str | Path,
    config: Mapping[str, Any] | None = None,
    *,
    info: Any = None,
    module: nn.Module | None = None,
    product: Algebra | None = None,
) -> nn.Module:
    """Rebuild a network from a run or model folder, verified, in evaluation mode, on the CPU.

    Args:
        path: The folder.
        config: Its `read_config`, if that was called already.
        info: Its `DataInfo`, if that was rebuilt already.
        module: For a network that no spec names: one like it before its conversion, which is converted in place.
        product: The algebra, if no spec names it.

    Raises:
        InputError: If the folder is damaged, names something that is not installed, or is of another module or algebra.
    """
    config = read_config(path) if config is None else config
    weights = find(path) / "model.safetensors"
    name, sparse = config["backbone"] or "the module", config["sparse"] or {}
    header, masks = unpack_header(weights, read_header(weights), sparse)
    try:
        if info is None and config["info"] is not None:
            info = task_type(config["task"])[0].info_type.from_dict(config["info"])
        over = check_algebra(config, product)
        net = build(config, over, info, weights, header) if module is None else convert_again(module, over, config)
    except InputError as error:
        raise with_missing_plugins(error, config) from error
    check_header(weights, net, name, header)
    try:
        if sparse:
            load_packed(net, weights, sparse, masks)
        else:
            load_model(net, str(weights))
    except (RuntimeError, SafetensorError) as error:
        raise InputError(f"the weights in {weights.parent} do not fit {name}: {one_line(error)}") from error
    return net.eval()


def build(config: Mapping[str, Any], over: str | Algebra, info: Any, weights: Path, header: Header) -> nn.Module:
    """Build the network of a configuration; its sizes are compared with the header of the weights before memory is taken."""
    if config["backbone"] is None:
        real = (config["conversion"] or {}).get("module", "network")
        advice = f"zoo.load(FOLDER, module=A_{real.split('.')[-1]})"
        raise InputError(f"{weights.parent} holds a {real}, which no spec names: {advice}")
    options = network_options(config, info)
    spec = untrained(config["backbone"])
    with torch.random.fork_rng(devices=[]), limited(weights, spec, header):
        try:
            with torch.device("meta"):
                outline = backbone(spec, deepcopy(config["algebra"] or over), **options)  # a shared product would be moved
        except InputError:
            raise
        except Exception:  # It computes with numbers while it is built, or a spec is wrong, which the next line says.
            return backbone(spec, over, **options)
        check_header(weights, outline, config["backbone"], header)
        tables = sum(table.nbytes for table in outline.buffers())
        if tables > TABLES + 2 * weights.stat().st_size:
            raise InputError(f"the weights in {weights.parent} do not fit {spec}: its tables would take {tables:,} bytes")
        return backbone(spec, over, **options)


def network_options(config: Mapping[str, Any], info: Any) -> dict[str, Any]:
    """Return the keywords that build a network, beside its spec and its algebra.

    Args:
        config: The configuration of a model or a run.
        info: The `DataInfo`, None for a network alone.
    """
    sizes = config["model_kwargs"] or {} if info is None else {**info.model_kwargs, "vectors": getattr(info, "vectors", None)}
    return {key: config.get(key) for key in ("scope", "init", "embedding")} | sizes


@contextmanager
def limited(weights: Path, spec: str, header: Header) -> Iterator[None]:
    """Refuse to build a network of far more parameters than there are tensors in a weights file, before all are made.

    A network of a timm model has its real layers first and then the converted ones, hence not just as many.
    """
    numbers = sum(math.prod(shape) for shape, _ in header.values())
    for key, value in Spec.parse(spec).options.items():
        if isinstance(value, int) and value > max(numbers, 10_000):
            raise InputError(
                f"the weights in {weights.parent} do not fit {spec}: {key}={value}, and they are {numbers} numbers"
            )
    most = 100 + 4 * len(header)
    count = 0

    def register(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal count
        count += 1
        if count > most:
            raise InputError(f"the weights in {weights.parent} do not fit: the network has over {most // 4} parameter tensors")

    hook = register_module_parameter_registration_hook(register)
    try:
        yield
    finally:
        hook.remove()


def convert_again(module: nn.Module, over: str | Algebra, config: Mapping[str, Any]) -> nn.Module:
    """Convert the layers of a module that were converted when its weights were saved; there may be none."""
    record = config["conversion"]
    if config["backbone"] is not None or record is None:
        raise InputError(f"the folder names its backbone, {config['backbone']}: leave module out")
    names = set(record.get("converted", ()))
    if missing := sorted(names - {name for name, _ in module.named_modules()}):
        raise InputError(f"the module has no '{missing[0]}', which was converted: give one like that which was saved")
    if not names:
        return module
    with torch.random.fork_rng(devices=[]):
        return convert(module, over, skip=lambda name, _: name not in names, scope="+".join(ROLES))


def model_files(model: Path) -> dict[str, str]:
    """Return the texts that a model needs beside its weights, by file name."""
    names = read_json(model / "manifest.json")["files"].keys() - OWN
    return {name: (model / name).read_text(encoding="utf-8") for name in sorted(names)}


def conversion_record(net: nn.Module) -> dict[str, Any]:
    """Return what `convert_again` must know of a network that no spec names: its class, and which layers were converted."""
    converted = getattr(getattr(net, "conversion", None), "converted", ())
    return {"module": f"{type(net).__module__}.{type(net).__qualname__}", "converted": list(converted)}


def with_missing_plugins(error: InputError, config: Mapping[str, Any]) -> InputError:
    """Add to an error the distributions that a model was made with and that are not installed."""
    missing = []
    for name, version in config["versions"].items():
        if name == "python":
            continue
        try:
            distribution(name)
        except PackageNotFoundError:
            missing.append(f"{name} {version}")
    if not missing:
        return error
    advice = f"not installed here: pip install {missing[0].split()[0]}"
    return InputError(f"{error}; the model was made with {', '.join(missing)}, {advice}")


def library_versions(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of Python, of the libraries, and of the distributions behind the specs of a configuration."""
    groups = {"backbone": "backbones", "algebra": "algebras", "embedding": "embeddings", "data": "datasets", "task": "tasks"}
    resolved = [registry.resolve(group, config[key])[0] for key, group in groups.items() if config.get(key)]
    libraries = {"python": platform.python_version(), **{name: distribution(name).version for name in LIBRARIES}}
    return libraries | {entry.distribution: entry.version for entry in resolved}
