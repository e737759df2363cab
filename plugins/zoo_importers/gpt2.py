"""Import weights of GPT-2 from Hugging Face's transformers or nanoGPT for the backbone ``gpt`` over the reals."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zoo.checkpoint.manifest import TEXT_BYTES, parse_json, read_small
from zoo.conversion.transfer import ImportedNetwork
from zoo.data import tokenizer_file
from zoo.data.tokens import UNKNOWN
from zoo.errors import InputError
from zoo.registry import Spec
from zoo_importers.hypercomplex import named_tensors, read_file

FIRST = UNKNOWN + 1  # our id of GPT-2's token 0: padding and the unknown token come before it
ACTIVATIONS = {"gelu": "gelu", "relu": "relu"} | dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_fast"), "gelu_tanh")
_REQUIRED = {
    "model_type": "gpt2",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "layer_norm_epsilon": 1e-5,
}
"""Settings that the backbone ``gpt`` computes with."""
_MATRIX = ".weight_module.components"
_EMBEDDING, _POSITIONS = "token_embedding.embedding.table" + _MATRIX, "token_embedding.position_embedding.table"
_HEAD, _FIRST_QKV = "lm_head.layer" + _MATRIX, "blocks.0.attention.qkv" + _MATRIX
_NAMES = {
    r"wte\.weight": _EMBEDDING,
    r"wpe\.weight": _POSITIONS,
    r"h\.(\d+)\.ln_1\.(weight|bias)": r"blocks.\1.norms.0.\2",
    r"h\.(\d+)\.ln_2\.(weight|bias)": r"blocks.\1.norms.1.\2",
    r"h\.(\d+)\.attn\.c_attn\.(weight|bias)": r"blocks.\1.attention.qkv.\2",
    r"h\.(\d+)\.attn\.c_proj\.(weight|bias)": r"blocks.\1.attention.proj.\2",
    r"h\.(\d+)\.mlp\.c_fc\.(weight|bias)": r"blocks.\1.ffn.0.\2",
    r"h\.(\d+)\.mlp\.c_proj\.(weight|bias)": r"blocks.\1.ffn.3.\2",
    r"ln_f\.(weight|bias)": r"norm.\1",
    r"lm_head\.weight": _HEAD,
}
_MASKS = re.compile(r"h\.\d+\.attn\.(masked_)?bias")
_MATRICES = re.compile(r"(blocks\.\d+\.(attention\.(qkv|proj)|ffn\.[03]))\.weight")


def gpt2(source: str | Path, *, heads: int | None = None) -> ImportedNetwork:
    """GPT-2 of transformers (a folder with ``config.json``), a checkpoint of nanoGPT, or a state dict of either.

    Token t of GPT-2 becomes t + 2, after padding and the unknown token, which get logits of -10^4 and so no probability.

    Args:
        source: The folder, or a safetensors file or a file of ``torch.save``, read with ``weights_only=True``.
        heads: Number of attention heads, if it is not in a configuration.
    """
    path = Path(source).expanduser()
    folder = path if path.is_dir() else path.parent
    names = [name for name in ("model.safetensors", "pytorch_model.bin") if (folder / name).is_file()]
    if path.is_dir() and not names:
        raise InputError(f"'{path}' has no model.safetensors: use the folder or the weights file of a GPT-2", code="missing")
    content = read_file(folder / names[0] if path.is_dir() else path)
    arguments = content.get("model_args")
    state = rename(named_tensors(content, path), path)
    config = _options(arguments if isinstance(arguments, Mapping) else _json(folder / "config.json"), path)
    heads = config.pop("heads") or heads
    if heads is None:
        raise InputError(f"'{path}' does not give the number of heads: use --format 'gpt2(heads=12)'", code="mismatch")
    (vocab, dim), length = state[_EMBEDDING].shape, len(state[_POSITIONS])
    depth = sum(name.endswith("qkv" + _MATRIX) for name in state)
    ffn = len(state.get(f"blocks.0.ffn.0{_MATRIX}", ()))
    options = config | {"dim": dim, "depth": depth, "heads": heads, "ffn": ffn, "mask_special": True}
    options |= {"bias": True} if "norm.bias" in state else {}
    options |= {"tied": False} if _HEAD in state else {}
    for name in {_EMBEDDING, _HEAD} & state.keys():
        state[name] = torch.cat([state[name].new_zeros(FIRST, dim), state[name]])
    sizes = {"vocab_size": vocab + FIRST, "max_length": length}
    return ImportedNetwork(str(Spec("gpt", options)), sizes, state, _tokenizer(folder / "tokenizer.json", vocab))


def rename(state: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Return a state dict of GPT-2 under our names, with matrices [out, in] and without a head that equals the embedding."""
    renamed = {}
    for full, value in state.items():
        name = full.removeprefix("_orig_mod.").removeprefix("transformer.")
        ours = next((re.sub(theirs, new, name) for theirs, new in _NAMES.items() if re.fullmatch(theirs, name)), None)
        if ours is not None:
            renamed[_MATRICES.sub(rf"\1{_MATRIX}", ours)] = value.detach().float()
        elif not _MASKS.fullmatch(name):
            raise InputError(f"'{path}' is not a GPT-2: the backbone gpt has no parameter for '{full}'", code="mismatch")
    if missing := [name for name in (_EMBEDDING, _POSITIONS, _FIRST_QKV) if name not in renamed]:
        raise InputError(f"'{path}' is not a GPT-2: missing weights of '{missing[0]}'", code="mismatch")
    # Conv1D of transformers stores [in, out], nanoGPT [out, in]; qkv is not square, so its shape shows the layout.
    if renamed[_FIRST_QKV].shape[0] == renamed[_EMBEDDING].shape[1]:
        for name in [name for name in renamed if name.startswith("blocks.") and name.endswith(_MATRIX)]:
            renamed[name] = renamed[name].T.contiguous()
    if _HEAD in renamed and torch.equal(renamed[_HEAD], renamed[_EMBEDDING]):
        del renamed[_HEAD]
    return renamed


def _options(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return heads, activation and dropout; raise `InputError` for unsupported settings."""
    for name, value in _REQUIRED.items():
        if config.get(name, value) != value:
            text = f"'{path}': {name}={config[name]} is not supported: the backbone gpt needs {name}={value}"
            raise InputError(text, code="unsupported")
    is_hugging_face = "model_type" in config
    activation = config.get("activation_function", "gelu_new" if is_hugging_face else "gelu")
    if activation not in ACTIVATIONS:
        text = f"'{path}': activation_function='{activation}' is not supported: use {', '.join(ACTIVATIONS)}"
        raise InputError(text, code="unsupported")
    dropout = config.get("resid_pdrop", 0.1) if is_hugging_face else config.get("dropout", 0.0)
    return {"heads": config.get("n_head"), "activation": ACTIVATIONS[activation], "dropout": float(dropout)}


def _json(file: Path) -> dict[str, Any]:
    """Read a JSON object; a missing file is an empty one."""
    return parse_json(read_small(file, TEXT_BYTES), file) if file.exists() else {}


def _tokenizer(file: Path, vocab: int) -> str | None:
    """Return the tokenizer file of transformers with our token ids; None if it is missing or has another vocabulary."""
    content = _json(file)
    if not content:
        return None
    try:
        model = content["model"]
        is_byte_level = content["pre_tokenizer"]["type"] == content["decoder"]["type"] == "ByteLevel"
        prefix = content["pre_tokenizer"]["add_prefix_space"]
        ids = {word: number + FIRST for word, number in model["vocab"].items()}
        added = [token | {"id": token["id"] + FIRST} for token in content.get("added_tokens") or []]
        merges = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
        size = len({*ids} | {token["content"] for token in added})
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file}: not the tokenizer of a GPT-2", code="corrupt") from error
    if not is_byte_level or prefix or content.get("normalizer"):
        raise InputError(f"{file}: not the byte-level tokenizer of a GPT-2", code="unsupported")
    if size != vocab:
        return None
    ids |= {word: number for number, word in enumerate(tokenizer_file.SPECIAL[:FIRST])}
    return json.dumps(tokenizer_file.filled(tokenizer_file.IMPORTED, ids, merges, added))
