"""Save converted models of Hugging Face's transformers with ``save_pretrained``, and load them with ``from_pretrained``.

`zoo.convert` prepares a model for ``save_pretrained`` and for the Trainer. A program that loads it imports this module first:

    import zoo.transformers
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained("folder")

The algebra is stored in ``config.json`` as ``quantization_config``, transformers' interface for matrices that are stored in
another form. Without this import, transformers reports an unknown quantization type and a mismatched matrix, and stops.
"""

import copy
import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from zoo.algebras import Algebra
from zoo.checkpoint.folder import fingerprint
from zoo.conversion import Conversion
from zoo.conversion.adapters import AdaptedLayer
from zoo.conversion.replacement import convert_again, record
from zoo.errors import InputError
from zoo.nn.computed_matrix import ComputedMatrix
from zoo.nn.weight import Weight

try:
    from transformers import PreTrainedModel
    from transformers.modeling_utils import local_torch_dtype
    from transformers.quantizers.auto import register_quantization_config, register_quantizer
    from transformers.quantizers.base import HfQuantizer
    from transformers.utils.quantization_config import QuantizationConfigMixin
except ImportError as error:
    raise InputError(
        "zoo.transformers needs transformers: pip install 'hypercomplex-zoo[transformers]'", code="dependency"
    ) from error

METHOD = "zoo"

ComputedMatrix._is_hf_initialized = True  # type: ignore[attr-defined]  # transformers must not initialize computed matrices


@register_quantization_config(METHOD)
class ZooQuantizationConfig(QuantizationConfigMixin):
    """The entry ``quantization_config`` of ``config.json``.

    Args:
        algebra: Spec of the algebra; empty for one without a spec, which cannot be saved.
        algebra_sha256: Fingerprint of a fixed algebra, see `zoo.checkpoint.folder.fingerprint`.
        converted: The converted matrices by name, with the vectors side by side on their input and output axis: ``"1x4"`` for
            four heads that a matrix writes.
    """

    def __init__(
        self,
        algebra: str = "",
        algebra_sha256: str | None = None,
        converted: Mapping[str, str] | None = None,
        **_: Any,
    ) -> None:
        self.quant_method = METHOD  # type: ignore[assignment]
        if converted is not None and not isinstance(converted, Mapping):
            raise InputError("quantization_config: 'converted' must be an object of names", code="corrupt")
        self.algebra, self.algebra_sha256, self.converted = algebra, algebra_sha256, dict(converted or {})


@register_quantizer(METHOD)
class ZooQuantizer(HfQuantizer):
    """Converts a model before its weights are loaded; see transformers' `HfQuantizer`."""

    quantization_config: ZooQuantizationConfig
    requires_calibration = True  # transformers then rejects the configuration for a model that is not converted

    def _process_model_before_weight_loading(self, model: Any, **_: object) -> None:
        config = self.quantization_config
        blocks = _blocks_by_name(model, config.converted)
        if not blocks:
            raise InputError("quantization_config names no matrix of this model", code="corrupt")
        # The model is on the meta device and may be in half precision; the constants of an algebra need values.
        with torch.device("cpu"), local_torch_dtype(torch.float32):
            convert_again(model, config.algebra, blocks)
        _check_algebra(model, config)
        for module in model.modules():
            if isinstance(module, Algebra):
                module.to_empty(device="cpu")

    def _process_model_after_weight_loading(self, model: Any, **_: object) -> Any:
        for name, parameter in model.named_parameters():
            owner = model.get_submodule(name.rpartition(".")[0])
            if isinstance(owner, Weight | Algebra) and not getattr(parameter, "_is_hf_initialized", False):
                raise InputError(f"the saved model has no tensor '{name}'", code="corrupt")
        for module in model.modules():
            if isinstance(module, Weight):
                module.algebra.to(module.components)
        _describe(model)  # by its own names, which may not be those of the saved model
        model.is_quantized = False  # half(), float() and the Trainer work as usual
        return model

    def get_state_dict_and_metadata(self, model: PreTrainedModel) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Return the state dict, with an empty tensor in place of the first matrix, so that only the zoo can load it.

        The product that several layers share is stored once for each.
        """
        if any(isinstance(module, AdaptedLayer | ParametrizationList) for module in model.modules()):
            raise InputError("save_pretrained cannot store adapters or integers: save zoo.fold(model)", code="unsupported")
        state = model.state_dict()
        for name, module in model.named_modules(remove_duplicate=False):
            if isinstance(module, Algebra):
                state |= {f"{name}.{key}": tensor.clone() for key, tensor in module.state_dict().items()}
        return state | dict.fromkeys(_placeholders(self.quantization_config.converted), torch.empty(0)), {}

    def is_serializable(self) -> bool:
        """Return True, or raise `InputError` if the algebra has no spec."""
        if not self.quantization_config.algebra:
            text = "save_pretrained stores the spec of an algebra, and this one has none"
            raise InputError(
                f"{text}: register it (zoo.register) and convert with its name, or use zoo.save", code="unsupported"
            )
        return True

    @property
    def is_trainable(self) -> bool:
        """Whether a loaded model can be trained."""
        return True

    @property
    def is_compileable(self) -> bool:
        """Whether a loaded model can be compiled."""
        return True


def integrate(model: nn.Module) -> None:
    """Describe a converted model to ``save_pretrained``; remove the description from a folded model.

    `zoo.convert` and `zoo.fold` call this function by its entry point in the group ``zoo.integrations``.
    """
    if not isinstance(model, PreTrainedModel):
        return
    conversion = getattr(model, "conversion", None)
    if isinstance(conversion, Conversion) and conversion.converted:
        _describe(model)
        model.register_load_state_dict_pre_hook(_drop_placeholders)  # type: ignore[no-untyped-call]
    elif isinstance(quantizer := getattr(model, "hf_quantizer", None), ZooQuantizer):
        quantizer.remove_quantization_config(model)  # type: ignore[no-untyped-call]


def _describe(model: Any) -> None:
    algebra = next(module.algebra for module in model.modules() if isinstance(module, Weight))
    known = fingerprint(algebra) if algebra.kind == "fixed" else None
    config = ZooQuantizationConfig(algebra.spec, known, record(model))
    old, own = model.config, copy.copy(model.config)  # other models may be built from it
    for module in model.modules():
        if getattr(module, "config", None) is old:
            module.config = own
    own.quantization_config = config
    model.hf_quantizer = ZooQuantizer(config, pre_quantized=True)
    model._weight_conversions = []  # files have the names of the model, because the Trainer resumes without renaming
    names = (name.removeprefix(f"{model.base_model_prefix}.") for name in _placeholders(config.converted))
    model._keys_to_ignore_on_load_unexpected = {*map(re.escape, names), *(model._keys_to_ignore_on_load_unexpected or ())}


def _drop_placeholders(model: object, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    for name in _placeholders(getattr(getattr(model, "conversion", None), "converted", ())):
        state.pop(prefix + name, None)


def _placeholders(converted: Iterable[str]) -> list[str]:
    """Return the name of the first matrix, which a converted model does not have."""
    return [f"{name}.weight" for name in converted][:1]


def _blocks_by_name(model: PreTrainedModel, converted: Mapping[str, str]) -> dict[str, str]:
    """Return the blocks of the converted matrices by their names in this model, which may have another head, or none."""
    prefix, modules = f"{model.base_model_prefix}.", {name for name, _ in model.named_modules()}
    blocks: dict[str, str] = {}
    for name, text in converted.items():
        blocks |= dict.fromkeys(modules & {name, prefix + name, name.removeprefix(prefix)}, text)
    return blocks


def _check_algebra(model: nn.Module, config: Any) -> None:
    algebra = next(module.algebra for module in model.modules() if isinstance(module, Weight))
    if algebra.kind == "fixed" and fingerprint(algebra) != config.algebra_sha256:
        raise InputError(
            f"'{config.algebra}' is not the algebra that the model was saved with: its table differs", code="mismatch"
        )
