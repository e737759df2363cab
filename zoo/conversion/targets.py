"""Look through a built network: which matrices can be hypercomplex, and why the others cannot."""

from collections import Counter
from collections.abc import Callable, Sequence
from fnmatch import fnmatch

from torch import nn

from zoo.algebras import Algebra
from zoo.conversion.heads import CONVERTIBLE
from zoo.conversion.obstacles import Target, obstacle, summary
from zoo.conversion.owners import Part, channels, part
from zoo.errors import InputError
from zoo.layers import Layers

Skip = Callable[[str, nn.Module], bool]


_OTHERS = (nn.Bilinear, nn.RNNBase, nn.RNNCellBase, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def survey(
    model: nn.Module, layers: Layers, skip: Sequence[str] | Skip = (), project: bool = False
) -> tuple[list[Target], dict[str, str]]:
    """List what `zoo.convert` replaces, and what stays real with the reason; nothing is changed.

    Raises:
        InputError: If the model is converted already, a skip pattern fits no module, or n > 1 and nothing can be converted.
    """
    if any(isinstance(module, Algebra) for module in model.modules()):
        raise InputError("the model is already over an algebra; build it anew to convert it")
    skipped = skip if callable(skip) else _skip_patterns(model, skip)
    ends, modules = _stem_and_head(model), dict(model.named_modules(remove_duplicate=False))
    tied = Counter(id(p) for module in model.modules() for p in module.parameters(recurse=False))
    targets: list[Target] = []
    real: dict[str, str] = {}
    for name, module in model.named_modules():
        if isinstance(module, _OTHERS):
            real[name] = f"{type(module).__name__} has no hypercomplex form here"
        elif isinstance(module, CONVERTIBLE):
            places = tuple(place for place, other in modules.items() if other is module)
            found = describe(places, module, modules)
            role = next((ends[place] for place in places if place in ends), found.role) or _role(module)
            blocks = found.blocks or (1, 1)
            target = Target(name, module, role, channels(module), blocks, places)
            reason = "skipped" if any(skipped(place, module) for place in places) else None
            reason = reason or obstacle(target, layers, found.reason, project)
            if not reason and any(tied[id(p)] > 1 for p in module.parameters(recurse=False)):
                reason = "another module uses the same parameter"
            if reason:
                real[name] = reason
            else:
                targets.append(target)
    if layers.n > 1 and not targets:
        raise InputError(f"no matrix of this {type(model).__name__} can be over an algebra: {summary(real.values())}")
    return targets, real


def _skip_patterns(model: nn.Module, patterns: Sequence[str]) -> Skip:
    names = [name for name, _ in model.named_modules()]
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in names):
            raise InputError(f"skip pattern '{pattern}' fits no module of this model")
    return lambda name, _: any(fnmatch(name, pattern) for pattern in patterns)


def _stem_and_head(model: nn.Module) -> dict[str, str]:
    """What timm itself calls the first layer and the classifier of a model it built."""
    known = getattr(model, "pretrained_cfg", None) or {}
    ends: dict[str, str] = {}
    for key, reason in (("first_conv", "stem"), ("classifier", "head")):
        value = known.get(key) or ()
        ends.update(dict.fromkeys((value,) if isinstance(value, str) else value, reason))
    return ends


def describe(places: Sequence[str], module: nn.Module, modules: dict[str, nn.Module]) -> Part:
    """Read the role and the layout of a layer off its type, its names and the modules above it."""
    if isinstance(module, nn.MultiheadAttention):
        return Part("attention", (1, 3 * module.num_heads))
    parts = {part(place, module, modules) for place in places}
    if len(parts) > 1:
        return Part(None, None, f"its places, {' and '.join(places[:2])}, cut it differently")
    return parts.pop()


def _role(module: nn.Module) -> str:
    return "ffn" if isinstance(module, nn.Linear) else "conv"
