# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Rounds ahead of the trainer: what lets a worker join while nobody waits for it.

While the trainer of a joiner loads the state, Ahead takes part in the rounds of its lane without a
contribution, and keeps their results. The trainer then applies these in order. The members that
serve the state train on meanwhile, so what they serve is Copies, in a Room that is ready before.

Threads. The trainer's thread makes these objects and calls their methods; each has one thread of
its own.
"""

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from basin.errors import Error, FailedPrecondition, Paused, RoundAborted
from basin.spec import RoundSpec
from basin.torch import priority, raw, tensors
from basin.worker import Result, Worker, logger

_MASK = (1 << 64) - 1
# So many bytes are touched before Room looks whether it is to stop. The kernel keeps a lock of the
# process meanwhile, and the thread may lose its processor, so it is little.
_TOUCHED_BYTES = 1 << 18
# Copies begin at multiples of so many bytes.
_ALIGNMENT = 64


class _Closed(Exception):
    pass


class Ahead:
    """Takes part in rounds at once. To the lane it is a Contributor (contributor.py), whose rounds
    have been made already.

    lane:        the handle of the lane
    spec:        that of each round
    most:        the results that are kept; with so many, the others wait for the trainer
    others_call: whether the others are in a call, in which they wait for this trainer; asked while
                 a round takes long
    """

    def __init__(
        self,
        worker: Worker,
        lane: int,
        spec: RoundSpec,
        most: int,
        others_call: Callable[[], bool],
    ) -> None:
        self._worker, self._lane, self._spec, self._most = worker, lane, spec, most
        self._others_call = others_call
        self._changed = threading.Condition()
        # Guarded by _changed:
        self._results: deque[Result] = deque()
        self._stops = False  # Whether it begins no other round.
        self._closes = False  # Whether it does not even wait for the outcome of this one.
        self._error: Exception | None = None
        self._runs = True
        self._thread = threading.Thread(target=self._run, name="basin-ahead", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Drops all. The round that is in flight stays open."""
        with self._changed:
            self._stops = self._closes = True
            self._changed.notify_all()
        self._thread.join()
        self._results.clear()

    # ---- the trainer

    def drop_before(self, number: int) -> None:
        """Drops the results that are in the state already: those of the rounds before this one."""
        with self._changed:
            while self._results and self._results[0].info.round < number:
                self._results.popleft()
            self._changed.notify_all()

    def has_more(self) -> bool:
        """Whether there is another result to apply. When all are applied, ends with the round that
        is in flight, and waits for it. Raises the error with which the rounds have ended."""
        with self._changed:
            self._stops = self._stops or not self._results
            self._changed.wait_for(lambda: self._results or not self._runs)
            if not self._results and self._error is not None:
                raise self._error
            return bool(self._results)

    # ---- the lane

    def begin(self, spec: RoundSpec) -> None:
        pass

    def after_begin(self) -> None:
        pass

    def add(self, gradients: Sequence[Any]) -> None:
        raise FailedPrecondition(
            "A backward was run while this worker catches up with the others. The function "
            "catch_up= must only do what the loop does after backward()."
        )

    def commit(self) -> Error | None:
        return None

    def withdraw(self, reason: str) -> None:
        pass

    def wait(self, timeout: float | None) -> Result:
        """REQUIRES: has_more() has returned True."""
        with self._changed:
            result = self._results.popleft()
            self._changed.notify_all()
            return result

    # ---- the other thread

    def _run(self) -> None:
        error: Exception | None = None
        try:
            while self._may_begin():
                self._take_part()
        except _Closed:
            pass
        except Exception as failure:
            error = failure
        with self._changed:
            self._error, self._runs = error, False
            self._changed.notify_all()

    def _may_begin(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stops or len(self._results) < self._most)
            return not self._stops

    def _take_part(self) -> None:
        try:
            self._worker.begin(self._lane, self._spec)
            # A contribution of nothing would be counted in the divisor of an average.
            self._worker.withdraw(self._lane, "it loads the state of the others")
            result = self._outcome()
        except RoundAborted:  # No worker applies it.
            if self._worker.place().world_size == 1:
                with self._changed:
                    self._stops = True  # The others have left.
            return
        if result.rejection is not None:
            raise result.rejection
        with self._changed:
            self._results.append(result)
            self._changed.notify_all()

    def _outcome(self) -> Result:
        while True:
            try:
                return self._worker.wait(self._lane, None, self._look)
            except Paused:
                self._look()

    def _look(self) -> bool:
        if self._closes:
            raise _Closed
        if self._others_call():
            raise FailedPrecondition(
                "the others make a collective call between two steps, for which they need this "
                "worker"
            )
        return False


class Room:
    """Memory for copies. Another thread touches its pages before the copies are made, because the
    first touch takes several times as long as the copy, and the step of the optimizer waits for
    the copies. It only takes time of processors that is left by the step before.

    size: bytes, for all of the copies
    """

    def __init__(self, size: int) -> None:
        self._memory = _bytes(size)
        self._used = 0
        self._is_needed = False
        self._thread = threading.Thread(target=self._touch, name="basin-room", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Touches no more, and is empty again: what was taken must not be in use any more."""
        self._is_needed = True
        self._thread.join()
        self._used = 0

    def take(self, size: int) -> torch.Tensor:
        """So many bytes, in other memory if there is no more room. REQUIRES: it is closed."""
        begin = self._used
        if begin + size > self._memory.numel():
            return _bytes(size)
        self._used += -(-size // _ALIGNMENT) * _ALIGNMENT
        return self._memory[begin : begin + size]

    def _touch(self) -> None:
        priority.lower()
        address, size = self._memory.data_ptr(), self._memory.numel()
        for begin in range(0, size, _TOUCHED_BYTES):
            if self._is_needed:
                return
            raw.touch(address + begin, min(_TOUCHED_BYTES, size - begin))


def _bytes(size: int) -> torch.Tensor:
    return raw.empty_on_host((size,), torch.uint8)


def room_for(sources: Iterable[torch.Tensor]) -> Room:
    """Room for copies of these that are in CPU memory; what is on devices has its own copies."""
    sizes = (tensors.bytes_of(each) for each in sources if each.device.type == "cpu")
    return Room(sum(size + _ALIGNMENT for size in sizes))


class Copies:
    """Copies of tensors that do not change before the next step of their optimizer.

    announce: is called with the number of each and the bytes of its copy, in the other thread
    room:     for the copies
    """

    def __init__(
        self,
        sources: Sequence[torch.Tensor],
        announce: Callable[[int, torch.Tensor], None],
        room: Room,
    ) -> None:
        self._sources, self._announce, self.room = sources, announce, room
        self._copied = threading.Event()
        self._closes = False
        self._thread = threading.Thread(target=self._run, name="basin-copies", daemon=True)
        self._thread.start()

    def wait_copied(self) -> None:
        """Returns when the tensors may change."""
        self._copied.wait()

    def close(self) -> None:
        """Announces no more."""
        self._closes = True
        self._thread.join()

    def _run(self) -> None:
        try:
            for i, copy in enumerate(self._copy()):
                if self._closes:
                    return
                self._announce(i, copy)
        except Exception as error:  # Training continues.
            logger.error("cannot serve the state to joiners: %s", error)

    def _copy(self) -> list[torch.Tensor]:
        try:
            self.room.close()
            return [self._copy_of(source) for source in self._sources]
        finally:
            self._sources = ()
            self._copied.set()

    def _copy_of(self, source: torch.Tensor) -> torch.Tensor:
        copy = self.room.take(tensors.bytes_of(source))
        # It lets other threads of Python run, and uses no thread of torch's.
        ctypes.memmove(copy.data_ptr(), source.data_ptr(), copy.numel())
        return copy


def sum_of(parameters: Iterable[torch.Tensor]) -> int:
    """A checksum of 64 bits of all of them, in this order."""
    # Each tensor has its own odd factor, so that two that are exchanged differ.
    total = sum((2 * i + 1) * raw.checksum(each) for i, each in enumerate(parameters))
    return total & _MASK
