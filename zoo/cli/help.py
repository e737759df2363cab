"""Neural networks over hypercomplex algebras: any algebra in any backbone, with 1/n of the weights.

usage: zoo COMMAND [OPTIONS]

explore
  list        List what is installed: zoo list [algebras|backbones|datasets|...], zoo list backbones vit
  info        Count the parameters of a network by layer, next to the same network over the reals
  doctor      Check the installation: Python, torch, devices, plugins and folders
  completion  Print a shell completion script: zoo completion bash

train
  fit         Train a network: zoo fit --backbone vit --algebra quaternion
  sweep       Train a grid of runs from one file: zoo sweep FILE --jobs 2
  frontier    Compare algebras with real networks of equal size: zoo frontier FILE --jobs 2
  lottery     Find lottery tickets: zoo lottery --backbone vit --compare real,quaternion --rounds 10
  average     Average the last checkpoints of a run: zoo average runs/NAME --last 8
  recover     Save the model of a crashed run from its best checkpoint: zoo recover runs/NAME

evaluate and use
  test        Measure a model on its test split: zoo test runs/NAME
  validate    Measure a model on its validation split
  predict     Classify images or texts, or translate: zoo predict runs/NAME picture.png
  generate    Generate text: zoo generate runs/NAME --prompt "zebra: "
  serve
  report      Report on a model or an experiment: zoo report frequencies runs/NAME
  verify      Check the files of a model and its checkpoints: zoo verify runs/NAME
  bench       Time a network against the same network over the reals: zoo bench --backbone vit --algebra quaternion

convert and compress
  convert     Project a real network onto an algebra: zoo convert --from NAME --algebra quaternion --to FOLDER
  prune       Remove heads, units and channels, then fine-tune: zoo prune runs/NAME --ratio 0.5 --epochs 5
  export

share
  pull        Download and verify a trained model: zoo pull hf:OWNER/NAME
  push        Upload a model with its card to the Hugging Face Hub: zoo push runs/NAME hf:OWNER/NAME
  publish     Write a release folder and its catalogue entry: zoo publish runs/NAME --to FOLDER

plugins

options
  -h, --help  Show this page; zoo COMMAND --help shows the options of a command
  --version   Show the version
  --debug     After COMMAND: show the full traceback of an error
"""

from zoo.registry import Entry, entries, summary


def page() -> str:
    """Return the text of ``zoo --help``: the docstring of this module, with the commands of plugins.

    A line with only a name is replaced by the summary of that command. Commands without a line are listed last.
    """
    listed = {entry.name: _line(entry) for entry in entries("commands")}
    sections = []
    for section in (__doc__ or "").strip().split("\n\n"):
        lines = []
        for line in section.splitlines():
            name = line.split()[0]
            plugin = listed.pop(name, "") if line.startswith("  ") else ""
            lines += [line] if line.strip() != name or not line.startswith("  ") else [plugin] if plugin else []
        sections.append(lines)
    for lines in sections:
        lines += listed.values() if lines == ["plugins"] else []
    return "\n\n".join("\n".join(lines) for lines in sections if lines != ["plugins"])


def _line(entry: Entry) -> str:
    origin = "" if entry.ours else f" [{entry.distribution} {entry.version}]"
    return f"  {entry.name:<10}  {summary(entry).removesuffix('.')}{origin}"
