# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Broadcasts and gatherings of objects, which are pickled: use them only among workers that trust
each other."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from basin.errors import InvalidArgument
from basin.horovod import job
from basin.horovod.job import global_process_set


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: Any = global_process_set,
) -> Any:
    """Returns the root's object.

    session: not used
    name:    not used: calls are matched by their order

    Raises InvalidArgument, on all workers, if the root cannot pickle it.
    """
    call = "broadcast_object()"
    job.check_global(call, process_set)
    client = job.current(call)
    is_root = client.place.has(client.check_root(root_rank))
    packed, why = _packed(obj) if is_root else (b"", "")
    # The others wait for the root, so they hear that it has failed.
    sizes = client.broadcast(np.array([len(packed), len(why)]), None, root_rank=root_rank)
    memory = np.frombuffer(packed + why.encode(), np.uint8)
    if not is_root:
        memory = np.zeros(int(sizes.sum()), np.uint8)
    received = client.broadcast(memory, None, root_rank=root_rank).tobytes()
    if sizes[1]:
        raise InvalidArgument(
            f"{call} has failed on rank {root_rank}: {received[int(sizes[0]) :].decode()}. Give "
            "it plain data, or objects whose classes are at the top level of a module."
        )
    return pickle.loads(received)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: Any = global_process_set,
) -> Callable[[Any], Any]:
    """Returns a function that broadcasts its argument."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any,
    session: Any = None,
    name: str | None = None,
    process_set: Any = global_process_set,
) -> list[Any]:
    """Returns the objects of all workers, by rank. Raises InvalidArgument, on all workers, if one
    cannot pickle its own."""
    call = "allgather_object()"
    job.check_global(call, process_set)
    client = job.current(call)
    packed, why = _packed(obj)
    content = packed + why.encode()
    sizes = client.allgather(np.array([[len(packed), len(why)]]))
    received = client.allgather(np.frombuffer(content, np.uint8)).tobytes()
    made, begin = [], 0
    for rank, (size, of_why) in enumerate(sizes.tolist()):
        if of_why:
            raise InvalidArgument(
                f"{call} has failed on rank {rank}: {received[begin : begin + of_why].decode()}. "
                "Give it plain data, or objects whose classes are at the top level of a module."
            )
        made.append(pickle.loads(received[begin : begin + size]))
        begin += size
    return made


def _packed(obj: Any) -> tuple[bytes, str]:
    """The bytes of an object, or why there are none."""
    try:
        return pickle.dumps(obj), ""
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return b"", text.encode("ascii", "replace").decode()
