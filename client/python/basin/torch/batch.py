# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Collects the gradients of a round that are ready, and pushes many of them in one call: a call for
each costs more than the bytes of a small one."""

import ctypes
import struct
from collections.abc import Iterable, Mapping

import torch

from basin import _abi
from basin.torch.parameters import TensorGradient
from basin.worker import Worker

# What a call and the messages that follow from it cost does not depend on the bytes. More than a
# frame saves nothing further.
_LEAST_BYTES = 256 << 10
_MOST_BYTES = 3840 << 10
_CAPACITY = 1024

# _abi.Pushed, which takes longer to write field by field.
_PUSHED = struct.Struct("@IPNii")
assert _PUSHED.size == ctypes.sizeof(_abi.Pushed)

# As which dtype gradients of a dtype are sent, with the exponent of their scale.
Wire = Mapping[torch.dtype, tuple[int, int]]
_AS_THEY_ARE = (_abi.SAME_DTYPE, 0)


def batch_bytes(total: int) -> int:
    """How many bytes to collect, if the gradients of a step have `total` bytes: so many that there
    are few batches, and so few that most is sent during the backward."""
    return min(max(total // 8, _LEAST_BYTES), _MOST_BYTES)


class Batch:
    """The gradients of one lane that are ready and not pushed yet. The memory of each is the
    caller's to keep, unchanged, until the outcome of the round.

    full:   the bytes with which it is pushed
    device: the index of the CUDA device that they are on; negative on the CPU
    wire:   the dtypes that are sent as another one
    """

    def __init__(self, worker: Worker, lane: int, full: int, device: int, wire: Wire) -> None:
        self._worker = worker
        self._lane = lane
        self._full = full
        self._device = device
        self._wire = wire
        self._stream = 0
        self._tensors = (_abi.Pushed * _CAPACITY)()
        self._count = 0
        self._bytes = 0

    def add(self, ready: Iterable[tuple[TensorGradient, int]]) -> int:
        """Adds gradients, each with the address of its memory, and pushes the batch whenever it is
        full. Returns the bytes to be sent."""
        total = 0
        pack, width = _PUSHED.pack_into, _PUSHED.size
        for each, address in ready:
            size, count = each.bytes, self._count
            narrow = self._wire.get(each.dtype)
            total += size if narrow is None else size // 2
            at = count * width
            pack(self._tensors, at, each.handle, address, size, *(narrow or _AS_THEY_ARE))
            self._count = count + 1
            self._bytes += size
            if self._bytes >= self._full or count + 1 == _CAPACITY:
                self.push()
        return total

    def use_stream(self, stream: int) -> None:
        """What is added from now on is written in this stream."""
        if stream != self._stream:
            self.push()
            self._stream = stream

    def push(self) -> None:
        """Pushes what was added."""
        count, self._count, self._bytes = self._count, 0, 0
        if count == 0:
            return
        if self._device < 0:
            self._worker.push_many(self._lane, self._tensors, count)
        else:
            self._worker.push_device(self._lane, self._tensors, count, self._device, self._stream)

    def drop(self) -> None:
        """Forgets what was added: the round is withdrawn."""
        self._count = self._bytes = 0
