# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The rounds of a trainer: all its dense gradients are one, and a sparse one is a call of its own.

A worker contributes the gradients that a backward has written since the last update, and skips the
others. Gradients are matched by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from basin import _abi, arrays
from basin.arrays import Array
from basin.client import Client
from basin.errors import Mismatch
from basin.gathering import shortened
from basin.handle import CALL_PREFIX
from basin.mxnet import nd
from basin.mxnet.nd import mxnet
from basin.spec import RoundSpec
from basin.taken import take
from basin.worker import Result, RoundInfo, TensorSpec

CALL = "DistributedTrainer"


@dataclass(frozen=True)
class Gradient:
    """A gradient of a worker.

    is_new: a backward has written it since the last update, so that this worker contributes it
    """

    name: str
    array: Any
    is_new: bool


class Rounds:
    """Those of one trainer, whose lane has this name.

    wire_dtype: in which gradients of float32 and float64 are sent; None: in their own
    """

    def __init__(self, client: Client, name: str, wire_dtype: str | None) -> None:
        self._client, self._lane = client, f"{CALL_PREFIX}trainer/{name}"
        self._wire_dtype = wire_dtype
        self._handles: dict[str, int] = {}  # The tensors of the lane, by name.

    def reduce(
        self, gradients: Sequence[Gradient], absent: Sequence[str], spec: RoundSpec
    ) -> tuple[set[str], RoundInfo]:
        """Gives dense gradients the result of a round. Returns the names of those that have one,
        because some worker has contributed, and the facts of the round. Nothing is written if it
        raises.

        absent: the names of those that have no shape yet; Mismatch, on all workers, if they differ
        """
        client = self._client
        taken = [take(each.name, self._memory_of(each)) for each in gradients]
        specs = [each.spec for each in taken]
        self._register(specs)
        addresses = [
            each.array.ctypes.data if gradient.is_new else None
            for each, gradient in zip(taken, gradients)
        ]

        def output(result: Result) -> set[str]:
            received: set[str] = set()
            for gradient, each in zip(gradients, taken):
                handle = self._handles[gradient.name]
                if each.array.size > 0 and result.has(handle):
                    # The library has read what was sent, so there is room for what has come.
                    result.copy(handle, each.array.ctypes.data, each.array.nbytes)
                    received.add(gradient.name)
            return received

        handle = client.start(
            self._lane,
            list(zip(specs, addresses, (each.array.nbytes for each in taken))),
            taken,
            output,
            _with_call(spec, gradients, absent),
            goes_on=True,
            over_all=True,
        )
        received = client.complete(handle, None)
        for gradient, each in zip(gradients, taken):
            if gradient.name in received:
                nd.write(gradient.array, each.array.astype(gradient.array.dtype, copy=False))
        return received, handle.info

    def _memory_of(self, gradient: Gradient) -> Array:
        array = gradient.array
        dtype = np.dtype(array.dtype)
        if dtype in (np.float32, np.float64) and self._wire_dtype is not None:
            dtype = np.dtype(self._wire_dtype)
        if gradient.is_new:
            return nd.read(gradient.name, array).astype(dtype, copy=False)
        return np.empty(array.shape, dtype)  # Only to receive.

    def _register(self, specs: Sequence[TensorSpec]) -> None:
        """Learns the handles of new tensors."""
        if all(each.name in self._handles for each in specs):
            return
        try:
            _, handles = self._client.worker.register(self._lane, _abi.CALL, specs)
        except Mismatch:
            return  # start() meets it again, and takes part without a contribution.
        self._handles = {each.name: handle for each, handle in zip(specs, handles)}

    def reduce_rows(self, gradient: Gradient, spec: RoundSpec) -> bool:
        """Gives a row-sparse gradient the sum or average of the rows of all workers. Returns
        whether there are any. All workers make these calls in the same order."""
        array = gradient.array
        width = array.shape[1:]
        indices, values = np.zeros(0, np.int64), np.zeros((0, *width), array.dtype)
        if gradient.is_new:
            indices, values = array.indices.asnumpy(), nd.read(gradient.name, array.data)
        places, rows = arrays.allreduce_rows(
            self._client, CALL, gradient.name, indices, values, spec
        )
        if len(places) == 0:
            return gradient.is_new
        made = mxnet.nd.sparse.row_sparse_array(
            (rows, places), shape=array.shape, ctx=array.context, dtype=array.dtype
        )
        made.copyto(array)
        return True


def _with_call(spec: RoundSpec, gradients: Sequence[Gradient], absent: Sequence[str]) -> RoundSpec:
    lacking = f", and none yet of {', '.join(absent)}" if absent else ""
    return replace(spec, call=shortened(f"gradients of {len(gradients)} parameters{lacking}"))
