"""Malicious data and configurations; each case writes files and returns the command line that reads them."""

import gzip
import io
import json
import lzma
import os
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

Case = Callable[[Path], list[str]]

MIB = 2**20
IMAGES = ["fit", "--backbone", "vit(dim=16,depth=1,heads=1)", "--algebra", "quaternion"]
TEXTS = ["fit", "--backbone", "fasttext(dim=16)", "--algebra", "quaternion"]
WRITER = ["fit", "--backbone", "gpt/nano", "--algebra", "quaternion"]
TRANSLATOR = ["fit", "--backbone", "transformer(dim=16,depth=1,heads=1)", "--algebra", "quaternion"]
FEW = ["--trainer.max_epochs", "1", "--trainer.limit_train_batches", "1", "--trainer.accelerator", "cpu", "--run-dir", "run"]


def command(base: list[str], data: str) -> list[str]:
    return [*base, *FEW, "--data", data]


# --- arrays ---


def labeled(split: str, label: int, dtype: str = "uint64") -> Case:
    """An archive with an invalid label in a split."""

    def make(folder: Path) -> list[str]:
        arrays = {}
        for name in ("train", "val", "test"):
            arrays[f"{name}_images"] = np.zeros((8, 8, 8), np.uint8)
            arrays[f"{name}_labels"] = np.arange(8, dtype=dtype) % 2
        arrays[f"{split}_labels"][3] = label
        np.savez(folder / "a.npz", **arrays)
        return command(IMAGES, "npz(path=a.npz)")

    return make


def promised(shape: tuple[int, ...], name: str = "train_images") -> Case:
    """An array with more elements in its header than in the file."""

    def make(folder: Path) -> list[str]:
        head = io.BytesIO()
        np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": shape})
        with zipfile.ZipFile(folder / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{name}.npy", head.getvalue() + bytes(64))
        return command(IMAGES, "npz(path=a.npz)")

    return make


def zipped_zeros(folder: Path) -> list[str]:
    """An archive that unpacks to a thousand times its size."""
    np.savez_compressed(folder / "a.npz", train_images=np.zeros((2**11, 256, 256), np.uint8), train_labels=np.arange(2**11) % 2)
    return command(IMAGES, "npz(path=a.npz)")


def objects(folder: Path) -> list[str]:
    """An archive with an array of pickled objects."""
    np.savez(folder / "a.npz", train_images=np.array([{}, {}], dtype=object), train_labels=np.arange(2))
    return command(IMAGES, "npz(path=a.npz)")


def bomb_image(folder: Path) -> list[str]:
    """A PNG of 60,000 x 60,000 pixels."""
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0))
    image = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(MIB))) + chunk(b"IEND", b"")
    for kind in "ab":
        (folder / "images" / kind).mkdir(parents=True)
        for i in range(4):
            (folder / "images" / kind / f"{i}.png").write_bytes(image)
    return command(IMAGES, "imagefolder(path=images)")


# --- packed files ---


def packed(name: str, data: str, base: list[str], start: bytes, unit: bytes, count: int = 128) -> Case:
    """A compressed file that unpacks to `start` and then `count` MiB of a repeated unit."""

    def make(folder: Path) -> list[str]:
        piece = unit * (MIB // len(unit))
        pack = partial(gzip.compress, compresslevel=1) if name.endswith(".gz") else partial(lzma.compress, preset=0)
        (folder / name).write_bytes(pack(start) + count * pack(piece))  # concatenated compressed files form one file
        return command(base, data)

    return make


def vectors(name: str, start: bytes, unit: bytes = b"") -> Case:
    """A file of vectors with the given bytes, followed by a repeated unit."""

    def make(folder: Path) -> list[str]:
        (folder / "a.tsv").write_text(REVIEWS)
        data = "text(path=a.tsv)"
        if unit:
            words = packed(name, data, TEXTS, start, unit)(folder)
        else:
            words = command(TEXTS, data)
            (folder / name).write_bytes(start)
        return [*words, "--vectors", name]

    return make


# --- pipes ---


def pipe(name: str, words: list[str], beside: Sequence[str] = ()) -> Case:
    """A named pipe without a writer, possibly beside a text file (its name and content)."""

    def make(folder: Path) -> list[str]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path)
        if beside:
            (folder / beside[0]).write_text(beside[1])
        return words

    return make


# --- configurations ---


def config(text: str) -> Case:
    """A configuration file with this content."""

    def make(folder: Path) -> list[str]:
        (folder / "c.yaml").write_text(text)
        return [*IMAGES, *FEW, "-c", "c.yaml"]

    return make


def aliases(option: str, levels: int = 30) -> str:
    """Nested YAML aliases below an option that expand to 10^30 values."""
    names = option.split(".")
    lines = [f"{'  ' * i}{name}:" for i, name in enumerate(names)]
    indent = "  " * len(names)
    lines.append(f"{indent}l0: &l0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]")
    return "\n".join([*lines, *(f"{indent}l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]" for i in range(1, levels))])


REVIEWS = "text\tlabel\n" + "".join(f"film number {i}\t{('bad', 'good')[i % 2]}\n" for i in range(40))
LABELS = (("train", 2**64 - 1), ("val", 10**6))

CORPUS: dict[str, Case] = {
    **{f"a label of {label:.0e} for {split}": labeled(split, label) for split, label in LABELS},
    "an array of a size below zero": promised((-5, 8, 8)),
    "an archive that unpacks to 128 MB": zipped_zeros,
    "an archive of pickled objects": objects,
    "an image of 60,000 x 60,000 pixels": bomb_image,
    "a table that is one line of 128 MB": packed("a.tsv.gz", "text(path=a.tsv.gz)", TEXTS, b"text\tlabel\n", b"a"),
    "JSON lines that are one line of 128 MB": packed("a.jsonl.gz", "text(path=a.jsonl.gz)", TEXTS, b'{"text": "', b"a"),
    "a table of zeros, xz": packed("a.tsv.xz", "text(path=a.tsv.xz)", TEXTS, b"text\tlabel\n", b"\0"),
    "parallel lines of 128 MB": packed("a.gz", "parallel(source=a.gz, target=a.gz)", TRANSLATOR, b"", b"a"),
    "a corpus of zeros": packed("a.txt.gz", "corpus(path=a.txt.gz, tokenizer=char)", WRITER, b"", b"\0"),
    "vectors that are one line of 128 MB": vectors("v.gz", b"film", b" 1"),
    "vectors of 10^12 numbers": vectors("v.bin.gz", b"10 1000000000000\nfilm ", b"\0"),
    "a pipe for a table": pipe("a.tsv", command(TEXTS, "text(path=a.tsv)")),
    "a pipe for vectors": pipe("v", [*command(TEXTS, "text(path=a.tsv)"), "--vectors", "v"], ("a.tsv", REVIEWS)),
    "a pipe for a checkpoint": pipe("last.ckpt", [*IMAGES, *FEW, "--ckpt-path", "last.ckpt"]),
    "a device for a table": lambda folder: command(TEXTS, "text(path=/dev/zero)"),
    "a device for a configuration": lambda folder: [*IMAGES, *FEW, "-c", "/dev/zero"],
    **{f"aliases below {place}": config(aliases(place)) for place in ("trainer.logger", "backbone")},
    "an alias to itself": config("trainer: &t\n  logger: *t\n"),
    "deep YAML": config("trainer: " + "[" * 10**5 + "]" * 10**5),
    "a name that stands twice": config("seed: 1\nbatch_size: 4\nseed: 2\n"),
    "a tag of Python": config("seed: !!python/object/apply:os.system [touch ran]\n"),
    "a function for a callback": config(
        "trainer:\n  callbacks:\n  - class_path: os.system\n    init_args: {command: touch ran}\n"
    ),
    "a class path for a backbone": config("backbone:\n  class_path: os.system\n  init_args: {command: touch ran}\n"),
    "bytes that are no text": lambda folder: (
        (folder / "c.yaml").write_bytes(b"\xff\xfe\0\0") and [*IMAGES, *FEW, "-c", "c.yaml"]
    ),
    "JSON that writes to the terminal": config(json.dumps({"\x1b]0;owned\x07": 1})),
    "a path that writes to the terminal": lambda folder: command(TEXTS, 'text(path="a\x1b[2J\x07b.tsv")'),
    "a class that writes to the terminal": lambda folder: (
        [(folder / "i" / name).mkdir(parents=True) for name in ("\x1b[2Ja", "b")] and command(IMAGES, "imagefolder(path=i)")
    ),
}
"""Cases that must be refused."""
