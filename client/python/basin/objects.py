# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Brings packed objects of some workers to all of them, in the two rounds of gathering.py. When it
is over, every member has them, so a worker may leave right after it.

An object that cannot be packed is an error of all workers, because the others wait for it: what
they get in its place is why.
"""

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from basin.errors import InvalidArgument, Mismatch, Unavailable
from basin.gathering import Gathered, gather, shortened

if TYPE_CHECKING:
    from basin.client import Client


class _Given(enum.IntEnum):
    """What a worker gives."""

    NOTHING = 0
    OBJECT = 1
    REASON = 2  # Why there is no object.


def gather_objects(
    client: "Client",
    call: str,
    name: str | None,
    pack: Callable[[], bytes] | None,
    *,
    timeout: float | None,
    from_all: bool = False,
) -> list[bytes]:
    """Returns what `pack` returns on the workers, by rank, without those where it is None. Every
    member makes the same `call`, and makes it again after OutcomeUnknown or Paused.

    name:     of the object; None: it is the next call without a name
    from_all: every worker gives one

    Raises Mismatch, on all workers, if they make different calls, or one gives nothing where all
    should; InvalidArgument on all of them, with the name of the worker, if `pack` has failed on
    one; Unavailable on all of them if one was lost meanwhile.
    """
    given, content = _packed(name, pack)
    called = "without a name" if name is None else f"with the name {name}"

    def output(gathered: Gathered) -> list[bytes]:
        received = []
        for share, each in zip(gathered.shares, gathered.all()):
            kind = _Given(share.numbers[0])
            if kind is _Given.REASON:
                raise InvalidArgument(
                    f"{call} has failed on worker {share.worker}: "
                    f"{each.tobytes().decode(errors='replace')}. Give it plain data, or objects "
                    "whose classes are at the top level of a module."
                )
            if kind is _Given.OBJECT:
                received.append(each.tobytes())
            elif from_all:
                raise Mismatch(
                    f"This worker has called {call} {called}, and worker {share.worker} has given "
                    "nothing to it. Make the same calls on all workers, or use other names."
                )
        return received

    handle = gather(
        client,
        client.place,
        "object",
        name,
        shortened(f"{call} {called}"),
        [int(given)],
        np.frombuffer(content, np.uint8),
        output,
        waits=True,
        timeout=timeout,
    )
    return client.complete(handle, timeout)


def broadcast_object(
    client: "Client",
    call: str,
    name: str | None,
    pack: Callable[[], bytes],
    root_rank: int,
    timeout: float | None,
) -> bytes:
    """Returns what `pack` returns on the worker with this rank, the only one that calls it. The
    errors are those of gather_objects()."""
    root = client.check_root(root_rank)
    mine = pack if client.place.has(root) else None
    given = gather_objects(client, call, name, mine, timeout=timeout)
    if len(given) != 1:
        called = "an object" if name is None else name
        raise Unavailable(
            f"{len(given)} workers had rank {root} during the broadcast of {called}, because "
            "members have changed, or workers name different roots. Call it again, on all workers."
        )
    return given[0]


def _packed(name: str | None, pack: Callable[[], bytes] | None) -> tuple[_Given, bytes]:
    if pack is None:
        return _Given.NOTHING, b""
    try:
        return _Given.OBJECT, pack()
    except Exception as error:
        called = "the object" if name is None else name
        text = f"{called} cannot be pickled: {type(error).__name__}: {error}"
        return _Given.REASON, text.encode(errors="replace")
