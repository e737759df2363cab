"""Save and load model folders."""

import errno
import math
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from importlib.metadata import distribution, distributions
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
from zoo.checkpoint.manifest import MOST, file_record, find, is_plain, read_json, sealed, verify
from zoo.conversion import convert
from zoo.errors import InputError, one_line
from zoo.layers.factory import ROLES
from zoo.pruning.masks import load_packed, pack_file, unpack_header
from zoo.registry.spec import Spec
from zoo.tasks import task_type

FORMAT = 2
LIBRARIES = ("hypercomplex-zoo", "torch", "lightning", "torchmetrics", "timm", "tokenizers")
OWN = {"config.json", "model.safetensors", "README.md", "manifest.json"}
"""Files of every model folder; any others are text files of the model, such as its tokenizer."""
KINDS: dict[str, Any] = dict.fromkeys(("backbone", "algebra", "embedding", "task", "data"), str | None)
KINDS |= {"scope": str, "init": str, "versions": dict}
KINDS |= dict.fromkeys(("info", "model_kwargs", "conversion", "decoding", "sparse"), dict | None)
"""The types of the values of config.json; those that may be None may be missing."""
TABLES = 50 * 2**20
"""Bytes that the buffers of a network may take in addition to twice the size of its weights file."""


def save(
    folder: Path,
    net: nn.Module,
    config: Mapping[str, Any],
    summary: Mapping[str, Any],
    files: Mapping[str, str] | None = None,
    sparse: bool = False,
) -> None:
    """Write a model folder atomically.

    Args:
        folder: The folder; an existing model folder is replaced.
        net: The network.
        config: JSON values to rebuild the network: ``backbone`` (or ``conversion``, see `conversion_record`), ``algebra`` (or
            ``algebra_sha256``), ``scope``, ``init`` and ``embedding``; for a trained model also ``task``, ``data`` and
            ``info``, for a bare network ``model_kwargs``. Objects without a spec are None.
        summary: ``versions``, ``metrics`` and other facts for the manifest and the card.
        files: Additional text files by name, such as the tokenizer.
        sparse: Whether to store a bit mask and only the nonzero weights (`zoo.pruning.masks.pack_file`); the key ``sparse`` of
            config.json then holds the shapes of the packed tensors.
    """
    values = {key: config.get(key) for key in KINDS} | {"versions": summary["versions"]}
    spec = values["algebra"]
    fingerprint = config["algebra_sha256"] if spec is None else fingerprint_of(spec)
    with new_folder(folder) as part:
        values["sparse"] = save_weights(net, part / "model.safetensors", folder, sparse)
        values = {key: value for key, value in values.items() if value is not None}
        write_json(part / "config.json", {"format": FORMAT, "algebra_sha256": fingerprint, **values})
        for name, text in (files or {}).items():
            write_text(part / name, text)
        write_text(part / "README.md", card(config, summary))
        records = {path.name: file_record(path) for path in sorted(part.iterdir())}
        measured = {key: summary[key] for key in MEASURED if key in summary}
        write_json(part / "manifest.json", sealed({"files": records} | measured))


def save_weights(net: nn.Module, file: Path, folder: Path, sparse: bool = False) -> dict[str, list[int]] | None:
    """Write the weights of a network as safetensors to a temporary file; return the shapes of packed tensors.

    Errors name the file in its final folder.
    """
    try:
        save_model(net, str(file))
        return pack_file(file) if sparse else None
    except SafetensorError as error:  # such as a full disk
        raise OSError(errno.EIO, str(error).partition(": ")[2] or str(error), str(folder / file.name)) from error


def read_config(path: str | Path) -> dict[str, Any]:
    """Verify a run or model folder and return the configuration of the model.

    Raises:
        InputError: If the folder is damaged, or was written by another version of the zoo.
    """
    folder = find(path)
    verify(folder)
    file = folder / "config.json"
    config = dict.fromkeys((*KINDS, "format")) | read_json(file)
    if config["format"] != FORMAT:
        raise InputError(f"{folder} has format {config['format']}, expected {FORMAT}: update hypercomplex-zoo")
    if wrong := [key for key, kind in KINDS.items() if not isinstance(config[key], kind)]:
        raise InputError(f"{file} has missing or invalid values: {', '.join(wrong)}")
    if not is_plain(config):
        raise InputError(f"{file} has text with control characters, or numbers beyond {MOST:g}: do not use the folder")
    return config


def load_network(
    path: str | Path,
    config: Mapping[str, Any] | None = None,
    *,
    info: Any = None,
    module: nn.Module | None = None,
    product: Algebra | None = None,
) -> nn.Module:
    """Load a network from a run or model folder to the CPU, in evaluation mode.

    Args:
        path: The folder.
        config: The result of `read_config`, if available.
        info: The `DataInfo` of the model, if available.
        module: The architecture, for a network without a spec; a converted network needs the real module, which is
            converted in place.
        product: The algebra, if it has no spec.

    Raises:
        InputError: If the folder is damaged, a plugin is not installed, or the module or algebra does not match.
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
    try:
        if sparse:
            load_packed(net, weights, sparse, masks)
        else:
            load_model(net, str(weights))
    except (RuntimeError, SafetensorError) as error:
        raise InputError(f"the weights in {weights.parent} do not fit {name}: {one_line(error)}") from error
    return net.eval()


def build(config: Mapping[str, Any], over: str | Algebra, info: Any, weights: Path, header: Header) -> nn.Module:
    """Build the network of a configuration after comparing its shapes with the header of the weights on the meta device."""
    if config["backbone"] is None:
        real = (config["conversion"] or {}).get("module", "network")
        advice = f"use zoo.load(FOLDER, module=A_{real.split('.')[-1]})"
        raise InputError(f"{weights.parent} contains a {real}, which has no spec: {advice}")
    options = network_options(config, info)
    spec = untrained(config["backbone"])
    message = f"the weights in {weights.parent} do not fit {spec}"
    numbers = sum(math.prod(shape) for shape, _ in header.values())
    for key, value in Spec.parse(spec).options.items():
        if isinstance(value, int) and value > max(numbers, 10_000):
            raise InputError(f"{message}: {key}={value}, but there are only {numbers} weights")
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"), limited(100 + 4 * len(header), message):
                outline = backbone(spec, deepcopy(config["algebra"] or over), **options)  # backbone() moves a given algebra
        except (RuntimeError, TypeError, NotImplementedError) as error:
            raise InputError(f"{message}: {one_line(error)}") from error
        check_header(weights, outline, config["backbone"], header)
        size = sum(buffer.nbytes for buffer in outline.buffers())
        if size > TABLES + 2 * weights.stat().st_size:
            raise InputError(f"{message}: its buffers would take {size:,} bytes")
        return backbone(spec, over, **options)


def network_options(config: Mapping[str, Any], info: Any) -> dict[str, Any]:
    """Return the keyword arguments of `backbone` other than the spec and the algebra.

    Args:
        config: The configuration of a model or a run.
        info: The `DataInfo`; None for a network saved without data.
    """
    sizes = config["model_kwargs"] or {} if info is None else {**info.model_kwargs, "vectors": getattr(info, "vectors", None)}
    return {key: config.get(key) for key in ("scope", "init", "embedding")} | sizes


@contextmanager
def limited(most: int, message: str) -> Iterator[None]:
    """Stop building a network that registers too many parameters.

    The limit must be generous because timm models first build their real layers, which are then converted.
    """
    count = 0

    def register(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal count
        count += 1
        if count > most:
            raise InputError(f"{message}: the network has more than {most} parameter tensors")

    hook = register_module_parameter_registration_hook(register)
    try:
        yield
    finally:
        hook.remove()


def convert_again(module: nn.Module, over: str | Algebra, config: Mapping[str, Any]) -> nn.Module:
    """Convert the layers of a module that are recorded as converted in the configuration."""
    record = config["conversion"]
    if config["backbone"] is not None or record is None:
        raise InputError(f"the model has a spec, {config['backbone']}: remove the argument module")
    names = set(record.get("converted", ()))
    if missing := sorted(names - {name for name, _ in module.named_modules()}):
        raise InputError(f"the module has no '{missing[0]}', which was converted: use the architecture that was saved")
    if not names:
        return module
    with torch.random.fork_rng(devices=[]):
        others = [name for name, _ in module.named_modules() if name not in names]
        return convert(module, over, skip=others, scope="+".join(ROLES))


def model_files(model: Path) -> dict[str, str]:
    """Read the additional text files of a model folder, such as its tokenizer, by name."""
    names = read_json(model / "manifest.json")["files"].keys() - OWN
    return {name: (model / name).read_text(encoding="utf-8") for name in sorted(names)}


def conversion_record(net: nn.Module) -> dict[str, Any]:
    """Return the class and the converted layers of a network without a spec, for `convert_again`."""
    converted = getattr(getattr(net, "conversion", None), "converted", ())
    return {"module": f"{type(net).__module__}.{type(net).__qualname__}", "converted": list(converted)}


def with_missing_plugins(error: InputError, config: Mapping[str, Any]) -> InputError:
    """Extend an error by the distributions of the model that are not installed."""
    names = [name for name in config["versions"] if name != "python" and not any(distributions(name=name))]
    if not names:
        return error
    missing = ", ".join(f"{name} {config['versions'][name]}" for name in names)
    return InputError(f"{error}; the model was saved with {missing}, not installed: pip install {names[0]}")


def library_versions(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of Python, the libraries, and the distributions that provide the specs of a configuration."""
    groups = {"backbone": "backbones", "algebra": "algebras", "embedding": "embeddings", "data": "datasets", "task": "tasks"}
    resolved = [registry.resolve(group, config[key])[0] for key, group in groups.items() if config.get(key)]
    libraries = {"python": platform.python_version(), **{name: distribution(name).version for name in LIBRARIES}}
    return libraries | {entry.distribution: entry.version for entry in resolved}
