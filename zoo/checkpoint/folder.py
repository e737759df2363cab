"""Save and load model folders, and check their weights and algebra."""

import errno
import hashlib
import math
import platform
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from importlib.metadata import distribution, distributions
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_model, save_model
from torch import nn

from zoo import registry
from zoo.algebras import Algebra, action, algebra
from zoo.atomic import new_folder, write_json, write_text
from zoo.backbones.build import backbone, outlined, untrained
from zoo.checkpoint.card import card
from zoo.checkpoint.config import ModelConfig, read_config
from zoo.checkpoint.manifest import (
    HEADER_BYTES,
    MEASURED,
    TEXT_BYTES,
    WEIGHTS,
    file_record,
    find,
    read_manifest,
    read_small,
    sealed,
)
from zoo.conversion.replacement import convert_again, record
from zoo.errors import InputError, one_line, shorten
from zoo.pruning.masks import load_packed, pack_file, unpack_header
from zoo.registry.spec import Spec
from zoo.tasks import task_type

Header = dict[str, tuple[list[int], str]]
"""Shape and dtype, as safetensors calls it, of each tensor by name."""
LIBRARIES = ("hypercomplex-zoo", "torch", "lightning", "torchmetrics", "timm", "tokenizers")
OWN = {"config.json", WEIGHTS, "README.md", "manifest.json"}
"""Files of every model folder; any others are text files of the model, such as its tokenizer."""
FLOATS = ("F64", "F32", "F16", "BF16")
DTYPES = {torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"}
DTYPES |= {torch.complex64: "C64"}
"""Names of dtypes in safetensors; stored floats may have any of `FLOATS`."""
TABLES = 50 * 2**20
"""Bytes that the buffers of a network may take in addition to twice the size of its weights file."""


def save(
    folder: Path,
    net: nn.Module,
    config: ModelConfig,
    facts: Mapping[str, Any],
    files: Mapping[str, str] | None = None,
    sparse: bool = False,
) -> None:
    """Write a model folder atomically, replacing an existing one.

    In ``config`` objects without a spec are None, with ``conversion`` in place of a backbone and ``algebra_sha256`` in place of
    an algebra. ``facts`` has ``versions``, ``metrics`` and other facts for the manifest and the card, and ``files`` additional
    text files by name, such as the tokenizer. ``sparse`` stores a bit mask and only the nonzero weights.
    """
    if config.algebra is not None:
        config = replace(config, algebra_sha256=fingerprint_of(config.algebra))
    if config.task is not None and (tag := task_type(config.task)[0].pipeline_tag):
        facts = {**facts, "pipeline_tag": tag}
    with new_folder(folder) as part:
        packed = save_weights(net, part / WEIGHTS, folder, sparse)
        write_json(part / "config.json", replace(config, versions=facts["versions"], sparse=packed).to_json())
        for name, text in (files or {}).items():
            write_text(part / name, text)
        write_text(part / "README.md", card(config, facts))
        records = {path.name: file_record(path) for path in sorted(part.iterdir())}
        measured = {key: facts[key] for key in MEASURED if key in facts}
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


def load_network(
    path: str | Path,
    config: ModelConfig | None = None,
    *,
    info: object = None,
    module: nn.Module | None = None,
    product: Algebra | None = None,
) -> nn.Module:
    """Load a network from a run or model folder to the CPU, in evaluation mode.

    ``module`` is the architecture of a network without a spec; for a converted network also the real module, which is converted
    in place. ``product`` is an algebra without a spec. ``config`` and ``info`` may be given if they are already loaded.
    """
    config = read_config(path) if config is None else config
    weights = find(path) / WEIGHTS
    name, sparse = config.backbone or "the module", config.sparse or {}
    header, masks = unpack_header(weights, _read_header(weights), sparse)
    try:
        if info is None and config.info is not None:
            info = task_type(str(config.task))[0].info_type.from_dict(config.info)
        over = _check_algebra(config, product)
        if module is None:
            net = _build(config, over, info, weights, header)
        else:
            net = _convert_again(module, over, config)
            _check_header(weights, net, name, header)
    except InputError as error:
        raise _with_missing_plugins(error, config) from error
    try:
        if sparse:
            load_packed(net, weights, sparse, masks)
        else:
            load_model(net, str(weights))
    except (RuntimeError, SafetensorError) as error:
        raise InputError(f"the weights in {weights.parent} do not fit {name}: {one_line(error)}") from error
    return net.eval()


def _build(config: ModelConfig, over: str | Algebra, info: object, weights: Path, header: Header) -> nn.Module:
    """Build the network of a configuration after comparing its shapes with the header of the weights on the meta device."""
    if config.backbone is None:
        real = (config.conversion or {}).get("module", "network")
        advice = f"use zoo.load(FOLDER, module=A_{real.split('.')[-1]})"
        raise InputError(f"{weights.parent} contains a {real}, which has no spec: {advice}")
    options = network_options(config, info)
    spec = untrained(config.backbone)
    message = f"the weights in {weights.parent} do not fit {spec}"
    most = 100 + 4 * len(header)
    numbers = sum(math.prod(shape) for shape, _ in header.values())
    for key, value in Spec.parse(spec).options.items():
        if isinstance(value, int) and value > max(numbers, 10_000):
            raise InputError(f"{message}: {key}={value}, but there are only {numbers} weights")
    with torch.random.fork_rng(devices=[]):
        try:
            with outlined(most, f"{message}: the network has more than {most} parameter tensors"):
                outline = backbone(spec, deepcopy(config.algebra or over), **options)  # backbone() moves a given algebra
        except InputError:
            raise
        except Exception as error:  # a network of an invalid size fails anywhere
            raise InputError(f"{message}: {one_line(error)}") from error
        _check_header(weights, outline, config.backbone, header)
        size = sum(buffer.nbytes for buffer in outline.buffers())
        if size > TABLES + 2 * weights.stat().st_size:
            raise InputError(f"{message}: its buffers would take {size:,} bytes")
        return backbone(spec, over, **options)


def network_options(config: ModelConfig, info: Any) -> dict[str, Any]:
    """Return the keyword arguments of `backbone` other than the spec and the algebra; no info for a network without data."""
    sizes = config.model_kwargs or {} if info is None else {**info.model_kwargs, "vectors": getattr(info, "vectors", None)}
    return {"scope": config.scope, "init": config.init, "embedding": config.embedding} | sizes


def _convert_again(module: nn.Module, over: str | Algebra, config: ModelConfig) -> nn.Module:
    """Convert the layers of a module that are recorded as converted in the configuration, unless they are converted."""
    if config.backbone is not None or config.conversion is None:
        raise InputError(f"the model has a spec, {config.backbone}: remove the argument module")
    converted = config.conversion.get("converted", {})
    if missing := sorted(converted.keys() - {name for name, _ in module.named_modules()}):
        raise InputError(f"the module has no '{missing[0]}', which was converted: use the architecture that was saved")
    if record(module) != converted:
        return convert_again(module, over, converted)
    product = next((part for part in module.modules() if isinstance(part, Algebra) and part.n > 1), None)
    if product is not None and product.kind == "fixed" and fingerprint(product) != config.algebra_sha256:
        raise InputError(f"the module is over {product.spec or 'another algebra'}, the model over {over}", code="mismatch")
    return module


def model_files(model: Path) -> dict[str, str]:
    """Read the additional text files of a model folder, such as its tokenizer, by name."""
    names = read_manifest(model)["files"].keys() - OWN
    return {name: read_text(model, name) for name in sorted(names)}


def read_text(model: Path, name: str) -> str:
    """Read an additional text file of a model folder, which its manifest must list."""
    if name in OWN or name not in read_manifest(model)["files"]:
        raise InputError(f"{shorten(name)} is not an additional file of {model}: do not use the folder", code="corrupt")
    try:
        return read_small(model / name, TEXT_BYTES).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {model / name}: {one_line(error)}", code="corrupt") from error


def conversion_record(net: nn.Module) -> dict[str, Any]:
    """Return the class and the converted layers of a network without a spec, to convert it again."""
    return {"module": f"{type(net).__module__}.{type(net).__qualname__}", "converted": record(net)}


def _with_missing_plugins(error: InputError, config: ModelConfig) -> InputError:
    """Extend an error by the distributions of the model that are not installed."""
    names = [name for name in config.versions if name != "python" and not any(distributions(name=name))]
    if not names:
        return error
    missing = ", ".join(f"{name} {config.versions[name]}" for name in names)
    return InputError(f"{error}; the model was saved with {missing}, not installed: pip install {names[0]}", code="dependency")


def library_versions(config: ModelConfig) -> dict[str, str]:
    """Return the versions of Python, the libraries, and the distributions that provide the specs of a configuration."""
    groups = {"backbone": "backbones", "algebra": "algebras", "embedding": "embeddings", "data": "datasets", "task": "tasks"}
    resolved = [registry.resolve(group, spec)[0] for key, group in groups.items() if (spec := getattr(config, key))]
    libraries = {"python": platform.python_version(), **{name: distribution(name).version for name in LIBRARIES}}
    return libraries | {entry.distribution: entry.version for entry in resolved}


def _check_header(path: Path, net: nn.Module, name: str, header: Header) -> None:
    """Compare names, shapes and dtypes in a header with those of a network, which may be on the meta device."""
    message, state = f"the weights in {path.parent} do not fit {name}", net.state_dict(keep_vars=True)
    for key, (shape, dtype) in header.items():
        tensor = state.get(key)
        if tensor is None or shape != list(tensor.shape):
            expected = "no such tensor" if tensor is None else list(tensor.shape)
            raise InputError(f"{message}: {shorten(key)} has shape {shape}, expected {expected}")
        if dtype not in (FLOATS if tensor.is_floating_point() else (DTYPES.get(tensor.dtype),)):
            raise InputError(f"{message}: {shorten(key)} has dtype {dtype}, expected that of {tensor.dtype}")


def _read_header(path: Path) -> Header:
    message = f"cannot read {path}"
    try:
        with path.open("rb") as file:
            if (length := int.from_bytes(file.read(8), "little")) > HEADER_BYTES:
                raise InputError(f"{message}: its header has {length:,} bytes, the limit is {HEADER_BYTES:,}")
        with safe_open(str(path), "pt") as tensors:
            slices = {key: tensors.get_slice(key) for key in tensors.keys()}  # noqa: SIM118 (not iterable)
            return {key: (part.get_shape(), part.get_dtype()) for key, part in slices.items()}
    except (SafetensorError, OSError) as error:
        raise InputError(f"{message}: not a safetensors file ({one_line(error)})") from error


def fingerprint(product: Algebra) -> str:
    """Return the SHA-256 of the shape and values (little-endian float64) of `zoo.algebras.action`.

    A checkpoint stores the spec of a fixed algebra, not its table; the fingerprint detects a spec that builds another table.
    Compute it before the algebra is moved to another dtype, which rounds the table.

    >>> from zoo.algebras import reals
    >>> fingerprint(reals())[:16]
    '871510ab4df18906'
    """
    values = action(product, torch.empty(0, dtype=torch.float64, device="cpu")).detach().double().cpu()
    table = (values + 0.0).numpy().astype("<f8")  # adding zero turns -0.0 into 0.0
    return hashlib.sha256(repr(table.shape).encode() + table.tobytes()).hexdigest()


def fingerprint_of(spec: str) -> str | None:
    """Return the fingerprint of the algebra of a spec; None if its table is learned and stored with the weights."""
    with torch.random.fork_rng(devices=[]):
        product = algebra(spec)
    return fingerprint(product) if product.kind == "fixed" else None


def _check_algebra(config: ModelConfig, product: Algebra | None = None) -> str | Algebra:
    """Return the spec of the algebra of a model, or else the given algebra, after comparing its fingerprint."""
    spec, expected = config.algebra, config.algebra_sha256
    if spec is None:
        if product is None:
            raise InputError("the algebra of this model has no spec: use zoo.load(FOLDER, algebra=THE_ALGEBRA)")
        if product.kind == "fixed" and fingerprint(product) != expected:  # any other table is stored with the weights
            raise InputError("this is not the algebra that the model was trained over: its table differs")
        return product
    if expected != fingerprint_of(spec):
        entry, _ = registry.resolve("zoo.algebras", spec)
        recorded = config.versions.get(entry.distribution, "another version")
        text = f"'{spec}' of {entry.distribution} {entry.version} is not the algebra this model was trained over"
        raise InputError(f"{text} (its table differs): install {recorded}, with which it was saved")
    return str(spec)
