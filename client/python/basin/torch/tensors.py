# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Torch tensors as the C interface takes them: dtype, shape and address."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from basin import _abi
from basin.errors import InvalidArgument, Unsupported
from basin.torch import device
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
    if tensor.layout != torch.strided:
        raise Unsupported(
            f"Tensor {name} is sparse ({tensor.layout}). Make it dense: Embedding(sparse=False)."
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


def check(name: str, tensor: torch.Tensor) -> None:
    """Like check_memory(), and also checks that Basin can reduce the dtype."""
    check_memory(name, tensor)
    if tensor.dtype not in DTYPES:
        known = ", ".join(str(each).removeprefix("torch.") for each in DTYPES)
        raise Unsupported(
            f"Tensor {name} has dtype {tensor.dtype}, which Basin cannot reduce. Convert it to one "
            f"of {known}."
        )


def spec_of(name: str, tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(name, DTYPES[tensor.dtype], tuple(tensor.shape))


def bytes_of(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


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
