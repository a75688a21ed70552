# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The buffers of a model: after each round of gradients all workers have those of rank 0.

Buffers are sent as rounds of a separate lane to which only rank 0 contributes, so the result is a
copy of its bits. Such a round survives its contributor: when rank 0 is lost, either all workers
get its buffers or none does, and the next round has another rank 0. The lane is a gradient lane, so
that members change when the rounds of gradients and of buffers are both over. A model gets it with
its first buffer, which a forward may add.

A graph of autograd may have saved a buffer for a backward that is still to come: it is retained, or
that of another forward. Such a buffer is not written before write(), or before the next round.
"""

from collections.abc import Callable

import torch

from basin import _abi
from basin.errors import Error, RoundAborted
from basin.spec import Op, RoundSpec
from basin.torch import raw, tensors
from basin.worker import TensorSpec, Worker


class BufferLane:
    """Rank 0 sends, and the other workers receive. Each send() is followed by receive(), and
    buffers must not change between the two."""

    def __init__(self, worker: Worker, name: str, module: torch.nn.Module) -> None:
        self._worker = worker
        self._name = name
        self._module = module
        self._lane: int | None = None  # None: there was no buffer yet.
        self._in_flight = False
        self._buffers: list[tuple[int, str, torch.Tensor]] = []  # With their handles.
        self._sent: list[torch.Tensor] = []  # Kept alive for the library.
        self._refusal: Error | None = None
        self._first_sizes: dict[str, int] = {}  # By name, of the buffers in bytes.
        # Received, and not written yet: the name, the buffer, and its numbers.
        self._unwritten: list[tuple[str, torch.Tensor, torch.Tensor]] = []
        if tensors.buffers_of(module):
            self._lane, _ = worker.register(name, _abi.GRADIENT, [])

    def send(self) -> None:
        """Begins a round and commits it, without waiting; a round in flight goes on. If this fails,
        the round is withdrawn, because the other workers wait for this one."""
        if self._in_flight:
            return
        if self._lane is None:
            if not tensors.buffers_of(self._module):
                return
            self._lane, _ = self._worker.register(self._name, _abi.GRADIENT, [])
        try:
            self._buffers = self._register()
            self._begin(self._lane)
            if self._worker.place().has(0):
                self._push(self._lane)
            self._refusal = self._worker.commit(self._lane)
        except BaseException as error:
            if not self._in_flight:
                self._begin(self._lane)
            self._worker.withdraw(self._lane, f"buffers could not be sent: {error!r}")
            raise

    def _register(self) -> list[tuple[int, str, torch.Tensor]]:
        """Returns the buffers with their handles and names. The job knows a tensor by one size, so
        a buffer that was converted gets a new name."""
        buffers, specs = [], []
        for name, buffer in tensors.buffers_of(self._module):
            if torch.nn.parameter.is_lazy(buffer) or buffer.numel() == 0:
                continue
            tensors.check_memory(name, buffer)
            size = tensors.bytes_of(buffer)
            if self._first_sizes.setdefault(name, size) != size:
                name = f"{name} of {size} bytes"
            buffers.append((name, buffer))
            specs.append(TensorSpec(name, _abi.U8, (size,)))
        _, handles = self._worker.register(self._name, _abi.GRADIENT, specs)
        return [(handle, *each) for handle, each in zip(handles, buffers, strict=True)]

    def _begin(self, lane: int) -> None:
        self._refusal = None
        self._worker.begin(lane, RoundSpec(Op.MAX))
        self._in_flight = True

    def _push(self, lane: int) -> None:
        for handle, _, buffer in self._buffers:
            copied = raw.on_host(buffer).clone()
            self._sent.append(copied)
            self._worker.push(lane, handle, copied.data_ptr(), tensors.bytes_of(copied))

    def receive(
        self, timeout: float | None, meanwhile: Callable[[], bool] | None = None
    ) -> Error | None:
        """Waits for the buffers of rank 0 and writes them to those of the other workers. Returns
        why this worker's part was refused, or why a buffer could not be written. Does nothing if no
        round is in flight. Calls `meanwhile` from time to time.

        After OutcomeUnknown or Paused, call it again.
        """
        if not self._in_flight or self._lane is None:
            return None
        try:
            result = self._worker.wait(self._lane, timeout, meanwhile)
        except RoundAborted:
            self.start_again()
            return self._refusal
        self._in_flight = False
        refusal = self._refusal or result.rejection
        self._unwritten.clear()  # All buffers are in this round.
        if not self._sent:
            for handle, name, buffer in self._buffers:
                if result.has(handle):
                    received = raw.empty_on_host(buffer.shape, buffer.dtype)
                    result.copy(handle, received.data_ptr(), tensors.bytes_of(received))
                    self._unwritten.append((name, buffer, received))
        self._sent.clear()
        self._buffers.clear()
        try:
            self._write(lambda buffer: not raw.is_held(buffer))
        except Error as error:
            refusal = refusal or error
        return refusal

    def write(self) -> None:
        """Writes what was received and not written yet. A graph that has saved such a buffer raises
        an error of torch from now on."""
        if self._unwritten:
            self._write(lambda _: True)

    def _write(self, may_write: Callable[[torch.Tensor], bool]) -> None:
        received, self._unwritten = self._unwritten, []
        while received:
            name, buffer, numbers = received.pop()
            if may_write(buffer):
                raw.write(name, buffer, numbers)
            elif not raw.has_bits_of(buffer, numbers):
                self._unwritten.append((name, buffer, numbers))

    def start_again(self) -> None:
        """Discards a round in flight that the worker has abandoned."""
        self._in_flight = False
        self._sent.clear()
        self._buffers.clear()
        self._unwritten.clear()
