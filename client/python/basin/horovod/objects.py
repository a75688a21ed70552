# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Broadcasts and gatherings of objects, which are pickled: use them only among workers that trust
each other."""

import pickle
from collections.abc import Callable
from typing import Any

from basin import objects
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
    client.take_part(call)
    packed = objects.broadcast_object(
        client, call, None, lambda: pickle.dumps(obj), root_rank, timeout=None
    )
    return pickle.loads(packed)


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
    client.take_part(call)
    packed = objects.gather_objects(
        client, call, None, lambda: pickle.dumps(obj), timeout=None, from_all=True
    )
    return [pickle.loads(each) for each in packed]
