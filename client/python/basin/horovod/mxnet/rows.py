# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""allgather, broadcast and alltoall with Horovod's arguments, and broadcasts of objects. All calls
return when they are done."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from basin.arrays import Array
from basin.horovod import job, objects
from basin.horovod.job import global_process_set
from basin.mxnet import nd
from basin.mxnet.nd import mxnet


def allgather(
    tensor: Any, name: str | None = None, priority: int = 0, process_set: Any = global_process_set
) -> Any:
    """Returns the rows of the arrays of all workers, by rank. The numbers of rows may differ.

    name, priority: not used: calls are matched by their order in the program
    """
    call = "allgather()"
    job.check_global(call, process_set)
    return nd.new(job.current(call).allgather(nd.read("tensor", tensor)), tensor)


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    priority: int = 0,
    process_set: Any = global_process_set,
) -> list[Any]:
    """Like allgather() of each array."""
    return [allgather(each, process_set=process_set) for each in tensors]


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: Any = global_process_set,
) -> Any:
    """Returns the root's values in a new array.

    name, priority: not used: calls are matched by their order in the program
    """
    call = "broadcast()"
    job.check_global(call, process_set)
    return nd.new(_of_root(call, tensor, root_rank), tensor)


def broadcast_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: Any = global_process_set,
) -> Any:
    """Like broadcast(), in place."""
    call = "broadcast_()"
    job.check_global(call, process_set)
    nd.write(tensor, _of_root(call, tensor, root_rank))
    return tensor


def _of_root(call: str, tensor: Any, root_rank: int) -> Array:
    # The others wait for the root as long as it takes, as in all calls of Horovod.
    client = job.current(call)
    return client.broadcast(nd.read("tensor", tensor), root_rank=root_rank, timeout=None)


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: Any = global_process_set,
) -> Any:
    """Sends rows to each worker, and returns those for this one, by the rank that sent them.

    splits: how many rows go to each rank, as a list or an array; then how many have come from each
            is returned as well, as an array of int32. None: all get as many
    name, priority: not used: calls are matched by their order in the program
    """
    call = "alltoall()"
    job.check_global(call, process_set)
    client = job.current(call)
    numbers = None
    if splits is not None:
        given = splits.asnumpy() if hasattr(splits, "asnumpy") else np.asarray(splits)
        numbers = [int(each) for each in given]
    received, counts = client.alltoall(nd.read("tensor", tensor), numbers)
    made = nd.new(received, tensor)
    return made if splits is None else (made, mxnet.nd.array(counts, dtype="int32"))


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: Any = global_process_set
) -> Any:
    """Returns the root's object. It is pickled, so use this only among workers that trust each
    other."""
    return objects.broadcast_object(obj, root_rank, process_set=process_set)


def allgather_object(
    obj: Any, name: str | None = None, process_set: Any = global_process_set
) -> list[Any]:
    """Returns the objects of all workers, by rank. They are pickled; see broadcast_object()."""
    return objects.allgather_object(obj, process_set=process_set)
