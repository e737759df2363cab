"""Malicious model folders: valid except for one change, with a matching manifest."""

import hashlib
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

from PIL import Image

from zoo.atomic import write_json
from zoo.backbones.build import backbone
from zoo.checkpoint import save
from zoo.checkpoint.manifest import sealed
from zoo.data import ImageInfo

DEEP = 10**5
FACTS = {"in_channels": 1, "image_size": 8, "mean": (0.5,), "std": (0.2,), "sizes": {"train": 9, "val": 1}, "sha256": "ab"}
INFO = ImageInfo(classes=("cat", "dog", "eel"), **FACTS)
SPEC = "vit(dim=16,depth=1,heads=1)"
HARMLESS = ("a pickle as tokenizer.json", "an importable embedding", "numbers of another kind")
"""Changes that are valid or that image models ignore, so the folder loads."""


def write_sound(folder: Path) -> None:
    """Write a valid model folder."""
    net = backbone(SPEC, "quaternion", **INFO.model_kwargs)
    values = {"backbone": SPEC, "algebra": "quaternion", "scope": "all", "init": "variance", "task": "image_classification"}
    save(folder, net, values | {"data": "digits", "info": INFO.to_dict()}, {"metrics": {}, "versions": {"torch": "2"}})


def offer(name: str, sound: Path, target: Path) -> list[str]:
    """Write a malicious folder of the corpus, and return the command that reads it."""
    folder = copytree(sound, target / "model")
    CORPUS[name](folder, target / "ran")
    seal(folder)
    Image.new("L", (8, 8)).save(target / "a.png")
    return ["predict", "model", "a.png"]


def seal(folder: Path, **known: Any) -> None:
    """Write a matching manifest."""
    files = {}
    for path in sorted(folder.iterdir()):
        if path.name != "manifest.json" and path.is_file():
            data = path.read_bytes()
            files[path.name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    write_json(folder / "manifest.json", sealed({"files": files, "metrics": {}, **known}))


class Payload:
    """Creates a file if it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def header(entries: dict[str, Any], data: bytes = b"") -> bytes:
    """Return a safetensors file with the given header."""
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


def many(count: int) -> bytes:
    """Return a safetensors file with many empty tensors."""
    text = "{" + ",".join(f'"t{i}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for i in range(count)) + "}"
    return struct.pack("<Q", len(text)) + text.encode()


def tensor(shape: list[int], begin: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def weights(data: Callable[[Path], bytes]) -> Callable[[Path, Path], None]:
    """Replace the weights by the result of a function of the valid file."""

    def change(folder: Path, marker: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(data(path))

    return change


def edited(edit: Callable[[dict[str, Any], bytes], None]) -> Callable[[Path, Path], None]:
    """Edit the header of the weights."""

    def data(path: Path) -> bytes:
        old = path.read_bytes()
        length = struct.unpack("<Q", old[:8])[0]
        entries = json.loads(old[8 : 8 + length])
        edit(entries, old)
        return header(entries, old[8 + length :])

    return weights(data)


def first(entries: dict[str, Any]) -> dict[str, Any]:
    return next(value for key, value in entries.items() if key != "__metadata__")


def config(**changes: Any) -> Callable[[Path, Path], None]:
    """Change values of the configuration; a callable gets the old value."""

    def change(folder: Path, marker: Path) -> None:
        path = folder / "config.json"
        values = json.loads(path.read_text())
        for key, value in changes.items():
            values[key] = value(values.get(key)) if callable(value) else value
        path.write_text(json.dumps(values))

    return change


def info(**changes: Any) -> Callable[[Path, Path], None]:
    return config(info=lambda old: old | changes)


def raw_config(text: str) -> Callable[[Path, Path], None]:
    return lambda folder, marker: (folder / "config.json").write_text(text) and None


def pickled(name: str) -> Callable[[Path, Path], None]:
    """Replace a file by a pickle."""
    return lambda folder, marker: (folder / name).write_bytes(pickle.dumps(Payload(marker))) and None


CORPUS: dict[str, Callable[[Path, Path], None]] = {
    **{f"a pickle as {name}": pickled(name) for name in ("model.safetensors", "config.json", "tokenizer.json")},
    "a header of 2^60 bytes": weights(lambda path: struct.pack("<Q", 2**60) + path.read_bytes()[8:]),
    "a deep header": weights(lambda path: struct.pack("<Q", 2 * DEEP) + b"[" * DEEP + b"]" * DEEP),
    "10^6 tensors": weights(lambda path: many(10**6)),
    "tensors that overlap": edited(lambda entries, old: first(entries).update(data_offsets=[0, 8], shape=[2])),
    "a tensor beyond the end": edited(lambda entries, old: first(entries).update(data_offsets=[0, 2**40], shape=[2**38])),
    "a shape of (0, 2^60)": edited(lambda entries, old: entries.update(zero=tensor([0, 2**60], 0, 0))),
    "numbers of another kind": edited(lambda entries, old: first(entries).update(dtype="I32")),
    "a class path for a backbone": config(backbone={"class_path": "os.system", "init_args": {"command": "true"}}),
    "an importable embedding": config(embedding="builtins.eval"),
    "an instantiator in the arguments": config(model_kwargs={"_instantiator": "os.system"}, info=None, task=None),
    "a deep configuration": raw_config("[" * DEEP + "]" * DEEP),
    "a number that is not finite": info(mean=[float("nan")]),
    "a name that stands twice": raw_config('{"format": 2, "format": 2}'),
    "a mean of 1e308": info(mean=[1e308]),
    "a width of a million": config(backbone="vit(dim=1048576,depth=1,heads=1)"),
    "images of a million pixels a side": info(image_size=10**6),
    "a backbone that writes to the terminal": config(backbone="vit\x1b[2J(dim=16)"),
    "an algebra of 10^5 dimensions": config(algebra="phm(n=100000)"),
    "a million classes": info(classes=[str(i) for i in range(10**6)]),
    "labels that write to the terminal": info(classes=["\x1b]0;owned\x07", "dog", "eel"]),
}
"""Changes of a valid folder by name; the second argument is a file that must never be created."""
