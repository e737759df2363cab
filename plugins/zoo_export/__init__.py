"""Export trained models for other runtimes: the command ``zoo export``."""

from importlib.util import find_spec
from pathlib import Path

from zoo.errors import InputError, check_rules

FORMATS = {"safetensors": "model.safetensors", "pt2": "model.pt2", "onnx": "model.onnx", "executorch": "model.pte"}
"""File names by format."""
PROGRAMS = ("onnx", "pt2", "executorch")
"""Formats that store components, which can be quantized."""
PACKAGES = {"onnx": ("onnx", ("onnx", "onnxscript")), "executorch": ("executorch", ("executorch",))}
"""The extra and the packages that a format requires."""
QUANTIZED = ("int8", "int4")
"""The formats of quantized weights in programs."""


def check_options(folder: Path, format: str, quantize: str | None, sparse: bool = False, folded: bool = False) -> None:
    """Raise `InputError` if the folder exists, an option is not supported by the format, or a package is missing."""
    check_rules((not folder.exists(), f"'{folder}' exists: choose another folder with --to, or delete it"), code="conflict")
    check_rules(
        (format in ("zoo", *FORMATS), f"format '{format}': use zoo, {', '.join(FORMATS)}"),
        (quantize in (None, "dynamic", *QUANTIZED), f"quantize '{quantize}': use {', '.join(QUANTIZED)} or dynamic"),
        (
            quantize not in QUANTIZED or format in PROGRAMS,
            f"--quantize {quantize} requires --format {' or '.join(PROGRAMS)}, got {format}",
        ),
        (quantize != "dynamic" or format == "onnx", f"--quantize dynamic requires --format onnx, got {format}"),
        (not sparse or format != "safetensors", f"--sparse requires --format zoo or {' or '.join(PROGRAMS)}, got safetensors"),
        (not sparse or quantize != "dynamic", "--sparse does not apply to --quantize dynamic: use int8 or int4"),
        (
            not folded or format != "zoo",
            f"--folded requires --format {' or '.join(PROGRAMS)} or safetensors: a model folder has components",
        ),
    )
    check_installed(format, quantize == "dynamic")


def check_installed(format: str, dynamic: bool) -> None:
    """Raise `InputError` if a package is missing that writes a format, or quantizes activations."""
    extra, required = PACKAGES.get(format, ("", ()))
    if missing := [name for name in (*required, *(("onnxruntime",) if dynamic else ())) if not find_spec(name)]:
        advice = f"pip install 'hypercomplex-zoo[{extra}]'"
        raise InputError(f"--format {format} needs {', '.join(missing)}: {advice}", code="dependency")
