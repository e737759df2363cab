"""The network of a run, built for its data, with its initial weights, and the teacher that it learns from."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from zoo.backbones.build import backbone, check_fit
from zoo.checkpoint import find, load_network, read_config
from zoo.checkpoint.folder import network_options
from zoo.checkpoint.integrity import fingerprint_of
from zoo.data.vectors import read_vectors
from zoo.errors import InputError
from zoo.hub.sources import locate
from zoo.inference.evaluation import required_facts
from zoo.inference.model import load
from zoo.layers.kernel_choice import set_kernel
from zoo.tasks.distillation import Distillation
from zoo.training.options import is_object
from zoo.training.resolve import Plan

Vectors = tuple[Tensor, Tensor]
"""Pretrained vectors of the tokens, [tokens, width], and which of the tokens have one, [tokens]."""


def build_network(planned: Plan, vectors: Vectors | None) -> nn.Module:
    """Build the network of a run whose data are set up, and try one forward pass."""
    options, objects, info, task = planned.options, planned.objects, getattr(planned.data, "info", None), planned.task
    net = objects.net
    if net is None:
        if info is None:
            raise InputError("the data module has no info for a backbone to be built from: give a task with its network")
        spec, algebra = objects.backbone or options.backbone, objects.algebra or options.algebra
        net = backbone(spec, algebra, **network_options(planned.config, info))
    set_kernel(net.modules(), options.kernel)
    if vectors is not None:
        load_vectors(net, vectors)
    if options.init_from is not None:
        load_initial(net, planned)
    if info is not None:
        check_fit(net, options.backbone, info.example_inputs(2), task.num_outputs(info), every=task.per_token)
    return net


def vectors_for(data: Any, path: str | None) -> Vectors | None:
    """Load the pretrained vectors of the tokens of the data, and record their width in the info of the data."""
    if path is None:
        return None
    matrix, is_known = read_vectors(path, data.tokenizer.tokens)
    data.info = replace(data.info, vectors=matrix.shape[1])
    return matrix, is_known


def load_vectors(net: nn.Module, vectors: Vectors) -> None:
    """Load pretrained vectors into the token embedding of a network."""
    embeddings: list[Any] = [module for module in net.modules() if hasattr(module, "load_vectors")]
    if not embeddings:
        text = "the word embedding of this network takes no pretrained vectors: leave --vectors out"
        raise InputError(text, code="unsupported")
    for module in embeddings:
        module.load_vectors(*vectors)


def load_initial(net: nn.Module, planned: Plan) -> None:
    """Load the weights of the trained model that ``init_from`` names."""
    options = planned.options
    path = locate(str(options.init_from))
    config = read_config(path)
    source = f"--from {options.init_from}: it holds {config['backbone'] or 'a network without a spec'} over {config['algebra']}"
    has_specs = config["algebra"] is not None and planned.objects.algebra is None and not is_object(options.algebra)
    if has_specs and fingerprint_of(config["algebra"]) != fingerprint_of(options.algebra):
        raise InputError(f"{source}, not over {options.algebra}", code="mismatch")
    if config["backbone"] is None:
        raise InputError(f"{source}: give a model whose backbone has one", code="unsupported")
    if not has_files(path, planned.data):
        raise InputError(f"{source}, and its tokenizer is not that of the data: use the data that it was trained on")
    theirs, ours = load_network(path, config).state_dict(), net.state_dict()
    for name in sorted(ours.keys() | theirs.keys()):
        mine, other = (list(state[name].shape) if name in state else "missing" for state in (ours, theirs))
        if mine != other:
            text = f"{source}, another network than {options.backbone} here: '{name}' is {other}, not {mine}"
            raise InputError(text, code="mismatch")
    net.load_state_dict(theirs)


def has_files(model: Path, data: Any) -> bool:
    """Return whether a model was trained with the files of the data, such as its tokenizer."""
    paths = {find(model) / name: text for name, text in dict(getattr(data, "files", {})).items()}
    return all(path.is_file() and path.read_text(encoding="utf-8") == text for path, text in paths.items())


def load_teacher(source: str, temperature: float, weight: float, data: Any) -> Distillation:
    """Load the teacher of a run whose data are set up."""
    path, info = locate(source), getattr(data, "info", None)
    teacher = load(path)
    if info is None or teacher.info is None:
        raise InputError(f"--teacher {source}: the data of a teacher and of its student must have info", code="unsupported")
    moments = ("mean", "std")
    theirs, ours = (required_facts(item) | {key: getattr(item, key, None) for key in moments} for item in (teacher.info, info))
    for key in theirs | ours:
        if theirs.get(key) != ours.get(key):
            texts = [_shorten(values.get(key)) for values in (theirs, ours)]
            raise InputError(f"--teacher {source}: it has {key} = {texts[0]}, and the data have {texts[1]}", code="mismatch")
    if not has_files(path, data):
        text = f"--teacher {source}: its tokenizer is not that of the data: train both on the same data"
        raise InputError(text, code="mismatch")
    return Distillation(teacher.net, temperature, weight)


def _shorten(value: Any) -> str:
    """Write a value for a message: of many classes their number and the first ones."""
    if not isinstance(value, tuple):
        return str(value)
    first = ", ".join(map(str, value[:3]))
    return f"{len(value)} ({first}, ...)" if len(value) > 3 else f"{len(value)} ({first})"
