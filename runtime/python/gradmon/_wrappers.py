# SPDX-License-Identifier: Apache-2.0
"""Finds what a framework has wrapped. Wrappers are known by the names of their classes, so that no
framework is imported."""
from typing import Any, Optional

from gradmon._attributes import class_names

_OPTIMIZERS = {"AcceleratedOptimizer", "LightningOptimizer", "_FabricOptimizer"}
_MODELS = {"DistributedDataParallel": "module", "_FabricModule": "_forward_module"}  # class: attribute
_AROUND_REPLICAS = {"OptimizedModule": "_orig_mod", "_FabricModule": "_forward_module"}
# Their attribute `module` is the model that the program has made.
_AROUND_ALL = {
    "DistributedDataParallel",
    "DataParallel",
    "Float16Module",
    "FullyShardedDataParallel",  # Megatron's; torch's has no such attribute
    "DeepSpeedEngine",
}
_KEPT = ("_orig_mod", "_fsdp_wrapped_module")  # record_names() removes them
_OTHERS = {  # class: why it is not watched
    "DeepSpeedOptimizerWrapper": "DeepSpeed makes the steps",
    "DeepSpeedEngine": "DeepSpeed makes the steps",  # a model
    "MegatronLMOptimizerWrapper": "Megatron-LM makes the steps",
}


def inner_optimizer(optimizer: Any) -> Any:
    """The optimizer whose step updates the parameters."""
    while _OPTIMIZERS & class_names(optimizer):
        optimizer = optimizer.optimizer
    return optimizer


def inner_model(model: Any) -> Any:
    """The model that the program has made: its parameters have the program's names."""
    while True:
        attributes = [_MODELS[name] for name in _MODELS.keys() & class_names(model)]
        if not attributes or not hasattr(model, attributes[0]):
            return model
        model = getattr(model, attributes[0])


def part_in_front(model: Any) -> str:
    """The part of the names of parameters and modules that stands for the wrappers around all of the model:
    `module.`, `_orig_mod.module.`; "" if there are none."""
    front = ""
    while True:
        parts = getattr(model, "_modules", {})
        wraps = {"module"} if _AROUND_ALL & class_names(model) else set()
        found = next((name for name in parts if name in wraps or name in _KEPT), None)
        if found is None:
            return front
        front += found + "."
        model = parts[found]


def replicating(model: Any) -> Any:
    """The DistributedDataParallel around the program's model; without one, that model."""
    while True:
        attributes = [_AROUND_REPLICAS[name] for name in _AROUND_REPLICAS.keys() & class_names(model)]
        if not attributes:
            return model
        model = getattr(model, attributes[0])


def refusal(watched: Any) -> Optional[str]:
    """The reason why the training of a model or an optimizer cannot be watched; None if it can."""
    return next((_OTHERS[name] for name in _OTHERS.keys() & class_names(replicating(watched))), None)
