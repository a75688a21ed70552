# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Packs values that workers share, and those of checkpoints: a pickle, in which tensors are their
bytes, bit for bit. Large tensors are apart from it, so that they can be sent without a copy."""

import io
import pickle
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from basin.torch import raw, tensors

# Smaller tensors are sent together.
_LARGE_BYTES = 1 << 16
# Values requested at the same time; the library has the same limit.
_GETS = 8


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether its numbers are all that there is to it; torch itself pickles the others."""
    dense = tensor.layout == torch.strided and not tensor.is_nested
    return dense and not tensor.is_quantized and raw.has_memory(tensor)


class _Packer(pickle.Pickler):
    """Pickles without copying large tensors of the CPU, which are collected in `large`."""

    def __init__(self, stream: io.BytesIO, all_inline: bool) -> None:
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)
        self._all_inline = all_inline
        self.large: list[torch.Tensor] = []

    def persistent_id(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not _is_plain(value):
            return None
        memory = raw.on_host(value)
        shape = tuple(memory.shape)
        if self._all_inline or tensors.bytes_of(memory) < _LARGE_BYTES:
            content = raw.bytes_on_host(memory).numpy().tobytes()
            return "inline", memory.dtype, shape, content
        self.large.append(memory)
        return "large", memory.dtype, shape, len(self.large) - 1


class Unpacker(pickle.Unpickler):
    """The inverse: `large` has the tensors that remain to be filled, by number."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream)
        self.large: dict[int, torch.Tensor] = {}

    def persistent_load(self, pid: Any) -> torch.Tensor:
        where, dtype, shape, content = pid
        tensor = raw.empty_on_host(shape, dtype)
        if where == "large":
            self.large[content] = tensor
        elif content:
            flat = torch.frombuffer(bytearray(content), dtype=torch.uint8)
            tensor.view(-1).view(torch.uint8).copy_(flat)
        return tensor


def pack_apart(value: Any) -> tuple[bytes, list[torch.Tensor]]:
    """Returns the pickled value, and its large tensors, which are not copied."""
    stream = io.BytesIO()
    packer = _Packer(stream, all_inline=False)
    packer.dump(value)
    return stream.getvalue(), packer.large


def pack(value: Any) -> bytes:
    """Returns the pickled value with copies of all tensors."""
    stream = io.BytesIO()
    _Packer(stream, all_inline=True).dump(value)
    return stream.getvalue()


def unpack(packed: bytes) -> Any:
    return Unpacker(io.BytesIO(packed)).load()


def fill(
    large: Mapping[int, torch.Tensor],
    kept: Mapping[int, torch.Tensor],
    get: Callable[[int, torch.Tensor], None],
) -> None:
    """Fills the tensors of an Unpacker, by number: with equal ones that are `kept` here, and the
    others with get(), which several threads call. Raises its first error."""

    def fill_one(number: int, tensor: torch.Tensor) -> None:
        if number in kept:
            raw.bytes_on_host(tensor).copy_(raw.bytes_on_host(kept[number]))
        else:
            get(number, tensor)

    with ThreadPoolExecutor(_GETS) as pool:
        filling = [pool.submit(fill_one, number, tensor) for number, tensor in large.items()]
        try:
            for each in filling:
                each.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
