# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Collects the gradients of a round that are ready, and pushes many of them in one call: a call for
each costs more than the bytes of a small one."""

import ctypes
import struct
from collections.abc import Iterable

import torch

from basin import _abi
from basin.lane.gradient import Gradient
from basin.worker import Worker

# Enough for a call to cost little, and little enough that most is sent during the backward.
FULL_BYTES = 256 << 10
_CAPACITY = 1024

# _abi.Pushed, which takes longer to write field by field.
_PUSHED = struct.Struct("@IPNii")
assert _PUSHED.size == ctypes.sizeof(_abi.Pushed)


class Batch:
    """The gradients of one lane that are ready and not pushed yet. The memory of each is the
    caller's to keep, unchanged, until the outcome of the round.

    device: the index of the CUDA device that they are on; None: they are on the CPU
    """

    def __init__(self, worker: Worker, lane: int, device: int | None = None) -> None:
        self._worker = worker
        self._lane = lane
        self._device = device
        self._stream = 0
        self._tensors = (_abi.Pushed * _CAPACITY)()
        self._count = 0
        self._bytes = 0

    def add(
        self,
        tensor: int,
        address: int,
        size: int,
        dtype: int = _abi.SAME_DTYPE,
        exponent: int = 0,
    ) -> None:
        """Adds a tensor, to be sent in `dtype`, and pushes the batch if it is full."""
        at = self._count * _PUSHED.size
        _PUSHED.pack_into(self._tensors, at, tensor, address, size, dtype, exponent)
        self._count += 1
        self._bytes += size
        if self._bytes >= FULL_BYTES or self._count == _CAPACITY:
            self.push()

    def add_as_they_are(
        self,
        gradients: Iterable[Gradient[torch.Tensor, torch.Tensor]],
        lent: list[torch.UntypedStorage],
    ) -> int:
        """Like add() for the memory of each that is to be sent, in its own dtype; notes the address
        in its facts, and the memory in `lent`. Returns the bytes."""
        total = 0
        pack, width = _PUSHED.pack_into, _PUSHED.size
        for each in gradients:
            facts, memory = each.facts, each.sent
            assert memory is not None
            facts.address = address = memory.data_ptr()
            lent.append(memory.untyped_storage())
            size, count = facts.bytes, self._count
            pack(self._tensors, count * width, facts.handle, address, size, _abi.SAME_DTYPE, 0)
            total += size
            self._count = count + 1
            self._bytes += size
            if self._bytes >= FULL_BYTES or count + 1 == _CAPACITY:
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
        if self._device is None:
            self._worker.push_many(self._lane, self._tensors, count)
        else:
            self._worker.push_device(self._lane, self._tensors, count, self._device, self._stream)

    def drop(self) -> None:
        """Forgets what was added: the round is withdrawn."""
        self._count = self._bytes = 0
