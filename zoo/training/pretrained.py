"""Initial weights of a network hf/NAME from a local folder of Hugging Face's transformers, projected onto its algebra."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from zoo.backbones.hugging_face import build, configuration_of, default_configuration
from zoo.checkpoint.manifest import TEXT_BYTES, parse_json, read_small
from zoo.conversion import convert
from zoo.conversion.transfer import summary
from zoo.errors import InputError, one_line, shorten
from zoo.hub import cache
from zoo.nn import Layers
from zoo.registry import Spec

_TOKENS = ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id", "max_position_embeddings", "is_decoder")
_IMAGES = ("image_size", "num_channels")
_NOT_BUILT = ("architectures", "transformers_version", "dtype", "use_cache", "_name_or_path", "id2label", "label2id")
"""Settings that follow from the data or do not change the network."""
_WORD_STARTS = ("", "\u0120", "\u2581")
"""What tokenizers write before the first token of a word: nothing, and the marks of byte-level BPE and of SentencePiece."""


def is_of_transformers(path: Path) -> bool:
    """Return whether a folder is one of ``save_pretrained`` of transformers."""
    file = path / "config.json"
    return file.is_file() and not (path / "manifest.json").exists() and "model_type" in parse_json(read_small(file), file)


def load_pretrained(net: nn.Module, path: Path, layers: Layers, tokens: Sequence[str] | None) -> None:
    """Set the weights of the model in a network to those of a folder, projected onto the algebra of the layers.

    Rows of the word table belong to tokens: those of tokens that only the data have, and the head of a classifier with other
    classes, remain new. A longer table of positions is truncated.

    Args:
        net: A network of `zoo.backbones.hugging_face.hf`.
        path: The folder, with weights as safetensors.
        layers: The factory that the network was built with.
        tokens: The vocabulary of the data, in the order of the token ids.

    Raises:
        InputError: If the folder has another architecture, no token of the data, or is over an algebra already.
    """
    owner: Any = next((part for part in net.modules() if hasattr(type(part), "kind") and hasattr(part, "model")), None)
    if owner is None:
        raise InputError(f"--from {path} is a model of transformers: use --backbone hf/NAME", code="mismatch")
    model, config = owner.model, configuration_of(str(path))
    _check_architecture(path, config.to_dict(), model.config.to_dict())
    if owner.kind == "ImageClassification":
        config.num_labels = model.config.num_labels
    source, known = build(owner.kind, config, str(path)), f"weights of {path}"
    rows = _token_rows(path, config.vocab_size, tokens) if tokens is not None else None
    if rows is not None:
        known += f" for {sum(row is not None for row in rows)} of {len(rows)} tokens of the data"
    _resize(source, model, rows)
    converted: Any = convert(source, layers, weights="project")
    kept = {name: buffer for name, buffer in model.named_buffers() if buffer.shape != converted.get_buffer(name).shape}
    model.load_state_dict(converted.state_dict() | {name: kept[name] for name in kept.keys() & model.state_dict().keys()})
    if errors := summary(converted.projections):
        known += f"; mean relative error of the projection {errors['mean']:.3f}"
    cache.say(known)


def _check_architecture(path: Path, theirs: Mapping[str, Any], ours: Mapping[str, object]) -> None:
    """Raise `InputError` unless the configuration of a folder builds the network, apart from facts about the data."""
    if "quantization_config" in theirs:
        method = theirs["quantization_config"].get("quant_method")
        text = f"--from {path} is quantized or over an algebra already (quant_method={method}): use a real model"
        raise InputError(text, code="unsupported")
    kind = theirs["model_type"]
    default = default_configuration(kind).to_dict()
    sizes = {name: theirs.get(name) for name in _IMAGES if name in default}
    if kind == ours["model_type"] and any(ours.get(name) != value for name, value in sizes.items()):
        expected = " and ".join(f"{name}={value}" for name, value in sizes.items())
        raise InputError(f"--from {path} is for images with {expected}: use such data", code="mismatch")
    names = [name for name in default if name not in {*_TOKENS, *_NOT_BUILT, *_IMAGES}]
    if kind == ours["model_type"] and all(theirs.get(name) == ours.get(name) for name in names):
        return
    options = {name: theirs[name] for name in names if theirs.get(name, default[name]) != default[name]}
    options = {name: value for name, value in options.items() if not isinstance(value, dict)}
    spec = shorten(str(Spec(f"hf/{kind}", options)), 400)[1:-1]
    raise InputError(f"--from {path} is another network: use --backbone '{spec}'", code="mismatch")


def _token_rows(path: Path, size: int, tokens: Sequence[str]) -> list[int | None]:
    """Return the row of each token of the data in the word table of a folder; None for tokens that the folder lacks."""
    vocabulary = _vocabulary(path)
    if vocabulary is None:
        if size != len(tokens):
            text = f"--from {path} has no tokenizer.json, and {size:,} tokens; the data have {len(tokens):,}"
            raise InputError(f"{text}: save its tokenizer there too", code="mismatch")
        return list(range(size))
    texts = ([start + token for start in _WORD_STARTS] for token in tokens)
    rows = [next((row for text in forms if (row := vocabulary.get(text, size)) < size), None) for forms in texts]
    if rows.count(None) == len(rows):
        raise InputError(f"--from {path}: its tokenizer has no token of the data: use other data or --vocab", code="mismatch")
    return rows


def _vocabulary(path: Path) -> dict[str, int] | None:
    """Return the token ids of a folder by text; None without a tokenizer file."""
    if (file := path / "vocab.txt").is_file() and not (path / "tokenizer.json").exists():
        return {text: row for row, text in enumerate(read_small(file, TEXT_BYTES).decode().splitlines())}
    file = path / "tokenizer.json"
    if not file.is_file():
        return None
    try:
        content = parse_json(read_small(file, TEXT_BYTES), file)
        vocab = content["model"]["vocab"]
        pairs = vocab.items() if isinstance(vocab, dict) else ((text, row) for row, (text, _) in enumerate(vocab))
        return dict(pairs) | {token["content"]: token["id"] for token in content.get("added_tokens") or ()}
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"cannot read the vocabulary of {file}: {one_line(error)}", code="corrupt") from error


@torch.no_grad()
def _resize(source: Any, model: nn.Module, rows: Sequence[int | None] | None) -> None:
    """Give the tables of a model the sizes of another: the rows of the tokens, and the first positions."""
    words = {source.get_input_embeddings(), source.get_output_embeddings()} if rows is not None else set()
    resized: dict[nn.Parameter, nn.Parameter] = {}
    for name, module in source.named_modules():
        if module in words and rows is not None:
            for parameter in module.parameters(recurse=False):
                resized[parameter] = _selected(parameter, rows)
        elif isinstance(module, nn.Embedding):
            size: Any = model.get_submodule(name).num_embeddings
            start = module.padding_idx or 0  # RoBERTa counts positions from padding_idx + 1, and ours is 0
            if start + size > module.num_embeddings:
                text = f"it has {module.num_embeddings - start} positions, the network has {size}: use a smaller max_length"
                raise InputError(f"--from {source.name_or_path}: {text}", code="mismatch")
            table: Any = module.weight
            resized[table] = nn.Parameter(module.weight[start : start + size].clone())
    for module in source.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter in resized:  # also where it is shared
                setattr(module, name, resized[parameter])


def _selected(parameter: Tensor, rows: Sequence[int | None]) -> nn.Parameter:
    """Return the rows of a table or bias; rows that are None are drawn with its standard deviation, and zero in a bias."""
    known = torch.tensor([row is not None for row in rows])
    new = torch.randn(len(rows), *parameter.shape[1:]) * (parameter.std() if parameter.ndim > 1 else 0.0)
    new[known] = parameter[[row for row in rows if row is not None]]
    return nn.Parameter(new)
