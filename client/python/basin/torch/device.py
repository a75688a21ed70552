# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Where tensors are: on the CPU, or on CUDA devices, whose streams order what is done with them."""

import contextlib
from collections.abc import Collection, Iterable

import torch

_CPU = -1  # As torch.Tensor.get_device() has it.


def cuda_index(tensor: torch.Tensor) -> int:
    """The index of the CUDA device that the tensor is on; negative on the CPU."""
    return tensor.get_device() if tensor.is_cuda else _CPU


def cuda_indices(each: Iterable[torch.Tensor]) -> list[int]:
    """Those of many tensors, fast: the loop is that of a builtin function."""
    return list(map(torch.Tensor.get_device, each))


def is_supported(tensor: torch.Tensor) -> bool:
    return tensor.is_cpu or tensor.is_cuda


def stream_of(index: int) -> int:
    """The current stream of this thread on the device, as a number for the library."""
    return int(torch.cuda.current_stream(index).cuda_stream)


def is_captured() -> bool:
    """Whether the current stream is being captured into a graph."""
    return torch.cuda.is_current_stream_capturing()


def empty_like(tensor: torch.Tensor, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """Contiguous memory on the device of the tensor."""
    return torch.empty(shape, dtype=dtype, device=tensor.device)


def on_device(numbers: list[int], of: torch.Tensor) -> torch.Tensor:
    """An int64 tensor on the device of the other one."""
    return torch.tensor(numbers, dtype=torch.int64, device=of.device)


def wait_for(indexes: Collection[int]) -> None:
    """Waits until the current streams of these devices have done what they were given."""
    for index in indexes:
        torch.cuda.current_stream(index).synchronize()


def in_stream(stream: int, index: int) -> contextlib.AbstractContextManager[object]:
    """What torch does within it is in this stream of the device, which is given as stream_of() has
    it."""
    if stream == 0:
        # The default stream. torch.cuda.ExternalStream takes 0 for "none given", and makes another.
        return torch.cuda.stream(torch.cuda.default_stream(index))
    return torch.cuda.stream(torch.cuda.ExternalStream(stream, index))


def product(
    tensor: torch.Tensor, factor: int, dtype: torch.dtype, index: int, stream: int
) -> torch.Tensor:
    """The product in this dtype, computed in a stream of the device, which has its memory."""
    with in_stream(stream, index):
        return tensor.to(dtype, copy=True).mul_(factor)
