"""A method of PEFT: adapters over any algebra.

    import zoo.peft
    from peft import get_peft_model

    config = zoo.peft.ZooConfig(algebra="phm(n=4)", block_rank=8, target_modules=["q_proj", "v_proj"])
    model = get_peft_model(model, config)

The import registers the method, also for ``PeftModel.from_pretrained``. `zoo.conversion.adapters.Update` defines the update.
PEFT has no public interface for methods of other packages; all its private names that the zoo uses are in this file.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from zoo.algebras import algebra as named
from zoo.conversion.adapters import CHANNEL_ORDERS, Rule, Sizes, Update, add_update, check_numbers
from zoo.conversion.torch_layers import is_conv1d_of_transformers
from zoo.errors import InputError, check_choice
from zoo.nn import Linear

try:
    from peft import LoraConfig, PeftConfig
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING, PEFT_TYPE_TO_PREFIX_MAPPING, PEFT_TYPE_TO_TUNER_MAPPING
    from peft.tuners.lora.layer import Linear as LoraLinear
    from peft.tuners.tuners_utils import BaseTuner, BaseTunerLayer, check_adapters_to_merge
    from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
    from peft.utils.quantization_utils import resolve_quantization_backend
except ImportError as error:
    raise InputError("zoo.peft needs PEFT: pip install 'hypercomplex-zoo[peft]'", code="dependency") from error

METHOD, PREFIX = "ZOO", "zoo_"


@dataclass
class ZooConfig(PeftConfig):
    """The configuration of an adapter over an algebra.

    Args:
        algebra: Spec of the algebra, which may be that of another package.
        block_rank: Rank of each component matrix, r (in + out) weights per layer; 0 for full matrices, in * out / n weights.
        alpha: Factor of the update: LoRA's ``lora_alpha / r``.
        dropout: Probability of dropping an input of the update.
        channels: Order of channels, see `zoo.conversion.adapters.Update`.
        target_modules: Names, or a regular expression, of linear layers and convolutions; by default those of LoRA.
        exclude_modules: Names, or a regular expression, of modules to leave out.
        modules_to_save: Names of further modules to train and save, such as a new classifier.
        layers_to_transform: Indices of the layers to adapt.
        layers_pattern: Name of the list of layers, if it is not a common one.

    Raises:
        InputError: If the algebra or another value is invalid.
    """

    algebra: str = ""
    block_rank: int = 8
    alpha: float = 1.0
    dropout: float = 0.0
    channels: str = "component"
    target_modules: list[str] | set[str] | str | None = None
    exclude_modules: list[str] | set[str] | str | None = None
    modules_to_save: list[str] | None = None
    layers_to_transform: list[int] | int | None = None
    layers_pattern: list[str] | str | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()  # type: ignore[no-untyped-call]
        self.peft_type = METHOD  # PEFT's enumeration of methods is closed, and a member of it is a string
        for name in ("target_modules", "exclude_modules"):
            value = getattr(self, name)
            setattr(self, name, set(value) if isinstance(value, list | tuple) else value)
        if not self.algebra:
            raise InputError("missing the algebra: use ZooConfig(algebra=SPEC)", code="missing")
        if not isinstance(self.algebra, str):
            raise InputError("the algebra of a ZooConfig must be a spec, because it is saved: use zoo.register for your own")
        check_numbers(self.block_rank, self.alpha, self.dropout)
        check_choice("order of channels", self.channels, CHANNEL_ORDERS)
        with torch.random.fork_rng(devices=[]):
            Rule(self.algebra)


class _Merging(BaseTunerLayer):
    """A layer with adapters that are added to its matrix, which may be quantized, transposed, or over an algebra."""

    @property
    def weight(self) -> Tensor:
        """The matrix with the active updates, for modules that read the matrices of their layers."""
        weight: Any = self.get_base_layer().weight
        if not (self.disable_adapters or self.merged) and weight.is_floating_point():
            for name in self.active_adapters:
                if name in getattr(self, self.adapter_layer_names[0]):
                    weight = weight + self.get_delta_weight(name).to(weight)
        return weight  # type: ignore[no-any-return]

    def get_delta_weight(self, adapter: str) -> Tensor:
        """Return the update by an adapter in the shape of the matrix."""
        raise NotImplementedError

    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        """Add the updates of adapters, by default of the active ones, to the matrix."""
        for name in check_adapters_to_merge(self, adapter_names):
            if name in getattr(self, self.adapter_layer_names[0]):
                delta = self.get_delta_weight(name)
                if safe_merge and not delta.isfinite().all():
                    raise InputError(f"the adapter '{name}' has weights that are not finite: it is not merged")
                self._add(delta)
                self.merged_adapters.append(name)

    def unmerge(self) -> None:
        """Subtract the merged updates from the matrix."""
        while self.merged_adapters:
            name = self.merged_adapters.pop()
            if name in getattr(self, self.adapter_layer_names[0]):
                self._add(-self.get_delta_weight(name))

    @torch.no_grad()
    def _add(self, delta: Tensor) -> None:
        if self.quantization_backend is not None:
            weight = self.get_base_weight()
            self.set_base_weight(weight + delta.to(weight))
        else:
            base = self.get_base_layer()
            add_update(base, delta.T if is_conv1d_of_transformers(base) else delta)


class ZooLayer(nn.Module, _Merging):
    """A layer with adapters over algebras, which read its input and are added to its output."""

    adapter_layer_names = ("zoo_update",)

    def __init__(self, base_layer: nn.Module, adapter_name: str) -> None:
        super().__init__()
        self.base_layer, self.zoo_update = base_layer, nn.ModuleDict()
        self._disable_adapters, self._active_adapter = False, adapter_name
        self.merged_adapters: list[str] = []
        self.quantization_backend = resolve_quantization_backend(self.get_base_layer())
        self.sizes = Sizes.of(self.get_base_layer())

    def update_layer(self, adapter_name: str, rule: Rule, config: ZooConfig) -> None:
        """Add an adapter, or replace it."""
        update = Update(rule, self.sizes, config.block_rank, config.alpha, config.dropout, config.channels)
        self.zoo_update[adapter_name] = update
        self._move_adapter_to_device_of_base_layer(adapter_name)
        self.set_adapter(self.active_adapters, inference_mode=config.inference_mode)

    def get_delta_weight(self, adapter: str) -> Tensor:
        """Return the update by an adapter in the shape of the matrix."""
        update: Any = self.zoo_update[adapter]
        matrix: Tensor = update.matrix()
        return matrix.T if is_conv1d_of_transformers(self.get_base_layer()) else matrix

    def forward(self, x: Tensor, *args: Any, **kwargs: object) -> Tensor:
        """Add the updates of the active adapters to the output of the layer."""
        if self.disable_adapters and self.merged:
            self.unmerge()
        y: Tensor = self.base_layer(x, *args, **kwargs)
        if not (self.disable_adapters or self.merged):
            for name in self.active_adapters:
                if name in self.zoo_update:
                    y = y + self.zoo_update[name](x).to(y.dtype)
        return y

    def supports_lora_conversion(self, adapter_name: str = "default") -> bool:
        """Return whether `peft.convert_to_lora` supports the layer."""
        return not self.sizes.kernel


class ZooModel(BaseTuner):
    """Puts adapters over algebras into a model; see PEFT's `BaseTuner`."""

    prefix = PREFIX
    tuner_layer_cls = ZooLayer
    target_module_mapping: Any = TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING

    @contextmanager
    def _enable_peft_forward_hooks(self, *args: object, **kwargs: object) -> Iterator[None]:
        if kwargs.get("adapter_names") is not None:
            raise InputError("adapters over algebras do not support adapter_names: use set_adapter", code="unsupported")
        yield

    def _create_and_replace(
        self,
        peft_config: Any,
        adapter_name: str,
        target: Any,
        target_name: str,
        parent: object,
        current_key: str,
        parameter_name: str | None = None,
    ) -> None:
        try:
            layer = target if isinstance(target, ZooLayer) else ZooLayer(target, adapter_name)
            layer.update_layer(adapter_name, self._rule(peft_config), peft_config)
        except InputError as error:
            raise InputError(f"layer '{current_key}': {error}", code=error.code) from error
        if layer is not target:
            if adapter_name != self.active_adapter:
                layer.requires_grad_(False)
            self._replace_module(parent, target_name, layer, target)

    def _rule(self, config: ZooConfig) -> Rule:
        """Return a new rule for a layer, or the one that the layers of an adapter share."""
        algebra = named(config.algebra)
        if not algebra.shared:
            return Rule(algebra)
        shared: tuple[ZooConfig, Rule] | None = self.__dict__.get("_shared")
        if shared is None or shared[0] is not config:
            shared = self.__dict__["_shared"] = config, Rule(algebra)
        return shared[1]


class LoraZooLinear(_Merging, LoraLinear):
    """LoRA on a linear layer over an algebra; `merge` requires an update that is a matrix over the algebra."""

    def get_delta_weight(self, adapter: str) -> Tensor:
        """Return the update by an adapter, [out, in]."""
        if adapter in self.lora_variant or self.lora_bias[adapter]:
            raise InputError("only plain LoRA, without a bias, merges into a layer over an algebra", code="unsupported")
        return LoraLinear.get_delta_weight(self, adapter)


def accept_zoo_layers(config: LoraConfig) -> LoraConfig:
    """Let a LoRA configuration target `zoo.nn.Linear` too, and return it; PEFT does not save this setting.

    Example:
        >>> from peft import LoraConfig
        >>> accept_zoo_layers(LoraConfig(r=4, target_modules=["query"])).r
        4
    """
    config._register_custom_module({Linear: LoraZooLinear})
    return config


PEFT_TYPE_TO_CONFIG_MAPPING[METHOD] = ZooConfig  # type: ignore[index]
PEFT_TYPE_TO_TUNER_MAPPING[METHOD] = ZooModel  # type: ignore[index]
PEFT_TYPE_TO_PREFIX_MAPPING[METHOD] = PREFIX  # type: ignore[index]
