"""Read catalogues of models: JSON files of packages or web servers with names, facts and locations."""

import os
import re
from collections.abc import Iterator
from difflib import get_close_matches
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urljoin

from zoo import registry
from zoo.checkpoint.manifest import HEADER_BYTES, SHA256, has_figures, parse_json, read_json
from zoo.errors import InputError, one_line, shorten
from zoo.hub import cache
from zoo.hub.cache import ATTEMPTS, Address, UnreachableError, download

FORMAT = 1
NAME = re.compile(r"([\w.-]+:)?[A-Za-z0-9][\w.-]*", re.ASCII)
"""The name of a model, also within one catalogue: ``vit-digits``, ``some-package:vit-digits``."""
WEB = ("http://", "https://")
KINDS: dict[str, Any] = {"sha256": str, "locations": list, "bytes": int}
"""Types of the required values of an entry."""
OPTIONAL: dict[str, Any] = dict.fromkeys(("backbone", "algebra", "task", "data", "license"), str)
OPTIONAL |= {"metrics": dict, "spread": dict, "parameters": dict}
VARIABLE = "ZOO_CATALOGUE"


class Release(NamedTuple):
    """One entry of a catalogue.

    Attributes:
        name: The name of the model.
        origin: The distribution that provides the catalogue, or ZOO_CATALOGUE.
        catalogue: The file or URL of the catalogue.
        facts: Specs, data, metrics, parameters, licence, bytes, sha256 and locations.
    """

    name: str
    origin: str
    catalogue: str
    facts: dict[str, Any]

    @property
    def sha256(self) -> str:
        """The SHA-256 of manifest.json."""
        return str(self.facts["sha256"])

    def locations(self) -> Iterator[str | Path]:
        """Yield the locations, folders as paths, others as sources; relative ones are resolved against the catalogue."""
        for location in self.facts["locations"]:
            if location.startswith(("hf:", *WEB)):
                yield location
            elif self.catalogue.startswith(WEB):
                yield urljoin(self.catalogue, location)
            else:
                yield Path(self.catalogue).parent / location.removeprefix("file:")


def find(name: str) -> Release:
    """Return the entry of a name; ZOO_CATALOGUE takes precedence."""
    releases, problems = entries()
    origin, _, short_name = name.rpartition(":")
    matching = [release for release in releases if release.name == short_name and origin in ("", release.origin)]
    if not matching:
        close = get_close_matches(short_name, [release.name for release in releases], 1)
        hint = f"did you mean '{close[0]}'? (zoo list checkpoints)" if close else "see: zoo list checkpoints"
        text = "; ".join([f"there is no folder '{name}' and no model with that name: {hint}", *problems])
        raise InputError(text, code="unknown")
    if matching[0].origin != VARIABLE and len({release.sha256 for release in matching}) > 1:
        names = " or ".join(f"{release.origin}:{short_name}" for release in matching)
        raise InputError(f"several catalogues contain a model '{short_name}': use {names}", code="conflict")
    return matching[0]


def entries() -> tuple[list[Release], list[str]]:
    """Return the models of all catalogues, those of ZOO_CATALOGUE first, and the errors of unreadable catalogues."""
    address = os.environ.get(VARIABLE, "")
    releases, problems = (list(of_catalogue(address, VARIABLE)) if address else []), []
    for entry in registry.entries("catalogues"):
        try:
            releases += of_catalogue(str(registry.load(entry)()), entry.distribution)
        except Exception as error:
            problems.append(f"the {entry} cannot be read: {one_line(error)}")
    return releases, problems


def of_catalogue(address: str, origin: str) -> Iterator[Release]:
    """Yield the entries of a catalogue: a JSON file, its URL, or a folder with a catalogue.json."""
    address = address if address.endswith(".json") else f"{address.rstrip('/')}/catalogue.json"
    values = fetched(address) if address.startswith(WEB) else read_json(Path(address.removeprefix("file:")).expanduser())
    if values.get("format") != FORMAT or not isinstance(values.get("checkpoints"), dict):
        raise InputError(f"{address} is not a catalogue of format {FORMAT}: update hypercomplex-zoo?", code="corrupt")
    for name, facts in values["checkpoints"].items():
        check_entry(address, name, facts)
        yield Release(name, origin, address.removeprefix("file:"), facts)


def check_entry(address: str, name: str, facts: Any) -> None:
    """Raise `InputError` if an entry is malformed or has control characters."""
    is_valid = isinstance(facts, dict) and KINDS.keys() <= facts.keys() and NAME.fullmatch(name) and ":" not in name
    is_valid = is_valid and all(isinstance(facts.get(key, kind()), kind) for key, kind in (KINDS | OPTIONAL).items())
    is_valid = is_valid and all(isinstance(location, str) for location in facts["locations"])
    if not is_valid or not SHA256.fullmatch(facts["sha256"]) or not has_figures(facts):
        raise InputError(f"{address}: the entry of the model {shorten(name)} is malformed", code="corrupt")


def fetched(url: str) -> dict[str, Any]:
    """Return the JSON of a catalogue on a web server, or the cached copy if the server cannot be reached."""
    note = cache.note("catalogues", url)
    if (variable := cache.offline()) is None:
        file = BytesIO()
        try:
            download(Address(url), file, HEADER_BYTES, attempts=1 if note.is_file() else ATTEMPTS)
            values = parse_json(file.getvalue(), url)
            cache.remember(note, file.getvalue())
            return values
        except UnreachableError as error:
            if not note.is_file():
                raise
            cache.say(f"{error}; using the cached copy")
    if not note.is_file():
        raise InputError(f"{url} is not in the cache, and {variable} disables the network", code="missing")
    return read_json(note)


def packaged() -> Path:
    """Return the catalogue of the included models."""
    return Path(__file__).parent / "pretrained" / "catalogue.json"
