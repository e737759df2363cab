"""From specs to a network, and the same network over the reals."""

from typing import Any

import torch
from torch import Tensor, nn

from zoo import registry
from zoo.algebras import Algebra, reals
from zoo.errors import InputError
from zoo.layers import Embedding, Layers


def backbone(
    spec: str,
    algebra: str | Algebra,
    *,
    scope: str = "all",
    init: str = "variance",
    embedding: str | None = None,
    vectors: int | None = None,
    **info: Any,
) -> nn.Module:
    """Build a network over an algebra.

    Args:
        spec: Such as ``"vit(dim=64)"`` or ``"timm/resnet18"``, from any installed plugin.
        algebra: A spec such as ``"quaternion"``, or an `Algebra`.
        scope: Which roles are hypercomplex, see `zoo.layers.factory.parse_scope`.
        init: The initialisation of the matrices, see `zoo.layers.init.draw_components`.
        embedding: Spec of the word embedding; by default what the algebra advises, or ``table``.
        vectors: Width of pretrained word vectors, which the embedding's ``load_vectors`` will bring.
        info: What the network must know of its data, such as ``in_channels=1, image_size=28, num_classes=2``; what a
            backbone has no use for is left out, and options in the spec win.

    Raises:
        InputError: If a name or an option is wrong.

    Example:
        >>> net = backbone("vit(dim=32, depth=1)", reals(), in_channels=1, image_size=8, num_classes=10)
        >>> net(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """
    net = registry.create("zoo.backbones", spec, Layers(algebra, scope, init, embedding, vectors), **info)
    if not isinstance(net, nn.Module):
        raise InputError(f"the plugin of backbone '{spec}' returned {type(net).__name__}, not a torch.nn.Module")
    return net


def real_twin(spec: str, **info: Any) -> nn.Module:
    """Build the same network over the reals to count it, without memory for its weights wherever that is possible."""
    try:
        with torch.device("meta"):
            return backbone(untrained(spec), reals(), **info)
    except Exception:  # A stranger's network may compute with numbers while it is built; then it costs memory once.
        with torch.random.fork_rng(devices=[]):
            return backbone(untrained(spec), reals(), **info)


def untrained(spec: str) -> str:
    """Drop the option that would fetch pretrained weights, for when only the shape of a network matters."""
    parsed = registry.Spec.parse(spec)
    return str(registry.Spec(parsed.name, {key: value for key, value in parsed.options.items() if key != "pretrained"}))


def count(net: nn.Module) -> dict[str, int]:
    """Count trainable parameters, the one way the zoo does: all (``total``), and those in word tables (``embedding``)."""
    tables = [m for m in net.modules() if isinstance(m, (nn.Embedding, Embedding))]
    embedding = {id(p): p.numel() for table in tables for p in table.parameters() if p.requires_grad}
    total = sum(p.numel() for p in net.parameters() if p.requires_grad)
    return {"total": total, "embedding": sum(embedding.values())}


def check_fit(net: nn.Module, spec: str, example: Tensor | tuple[Tensor, ...], outputs: int, every: bool = False) -> None:
    """Try one forward pass before any work begins.

    Args:
        net: The network; its mode is kept.
        spec: Its name, for the message.
        example: Inputs, [B, ...], or several of them.
        outputs: How many numbers must come out for each, [B, outputs].
        every: Whether they must come out for every token of the last input, [B, L, outputs].

    Raises:
        InputError: If the network cannot read such inputs or answers in another shape.
    """
    inputs = example if isinstance(example, tuple) else (example,)
    training, shape = net.training, " and ".join("x".join(map(str, part.shape[1:])) for part in inputs)
    try:
        with torch.no_grad():
            out = net.eval()(*inputs)
    except InputError:
        raise
    except (RuntimeError, ValueError, AssertionError, IndexError, TypeError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        hint = "; try a larger size, as in --data 'digits(size=32)'" if inputs[0].ndim == 4 else ""
        raise InputError(f"{spec} cannot read inputs of shape {shape}: {reason}{hint}") from error
    finally:
        net.train(training)
    if not isinstance(out, Tensor) or out.shape != (*inputs[-1].shape[: 2 if every else 1], outputs):
        got = list(out.shape[1:]) if isinstance(out, Tensor) else type(out).__name__
        wanted = f"{outputs} numbers for every token" if every else f"{outputs} numbers"
        raise InputError(f"{spec} answers with {got} for each input, not with {wanted}")
