"""The command line: ``zoo``."""

from zoo.cli.commands import main

__all__ = ["main"]
