# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Calls on several NumPy arrays at once, for the modules of frameworks: each call is one round.

Calls without a name are matched by their order in the program of each worker.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from basin import broadcasting, exchange, scattering
from basin.client import Client
from basin.errors import InvalidArgument, Unsupported
from basin.gathering import Bytes, check_single, shortened, text_of_shapes
from basin.handle import CALL_PREFIX
from basin.spec import Op, ReductionOptions, RoundSpec, reduction
from basin.taken import take
from basin.worker import PartedResult, Place, Result, RoundInfo

Array = NDArray[Any]


def spec_of(call: str, op: Op, options: ReductionOptions) -> RoundSpec:
    """The spec of a reduction of gradients. Raises InvalidArgument for contradictory options, and
    for an op that needs counts, which a gradient of these frameworks has not."""
    if op == Op.WEIGHTED_AVERAGE:
        raise InvalidArgument(
            f"{call} has no counts for a weighted average. Multiply the gradients by the weight, "
            "and reduce them and the weight with op=basin.Sum."
        )
    return reduction(call, op, options)


def allreduce(
    client: Client,
    call: str,
    name: str | None,
    keys: Sequence[str],
    given: Sequence[Any],
    spec: RoundSpec,
    left_out: str = "",
    among: Place | None = None,
) -> tuple[list[Array], RoundInfo]:
    """Returns the reduced arrays, and the facts of the round.

    keys:     the name of each array, for messages, and for the order of a call with a name
    given:    NumPy arrays, or arrays with DLPack, of the dtypes that Client.allreduce() takes;
              bfloat16 that came through DLPack is returned as float32
    left_out: what of a larger group is not given, if anything: Mismatch, on all workers, if it
              differs
    among:    if the caller keeps rows by rank, the place of this worker that they are of: Mismatch
              or Unavailable, on all workers, if members have changed. See scattering.py
    """
    client.take_part(call)
    taken = [take(key, each) for key, each in zip(keys, given)]
    sent = [(each.spec, each.array.ctypes.data, each.array.nbytes) for each in taken]
    if left_out:
        what = text_of_shapes(spec.op.name, (each.piece for each in taken))
        spec = replace(spec, call=shortened(f"{left_out}; {what}"))
    if among is not None:
        check_single(call, among)
        shapes = [(each.dtype_name, each.array.shape) for each in taken]
        spec = scattering.spec_of(spec, among, shapes)

    def output(result: Result | PartedResult) -> list[Array]:
        if among is not None:
            scattering.check_contributors(call, among, result.info)
        received = [np.empty_like(each.array) for each in taken]
        for i, array in enumerate(received):
            result.copy(i, array.ctypes.data, array.nbytes)
        return [each.give(array) for each, array in zip(taken, received)]

    if name is None:
        handle = client.start_unnamed(sent, taken, output, spec, True, None)
    else:
        lane = CALL_PREFIX + name
        handle = client.start(lane, sent, taken, output, spec, goes_on=True, over_all=True)
    return client.complete(handle, None), handle.info


def text_of_left_out(places: Sequence[int], of: int) -> str:
    """What allreduce() is told of gradients that are only at these places of so many, because the
    others are None; empty if there are all."""
    if len(places) == of:
        return ""
    return f"gradients {', '.join(map(str, places)) or 'none'} of {of}"


def broadcast(
    client: Client, call: str, keys: Sequence[str], given: Sequence[Any], root_rank: int
) -> list[Array]:
    """Returns the root's arrays, bit for bit, of any dtype whose elements are plain numbers. When
    it has returned, the root may leave. Raises Mismatch, on all workers, if the arrays differ in
    dtype or shape, or the roots differ."""
    client.take_part(call)
    taken = [take(key, each) for key, each in zip(keys, given)]

    def output(received: list[Bytes]) -> list[Array]:
        return [
            each.give(content.view(each.array.dtype).reshape(each.array.shape))
            for each, content in zip(taken, received)
        ]

    pieces = [each.piece for each in taken]
    handle = broadcasting.broadcast(
        client, None, pieces, root_rank, output, waits=True, timeout=None
    )
    return client.complete(handle, None)


def check_rows(call: str, spec: RoundSpec) -> None:
    """Raises Unsupported for a reduction that allreduce_rows() cannot do."""
    if spec.op not in (Op.SUM, Op.AVERAGE) or spec.predivide != 1.0 or spec.divide_by_present:
        raise Unsupported(
            f"{call} was given indexed slices with {spec.op.name} and its options. Slices have a "
            "plain sum or average: omit them, or make the slices dense with sparse_as_dense=True."
        )


def allreduce_rows(
    client: Client,
    call: str,
    key: str,
    indices: Array,
    values: Array,
    spec: RoundSpec,
    left_out: str = "",
) -> tuple[Array, Array]:
    """The sum or average of tables of which each worker has some rows: the indices that any worker
    has, each once and in order, and their rows. A worker may have an index several times.

    key:      of the table, the same on all workers
    indices:  1-D, of int32 or int64
    values:   a row for each index, of a floating dtype
    left_out: as for allreduce()

    The rows of all workers are gathered, and added up by rank, in float32 (float64 for float64).
    Raises Mismatch, on all workers, if keys, dtypes or the shapes of rows differ; Unavailable, on
    all of them, if one is lost meanwhile.
    """
    check_rows(call, spec)
    client.take_part(call)
    places, rows = take(f"{key}, its indices", indices), take(key, values)
    factor = spec.prescale * spec.postscale

    def output(received: list[exchange.Rows]) -> tuple[Array, Array]:
        of_indices, of_values = received
        count = sum(of_indices.counts)
        where = places.give_rows(of_indices.content, count)
        what = rows.give_rows(of_values.content, count)
        divisor = len(of_indices.counts) if spec.op == Op.AVERAGE else 1
        return _merge(where, what, factor / divisor)

    handle = exchange.allgather(
        client,
        "rows",
        None,
        [places.piece, rows.piece],
        output,
        waits=True,
        timeout=None,
        kind=f"{left_out and left_out + '; '}{key}: {spec.op.name} of rows, times {factor!r},",
    )
    return client.complete(handle, None)


def _merge(indices: Array, values: Array, factor: float) -> tuple[Array, Array]:
    wide = np.float64 if values.dtype == np.float64 else np.float32
    distinct, which = np.unique(indices, return_inverse=True)
    total = np.zeros((len(distinct), *values.shape[1:]), wide)
    np.add.at(total, which.reshape(-1), values.astype(wide))
    if factor != 1.0:
        total *= wide(factor)
    return distinct, total.astype(values.dtype)
