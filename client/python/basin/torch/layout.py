# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Checks that all workers have gradients of the same tensors.

Tensors are matched by name, so workers with different models would silently average some tensors
without each other. Each round carries a hash of names, dtypes and shapes. The aggregator compares
the hashes and refuses the contribution of a worker that differs. Each worker serves the list behind
its hash, so that a refused worker can report the differences.
"""

import hashlib

import numpy as np

from basin import _abi
from basin.errors import Error, Mismatch
from basin.torch import tensors
from basin.worker import TensorSpec, Worker

_LANE = "layouts"
_VERSION = 1  # A hash has one list.
_TIMEOUT_SECONDS = 5.0
_MOST_NAMED = 5
# In the names of tensors that must have the same values, before a hash of them.
WITH_VALUES = " with the values "
_OTHER_VALUES = (
    " Where only values differ, call broadcast_parameters() of the model on all workers after it "
    "has changed."
)


class LayoutCheck:
    """Checks the rounds of one lane, named `lane`. If not `enabled`, it sends no hash."""

    def __init__(self, worker: Worker, lane: str, enabled: bool) -> None:
        self._worker = worker
        self._lane = lane
        self._enabled = enabled
        self._specs: list[TensorSpec] = []
        self.hash = 0  # The hash of the next round.

    def take(self, specs: list[TensorSpec]) -> None:
        """Sets the tensors of the next round, and serves their list from now on."""
        if not self._enabled or (specs == self._specs and self.hash != 0):
            return
        self._specs = specs
        content = "\n".join(_lines(specs)).encode()
        digest = hashlib.blake2b(content, digest_size=8).digest()
        self.hash = int.from_bytes(digest, "little") or 1
        self._serve(self._name(self.hash), content)
        self._serve(self._size(self.hash), len(content).to_bytes(8, "little"))

    def explain(self, refusal: Exception, reference: int) -> Exception:
        """Explains the refusal of a round in which the others had the hash `reference`: if the
        tensors caused it, the error names those that only one side has."""
        if not isinstance(refusal, Mismatch) or reference in (0, self.hash) or self.hash == 0:
            return refusal
        try:
            size = int.from_bytes(self._get(self._size(reference), 8), "little")
            others = set(self._get(self._name(reference), size).decode().split("\n"))
        except Error as error:
            return Mismatch(f"{refusal} The differences are unknown: {error}")
        mine = set(_lines(self._specs))
        values = any(WITH_VALUES in line for line in mine ^ others)
        return Mismatch(
            f"Worker {self._worker.id} and the others have gradients of different tensors in lane "
            f"{self._lane}. Only here: {_some(mine - others)}. Only at the others: "
            f"{_some(others - mine)}. Build the same model on all workers, compile and freeze it "
            "alike, and give its parameters the same names; with same_parameters=False on all "
            "workers, a worker skips the tensors that it does not have."
            + (_OTHER_VALUES if values else "")
        )

    def _name(self, of_hash: int) -> str:
        return f"{self._lane}/{of_hash:016x}"

    def _size(self, of_hash: int) -> str:
        return self._name(of_hash) + ".size"

    def _serve(self, name: str, content: bytes) -> None:
        memory = np.frombuffer(content or b"\n", np.uint8)
        spec = TensorSpec(name, _abi.U8, (memory.nbytes,))
        self._worker.announce(_LANE, spec, _VERSION, memory.ctypes.data, memory.nbytes)

    def _get(self, name: str, size: int) -> bytes:
        received = np.empty(max(1, size), np.uint8)
        spec = TensorSpec(name, _abi.U8, received.shape)
        self._worker.get(
            _LANE, spec, _VERSION, None, _TIMEOUT_SECONDS, received.ctypes.data, received.nbytes
        )
        return received.tobytes()[:size]


def _lines(specs: list[TensorSpec]) -> list[str]:
    return sorted(
        f"{spec.name} ({str(tensors.torch_dtype(spec.dtype)).removeprefix('torch.')} "
        f"{list(spec.shape)})"
        for spec in specs
    )


def _some(lines: set[str]) -> str:
    shown = ", ".join(sorted(lines)[:_MOST_NAMED])
    more = len(lines) - _MOST_NAMED
    return (shown or "none") + (f" and {more} more" if more > 0 else "")
