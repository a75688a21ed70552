# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The buffers of a model: after each round of gradients all workers have those of rank 0.

Buffers are sent as rounds of a separate lane to which only rank 0 contributes, so the result is a
copy of its bits. Such a round survives its contributor: when rank 0 is lost, either all workers
get its buffers or none does, and the next round has another rank 0. The lane is a gradient lane, so
that members change when the rounds of gradients and of buffers are both over.
"""

from collections.abc import Callable

import torch

from basin import _abi
from basin.errors import Error, RoundAborted
from basin.spec import Op, RoundSpec
from basin.torch import device, tensors
from basin.worker import TensorSpec, Worker


class BufferLane:
    """Rank 0 sends, and the other workers receive. Each send() is followed by receive(), and
    buffers must not change between the two."""

    def __init__(self, worker: Worker, name: str, module: torch.nn.Module) -> None:
        self._worker = worker
        self._name = name
        self._module = module
        self._lane, _ = worker.register(name, _abi.GRADIENT, [])
        self._in_flight = False
        self._buffers: list[tuple[int, torch.Tensor]] = []  # With their handles.
        self._sent: list[torch.Tensor] = []  # Kept alive for the library.
        self._refusal: Error | None = None
        self._first_sizes: dict[str, int] = {}  # By name, of the buffers in bytes.

    def send(self) -> None:
        """Begins a round and commits it, without waiting; a round in flight goes on. If this fails,
        the round is withdrawn, because the other workers wait for this one."""
        if self._in_flight:
            return
        try:
            self._buffers = self._register()
            self._begin()
            if self._worker.place().has(0):
                self._push()
            self._refusal = self._worker.commit(self._lane)
        except BaseException as error:
            if not self._in_flight:
                self._begin()
            self._worker.withdraw(self._lane, f"buffers could not be sent: {error!r}")
            raise

    def _register(self) -> list[tuple[int, torch.Tensor]]:
        """Returns the buffers with their handles. The job knows a tensor by one size, so a buffer
        that was converted gets a new name."""
        buffers, specs = [], []
        for name, buffer in self._module.named_buffers():
            if buffer.numel() == 0:
                continue
            tensors.check_memory(name, buffer)
            size = tensors.bytes_of(buffer)
            if self._first_sizes.setdefault(name, size) != size:
                name = f"{name} of {size} bytes"
            buffers.append(buffer.detach())
            specs.append(TensorSpec(name, _abi.U8, (size,)))
        _, handles = self._worker.register(self._name, _abi.GRADIENT, specs)
        return list(zip(handles, buffers))

    def _begin(self) -> None:
        self._refusal = None
        self._worker.begin(self._lane, RoundSpec(Op.MAX))
        self._in_flight = True

    def _push(self) -> None:
        for handle, buffer in self._buffers:
            copied = device.on_host(buffer.clone(memory_format=torch.contiguous_format))
            self._sent.append(copied)
            self._worker.push(self._lane, handle, copied.data_ptr(), tensors.bytes_of(copied))

    def receive(
        self, timeout: float | None, meanwhile: Callable[[], bool] | None = None
    ) -> Error | None:
        """Waits for the buffers of rank 0 and writes them to those of the other workers. Returns
        why this worker's part was refused, if it was. Does nothing if no round is in flight. Calls
        `meanwhile` from time to time.

        After OutcomeUnknown or Paused, call it again.
        """
        if not self._in_flight:
            return None
        try:
            result = self._worker.wait(self._lane, timeout, meanwhile)
        except RoundAborted:
            self.start_again()
            return self._refusal
        self._in_flight = False
        if not self._sent:
            # A graph that is retained for another backward may have saved the buffers.
            kept = tuple(buffer for _, buffer in self._buffers)
            with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(kept):
                for handle, buffer in self._buffers:
                    if result.has(handle):
                        received = torch.empty(buffer.shape, dtype=buffer.dtype)
                        result.copy(handle, received.data_ptr(), tensors.bytes_of(received))
                        buffer.copy_(received)
        self._sent.clear()
        self._buffers.clear()
        return self._refusal or result.rejection

    def start_again(self) -> None:
        """Discards a round in flight that the worker has abandoned."""
        self._in_flight = False
        self._sent.clear()
        self._buffers.clear()
