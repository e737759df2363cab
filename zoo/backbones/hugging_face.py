"""Models of Hugging Face's transformers as backbones: built from a configuration, converted to the algebra, for all tasks."""

import difflib
import math
from inspect import signature
from typing import Any

from torch import Tensor, nn

from zoo.backbones.blocks import GenerativeModel, Sizes
from zoo.backbones.build import recipe
from zoo.backbones.sequence_classifier import SequenceClassifier
from zoo.conversion import Conversion, convert
from zoo.data.tokens import BEGIN, END, PAD
from zoo.errors import InputError, one_line
from zoo.nn import Layers
from zoo.nn.kv_cache import KVCache
from zoo.registry import Spec

_SIZES = {
    "dim": ("hidden_size",),
    "layers": ("num_hidden_layers", "encoder_layers", "decoder_layers", "num_decoder_layers"),
    "heads": ("num_attention_heads", "encoder_attention_heads", "decoder_attention_heads"),
    "ffn": ("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "hidden_dim", "n_inner"),
}
"""Names of our sizes in the configurations of transformers."""
_CLASSES = {
    "": ("MODEL", "a classifier of texts"),
    "CausalLM": ("MODEL_FOR_CAUSAL_LM", "a language model"),
    "ImageClassification": ("MODEL_FOR_IMAGE_CLASSIFICATION", "a classifier of images"),
    "Seq2SeqLM": ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM", "an encoder and decoder"),
}
"""The table of model types of each kind of network, and what it is."""
_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


@recipe(data="glosses", max_epochs=6, lr=1e-3, inputs=("text", "text_pair", "tokens", "source_target", "image"))
def hf(
    factory: Layers,
    /,
    *,
    variant: str,
    vocab_size: int | None = None,
    max_length: int | None = None,
    num_classes: int | None = None,
    pair: bool = False,
    seq2seq: bool = False,
    in_channels: int | None = None,
    image_size: int | None = None,
    in_features: int | None = None,
    out_features: int | None = None,
    dim: int | None = None,
    layers: int | None = None,
    heads: int | None = None,
    ffn: int | None = None,
    pooling: str = "mean",
    **options: Any,
) -> nn.Module:
    """Any model type of Hugging Face's transformers, as in hf/bert(layers=2, dim=128), converted by `zoo.convert`.

    Nothing is downloaded. The data choose the network: a classifier of images, of texts or of pairs of texts, a language model,
    or an encoder and decoder.

    Args:
        variant: The model type, the part after the slash, such as bert, gpt2, llama, t5 or vit.
        dim: Channels of the residual stream.
        layers: Number of blocks, both of an encoder and of a decoder.
        heads: Attention heads; by default as many as keep the channels of a head.
        ffn: Hidden channels of the feed-forward networks; by default in the ratio to dim of the model type.
        pooling: How the features of a text become one vector: mean, max, max+mean, sum, first or last.
        options: Options of the configuration by their names in transformers, such as ``hidden_act`` or ``patch_size``.
    """
    if factory.embedding_spec not in (None, "table"):
        text = f"hf/{variant} has its own word embedding: leave embedding={factory.embedding_spec} out"
        raise InputError(text, code="unsupported")
    reads_images = variant in _model_types("ImageClassification")
    if (in_channels if reads_images else vocab_size) is None:
        read, advice = ("images", "digits(size=32)") if reads_images else ("texts", "glosses")
        raise InputError(f"hf/{variant} reads {read}: use data such as {advice}", code="mismatch")
    sizes = {"dim": dim, "layers": layers, "heads": heads, "ffn": ffn}
    kind: Any = ImageClassifier if reads_images else EncoderDecoder if seq2seq else Encoder if num_classes else CausalLM
    if reads_images:
        facts: dict[str, Any] = {"num_channels": in_channels, "image_size": image_size, "num_labels": num_classes}
    else:
        # BERT and others only predict the next token as decoders.
        facts = _text_facts(vocab_size, max_length) | {"is_decoder": kind is CausalLM}
    given = {name: value for name, value in sizes.items() if value is not None}
    model: Any = convert(build(kind.kind, configuration(variant, given, facts, options)), factory)
    net = kind(model)
    if kind is Encoder:
        head: dict[str, Any] = {"pooling": pooling, "pair": pair, "outputs": num_classes, "dropout": 0.1}
        net = SequenceClassifier(factory, net, model.config.hidden_size, **head)
    if not reads_images:
        net.max_length = max_length
    return _described(net, model)


def _text_facts(vocab_size: int | None, max_length: int | None) -> dict[str, Any]:
    """Return the options of a configuration that follow from texts."""
    facts: dict[str, Any] = {"vocab_size": vocab_size, "pad_token_id": PAD, "bos_token_id": BEGIN, "eos_token_id": END}
    facts |= {"cls_token_id": BEGIN, "sep_token_id": END}
    # RoBERTa counts positions from 1.
    return facts | ({"max_position_embeddings": max_length + 1} if max_length else {})


def transformers() -> Any:
    """Import transformers; `InputError` if it is not installed."""
    try:
        import transformers
        from transformers import PreTrainedModel  # noqa: F401 (its modules are imported on use, and need torch)
    except ImportError as error:
        text = "hf/NAME needs transformers: pip install 'hypercomplex-zoo[transformers]'"
        raise InputError(text, code="dependency") from error
    return transformers


def _model_types(kind: str) -> Any:
    """Return the names of the classes of a kind by model type."""
    return getattr(transformers().models.auto.modeling_auto, f"{_CLASSES[kind][0]}_MAPPING_NAMES")


def default_configuration(variant: str) -> Any:
    """Return the default configuration of a model type; `InputError` for an unknown one."""
    known = _model_types("")
    if variant not in known:
        close = difflib.get_close_matches(variant, known, n=3)
        hint = f": did you mean {', '.join(close)}?" if close else ", such as bert, gpt2, llama, t5 or vit"
        text = f"transformers {transformers().__version__} has no model type '{variant}'{hint}"
        raise InputError(text, code="unknown")
    return transformers().AutoConfig.for_model(variant)


def configuration(variant: str, sizes: dict[str, int], facts: dict[str, Any], options: dict[str, Any]) -> Any:
    """Return the configuration of a model type with these sizes, facts about the data, and further options.

    Raises:
        InputError: If the model type has no such option, or transformers does not accept a value.
    """
    default = default_configuration(variant)
    for name in sizes:
        if not any(hasattr(default, theirs) for theirs in _SIZES[name]):
            raise InputError(f"hf/{variant} has no single {name}: use the options of its configuration", code="unsupported")
    if unknown := [name for name in options if not hasattr(default, name)]:
        close = difflib.get_close_matches(unknown[0], default.to_dict(), n=3)
        hint = f": did you mean {', '.join(close)}?" if close else ""
        raise InputError(f"the configuration of hf/{variant} has no option '{unknown[0]}'{hint}", code="unknown")
    values = _resized(default, sizes) | {name: value for name, value in facts.items() if hasattr(default, name)} | options
    named = {default.attribute_map.get(name, name): value for name, value in values.items()}
    try:
        return transformers().AutoConfig.for_model(variant, **named)
    except Exception as error:  # transformers, its dataclasses and the network raise many types
        raise _cannot_build(variant, sizes | options, error) from error


def configuration_of(folder: str) -> Any:
    """Read the configuration of a local folder; `InputError` if transformers cannot."""
    try:
        return transformers().AutoConfig.from_pretrained(folder, **_LOCAL)
    except Exception as error:  # as in `configuration`
        raise InputError(f"transformers cannot read '{folder}': {one_line(error, 200)}", code="failed") from error


def _resized(default: Any, given: dict[str, int]) -> dict[str, Any]:
    """Return the sizes of a configuration; heads, their keys and the feed-forward network follow ``dim``."""
    first: dict[str, Any] = {
        name: next((value for theirs in names if isinstance(value := getattr(default, theirs, None), int)), None)
        for name, names in _SIZES.items()
    }
    sizes, dim, heads = dict(given), first["dim"], first["heads"]
    if sizes and min(sizes.values()) < 1:
        smallest = min(sizes, key=lambda name: sizes[name])
        raise InputError(f"{smallest}={sizes[smallest]}: must be at least 1")
    if dim and heads and "dim" in sizes:
        resized = Sizes(dim, 1, heads, first["ffn"] or 4 * dim, 0.0).resize(dim=sizes["dim"])
        follow = {"heads": resized.heads} | ({"ffn": resized.ffn} if first["ffn"] else {})
        sizes = follow | sizes
    values = {theirs: size for name, size in sizes.items() for theirs in _SIZES[name] if hasattr(default, theirs)}
    if "heads" in sizes and heads:
        if isinstance(keys := getattr(default, "num_key_value_heads", None), int):
            values["num_key_value_heads"] = math.gcd(sizes["heads"], max(1, sizes["heads"] * keys // heads))
        if dim and getattr(default, "head_dim", None) == dim // heads:
            values["head_dim"] = sizes.get("dim", dim) // sizes["heads"]
    return values


def build(kind: str, config: Any, folder: str | None = None) -> Any:
    """Build a model of a kind, see `_CLASSES`, with new weights or those of a local folder.

    Raises:
        InputError: If transformers has no such model, or cannot build or load it.
    """
    variant, known = config.model_type, _model_types(kind)
    if variant not in known:
        text = f"hf/{variant} cannot be {_CLASSES[kind][1]}: use another model type for these data"
        raise InputError(text, code="unsupported")
    auto: Any = getattr(transformers(), f"AutoModelFor{kind}" if kind else "AutoModel")
    name = known[variant] if isinstance(known[variant], str) else known[variant][0]
    config.architectures = config.architectures or [name]  # by which transformers chooses among several classes of a type
    has_pooler = not kind and "add_pooling_layer" in signature(getattr(transformers(), name)).parameters
    options: dict[str, Any] = {"add_pooling_layer": False} if has_pooler else {}
    try:
        if folder is None:
            model = auto.from_config(config, **options)
        else:
            options |= _LOCAL | {"use_safetensors": True, "dtype": "float32", "ignore_mismatched_sizes": True}
            model = auto.from_pretrained(folder, config=config, **options)
    except InputError:
        raise
    except Exception as error:  # as in `configuration`; safetensors has its own
        if folder is not None:
            raise InputError(f"transformers cannot load '{folder}': {one_line(error, 200)}", code="failed") from error
        raise _cannot_build(variant, {}, error) from error
    return model.get_encoder() if not kind and config.is_encoder_decoder else model


def _cannot_build(variant: str, options: dict[str, Any], error: BaseException) -> InputError:
    return InputError(f"transformers cannot build {Spec(f'hf/{variant}', options)}: {one_line(error, 200)}")


def _described(net: nn.Module, model: Any) -> nn.Module:
    """Give a network the record of the conversion of its model."""
    name = next(name for name, part in net.named_modules() if part is model)
    converted, real = model.conversion
    real = {f"{name}.{layer}": reason for layer, reason in real.items()}
    net.conversion = Conversion(tuple(f"{name}.{layer}" for layer in converted), real)  # type: ignore[assignment]
    return net


class ImageClassifier(nn.Module):
    """A classifier of images: [B, in_channels, H, W] to logits [B, num_classes]."""

    kind = "ImageClassification"

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """Classify images: [B, in_channels, H, W] to [B, num_classes]."""
        y: Tensor = self.model(pixel_values=x).logits
        return y


class Encoder(nn.Module):
    """A model without a head as the encoder of a `SequenceClassifier`."""

    kind = ""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        """Encode: [B, L], padded on the right, to [B, L, dim]."""
        y: Tensor = self.model(input_ids=tokens, attention_mask=(tokens != PAD).long()).last_hidden_state
        return y


class _Cache(KVCache):
    """The cache of a model of transformers; positions and padding are those of `KVCache`."""

    def __init__(self, past: Any, source: Tensor | None = None, source_mask: Tensor | None = None) -> None:
        super().__init__(source, source_mask)
        self.past = past

    def select(self, rows: Tensor) -> None:
        """Select batch rows, int64 [R], in this order; rows may be repeated."""
        super().select(rows)
        self.past.reorder_cache(rows)


class CausalLM(GenerativeModel):
    """A language model: tokens [B, L] to the logits of their successors, [B, L, V]."""

    kind = "CausalLM"

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        parameters = signature(model.forward).parameters
        if "cache" not in parameters:
            text = f"hf/{model.config.model_type} has no cache of keys and values: use a Transformer to generate text"
            raise InputError(text, code="unsupported")
        self.takes_positions = "position_ids" in parameters
        tables = (part for name, part in model.named_modules() if name.endswith("position_embeddings"))
        padding = next((index for table in tables if (index := getattr(table, "padding_idx", None)) is not None), -1)
        self.first_position = padding + 1  # RoBERTa counts positions after that of padding

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits: [B, L], padded on the right if at all, to [B, L, V]."""
        y: Tensor = self.model(input_ids=tokens, use_cache=False).logits
        return y

    def init_cache(self, source: Tensor | None = None) -> KVCache:
        """Return an empty cache."""
        return _Cache(transformers().DynamicCache(config=self.model.config))

    def decode_step(self, tokens: Tensor, cache: KVCache, mask: Tensor | None = None) -> Tensor:
        """Read the next tokens, see `GenerativeModel.decode_step`."""
        position_ids = self.first_position + self.advance(cache, tokens, mask)
        options = {"position_ids": position_ids.expand(len(tokens), -1)} if self.takes_positions else {}
        past: Any = cache.past  # type: ignore[attr-defined]
        if cache.mask is not None:
            has_attention = any(isinstance(layer, transformers().cache_utils.CacheLayerMixin) for layer in past.layers)
            # Recurrent layers would repeat a token for each position of a longer mask.
            options["attention_mask"] = (cache.mask if has_attention else cache.mask[:, -tokens.shape[1] :]).long()
        y: Tensor = self.model(input_ids=tokens, cache=past, use_cache=True, **options).logits
        return y


class EncoderDecoder(GenerativeModel):
    """An encoder and decoder: encode a source text, predict the target token by token."""

    kind = "Seq2SeqLM"

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the logits of each target token's successor: [B, S] and [B, T] to [B, T, V], both padded on the right."""
        inputs = {"input_ids": source, "attention_mask": (source != PAD).long(), "decoder_input_ids": target}
        y: Tensor = self.model(**inputs, use_cache=False).logits
        return y

    def init_cache(self, source: Tensor | None = None) -> KVCache:
        """Return a cache with the encoded source, [B, S], padded on the right; `InputError` without a source."""
        if source is None:
            raise InputError("missing source: this network translates a text", code="missing")
        library, mask = transformers(), source != PAD
        encoded = self.model.get_encoder()(input_ids=source, attention_mask=mask.long()).last_hidden_state
        past = library.EncoderDecoderCache(*(library.DynamicCache(config=self.model.config) for _ in range(2)))
        return _Cache(past, encoded, mask)

    def decode_step(self, tokens: Tensor, cache: KVCache, mask: Tensor | None = None) -> Tensor:
        """Read the next target tokens, see `GenerativeModel.decode_step`."""
        self.advance(cache, tokens, mask)
        encoded = transformers().modeling_outputs.BaseModelOutput(last_hidden_state=cache.source)
        options = {"attention_mask": cache.source_mask.long(), "cache": cache.past}  # type: ignore[attr-defined,union-attr]
        y: Tensor = self.model(encoder_outputs=encoded, decoder_input_ids=tokens, use_cache=True, **options).logits
        return y
