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
  serve       Serve a trained model as a web page: zoo serve vit-digits-quaternion
  report      Report on a model or an experiment: zoo report frequencies runs/NAME
  verify      Check the files of a model and its checkpoints: zoo verify runs/NAME
  bench       Time a network against the same network over the reals: zoo bench --backbone vit --algebra quaternion

convert and compress
  convert     Project a real network onto an algebra: zoo convert --from NAME --algebra quaternion --to FOLDER
  prune       Remove heads, units and channels, then fine-tune: zoo prune runs/NAME --ratio 0.5 --epochs 5
  export      Export a model to ONNX, torch.export or safetensors: zoo export runs/NAME --format onnx --to FOLDER

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

from zoo.registry import entries, summary


def page() -> str:
    """Return the text of ``zoo --help``: the docstring of this module, with the commands of third-party plugins."""
    before, _, after = (__doc__ or "").strip().partition("plugins\n\n")
    lines = [
        f"  {entry.name:<10}  {summary(entry).removesuffix('.')} [{entry.distribution} {entry.version}]"
        for entry in entries("commands")
        if not entry.ours
    ]
    return before + ("\n".join(["plugins", *lines]) + "\n\n" if lines else "") + after
