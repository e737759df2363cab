"""Fake installed distributions: folders on `sys.path` with modules and a dist-info."""

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from zoo.registry import refresh

GOOD = "def build(*args, **options):\n    '''A good plugin.'''\n    return args, options\n"


class Environment:
    """Fake installed distributions, each in its own folder."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch):
        self.root, self.monkeypatch, self.count = root, monkeypatch, 0

    def install(self, name, points, modules=None, *, version="1.0", metadata="default"):
        """Put a distribution first on the path; `points` is raw text or bytes, or algebra names and their targets."""
        self.count += 1
        site = self.root / f"site{self.count}"
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        if isinstance(points, dict):
            points = "[zoo.algebras]\n" + "".join(f"{key} = {value}\n" for key, value in points.items())
        (info / "entry_points.txt").write_bytes(points if isinstance(points, bytes) else points.encode())
        if metadata == "default":
            metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        if metadata is not None:
            (info / "METADATA").write_text(metadata)
        for path, source in (modules or {}).items():
            target = site / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source if isinstance(source, bytes) else dedent(source).encode())
        self.monkeypatch.syspath_prepend(str(site))
        return site


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Environment]:
    """An environment whose modules and cached entries are removed afterwards."""
    before = set(sys.modules)
    monkeypatch.delenv("ZOO_PLUGINS", raising=False)
    yield Environment(tmp_path, monkeypatch)
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    refresh()


@pytest.fixture
def good(environment: Environment) -> Environment:
    """An environment with one sound plugin."""
    environment.install("sound-plugin", {"sound": "sound_module:build"}, {"sound_module.py": GOOD})
    return environment


@pytest.fixture
def ours(environment: Environment) -> Environment:
    """An environment with a stand-in for the zoo's own distribution, before the real one if that is installed."""
    source = """
        from zoo.errors import InputError

        def quaternion():
            return "quaternion"

        def phm(n, rank=None):
            return ("phm", int(n), rank)

        def clifford(p, q=0, r=0):
            if p < 0:
                raise InputError("p must not be negative")
            return ("clifford", p // 1, q, r)

        def octonion():
            raise ValueError("a defect of ours")

        def resnet(variant, width=1.0):
            return variant, width
    """
    points = {name: f"zoo_stand_in:{name}" for name in ("quaternion", "phm", "clifford", "octonion", "resnet")}
    environment.install("hypercomplex-zoo", points, {"zoo_stand_in.py": source}, version="9.9")
    return environment
