"""Load data sets from the Hugging Face Hub, and raise one-line errors."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from zoo.errors import InputError


@contextmanager
def from_hub(preset: str, repository: str) -> Iterator[None]:
    """Turn errors of a download into one line that suggests `path=`."""
    try:
        yield
    except Exception as error:  # a broken connection raises errors of the HTTP library
        reason = (_reason(error).strip() or type(error).__name__).splitlines()[0][:120]
        raise InputError(
            f"{preset}: cannot download {repository} from the Hugging Face Hub ({reason}); "
            f"use {preset}(path=...) with a local copy",
            code="failed",
        ) from error


def load(preset: str, repository: str, *config: str | None, **options: str) -> Any:
    """Load the splits of a repository from the Hub, or from the cache of `datasets`."""
    with from_hub(preset, repository):
        import datasets

        return datasets.load_dataset(repository, *config, **options)


def _reason(error: Exception) -> str:
    import datasets

    if isinstance(error, datasets.exceptions.SplitsVerificationError):
        return "its splits or numbers of rows differ from its card"
    cause = (isinstance(error, datasets.exceptions.DatasetsError) and error.__cause__) or error
    if isinstance(cause, datasets.table.CastError):
        existing, expected = (", ".join(names) for names in (cause.table_column_names, cause.requested_column_names))
        return f"a file has the columns {existing}, but its card or another file has {expected}"
    return str(cause)


def hub_changed(preset: str, repository: str, what: str) -> InputError:
    """Return the error for a data set that has changed on the Hub."""
    message = f"{preset}: {repository} has changed on the Hub: it has {what}; use {preset}(path=...) with a local copy"
    return InputError(message, code="failed")


def hub_split(
    preset: str,
    repository: str,
    loaded: Any,
    part: str,
    texts: Sequence[str],
    others: Sequence[str] = (),
    rows: int | None = None,
) -> Any:
    """Return a split of what `load` returned after checking its columns of texts, its other columns and its number of rows."""
    if part not in loaded:
        raise hub_changed(preset, repository, f"no split {part}, only {', '.join(loaded)}")
    data = loaded[part].flatten()
    if missing := [name for name in (*texts, *others) if name not in data.column_names]:
        raise hub_changed(preset, repository, f"no column {', '.join(missing)} in {part}, only {', '.join(data.column_names)}")
    if wrong := [name for name in texts if getattr(data.features[name], "dtype", None) not in ("string", "large_string")]:
        raise hub_changed(preset, repository, f"no text in the column {', '.join(wrong)} of {part}")
    if rows not in (None, len(data)):
        raise hub_changed(preset, repository, f"{len(data):,} rows in {part}, expected {rows:,}")
    return data


Preset = TypeVar("Preset", bound=Callable[..., Any])


def attach_record(preset: Preset, record: Any) -> Preset:
    """Name a preset after its record, and set the record as an attribute, which the preset reads when it is called."""
    preset.__name__ = preset.__qualname__ = record.name
    preset.__doc__ = f"Load the published set {record.name}."
    preset.record = record  # type: ignore[attr-defined]
    return preset
