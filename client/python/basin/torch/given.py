# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Large tensors that a worker gives to the others, as the root of the broadcasts at the start.

They are copies, because the training may change what they are of. They are served until a round of
gradients has a contribution of everyone: a worker contributes only after it has what was broadcast
before.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from basin import _abi
from basin.handle import CALL_PREFIX
from basin.torch import tensors
from basin.worker import TensorSpec, Worker

_LANE = CALL_PREFIX + "given"


@dataclass
class Open:
    """A broadcast that has not ended: what this worker has sent, if it is the root, and what it has
    received."""

    sent: bytes | None = None
    received: bytes | None = None


class Given:
    """What this worker gives, by the number of the broadcast."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._last = 0
        self._copies: dict[int, list[torch.Tensor]] = {}
        self.open: dict[str, Open] = {}  # By the name of the broadcast.

    def give(self, large: Sequence[torch.Tensor]) -> int:
        """Serves copies of these. Returns the number of this broadcast."""
        self._last += 1
        self._copies[self._last] = copies = [each.clone() for each in large]
        for i, memory in enumerate(copies):
            spec = _spec_of(self._worker.id, self._last, i, memory)
            self._worker.announce(
                _LANE, spec, self._last, memory.data_ptr(), spec.shape[0], in_place=True
            )
        return self._last

    def copies(self, number: int) -> list[torch.Tensor]:
        """Those of this broadcast, unless they were dropped."""
        return self._copies.get(number, [])

    def drop(self, before: int | None = None) -> None:
        """Everybody has what was given, or what was given before this number."""
        for number in [each for each in self._copies if before is None or each < before]:
            for i, memory in enumerate(self._copies.pop(number)):
                name = _spec_of(self._worker.id, number, i, memory).name
                self._worker.stop_serving(_LANE, name)

    def get(
        self, root: str, number: int, i: int, memory: torch.Tensor, timeout: float | None
    ) -> None:
        """Fills the memory with the tensor of another worker."""
        spec = _spec_of(root, number, i, memory)
        size = spec.shape[0]
        self._worker.get(_LANE, spec, number, root, timeout, memory.data_ptr(), size)


def _spec_of(root: str, number: int, i: int, memory: torch.Tensor) -> TensorSpec:
    return TensorSpec(f"{root}/{number}.{i}", _abi.U8, (tensors.bytes_of(memory),))
