"""The parser of all commands: flags from option classes, one dialect, files that flags win over, messages of one line.

Splitting the words of a call into flags, files and positional arguments is done here, so that a misspelt flag is found before
anything is imported; jsonargparse checks the values against the types of the option classes and merges the files.
"""

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple, NoReturn, Self, get_origin, get_type_hints

from zoo import registry
from zoo.errors import InputError
from zoo.registry.spec import split_specs
from zoo.training.options import TRAINER_ARGUMENTS

SPECS = {
    "backbone": "zoo.backbones",
    "algebra": "zoo.algebras",
    "data": "zoo.datasets",
    "embedding": "zoo.embeddings",
    "task": "zoo.tasks",
}
"""Options that hold a spec, and the entry group that it is looked up in."""


class Words(NamedTuple):
    """The words of a call: flags with their values, configuration files, and positional arguments."""

    flags: list[tuple[str, str | None]]
    files: list[str]
    positional: list[str]


class _Plain(argparse.ArgumentParser):
    """argparse for the commands that must answer at once, with exceptions instead of a usage page."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


class Parser:
    """Reads the words of one command.

    Args:
        command: Its name.
        description: One line for its help page.
        options: A dataclass; every field becomes a flag ``--name``, every field of a field that is a dataclass a flag
            ``--name.part``, and a field ``trainer`` one flag for each argument of Lightning's Trainer. Without one the command
            needs no jsonargparse and reads no files.

    Attributes:
        flags: All flags, and whether each takes a value.
        short: Short forms: ``--beam`` for ``--decoding.beam``, wherever the command has no other flag of that name.
    """

    def __init__(self, command: str, description: str, options: type | None = None) -> None:
        self.command, self.options, self.flags, self.short = command, options, {"--help": False}, {"-h": "--help"}
        self._positional: list[tuple[str, str]] = []
        self._several: dict[str, bool] = {}  # flags that take several values, and whether these are texts
        self._open = ""
        if options is None:
            self._base: Any = _Plain(prog=f"zoo {command}", description=description, allow_abbrev=False)
            return
        from jsonargparse import ArgumentParser

        self._base = ArgumentParser(prog=f"zoo {command}", description=description, exit_on_error=False, print_config=None)
        self._base.add_argument("-c", "--config", action="config", help="YAML file of options; a later one wins, flags win")
        self.flags["--config"], self.short["-c"] = True, "--config"
        self._add_options(options)

    # --- what there is ---

    def switch(self, name: str, text: str) -> Self:
        """Add a flag without a value."""
        self.flags[name] = False
        self._base.add_argument(name, action="store_true", help=text)
        return self

    def value(self, name: str, text: str) -> Self:
        """Add a flag with a text as its value, beside those of the options class."""
        self.flags[name] = True
        self._base.add_argument(name, type=str, default=None, metavar=name.strip("-").upper(), help=text)
        return self

    def positional(self, name: str, text: str, nargs: str = "") -> Self:
        """Add a positional argument; ``nargs`` is empty for one word, ``?`` for one or none, ``*`` for any number."""
        self._positional.append((name, nargs))
        self._base.add_argument(name, help=text, **({"nargs": nargs} if nargs else {}), metavar=name.upper())
        return self

    def leave_open(self, part: str) -> Self:
        """Return of the options of a part only those that are given: a trained model has defaults of its own."""
        self._open = part
        return self

    def _add_options(self, options: type) -> None:
        hints = get_type_hints(options)
        kinds = {field.name: hints[field.name] for field in fields(options)}
        parts = {name: kind for name, kind in kinds.items() if is_dataclass(kind)}
        apart = (parts.keys() | {"trainer"}) & kinds.keys()
        self._know(self._base.add_class_arguments(options, as_group=False, skip=set(apart)), hints)
        for name, kind in parts.items():
            title = next(iter((kind.__doc__ or "").splitlines()), "").rstrip(".")
            hint = "; --beam is short for --decoding.beam, and so on" if name == "decoding" else ""
            group = self._base.add_argument_group(name, title + hint)
            keys = group.add_class_arguments(kind, name, as_group=False)
            self._know(keys, {f"{name}.{part}": hint for part, hint in get_type_hints(kind).items()})
        short = {f"--{key.partition('.')[2]}": key for key in self.flags if key.startswith("--decoding.")}
        self.short |= {name: key for name, key in short.items() if name not in self.flags}
        if "trainer" in kinds:
            for name in TRAINER_ARGUMENTS:
                self.flags[f"--trainer.{name}"] = True
                self._base.add_argument(f"--trainer.{name}", type=Any, default=None, help=argparse.SUPPRESS)
            self._base.epilog = f"--trainer.NAME sets any argument of Lightning's Trainer: {', '.join(TRAINER_ARGUMENTS)}"

    def _know(self, keys: Iterable[str], hints: Mapping[str, Any]) -> None:
        for key in keys:
            self.flags[f"--{key}"] = True
            if "tuple[" in str(hints[key]) or get_origin(hints[key]) is tuple:
                self._several[f"--{key}"] = "str" in str(hints[key])

    # --- what is said ---

    def parse(self, argv: list[str]) -> dict[str, Any]:
        """Read a call: what was given or is a default, as nested dicts; Trainer arguments only where given."""
        words = self.split(argv)
        if any(name == "--help" for name, _ in words.flags):
            self._base.print_help()
            raise SystemExit(0)
        texts = [self.read_file(file) for file in words.files]
        given_keys = {name.removeprefix("--") for name, _ in words.flags}.union(*(keys for _, keys in texts))
        self._check_positional(words)
        given = [name if value is None else f"{name}={self._bracketed(name, value)}" for name, value in words.flags]
        files = [f"--config=\n{text}\n#" for text, _ in texts]  # lines around it: neither a path nor a text that ends with ":"
        line = [*files, *given, *(["--", *words.positional] if words.positional else [])]
        if self.options is None:
            return dict(vars(self._base.parse_args(line)))
        from jsonargparse import ArgumentError

        from zoo.training.options import parser_message

        try:
            values = self._base.parse_args(line).as_dict()
        except (ArgumentError, UnicodeDecodeError) as error:
            raise InputError("; ".join([parser_message(str(error)), *self._wrong_names(words)])) from error
        values.pop("config", None)
        if not isinstance(values.get("trainer", {}), dict):
            raise InputError(f"trainer: expected arguments of Lightning's Trainer by name, not {values['trainer']!r}")
        if "trainer" in values:
            values["trainer"] = {name: value for name, value in values["trainer"].items() if value is not None}
        if self._open:
            part = values[self._open].items()
            values[self._open] = {name: value for name, value in part if f"{self._open}.{name}" in given_keys}
        check_names(values)
        return dict(values)

    def split(self, argv: list[str]) -> Words:
        """Tell flags from files and positional arguments; dashes in flags stand for underscores."""
        flags: list[tuple[str, str | None]] = []
        positional: list[str] = []
        rest = iter(argv)
        for word in rest:
            if word == "--":
                positional += rest
                break
            if not is_flag(word):
                positional.append(word)
                continue
            name, equals, value = word.partition("=")
            if word.startswith("-c") and not equals and word != "-c":
                name, equals, value = "-c", "=", word[2:]
            name = self.find(name)
            if not self.flags[name]:
                if equals:
                    raise InputError(f"{name} takes no value (see zoo {self.command} --help)")
                flags.append((name, None))
                continue
            found = value if equals else next(rest, None)
            if found is None or (not equals and found.startswith("--") and is_flag(found)):
                raise InputError(f"{name}: expected one argument (see zoo {self.command} --help)")
            flags.append((name, found))
        files = [str(value) for name, value in flags if name == "--config"]
        return Words([pair for pair in flags if pair[0] != "--config"], files, positional)

    def find(self, word: str) -> str:
        """Return the flag that a word means; if there is none, the error names those that are close."""
        name = "--" + word[2:].replace("-", "_") if word.startswith("--") else word
        if name in self.flags or name in self.short:
            return self.short.get(name, name)
        if parts := [flag for flag in self.flags if flag.startswith(f"{name}.")]:
            raise InputError(f"{name} has parts, each with a flag of its own: {', '.join(parts[:6])}")
        last = {flag: flag.lstrip("-").rpartition(".")[2] for flag in self.flags}
        bare = name.lstrip("-")
        close = [flag for flag in last if last[flag] == bare] or [flag for flag in last if last[flag].endswith(f"_{bare}")]
        close = close or [flag for flag in last if last[flag].startswith(bare)]
        close = close or get_close_matches(name, [*self.flags, *self.short], 1)
        close = close or [flag for flag in last if get_close_matches(bare, [last[flag]], 1)][:1]
        hint = f": did you mean {' or '.join(close[:3])}?" if close else ""
        raise InputError(f"unknown flag {word}{hint} (all flags: zoo {self.command} --help)")

    def read_file(self, file: str) -> tuple[str, set[str]]:
        """Return the text of a configuration file and its keys, with dots; an error names the file."""
        from zoo.cli.configuration import read_config

        text, values = read_config(file)
        known = {flag.removeprefix("--") for flag in self.flags if self.flags[flag] and flag != "--config"}
        known |= {name.partition(".")[0] for name in known}
        keys: set[str] = set()
        for key, value in values.items():
            if value is None and any(name.startswith(f"{key}.") for name in known):
                raise InputError(f"'{key}' in the config '{file}' is empty: give it options, or leave it out")
            keys |= {f"{key}.{part}" for part in value} if isinstance(value, dict) else {str(key)}
        for name in sorted(keys - known):
            close = get_close_matches(name, known, 1)
            hint = f": did you mean '{close[0]}'?" if close else ""
            raise InputError(f"unknown option '{name}' in the config '{file}'{hint}")
        return text, keys

    def _bracketed(self, name: str, value: str) -> str:
        """Let ``0.9,0.99`` stand for ``[0.9, 0.99]``, and ``real,phm(n=4)`` for two texts, where a flag takes several."""
        if name not in self._several or value == "null" or value.startswith("["):
            return value
        if self._several[name] and not value.startswith("("):
            return json.dumps(split_specs(value))
        return f"[{value.strip('()')}]" if "," in value else value

    def _check_positional(self, words: Words) -> None:
        needed = [name for name, nargs in self._positional if not nargs]
        if len(words.positional) < len(needed):
            missing = ", ".join(name.upper() for name in needed[len(words.positional) :])
            raise InputError(f"missing {missing} (see zoo {self.command} --help)")
        most = len(words.positional) if any(nargs == "*" for _, nargs in self._positional) else len(self._positional)
        if stray := words.positional[most:]:
            raise InputError(f"unexpected argument '{stray[0]}' (see zoo {self.command} --help)")

    def _wrong_names(self, words: Words) -> list[str]:
        """Say which specs among the flags name nothing; for a call that fails already, so that one answer has all of it."""
        found = []
        for name, value in words.flags:
            try:
                check_names({name.removeprefix("--"): value})
            except InputError as error:
                found.append(str(error))
        return found


def is_flag(word: str) -> bool:
    """Tell a flag from a positional argument: standard input, a negative number, or a text with spaces."""
    if not word.startswith("-") or word == "-" or " " in word.partition("=")[0]:
        return False
    return not word[1:].replace(".", "", 1).isdigit()


def check_names(values: Mapping[str, Any]) -> None:
    """Refuse names that no installed plugin provides, without importing any."""
    for key, group in SPECS.items():
        if values.get(key) not in (None, ""):
            registry.resolve(group, values[key])
    compare = values.get("compare") or ()
    for spec in split_specs(compare) if isinstance(compare, str) else compare:
        registry.resolve(SPECS["algebra"], spec)
