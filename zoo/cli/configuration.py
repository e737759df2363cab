"""Read configuration files: YAML without aliases and tags."""

import re
from pathlib import Path
from typing import Any

import yaml

from zoo.errors import InputError, one_line

MOST_BYTES = 2**17
"""Limit of a file in bytes."""


# PyYAML has no types.
class Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Safe loader that reads 1e-3 as a number, as in Python and YAML 1.2, and refuses aliases and repeated names.

    Aliases of aliases could describe a file that is larger than the memory.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
        """Return the next node; raise an error for an alias."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases are not supported", problem_mark=self.peek_event().start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping of a node; raise an error for a repeated name."""
        names = [name.value for name, _ in node.value]
        for i, (name, _) in enumerate(node.value):
            if name.value in names[:i]:
                raise yaml.MarkedYAMLError(problem=f"'{name.value}' is repeated", problem_mark=name.start_mark)
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
