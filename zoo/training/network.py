"""Build the network of a run, load its initial weights and teacher, and summarize the run."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from zoo.backbones.build import backbone, check_fit, check_size, count, real_twin
from zoo.checkpoint import ModelConfig, find, load_network, read_config
from zoo.checkpoint.folder import conversion_record, fingerprint, fingerprint_of, library_versions, network_options
from zoo.checkpoint.manifest import number
from zoo.conversion import stayed_real
from zoo.data.vectors import read_vectors
from zoo.errors import InputError, one_line
from zoo.hub.sources import locate
from zoo.inference.evaluation import required_facts
from zoo.inference.model import load
from zoo.nn import Layers
from zoo.nn.batching import batch_matrices
from zoo.nn.kernel_choice import set_kernel
from zoo.reports import plain_console, plain_table
from zoo.tasks import task_type
from zoo.tasks.base import Task
from zoo.tasks.distillation import Distillation
from zoo.tasks.options import DistillationOptions
from zoo.training.options import is_object
from zoo.training.pretrained import is_of_transformers, load_pretrained
from zoo.training.resolve import Plan, algebras_of, stands_for_spec
from zoo.training.summary import Summary

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
        sizes = network_options(model_config(planned), info)
        if isinstance(spec, str):
            check_size(spec, algebra, options.max_parameters, **sizes)
        net = backbone(spec, algebra, **sizes)
    set_kernel(batch_matrices(net).modules(), options.kernel)
    if vectors is not None:
        load_vectors(net, vectors)
    if options.init_from is not None:
        _load_initial(net, planned)
    if info is not None:
        check_fit(net, options.backbone, info.example_inputs(2), planned.task.num_outputs(info), every=planned.task.per_token)
    return net


def build_task(planned: Plan, net: nn.Module) -> Task:
    """Build the task of a run for its network, after its data are set up; a task object has its network already."""
    if isinstance(planned.objects.task, Task):
        return planned.objects.task
    info, tokenizer = getattr(planned.data, "info", None), getattr(planned.data, "tokenizer", None)
    return planned.task.from_info(net, info, tokenizer, **planned.task_options)


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


def _load_initial(net: nn.Module, planned: Plan) -> None:
    options = planned.options
    path = locate(str(options.init_from))
    if is_of_transformers(path):
        layers = Layers(planned.objects.algebra or options.algebra, options.scope, options.init)
        load_pretrained(net, path, layers, getattr(getattr(planned.data, "tokenizer", None), "tokens", None))
        return
    config = read_config(path)
    source = f"--from {options.init_from} is {config.backbone or 'a network without a spec'} over {config.algebra}"
    has_specs = planned.objects.algebra is None and not is_object(options.algebra)
    if has_specs and config.algebra is not None and fingerprint_of(config.algebra) != fingerprint_of(options.algebra):
        raise InputError(f"{source}, expected {options.algebra}", code="mismatch")
    if config.backbone is None:
        raise InputError(f"{source}: use a model whose backbone has a spec", code="unsupported")
    if not _has_files(path, planned.data):
        raise InputError(f"{source}, and its tokenizer differs from that of the data: use the data that it was trained on")
    try:
        net.load_state_dict(load_network(path, config).state_dict())
    except RuntimeError as error:
        raise InputError(f"{source}, which does not match {options.backbone}: {one_line(error)}", code="mismatch") from error


def _has_files(model: Path, data: Any) -> bool:
    paths = {find(model) / name: text for name, text in dict(getattr(data, "files", {})).items()}
    return all(path.is_file() and path.read_text(encoding="utf-8") == text for path, text in paths.items())


def load_teacher(source: str, options: DistillationOptions, data: Any) -> Distillation:
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
    if not _has_files(path, data):
        text = f"--teacher {source} has another tokenizer than the data: train both on the same data"
        raise InputError(text, code="mismatch")
    return Distillation(teacher.net, options.temperature, options.weight)


_SPECS = ("backbone", "algebra", "data", "scope", "init", "embedding")


def _names(plan: Plan) -> dict[str, Any]:
    """Return the specs of a run and the names of its objects."""
    names = {key: plan.config.get(key) for key in _SPECS}
    return names | {"task": plan.config.get("task") or getattr(plan.data, "task", None)}


def model_config(plan: Plan, net: nn.Module | None = None) -> ModelConfig:
    """Return the configuration of the model of a run, whose data are set up; without a spec it depends on the network."""
    info, product = getattr(plan.data, "info", None), plan.objects.algebra
    specs: dict[str, Any] = {key: None if is_object(name) else name for key, name in _names(plan).items()}
    decoding = plan.config["decoding"] if hasattr(plan.task, "decoding") else None
    config = ModelConfig(**specs, info=None if info is None else info.to_dict(), decoding=decoding)
    if net is not None and config.backbone is None:
        config = replace(config, conversion=conversion_record(net))
    if net is not None and config.algebra is None:
        config = replace(config, algebra_sha256=fingerprint(product if product is not None else algebras_of(net)[0]))
    return config


def network_keywords(plan: Plan) -> dict[str, Any] | None:
    """Return the keywords of `zoo.backbone` that build the network of a run again; None if an object has no spec."""
    objects = plan.objects
    has_specs = objects.net is None and objects.backbone is None
    has_specs = has_specs and (objects.algebra is None or stands_for_spec(objects.algebra))
    return network_options(model_config(plan), plan.data.info) if has_specs else None


def summarize(plan: Plan, net: nn.Module, vectors: Vectors | None, folder: str, resumed_from: str | None) -> Summary:
    """Return the facts of a run that are known before training; builds the same network over the reals to count it."""
    info, names, objects = getattr(plan.data, "info", None), _names(plan), plan.objects
    config, parameters = model_config(plan), count(net)
    if objects.net is None:
        twin = real_twin(objects.backbone or plan.options.backbone, **network_options(config, info))
        parameters["real_twin"] = count(twin)["total"]
    given = ", ".join(key for key in ("backbone", "algebra", "data", "task") if is_object(names[key]))
    return Summary(
        **names,
        vectors=plan.config.get("vectors"),
        teacher=plan.config.get("teacher"),
        seed=plan.config.get("seed"),
        parameters=parameters,
        versions=library_versions(config),
        data_sha256=getattr(info, "sha256", None),
        stayed_real=stayed_real(net),
        vectors_found=vectors and {"found": int(vectors[1].sum()), "words": len(vectors[1])},
        decoding=config.decoding,
        note=f"given in Python: {given}; zoo.load needs them again, and config.yaml cannot repeat the run" if given else None,
        run_dir=folder,
        resumed_from=resumed_from,
    )


def print_summary(summary: Summary) -> None:
    """Print parameters, metrics and the next commands of a run."""
    console = plain_console()
    parameters, run = summary.parameters, summary.run_dir
    twin = parameters.get("real_twin")  # None for a network object
    table = plain_table("", str(summary.algebra), *(("real twin", "relative to real") if twin else ()))
    comparison = (f"{twin:,}", f"{parameters['total'] / twin:.1%}") if twin else ()
    table.add_row("parameters", f"{parameters['total']:,}", *comparison)
    for name, value in summary.metrics.items():
        table.add_row(f"test {name}", number(value) + spread(summary, name))
    for name, value in (quantized := summary.quantized or {"metrics": {}})["metrics"].items():
        table.add_row(f"test {name}, {quantized['format']}", number(value))
    console.print()
    console.print(table)
    for name, reason in summary.undefined.items():
        console.print(f"test {name} is undefined: {reason}")
    if vectors := summary.vectors_found:
        console.print(f"pretrained vectors for {vectors['found']:,} of {vectors['words']:,} words")
    if summary.stayed_real:
        console.print(f"stayed real: {list_reasons(summary.stayed_real)}")
    if not summary.metrics and run:
        folder = f"{run}/fold-01" if summary.folds else run
        console.print(f"not tested: {summary.data} has no test split; {folder}/metrics.csv has the validation metrics")
    epochs = f"{summary.epochs} epoch{'s' * (summary.epochs != 1)}"
    duration = f"{epochs} in {summary.seconds:.1f} s on {summary.device}"
    console.print(f"{summary.backbone} on {summary.data}, {duration}")
    if run is None:
        console.print("fast_dev_run trained a few batches and saved nothing")
        return
    console.print(f"saved in {run}\n\nnext:")
    for command, purpose in next_commands(summary):
        console.print(f"  {command}  # {purpose}")


def next_commands(summary: Summary) -> list[tuple[str, str]]:
    """Return the commands to try after a run, each with its purpose."""
    folder = shlex.quote(str(summary.run_dir))
    run = f"{folder}/fold-01" if summary.folds else folder
    measure = (f"zoo {'test' if summary.metrics else 'validate'} {run}", "evaluate the model again")
    if summary.note:  # the commands cannot build objects
        return [] if is_object(summary.backbone) or is_object(summary.task) else [measure]
    is_smaller = summary.parameters["total"] < summary.parameters.get("real_twin", 0)
    return [
        measure,
        *((f"zoo {verb.format(run=run)}", purpose) for verb, purpose in task_type(str(summary.task))[0].next_commands),
        (f"zoo fit -c {folder}/config.yaml --algebra ANOTHER", "the same run over another algebra (zoo list algebras)"),
        *([(f"zoo info {run}", "its layers, and the real network of about the same size")] if is_smaller else []),
    ]


def spread(summary: Summary, name: str) -> str:
    """Format the standard deviation over folds as a suffix; empty without folds and if it is undefined."""
    std = (summary.std or {}).get(name)
    return "" if std is None else f" ± {number(std)}"


def list_reasons(names: dict[str, list[str]]) -> str:
    """Format on one line which layers stayed real, by reason.

    Example:
        >>> list_reasons({"stem": ["conv1"], "depthwise": ["a.dw", "b.dw"]})
        'conv1 (stem), 2 layers (depthwise)'
    """
    return ", ".join(f"{layers[0] if len(layers) == 1 else f'{len(layers)} layers'} ({why})" for why, layers in names.items())
