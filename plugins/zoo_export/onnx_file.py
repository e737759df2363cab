"""Write ONNX files without names and metadata that no runtime reads, and run them with onnxruntime."""

import logging
from collections.abc import Iterator
from copy import copy, deepcopy
from importlib.util import find_spec
from itertools import count, product
from pathlib import Path
from string import ascii_letters
from typing import Any

import torch
from torch import Tensor, nn

from zoo.inference.model import Model
from zoo.tasks.seq2seq import Seq2Seq
from zoo_export.tracing import check_equal, cost, describe_inputs, program, refusing


def write_onnx(model: Model, net: nn.Module, file: Path, output: str) -> dict[str, Any]:
    """Write a network as ONNX and, if onnxruntime is installed, compare it with the model; the network is changed."""
    unit_statistics(net.requires_grad_(False))  # torch cannot decompose products without gradients that require them
    traced = program(model, net)
    names = {"input_names": list(describe_inputs(model)), "output_names": [output]}
    with refusing(model), torch.no_grad():
        exported = torch.onnx.export(traced, dynamo=True, verbose=False, optimize=False, **names)  # type: ignore[arg-type]
        assert exported is not None
        content = shrunk(exported.model, set(traced.state_dict))
    file.write_bytes(content)
    return {"max_difference": check_equal(model, OnnxNetwork(file, model.net)) if find_spec("onnxruntime") else None}


@torch.no_grad()
def unit_statistics(net: nn.Module) -> None:
    """Give batch normalizations mean 0 and variance 1 - e, which a file has once for all layers of a width.

    y = w (x - m) / sqrt(v + e) + b = s x + (b - s m), s = w / sqrt(v + e)
    """
    for norm in net.modules():
        if not isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d) or not norm.affine:
            continue
        mean, variance = norm.running_mean, norm.running_var
        if mean is not None and variance is not None:
            scale = norm.weight.double() / (variance.double() + norm.eps).sqrt()
            norm.bias.copy_(norm.bias.double() - scale * mean.double())
            norm.weight.copy_(scale)
            mean.zero_()
            variance.fill_(1 - norm.eps)


def shrunk(model: Any, stored: set[str]) -> bytes:
    """Optimize an ONNX model without computing functions of its stored tensors, and serialize what runtimes read.

    Torch's optimizer would replace the components of small weights by their real matrices. Metadata, names and inferred
    shapes take most of the bytes of a graph, and the product of an algebra is the same in all layers.
    """
    from onnx_ir.passes import common
    from onnx_ir.serde import serialize_model
    from onnxscript.optimizer import optimize_ir

    def should_fold(node: Any) -> bool | None:
        return False if any(value is not None and value.name in stored for value in node.inputs) else None

    optimize_ir(model, should_fold=should_fold)
    common.DeduplicateInitializersPass(size_limit=2**16)(model)
    common.ClearMetadataAndDocStringPass()(model)
    _shorten_names(model.graph)
    proto = serialize_model(model)
    for graph in _graphs(proto.graph):
        del graph.value_info[:]
        for node in graph.node:
            node.name = ""
    del proto.metadata_props[:], proto.graph.metadata_props[:]
    return proto.SerializeToString()  # type: ignore[no-any-return]


def _shorten_names(graph: Any) -> None:
    """Give all values a few letters as names, except the inputs and outputs of the network."""
    values = [value for part in (graph, *graph.subgraphs()) for value in (*part.inputs, *part.initializers.values())]
    values += [value for node in graph.all_nodes() for value in node.outputs if value.name]
    interface, used = {*graph.inputs, *graph.outputs}, {value.name for value in values}
    letters = (map("".join, product(ascii_letters, repeat=length)) for length in count(1))
    names = (name for group in letters for name in group if name not in used)
    for value in values:
        if value not in interface:
            value.name = next(names)


def _graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph and those of its loops."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


QUANTIZED = ("MatMul", "Gather", "LSTM")  # the operators that onnxruntime quantizes dynamically


def write_dynamic(model: Model, folded: Model, file: Path, output: str, measure: bool) -> dict[str, Any]:
    """Write the folded network of a model for onnxruntime with matrices and activations in 8 bits."""
    float_file = file.with_name("float.onnx")
    try:
        details = write_onnx(model, deepcopy(folded.net), float_file, output)
        quantized(float_file, file)
        if isinstance(model.task, Seq2Seq):
            details["unmeasured"] = "the metrics of generated texts need a key-value cache"
        elif measure:
            details |= cost(*(run_by(folded, OnnxNetwork(path, model.net)) for path in (float_file, file)))
    finally:
        float_file.unlink(missing_ok=True)
    return details


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


def run_by(model: Model, network: "OnnxNetwork") -> Model:
    """Return a copy of a model with an ONNX network."""
    copied = copy(model)
    copied.net = network
    copied.task = copy(model.task)
    if copied.task is not None:
        copied.task._modules = copied.task._modules | {"net": network}
    return copied


class OnnxNetwork(nn.Module):
    """An ONNX network run by onnxruntime; ``like`` is the network that was exported."""

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
