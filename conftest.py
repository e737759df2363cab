"""Doctests of modules whose optional packages are missing are not collected: importing the modules would fail."""

from importlib.util import find_spec

OPTIONAL = {"transformers": "zoo/transformers.py", "peft": "zoo/peft.py"}
collect_ignore = [file for package, file in OPTIONAL.items() if find_spec(package) is None]
