"""The parser of a command, derived from the signature and the docstring of its function.

Flags are written with dashes (``--batch-size``), options in Python and YAML with underscores (``batch_size``). Parsing
imports no plugin: names are looked up in the metadata of installed packages.
"""

import argparse
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

import yaml

from zoo import registry
from zoo.cli.result import Result
from zoo.errors import InputError, one_line, shorten
from zoo.registry.limits import check_sizes
from zoo.registry.resolution import build_options, check_option, named_options
from zoo.registry.spec import split_at_commas
from zoo.training.options import SPECS, TRAINER_ARGUMENTS, check_not_tickets

SHORT = (("-h", "help"), ("-c", "config"), ("--from", "init_from"), ("--from", "source"))
"""Short flags and their options."""
SHARED = {
    "run": "A run (runs/NAME), a model folder, a name of zoo list checkpoints, owner/name@revision or https://HOST/FOLDER",
    "license": "License of the weights, as an identifier of the Hub: apache-2.0, mit, cc-by-4.0",
}
"""Help texts of arguments that several commands have; their docstrings may replace them."""
MOST_BYTES = 2**17
"""Size limit of a configuration file."""


class _ArgumentParser(argparse.ArgumentParser):
    """Raises `InputError` instead of exiting."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)", code="missing" if "expected" in message else "invalid")


@dataclass(frozen=True)
class Option:
    """An option of a command; options that a configuration file cannot set are switches if they are `bool`."""

    kind: Any  # the type, `Any` if it is not checked here
    help: str | None  # None hides the option
    default: Any = None  # `MISSING` if the option is required
    group: str = ""  # the nested options class that it belongs to, such as optimizer
    in_files: bool = True  # whether a configuration file may set it


class Parser:
    """Parse the arguments of a command.

    A positional parameter of the function is an argument: required, optional with the default None, or any number for
    ``Sequence[str]``. A keyword-only parameter is a flag: ``--name`` for a `bool`, ``--name VALUE`` for other types. A
    parameter whose type is a dataclass adds a flag for every field, ``--field.part`` for a field that is a dataclass itself,
    and reads YAML files (``-c``), which flags override. A command that returns a `Result` has the flag ``--json``. The help
    texts are the ``Args`` of the docstrings.

    Attributes:
        known: All options by name, with dots and underscores.
        short: Further flags and the option that each stands for, such as ``--beam`` for ``decoding.beam``.
    """

    def __init__(self, command: str, function: Callable[..., Any]) -> None:
        self.command, self.description = command, (function.__doc__ or "").strip().partition("\n")[0]
        self.known = {"help": Option(bool, "show this page", in_files=False)}
        self._positional: dict[str, Option] = {}
        self._groups: dict[str, str] = {}
        self._options: tuple[str, type] | None = None
        hints, texts = get_type_hints(function), SHARED | descriptions(function)
        for name, parameter in inspect.signature(function).parameters.items():
            kind, default = hints[name], parameter.default
            if is_dataclass(kind):
                self._options = name, kind  # type: ignore[assignment]
                text = "YAML file of options; later files override earlier ones, flags override files"
                self.known["config"] = Option(str, text, in_files=False)
                self._add_options(kind)  # type: ignore[arg-type]
            elif parameter.kind is parameter.KEYWORD_ONLY:
                self.known[name] = Option(kind, texts[name], default, in_files=False)
            else:
                self._positional[name] = Option(kind, texts[name], default)
        self.returns_result = hints.get("return") is Result
        if self.returns_result:
            self.known["json"] = Option(bool, "print JSON", in_files=False)
        parts = {flag_of(name.partition(".")[2]): name for name in self.known if name.startswith("decoding.")}
        self.short = {flag: name for flag, name in parts.items() if flag not in self.flags}
        self.short |= {flag: name for flag, name in SHORT if name in self.known}

    @property
    def flags(self) -> list[str]:
        """All flags, as typed on the command line."""
        return [flag_of(name) for name in self.known]

    def _add_options(self, options: type) -> None:
        hints, texts = get_type_hints(options, include_extras=True), descriptions(options)
        for field in fields(options):
            kind = hints[field.name]
            nested = next((part for part in (kind, *get_args(kind)) if is_dataclass(part)), None)
            if nested is not None:
                hint = "; --beam is short for --decoding.beam, and so on" if field.name == "decoding" else ""
                self._groups[field.name] = (nested.__doc__ or "").partition("\n")[0].rstrip(".") + hint
                parts, part_texts = get_type_hints(nested), descriptions(nested)
                if "name" in parts:
                    text = f"spec of the {field.name}, whose options are the flags below"
                    self.known[field.name] = Option(str, text, None, field.name)
                for part in fields(nested):
                    default = part.default if nested is kind else None  # a trained model has its own defaults
                    option = Option(parts[part.name], part_texts[part.name], default, field.name)
                    self.known[f"{field.name}.{part.name}"] = option
            elif field.name == "trainer":
                self.known |= {f"trainer.{name}": Option(Any, None, None, "trainer") for name in TRAINER_ARGUMENTS}
            else:
                default = field.default if field.default_factory is MISSING else None
                self.known[field.name] = Option(kind, texts[field.name], default)

    def parse(self, argv: list[str]) -> dict[str, Any]:
        """Parse arguments to the keyword arguments of the function: defaults, overridden by files, overridden by flags."""
        flags, positional = self._split(argv)
        if "help" in flags:
            print(self.help_page())
            raise SystemExit(0)
        given: dict[str, Any] = {}
        for file in self._files(flags):
            given |= self.read_file(file)
        values = self._assign(positional)
        read = {name: True if text is True else self._read(name, text) for name, text in flags.items()}
        for name in [name for name in read if f"{name}.name" in self.known]:
            given |= {f"{name}.{part}": value for part, value in named_options(str(read.pop(name))).items()}
        given |= read
        if unknown := sorted(given.keys() - self.known.keys()):
            raise InputError(f"unknown option '{unknown[0]}' (see zoo {self.command} --help)", code="unknown")
        check_names(given)
        if missing := [flag_of(name) for name, option in self.known.items() if option.default is MISSING and name not in given]:
            raise InputError(f"missing {', '.join(missing)} (see zoo {self.command} --help)", code="missing")
        options: dict[str, Any] = {}
        for name, value in given.items():
            target, (part, dot, key) = options if self.known[name].in_files else values, name.partition(".")
            if not dot:
                target[name] = value
            elif part != "trainer" or value is not None:  # null selects the default of Lightning
                target.setdefault(part, {})[key] = value
        if self._options is not None:
            name, kind = self._options
            values[name] = build_options(kind, options)
        return values

    def _split(self, argv: list[str]) -> tuple[dict[str, Any], list[str]]:
        """Split words into flags by option name (True for a switch) and positional arguments."""
        end = argv.index("--") if "--" in argv else len(argv)
        parts = [word.partition("=") for word in argv[:end]]
        words = ["".join((flag.replace("_", "-") if is_flag(flag) else flag, *text)) for flag, *text in parts]
        namespace, rest = self._arguments().parse_known_args(words)
        for word in filter(is_flag, rest):
            self._find(argv[words.index(word)].partition("=")[0])
        return vars(namespace), rest + argv[end + 1 :]

    def _find(self, flag: str) -> str:
        """Return the option of a flag; raise `InputError` with suggestions for an unknown flag."""
        if flag.startswith("--"):
            flag = flag_of(flag[2:])
        name = self.short.get(flag, flag.lstrip("-").replace("-", "_"))
        if name in self.known and (flag in self.short or flag.startswith("--")):
            return name
        if parts := [flag_of(known) for known in self.known if known.startswith(f"{name}.")]:
            raise InputError(f"{flag} is not a flag itself: use {', '.join(parts[:6])}", code="unknown")
        forms: dict[str, list[str]] = {}
        for known in (*self.known, *(flag.lstrip("-").replace("-", "_") for flag in self.short)):
            forms.setdefault(known, []).append(known)
            forms.setdefault(known.rpartition(".")[2], []).append(known)
        close = [name] if name in forms else get_close_matches(name, forms, 2, 0.75)
        flags = dict.fromkeys(flag_of(known) for form in close for known in forms[form])
        hint = f": did you mean {' or '.join(flags)}?" if flags else ""
        raise InputError(f"unknown flag {flag}{hint} (all flags: zoo {self.command} --help)", code="unknown")

    def _files(self, flags: dict[str, Any]) -> list[str]:
        """Remove the configuration files from the flags and return them; ``--resume RUN`` reads that of the run first."""
        files: list[str] = flags.pop("config", [])
        run = flags.get("resume")
        if run in (None, "auto", "null"):
            return files
        if "run_dir" in flags:
            raise InputError("--resume RUN resumes the run in its own folder: remove --run-dir", code="conflict")
        config = Path(run).expanduser() / "config.yaml"
        if not config.is_file():
            raise InputError(f"--resume {run}: not a run, {config} is missing", code="missing")
        if self.command == "fit":
            check_not_tickets(run)
        return [str(config), *files]

    def read_file(self, file: str) -> dict[str, Any]:
        """Return the options of a configuration file by dotted name; errors name the file."""
        given: dict[str, Any] = {}
        for key, value in read_config(file).items():
            is_nested = any(name.startswith(f"{key}.") for name in self.known)
            if isinstance(value, str) and f"{key}.name" in self.known:
                value = named_options(value)
            if is_nested and not isinstance(value, dict):
                problem = "is empty" if value is None else f"is {shorten(str(value))}"
                raise InputError(f"'{key}' in the config '{file}' {problem}: use options by name, or remove it")
            given |= {f"{key}.{part}": item for part, item in value.items()} if is_nested else {str(key): value}
        settable = [name for name, option in self.known.items() if option.in_files]
        if unknown := sorted(given.keys() - settable):
            close = get_close_matches(unknown[0], [*settable, *self._groups, "trainer"], 1)
            hint = f": did you mean '{close[0]}'?" if close else ""
            raise InputError(f"unknown option {shorten(unknown[0])} in the config '{file}'{hint}", code="unknown")
        try:  # also if a flag overrides it
            return {name: check_option(name, self.known[name].kind, value) for name, value in given.items()}
        except InputError as error:
            raise InputError(f"the config '{file}': {error}") from error

    def _read(self, name: str, text: str) -> Any:
        """Parse the text of a flag by its type: ``0.9,0.99`` is a list of numbers, ``real,phm(n=4)`` a list of texts."""
        kind = self.known[name].kind
        kinds = (kind, *get_args(kind))
        value: Any = text
        try:
            if text == "null" and type(None) in kinds:
                value = None
            elif sequence := next((part for part in kinds if get_origin(part) is tuple), None):
                inside = text.strip()[1:-1] if text.strip()[:1] in ("[", "(") else text
                parts = [part.strip("'\"") for part in split_at_commas(inside)]
                value = parts if str in get_args(sequence) else list(map(read_value, parts))
            elif str not in kinds or float in kinds:
                value = read_value(text)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            reason = error if isinstance(error, InputError) else f"{shorten(text)} is not valid YAML"
            raise InputError(f"{flag_of(name)}: {reason}") from error
        return value if self.known[name].in_files else check_option(name, kind, value)

    def _assign(self, words: list[str]) -> dict[str, Any]:
        """Return the positional arguments by name, after checking their number."""
        required = [name for name, option in self._positional.items() if option.default is inspect.Parameter.empty]
        if len(words) < len(required):
            missing = ", ".join(name.upper() for name in required[len(words) :])
            raise InputError(f"missing {missing} (see zoo {self.command} --help)", code="missing")
        rest = iter(words)
        values = {
            name: next(rest, None) if get_origin(option.kind) is not Sequence else list(rest)
            for name, option in self._positional.items()
        }
        if (unexpected := next(rest, None)) is not None:
            raise InputError(f"unexpected argument '{unexpected}' (see zoo {self.command} --help)", code="unknown")
        return values

    def help_page(self) -> str:
        """Return the text of ``zoo COMMAND --help``."""
        page = self._arguments()
        for name, option in self._positional.items():
            page.add_argument(name, help=option.help, metavar=name.upper())
        if "trainer.max_epochs" in self.known:
            names = ", ".join(flag_of(name)[2:] for name in TRAINER_ARGUMENTS)
            page.epilog = f"--trainer.NAME sets any argument of Lightning's Trainer: {names}"
        return page.format_help().rstrip()

    def _arguments(self) -> _ArgumentParser:
        words = []
        for name, option in self._positional.items():
            is_required = option.default is inspect.Parameter.empty
            words.append(name.upper() if is_required else f"[{name.upper()}{' ...' * (get_origin(option.kind) is Sequence)}]")
        usage, prog = " ".join(["zoo", self.command, *words, "[OPTIONS]"]), f"zoo {self.command}"
        settings: Any = {"add_help": False, "allow_abbrev": False, "argument_default": argparse.SUPPRESS}
        page = _ArgumentParser(prog, usage, self.description, **settings)
        groups = {name: page.add_argument_group(name, title) for name, title in self._groups.items()}
        for name, option in self.known.items():
            default = option.default
            shown = "" if default in (None, False, "", (), [], MISSING) else default
            note = f" (default: {', '.join(map(str, shown)) if isinstance(shown, tuple) else shown})" if shown != "" else ""
            text = argparse.SUPPRESS if option.help is None else (option.help + note).replace("%", "%%")
            is_switch = option.kind is bool and not option.in_files
            kind: Any = {"action": "store_true"} if is_switch else {"metavar": name.rpartition(".")[2].upper()}
            kind |= {"action": "append"} if name == "config" else {}
            short = [flag for flag, known in self.short.items() if known == name]
            target: Any = groups.get(option.group, page)
            target.add_argument(*short, flag_of(name), dest=name, help=text, **kind)
        return page


def flag_of(name: str) -> str:
    """Return the flag of an option: ``optimizer.weight_decay`` is ``--optimizer.weight-decay``."""
    return "--" + name.replace("_", "-")


def descriptions(documented: object) -> dict[str, str]:
    """Return the texts of ``Args:`` in the docstring of a function, or in those of a class and its bases."""
    texts: dict[str, str] = {}
    for item in reversed(getattr(documented, "__mro__", (documented,))):
        text = inspect.cleandoc(item.__doc__ or "").partition("Args:\n")[2]
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
    compare = values.get("compare") or ()
    for name in split_at_commas(compare) if isinstance(compare, str) else compare:
        registry.resolve(SPECS["algebra"], name)


# PyYAML has no types.
class Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Safe loader that reads 1e-3 as a number, as YAML 1.2 does, and refuses repeated names and aliases, which may expand."""

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node:
        """Return the next node; raise an error for an alias."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases are not supported", problem_mark=self.peek_event().start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping of a node; raise an error for a repeated name."""
        names = set()
        for name, _ in node.value:
            if (key := str(name.value)) in names:  # the value of a list is a list of nodes
                raise yaml.MarkedYAMLError(problem=f"{shorten(key)} is repeated", problem_mark=name.start_mark)
            names.add(key)
        return super().construct_mapping(node, deep)  # type: ignore[no-any-return]


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+"), list("-+.0123456789")
)


def read_value(text: str) -> Any:
    """Parse a YAML value, such as the value of a flag."""
    return yaml.load(text, Loader)


def read_config(file: str) -> dict[str, Any]:
    """Return the options of a file, which may be a pipe, by name; errors name the file."""
    try:
        with Path(file).expanduser().open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise InputError(f"the config '{file}' is larger than {MOST_BYTES >> 10} KiB: is it a configuration?")
        values = read_value(content.decode("utf-8"))
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot read the config '{file}': {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line, reason = f" in line {mark.line + 1}" if mark else "", getattr(error, "problem", None) or one_line(error)
        raise InputError(f"the config '{file}' is not valid YAML{line}: {reason}") from error
    if not isinstance(values, dict):
        problem = "is empty" if values is None else f"must contain options by name, got {type(values).__name__}"
        raise InputError(f"the config '{file}' {problem}")
    return values
