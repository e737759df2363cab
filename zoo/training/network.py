"""The parts of a run: its data after their setup, the network with its initial weights, and the task."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from torch import Tensor, nn

from zoo.backbones.build import backbone, check_fit, check_size, count, real_twin
from zoo.checkpoint import ModelConfig
from zoo.checkpoint.folder import conversion_record, fingerprint, library_versions
from zoo.conversion import stayed_real
from zoo.data.vectors import read_vectors
from zoo.errors import InputError
from zoo.nn.batching import batch_matrices
from zoo.nn.kernel_choice import set_kernel
from zoo.registry import Spec
from zoo.tasks import GenerativeTask
from zoo.tasks.base import Task
from zoo.training.options import is_object
from zoo.training.resolve import Plan, algebras_of, check_data
from zoo.training.summary import Summary

Vectors = tuple[Tensor, Tensor]
"""Pretrained vectors of the tokens, [tokens, width], and whether each token has one, [tokens]."""


class RunData(NamedTuple):
    """The data of a run after their setup; a data module of a user may have no info."""

    module: Any
    info: Any
    tokenizer: Any
    files: dict[str, str]  # additional files of the model folder, by name
    vectors: Vectors | None

    @property
    def sha256(self) -> str | list[str] | None:
        """The digests of the data, if they have any."""
        return getattr(self.info, "sha256", None)

    @property
    def sizes(self) -> dict[str, Any]:
        """The keywords of a backbone that depend on the data."""
        return {**self.info.model_kwargs, "vectors": getattr(self.info, "vectors", None)}


def read_data(plan: Plan) -> RunData:
    """Return the data of a run, which are set up, with the pretrained vectors of their tokens."""
    module, path = plan.data, plan.options.vectors
    info, vectors = getattr(module, "info", None), None
    if info is not None:
        check_data(plan.inputs, plan.options, module)
        if path is not None:
            vectors = read_vectors(path, module.tokenizer.tokens)
            info = replace(info, vectors=vectors[0].shape[1])
    return RunData(module, info, getattr(module, "tokenizer", None), dict(getattr(module, "files", {})), vectors)


def build_network(plan: Plan, data: RunData) -> nn.Module:
    """Build the network of a run, load its initial weights, and check its outputs in a forward pass."""
    options, objects, info = plan.options, plan.objects, data.info
    net = objects.net
    if net is None:
        if info is None:
            raise InputError("the data module has no info to build a backbone from: pass a task with its network")
        spec, algebra = objects.backbone or options.backbone, objects.algebra or options.algebra
        if isinstance(spec, str):
            check_size(spec, algebra, options.max_parameters, **plan.layers, **data.sizes)
        net = backbone(spec, algebra, **plan.layers, **data.sizes)
    set_kernel(batch_matrices(net).modules(), options.kernel)
    if data.vectors is not None:
        load_vectors(net, data.vectors)
    if plan.initial is not None:
        plan.initial.load_into(net, info, data.tokenizer, data.files)
    if info is not None:
        check_fit(net, options.backbone, info.example_inputs(2), plan.task.num_outputs(info), every=plan.task.per_token)
    return net


def build_task(plan: Plan, data: RunData, net: nn.Module) -> Task:
    """Build the task of a run for its network; a task object has its network already, and gets what the data know."""
    if isinstance(task := plan.objects.task, Task):
        task.info = task.info if data.info is None else data.info
        task.tokenizer = task.tokenizer if data.tokenizer is None else data.tokenizer
        return task
    return plan.task.from_info(net, data.info, data.tokenizer, **plan.task_options)


@contextmanager
def training_mode(task: Task) -> Iterator[None]:
    """Train a task or network that is in evaluation mode as a whole, as loaded ones are, in training mode in a block.

    Lightning would keep the mode. Parts in evaluation mode of a network in training mode stay so.
    """
    given = [module for module in (task, task.net) if not module.training]
    for module in given:
        module.train()
    try:
        yield
    finally:
        for module in given:
            module.eval()


def load_vectors(net: nn.Module, vectors: Vectors) -> None:
    """Load pretrained vectors into the token embedding of a network."""
    embeddings: list[Any] = [module for module in net.modules() if hasattr(module, "load_vectors")]
    if not embeddings:
        raise InputError("--vectors: the word embedding of this network does not support them", code="unsupported")
    for module in embeddings:
        module.load_vectors(*vectors)


def model_config(plan: Plan, data: RunData, task: Task) -> ModelConfig:
    """Return the configuration of the model of a run, with a record of its network if its backbone or algebra has no spec."""
    specs: dict[str, Any] = {key: None if is_object(name) else name for key, name in plan.names.items()}
    if (metrics := task.hparams.get("metrics")) and specs["task"] is not None:  # which an evaluation measures again
        spec = Spec.parse(specs["task"])
        specs["task"] = str(replace(spec, options={"metrics": metrics} | dict(spec.options)))
    decoding = asdict(task.decoding) if isinstance(task, GenerativeTask) else None
    config = ModelConfig(**specs, info=None if data.info is None else data.info.to_dict(), decoding=decoding)
    if config.backbone is None:
        config = replace(config, conversion=conversion_record(task.net))
    if config.algebra is None:
        product = plan.objects.algebra
        config = replace(config, algebra_sha256=fingerprint(product if product is not None else algebras_of(task.net)[0]))
    return config


def summarize(plan: Plan, data: RunData, net: nn.Module, config: ModelConfig) -> Summary:
    """Return the facts of a run that are known before training; builds the same network over the reals to count it."""
    names, objects, vectors, parameters = plan.names, plan.objects, data.vectors, count(net)
    if objects.net is None:
        twin = real_twin(objects.backbone or plan.options.backbone, **plan.layers, **data.sizes)
        parameters["real_twin"] = count(twin)["total"]
    given = ", ".join(key for key in ("backbone", "algebra", "data", "task") if is_object(names[key]))
    return Summary(
        **names,
        vectors=plan.options.vectors,
        teacher=plan.options.teacher,
        seed=plan.options.seed,
        parameters=parameters,
        versions=library_versions(config),
        data_sha256=data.sha256,
        stayed_real=stayed_real(net),
        vectors_found=vectors and {"found": int(vectors[1].sum()), "words": len(vectors[1])},
        decoding=config.decoding,
        note=f"given in Python: {given}; zoo.load needs them again, and config.yaml cannot repeat the run" if given else None,
    )
