"""One syntax for where a model is: a folder, a name of the catalogue, hf:owner/name@revision, https://... or file:..."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit
from urllib.request import url2pathname

from zoo.checkpoint.atomic import to_json
from zoo.checkpoint.manifest import HEADER_BYTES, file_record, parse_json, read_json
from zoo.errors import InputError, shorten
from zoo.hub import cache
from zoo.hub.catalogue import NAME, Release, find
from zoo.hub.download import Address, UnreachableError, read

HUB = re.compile(r"hf:(?P<repo>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>[\w./-]+))?", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}")


class Remote(NamedTuple):
    """Files on a web server: their addresses by name and revision, and the revision."""

    source: str
    address: Callable[[str, str], Address]
    revision: str = ""

    @property
    def is_fixed(self) -> bool:
        """Whether its files can never change: it names a commit."""
        return bool(COMMIT.fullmatch(self.revision))


def locate(source: str | Path) -> Path:
    """Return a local folder for a source of a model; what is elsewhere is fetched into the cache, and checked.

    A path that exists is returned as it is, and so is one that cannot be anything else.

    Args:
        source: A run or model folder, ``file:FOLDER``, a name of the catalogue, ``hf:owner/name@revision`` (a branch, tag or
            commit of the Hugging Face Hub; main if there is none), or ``https://host/folder`` of any web server.

    Raises:
        InputError: If there is no such model, it cannot be fetched, or it is not what its manifest or the catalogue says.
    """
    if not str(source):
        raise InputError(
            "the path of the model is empty: give a run (runs/...), a model folder, or a name (zoo list checkpoints)"
        )
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
        raise InputError(f"{shorten(source)} names a file of another computer: file:FOLDER or file:///FOLDER")
    return Path(url2pathname(parts.path)).expanduser()


def remote(source: str) -> Remote:
    """Return where the files of a source on the network are.

    Raises:
        InputError: If it is written wrongly.
    """
    if not source.startswith("hf:"):
        parts = urlsplit(source)
        folder = parts.path.removesuffix("manifest.json").rstrip("/")
        return Remote(source, lambda name, _: Address(urlunsplit(parts._replace(path=f"{folder}/{quote(name)}", fragment=""))))
    match = HUB.fullmatch(source)
    if match is None:
        raise InputError(f"{shorten(source)} is no model on the Hub: write hf:owner/name or hf:owner/name@revision")
    from huggingface_hub import constants, get_token

    token = get_token()
    secret = {"Authorization": f"Bearer {token}"} if token else {}
    base = f"{constants.ENDPOINT.rstrip('/')}/{match['repo']}/resolve"
    return Remote(
        source, lambda name, at: Address(f"{base}/{quote(at, safe='')}/{quote(name)}", secret), match["revision"] or "main"
    )


def pull(place: Remote, digest: str | None = None) -> Path:
    """Return the folder of a model on the network: from the cache, if it is known not to have changed, or fetched.

    Args:
        place: Where its files are.
        digest: The SHA-256 that its manifest must have; without one the source is asked each time what it has now.
    """
    if digest is not None and (found := cache.model(digest)) is not None:
        return found
    note = cache.note("sources", place.source)
    before = read_json(note).get("sha256") if digest is None and note.is_file() else None
    kept = cache.model(str(before)) if before else None
    if kept is not None and place.is_fixed:
        return kept
    if variable := cache.offline():
        if kept is None:
            raise InputError(f"{place.source} is not in the cache, and {variable} forbids the network: pull it while online")
        return kept
    try:
        manifest, headers = read(place.address("manifest.json", place.revision), HEADER_BYTES, 1 if kept else None)
    except UnreachableError as error:
        if kept is None:
            raise
        cache.say(f"{error}; taking the copy in the cache")
        return kept
    now = hashlib.sha256(manifest).hexdigest()
    if digest not in (None, now):
        raise InputError(f"{place.source} is not the release that the catalogue names (its manifest has another checksum)")
    parse_json(manifest, place.address("manifest.json", place.revision))
    # Files of a branch may change from one moment to the next; those of its commit do not.
    commit = {name.lower(): value for name, value in headers.items()}.get("x-repo-commit", "")
    revision = commit if COMMIT.fullmatch(commit) else place.revision
    folder = cache.keep(manifest, lambda name: place.address(name, revision), place.source)
    if digest is None:
        cache.remember(note, to_json({"source": place.source, "sha256": now, "revision": revision}).encode())
    return folder


def release(found: Release) -> Path:
    """Return the folder of a release: from the first of its locations that has it; its manifest must be the catalogue's."""
    problem: InputError | None = None
    for place in found.places():
        try:
            if isinstance(place, str):
                return pull(remote(place), found.sha256)
            if not (place / "manifest.json").is_file():
                raise InputError(f"{place} holds no model")
            if file_record(place / "manifest.json")["sha256"] != found.sha256:
                raise InputError(f"{place} is not the release that the catalogue names (its manifest has another checksum)")
            return place
        except InputError as error:
            problem = problem or error
    raise problem or InputError(f"{found.name} has no location in {found.catalogue}")
