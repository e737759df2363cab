"""The network of a run: built over its algebra, given pretrained word vectors, tried, counted, described."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib.metadata import version
from platform import python_version
from typing import Any

from torch import Tensor, nn

from zoo import registry
from zoo.backbones.build import backbone, check_fit, count, equal_size, real_twin
from zoo.checkpoint import find, load_network, read_config
from zoo.checkpoint.folder import conversion_record
from zoo.checkpoint.integrity import fingerprint, fingerprint_of
from zoo.conversion import stayed_real
from zoo.data.vectors import read_vectors
from zoo.errors import InputError
from zoo.hub.sources import locate
from zoo.layers.kernel_choice import set_kernel
from zoo.training.objects import algebras_of, is_object, stands_for_spec
from zoo.training.options import Fit
from zoo.training.resolve import Plan

PACKAGES = ("hypercomplex-zoo", "torch", "lightning", "torchmetrics", "timm", "tokenizers")

Vectors = tuple[Tensor, Tensor]


def build_network(plan: Plan, vectors: Vectors | None) -> nn.Module:
    """Build the network of a run for its data, which are set up, and try one forward pass."""
    options, info, net = plan.options, getattr(plan.data, "info", None), plan.objects.net
    if net is None:
        spec = plan.objects.backbone or options.backbone
        net = backbone(spec, plan.objects.algebra or options.algebra, **network_options(options, info))
    set_kernel(net.modules(), options.kernel)
    load_vectors(net, vectors)
    load_initial(net, plan)
    if info is not None:
        check_fit(net, options.backbone, info.example_inputs(2), plan.task.num_outputs(info), every=plan.task.per_token)
    return net


def network_options(options: Fit, info: Any) -> dict[str, Any]:
    """Return the keywords that a network is built with, beside its spec and its algebra."""
    if info is None:
        raise InputError("the data module has no info for a backbone to be built from: give a task with its network")
    own = {"scope": options.scope, "init": options.init, "embedding": options.embedding}
    return {**info.model_kwargs, **own, "vectors": getattr(info, "vectors", None)}


def vectors_for(data: Any, path: str | None) -> Vectors | None:
    """Read the vectors of the tokens that the data know, and note their width in the info of the data."""
    if path is None:
        return None
    matrix, found = read_vectors(path, data.tokenizer.tokens)
    data.info = replace(data.info, vectors=matrix.shape[1])
    return matrix, found


def load_initial(net: nn.Module, plan: Plan) -> None:
    """Give a network the weights of the trained one that ``init_from`` names.

    Raises:
        InputError: If it is another network, is over another algebra, or reads texts with another tokenizer.
    """
    source, options = plan.options.init_from, plan.options
    if source is None:
        return
    path = locate(source)
    config = read_config(path)
    other = f"--from {source}: it holds {config['backbone'] or 'a network without a spec'} over {config['algebra']}"
    named = config["algebra"] is not None and not is_object(options.algebra)
    if named and fingerprint_of(config["algebra"]) != fingerprint_of(options.algebra):
        raise InputError(f"{other}, not over {options.algebra}")
    if config["backbone"] is None:
        raise InputError(f"{other}: give a model whose backbone has one")
    for name, text in dict(getattr(plan.data, "files", {})).items():
        file = find(path) / name
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            raise InputError(
                f"{other}, and its tokenizer is not that of '{options.data}': give the data that it was trained on"
            )
    theirs, ours = load_network(path, config).state_dict(), net.state_dict()
    for name in sorted(ours.keys() | theirs.keys()):
        one, two = (list(state[name].shape) if name in state else "missing" for state in (ours, theirs))
        if one != two:
            raise InputError(f"{other}, another network than {options.backbone} here: '{name}' is {two}, not {one}")
    net.load_state_dict(theirs)


def load_vectors(net: nn.Module, vectors: Vectors | None) -> None:
    """Give pretrained vectors to the token embedding of a network."""
    if vectors is None:
        return
    takers: list[Any] = [module for module in net.modules() if hasattr(module, "load_vectors")]
    if not takers:
        raise InputError("the word embedding of this network takes no pretrained vectors: leave --vectors out")
    for module in takers:
        module.load_vectors(*vectors)


def rebuild_options(plan: Plan) -> dict[str, Any] | None:
    """Return the keywords that rebuild the network from its specs; None if an object has no spec."""
    algebra, info = plan.objects.algebra, getattr(plan.data, "info", None)
    named = plan.objects.backbone is None and plan.objects.net is None and (algebra is None or stands_for_spec(algebra))
    return network_options(plan.options, info) if named and info is not None else None


def model_config(plan: Plan, net: nn.Module, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of the model folder, see `zoo.checkpoint.folder.save`; objects have no spec in it."""
    info = getattr(plan.data, "info", None)
    specs = {key: summary[key] for key in ("backbone", "algebra", "task", "data", "scope", "init", "embedding")}
    config: dict[str, Any] = {key: None if is_object(spec) else spec for key, spec in specs.items()}
    config |= {"info": info.to_dict() if info is not None else None, "decoding": summary.get("decoding")}
    if config["backbone"] is None:
        config["conversion"] = conversion_record(net)
    if config["algebra"] is None:
        products = [plan.objects.algebra] if plan.objects.algebra is not None else algebras_of(net)
        config["algebra_sha256"] = fingerprint(products[0])
    return config


def summarize(plan: Plan, net: nn.Module, vectors: Vectors | None) -> dict[str, Any]:
    """Return what can be said of a run before it begins: names, sizes, seed and versions."""
    options, info = plan.options, getattr(plan.data, "info", None)
    own = ("backbone", "algebra", "data", "scope", "init", "embedding", "vectors", "teacher", "seed")
    found = None if vectors is None else {"found": int(vectors[1].sum()), "words": len(vectors[1])}
    task = options.task or getattr(plan.data, "task", None)
    given = [key for key in ("backbone", "algebra", "data", "task") if is_object({**vars(options), "task": task}[key])]
    parameters = count(net) | count_real_twin(plan, info)
    note = f"given in Python: {', '.join(given)}; zoo.load needs them again, and config.yaml cannot repeat the run"
    return {
        **{key: getattr(options, key) for key in own},
        "task": task,
        "parameters": parameters,
        "equal_size": smaller_real(plan, parameters, info),
        "versions": versions({**asdict(options), "task": task}),
        "data_sha256": getattr(info, "sha256", None),
        **({"decoding": asdict(options.decoding)} if hasattr(plan.task, "decoding") else {}),
        "stayed_real": stayed_real(net),
        "vectors_found": found,
        **({"note": note} if given else {}),
    }


def count_real_twin(plan: Plan, info: Any) -> dict[str, int]:
    """Count the parameters of the same network over the reals (``real_twin``); nothing of a network that was given."""
    if plan.objects.net is not None:
        return {}
    spec: Any = plan.objects.backbone or plan.options.backbone
    return {"real_twin": count(real_twin(spec, **network_options(plan.options, info)))["total"]}


def smaller_real(plan: Plan, parameters: dict[str, int], info: Any) -> dict[str, Any] | None:
    """Return spec and parameters of the real network of about the same size; None if no narrower one can be built."""
    if plan.objects.net or plan.objects.backbone or parameters["total"] >= parameters["real_twin"]:
        return None
    nearest = equal_size(plan.options.backbone, parameters["total"], **network_options(plan.options, info))
    return nearest and {"backbone": nearest[0], "parameters": nearest[1]}


def versions(specs: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of Python, of the libraries, and of the distributions that the specs of a run come from."""
    found = {"python": python_version(), **{name: version(name) for name in PACKAGES}}
    groups = {"backbone": "backbones", "algebra": "algebras", "data": "datasets", "embedding": "embeddings", "task": "tasks"}
    for key, group in groups.items():
        try:
            entry = registry.resolve(f"zoo.{group}", specs[key] or "")[0]
        except InputError:  # nothing, or an object
            continue
        found[entry.distribution] = entry.version
    return found
