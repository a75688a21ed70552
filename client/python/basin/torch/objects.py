# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Calls on Python objects, which travel as their pickles. So they are only for workers that trust
each other."""

import pickle
from collections.abc import Callable
from typing import Any

from basin import objects
from basin.arguments import string_of
from basin.client import Client
from basin.errors import Error, InvalidArgument
from basin.process_set import ProcessSet
from basin.torch import pieces
from basin.torch.context import member


def broadcast_object(
    value: Any,
    root_rank: int = 0,
    *,
    name: str = "object",
    process_set: ProcessSet | None = None,
) -> Any:
    """Returns the root's object. It is pickled, so use this only among workers that trust each
    other.

    root_rank:   of the set, if there is one
    process_set: of which workers, which make the call; None: all

    Before the first step, a late joiner gets the same object as the others did. Raises
    InvalidArgument on all workers, with the name of the root, if its object cannot be pickled.
    """
    call, name = "broadcast_object()", string_of("name", name)
    if process_set is not None:
        client = pieces.client_of(call, name, process_set)
        return unpickle(name, _broadcast(client, call, name, value, root_rank))
    here = member(call)
    packed = here.state.take_object(name)
    if packed is None:
        packed = _broadcast(here.client, call, name, value, root_rank)
        here.state.keep_object(name, packed)
    return unpickle(name, packed)


def _broadcast(client: Client, call: str, name: str, value: Any, root_rank: int) -> bytes:
    return objects.broadcast_object(
        client, call, name, lambda: pickle.dumps(value), root_rank, pieces.timeout()
    )


def allgather_object(
    value: Any, *, name: str = "gathered", process_set: ProcessSet | None = None
) -> list[Any]:
    """Returns the objects of all workers, by rank. Raises InvalidArgument on all workers, with the
    name of the one whose object cannot be pickled."""
    call = "allgather_object()"
    return [unpickle(name, each) for each in _gather(call, name, value, process_set)]


def gather_object(
    value: Any,
    root_rank: int = 0,
    *,
    name: str = "gathered at the root",
    process_set: ProcessSet | None = None,
) -> list[Any] | None:
    """Returns the objects of all workers, by rank, at the root, and None on the others, which do
    not unpickle them. Every worker receives what all have sent, so it costs as much as
    allgather_object(), whose errors it has."""
    call = "gather_object()"
    client = pieces.client_of(call, name, process_set)
    is_root = client.place.has(client.check_root(root_rank))
    given = _gather(f"gather_object() at rank {root_rank}", name, value, process_set)
    return [unpickle(name, each) for each in given] if is_root else None


def _gather(call: str, name: str, value: Any, process_set: ProcessSet | None) -> list[bytes]:
    client = pieces.client_of(call, string_of("name", name), process_set)
    return objects.gather_objects(
        client, call, name, lambda: pickle.dumps(value), timeout=pieces.timeout(), from_all=True
    )


def unpickle(name: str, packed: bytes, load: Callable[[bytes], Any] = pickle.loads) -> Any:
    """Raises InvalidArgument if this worker cannot make the object."""
    try:
        return load(packed)
    except Error:
        raise
    except Exception as error:
        raise InvalidArgument(
            f"This worker cannot unpickle {name}: {type(error).__name__}: {error}. All workers "
            "need the same packages, and its classes at the top level of a module that all import."
        ) from error
