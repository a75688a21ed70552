# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Reductions of NumPy arrays with Horovod's arithmetic, for values of Keras and arrays of MXNet.

Basin itself does not average or scale integers. Here a scale multiplies them in float64 and cuts
off the fraction. An average divides the sum, which has wrapped around if it had no room, and cuts
off the fraction once, after the scale.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from basin import arrays, scattering
from basin.arrays import Array
from basin.client import Client
from basin.errors import Unsupported
from basin.horovod.ops import Average, Sum
from basin.spec import Op
from basin.worker import Place

# Basin adds no numbers of these widths, so they are added as int32.
_NARROW = tuple(map(np.dtype, (np.uint8, np.int8, np.int16, np.bool_)))


def allreduce(
    client: Client,
    call: str,
    given: Sequence[Array],
    op: Op,
    prescale: float = 1.0,
    postscale: float = 1.0,
    among: Place | None = None,
) -> list[Array]:
    """Returns the reduced arrays. Those of floating numbers are one round, and those of integers
    another one; the call has no name.

    among: as for arrays.allreduce()
    """
    made: list[Any] = [None] * len(given)

    def reduce(places: list[int], sent: list[Array], chosen: Op, **scales: float) -> Any:
        spec = arrays.spec_of(call, chosen, scales)  # type: ignore[arg-type]
        keys = [f"{i}" for i in places]
        return arrays.allreduce(client, call, None, keys, sent, spec, among=among)

    whole = [i for i, each in enumerate(given) if each.dtype.kind in "iub"]
    floating = [i for i in range(len(given)) if i not in set(whole)]
    if floating:
        sent = [given[i] for i in floating]
        received, _ = reduce(
            floating, sent, op, prescale_factor=prescale, postscale_factor=postscale
        )
        for i, each in zip(floating, received):
            made[i] = each
    if whole:
        sent = [before(given[i], prescale) for i in whole]
        received, info = reduce(whole, sent, Sum if op == Average else op)
        divisor = info.trainers if op == Average else 1
        for i, each in zip(whole, received):
            made[i] = after(each, given[i].dtype, divisor, postscale)
    return made


def reducescatter(
    client: Client,
    call: str,
    given: Sequence[Array],
    op: Op,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> list[Array]:
    """Returns this worker's rows of what allreduce() returns: the first ranks have one more if they
    cannot have as many. Raises Mismatch or Unavailable, on all workers, if members have changed."""
    for each in given:
        if each.ndim == 0:
            raise Unsupported(f"{call} was given a number, which has no rows. Use allreduce().")
    client.take_part(call)
    place = client.place
    made = allreduce(client, call, given, op, prescale, postscale, place)
    return [each[slice(*scattering.rows_of(call, each.shape, place))] for each in made]


def before(values: Array, prescale: float) -> Array:
    """What is sent of integers."""
    scaled = values
    if prescale != 1.0:
        scaled = (values.astype(np.float64) * prescale).astype(values.dtype)
    return scaled.astype(np.int32) if scaled.dtype in _NARROW else scaled


def after(received: Array, dtype: Any, divisor: int, postscale: float) -> Array:
    """The result in the dtype that the array had."""
    # A sum of truth values is a number until it is divided.
    total: Any = received.astype(np.uint8 if np.dtype(dtype) == np.bool_ else dtype)
    if postscale != 1.0:
        total = np.trunc(total.astype(np.float64) * postscale / divisor)
    elif divisor != 1:
        quotient, rest = np.divmod(total.astype(np.int64), divisor)
        total = quotient + ((quotient < 0) & (rest != 0))
    return np.asarray(total).astype(dtype)  # NumPy makes a number of what has no dimension.
