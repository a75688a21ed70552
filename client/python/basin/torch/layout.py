# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Whether all workers have gradients of the same tensors.

Tensors are matched by name, so workers whose models differ would average some of them with nothing,
and nobody would see it. Each round carries a hash of names, dtypes and shapes, which the aggregator
compares, and refuses the contribution of a worker that differs. Each worker serves the list that
its hash was made of, so that the one that is refused can say what differs.
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


class LayoutCheck:
    """Of the rounds of one lane, named `lane`. One that is not `enabled` sends no hash."""

    def __init__(self, worker: Worker, lane: str, enabled: bool) -> None:
        self._worker = worker
        self._lane = lane
        self._enabled = enabled
        self._specs: list[TensorSpec] = []
        self.hash = 0  # Of the next round.

    def take(self, specs: list[TensorSpec]) -> None:
        """The tensors of the next round. What their hash is made of is served from now on."""
        if not self._enabled or (specs == self._specs and self.hash != 0):
            return
        self._specs = specs
        content = "\n".join(_lines(specs)).encode()
        digest = hashlib.blake2b(content, digest_size=8).digest()
        self.hash = int.from_bytes(digest, "little") or 1
        self._serve(self._name(self.hash), content)
        self._serve(self._size(self.hash), len(content).to_bytes(8, "little"))

    def explain(self, refusal: Error, reference: int) -> Error:
        """The refusal of a round in which the others had the hash `reference`: with the tensors
        that are on one side alone, when it was for them."""
        if not isinstance(refusal, Mismatch) or reference in (0, self.hash) or self.hash == 0:
            return refusal
        try:
            size = int.from_bytes(self._get(self._size(reference), 8), "little")
            others = set(self._get(self._name(reference), size).decode().split("\n"))
        except Error as error:
            return Mismatch(f"{refusal} What differs is not known: {error}")
        mine = set(_lines(self._specs))
        return Mismatch(
            f"Worker {self._worker.id} and the others have gradients of different tensors in lane "
            f"{self._lane}. Here alone: {_some(mine - others)}. At the others alone: "
            f"{_some(others - mine)}. Build the same model on all workers, compile and freeze it "
            "alike, and give its parameters the same names; with same_parameters=False on all "
            "workers, each tensor is averaged as it comes."
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
