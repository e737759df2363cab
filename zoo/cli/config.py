"""Configuration files on the command line: taken first, checked by name, printed back."""

import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser

from zoo.errors import InputError


def split_config(argv: list[str]) -> tuple[list[str], list[str]]:
    """Separate ``-c FILE`` and ``--config FILE`` from the other arguments, and let dashes in flags stand for underscores."""
    files: list[str] = []
    flags: list[str] = []
    rest = iter(argv)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in ("-c", "--config"):
            files += ["--config", value if equals else next(rest, "(no file given)")]
        elif word.startswith("-c"):
            files += ["--config", word[2:]]
        elif word.startswith("--"):
            flags.append("--" + name[2:].replace("-", "_") + equals + value)
        else:
            flags.append(word)
    return files, flags


def check_file(parser: ArgumentParser, file: str) -> None:
    """Refuse a configuration file that cannot be read or names what does not exist, naming the file.

    Raises:
        InputError: If there is no such file, it is no YAML mapping, or a key is unknown.
    """
    try:
        text = Path(file).expanduser().read_text(encoding="utf-8")
        values = yaml.safe_load(text)
    except OSError as error:
        raise InputError(f"cannot read the config '{file}': {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        place = getattr(error, "problem_mark", None)
        line = f" in line {place.line + 1}" if place else ""
        raise InputError(f"the config '{file}' is no YAML{line}: {getattr(error, 'problem', error)}") from error
    if not isinstance(values, dict):
        what = "is empty" if values is None else f"holds {type(values).__name__}, not options by name"
        raise InputError(f"the config '{file}' {what}")
    known = {name.removeprefix("--") for action in parser._actions for name in action.option_strings}
    known |= {name.partition(".")[0] for name in known} | {action.dest for action in parser._actions}
    for key, value in values.items():
        for name in [f"{key}.{part}" for part in value] if isinstance(value, dict) else [str(key)]:
            if name not in known:
                close = get_close_matches(name, known, 1)
                hint = f": did you mean '{close[0]}'?" if close else ""
                raise InputError(f"unknown option '{name}' in the config '{file}'{hint}")


def print_config(values: dict[str, Any]) -> None:
    """Print the effective configuration as YAML."""
    yaml.safe_dump({key: value for key, value in values.items() if value is not None}, sys.stdout, sort_keys=False)
