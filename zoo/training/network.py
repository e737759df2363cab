"""Build the network of a run, load its initial weights and vectors, and load its teacher."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from zoo.backbones.build import backbone, check_fit
from zoo.checkpoint import find, load_network, read_config
from zoo.checkpoint.folder import network_options
from zoo.checkpoint.integrity import fingerprint_of
from zoo.data.vectors import read_vectors
from zoo.errors import InputError, one_line
from zoo.hub.sources import locate
from zoo.inference.evaluation import required_facts
from zoo.inference.model import load
from zoo.layers.kernel_choice import set_kernel
from zoo.tasks.distillation import Distillation
from zoo.training.options import is_object
from zoo.training.resolve import Plan

Vectors = tuple[Tensor, Tensor]
"""Pretrained vectors of the tokens, [tokens, width], and whether each token has one, [tokens]."""


def build_network(planned: Plan, vectors: Vectors | None) -> nn.Module:
    """Build the network of a run after its data are set up, and check its outputs in a forward pass."""
    options, objects, info = planned.options, planned.objects, getattr(planned.data, "info", None)
    net = objects.net
    if net is None:
        if info is None:
            raise InputError("the data module has no info to build a backbone from: pass a task with its network")
        spec, algebra = objects.backbone or options.backbone, objects.algebra or options.algebra
        net = backbone(spec, algebra, **network_options(planned.config, info))
    set_kernel(net.modules(), options.kernel)
    if vectors is not None:
        load_vectors(net, vectors)
    if options.init_from is not None:
        load_initial(net, planned)
    if info is not None:
        check_fit(net, options.backbone, info.example_inputs(2), planned.task.num_outputs(info), every=planned.task.per_token)
    return net


def read_token_vectors(data: Any, path: str | None) -> Vectors | None:
    """Read pretrained vectors for the tokens of the data, and store their width in the info of the data."""
    if path is None:
        return None
    matrix, is_known = read_vectors(path, data.tokenizer.tokens)
    data.info = replace(data.info, vectors=matrix.shape[1])
    return matrix, is_known


def load_vectors(net: nn.Module, vectors: Vectors) -> None:
    """Load pretrained vectors into the token embedding of a network."""
    embeddings: list[Any] = [module for module in net.modules() if hasattr(module, "load_vectors")]
    if not embeddings:
        raise InputError("--vectors: the word embedding of this network does not support them", code="unsupported")
    for module in embeddings:
        module.load_vectors(*vectors)


def load_initial(net: nn.Module, planned: Plan) -> None:
    """Load the weights of the trained model that ``init_from`` names."""
    options = planned.options
    path = locate(str(options.init_from))
    config = read_config(path)
    source = f"--from {options.init_from} is {config['backbone'] or 'a network without a spec'} over {config['algebra']}"
    has_specs = config["algebra"] is not None and planned.objects.algebra is None and not is_object(options.algebra)
    if has_specs and fingerprint_of(config["algebra"]) != fingerprint_of(options.algebra):
        raise InputError(f"{source}, expected {options.algebra}", code="mismatch")
    if config["backbone"] is None:
        raise InputError(f"{source}: use a model whose backbone has a spec", code="unsupported")
    if not has_files(path, planned.data):
        raise InputError(f"{source}, and its tokenizer differs from that of the data: use the data that it was trained on")
    try:
        net.load_state_dict(load_network(path, config).state_dict())
    except RuntimeError as error:
        raise InputError(f"{source}, which does not match {options.backbone}: {one_line(error)}", code="mismatch") from error


def has_files(model: Path, data: Any) -> bool:
    """Return whether a model has the same files as the data, such as the tokenizer."""
    paths = {find(model) / name: text for name, text in dict(getattr(data, "files", {})).items()}
    return all(path.is_file() and path.read_text(encoding="utf-8") == text for path, text in paths.items())


def load_teacher(source: str, temperature: float, weight: float, data: Any) -> Distillation:
    """Load the teacher of a run after its data are set up."""
    path, info = locate(source), getattr(data, "info", None)
    teacher = load(path)
    if info is None or teacher.info is None:
        raise InputError(f"--teacher {source}: the data of teacher and student need info", code="unsupported")
    facts, expected = (
        required_facts(item) | {key: getattr(item, key, None) for key in ("mean", "std")} for item in (teacher.info, info)
    )
    if wrong := [key for key in expected if facts.get(key) != expected[key]]:
        raise InputError(f"--teacher {source} was trained on data with other {' and '.join(wrong)}", code="mismatch")
    if not has_files(path, data):
        text = f"--teacher {source} has another tokenizer than the data: train both on the same data"
        raise InputError(text, code="mismatch")
    return Distillation(teacher.net, temperature, weight)
