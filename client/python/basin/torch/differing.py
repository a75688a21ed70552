# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Broadcasts values with large tensors in them, of which only those move that differ: none if all
workers have loaded the same checkpoint.

The rounds of objects.py carry all the rest of the root's value, and the digest of each large
tensor. A worker then requests from the root those that it does not have.
"""

import io
import pickle
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from basin import objects
from basin.errors import DeadlineExceeded, OutcomeUnknown, Paused
from basin.torch import digests
from basin.torch.context import Context
from basin.torch.given import Open
from basin.torch.objects import unpickle
from basin.torch.packing import Unpacker, fill, pack_apart
from basin.worker import logger

_TIMEOUT_SECONDS = 300.0

T = TypeVar("T")


def broadcast(
    here: Context, call: str, name: str, what: str, capture: Callable[[], T], root_rank: int
) -> T:
    """Returns what the root has captured. All workers call it, and call it again after
    OutcomeUnknown, Paused and DeadlineExceeded. The errors are those of broadcast_object() and
    unpickle(), where `what` is the value, and Unavailable if the root is lost meanwhile."""
    given = here.state.given
    of = given.open.setdefault(name, Open())

    def pack() -> bytes:
        if of.sent is None:  # The others may have the first one already.
            packed, large = pack_apart(capture())
            number, made = given.give(large), digests.in_a_row(large)
            of.sent = pickle.dumps((here.client.worker.id, number, made, packed))
        return of.sent

    try:
        if of.received is None:
            of.received = objects.broadcast_object(
                here.client, call, name, pack, root_rank, here.timeout
            )
        root, number, theirs, packed = pickle.loads(of.received)
        if theirs:
            here.client.note_served()
        unpacker = Unpacker(io.BytesIO(packed))
        value: T = unpickle(what, packed, lambda _: unpacker.load())
        if root == here.client.worker.id:
            given.drop(before=number)  # All have begun this call, so they have ended those.
            kept = dict(enumerate(given.copies(number)))
        else:
            kept = _kept(capture, theirs)
        timeout = here.timeout if here.timeout is not None else _TIMEOUT_SECONDS
        fill(unpacker.large, kept, lambda i, memory: given.get(root, number, i, memory, timeout))
    except (OutcomeUnknown, Paused, DeadlineExceeded):
        raise
    except BaseException:
        del given.open[name]
        raise
    del given.open[name]
    return value


def _kept(capture: Callable[[], Any], theirs: bytes) -> dict[int, torch.Tensor]:
    """The large tensors of the root that this worker has, by number."""
    if not theirs:
        return {}
    try:
        _, large = pack_apart(capture())
        return digests.by_number(zip(digests.of_all(large), large, strict=True), theirs)
    except Exception as error:
        logger.info("requests all of the root's state, because it was not compared: %s", error)
        return {}
