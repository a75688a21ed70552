# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""How a worker takes part in the rounds of a gradient lane: for itself, as here, or with the other
ranks of its node (node.py)."""

import itertools
import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from basin import _abi
from basin.errors import Error
from basin.spec import RoundSpec
from basin.torch import tensors
from basin.torch.batch import Batch, Wire
from basin.torch.buffers import BufferLane
from basin.torch.parameters import TensorGradient
from basin.torch.state import JobState
from basin.worker import Result, Worker

_device_of = operator.attrgetter("cuda")


@dataclass
class Totals:
    """The cost of a lane's rounds for this worker so far. Times are seconds of the trainer's
    thread, without work that overlaps with the backward."""

    rounds: int = 0
    bytes_pushed: int = 0
    bytes_received: int = 0
    push_seconds: float = 0.0
    wait_seconds: float = 0.0


class Contributor(Protocol):
    """Takes part in one round after the other: begin(), add() for the gradients that are ready,
    commit() or withdraw(), and wait() for the outcome."""

    def begin(self, spec: RoundSpec) -> None:
        """Begins a round with the counts of this worker. An error leaves no round open."""

    def after_begin(self) -> None: ...

    def add(self, gradients: Sequence[TensorGradient]) -> None:
        """Sends what is `sent` of each, now or later, at the latest in commit()."""

    def commit(self) -> Error | None:
        """Returns the reason if this worker's gradients are refused and withdrawn."""

    def withdraw(self, reason: str) -> None: ...

    def wait(self, timeout: float | None) -> Result:
        """After OutcomeUnknown or Paused, call it again."""


class Alone:
    """Contributes for this worker alone.

    name:      the name of its lane, whose handle is `lane`
    full:      how many bytes are pushed together
    buffers:   buffers to send with each round
    stream_of: returns the stream of a CUDA device that has written a gradient
    """

    def __init__(
        self,
        worker: Worker,
        name: str,
        state: JobState,
        totals: Totals,
        wire_dtype: torch.dtype | None,
        full: int,
        buffers: BufferLane | None,
        stream_of: Callable[[TensorGradient], int],
    ) -> None:
        self.worker = worker
        self.name = name
        self.state = state
        self.lane, _ = worker.register(name, _abi.GRADIENT, [])
        self._totals = totals
        self._wire: Wire = {}
        if wire_dtype is not None:
            narrow = tensors.DTYPES[wire_dtype]
            # bfloat16 has the range of float32, and needs no scale.
            exponent = _abi.FIT_EXPONENT if narrow == _abi.F16 else 0
            self._wire = {torch.float32: (narrow, exponent)}
        self._full = full
        self._batches: dict[int, Batch] = {}  # By device.
        self._buffers = buffers
        self.stream_of = stream_of

    def begin(self, spec: RoundSpec) -> None:
        self._drop()  # A signal may have left gradients of a round that has ended.
        self.worker.begin(self.lane, spec)

    def after_begin(self) -> None:
        self.state.after_begin(self.name)

    def add(self, gradients: Sequence[TensorGradient]) -> None:
        for device, on_device in itertools.groupby(gradients, _device_of):
            if device < 0:
                ready = ((each, each.address) for each in on_device)
                self._totals.bytes_pushed += self._batch(device).add(ready)
                continue
            for each in on_device:
                self.add_from_device(each, each.address)

    def add_from_device(self, each: TensorGradient, address: int) -> None:
        """Like add(), for memory on the CUDA device of the parameter."""
        batch = self._batch(each.cuda)
        batch.use_stream(self.stream_of(each))
        self._totals.bytes_pushed += batch.add([(each, address)])

    def _batch(self, device: int) -> Batch:
        batch = self._batches.get(device)
        if batch is None:
            batch = Batch(self.worker, self.lane, self._full, device, self._wire)
            self._batches[device] = batch
        return batch

    def commit(self) -> Error | None:
        self.push_rest()
        return self.worker.commit(self.lane)

    def push_rest(self) -> None:
        """Pushes what add() has left, and sends the buffers."""
        began = time.perf_counter()
        for batch in self._batches.values():
            batch.push()
        self._totals.push_seconds += time.perf_counter() - began
        self._send_buffers()

    def withdraw(self, reason: str) -> None:
        self._drop()
        try:
            self._send_buffers()
        finally:
            self.worker.withdraw(self.lane, reason)

    def _send_buffers(self) -> None:
        """Begins the round of buffers before the commit, so that members cannot change between the
        two rounds."""
        if self._buffers is not None:
            self._buffers.send()

    def wait(self, timeout: float | None) -> Result:
        return self.worker.wait(self.lane, timeout, self.state.serve_in_round)

    def _drop(self) -> None:
        for batch in self._batches.values():
            batch.drop()
