"""Export trained models for other runtimes: the command ``zoo export``."""

from importlib.util import find_spec
from pathlib import Path

from zoo.errors import InputError, check_rules

FORMATS = {"safetensors": "model.safetensors", "pt2": "model.pt2", "onnx": "model.onnx"}
"""File names by format."""


def check_options(folder: Path, format: str, quantize: str | None, sparse: bool = False) -> None:
    """Raise `InputError` if the folder exists, an option is not supported by the format, or a package is missing."""
    check_rules((not folder.exists(), f"'{folder}' exists: choose another folder with --to, or delete it"), code="conflict")
    check_rules(
        (format in ("zoo", *FORMATS), f"format '{format}': use zoo, {', '.join(FORMATS)}"),
        (quantize in (None, "int8"), f"quantize '{quantize}': use int8"),
        (quantize is None or format == "onnx", "--quantize int8 requires --format onnx"),
        (not sparse or format == "zoo", f"--sparse requires --format zoo, got {format}"),
    )
    if format == "onnx":
        check_installed(quantize is not None)


def check_installed(quantize: bool) -> None:
    """Raise `InputError` if a package is missing that writes or quantizes ONNX."""
    required = ("onnx", "onnxscript", *(["onnxruntime"] if quantize else []))
    if missing := [name for name in required if not find_spec(name)]:
        raise InputError(f"ONNX needs {', '.join(missing)}: pip install 'hypercomplex-zoo[onnx]'", code="dependency")
