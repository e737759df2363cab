"""Read configuration files: YAML with size limits, which are checked before any object is built."""

import re
from pathlib import Path
from typing import Any

import yaml

from zoo.errors import InputError, one_line

MOST_BYTES, MOST_VALUES, LONGEST, DEEPEST = 2**17, 10_000, 4_000, 20
"""Limits of a file: bytes, values and names (aliases expanded), characters of a value, and levels of nesting."""


# PyYAML has no types.
class Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Safe loader that reads 1e-3 as a number, as in Python and YAML 1.2."""


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+"), list("-+.0123456789")
)


def read_value(text: str) -> Any:
    """Parse a YAML value, such as the value of a flag."""
    return yaml.load(text, Loader)


def read_config(file: str) -> tuple[str, dict[str, Any]]:
    """Return the text of a file, which may be a pipe, and its options by name; errors name the file."""
    try:
        with Path(file).expanduser().open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise InputError(f"the config '{file}' is larger than {MOST_BYTES >> 10} KiB: is it a configuration?")
        text = content.decode("utf-8")
        loader = Loader(text)
        node = loader.get_single_node()
        if node is not None:
            _count_nodes(node, {}, file)
        values = None if node is None else loader.construct_document(node)
    except OSError as error:
        raise InputError(f"cannot read the config '{file}': {error.strerror}") from error
    except RecursionError as error:
        raise InputError(f"the config '{file}' is nested too deeply: use at most {DEEPEST} levels") from error
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "problem", None) or one_line(error)
        raise InputError(f"the config '{file}' is not valid YAML{_line(error)}: {reason}") from error
    if not isinstance(values, dict):
        problem = "is empty" if values is None else f"must contain options by name, got {type(values).__name__}"
        raise InputError(f"the config '{file}' {problem}")
    return text, values


def _line(source: Any) -> str:
    mark = getattr(source, "problem_mark", None) or getattr(source, "start_mark", None)
    return f" in line {mark.line + 1}" if mark else ""


def _count_nodes(node: yaml.Node, counts: dict[int, int], file: str, depth: int = 0) -> int:
    """Return the number of values and names in a node; raise `InputError` above a limit or for a repeated name.

    ``counts`` caches the result per node, since an alias refers to the same node again; 0 marks a node in progress.
    """
    if (count := counts.get(id(node))) is not None:
        if not count:
            raise InputError(f"the config '{file}' contains an alias{_line(node)} that refers to its own parent")
        return count
    if depth > DEEPEST:
        raise InputError(f"the config '{file}' is nested too deeply{_line(node)}: use at most {DEEPEST} levels")
    counts[id(node)] = 0
    if isinstance(node, yaml.ScalarNode) and len(node.value) > LONGEST:
        raise InputError(f"the config '{file}' contains a value of {len(node.value):,} characters{_line(node)}")
    children = node.value if isinstance(node, yaml.SequenceNode) else []
    if isinstance(node, yaml.MappingNode):
        children = [part for pair in node.value for part in pair]
        names = [name.value for name, _ in node.value if isinstance(name, yaml.ScalarNode)]
        if repeated := next((name for i, (name, _) in enumerate(node.value) if name.value in names[:i]), None):
            raise InputError(f"the config '{file}' repeats '{repeated.value}'{_line(repeated)}: remove one of them")
    total = 1
    for child in children:
        total += _count_nodes(child, counts, file, depth + 1)
        if total > MOST_VALUES:
            raise InputError(f"the config '{file}' has more than {MOST_VALUES:,} values{_line(node)}, including aliases")
    counts[id(node)] = total
    return total
