"""Parser of all commands, based on argparse: one flag per field of an options class, and YAML files, which flags override.

Flags are written with dashes (``--batch-size``), options in Python and YAML with underscores (``batch_size``). Parsing
imports no plugin: names are looked up in the metadata of installed packages.
"""

import argparse
import inspect
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple, NoReturn, Self, get_args, get_origin, get_type_hints

import yaml

from zoo import registry
from zoo.cli.configuration import read_config, read_value
from zoo.errors import InputError, shorten
from zoo.registry.signatures import check_option, check_sizes
from zoo.registry.spec import split_at_commas
from zoo.training.options import TRAINER_ARGUMENTS

SPECS = {
    "backbone": "zoo.backbones",
    "algebra": "zoo.algebras",
    "data": "zoo.datasets",
    "embedding": "zoo.embeddings",
    "task": "zoo.tasks",
}
"""Options that are specs, and their entry groups."""


class Words(NamedTuple):
    """The words of a call: flags by option name (True for a switch), configuration files and positional arguments."""

    flags: dict[str, Any]
    files: list[str]
    positional: list[str]


class _ArgumentParser(argparse.ArgumentParser):
    """Raises `InputError` instead of exiting."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)", code="missing" if "expected" in message else "invalid")


@dataclass(frozen=True)
class Option:
    """An option of a command.

    Attributes:
        kind: The type, `bool` for a switch, `Any` if it is not checked here.
        help: The text on the help page; None hides the option.
        group: The nested options class it belongs to, such as ``optimizer``; "" at the top level.
        is_switch: Whether the flag takes no value.
        default: The default; `MISSING` if the option is required.
    """

    kind: Any
    help: str | None
    group: str = ""
    is_switch: bool = False
    default: Any = None


class Parser:
    """Parse the arguments of a command.

    Args:
        command: The name of the command.
        description: The first line of its help page.
        options: A dataclass; every field becomes a flag ``--name``, every field of a field that is a dataclass a flag
            ``--name.part``, and a field ``trainer`` one flag for each argument of Lightning's Trainer. Without one the command
            reads no files.

    Attributes:
        known: All options by name, with dots and underscores.
        short: Further flags and the option that each stands for, such as ``--beam`` for ``decoding.beam``.
    """

    def __init__(self, command: str, description: str, options: type | None = None) -> None:
        self.command, self.description = command, description
        self.known: dict[str, Option] = {"help": Option(bool, "show this page", is_switch=True)}
        self.short: dict[str, str] = {"-h": "help"}
        self._positional: list[tuple[str, str, str]] = []
        self._groups: dict[str, str] = {}
        self._open: str | None = None
        if options is not None:
            self.known["config"] = Option(str, "YAML file of options; later files override earlier ones, flags override files")
            self.short["-c"] = "config"
            self._add_options(options)

    @property
    def flags(self) -> list[str]:
        """All flags, as typed on the command line."""
        return [flag_of(name) for name in self.known]

    def switch(self, name: str, text: str) -> Self:
        """Add a flag without a value."""
        self.known[option_of(name)] = Option(bool, text, is_switch=True, default=False)
        return self

    def value(self, name: str, text: str) -> Self:
        """Add a flag with a text value that is not a field of the options class."""
        self.known[option_of(name)] = Option(str | None, text)
        return self

    def positional(self, name: str, text: str, nargs: str = "") -> Self:
        """Add a positional argument; ``nargs`` is "" for a required one, ``?`` for an optional one, ``*`` for any number."""
        self._positional.append((name, text, nargs))
        return self

    def leave_open(self, part: str) -> Self:
        """Omit the defaults of nested options, because a trained model has its own."""
        self._open = part
        return self

    def _add_options(self, options: type) -> None:
        hints, texts = get_type_hints(options), descriptions(options)
        for field in fields(options):
            kind = hints[field.name]
            if is_dataclass(kind):
                hint = "; --beam is short for --decoding.beam, and so on" if field.name == "decoding" else ""
                self._groups[field.name] = (kind.__doc__ or "").partition("\n")[0].rstrip(".") + hint
                parts, part_texts, nested = get_type_hints(kind), descriptions(kind), kind()  # type: ignore[arg-type,operator]
                self.known |= {
                    f"{field.name}.{part}": Option(parts[part], part_texts[part], field.name, default=getattr(nested, part))
                    for part in parts
                }
            elif field.name == "trainer":
                self.known |= {f"trainer.{name}": Option(Any, None, "trainer") for name in TRAINER_ARGUMENTS}
            else:
                default = field.default if field.default_factory is MISSING else None
                self.known[field.name] = Option(kind, texts[field.name], default=default)
        flags = set(self.flags)
        short = {flag_of(name.partition(".")[2]): name for name in self.known if name.startswith("decoding.")}
        self.short |= {flag: name for flag, name in short.items() if flag not in flags}

    # --- reading ---

    def parse(self, argv: list[str]) -> dict[str, Any]:
        """Parse arguments to nested dicts: defaults, overridden by files, overridden by flags; Trainer arguments if given.

        Raises:
            InputError: If a flag, a file or a value is invalid.
        """
        words = self.split(argv)
        if "help" in words.flags:
            print(self.help_page())
            raise SystemExit(0)
        given: dict[str, Any] = {}
        for file in words.files:
            given |= self.read_file(file)
        positional = self._assign(words.positional)
        given |= {name: True if text is True else self._read(name, text) for name, text in words.flags.items()}
        self._check_required(given)
        values = self._defaults() | positional
        for name, value in given.items():
            checked = check_option(name, self.known[name].kind, value)
            part, dot, key = name.partition(".")
            if dot:
                values[part][key] = checked
            else:
                values[name] = checked
        if "trainer" in values:  # null selects the default of Lightning
            values["trainer"] = {name: value for name, value in values["trainer"].items() if value is not None}
        check_names(values)
        return values

    def split(self, argv: list[str]) -> Words:
        """Split words into flags, files and positional arguments."""
        end = argv.index("--") if "--" in argv else len(argv)
        parts = [word.partition("=") for word in argv[:end]]
        words = ["".join((flag.replace("_", "-") if is_flag(flag) else flag, *text)) for flag, *text in parts]
        namespace, rest = self._arguments().parse_known_args(words)
        for word in filter(is_flag, rest):
            self.find(argv[words.index(word)].partition("=")[0])
        flags = vars(namespace)
        return Words(flags, flags.pop("config", []), rest + argv[end + 1 :])

    def find(self, flag: str) -> str:
        """Return the option of a flag; raise `InputError` with suggestions for an unknown flag."""
        if flag.startswith("--"):
            flag = flag_of(flag[2:])
        name = self.short.get(flag, option_of(flag))
        if name in self.known and (flag in self.short or flag.startswith("--")):
            return name
        if parts := [flag_of(known) for known in self.known if known.startswith(f"{name}.")]:
            raise InputError(f"{flag} is not a flag itself: use {', '.join(parts[:6])}", code="unknown")
        forms: dict[str, list[str]] = {}
        for known in (*self.known, *map(option_of, self.short)):
            forms.setdefault(known, []).append(known)
            forms.setdefault(known.rpartition(".")[2], []).append(known)
        close = [name] if name in forms else get_close_matches(name, forms, 2, 0.75)
        flags = dict.fromkeys(flag_of(known) for form in close for known in forms[form])
        hint = f": did you mean {' or '.join(flags)}?" if flags else ""
        raise InputError(f"unknown flag {flag}{hint} (all flags: zoo {self.command} --help)", code="unknown")

    def read_file(self, file: str) -> dict[str, Any]:
        """Return the options of a configuration file by dotted name; errors name the file."""
        given: dict[str, Any] = {}
        for key, value in read_config(file)[1].items():
            is_nested = any(name.startswith(f"{key}.") for name in self.known)
            if is_nested and not isinstance(value, dict):
                problem = "is empty" if value is None else f"is {shorten(str(value))}"
                raise InputError(f"'{key}' in the config '{file}' {problem}: use options by name, or remove it")
            given |= {f"{key}.{part}": item for part, item in value.items()} if is_nested else {str(key): value}
        settable = {name for name, option in self.known.items() if not option.is_switch and name != "config"}
        if unknown := sorted(given.keys() - settable):
            close = get_close_matches(unknown[0], [*settable, *self._groups, "trainer"], 1)
            hint = f": did you mean '{close[0]}'?" if close else ""
            raise InputError(f"unknown option '{unknown[0]}' in the config '{file}'{hint}", code="unknown")
        for name, value in given.items():  # also if a flag overrides it
            try:
                check_option(name, self.known[name].kind, value)
            except InputError as error:
                raise InputError(f"the config '{file}': {error}") from error
        return given

    def _read(self, name: str, text: str) -> Any:
        """Parse the text of a flag by its type: ``0.9,0.99`` is a list of numbers, ``real,phm(n=4)`` a list of texts."""
        kinds = get_args(self.known[name].kind) or (self.known[name].kind,)
        sequence = next((kind for kind in (self.known[name].kind, *kinds) if get_origin(kind) is tuple), None)
        if text == "null" and type(None) in kinds:
            return None
        if sequence is not None:
            inside = text.strip()[1:-1] if text.strip()[:1] in ("[", "(") else text
            try:
                parts = [part.strip("'\"") for part in split_at_commas(inside)]
            except InputError as error:
                raise InputError(f"{flag_of(name)}: {error}") from error
            return parts if str in get_args(sequence) else [self._read_yaml(name, part) for part in parts]
        return text if str in kinds else self._read_yaml(name, text)

    def _read_yaml(self, name: str, text: str) -> Any:
        try:
            return read_value(text)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise InputError(f"{flag_of(name)}: {shorten(text)} is not valid YAML") from error

    def _defaults(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, option in self.known.items():
            if option.group:
                part = values.setdefault(option.group, {})
                part |= {name.partition(".")[2]: option.default} if option.group not in ("trainer", self._open) else {}
            elif name not in ("help", "config"):
                values[name] = option.default
        return values

    # --- positional and required arguments ---

    def _assign(self, words: list[str]) -> dict[str, Any]:
        """Return the positional arguments by name, after checking their number."""
        required = [name for name, _, nargs in self._positional if not nargs]
        if len(words) < len(required):
            missing = ", ".join(name.upper() for name in required[len(words) :])
            raise InputError(f"missing {missing} (see zoo {self.command} --help)", code="missing")
        rest = iter(words)
        values = {name: list(rest) if nargs == "*" else next(rest, None) for name, _, nargs in self._positional}
        if (unexpected := next(rest, None)) is not None:
            raise InputError(f"unexpected argument '{unexpected}' (see zoo {self.command} --help)", code="unknown")
        return values

    def _check_required(self, given: Mapping[str, Any]) -> None:
        """Raise `InputError` if options are missing; the message also reports invalid names."""
        missing = [name for name, option in self.known.items() if option.default is MISSING and name not in given]
        if not missing:
            return
        problems = [f"missing {', '.join(map(flag_of, missing))} (see zoo {self.command} --help)"]
        try:
            check_names(given)
        except InputError as error:
            problems.append(str(error))
        raise InputError("; ".join(problems), code="missing")

    # --- the help page ---

    def help_page(self) -> str:
        """Return the text of ``zoo COMMAND --help``."""
        page = self._arguments()
        for name, text, nargs in self._positional:
            page.add_argument(name, help=text, nargs=nargs or None, metavar=name.upper())
        if "trainer.max_epochs" in self.known:
            names = ", ".join(flag_of(name)[2:] for name in TRAINER_ARGUMENTS)
            page.epilog = f"--trainer.NAME sets any argument of Lightning's Trainer: {names}"
        return page.format_help().rstrip()

    def _arguments(self) -> _ArgumentParser:
        """Return an argparse parser with all flags."""
        words = [{"": "{}", "?": "[{}]", "*": "[{} ...]"}[nargs].format(name.upper()) for name, _, nargs in self._positional]
        usage, prog = " ".join(["zoo", self.command, *words, "[OPTIONS]"]), f"zoo {self.command}"
        options: dict[str, Any] = {"add_help": False, "allow_abbrev": False, "argument_default": argparse.SUPPRESS}
        page = _ArgumentParser(prog, usage, self.description, **options)
        groups = {name: page.add_argument_group(name, title) for name, title in self._groups.items()}
        for name, option in self.known.items():
            default = option.default
            shown = default not in (None, False, "", (), [], MISSING) and option.group != self._open
            note = f" (default: {', '.join(map(str, default)) if isinstance(default, tuple) else default})" if shown else ""
            text = argparse.SUPPRESS if option.help is None else (option.help + note).replace("%", "%%")
            kind: Any = {"action": "store_true"} if option.is_switch else {"metavar": name.rpartition(".")[2].upper()}
            kind |= {"action": "append"} if name == "config" else {}
            short = [flag for flag, known in self.short.items() if known == name]
            target: Any = groups.get(option.group, page)
            target.add_argument(*short, flag_of(name), dest=name, help=text, default=argparse.SUPPRESS, **kind)
        return page


def flag_of(name: str) -> str:
    """Return the flag of an option: ``optimizer.weight_decay`` is ``--optimizer.weight-decay``."""
    return "--" + name.replace("_", "-")


def option_of(flag: str) -> str:
    """Return the option of a flag: ``--run-dir`` is ``run_dir``."""
    return flag.lstrip("-").replace("-", "_")


def descriptions(options: type) -> dict[str, str]:
    """Return the descriptions of the fields of a dataclass and its bases, from ``Args:`` of their docstrings."""
    texts: dict[str, str] = {}
    for kind in reversed(options.__mro__):
        text = (inspect.cleandoc(kind.__doc__ or "")).partition("Args:\n")[2]
        for name, line in re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", text, flags=re.MULTILINE):
            texts[name] = " ".join(line.split()).removesuffix(".")
    return texts


def is_flag(word: str) -> bool:
    """Return whether a word is a flag and not "-", a negative number, or a text with spaces."""
    is_number = word[1:].replace(".", "", 1).isdigit()
    return word.startswith("-") and word != "-" and " " not in word.partition("=")[0] and not is_number


def check_names(values: Mapping[str, Any]) -> None:
    """Raise `InputError` for names that no installed plugin provides, and for excessive sizes, without importing plugins."""
    for key, group in SPECS.items():
        if isinstance(values.get(key), str) and values[key]:
            entry, spec = registry.resolve(group, values[key])
            if key == "backbone":
                check_sizes(entry.name, spec.options)
    check_sizes("", {"batch_size": values.get("batch_size")})
    compare = values.get("compare") or ()
    for name in split_at_commas(compare) if isinstance(compare, str) else compare:
        registry.resolve(SPECS["algebra"], name)
