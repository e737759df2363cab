"""argparse without its wall of usage, for the commands that must answer at once."""

from argparse import ArgumentParser
from typing import NoReturn

from zoo.errors import InputError


class PlainParser(ArgumentParser):
    """Parses, and turns every mistake into one `InputError`."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving."""
        raise InputError(f"{message} (see {self.prog} --help)")


def plain_parser(command: str, description: str) -> PlainParser:
    """Return a parser for a command."""
    return PlainParser(prog=f"zoo {command}", description=description, allow_abbrev=False)
