"""Parse the flags of the heavy commands without waiting for torch."""

from argparse import SUPPRESS
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, Namespace

from zoo import registry
from zoo.cli.config import check_file, split_config
from zoo.errors import InputError
from zoo.training.options import Fit, parser_message
from zoo.training.trainer_arguments import TRAINER_ARGUMENTS


def make_parser(command: str, options: type, description: str) -> ArgumentParser:
    """Build the parser of a command from its options class; ``trainer`` becomes one flag per Trainer argument."""
    parser = ArgumentParser(prog=f"zoo {command}", description=description, exit_on_error=False, print_config=None)
    parser.add_argument("-c", "--config", action="config", help="YAML file with any of these; a later one wins, flags win")
    if options is Fit:
        parser.add_argument("--print_config", action="store_true", help="print the effective configuration as YAML and stop")
    names = {field.name for field in fields(options)}
    parser.add_class_arguments(options, skip={"trainer"} & names, sub_configs=False)
    for action in parser._actions:  # --optimizer FILE is one way too many: files go to -c
        if action.dest in names and any(other.dest.startswith(f"{action.dest}.") for other in parser._actions):
            action.help = SUPPRESS
    if "trainer" in names:
        for name in TRAINER_ARGUMENTS:
            parser.add_argument(f"--trainer.{name}", type=Any, default=None, help=SUPPRESS)
        parser.epilog = f"--trainer.NAME VALUE sets any argument of Lightning's Trainer: {', '.join(TRAINER_ARGUMENTS)}"
    return parser


def parse(parser: ArgumentParser, argv: list[str]) -> dict[str, Any]:
    """Parse flags and config files; files come first, so that flags win.

    Returns:
        What was given or is a default, as plain nested dicts; Trainer arguments only where given.

    Raises:
        InputError: If a flag is unknown or a value does not fit, in one line.
    """
    files, flags = split_config(argv)
    for file in files[1::2]:
        check_file(parser, file)
    try:
        known = [option for action in parser._actions for option in action.option_strings]
        check_flags(flags, known)
        namespace = parser.parse_args([*files, *bracketed(parser, flags)])
    except (ArgumentError, UnicodeDecodeError) as error:
        text = parser_message(str(error))
        for action in parser._actions:
            if not action.option_strings:
                text = text.replace(f"missing --{action.dest} ", f"missing {action.dest.upper()} ")
        raise InputError(text) from error
    return plain(namespace)


def bracketed(parser: ArgumentParser, flags: list[str]) -> list[str]:
    """Let ``0.9,0.99`` stand for ``[0.9, 0.99]`` after a flag that takes several numbers."""
    actions = parser._actions
    several = {
        flag for action in actions if "tuple[" in str(getattr(action, "_typehint", "")) for flag in action.option_strings
    }
    words: list[str] = []
    for before, word in zip(["", *flags], flags, strict=False):
        name, equals, value = word.partition("=")
        start, rest = (name + equals, value) if name in several else ("", word)
        listed = "," in rest and (bool(start) or before in several)
        words.append(f"{start}[{rest.strip('[]()')}]" if listed else word)
    return words


def check_flags(flags: list[str], known: list[str]) -> None:
    """Refuse an unknown flag and say which one is close."""
    for word in flags:
        name = word.partition("=")[0]
        if parts := [flag for flag in known if flag.startswith(f"{name}.")]:
            raise InputError(f"{name} has parts, each with a flag of its own: {', '.join(parts[:6])}")
        if name.startswith("--") and name not in known:
            close = [flag for flag in known if flag.endswith(f"_{name[2:]}")] or get_close_matches(name, known, 1)
            hint = f": did you mean {close[0]}?" if close else ""
            raise InputError(f"unknown flag {name}{hint} (all flags: --help)")


def plain(namespace: Namespace) -> dict[str, Any]:
    """Turn a namespace into nested dicts without the config paths and without Trainer arguments that were not given."""
    values: dict[str, Any] = namespace.as_dict()
    values.pop("config", None)
    if not isinstance(values.get("trainer", {}), dict):
        raise InputError(f"trainer: expected arguments of Lightning's Trainer by name, not {values['trainer']!r}")
    if "trainer" in values:
        values["trainer"] = {name: value for name, value in values["trainer"].items() if value is not None}
    return values


def check_names(values: dict[str, Any]) -> None:
    """Refuse names that no installed plugin provides, without importing any."""
    for key, group in (
        ("backbone", "zoo.backbones"),
        ("algebra", "zoo.algebras"),
        ("data", "zoo.datasets"),
        ("embedding", "zoo.embeddings"),
    ):
        if values.get(key) is not None:
            registry.resolve(group, values[key])
