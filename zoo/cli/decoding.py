"""Flags for how a network writes, the same for every command that lets one."""

import re
from argparse import Namespace, _ActionsContainer
from dataclasses import fields
from typing import Any

from zoo.options import Decoding

KINDS = {"int": int, "int | None": int, "float": float, "float | None": float}


def add_decoding(parser: _ActionsContainer) -> None:
    """Add a flag for every field of `Decoding`, with its docstring as help."""
    said = dict(re.findall(r"^ {8}(\w+): (.+?)(?=\n {8}\w+:|\n {4}\S|\Z)", Decoding.__doc__ or "", re.MULTILINE | re.DOTALL))
    for field in fields(Decoding):
        kind: Any = KINDS[str(getattr(field.type, "__name__", field.type))]
        text = " ".join(said[field.name].split())
        default = "" if field.default is None else f" (default {field.default})"
        flags = dict.fromkeys([f"--{field.name.replace('_', '-')}", f"--{field.name}"])
        parser.add_argument(*flags, type=kind, default=field.default, metavar=kind.__name__.upper(), help=text + default)


def decoding_of(options: Namespace) -> Decoding:
    """Return what those flags said."""
    return Decoding(**{field.name: getattr(options, field.name) for field in fields(Decoding)})
