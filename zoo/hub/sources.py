"""Resolve sources of models: a folder, a name in the catalogue, hf:owner/name@revision, https://... or file:..."""

import hashlib
import re
from io import BytesIO
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from zoo.checkpoint.manifest import HEADER_BYTES, file_record, parse_json
from zoo.errors import InputError, shorten
from zoo.hub import cache
from zoo.hub.cache import ATTEMPTS, Address, UnreachableError, download
from zoo.hub.catalogue import NAME, Release, find

HUB = re.compile(r"hf:(?P<repo>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>[\w./-]+))?", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}")


def locate(source: str | Path) -> Path:
    """Return the local folder of a model, downloading it into the cache and verifying it if it is remote.

    An existing path is returned unchanged.

    Args:
        source: A run or model folder, ``file:FOLDER``, a name of the catalogue, ``hf:owner/name@revision`` (a branch, tag or
            commit of the Hugging Face Hub; main if there is none), or ``https://host/folder`` of any web server.

    Raises:
        InputError: If the model does not exist, cannot be downloaded, or fails verification.
    """
    path = Path(source).expanduser()
    if isinstance(source, Path) or path.exists():
        return path
    if source.startswith("file:"):
        return Path(source.removeprefix("file:").removeprefix("//")).expanduser()
    if source.startswith(("hf:", "https://", "http://")):
        return pull(source)
    return release(find(source)) if NAME.fullmatch(source) else path


def address(source: str, name: str, commit: str = "") -> Address:
    """Return the address of a file of a remote source; of the Hub at a commit, or at the revision of the source."""
    if not source.startswith("hf:"):
        parts = urlsplit(source)
        folder = parts.path.removesuffix("manifest.json").rstrip("/")
        return Address(urlunsplit(parts._replace(path=f"{folder}/{quote(name)}", fragment="")))
    match = HUB.fullmatch(source)
    if match is None:
        raise InputError(f"{shorten(source)}: not a model on the Hub; use hf:OWNER/NAME or hf:OWNER/NAME@REVISION")
    from huggingface_hub import constants, get_token

    token, revision = get_token(), quote(commit or match["revision"] or "main", safe="")
    url = f"{constants.ENDPOINT}/{match['repo']}/resolve/{revision}/{quote(name)}"
    return Address(url, {"Authorization": f"Bearer {token}"} if token else {})


def pull(source: str, digest: str | None = None) -> Path:
    """Return the cached folder of a remote model, downloading it if it is missing or has changed.

    Args:
        source: The remote model.
        digest: The expected SHA-256 of its manifest; by default that of the current manifest on the server.
    """
    url, note = address(source, "manifest.json"), cache.note("sources", source)
    known = digest or (note.read_text(encoding="utf-8") if note.is_file() else "none")
    cached = cache.model(known)
    if cached and (digest or COMMIT.fullmatch(source.rpartition("@")[2])):  # files of a commit cannot change
        return cached
    if variable := cache.offline():
        if cached:
            return cached
        message = f"{source} is not in the cache, and {variable} disables the network: pull it while online"
        raise InputError(message, code="missing")
    file = BytesIO()
    try:
        headers = download(url, file, HEADER_BYTES, attempts=1 if cached else ATTEMPTS)
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
    commit = headers.get("X-Repo-Commit", "")  # files of a branch may change during the download, those of its commit do not
    folder = cache.store(manifest, lambda name: address(source, name, commit), source)
    if digest is None and known != current:
        cache.remember(note, current.encode())
    return folder


def release(entry: Release) -> Path:
    """Return the folder of a release from its first location with the expected manifest."""
    errors: list[InputError] = []
    for location in entry.locations():
        try:
            if isinstance(location, str):
                return pull(location, entry.sha256)
            if not (location / "manifest.json").is_file():
                raise InputError(f"{location} is not a model folder", code="missing")
            if file_record(location / "manifest.json")["sha256"] != entry.sha256:
                raise InputError(f"{location}: the checksum of its manifest differs from the catalogue", code="mismatch")
            return location
        except InputError as error:
            errors.append(error)
    raise errors[0] if errors else InputError(f"{entry.name} has no location in {entry.catalogue}", code="missing")
