"""Find onnxruntime-web, the npm package that runs exported models in browsers. This module does not import torch."""

import json
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from zoo.atomic import home
from zoo.errors import InputError, one_line

PACKAGE = "onnxruntime-web"
VERSION = "1.30.0"
"""The version that is recommended and tested."""
WASM = "ort-wasm-simd-threaded.wasm"
FILES = {"onnxruntime-web.js": "ort.wasm.bundle.min.mjs", WASM: WASM}
"""Files of a page, and their names in dist/; not every web server knows that .mjs is JavaScript."""
FETCH = f"npm pack {PACKAGE}@{VERSION}"


class Runtime(NamedTuple):
    """The version and the files of onnxruntime-web."""

    version: str
    files: dict[str, bytes]

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(map(len, self.files.values()))


def find_runtime(given: str | Path | None = None) -> Runtime:
    """Read onnxruntime-web from an archive of ``npm pack``, its folder, or a folder that contains one of them.

    By default, look in the current folder, then in the cache of the zoo.

    Raises:
        InputError: If there is none, or it is incomplete.
    """
    if given and not Path(given).expanduser().exists():
        raise InputError(f"--runtime: there is no '{given}'", code="missing")
    folders = [Path(given).expanduser()] if given else [Path(), home()]
    found = next((path for folder in folders for path in _packages(folder)), None)
    if found is None:
        where = f"--runtime '{given}' contains no" if given else "--format web needs"
        raise InputError(f"{where} {PACKAGE}: fetch it once: {FETCH} (here, or in {home()} for all folders)", code="dependency")
    try:
        with _opened(found) as read:
            about = json.loads(read("package.json"))
            if about["name"] != PACKAGE:
                raise InputError(f"the package {about['name']}")
            return Runtime(str(about["version"]), {name: read(f"dist/{source}") for name, source in FILES.items()})
    except (OSError, EOFError, KeyError, TypeError, ValueError, RecursionError, tarfile.TarError, zlib.error) as error:
        message = f"'{found}' is not a complete {PACKAGE} ({one_line(error)}): fetch it again: {FETCH}"
        raise InputError(message, code="corrupt") from error


def _packages(path: Path) -> Iterator[Path]:
    """Yield the archives and folders of the package at a path, the newest first."""
    places = (path, path / "node_modules" / PACKAGE)
    yield from (place for place in places if place.is_file() or (place / "dist" / WASM).is_file())
    if path.is_dir():
        yield from sorted(path.glob(f"{PACKAGE}-*.tgz"), key=lambda file: file.stat().st_mtime, reverse=True)


@contextmanager
def _opened(path: Path) -> Iterator[Callable[[str], bytes]]:
    """Yield a function that reads a file of the package by its name."""
    if path.is_dir():
        yield lambda name: (path / name).read_bytes()
        return
    with tarfile.open(path, "r:gz") as archive:

        def read(name: str) -> bytes:
            file = archive.extractfile(f"package/{name}")
            if file is None:
                raise ValueError(f"{name} is not a file")
            return file.read()

        yield read
