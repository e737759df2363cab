"""Resolve sources of models: a folder, a name in the catalogue, hf:owner/name@revision, https://... or file:..."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit
from urllib.request import url2pathname

from zoo.atomic import to_json
from zoo.checkpoint.manifest import HEADER_BYTES, file_record, parse_json, read_json
from zoo.errors import InputError, shorten
from zoo.hub import cache
from zoo.hub.catalogue import NAME, Release, find
from zoo.hub.download import Address, UnreachableError, download_document

HUB = re.compile(r"hf:(?P<repo>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>[\w./-]+))?", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}")


class Remote(NamedTuple):
    """A model on a web server: addresses of its files by name and revision."""

    source: str
    address: Callable[[str, str], Address]
    revision: str = ""


def locate(source: str | Path) -> Path:
    """Return the local folder of a model, downloading it into the cache and verifying it if it is remote.

    An existing path is returned unchanged.

    Args:
        source: A run or model folder, ``file:FOLDER``, a name of the catalogue, ``hf:owner/name@revision`` (a branch, tag or
            commit of the Hugging Face Hub; main if there is none), or ``https://host/folder`` of any web server.

    Raises:
        InputError: If the model does not exist, cannot be downloaded, or fails verification.
    """
    if not str(source):
        message = "the path of the model is empty: use a run (runs/...), a model folder, or a name (zoo list checkpoints)"
        raise InputError(message, code="missing")
    path = Path(source).expanduser()
    if isinstance(source, Path) or path.exists():
        return path
    if source.startswith("file:"):
        return local_folder(source)
    if source.startswith(("hf:", "https://", "http://")):
        return pull(remote(source))
    return release(find(source)) if NAME.fullmatch(source) else path


def local_folder(source: str) -> Path:
    """Return the folder of a ``file:`` source, with or without the slashes of a URL."""
    parts = urlsplit(source)
    if parts.netloc not in ("", "localhost"):
        raise InputError(f"{shorten(source)} is on another computer: use file:FOLDER or file:///FOLDER")
    return Path(url2pathname(parts.path)).expanduser()


def remote(source: str) -> Remote:
    """Parse a remote source; `InputError` if it is malformed."""
    if not source.startswith("hf:"):
        parts = urlsplit(source)
        folder = parts.path.removesuffix("manifest.json").rstrip("/")
        return Remote(source, lambda name, _: Address(urlunsplit(parts._replace(path=f"{folder}/{quote(name)}", fragment=""))))
    match = HUB.fullmatch(source)
    if match is None:
        raise InputError(f"{shorten(source)}: not a model on the Hub; use hf:OWNER/NAME or hf:OWNER/NAME@REVISION")
    from huggingface_hub import constants, get_token

    token = get_token()
    secret = {"Authorization": f"Bearer {token}"} if token else {}
    base = f"{constants.ENDPOINT.rstrip('/')}/{match['repo']}/resolve"
    return Remote(
        source, lambda name, at: Address(f"{base}/{quote(at, safe='')}/{quote(name)}", secret), match["revision"] or "main"
    )


def pull(model: Remote, digest: str | None = None) -> Path:
    """Return the cached folder of a remote model, downloading it if it is missing or has changed.

    Args:
        model: The remote model.
        digest: The expected SHA-256 of its manifest; by default that of the current manifest on the server.
    """
    if digest is not None and (cached := cache.model(digest)) is not None:
        return cached
    note = cache.note("sources", model.source)
    known = read_json(note).get("sha256") if digest is None and note.is_file() else None
    cached = cache.model(str(known)) if known else None
    if cached is not None and COMMIT.fullmatch(model.revision):  # files of a commit cannot change
        return cached
    if variable := cache.offline():
        if cached is None:
            message = f"{model.source} is not in the cache, and {variable} disables the network: pull it while online"
            raise InputError(message, code="missing")
        return cached
    address = model.address("manifest.json", model.revision)
    try:
        manifest, headers = download_document(address, HEADER_BYTES, *([1] if cached else []))
    except UnreachableError as error:
        if cached is None:
            raise
        cache.say(f"{error}; using the cached copy")
        return cached
    current = hashlib.sha256(manifest).hexdigest()
    if digest not in (None, current):
        raise InputError(f"{model.source}: the checksum of its manifest differs from the catalogue", code="mismatch")
    parse_json(manifest, address)
    # The files of a branch may change during the download, those of its commit do not.
    commit = {name.lower(): value for name, value in headers.items()}.get("x-repo-commit", "")
    revision = commit if COMMIT.fullmatch(commit) else model.revision
    folder = cache.store(manifest, lambda name: model.address(name, revision), model.source)
    if digest is None:
        cache.remember(note, to_json({"source": model.source, "sha256": current, "revision": revision}).encode())
    return folder


def release(entry: Release) -> Path:
    """Return the folder of a release from its first location with the expected manifest."""
    first_error: InputError | None = None
    for location in entry.locations():
        try:
            if isinstance(location, str):
                return pull(remote(location), entry.sha256)
            if not (location / "manifest.json").is_file():
                raise InputError(f"{location} is not a model folder", code="missing")
            if file_record(location / "manifest.json")["sha256"] != entry.sha256:
                raise InputError(f"{location}: the checksum of its manifest differs from the catalogue", code="mismatch")
            return location
        except InputError as error:
            first_error = first_error or error
    raise first_error or InputError(f"{entry.name} has no location in {entry.catalogue}", code="missing")
