# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""allreduce and reducescatter with Horovod's arguments. All calls return when they are done.

Basin itself does not average or scale integers. Here a scale multiplies them in float64 and cuts
off the fraction, and an average divides the sum and cuts off the fraction as well.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from basin import arrays
from basin.arrays import Array
from basin.errors import Unsupported
from basin.horovod import job
from basin.horovod.job import global_process_set
from basin.horovod.ops import Average, Sum, op_of
from basin.mxnet import nd
from basin.spec import Op

# Basin adds no numbers of these widths, so they are added as int32.
_NARROW = (np.dtype(np.uint8), np.dtype(np.int8), np.dtype(bool))


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
    op: Any = None,
) -> Any:
    """Returns the array reduced over all workers.

    tensor:      an array of mxnet.nd or mxnet.np
    average:     True: hvd.Average, as with neither average nor op; False: hvd.Sum
    name:        not used: calls are matched by their order in the program
    priority:    not used
    prescale_factor, postscale_factor:
                 multiply each array before, and the result
    process_set: only global_process_set

    Raises ValueError before hvd.init(), Unsupported for another dtype, and Mismatch, on all
    workers, if shapes or dtypes differ.
    """
    call = "allreduce()"
    return _allreduce(call, [tensor], average, op, prescale_factor, postscale_factor, process_set)[
        0
    ]


def allreduce_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
    op: Any = None,
) -> Any:
    """Like allreduce(), in place."""
    call = "allreduce_()"
    made = _allreduce(call, [tensor], average, op, prescale_factor, postscale_factor, process_set)
    return _write([tensor], made)[0]


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
    op: Any = None,
) -> list[Any]:
    """Like allreduce() of each array, in one round; integers have another one."""
    call = "grouped_allreduce()"
    return _allreduce(call, tensors, average, op, prescale_factor, postscale_factor, process_set)


def grouped_allreduce_(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
    op: Any = None,
) -> list[Any]:
    """Like grouped_allreduce(), in place."""
    call = "grouped_allreduce_()"
    made = _allreduce(call, tensors, average, op, prescale_factor, postscale_factor, process_set)
    return _write(tensors, made)


def reducescatter(
    tensor: Any,
    op: Any = Average,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
) -> Any:
    """Like allreduce(), but returns only this worker's rows: the first ranks get one more if they
    cannot be divided evenly."""
    call = "reducescatter()"
    return _scatter(call, [tensor], op, prescale_factor, postscale_factor, process_set)[0]


def grouped_reducescatter(
    tensors: Sequence[Any],
    op: Any = Average,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
) -> list[Any]:
    """Like reducescatter() of each array, in one round."""
    call = "grouped_reducescatter()"
    return _scatter(call, tensors, op, prescale_factor, postscale_factor, process_set)


def _allreduce(
    call: str,
    tensors: Sequence[Any],
    average: bool | None,
    op: Any,
    prescale: float,
    postscale: float,
    process_set: Any,
) -> list[Any]:
    job.check_global(call, process_set)
    if average is not None and op is None:  # Here it is an argument like others, not an old one.
        op, average = (Average if average else Sum), None
    chosen = op_of(call, op, average)
    return _reduce(call, tensors, chosen, prescale, postscale)


def _scatter(
    call: str, tensors: Sequence[Any], op: Any, prescale: float, postscale: float, process_set: Any
) -> list[Any]:
    job.check_global(call, process_set)
    for each in tensors:
        if len(each.shape) == 0:
            raise Unsupported(f"{call} was given a number, which has no rows. Use allreduce().")
    place = job.current(call).place
    made = _reduce(call, tensors, op_of(call, op), prescale, postscale)
    rows = []
    for each in made:
        share, more = divmod(each.shape[0], place.world_size)
        begin = place.rank * share + min(place.rank, more)
        rows.append(each[begin : begin + share + (place.rank < more)])
    return rows


def _reduce(
    call: str, tensors: Sequence[Any], op: Op, prescale: float, postscale: float
) -> list[Any]:
    client = job.current(call)
    given = [nd.read(f"{i}", each) for i, each in enumerate(tensors)]
    made: list[Any] = [None] * len(given)

    def reduce(places: list[int], sent: list[Array], chosen: Op, **scales: float) -> Any:
        spec = arrays.spec_of(call, chosen, scales)  # type: ignore[arg-type]
        keys = [f"{i}" for i in places]
        return arrays.allreduce(client, call, None, keys, sent, spec)

    floating = [i for i, each in enumerate(given) if each.dtype.kind == "f"]
    whole = [i for i, each in enumerate(given) if each.dtype.kind != "f"]
    if floating:
        sent = [given[i] for i in floating]
        factors = {"prescale_factor": prescale, "postscale_factor": postscale}
        received, _ = reduce(floating, sent, op, **factors)
        for i, each in zip(floating, received):
            made[i] = nd.new(each, tensors[i])
    if whole:
        sent = [_before(given[i], prescale) for i in whole]
        received, info = reduce(whole, sent, Sum if op == Average else op)
        divisor = info.trainers if op == Average else 1
        for i, each in zip(whole, received):
            total = np.sign(each) * (np.abs(each) // divisor) if divisor > 1 else each
            made[i] = nd.new(_scaled(total.astype(given[i].dtype), postscale), tensors[i])
    return made


def _before(values: Array, prescale: float) -> Array:
    scaled = _scaled(values, prescale)
    return scaled.astype(np.int32) if scaled.dtype in _NARROW else scaled


def _scaled(values: Array, factor: float) -> Array:
    if factor == 1.0:
        return values
    return (values.astype(np.float64) * factor).astype(values.dtype)


def _write(tensors: Sequence[Any], made: Sequence[Any]) -> list[Any]:
    for tensor, values in zip(tensors, made):
        nd.write(tensor, values.asnumpy())
    return list(tensors)
