"""Small runs with dropout on all kinds of data."""

import random
from pathlib import Path

WORDS = (
    "a", "the", "good", "bad", "fine", "poor", "film", "plot", "actor", "and", "it", "was", "very", "never", "great", "dull",
)  # fmt: skip
KINDS = ("images", "text", "pairs", "corpus")
OPTIONS = {
    "images": ["--backbone", "vit(dim=16,depth=1,heads=1,dropout=0.1)", "--data", "digits", "--batch_size", "256"],
    "text": ["--backbone", "transformer(dim=16,depth=1,heads=1)", "--data", "text(path=text.tsv)", "--batch_size", "16"],
    "pairs": ["--backbone", "lstm(dim=16,depth=1)", "--data", "pairs(path=pairs.tsv)", "--batch_size", "16"],
    "corpus": [
        "--backbone",
        "gpt(dim=16,depth=1,heads=1)",
        "--data",
        "corpus(path=corpus.txt, max_length=16)",
        "--batch_size=8",
    ],
}
"""Options by kind of data."""
TRAINER = {"max_epochs": 2, "accelerator": "cpu", "enable_progress_bar": "false", "log_every_n_steps": 1}


def write_data(folder: Path) -> None:
    """Write the data of the runs."""
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=draw.randrange(3, 9))) for _ in range(240)]
    rows = [f"{text}\t{('no', 'yes')[' good' in text]}" for text in texts]
    (folder / "text.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    rows = [f"{a}\t{b}\t{('no', 'yes')[len(a) > len(b)]}" for a, b in zip(texts, reversed(texts), strict=True)]
    (folder / "pairs.tsv").write_text("\n".join(["first\tsecond\tlabel", *rows]) + "\n")
    (folder / "corpus.txt").write_text("\n".join(texts) + "\n")


def write_parallel(folder: Path, **sizes: int) -> None:
    """Write splits of parallel texts, with equal lines on both sides."""
    draw = random.Random(0)
    folder.mkdir()
    for split, count in sizes.items():
        texts = [" ".join(draw.choices(WORDS, k=draw.randrange(1, 6))) for _ in range(count)]
        for side in ("en", "fr"):
            (folder / f"{split}.{side}").write_text("".join(f"{text}\n" for text in texts))


def install_module(site: Path, name: str, source: str) -> None:
    """Write a module into a folder of ``sys.path`` with the metadata of an installed package."""
    (site / f"{name}.py").write_text(source)
    metadata = site / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
    (metadata / "top_level.txt").write_text(f"{name}\n")


def fit_words(kind: str, run: str = "run", seed: int = 0, workers: int = 0, **trainer: object) -> list[str]:
    """Return the command line of a small run with frequent checkpoints."""
    settings = [word for name, value in (TRAINER | trainer).items() for word in (f"--trainer.{name}", str(value))]
    run_options = ["--run_dir", run, "--seed", str(seed), "--num_workers", str(workers), "--checkpoint_every", "0.02s"]
    return ["fit", "--algebra", "quaternion", *OPTIONS[kind], *run_options, *settings]
