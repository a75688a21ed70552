# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The calls of a client in which workers bring each other rows, or whole arrays."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike

from basin import _abi, broadcasting, exchange, scattering
from basin.arguments import seconds
from basin.described import Described
from basin.dlpack import SupportsDLPack
from basin.gathering import Bytes
from basin.handle import CALL_PREFIX, Handle
from basin.spec import Counts, Op, ReductionOptions, contribution, reduction
from basin.taken import Array, take, take_for
from basin.worker import PartedResult, Result, TensorSpec

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from basin.client import Client


class RowCalls:
    """What Client has of them. Any thread may call them."""

    def allgather(
        self,
        array: ArrayLike | SupportsDLPack,
        name: str | None = None,
        *,
        timeout: float | None = None,
    ) -> Array:
        """Returns the rows of the arrays of all workers, by rank, bit for bit.

        array:   as for allreduce(), but of any dtype. Workers may have different numbers of rows,
                 which is the first dimension, also none; a number is one row
        name:    as for allreduce(), but the number of rows may change
        timeout: seconds until OutcomeUnknown; None: forever. After OutcomeUnknown and Paused
                 another call waits for the same result, and ignores its array

        Raises Mismatch, on all workers, if dtypes or the other dimensions differ; Unavailable, on
        all of them, if one was lost before it had sent its rows: then call it again.
        """
        seconds("timeout", timeout)
        handle = _allgather(_client(self), "allgather()", array, name, timeout)
        return handle.client.complete(handle, timeout)

    def allgather_async(
        self, array: ArrayLike | SupportsDLPack, name: str | None = None
    ) -> Handle[Array]:
        """Like allgather(), but returns at once. Do not change `array` until the handle is done."""
        return _allgather(_client(self), "allgather_async()", array, name, None)

    def alltoall(
        self,
        array: ArrayLike | SupportsDLPack,
        splits: Sequence[int] | Array | None = None,
        name: str | None = None,
        *,
        timeout: float | None = None,
    ) -> tuple[Array, list[int]]:
        """Sends rows to each worker. Returns the rows for this one, by the rank that sent them, and
        how many are of each.

        array:  as for allgather()
        splits: how many rows go to each rank, in order; None: all get as many

        The other arguments and errors are as for allgather(). Every worker receives what all have
        sent, and keeps its rows. Raises InvalidArgument, before anything is sent, if the splits are
        not one number for each rank that add up to the rows.
        """
        seconds("timeout", timeout)
        handle = _alltoall(_client(self), "alltoall()", array, splits, name, timeout)
        return handle.client.complete(handle, timeout)

    def alltoall_async(
        self,
        array: ArrayLike | SupportsDLPack,
        splits: Sequence[int] | Array | None = None,
        name: str | None = None,
    ) -> Handle[tuple[Array, list[int]]]:
        """Like alltoall(), but returns at once. Do not change `array` until the handle is done."""
        return _alltoall(_client(self), "alltoall_async()", array, splits, name, None)

    def reducescatter(
        self,
        array: ArrayLike | SupportsDLPack,
        name: str | None = None,
        *,
        op: Op,
        counts: Counts | None = None,
        timeout: float | None = None,
        **options: "Unpack[ReductionOptions]",
    ) -> Array:
        """Like allreduce(), but returns only this worker's rows of the result: as many as the
        others get, or one more for the first ranks. Raises InvalidArgument for a number, which has
        no rows; Unavailable, on all workers, if one of them was lost meanwhile: then call it
        again."""
        seconds("timeout", timeout)
        handle = _reducescatter(
            _client(self), "reducescatter()", array, name, op, counts, options, timeout
        )
        return handle.client.complete(handle, timeout)

    def reducescatter_async(
        self,
        array: ArrayLike | SupportsDLPack,
        name: str | None = None,
        *,
        op: Op,
        counts: Counts | None = None,
        **options: "Unpack[ReductionOptions]",
    ) -> Handle[Array]:
        """Like reducescatter(), but returns at once. Do not change `array` until the handle is
        done."""
        return _reducescatter(
            _client(self), "reducescatter_async()", array, name, op, counts, options, None
        )

    def broadcast(
        self,
        array: ArrayLike | SupportsDLPack,
        name: str | None = None,
        *,
        root_rank: int,
        timeout: float | None = 300.0,
    ) -> Array:
        """Returns a new array with the bits of the array of the worker with rank `root_rank`.

        array:     as for allreduce(), but of any dtype; shape and dtype must equal the root's
        name:      without one, the call is matched by its order, as those of allreduce() are, and
                   times out with OutcomeUnknown
        root_rank: a rank of the present generation
        timeout:   seconds until DeadlineExceeded; None: forever. The broadcast stays open, and
                   another call waits for the same value

        Every member calls it. Raises Mismatch on all of them, before anything is sent, if dtype,
        byte order, shape or root differ; InvalidArgument if the elements are not plain numbers;
        Unavailable if the root has left before it has served the value.
        """
        client = _client(self)
        client.take_part("broadcast()")
        seconds("timeout", timeout)
        if name is None:
            handle = _broadcast(client, array, None, root_rank, waits=True, timeout=timeout)
            return client.complete(handle, timeout)
        end = None if timeout is None else time.monotonic() + timeout
        taken = take(name, array)
        received = np.array(taken.array, order="C", copy=True)
        root = client.check_root(root_rank)
        described = Described.of("broadcast()", root, [(name, taken.dtype_name, received.shape)])
        version = client.agree_on_version(name, described, timeout)
        left = None if end is None else max(0.0, end - time.monotonic())
        spec = TensorSpec(name, _abi.U8, (received.nbytes,))
        tensors = [(spec, received.ctypes.data, received.nbytes)] if received.nbytes > 0 else []
        client.broadcast_memory(name, version, described, tensors, left)
        return taken.give(received)

    def broadcast_async(
        self, array: ArrayLike | SupportsDLPack, name: str | None = None, *, root_rank: int
    ) -> Handle[Array]:
        """Like broadcast(), but returns at once. Do not change `array` until the handle is done.

        All workers make the same call: one of broadcast() does not meet it. A worker may leave as
        soon as its handle is done. Raises FailedPrecondition if the outcome of the previous call of
        this name was not waited for; wait() raises Mismatch on all workers if dtype, shape or root
        differ, and Unavailable on all of them if the root was lost before it had sent its values.
        """
        client = _client(self)
        client.take_part("broadcast_async()")
        return _broadcast(client, array, name, root_rank, waits=False, timeout=None)


def _client(calls: RowCalls) -> "Client":
    return cast("Client", calls)


def _allgather(
    client: "Client",
    call: str,
    array: ArrayLike | SupportsDLPack,
    name: str | None,
    timeout: float | None,
) -> Handle[Array]:
    client.take_part(call)
    taken = take_for(name, array)

    def output(rows: list[exchange.Rows]) -> Array:
        return taken.give_rows(rows[0].content, sum(rows[0].counts))

    return exchange.allgather(
        client,
        "allgather",
        name,
        [taken.piece],
        output,
        waits="_async" not in call,
        timeout=timeout,
    )


def _alltoall(
    client: "Client",
    call: str,
    array: ArrayLike | SupportsDLPack,
    splits: Sequence[int] | Array | None,
    name: str | None,
    timeout: float | None,
) -> Handle[tuple[Array, list[int]]]:
    client.take_part(call)
    taken = take_for(name, array)

    def output(received: list[exchange.Received]) -> tuple[Array, list[int]]:
        content, counts = received[0]
        return taken.give_rows(content, sum(counts)), counts

    return exchange.alltoall(
        client,
        call,
        "alltoall",
        name,
        [taken.piece],
        [splits],
        output,
        waits="_async" not in call,
        timeout=timeout,
    )


def _reducescatter(
    client: "Client",
    call: str,
    array: ArrayLike | SupportsDLPack,
    name: str | None,
    op: Op,
    counts: Counts | None,
    options: ReductionOptions,
    timeout: float | None,
) -> Handle[Array]:
    spec = contribution(reduction(call, op, options), counts)
    client.take_part(call)
    taken, place = take_for(name, array), client.place
    begin, end = scattering.rows_of(call, taken.array.shape, place)
    spec = scattering.spec_of(spec, place, [(taken.dtype_name, taken.array.shape)])

    def output(result: Result | PartedResult) -> Array:
        scattering.check_contributors(call, place, result.info)
        received = np.empty_like(taken.array)
        result.copy(0, received.ctypes.data, received.nbytes)
        return taken.give(received[begin:end].copy())

    sent = [(taken.spec, taken.array.ctypes.data, taken.array.nbytes)]
    waits = "_async" not in call
    if name is None:
        return client.start_unnamed(sent, taken, output, spec, waits, timeout)
    return client.start(f"{CALL_PREFIX}reducescatter/{name}", sent, taken, output, spec, waits)


def _broadcast(
    client: "Client",
    array: ArrayLike | SupportsDLPack,
    name: str | None,
    root_rank: int,
    *,
    waits: bool,
    timeout: float | None,
) -> Handle[Array]:
    taken = take_for(name, array)

    def output(received: list[Bytes]) -> Array:
        whole: Any = received[0].view(taken.array.dtype).reshape(taken.array.shape)
        return taken.give(whole)

    return broadcasting.broadcast(
        client, name, [taken.piece], root_rank, output, waits=waits, timeout=timeout
    )
