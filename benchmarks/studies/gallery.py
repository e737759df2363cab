"""Write docs/gallery.md and its pictures, a trained model for each backbone: ``python -m benchmarks.studies.gallery``.

``--history RUN`` first stores the losses of a run, that of README.md. ``--screenshots RUN`` takes pictures of what users see,
with chromium: the page of ``zoo serve``, and the report of a lottery experiment in the folder RUN.
"""

import argparse
import csv
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from zoo_reports.page import Table, colors_of, log_axis, pictures, plain_axes

import zoo
from benchmarks.machine import IMAGES, RESULTS, ROOT
from zoo.cli import main as command_line

PAGE = ROOT / "docs" / "gallery.md"
TEMPLATE = Path(__file__).parent / "gallery_template.md"
HISTORY = RESULTS / "first_run.csv"
LOSSES = ("train_loss", "val_loss")
CHROMIUM = "chromium"
METRICS = ("accuracy", "bits_per_byte", "mse")
"""Metrics in order of preference."""
PROMPT = "zebra: "
GENERATE = f'--prompt "{PROMPT}" --length 80'
COLORS = colors_of(["quaternion", "octonion"])
GREY, BLUE, RED = (COLORS[name] for name in ("real", "quaternion", "octonion"))


class Exhibit(NamedTuple):
    """A trained model: its name in the catalogue, how its picture is drawn, and a command that uses it."""

    name: str
    draw: Callable[[str], Figure] | None
    command: str


def digits(name: str) -> Figure:
    """Draw ten digits with the label that a model predicts and its probability."""
    from sklearn.datasets import load_digits

    stored = load_digits()
    rows = range(len(stored.images) - 10, len(stored.images))
    images = [(stored.images[row] * 15.9).astype("uint8") for row in rows]
    figure = Figure(figsize=(7.2, 1.1), layout="constrained")
    predicted = zoo.load(name).predict(images)
    for axes, row, image, found in zip(figure.subplots(1, len(images)), rows, images, predicted, strict=True):
        axes.imshow(image, cmap="gray_r")
        axes.axis("off")
        color = "black" if found["label"] == str(stored.target[row]) else RED
        axes.set_title(f"{found['label']}  {found['probability']:.2f}", fontsize=8, color=color)
    return figure


def labels(*inputs: Any) -> Callable[[str], Figure]:
    """Return a function that draws the probabilities of the most probable labels of some texts."""

    def draw(name: str) -> Figure:
        figure = Figure(figsize=(7.2, 1.5), layout="constrained")
        for axes, text in zip(figure.subplots(1, len(inputs)), inputs, strict=True):
            (found,) = zoo.load(name).predict([text], top=3)
            names, values = zip(*((one["label"], one["probability"]) for one in found["top"]), strict=True)
            axes.barh(names, values, color=[BLUE, *[GREY] * (len(names) - 1)])
            axes.set_xlim(0, 1)
            axes.invert_yaxis()
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_title(text if isinstance(text, str) else " | ".join(text), fontsize=8)
            axes.tick_params(labelsize=8)
        return figure

    return draw


def matrices(name: str) -> Figure:
    """Draw the 16 x 16 matrix of a quaternion layer, whose blocks are made of 64 numbers, and that of the real layer."""
    figure = Figure(figsize=(7.2, 2.6), layout="constrained")
    for axes, model in zip(figure.subplots(1, 2), (name, name.replace("quaternion", "real")), strict=True):
        net = zoo.load(model).net
        matrix = net(torch.eye(16)).detach().T
        axes.imshow(matrix, cmap="RdBu", vmin=-1, vmax=1)
        axes.axis("off")
        axes.set_title(f"{model}: {zoo.count(net)['total']} weights", fontsize=8)
    return figure


def surviving(name: str) -> Figure:
    """Draw which weights of each matrix of a ticket survive."""
    net = zoo.load(name).net
    parts = {key: value.detach() for key, value in net.state_dict().items() if value.ndim == 3 and (value == 0).any()}
    figure = Figure(figsize=(7.2, 2.2), layout="constrained")
    shown = dict(list(parts.items())[:4])
    for axes, (key, value) in zip(figure.subplots(1, len(shown)), shown.items(), strict=True):
        axes.imshow(value.flatten(0, 1) != 0, cmap="gray_r", aspect="auto", interpolation="nearest")
        axes.set_title(f"{key.partition('.weight')[0]}\n{(value != 0).float().mean():.0%} left", fontsize=7)
        axes.set_xticks([])
        axes.set_yticks([])
    return figure


SENTENCES = ("a small bird with a long bill", "the capital of a country in africa")
SUBJECTS = ("the authors near the bridge", "the author near the bridges")
PAIRS = (("a and b", "a"), ("not a", "a or b"))
EXHIBITS = {
    "vit": Exhibit("vit-digits-quaternion", digits, "zoo predict vit-digits-quaternion picture.png"),
    "convnet": Exhibit("convnet-digits-quaternion", digits, "zoo test convnet-digits-quaternion"),
    "timm": Exhibit("timm-digits-quaternion", digits, "zoo test timm-digits-quaternion"),
    "a lottery ticket of vit": Exhibit(
        "vit-digits-quaternion-ticket", surviving, "zoo lottery --backbone vit --compare real,quaternion --rounds 8"
    ),
    "cnn": Exhibit("cnn-glosses-quaternion", labels(*SENTENCES), f'zoo predict cnn-glosses-quaternion "{SENTENCES[0]}"'),
    "fasttext": Exhibit(
        "fasttext-glosses-quaternion", labels(*SENTENCES), f'zoo predict fasttext-glosses-quaternion "{SENTENCES[1]}"'
    ),
    "lstm": Exhibit("lstm-agreement-quaternion", labels(*SUBJECTS), f'zoo predict lstm-agreement-quaternion "{SUBJECTS[0]}"'),
    "transformer": Exhibit("transformer-entailment-quaternion", labels(*PAIRS), "zoo test transformer-entailment-quaternion"),
    "decomposable_attention": Exhibit(
        "decomposable_attention-entailment-quaternion", labels(*PAIRS), "zoo test decomposable_attention-entailment-quaternion"
    ),
    "gpt": Exhibit("gpt-glosses-quaternion", None, f"zoo generate gpt-glosses-quaternion {GENERATE}"),
    "transformer_xl": Exhibit(
        "transformer_xl-glosses-quaternion",
        None,
        f"zoo generate transformer_xl-glosses-quaternion {GENERATE}",
    ),
    "linear": Exhibit("linear-hamilton-quaternion", matrices, "zoo test linear-hamilton-quaternion"),
}
"""The exhibits by title."""


def catalogue() -> dict[str, dict[str, Any]]:
    """Return what the catalogue says about each model."""
    with redirect_stdout(io.StringIO()) as printed:
        command_line(["list", "checkpoints", "--json"])
    return {entry["name"]: entry for entry in json.loads(printed.getvalue())}


def section(title: str, exhibit: Exhibit, facts: dict[str, Any]) -> list[str]:
    """Write the section of a model: data, size, test result, picture, command, and what a language model generates."""
    parameters, metric = facts["parameters"], next(name for name in METRICS if name in facts["metrics"])
    about = (
        f"`{exhibit.name}`: {parameters['total']:,} parameters ({parameters['total'] / parameters['real_twin']:.0%} of the "
        f"real network), test {metric.replace('_', ' ')} {facts['metrics'][metric]:.4g} on `{facts['data']}`."
    )
    lines = [f"## {title}", "", about, ""]
    if exhibit.draw:
        lines += [f"![{exhibit.name}](images/gallery_{exhibit.name}.png)", ""]
    command = ["```bash", exhibit.command, "```", ""]
    if exhibit.draw is None:
        written = zoo.load(exhibit.name).generate(PROMPT, length=80)
        command += ["```text", *(PROMPT + text for text in written), "```", ""]
    return lines + command


def write(page: Path = PAGE, images: Path = IMAGES) -> None:
    """Write the page and the pictures of the models."""
    for exhibit in EXHIBITS.values():
        if exhibit.draw:
            name, draw = f"gallery_{exhibit.name}", exhibit.draw
            (images / f"{name}.png").write_bytes(pictures(name, lambda: draw(exhibit.name))[f"{name}.png"])  # noqa: B023
    (images / "gallery_loss.png").write_bytes(pictures("gallery_loss", history)["gallery_loss.png"])
    entries = catalogue()
    lines = [line for title, exhibit in EXHIBITS.items() for line in section(title, exhibit, entries[exhibit.name])]
    page.write_text(TEMPLATE.read_text(encoding="utf-8").format(exhibits="\n".join(lines).rstrip()), encoding="utf-8")


def store_history(run: Path) -> None:
    """Store the losses of each epoch of a run."""
    epochs: dict[str, dict[str, str]] = {}
    with (run / "metrics.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            epochs.setdefault(row["epoch"], {}).update({name: f"{float(row[name]):.4f}" for name in LOSSES if row[name]})
    lines = [[epoch, *(losses[name] for name in LOSSES)] for epoch, losses in epochs.items() if losses.keys() == {*LOSSES}]
    HISTORY.write_text(Table("", ["epoch", *LOSSES], lines).as_csv(), encoding="utf-8")


def history() -> Figure:
    """Draw the losses of the stored run."""
    with HISTORY.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    figure = Figure(figsize=(7.2, 2.2), layout="constrained")
    axes = figure.subplots()
    for name, color in zip(LOSSES, (GREY, BLUE), strict=True):
        axes.plot([int(row["epoch"]) + 1 for row in rows], [float(row[name]) for row in rows], color=color, label=name)
    axes.set_xlabel("epoch")
    log_axis(axes, "y")
    plain_axes(axes)
    axes.legend(frameon=False)
    return figure


def photograph(address: str, name: str, size: str) -> None:
    """Take a screenshot of a page with chromium."""
    with tempfile.TemporaryDirectory() as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
        options += [f"--window-size={size}", f"--screenshot={IMAGES / name}"]
        subprocess.run([CHROMIUM, *options, address], check=True, capture_output=True)


def screenshots(run: Path) -> None:
    """Take screenshots of ``zoo serve`` and of the report of a lottery experiment."""
    command = [sys.executable, "-m", "zoo", "serve", "vit-digits-quaternion", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        address = next(word for line in server.stdout for word in line.split() if word.startswith("http://"))
        try:
            photograph(address, "gallery_serve.png", "800,520")
        finally:
            server.terminate()
    photograph((run / "report" / "lottery.html").resolve().as_uri(), "gallery_report.png", "900,700")


def main() -> None:
    """Write the page, and take the screenshots if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", type=Path, metavar="RUN")
    parser.add_argument("--screenshots", type=Path, metavar="RUN")
    options = parser.parse_args()
    if options.history:
        store_history(options.history)
    if options.screenshots:
        screenshots(options.screenshots)
    write()


if __name__ == "__main__":
    main()
