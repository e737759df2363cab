"""Configuration files: YAML that is read once, strictly, and small enough to be checked before anything is made of it."""

import re
from pathlib import Path
from typing import Any

import yaml

from zoo.errors import InputError, one_line

MOST_BYTES, MOST_VALUES, LONGEST, DEEPEST = 2**17, 10_000, 4_000, 20
"""Size of a file, values and names in it (those of an alias wherever it stands), characters of one, and levels, at most."""


# PyYAML has no types.
class Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Safe YAML in which 1e-3 is a number, as in Python and in YAML 1.2."""


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+"), list("-+.0123456789")
)


def read_value(text: str) -> Any:
    """Read one value of YAML, such as that of a flag."""
    return yaml.load(text, Loader)


def read_config(file: str) -> tuple[str, dict[str, Any]]:
    """Return the text of a file, which may be a pipe, and the options in it by name; an error names the file."""
    try:
        with Path(file).expanduser().open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise InputError(f"the config '{file}' is longer than {MOST_BYTES >> 10} KiB: is it a configuration?")
        text = content.decode("utf-8")
        loader = Loader(text)
        node = loader.get_single_node()
        if node is not None:
            _values(node, {}, file)
        values = None if node is None else loader.construct_document(node)
    except OSError as error:
        raise InputError(f"cannot read the config '{file}': {error.strerror}") from error
    except RecursionError as error:
        raise InputError(f"the config '{file}' is nested too deeply: at most {DEEPEST} levels are read") from error
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the config '{file}' is no YAML{_line(error)}: {_reason(error)}") from error
    if not isinstance(values, dict):
        what = "is empty" if values is None else f"holds {type(values).__name__}, not options by name"
        raise InputError(f"the config '{file}' {what}")
    return text, values


def _reason(error: Exception) -> str:
    return str(getattr(error, "problem", None) or one_line(error))


def _line(found: Any) -> str:
    mark = getattr(found, "problem_mark", None) or getattr(found, "start_mark", None)
    return f" in line {mark.line + 1}" if mark else ""


def _values(node: yaml.Node, counted: dict[int, int], file: str, depth: int = 0) -> int:
    """Count the values and names in a node, and refuse too many, too many levels, and a name that stands twice.

    ``counted`` has the number of nodes that were counted before, for an alias is its node once more; 0 while one is counted.
    """
    if (count := counted.get(id(node))) is not None:
        if not count:
            raise InputError(f"the config '{file}' holds an alias{_line(node)} to what it is a part of")
        return count
    if depth > DEEPEST:
        raise InputError(f"the config '{file}' is nested too deeply{_line(node)}: at most {DEEPEST} levels are read")
    counted[id(node)] = 0
    if isinstance(node, yaml.ScalarNode) and len(node.value) > LONGEST:
        raise InputError(f"the config '{file}' holds a value of {len(node.value):,} characters{_line(node)}")
    inner = node.value if isinstance(node, yaml.SequenceNode) else []
    if isinstance(node, yaml.MappingNode):
        inner = [part for pair in node.value for part in pair]
        names = [name.value for name, _ in node.value if isinstance(name, yaml.ScalarNode)]
        if twice := next((name for i, (name, _) in enumerate(node.value) if name.value in names[:i]), None):
            raise InputError(f"the config '{file}' has '{twice.value}' a second time{_line(twice)}: keep one")
    total = 1
    for part in inner:
        total += _values(part, counted, file, depth + 1)
        if total > MOST_VALUES:
            raise InputError(f"the config '{file}' holds more than {MOST_VALUES:,} values{_line(node)}, with its aliases")
    counted[id(node)] = total
    return total
