"""The network of a run, built for its data, with its initial weights, and the teacher that it learns from."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from zoo.backbones.build import backbone, check_fit
from zoo.checkpoint import find, load_network, read_config
from zoo.checkpoint.integrity import fingerprint_of
from zoo.data.vectors import read_vectors
from zoo.errors import InputError
from zoo.hub.sources import locate
from zoo.inference.evaluation import fixed
from zoo.inference.model import load
from zoo.layers.kernel_choice import set_kernel
from zoo.tasks.base import Task
from zoo.tasks.distillation import Distillation
from zoo.training.options import is_object
from zoo.training.resolve import Network

Vectors = tuple[Tensor, Tensor]
"""Pretrained vectors of the tokens, [tokens, width], and which of the tokens have one, [tokens]."""


def build_network(network: Network, data: Any, task: type[Task], vectors: Vectors | None) -> nn.Module:
    """Build the network of a run for data that are set up, and try one forward pass."""
    info = getattr(data, "info", None)
    if isinstance(network.backbone, nn.Module):
        net = network.backbone
    else:
        net = backbone(network.backbone, network.algebra, **network_options(network.layers, info))
    set_kernel(net.modules(), network.kernel)
    if vectors is not None:
        load_vectors(net, vectors)
    if network.init_from is not None:
        load_initial(net, network, data)
    if info is not None:
        check_fit(net, network.name, info.example_inputs(2), task.num_outputs(info), every=task.per_token)
    return net


def network_options(layers: Mapping[str, Any], info: Any) -> dict[str, Any]:
    """Return the keywords that a network is built with, beside its spec and its algebra."""
    if info is None:
        raise InputError("the data module has no info for a backbone to be built from: give a task with its network")
    return {**info.model_kwargs, **layers, "vectors": getattr(info, "vectors", None)}


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


def load_initial(net: nn.Module, network: Network, data: Any) -> None:
    """Load the weights of the trained model that ``init_from`` names.

    Raises:
        InputError: If it is another network, is over another algebra, or has another tokenizer than the data.
    """
    path = locate(str(network.init_from))
    config = read_config(path)
    source = f"--from {network.init_from}: it holds {config['backbone'] or 'a network without a spec'} over {config['algebra']}"
    has_specs = config["algebra"] is not None and isinstance(network.algebra, str) and not is_object(network.algebra)
    if has_specs and fingerprint_of(config["algebra"]) != fingerprint_of(str(network.algebra)):
        raise InputError(f"{source}, not over {network.algebra}", code="mismatch")
    if config["backbone"] is None:
        raise InputError(f"{source}: give a model whose backbone has one", code="unsupported")
    if not has_files(path, data):
        raise InputError(f"{source}, and its tokenizer is not that of the data: use the data that it was trained on")
    theirs, ours = load_network(path, config).state_dict(), net.state_dict()
    for name in sorted(ours.keys() | theirs.keys()):
        mine, other = (list(state[name].shape) if name in state else "missing" for state in (ours, theirs))
        if mine != other:
            text = f"{source}, another network than {network.name} here: '{name}' is {other}, not {mine}"
            raise InputError(text, code="mismatch")
    net.load_state_dict(theirs)


def has_files(model: Path, data: Any) -> bool:
    """Return whether a model was trained with the files of the data, such as its tokenizer."""
    paths = {find(model) / name: text for name, text in dict(getattr(data, "files", {})).items()}
    return all(path.is_file() and path.read_text(encoding="utf-8") == text for path, text in paths.items())


def load_teacher(source: str, temperature: float, weight: float, data: Any) -> Distillation:
    """Load the teacher of a run whose data are set up.

    Args:
        source: A run, a model folder or a name.
        temperature: Divides the logits of both networks.
        weight: Share of the teacher in the loss.
        data: The data of the run.

    Raises:
        InputError: If it has other classes, inputs, tokens or moments of its images than the data.
    """
    path, info = locate(source), getattr(data, "info", None)
    teacher = load(path)
    if info is None or teacher.info is None:
        raise InputError(f"--teacher {source}: the data of a teacher and of its student must have info", code="unsupported")
    moments = ("mean", "std")
    theirs, ours = (fixed(item) | {key: getattr(item, key, None) for key in moments} for item in (teacher.info, info))
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
