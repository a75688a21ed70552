# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The group of a node as in the C interface: the ranks of one node reduce on their devices among
themselves, before one of them contributes for all.

One thread at a time uses a group. Waits consist of short slices, so that signals are handled.
"""

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_int, c_void_p
from dataclasses import dataclass

from basin import _abi
from basin._library import lib
from basin.errors import DeadlineExceeded
from basin.spec import LocalReduction
from basin.worker import MAX_ID_BYTES, SLICE_SECONDS, Worker, call

_SLICE = int(SLICE_SECONDS * 1e9)


@dataclass(frozen=True)
class Turn:
    """Leave to reduce.

    members: how many ranks take part; 1, and not led: the turn has failed already
    leads:   whether this one gets the sums
    leader:  the id of the worker that does
    reduction: how they reduce
    others:  the ids of the other workers, in byte order
    """

    members: int
    leads: bool
    leader: str
    reduction: LocalReduction
    others: tuple[str, ...]


class Group:
    """Made by open_group()."""

    def __init__(self, pointer: c_void_p) -> None:
        self._pointer = pointer

    def close(self) -> None:
        """Leaves the group; the others go on without this rank."""
        pointer, self._pointer = self._pointer, c_void_p()
        lib.basin_group_close(pointer)

    def turn(self) -> Turn:
        """Waits for the next turn. Raises FailedPrecondition for a process that has started after
        the group had formed."""
        while (turn := self._turn(_SLICE)) is None:
            pass
        return turn

    def _turn(self, nanoseconds: int) -> Turn | None:
        """Waits for so long."""
        turn = _abi.Turn(size=ctypes.sizeof(_abi.Turn))
        call("group_turn", self._pointer, nanoseconds, byref(turn))
        if turn.members == 0:
            return None
        id = ctypes.create_string_buffer(MAX_ID_BYTES)
        lib.basin_group_leader(self._pointer, id, MAX_ID_BYTES)
        leader = id.value.decode()
        others: list[str] = []
        while lib.basin_group_reduced_with(self._pointer, len(others), id, MAX_ID_BYTES):
            others.append(id.value.decode())
        reduction = LocalReduction(lib.basin_group_reduction(self._pointer))
        return Turn(turn.members, bool(turn.leads), leader, reduction, tuple(others))

    def reduce(self, tensors: list[_abi.Grouped]) -> None:
        """Sums a bucket to the leader, after the present work of the streams, and returns at once.
        All memory stays as it is until end() has returned."""
        bucket = (_abi.Grouped * len(tensors))(*tensors)
        call("group_reduce", self._pointer, _abi.SUM, bucket, len(tensors))

    def end(self) -> int:
        """Waits for the buckets of the turn. PHASE_ENDED: all ranks have contributed to them.
        PHASE_ALONE: something has failed, so that there are no sums on any rank."""
        phase = c_int(_abi.PHASE_OPEN)
        while phase.value == _abi.PHASE_OPEN:
            call("group_end", self._pointer, _SLICE, byref(phase))
        return phase.value

    def fail(self, reason: str) -> None:
        """This rank cannot go on with the turn, and reduces no more in it: there are no sums."""
        call("group_fail", self._pointer, reason.encode())

    def share(
        self,
        worker: Worker,
        lane: int,
        tensors: Sequence[_abi.Shared],
        stream: int,
        seconds: float,
    ) -> bool:
        """Brings the results of the round that the leader of the last phase has contributed to the
        other ranks. Called once after each phase, when this rank has committed or withdrawn without
        results. Returns False if the round had none in so many seconds: call it again. If it raises
        another error, the results come from the aggregator, and the device may use the memory until
        the next turn() has returned, or forever if that raises an error."""
        shared = (_abi.Shared * len(tensors))(*tensors)
        nanoseconds = int(seconds * 1e9)
        arguments = (worker.pointer, lane, shared, len(tensors), stream, nanoseconds)
        try:
            call("group_share", self._pointer, *arguments)
        except DeadlineExceeded:
            return False
        return True

    def decline_results(self, worker: Worker, lane: int) -> Turn | None:
        """In place of share(), for a rank that cannot: its results come from the aggregator, and
        the others do not wait for it. Returns the next turn, if it has come already."""
        turn = self._turn(0)  # Asking for it ends the phase of the last one.
        if turn is None:
            self.share(worker, lane, (), 0, 0.0)  # There is nothing left to share.
        return turn


def open_group(worker: Worker, device: int, name: str, layout: str) -> Group | None:
    """The group that the options and the launcher describe; None if there is none.

    device: the index of the CUDA device that the tensors are on
    name:   ranks with the same name form a group
    layout: what must be equal on all ranks, for an error
    """
    pointer = c_void_p()
    call("group_open", worker.pointer, device, name.encode(), layout.encode(), byref(pointer))
    return Group(pointer) if pointer.value else None
