"""Export trained models for other runtimes: the command ``zoo export``."""

from importlib.util import find_spec
from pathlib import Path

from zoo.errors import InputError

FORMATS = {"safetensors": "model.safetensors", "pt2": "model.pt2", "onnx": "model.onnx"}
FORMATS |= {"executorch": "model.pte", "web": "model.onnx"}
"""File names by format."""
PROGRAMS = ("onnx", "pt2", "executorch", "web")
"""Formats that store components, which can be quantized."""
ONNX = "onnx", ("onnx", "onnxscript")
PACKAGES = {"onnx": ONNX, "web": ONNX, "executorch": ("executorch", ("executorch",))}
"""The extra and the packages that a format requires."""
QUANTIZED = ("int8", "int4")
"""The formats of quantized weights in programs."""


def check_options(
    folder: Path, format: str, quantize: str | None, sparse: bool = False, folded: bool = False, runtime: object = None
) -> None:
    """Raise `InputError` if the folder exists, an option is not supported by the format, or a package is missing."""
    if folder.exists():
        raise InputError(f"'{folder}' exists: choose another folder with --to, or delete it", code="conflict")
    if format not in ("zoo", *FORMATS):
        raise InputError(f"format '{format}': use zoo, {', '.join(FORMATS)}")
    if quantize not in (None, "dynamic", *QUANTIZED):
        raise InputError(f"quantize '{quantize}': use {', '.join(QUANTIZED)} or dynamic")
    if quantize in QUANTIZED and format not in PROGRAMS:
        raise InputError(f"--quantize {quantize} requires --format {' or '.join(PROGRAMS)}, got {format}")
    if quantize == "dynamic" and format != "onnx":
        raise InputError(f"--quantize dynamic requires --format onnx, got {format}")
    if sparse and format == "safetensors":
        raise InputError(f"--sparse requires --format zoo or {' or '.join(PROGRAMS)}, got safetensors")
    if sparse and quantize == "dynamic":
        raise InputError("--sparse does not apply to --quantize dynamic: use int8 or int4")
    if folded and format == "zoo":
        raise InputError(f"--folded requires --format {' or '.join(PROGRAMS)} or safetensors: a model folder has components")
    if runtime is not None and format != "web":
        raise InputError(f"--runtime requires --format web, got {format}")
    check_installed(format, quantize == "dynamic")


def check_installed(format: str, dynamic: bool) -> None:
    """Raise `InputError` if a package is missing that writes a format, or quantizes activations."""
    extra, required = PACKAGES.get(format, ("", ()))
    if missing := [name for name in (*required, *(("onnxruntime",) if dynamic else ())) if not find_spec(name)]:
        advice = f"pip install 'hypercomplex-zoo[{extra}]'"
        raise InputError(f"--format {format} needs {', '.join(missing)}: {advice}", code="dependency")
