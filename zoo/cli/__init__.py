"""The command line: ``zoo``."""

from zoo.cli.front import main

__all__ = ["main"]
