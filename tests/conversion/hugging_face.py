"""Small models of Hugging Face's transformers, and inputs for them."""

import torch

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 50,
    "pad_token_id": 0,
}
DISTILBERT = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 50}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50, "bos_token_id": 1, "eos_token_id": 1}
GROUPED = SIZES | {"num_key_value_heads": 2}
HEAD_DIM = GROUPED | {"head_dim": 8}
T5 = {"decoder_start_token_id": 0, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 50}
VIT = {"image_size": 32, "patch_size": 8} | {
    key: value for key, value in SIZES.items() if key not in ("vocab_size", "pad_token_id")
}
CLIP = {
    "projection_dim": 16,
    "text_config": SIZES | {"max_position_embeddings": 20, "bos_token_id": 1, "eos_token_id": 2},
    "vision_config": VIT,
}
WHISPER = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "num_mel_bins": 8,
    "vocab_size": 50,
    "max_source_positions": 20,
    "max_target_positions": 20,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "suppress_tokens": [],
    "begin_suppress_tokens": [],
}
SEQUENCE, CAUSAL = "AutoModelForSequenceClassification", "AutoModelForCausalLM"
ARCHITECTURES = {
    "bert": (SEQUENCE, SIZES),
    "roberta": (SEQUENCE, SIZES),
    "distilbert": (SEQUENCE, DISTILBERT),
    "modernbert": (SEQUENCE, SIZES),
    "gpt2": (CAUSAL, GPT2),
    "llama": (CAUSAL, GROUPED),
    "qwen2": (CAUSAL, GROUPED),
    "qwen3": (CAUSAL, HEAD_DIM),
    "mistral": (CAUSAL, HEAD_DIM),
    "t5": ("AutoModelForSeq2SeqLM", T5),
    "vit": ("AutoModelForImageClassification", VIT),
    "clip": ("AutoModel", CLIP),
    "whisper": ("AutoModelForSpeechSeq2Seq", WHISPER),
}


def build(name: str, **options):
    """Return a new model in evaluation mode."""
    import transformers

    kind, config = ARCHITECTURES[name]
    return getattr(transformers, kind).from_config(transformers.AutoConfig.for_model(name, **config | options)).eval()


def inputs(name: str) -> dict[str, torch.Tensor]:
    """Return a batch of two rows."""
    tokens = torch.arange(1, 13).view(2, 6)
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    sounds = torch.randn(2, 8, 40, generator=torch.Generator().manual_seed(0))
    return {
        "t5": {"input_ids": tokens, "decoder_input_ids": tokens},
        "vit": {"pixel_values": images},
        "clip": {"input_ids": tokens, "pixel_values": images},
        "whisper": {"input_features": sounds, "decoder_input_ids": tokens},
    }.get(name, {"input_ids": tokens})


def output(model, name: str) -> torch.Tensor:
    """Return the logits of a batch."""
    made = model(**inputs(name))
    return made.logits_per_image if name == "clip" else made.logits
