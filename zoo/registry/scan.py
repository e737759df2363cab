"""Read the metadata of every distribution on the path, each under its own guard."""

from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import PurePath

from zoo.registry.records import GROUPS, Entry, Fault, normalise
from zoo.registry.spec import NAME
from zoo.registry.text import one_line


def scan() -> tuple[tuple[Entry, ...], tuple[Fault, ...]]:
    """Find all entries and all faults, sorted; a broken distribution costs only its own entries."""
    entries: list[Entry] = []
    faults: list[Fault] = []
    seen: set[str] = set()
    for distribution in _installed(faults):
        name, version, path = _label(distribution)
        if name in seen:  # Python imports from the first copy on the path, too.
            continue
        seen |= {name} - {""}
        try:
            entries += _read(distribution, name, version, path, faults)
        except Exception as error:
            faults.append(Fault(name, path, f"entry_points.txt: {type(error).__name__}: {one_line(error)}"))
    return tuple(sorted(entries)), tuple(sorted(faults))


def _installed(faults: list[Fault]) -> Iterator[Distribution]:
    """Walk over the distributions; a finder that fails ends the walk and leaves a fault."""
    try:
        yield from distributions()
    except Exception as error:
        faults.append(Fault("", "", f"the search for distributions: {type(error).__name__}: {one_line(error)}"))


def _label(distribution: Distribution) -> tuple[str, str, str]:
    """Give name, version and path from the metadata folder alone, which is there even when METADATA is not."""
    folder = PurePath(str(getattr(distribution, "_path", "")))
    if folder.suffix not in {".dist-info", ".egg-info"}:
        return "", "", str(folder)
    name, version, *_ = [*folder.stem.split("-"), ""]
    return normalise(name), version, str(folder)


def _read(distribution: Distribution, name: str, version: str, path: str, faults: list[Fault]) -> list[Entry]:
    """Read the entries of one distribution; those that no spec could name become faults."""
    points = [point for point in distribution.entry_points if point.group in GROUPS.values()]
    if not points:
        return []
    try:
        metadata = distribution.metadata
        info = {key: " ".join(metadata[key].split()) for key in ("Name", "Version") if key in metadata}
        name, version = info.get("Name") or name, info.get("Version") or version
        reason = "" if info.get("Name") else "METADATA has no Name or is missing"
    except Exception as error:
        reason = f"METADATA: {type(error).__name__}: {one_line(error)}"
    entries: dict[tuple[str, str], Entry] = {}
    reasons = [reason] if reason else []
    for point in points:
        if not NAME.fullmatch(point.name):
            reasons.append(f"entry_points.txt: {point.name!r} cannot be a name in a spec")
        elif (point.group, point.name) in entries:
            reasons.append(f"entry_points.txt: {point.name!r} stands twice in {point.group}")
        else:
            entries[point.group, point.name] = Entry(point.name, point.group, point.value, name, version)
    faults.extend(Fault(name, path, reason) for reason in reasons)
    return list(entries.values())
