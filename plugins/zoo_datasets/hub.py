"""Load data sets from the Hugging Face Hub, and raise one-line errors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from zoo.errors import InputError, one_line


@contextmanager
def from_hub(preset: str, repository: str) -> Iterator[None]:
    """Turn errors of a download into one line that suggests `path=`."""
    try:
        yield
    except Exception as error:  # a broken connection raises errors of the HTTP library
        cause = error.__cause__ or error
        reason = f"{type(cause).__name__}: {one_line(cause, 120)}"
        raise InputError(
            f"{preset}: cannot download {repository} from the Hugging Face Hub ({reason}); "
            f"use {preset}(path=...) with a local copy",
            code="failed",
        ) from error


def hub_columns(
    preset: str, repository: str, parts: Mapping[str, int | None], columns: Sequence[str], *config: str | None
) -> dict[str, list[list[Any]]]:
    """Load columns of some splits from the Hub, or from the cache of `datasets`.

    The repository may have a revision, after an @. `parts` are the splits, and their expected number of rows if it is known;
    NAME.FIELD is a field of a nested column.
    """
    name, _, revision = repository.partition("@")
    with from_hub(preset, repository):
        import datasets

        loaded = datasets.load_dataset(name, *config, revision=revision or "main")
        tables = {part: loaded[part].flatten() for part in parts}
        values = {part: [table[column][:] for column in columns] for part, table in tables.items()}
    for part, rows in parts.items():
        if rows not in (None, len(tables[part])):
            raise hub_changed(preset, repository, f"{len(tables[part]):,} rows in {part}, expected {rows:,}")
    return values


def hub_changed(preset: str, repository: str, what: str) -> InputError:
    """Return the error for a data set that has changed on the Hub."""
    message = f"{preset}: {repository} has changed on the Hub: it has {what}; use {preset}(path=...) with a local copy"
    return InputError(message, code="failed")


Preset = TypeVar("Preset", bound=Callable[..., Any])


def attach_record(preset: Preset, record: Any) -> Preset:
    """Name a preset after its record, and set the record as an attribute, which the preset reads when it is called."""
    preset.__name__ = preset.__qualname__ = record.name
    preset.__doc__ = f"Load the published set {record.name}."
    preset.record = record  # type: ignore[attr-defined]
    return preset
