"""Loading data sets from the Hugging Face Hub, with a one-line error for whatever goes wrong."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from zoo.errors import InputError


@contextmanager
def from_hub(preset: str, repository: str) -> Iterator[None]:
    """Turn whatever goes wrong on the way to the Hub into one line that offers `path=`."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
        raise InputError(
            f"{preset}: could not get {repository} from the Hugging Face Hub ({reason}); "
            f"use {preset}(path=...) for a local copy, beside the other options",
            code="failed",
        ) from error


def load(preset: str, repository: str, *table: str | None, **options: str) -> Any:
    """Load the splits of a repository, by name; what was fetched once is in the library's cache."""
    with from_hub(preset, repository):
        import datasets

        try:
            return datasets.load_dataset(repository, *table, **options)
        except Exception as error:  # A connection that breaks off is whatever the library below that one calls it.
            raise RuntimeError(_reason(error)) from error


def _reason(error: Exception) -> str:
    import datasets

    if isinstance(error, datasets.exceptions.SplitsVerificationError):
        return "it has other splits or numbers of rows than its own card says"
    cause = (isinstance(error, datasets.exceptions.DatasetsError) and error.__cause__) or error
    if isinstance(cause, datasets.table.CastError):
        existing, wanted = (", ".join(names) for names in (cause.table_column_names, cause.requested_column_names))
        return f"a file has the columns {existing}; its card, or another file, says {wanted}"
    return str(cause).strip() or type(cause).__name__


def hub_changed(preset: str, repository: str, what: str) -> InputError:
    """Say that the Hub's copy of a set is not what it was."""
    return InputError(
        f"{preset}: the Hub's copy has changed: {repository} has {what}; use {preset}(path=...) for a local copy", code="failed"
    )


def hub_split(
    preset: str,
    repository: str,
    loaded: Any,
    part: str,
    texts: Sequence[str],
    others: Sequence[str] = (),
    rows: int | None = None,
) -> Any:
    """Return a split of what `load` returned, if it has the columns, of texts and of others, and the rows that are expected."""
    if part not in loaded:
        raise hub_changed(preset, repository, f"no split {part}, only {', '.join(loaded)}")
    data = loaded[part].flatten()
    if missing := [name for name in (*texts, *others) if name not in data.column_names]:
        raise hub_changed(preset, repository, f"no column {', '.join(missing)} in {part}, only {', '.join(data.column_names)}")
    if wrong := [name for name in texts if getattr(data.features[name], "dtype", None) not in ("string", "large_string")]:
        raise hub_changed(preset, repository, f"no text in the column {', '.join(wrong)} of {part}")
    if rows not in (None, len(data)):
        raise hub_changed(preset, repository, f"{len(data):,} rows in {part}, not {rows:,}")
    return data


Preset = TypeVar("Preset", bound=Callable[..., Any])


def attach_record(preset: Preset, record: Any) -> Preset:
    """Name a preset after its record, and attach the record, which the preset reads when it is called."""
    preset.__name__ = preset.__qualname__ = record.name
    preset.__doc__ = f"Load the published set {record.name}."
    preset.record = record  # type: ignore[attr-defined]
    return preset
