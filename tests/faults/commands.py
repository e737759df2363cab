"""Mutations of valid command lines and configuration files, which must be refused in at most three lines."""

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.faults.process import Ended, zoo_command
from tests.faults.runs import fit_words, write_data

ODD = [
    "", "many", "true", "null", "nan", "-1", "0", "0.5", "1e309", "9" * 30, "[1, 2", "[1,2]", "{a: 1}", "a=b", "(", "--", "-",
    "..", "/", "/dev/null", "no such file", "text.tsv", "run", "\x1b[2J", "a\nb", "\udcff", "é" * 1000, "%s", "$(ls)", "vit(",
    "quaternion(n=3)", "phm(n=0)", "vit(dim=0)", "vit(dim=-8)", "vit(depth=9.5)", "digits(val=2)", "text(path=..)",
]  # fmt: skip
"""Words that are invalid in most places."""
CONFIG = """
backbone: vit(dim=16,depth=1,heads=1)
algebra: quaternion
data: digits
optimizer:
  name: adamw
  lr: 0.001
  betas: [0.9, 0.99]
schedule: {name: cosine, warmup: 0.1}
batch_size: 64
seed: 3
metrics: []
trainer:
  max_epochs: 1
  accelerator: cpu
"""
Words = list[str]


def stop_before_training() -> None:
    """Exit with code 0 when training would start."""
    import zoo.training.fit

    def train(*_: object) -> None:
        os._exit(0)

    zoo.training.fit.train = train  # type: ignore[assignment]


def prepare(folder: Path) -> None:
    """Write the inputs of the valid commands: data, a configuration, and finished runs on images and on running text."""
    write_data(folder)
    (folder / "c.yaml").write_text(CONFIG)
    for kind, run in (("images", "done"), ("corpus", "writer")):
        ended = zoo_command(fit_words(kind, run, max_epochs=1, limit_train_batches=2), folder, timeout=300)
        assert ended.code == 0, ended.err


def valid_commands() -> list[Words]:
    """Return the command lines to mutate."""
    few = ["--trainer.limit_test_batches", "1", "--trainer.accelerator", "cpu"]
    return [
        *(fit_words(kind, "new") for kind in ("images", "text", "pairs", "corpus")),
        ["fit", "-c", "c.yaml", "--run-dir", "new"],
        [*fit_words("text", "new"), "--optimizer.lr", "1e-3", "--schedule.name", "linear", "--ema", "0.9", "--keep", "2"],
        ["test", "done", "--batch_size", "64", *few],
        ["validate", "done", "--trainer.limit_val_batches", "1", "--trainer.accelerator", "cpu"],
        ["generate", "writer", "--prompt", "the", "--decoding.length", "3", "--num_samples", "2"],
        ["predict", "writer", "a film", "--batch_size", "2"],
        ["info", "--backbone", "vit(dim=16,depth=1)", "--algebra", "quaternion", "--data", "digits"],
        ["average", "done", "--last", "1"],
        ["list", "algebras", "--json"],
        ["completion", "bash"],
    ]


def misspell(word: str, draw: random.Random) -> str:
    """Drop, double or swap a letter."""
    i = draw.randrange(len(word)) if word else 0
    swapped = word[:i] + word[i + 1 : i + 2] + word[i : i + 1] + word[i + 2 :]
    return draw.choice((word[:i] + word[i + 1 :], word[:i] + word[i : i + 1] + word[i:], swapped))


def mutate(words: Words, draw: random.Random) -> Words:
    """Misspell, replace, drop, swap or add a word."""
    words, i, j = [*words], draw.randrange(len(words)), draw.randrange(len(words))
    match draw.choice(("misspell", "replace", "drop", "swap", "add")):
        case "misspell":
            words[i] = misspell(words[i], draw)
        case "replace":
            words[i] = draw.choice(ODD)
        case "drop":
            del words[i]
        case "swap":
            words[i], words[j] = words[j], words[i]
        case "add":
            words.insert(i + 1, draw.choice([*ODD, "--debugg", "--trainer.max_epoch", "-c", "--config=..", "-x"]))
    return words


def edit_config(text: str, draw: random.Random) -> str:
    """Edit a value, a line, its indentation or a letter of a configuration."""
    lines = text.strip().splitlines()
    i = draw.randrange(len(lines))
    name, _, value = lines[i].partition(":")
    odd = draw.choice([*ODD, "!!python/name:os.system", "*a", "&a [*a]", "{", "'", "2020-01-01", "0x10", "[[[]]]", "\t"])
    odd = odd.replace("\udcff", "\ufffe")
    changed = draw.choice((
        [f"{name}: {odd}"], [f"{misspell(name, draw)}:{value}"], [f"   {lines[i]}"], [lines[i], lines[i]],
        [misspell(lines[i], draw)], [odd],
    ))  # fmt: skip
    return "\n".join([*lines[:i], *changed, *lines[i + 1 :]]) + "\n"


def mutations(seed: int) -> Iterator[tuple[Words, str]]:
    """Yield mutated command lines and configuration files without end."""
    draw, commands = random.Random(seed), valid_commands()
    while True:
        words, text = draw.choice(commands), CONFIG
        if "c.yaml" in words and draw.random() < 0.8:
            text = edit_config(text, draw)
        else:
            words = mutate(words, draw)
        yield [word.replace("\0", "") for word in words], text


def attempt(folder: Path, words: Words, text: str) -> Ended:
    """Run a mutation until training would start, and remove the files that it creates."""
    (folder / "c.yaml").write_text(text, encoding="utf-8", errors="surrogateescape")
    before = {*folder.iterdir()}
    try:
        return zoo_command(words, folder, timeout=120, prepare=(stop_before_training, ()))
    finally:
        for path in {*folder.iterdir()} - before:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
