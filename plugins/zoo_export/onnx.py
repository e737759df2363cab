"""Write a network as ONNX, run it in onnxruntime, and quantize its matrices to 8 bits."""

import logging
from copy import copy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from zoo.errors import InputError, one_line
from zoo.inference.model import Model
from zoo.tasks.seq2seq import Seq2Seq
from zoo_export.tracing import check_equal, describe_inputs, output_name, program, refusing

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
    names = {"input_names": list(describe_inputs(model)), "output_names": [output_name(folded.info.model_kwargs)]}
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
    if isinstance(model.task, Seq2Seq):
        return {"unmeasured": "the metrics of generated texts need a key-value cache"}
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


class OnnxNetwork(nn.Module):
    """An ONNX network run by onnxruntime.

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
