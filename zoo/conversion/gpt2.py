"""Weights of GPT-2, as Hugging Face's transformers or nanoGPT stores them, for the backbone ``gpt`` over the reals."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from zoo.conversion.peers import read_file, tensors
from zoo.data.text.tokenizer import SPECIAL
from zoo.data.text.tokens import UNKNOWN
from zoo.errors import InputError, check_rules, one_line
from zoo.registry import Spec

FIRST = UNKNOWN + 1
"""Number of their token 0 here: padding and the unknown token come before it."""
ACTIVATIONS = {"gelu": "gelu", "relu": "relu"} | dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_fast"), "gelu_tanh")
_MATRIX = ".weight_module.components"
_NAMES = {
    r"wte\.weight": "token_embedding.embedding.table" + _MATRIX,
    r"wpe\.weight": "token_embedding.position_embedding.table",
    r"h\.(\d+)\.ln_1\.(weight|bias)": r"blocks.\1.norms.0.\2",
    r"h\.(\d+)\.ln_2\.(weight|bias)": r"blocks.\1.norms.1.\2",
    r"h\.(\d+)\.attn\.c_attn\.(weight|bias)": r"blocks.\1.attention.qkv.\2",
    r"h\.(\d+)\.attn\.c_proj\.(weight|bias)": r"blocks.\1.attention.proj.\2",
    r"h\.(\d+)\.mlp\.c_fc\.(weight|bias)": r"blocks.\1.ffn.0.\2",
    r"h\.(\d+)\.mlp\.c_proj\.(weight|bias)": r"blocks.\1.ffn.3.\2",
    r"ln_f\.(weight|bias)": r"norm.\1",
    r"lm_head\.weight": "lm_head.layer" + _MATRIX,
}
_MASKS = re.compile(r"h\.\d+\.attn\.(masked_)?bias")
_MATRICES = re.compile(r"(blocks\.\d+\.(attention\.(qkv|proj)|ffn\.[03]))\.weight")


class GPT2(NamedTuple):
    """A network of the backbone ``gpt`` that computes what a GPT-2 does; its token t + 2 is their token t.

    Attributes:
        backbone: Its spec.
        sizes: The sizes that it is built with, ``vocab_size`` and ``max_length``.
        state: Its state dict over the reals.
        tokenizer: The content of a tokenizer file with our numbers, or None if there is none for this vocabulary.

    Example:
        ``net = zoo.backbone(found.backbone, "real", **found.sizes)``, then ``net.load_state_dict(found.state)``.
    """

    backbone: str
    sizes: dict[str, Any]
    state: dict[str, Tensor]
    tokenizer: str | None


def read(source: str | Path, heads: int | None = None) -> GPT2:
    """Read a folder of transformers (``config.json`` beside the weights), a checkpoint of nanoGPT, or a state dict of either.

    Padding and the unknown token, which GPT-2 does not have, get logits of -10^4, so that no probability goes to them.

    Args:
        source: The folder, or a file of safetensors or of ``torch.save``, of which nothing but tensors is unpickled.
        heads: Attention heads, where no configuration says how many.

    Raises:
        InputError: If nothing like it can be read, or the backbone cannot represent it: attention scores with another
            scale, cross-attention, another activation than GELU and ReLU, or another epsilon in the norms than 1e-5.
    """
    path = Path(source).expanduser()
    folder = path if path.is_dir() else path.parent
    files = [folder / name for name in ("model.safetensors", "pytorch_model.bin") if (folder / name).is_file()]
    if path.is_dir() and not files:
        raise InputError(f"'{path}' has no model.safetensors: give the folder of a GPT-2 or the file with its weights")
    found = read_file(files[0] if path.is_dir() else path)
    own = found.get("model_args")
    theirs = renamed(tensors(found, str(path)), str(path))
    config = _config(own if isinstance(own, Mapping) else _json(folder / "config.json"), theirs, str(path))
    told = config.pop("heads")
    if told and heads not in (None, told):
        raise InputError(f"'{path}' has {told} heads, not {heads}")
    heads = told or heads
    (vocab, dim), length = theirs[_NAMES[r"wte\.weight"]].shape, len(theirs[_NAMES[r"wpe\.weight"]])
    check_rules(
        (heads is not None, f"'{path}' does not say how many heads it has: give them, as in --format 'gpt2(heads=12)'"),
        (not heads or (heads > 0 and dim % heads == 0), f"{heads} heads do not divide the {dim} channels of '{path}'"),
    )
    depth = sum(name.endswith("qkv" + _MATRIX) for name in theirs)
    ffn = len(theirs.get(f"blocks.0.ffn.0{_MATRIX}", ()))
    options = config | {"dim": dim, "depth": depth, "heads": heads, "ffn": ffn, "bar_special": True}
    options |= {"bias": True} if "norm.bias" in theirs else {}
    options |= {"tied": False} if _NAMES[r"lm_head\.weight"] in theirs else {}
    for name in (_NAMES[r"wte\.weight"], _NAMES[r"lm_head\.weight"]):
        if name in theirs:
            theirs[name] = torch.cat([theirs[name].new_zeros(FIRST, dim), theirs[name]])
    sizes = {"vocab_size": vocab + FIRST, "max_length": length}
    return GPT2(str(Spec("gpt", options)), sizes, theirs, _tokenizer(folder / "tokenizer.json", vocab))


def renamed(state: Mapping[str, Tensor], place: str) -> dict[str, Tensor]:
    """Return a state dict of GPT-2 under our names, its matrices [out, in], without an output layer that is the table."""
    found = {}
    for full, value in state.items():
        name = full.removeprefix("_orig_mod.").removeprefix("transformer.")
        ours = next((re.sub(old, new, name) for old, new in _NAMES.items() if re.fullmatch(old, name)), None)
        if ours is not None:
            found[_MATRICES.sub(rf"\1{_MATRIX}", ours)] = value.detach().float()
        elif not _MASKS.fullmatch(name):
            raise InputError(f"'{place}' is no GPT-2: the backbone gpt has no place for '{full}'")
    table, head, first = _NAMES[r"wte\.weight"], _NAMES[r"lm_head\.weight"], f"blocks.0.attention.qkv{_MATRIX}"
    if missing := [name for name in (table, _NAMES[r"wpe\.weight"], first) if name not in found]:
        raise InputError(f"'{place}' is no GPT-2: there is nothing for '{missing[0]}' in it")
    # Hugging Face's Conv1D stores [in, out]; qkv is not square, so it tells which of the two this is.
    if found[first].shape[0] == found[table].shape[1]:
        found = {name: value.T.contiguous() if _is_block_matrix(name) else value for name, value in found.items()}
    if head in found and torch.equal(found[head], found[table]):
        del found[head]
    return found


def _is_block_matrix(name: str) -> bool:
    return name.startswith("blocks.") and name.endswith(_MATRIX)


def _config(config: Mapping[str, Any], theirs: Mapping[str, Tensor], place: str) -> dict[str, Any]:
    """Return heads, activation and dropout, after refusing what the backbone does not compute."""
    hugging_face = "model_type" in config
    check_rules(
        (config.get("model_type", "gpt2") == "gpt2", f"'{place}' is a {config.get('model_type')}, no GPT-2"),
        (config.get("scale_attn_weights", True), f"'{place}': attention scores are divided by sqrt(head_dim) here, not there"),
        (not config.get("scale_attn_by_inverse_layer_idx"), f"'{place}': scores that depend on the layer are not known here"),
        (not config.get("add_cross_attention"), f"'{place}': the backbone gpt has no cross-attention"),
        (config.get("layer_norm_epsilon", 1e-5) == 1e-5, f"'{place}': the epsilon of the norms is 1e-5 here"),
    )
    activation = config.get("activation_function", "gelu_new" if hugging_face else "gelu")
    if activation not in ACTIVATIONS:
        raise InputError(f"'{place}': activation_function='{activation}' is not known here: {', '.join(ACTIVATIONS)} are")
    dropout = config.get("resid_pdrop", 0.1) if hugging_face else config.get("dropout", 0.0)
    return {"heads": config.get("n_head"), "activation": ACTIVATIONS[activation], "dropout": float(dropout)}


def _json(file: Path) -> dict[str, Any]:
    """Return what a file of JSON holds; nothing if there is none."""
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"'{file}' cannot be read: {one_line(error)}") from error
    return found if isinstance(found, dict) else {}


def _tokenizer(file: Path, vocab: int) -> str | None:
    """Return the tokenizer file of transformers with our numbers, if it is one of this vocabulary."""
    found = _json(file)
    model, added = found.get("model"), found.get("added_tokens") or []
    numbers = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(model, dict) or not isinstance(numbers, dict):
        return None
    try:
        numbers = {word: int(number) + FIRST for word, number in numbers.items()}
        added = [one | {"id": int(one["id"]) + FIRST} for one in added]
        if len({*numbers} | {one["content"] for one in added}) != vocab:
            return None
    except (TypeError, ValueError, KeyError):
        return None
    numbers |= {word: number for number, word in enumerate(SPECIAL[:FIRST])}
    kept = found | {"model": model | {"vocab": numbers}, "added_tokens": added}
    return json.dumps(kept | {"post_processor": None, "truncation": None, "padding": None})
