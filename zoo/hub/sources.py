"""Find models: names in catalogues of packages and web servers, folders, owner/name on the Hub, https://... and file:..."""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from zoo import registry
from zoo.checkpoint.manifest import (
    HEADER_BYTES,
    SHA256,
    digest_of,
    has_figures,
    is_intact,
    parse_json,
    read_json,
    read_manifest,
)
from zoo.errors import InputError, one_line, shorten
from zoo.hub import cache
from zoo.hub.cache import ATTEMPTS, UnreachableError, download

HUB = re.compile(r"(hf:)?(?P<repo>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>[\w./-]+))?", re.ASCII)
RUNS = "runs/"
FORMAT = 1
NAME = re.compile(r"([\w.-]+:)?[A-Za-z0-9][\w.-]*", re.ASCII)
"""The name of a model, also within one catalogue: ``vit-digits``, ``some-package:vit-digits``."""
WEB = ("http://", "https://")
KINDS: dict[str, Any] = {"sha256": str, "locations": list, "bytes": int}
"""Types of the required values of an entry."""
OPTIONAL: dict[str, Any] = dict.fromkeys(("backbone", "algebra", "task", "data", "license"), str)
OPTIONAL |= {"metrics": dict, "spread": dict, "parameters": dict, "exports": dict}
VARIABLE = "ZOO_CATALOGUE"


class Release(NamedTuple):
    """A model of a catalogue, which is a file or URL of a distribution or of ZOO_CATALOGUE (the origin)."""

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


def exported_bytes(facts: Mapping[str, Any], quantize: str | None = None) -> int | None:
    """Return the size of the first exported file of an entry with a quantization, or None."""
    exports, option = facts.get("exports") or {}, f"--quantize {quantize}" if quantize else "--quantize"
    return next((row.get("bytes") for form, row in exports.items() if (option in form) is bool(quantize)), None)


def locate(source: str | Path, *, revision: str | None = None, token: str | None = None) -> Path:
    """Return the local folder of a model, downloading it into the cache and verifying it if it is remote.

    Args:
        source: A run or model folder, which is returned unchanged, ``file:FOLDER``, a name of the catalogue, ``owner/name`` or
            ``owner/name@revision`` on the Hugging Face Hub, or ``https://host/folder`` of any web server.
        revision: A branch, tag or commit of the Hub; by default main.
        token: A token of the Hub; by default that of ``hf auth login`` or HF_TOKEN.
    """
    path, match = Path(source).expanduser(), None if isinstance(source, Path) else HUB.fullmatch(source)
    is_on_hub = match is not None and not path.exists() and (match[1] or not is_local(source))
    if (revision or token) and not is_on_hub:
        raise InputError(f"revision and token are for models on the Hub, and '{source}' is not there: leave them out")
    if isinstance(source, Path) or path.exists():
        return path
    if source.startswith("file:"):
        return Path(source.removeprefix("file:").removeprefix("//")).expanduser()
    if source.startswith(WEB):
        return pull(source)
    if is_on_hub or source.startswith("hf:"):
        return pull_from_hub(source, revision, token)
    return _release_folder(find_release(source)) if NAME.fullmatch(source) else path


def is_local(source: str | Path) -> bool:
    """Return whether a source that does not exist is that of a folder: in runs/ or another folder that exists."""
    return str(source).startswith(RUNS) or Path(source).expanduser().parent.is_dir()


def repository(source: str, revision: str | None = None) -> tuple[str, str | None]:
    """Return the repository on the Hub and the revision of ``owner/name``, ``owner/name@revision`` or either after ``hf:``."""
    match = HUB.fullmatch(source)
    if match is None:
        raise InputError(f"{shorten(source)}: not a model on the Hub; use OWNER/NAME or OWNER/NAME@REVISION")
    if revision and match["revision"]:
        raise InputError(f"{source} and revision={revision}: give the revision once", code="conflict")
    return match["repo"], revision or match["revision"]


def pull_from_hub(source: str, revision: str | None = None, token: str | None = None, digest: str | None = None) -> Path:
    """Return the folder of a model in the cache of the Hub, downloading it if it is missing or has changed.

    All files are those of one commit, and each is verified against the manifest, whose SHA-256 is the digest if one is given.
    """
    from huggingface_hub import hf_hub_download

    repo, revision = repository(source, revision)
    options: dict[str, Any] = {"token": token, "local_files_only": bool(cache.offline()), "library_name": "hypercomplex-zoo"}

    def fetch(name: str, revision: str | None, is_damaged: bool = False) -> Path:
        try:
            return Path(hf_hub_download(repo, name, revision=revision, force_download=is_damaged, **options))
        except Exception as error:  # huggingface_hub, its HTTP library and the server raise many types
            raise _hub_error(source, name, error) from error

    folder, attempts = fetch("manifest.json", revision).parent, (False,) if cache.offline() else (False, True)
    try:
        manifest = read_manifest(folder)
    except InputError:
        manifest = read_manifest(fetch("manifest.json", folder.name, attempts[-1]).parent)
    if digest not in (None, digest_of(folder / "manifest.json")):
        raise InputError(f"{source}: the checksum of its manifest differs from the catalogue", code="mismatch")
    for name, record in manifest["files"].items():
        for is_damaged in attempts:
            if is_intact(fetch(name, folder.name, is_damaged), record):
                break
        else:
            text = f"{source}: the checksum of {name} differs from the manifest: not used"
            raise InputError(text, code="corrupt")
    return folder


def _hub_error(source: str, name: str, error: Exception) -> InputError:
    """Return the error for a file that cannot be downloaded from the Hub."""
    from huggingface_hub import constants
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    if isinstance(error, LocalEntryNotFoundError) and (variable := cache.offline()):
        text = f"{source} is not in the cache, and {variable} disables the network: pull it while online"
        return InputError(text, code="missing")
    if isinstance(error, HFValidationError):
        return InputError(f"{shorten(source)}: not a model on the Hub: {one_line(error)}")
    cause = error.__cause__ or error if isinstance(error, LocalEntryNotFoundError) else error
    response = getattr(cause, "response", None)
    status = getattr(response, "status_code", None)
    reason = f"{status} {response.headers.get('X-Error-Message', '')}" if response is not None else one_line(cause, 200)
    advice = {401: "; check the name and your access (HF_TOKEN)", 404: "; check the name"}.get(status or 0, "")
    missing = "" if source.startswith("hf:") else f"there is no folder '{source}', and "
    text = f"{missing}cannot download {name} of {source} from {constants.ENDPOINT}: {reason.strip()[:200]}{advice}"
    return InputError(text, code="missing" if status == 404 else "failed")


def _address(source: str, name: str) -> str:
    """Return the address of a file of a folder on a web server."""
    parts = urlsplit(source)
    folder = parts.path.removesuffix("manifest.json").rstrip("/")
    return urlunsplit(parts._replace(path=f"{folder}/{quote(name)}", fragment=""))


def pull(source: str, digest: str | None = None) -> Path:
    """Return the cached folder of a model on a web server, downloading it if it is missing or has changed.

    The digest is the expected SHA-256 of its manifest; by default that of the current manifest on the server.
    """
    url, note = _address(source, "manifest.json"), cache.note("sources", source)
    known = digest or (note.read_text(encoding="utf-8") if note.is_file() else "none")
    cached = cache.model(known)
    if cached and digest:
        return cached
    if variable := cache.offline():
        if cached:
            return cached
        message = f"{source} is not in the cache, and {variable} disables the network: pull it while online"
        raise InputError(message, code="missing")
    file = BytesIO()
    try:
        download(url, file, HEADER_BYTES, attempts=1 if cached else ATTEMPTS)
    except UnreachableError as error:
        if cached is None:
            raise
        cache.say(f"{error}; using the cached copy")
        return cached
    manifest = file.getvalue()
    current = hashlib.sha256(manifest).hexdigest()
    if digest not in (None, current):
        raise InputError(f"{source}: the checksum of its manifest differs from the catalogue", code="mismatch")
    parse_json(manifest, url)
    folder = cache.store(manifest, lambda name: _address(source, name), source)
    if digest is None and known != current:
        cache.remember(note, current.encode())
    return folder


def _release_folder(entry: Release) -> Path:
    """Return the folder of a release from its first location with the expected manifest."""
    errors: list[InputError] = []
    for location in entry.locations():
        try:
            if isinstance(location, str):
                is_on_web = location.startswith(WEB)
                return pull(location, entry.sha256) if is_on_web else pull_from_hub(location, digest=entry.sha256)
            if not (location / "manifest.json").is_file():
                raise InputError(f"{location} is not a model folder", code="missing")
            if digest_of(location / "manifest.json") != entry.sha256:
                raise InputError(f"{location}: the checksum of its manifest differs from the catalogue", code="mismatch")
            return location
        except InputError as error:
            errors.append(error)
    raise errors[0] if errors else InputError(f"{entry.name} has no location in {entry.catalogue}", code="missing")


def find_release(name: str) -> Release:
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


def list_models(filter: str = "*") -> list[str]:
    """Return the names of the models in all catalogues that match a shell pattern, such as ``vit*``; `zoo.load` reads each."""
    return sorted({release.name for release in entries()[0] if fnmatchcase(release.name, filter)})


def of_catalogue(address: str, origin: str) -> Iterator[Release]:
    """Yield the entries of a catalogue: a JSON file, its URL, or a folder with a catalogue.json."""
    address = address if address.endswith(".json") else f"{address.rstrip('/')}/catalogue.json"
    address = address if address.startswith(WEB) else str(Path(address.removeprefix("file:")).expanduser())
    values = _fetched(address) if address.startswith(WEB) else read_json(Path(address))
    if values.get("format") != FORMAT or not isinstance(values.get("checkpoints"), dict):
        raise InputError(f"{address} is not a catalogue of format {FORMAT}: update hypercomplex-zoo?", code="corrupt")
    for name, facts in values["checkpoints"].items():
        _check_entry(address, name, facts)
        yield Release(name, origin, address, facts)


def _check_entry(address: str, name: str, facts: Any) -> None:
    """Raise `InputError` if an entry is malformed or has control characters."""
    is_valid = isinstance(facts, dict) and KINDS.keys() <= facts.keys() and NAME.fullmatch(name) and ":" not in name
    is_valid = is_valid and all(isinstance(facts.get(key, kind()), kind) for key, kind in (KINDS | OPTIONAL).items())
    is_valid = is_valid and all(isinstance(location, str) for location in facts["locations"])
    if not is_valid or not SHA256.fullmatch(facts["sha256"]) or not has_figures(facts):
        raise InputError(f"{address}: the entry of the model {shorten(name)} is malformed", code="corrupt")


def _fetched(url: str) -> dict[str, Any]:
    """Return the JSON of a catalogue on a web server, or the cached copy if the server cannot be reached."""
    note = cache.note("catalogues", url)
    if (variable := cache.offline()) is None:
        file = BytesIO()
        try:
            download(url, file, HEADER_BYTES, attempts=1 if note.is_file() else ATTEMPTS)
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
