"""Build what a spec describes: find the plugin, check the options, call it."""

from typing import Any

from zoo.errors import InputError
from zoo.registry.form import Form
from zoo.registry.loading import blame, load
from zoo.registry.records import Entry
from zoo.registry.resolve import resolve
from zoo.registry.spec import Spec
from zoo.registry.text import one_line, shorten


def create(group: str, spec: str | Spec, /, *args: object, **context: object) -> Any:
    """Call the plugin that a spec names.

    Args:
        group: A key or a value of `GROUPS`.
        spec: A spec or its text.
        args: What the plugin gets first, by position.
        context: What it gets by keyword, as far as it accepts it; an option in the spec wins.

    Raises:
        InputError: The spec names no plugin, or an option is unknown, missing or has a wrong value.
        PluginError: A stranger's plugin fails.
    """
    entry, spec = resolve(group, spec)
    factory = load(entry)
    try:
        form = Form.of(entry.name, factory, args)
    except TypeError as error:
        raise blame(entry, f"does not take {len(args)} arguments by position", error) from error
    form.check(spec.options, context)
    accepted = {key: value for key, value in context.items() if form.accepts(key)}
    try:
        return factory(*args, **(accepted | spec.options))
    except (InputError, KeyboardInterrupt):
        raise
    except BaseException as error:
        blamed = _judge(entry, spec, error)
        if blamed is None:
            raise
        raise blamed from error


def _judge(entry: Entry, spec: Spec, error: BaseException) -> InputError | None:
    """Blame a stranger's plugin, or the options of one of ours; None if the zoo itself is at fault."""
    if not entry.ours:
        return blame(entry, f"fails on {shorten(str(spec))}", error)
    if spec.options and isinstance(error, TypeError | ValueError):
        return InputError(f"{shorten(str(spec), 200)[1:-1]}: {one_line(error)}")
    return None
