"""Write a network as ONNX, run it in onnxruntime, and quantize its matrices to 8 bits."""

import logging
from copy import copy
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from zoo.errors import InputError, one_line
from zoo.inference.model import Model
from zoo_export.tracing import check_equal, input_names, output_name, program, refusing

QUANTIZED = ("MatMul", "Gather", "LSTM")
"""The quantized operators; a linear layer is a MatMul, an embedding a Gather."""


def check_installed(quantize: bool) -> None:
    """Raise `InputError` if a package is missing that writes or quantizes ONNX."""
    required = ("onnx", "onnxscript", *(["onnxruntime"] if quantize else []))
    if missing := [name for name in required if not find_spec(name)]:
        raise InputError(f"ONNX needs {', '.join(missing)}: pip install 'hypercomplex-zoo[onnx]'")


def write_onnx(model: Model, folded: Model, file: Path, quantize: bool, measure: bool) -> dict[str, Any]:
    """Write the folded network of a model as ONNX, compare it with the model, and optionally quantize it."""
    traced = program(model, folded.net)
    names = {"input_names": input_names(model.net), "output_names": [output_name(folded.info.model_kwargs)]}
    names["input_names"] = names["input_names"][: len(traced.graph_signature.user_inputs)]
    with refusing(model), torch.no_grad():
        exported = torch.onnx.export(traced, dynamo=True, verbose=False, **names)  # type: ignore[arg-type]
        assert exported is not None
        for node in exported.model.graph.all_nodes():
            node.metadata_props.clear()  # contains paths of this machine
        exported.save(file)
    if not find_spec("onnxruntime"):
        return {"max_difference": None}
    network = OnnxNetwork(file, model.net)
    details: dict[str, Any] = {"max_difference": check_equal(model, network)}
    if not quantize:
        return details
    details["float_bytes"] = file.stat().st_size
    whole = file.rename(file.with_name("float.onnx"))
    try:
        quantized(whole, file)
    finally:
        whole.unlink()
    return details | (cost(folded, network, OnnxNetwork(file, model.net)) if measure else {})


def quantized(source: Path, target: Path) -> None:
    """Write a dynamically quantized network: 8-bit matrices with one scale per column."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    options = {"EnableSubgraph": True, "MatMulConstBOnly": True}
    logging.getLogger().addFilter(_is_relevant)
    model = onnx.load(source)
    del model.graph.value_info[:]  # shapes become wrong when quantize_dynamic transposes matrices
    try:
        quantize_dynamic(model, target, QUANTIZED, per_channel=True, weight_type=QuantType.QInt8, extra_options=options)
    finally:
        logging.getLogger().removeFilter(_is_relevant)


def _is_relevant(record: logging.LogRecord) -> bool:
    return "pre-processing before quantization" not in record.getMessage()


def cost(model: Model, network: "OnnxNetwork", small: "OnnxNetwork") -> dict[str, Any]:
    """Return the test metrics of both networks, or the reason why they cannot be measured."""
    try:
        return {"float_metrics": run_by(model, network).evaluate(), "metrics": run_by(model, small).evaluate()}
    except (InputError, OSError) as error:
        return {"unmeasured": one_line(error)}


def run_by(model: Model, network: "OnnxNetwork") -> Model:
    """Return a copy of a model with an ONNX network."""
    copied = copy(model)
    copied.net = network
    copied.task = copy(model.task)
    if copied.task is not None:
        copied.task._modules = copied.task._modules | {"net": network}
    return copied


@dataclass
class TokenCache:
    """A cache for a network without a key-value cache: all tokens so far, which are processed again at every step."""

    tokens: Tensor | None
    source: Tensor | None
    length: int = 0

    def select(self, rows: Tensor) -> None:
        """Select rows of the batch."""
        self.tokens = None if self.tokens is None else self.tokens[rows]
        self.source = None if self.source is None else self.source[rows]


class OnnxNetwork(nn.Module):
    """An ONNX network run by onnxruntime; generation processes all tokens again at every step.

    Args:
        file: The ONNX file.
        like: The network that was exported.
    """

    def __init__(self, file: Path, like: nn.Module) -> None:
        super().__init__()
        from onnxruntime import InferenceSession, SessionOptions

        options = SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 3
        self.session = InferenceSession(file.read_bytes(), options, providers=["CPUExecutionProvider"])
        self.names = [argument.name for argument in self.session.get_inputs()]
        self.max_length = getattr(like, "max_length", None)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Run the network."""
        given = {name: x.cpu().numpy() for name, x in zip(self.names, inputs, strict=True)}
        return torch.from_numpy(self.session.run(None, given)[0])

    def init_cache(self, source: Tensor | None = None) -> TokenCache:
        """Return an empty cache; ``source`` [B, S] contains the source texts."""
        return TokenCache(None, source)

    def decode_step(self, tokens: Tensor, cache: TokenCache, mask: Tensor | None = None) -> Tensor:
        """Return the logits after each of the next tokens, [B, l, V]; left padding is not supported."""
        if mask is not None and not bool(mask.all()):
            raise InputError("an exported network requires prompts of equal length in a batch")
        cache.tokens = tokens if cache.tokens is None else torch.cat([cache.tokens, tokens], 1)
        cache.length = cache.tokens.shape[1]
        given = (cache.tokens,) if cache.source is None else (cache.source, cache.tokens)
        return self.forward(*given)[:, -tokens.shape[1] :]
