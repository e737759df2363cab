"""Sound model folders of several kinds, and functions that alter one thing in them, with a matching manifest."""

import hashlib
import json
import os
import pickle
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from zoo.atomic import write_json
from zoo.backbones.build import backbone
from zoo.checkpoint import ModelConfig, save
from zoo.checkpoint.manifest import sealed
from zoo.data.info import CorpusInfo, ImageInfo, ParallelInfo, TableInfo, TextInfo
from zoo.data.tokenizer import Tokenizer, train_corpus_tokenizer, train_tokenizer

DEEP = 10**5
LARGE = 2**40
FACTS = {"in_channels": 1, "image_size": 8, "mean": (0.5,), "std": (0.2,), "sizes": {"train": 9, "val": 1}, "sha256": "ab"}
INFO = ImageInfo(classes=("cat", "dog", "eel"), **FACTS)
SPEC = "vit(dim=16,depth=1,heads=1)"
TEXTS = ["a good film", "a bad film", "the plot is fine"]
Change = Callable[[Path, Path], None]


def _words() -> tuple[str, str, TextInfo, Tokenizer]:
    tokenizer = train_tokenizer("word", TEXTS, 30, True, 1)
    info = TextInfo(classes=("no", "yes"), vocab_size=tokenizer.vocab_size, max_length=99, sizes={"train": 3})
    return "fasttext(dim=8)", "text_classification", info, tokenizer


def _bytes() -> tuple[str, str, CorpusInfo, Tokenizer]:
    tokenizer = train_corpus_tokenizer("bpe", [*TEXTS, *TEXTS], 262, False)
    info = CorpusInfo(vocab_size=tokenizer.vocab_size, max_length=16, stream=False, sizes={})
    return "gpt(dim=16,depth=1,heads=1,positions=trigonometric)", "language_model", info, tokenizer


def _letters() -> tuple[str, str, CorpusInfo, Tokenizer]:
    tokenizer = train_corpus_tokenizer("char", ["abcd"], 30, False)
    info = CorpusInfo(vocab_size=tokenizer.vocab_size, max_length=16, stream=False, sizes={})
    return "gpt(dim=16,depth=1,heads=1,positions=trigonometric)", "language_model", info, tokenizer


def _answers() -> tuple[str, str, ParallelInfo, Tokenizer]:
    tokenizer = train_tokenizer("word", TEXTS, 30, True, 1, ends=True)
    info = ParallelInfo(vocab_size=tokenizer.vocab_size, max_length=9, sizes={})
    return "transformer(dim=16,depth=1,heads=1)", "seq2seq", info, tokenizer


def _table(task: str = "vector_classification", classes: tuple[str, ...] = ("n", "y")) -> tuple[str, str, TableInfo, None]:
    numbers = {"values": (None, None, "x"), "mean": (0.0, 1.0, 0.0), "std": (1.0, 2.0, 1.0)}
    outputs = {"out_features": len(classes) or 1, "classes": classes}
    info = TableInfo(in_features=3, columns=("a", "b", "c"), target="t", sizes={}, **numbers, **outputs)
    return "mlp(dim=8,depth=1)", task, info, None


KINDS: dict[str, Callable[[], tuple[str, str, Any, Tokenizer | None]]] = {
    "image": lambda: (SPEC, "image_classification", INFO, None),
    "words": _words,
    "bytes": _bytes,
    "letters": _letters,
    "answers": _answers,
    "table": _table,
    "number": partial(_table, "regression", ()),
}
"""Backbone, task, info and tokenizer of each kind of sound model folder."""


def write_sound(folder: Path, kind: str = "image") -> None:
    """Write a valid model folder."""
    spec, task, info, tokenizer = KINDS[kind]()
    torch.manual_seed(0)
    net = backbone(spec, "quaternion", **info.model_kwargs)
    decoding = {"length": 6} if kind in ("bytes", "letters") else None
    names = {"backbone": spec, "algebra": "quaternion", "task": task, "data": "digits"}
    config = ModelConfig(**names, info=info.to_dict(), decoding=decoding)
    files = {} if tokenizer is None else {"tokenizer.json": tokenizer.to_json()}
    save(folder, net, config, {"metrics": {}, "versions": {"torch": "2"}}, files)


def command(kind: str, folder: Path, place: Path) -> list[str]:
    """Write an input for a model, and return the command that uses the model."""
    if kind in ("bytes", "letters"):
        return ["generate", str(folder), "--prompt", "abc", "--device", "cpu"]
    text = "a good film"
    if kind == "image":
        Image.new("L", (8, 8), 99).save(place / "a.png")
        text = str(place / "a.png")
    elif kind in ("table", "number"):
        (place / "rows.csv").write_text("a,b,c\n1,2,x\n3,4,y\n")
        text = str(place / "rows.csv")
    return ["predict", str(folder), text, "--device", "cpu"]


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


def weights(data: Callable[[Path], bytes]) -> Change:
    """Replace the weights by the result of a function of the valid file."""

    def change(folder: Path, marker: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(data(path))

    return change


def edited(edit: Callable[[dict[str, Any], bytes], None]) -> Change:
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


def config(**changes: Any) -> Change:
    """Change values of the configuration; a callable gets the old value."""

    def change(folder: Path, marker: Path) -> None:
        path = folder / "config.json"
        values = json.loads(path.read_text())
        for key, value in changes.items():
            values[key] = value(values.get(key)) if callable(value) else value
        path.write_text(json.dumps(values))

    return change


def info(**changes: Any) -> Change:
    return config(info=lambda old: old | changes)


def raw_config(text: str) -> Change:
    return lambda folder, marker: (folder / "config.json").write_text(text) and None


def pickled(name: str) -> Change:
    """Replace a file by a pickle."""
    return lambda folder, marker: (folder / name).write_bytes(pickle.dumps(Payload(marker))) and None


def dtype(kind: torch.dtype) -> Change:
    """Store the weights in another dtype."""
    return stored(lambda value: value.to(kind))


def filled(number: float) -> Change:
    """Set all floating-point weights to a number."""
    return stored(lambda value: torch.full_like(value, number) if value.is_floating_point() else value)


def stored(function: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """Apply a function to all stored tensors."""

    def change(folder: Path, marker: Path) -> None:
        path = folder / "model.safetensors"
        save_file({name: function(value) for name, value in load_file(path).items()}, path)

    return change


def tokenizer(edit: Callable[[dict[str, Any]], Any]) -> Change:
    """Edit the tokenizer file."""

    def change(folder: Path, marker: Path) -> None:
        path = folder / "tokenizer.json"
        state = json.loads(path.read_text())
        edit(state)
        path.write_text(json.dumps(state))

    return change


def renamed_token(number: int, token: str) -> Change:
    """Change the text of a token."""

    def edit(state: dict[str, Any]) -> None:
        vocab = state["model"]["vocab"]
        state["model"]["vocab"] = {token if i == number else text: i for text, i in vocab.items()}

    return tokenizer(edit)


def pipe(name: str) -> Change:
    """Replace a file by a named pipe."""

    def change(folder: Path, marker: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return change


def link(name: str, target: str) -> Change:
    """Replace a file by a symbolic link."""

    def change(folder: Path, marker: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return change


def extended(name: str) -> Change:
    """Extend a file by zeros, which take no space on the disk, to `LARGE` bytes."""
    return lambda folder, marker: os.truncate(folder / name, LARGE)


def declared(name: str) -> Change:
    """Extend a file, and declare its size in the manifest."""

    def change(folder: Path, marker: Path) -> None:
        seal(folder)
        os.truncate(folder / name, LARGE)
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["files"][name]["size"] = LARGE
        write_json(folder / "manifest.json", sealed(manifest))

    return change
