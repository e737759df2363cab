"""The corpus of hostile model folders: named alterations of sound folders, for every command that opens one."""

import struct
from pathlib import Path
from shutil import copytree
from typing import NamedTuple

import torch

from tests.faults.hostile import (
    DEEP,
    LARGE,
    Change,
    command,
    config,
    declared,
    dtype,
    edited,
    extended,
    filled,
    first,
    info,
    link,
    many,
    pickled,
    pipe,
    raw_config,
    renamed_token,
    seal,
    tensor,
    tokenizer,
    weights,
)


class Case(NamedTuple):
    """An alteration of a sound folder; a harmless one is valid, or concerns a file that the model does not read."""

    kind: str
    change: Change
    harmless: bool = False
    sealed: bool = True  # whether the manifest is written again after the change


def write(name: str, sound: Path, target: Path) -> Path:
    """Write a hostile folder of the corpus, and return it; code in it would create the file ``ran`` next to it."""
    kind, change, _, is_sealed = CORPUS[name]
    folder = copytree(sound / kind, target / "model")
    change(folder, target / "ran")
    if is_sealed:
        seal(folder)
    return folder


def offer(name: str, sound: Path, target: Path) -> list[str]:
    """Write a hostile folder, and return the command that uses it."""
    write(name, sound, target)
    return command(CORPUS[name].kind, Path("model"), target)


IMAGES: dict[str, Change] = {
    **{f"a pickle as {name}": pickled(name) for name in ("model.safetensors", "config.json")},
    "a header of 2^60 bytes": weights(lambda path: struct.pack("<Q", 2**60) + path.read_bytes()[8:]),
    "a deep header": weights(lambda path: struct.pack("<Q", 2 * DEEP) + b"[" * DEEP + b"]" * DEEP),
    "10^6 tensors": weights(lambda path: many(10**6)),
    "tensors that overlap": edited(lambda entries, old: first(entries).update(data_offsets=[0, 8], shape=[2])),
    "a tensor beyond the end": edited(lambda entries, old: first(entries).update(data_offsets=[0, 2**40], shape=[2**38])),
    "a shape of (0, 2^60)": edited(lambda entries, old: entries.update(zero=tensor([0, 2**60], 0, 0))),
    "numbers of another kind": edited(lambda entries, old: first(entries).update(dtype="I32")),
    "a class path for a backbone": config(backbone={"class_path": "os.system", "init_args": {"command": "true"}}),
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
    "a name that stands twice in the header": weights(lambda path: path.read_bytes().replace(b'"head.bias"', b'"norm.bias"')),
    "weights of whole numbers": dtype(torch.int64),
    "weights of truth values": dtype(torch.bool),
    "weights of complex numbers": dtype(torch.complex64),
    "weights of NaN": filled(float("nan")),
    "weights of infinity": filled(float("inf")),
    "weights of 1e38": filled(1e38),
    "an infinite option": config(backbone="vit(dim=16,depth=1,heads=1,mlp_ratio=1e999)"),
    "a mean for two channels": info(mean=[0.5, 0.5]),
    "a deviation for two channels": info(std=[0.5, 0.5]),
    "no mean": info(mean=[]),
    "a deviation of zero": info(std=[0.0]),
    "a negative deviation": info(std=[-1.0]),
    "images of no pixels": info(image_size=0),
    "images of negative size": info(image_size=-8),
    "images without channels": info(in_channels=0, mean=[], std=[]),
    "a billion outputs of the task": config(task="image_classification(num_classes=1000000000)"),
    "fewer outputs of the task": config(task="image_classification(num_classes=2)"),
    "a number for the metrics": config(task="image_classification(metrics=5)"),
    "a learning rate of text": config(task="image_classification(lr=abc)"),
    "a number for two": config(task="image_classification(betas=3)"),
    "an info in the task": config(task="image_classification(info=3)"),
    "a network in the task": config(task="image_classification(net=3)"),
    "a smoothing of text": config(task="image_classification(label_smoothing=abc)"),
    "20,000 packages": config(algebra="nope", versions={f"p{i}": "1" for i in range(20_000)}),
    "a package that is a command": config(algebra="nope", versions={"x; touch ran": "1"}),
    "a package that is an option": config(algebra="nope", versions={"-e": "1"}),
    "a conversion of lists": config(conversion={"converted": [[1]]}),
    "packed tensors of fractions": config(sparse={"head.bias": [3.0]}),
    "packed tensors of text": config(sparse={"head.bias": "abc"}),
    "a pretrained file": config(backbone="timm/resnet18(checkpoint_path=evil.pth)"),
}
TABLES: dict[str, Change] = {
    "a deviation of zero in a table": info(std=[0.0, 0.0, 0.0]),
    "two columns of three": info(columns=["a", "b"]),
    "one value of three": info(values=[None]),
    "one mean of three": info(mean=[1.0]),
    "one class of two": info(classes=["n"]),
    "three classes of two": info(classes=["a", "b", "c"]),
}
NUMBERS: dict[str, Change] = {
    "a deviation of 1e300 for the target": info(target_std=1e300),
    "a metric that downloads a network": config(task="regression(metrics=[BERTScore])"),
}
PADDING = {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0}
PADDING |= {"pad_type_id": 0, "pad_token": "[PAD]"}
REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 50}
REPLACE_8 = {"type": "Sequence", "normalizers": [REPLACE] * 8}
BACKTRACK = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
TRUNCATION = {"max_length": 2, "strategy": "LongestFirst", "stride": 5, "direction": "Right"}
ADDED = {"id": 0, "content": "", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
WORDS: dict[str, Change] = {
    "a pickle as a tokenizer": pickled("tokenizer.json"),
    "padding to 10^9 tokens": tokenizer(lambda state: state.update(padding=PADDING)),
    "50^8 letters for one": tokenizer(lambda state: state.update(normalizer=REPLACE_8)),
    "a regular expression that backtracks": tokenizer(lambda state: state.update(pre_tokenizer=BACKTRACK)),
    "a stride above the length": tokenizer(lambda state: state.update(truncation=TRUNCATION)),
    "a template": tokenizer(lambda state: state.update(post_processor={"type": "ByteLevel"})),
    "a decoder of another kind": tokenizer(lambda state: state.update(decoder={"type": "ByteFallback"})),
    "an empty added token": tokenizer(lambda state: state.update(added_tokens=[ADDED])),
    "an unknown key": tokenizer(lambda state: state.update(more=1)),
    "an id beyond the vocabulary": tokenizer(lambda state: state["model"]["vocab"].update(good=10**6)),
    "a negative id": tokenizer(lambda state: state["model"]["vocab"].update(good=-1)),
    "an id of text": tokenizer(lambda state: state["model"]["vocab"].update(good="3")),
    "an id twice": tokenizer(lambda state: state["model"]["vocab"].update(good=2)),
    "no padding token": renamed_token(0, "pad"),
    "a lone surrogate in the vocabulary": renamed_token(5, "\ud800"),
    "a vocabulary of another model": tokenizer(lambda state: state["model"]["vocab"].update(more=len(state["model"]["vocab"]))),
    "a deep tokenizer": lambda folder, marker: (folder / "tokenizer.json").write_text("[" * DEEP) and None,
    "a tokenizer of 2^25 letters": lambda folder, marker: (folder / "tokenizer.json").write_text(" " * 2**25) and None,
    "a tokenizer that is a list": lambda folder, marker: (folder / "tokenizer.json").write_text("[]") and None,
    "a tokenizer that is not text": lambda folder, marker: (folder / "tokenizer.json").write_bytes(b"\xff") and None,
    "the configuration as tokenizer": info(tokenizer="config.json"),
    "the weights as tokenizer": info(tokenizer="model.safetensors"),
    "a tokenizer elsewhere": info(tokenizer="../tokenizer.json"),
    "a tokenizer that is not listed": info(tokenizer="other.json"),
    "a tokenizer without a name": info(tokenizer=""),
    "no vocabulary": info(vocab_size=0),
    "texts of negative length": info(max_length=-1),
    "texts of 2^40 tokens": info(max_length=LARGE),
    "the task of another info": config(task="language_model"),
    "the task of pairs": config(task="answer_ranking"),
}
BYTES: dict[str, Change] = {
    "merges of other tokens": tokenizer(lambda state: state["model"]["merges"].append(["a", "nothing"])),
    "merges of text": tokenizer(lambda state: state["model"].update(merges=["a b"])),
    "dropout of merges": tokenizer(lambda state: state["model"].update(dropout=0.5)),
    "a prefix of words": tokenizer(lambda state: state["model"].update(continuing_subword_prefix="#" * 10**5)),
    "texts without an end": config(decoding={"length": 10**12}),
    "a beam of 10^9": config(decoding={"beam": 10**9}),
    "a seed of 300 digits": config(decoding={"seed": 10**299}),
    "an unknown option of decoding": config(decoding={"x": 1}),
    "a length of text": config(decoding={"length": "5"}),
}
UNREADABLE: dict[str, Change] = {
    f"{what}, {name}": change(name)
    for name in ("config.json", "model.safetensors", "manifest.json", "README.md", "tokenizer.json")
    for what, change in {
        "a pipe": pipe,
        "a terabyte": extended,
        "a device": lambda name: link(name, "/dev/zero"),
        "a link to itself": lambda name: link(name, name),
        "a link to a folder": lambda name: link(name, "."),
    }.items()
}
TEXT_FILES = ("config.json", "README.md", "tokenizer.json")
UNREADABLE |= {f"a terabyte that is declared, {name}": declared(name) for name in TEXT_FILES}
HARMLESS: dict[str, Case] = {
    "a pickle as tokenizer.json": Case("image", pickled("tokenizer.json"), harmless=True),
    "an importable embedding": Case("image", config(embedding="builtins.eval"), harmless=True),
    "a token that clears the terminal": Case("letters", renamed_token(5, "\x1b"), harmless=True),
    "a token of an 8-bit terminal": Case("letters", renamed_token(5, "\x9b"), harmless=True),
}
CORPUS: dict[str, Case] = {
    **{name: Case("image", change) for name, change in IMAGES.items()},
    **{name: Case("table", change) for name, change in TABLES.items()},
    **{name: Case("number", change) for name, change in NUMBERS.items()},
    **{name: Case("words", change) for name, change in WORDS.items()},
    **{name: Case("bytes", change) for name, change in BYTES.items()},
    **{name: Case("words", change, sealed=False) for name, change in UNREADABLE.items()},
    **HARMLESS,
}
