# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Torch tensors as the C interface takes them: dtype, shape and address."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from basin import _abi
from basin.errors import InvalidArgument, Unsupported
from basin.torch import device, raw
from basin.worker import TensorSpec

DTYPES = {
    torch.float64: _abi.F64,
    torch.float32: _abi.F32,
    torch.float16: _abi.F16,
    torch.bfloat16: _abi.BF16,
    torch.int64: _abi.I64,
    torch.int32: _abi.I32,
    torch.uint8: _abi.U8,
}


_FROM_C = {number: dtype for dtype, number in DTYPES.items()}


def torch_dtype(dtype: int) -> torch.dtype:
    """The dtype with this number in the C interface."""
    return _FROM_C[dtype]


def check_memory(name: str, tensor: torch.Tensor) -> None:
    """Raises Unsupported, with an alternative, if this is not a whole tensor in the memory of the
    CPU or of a CUDA device."""
    if type(tensor).__name__ == "DTensor":
        raise Unsupported(
            f"Tensor {name} is a DTensor, one of several shards. Basin takes whole tensors: do not "
            "use FSDP or tensor parallelism."
        )
    if tensor.is_nested:
        raise Unsupported(
            f"Tensor {name} is nested, so it has no shape. Share its parts: tensor.unbind()."
        )
    if tensor.layout != torch.strided:
        raise Unsupported(
            f"Tensor {name} is sparse ({tensor.layout}). Make it dense: Embedding(sparse=False)."
        )
    if tensor.is_quantized:
        raise Unsupported(
            f"Tensor {name} is quantized ({tensor.dtype}): its numbers mean nothing without its "
            "scales. Share tensor.int_repr() and the scales instead."
        )
    if tensor.device.type == "meta":
        raise Unsupported(
            f"Tensor {name} is on meta, so it has no memory yet. First give it values on the CPU: "
            'call module.to_empty(device="cpu"), then load or initialize them.'
        )
    if not device.is_supported(tensor):
        raise Unsupported(
            f"Tensor {name} is on {tensor.device}, but Basin takes only tensors on the CPU and on "
            "CUDA devices. Move the model to one of them."
        )
    if not raw.has_memory(tensor):
        raise Unsupported(
            f"Tensor {name} of type {type(tensor).__name__} has no memory of its own: it is a "
            "subclass that wraps other tensors, or its storage was freed. Share the tensors that "
            "it is made of."
        )


def check(name: str, tensor: torch.Tensor) -> None:
    """Like check_memory(), and also checks that Basin can reduce the dtype."""
    check_memory(name, tensor)
    check_dtype(name, tensor.dtype)


def check_dtype(name: str, dtype: torch.dtype) -> None:
    """Checks that Basin can reduce the dtype."""
    if dtype not in DTYPES:
        known = ", ".join(str(each).removeprefix("torch.") for each in DTYPES)
        raise Unsupported(
            f"Tensor {name} has dtype {dtype}, which Basin cannot reduce. Convert it to one of "
            f"{known}."
        )


def spec_of(name: str, tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(name, DTYPES[tensor.dtype], tuple(tensor.shape))


def spec_of_gradient(name: str, parameter: torch.Tensor) -> TensorSpec:
    """That of the parameter's gradient, whose dtype may differ."""
    return TensorSpec(name, DTYPES[raw.gradient_dtype(parameter)], tuple(parameter.shape))


def bytes_of(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def parameters_of(
    module: torch.nn.Module, remove_duplicate: bool = True
) -> list[tuple[str, torch.nn.Parameter]]:
    """All its parameters with their names, also if its own named_parameters() leaves some out."""
    each = torch.nn.Module.named_parameters(module, remove_duplicate=remove_duplicate)
    return list(each)


def buffers_of(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """The same for its buffers."""
    return list(torch.nn.Module.named_buffers(module))


def of_module(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Its parameters and buffers, persistent or not, whatever its state_dict() returns. Each is
    named once, also if it is tied; a lazy one has no numbers yet, and is left out."""
    both = itertools.chain(parameters_of(module), buffers_of(module))
    return [(name, tensor) for name, tensor in both if not torch.nn.parameter.is_lazy(tensor)]


def lazy_of_module(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Those that of_module() leaves out."""
    both = itertools.chain(parameters_of(module), buffers_of(module))
    return {name: tensor for name, tensor in both if torch.nn.parameter.is_lazy(tensor)}


def pairs_of(call: str, named: Iterable[tuple[str, Any]], instead: str) -> list[tuple[str, Any]]:
    """Returns the pairs of name and tensor that a `call` was given.

    Raises InvalidArgument for tensors without names; the text recommends `instead`.
    """
    if isinstance(named, Mapping):
        named = named.items()
    if not isinstance(named, Iterable) or isinstance(named, str | torch.Tensor):
        raise InvalidArgument(f"{call} was given a {type(named).__name__}. Pass {instead}.")
    pairs = list(named)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            what = type(pair[1] if isinstance(pair, tuple | list) and len(pair) == 2 else pair)
            raise InvalidArgument(
                f"{call} was given a {what.__name__} without a name, but workers match tensors by "
                f"name. Pass {instead}."
            )
    return pairs
