"""Export trained models for other runtimes: the command ``zoo export``."""

from importlib.util import find_spec
from pathlib import Path

from zoo.errors import InputError, check_rules

FORMATS = {"safetensors": "model.safetensors", "pt2": "model.pt2", "onnx": "model.onnx", "web": "model.onnx"}
"""File names by format."""
PROGRAMS = ("onnx", "pt2", "web")
"""Formats that store components, which can be quantized."""
BITS = {"int8": 8, "int4": 4}
"""Bits of quantized weights by the name of the option."""


def check_options(
    folder: Path, format: str, quantize: str | None, sparse: bool = False, folded: bool = False, runtime: object = None
) -> None:
    """Raise `InputError` if the folder exists, an option is not supported by the format, or a package is missing."""
    check_rules((not folder.exists(), f"'{folder}' exists: choose another folder with --to, or delete it"), code="conflict")
    check_rules(
        (format in ("zoo", *FORMATS), f"format '{format}': use zoo, {', '.join(FORMATS)}"),
        (quantize in (None, "dynamic", *BITS), f"quantize '{quantize}': use {', '.join(BITS)} or dynamic"),
        (
            quantize not in BITS or format in PROGRAMS,
            f"--quantize {quantize} requires --format {' or '.join(PROGRAMS)}, got {format}",
        ),
        (quantize != "dynamic" or format == "onnx", f"--quantize dynamic requires --format onnx, got {format}"),
        (not sparse or format != "safetensors", f"--sparse requires --format zoo, {' or '.join(PROGRAMS)}, got safetensors"),
        (not sparse or quantize != "dynamic", "--sparse does not apply to --quantize dynamic: use int8 or int4"),
        (not folded or format != "zoo", "--folded requires --format onnx, pt2 or safetensors: a model folder has components"),
        (runtime is None or format == "web", f"--runtime requires --format web, got {format}"),
    )
    if format in ("onnx", "web"):
        check_installed(quantize == "dynamic")


def check_installed(quantize: bool) -> None:
    """Raise `InputError` if a package is missing that writes ONNX, or quantizes activations."""
    required = ("onnx", "onnxscript", *(["onnxruntime"] if quantize else []))
    if missing := [name for name in required if not find_spec(name)]:
        raise InputError(f"ONNX needs {', '.join(missing)}: pip install 'hypercomplex-zoo[onnx]'", code="dependency")
