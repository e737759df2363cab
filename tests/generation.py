"""Small generative models, trained at most once in a session and shared by all workers of pytest-xdist."""

import io
import random
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from filelock import FileLock

import zoo

WORDS = ["the", "café", "was", "naïve", "and", "old,", "a", "señor", "ate", "œufs", "at", "noon"]
NUMBERS = {"one": "un", "two": "deux", "three": "trois", "four": "quatre", "five": "cinq", "six": "six"}
SIZE = "dim=16, depth=1, heads=2, ffn=32"
TRAINER = {"max_epochs": 2, "accelerator": "cpu", "enable_progress_bar": False, "limit_train_batches": 20}
RUNS = {
    "gpt": (f"gpt({SIZE})", "corpus(path='{folder}/text.txt', max_length=32)"),
    "xl": (f"transformer_xl({SIZE})", "corpus(path='{folder}/text.txt', max_length=16)"),
    "bytes": (f"gpt({SIZE}, positions=rotary)", "corpus(path='{folder}/text.txt', max_length=32, tokenizer=bpe, vocab=264)"),
    "small": (f"gpt({SIZE})", "corpus(path='{folder}/words.txt', max_length=32, lowercase=true)"),
    "pairs": (f"transformer({SIZE}, dropout=0.0)", "parallel(path='{folder}/en-fr', source=en, target=fr, tokenizer=space)"),
    "letters": (
        f"transformer({SIZE}, positions=learned)",
        "parallel(path='{folder}/en-fr', source=en, target=fr, tokenizer=bpe, vocab=280)",
    ),
}
"""Backbone and data of each run."""


def trained_run(folder: Path, name: str) -> Path:
    """Return a run of `RUNS` in a folder with its data; train it first if necessary."""
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            write_data(folder)
        if not (folder / name / "summary.json").exists():
            backbone, data = RUNS[name]
            trainer = TRAINER | ({"max_epochs": 20} if name == "pairs" else {})
            options = {"data": data.format(folder=folder), "batch_size": 8, "optimizer": {"lr": 0.01}, "trainer": trainer}
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                zoo.fit(backbone=backbone, algebra="quaternion", run_dir=str(folder / name), **options)
    return folder / name


def write_data(folder: Path) -> None:
    """Write two texts, and numbers in English and French."""
    draw = random.Random(0)
    (folder / "en-fr").mkdir(parents=True)
    text = "".join(" ".join(draw.choices(WORDS, k=6)) + "\n" for _ in range(150))
    (folder / "text.txt").write_text(text, encoding="utf-8")
    (folder / "words.txt").write_text(text.replace("\n", " ").title(), encoding="utf-8")
    for split, count in (("train", 200), ("val", 20), ("test", 20)):
        rows = [draw.choices(list(NUMBERS), k=draw.randrange(1, 5)) for _ in range(count)]
        (folder / "en-fr" / f"{split}.en").write_text("".join(" ".join(row) + "\n" for row in rows))
        (folder / "en-fr" / f"{split}.fr").write_text("".join(" ".join(map(NUMBERS.get, row)) + "\n" for row in rows))
