# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Handles of calls in progress."""

import itertools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from basin.arguments import seconds
from basin.errors import FailedPrecondition, OutcomeUnknown, Paused
from basin.notices import ContributorsChanged, warn
from basin.spec import Op
from basin.worker import PartedResult, RoundInfo

if TYPE_CHECKING:
    from basin import _abi
    from basin.client import Client

CALL_PREFIX = "call/"

T = TypeVar("T")


class Unnamed(NamedTuple):
    """A call without a name, in flight."""

    key: tuple[Op, str, tuple[tuple[int, tuple[int, ...]], ...]]
    parts: "list[_abi.Part]"


class Handle(Generic[T]):
    """An allreduce in progress. The library may read the array until the round has ended."""

    def __init__(
        self,
        client: "Client",
        lane: int,
        name: str,
        memory: object,
        output: "Callable[[Any], T]",
        over_all: bool,
    ) -> None:
        self._client = client
        self._lane = lane
        self.name = name  # For messages.
        # The key of the client's rounds in flight: `name`, unless the call has none.
        self._key: str | tuple[str, int] = name
        self._unnamed: Unnamed | None = None
        self._memory = memory  # Kept alive.
        self._make = output
        self._over_all = over_all
        # Whether a synchronous call has ended without the outcome: only the client holds the
        # handle.
        self._is_left = False
        # Why this worker's contribution was withdrawn.
        self._refusal: Exception | None = None
        self._output: T | None = None
        self._info: RoundInfo | None = None
        self._failed: Exception | None = None
        self._waiting = threading.RLock()  # Held by the thread that waits.

    @property
    def client(self) -> "Client":
        """The client that began the call."""
        return self._client

    @property
    def info(self) -> RoundInfo:
        """The facts of the round. Raises FailedPrecondition until it has ended."""
        if self._info is None:
            raise FailedPrecondition("The round has not ended. Wait for it before you read info.")
        return self._info

    def done(self) -> bool:
        """Whether wait() would return at once."""
        try:
            self.wait(0)
        except OutcomeUnknown:
            return False
        except Exception:
            return True  # wait() raises it again.
        return True

    def wait(self, timeout: float | None = None) -> T:
        """Returns the reduced array: a new one, of the same shape and dtype.

        Raises OutcomeUnknown after `timeout` seconds, and Paused if the job is paused; the round
        then continues, so wait again. If the round has failed, each call raises its error.
        """
        seconds("timeout", timeout)
        patience = -1 if timeout is None else min(timeout, threading.TIMEOUT_MAX)
        if not self._waiting.acquire(timeout=patience):
            raise OutcomeUnknown(f"Another thread waits for {self.name}. Wait again.")
        try:
            return self._wait(timeout)
        finally:
            self._waiting.release()

    def _wait(self, timeout: float | None) -> T:
        if self._failed is not None:
            raise self._failed
        if self._output is None:
            self._client.check_open("wait()")
            try:
                self._output = self._take(timeout)
            except (OutcomeUnknown, Paused):
                raise
            except Exception as error:
                self._failed = error
                self._client.ended(self)
                raise
            self._client.ended(self)
        return self._output

    def _take(self, timeout: float | None) -> T:
        result = self._client.worker.wait(self._lane, timeout)
        made = result if self._unnamed is None else PartedResult(result, self._unnamed.parts)
        self._info = made.info
        refusal = self._refusal or result.rejection
        if refusal is not None:
            raise refusal
        self._client.check_result(self._info)
        if self._over_all:
            self._compare_members(self._info)
        return self._make(made)

    def go_on(self) -> None:
        """What the other workers wait for is done also if no thread is in wait()."""

    def end_thread(self) -> None:
        """Returns when no thread of this handle uses the library. The client is closed, or the call
        was given up."""

    def _compare_members(self, info: RoundInfo) -> None:
        """Warns of a result without a part of every member: that of one has been refused, for
        example because its array has another shape. A worker that has finished, left or was lost is
        no member any more."""
        if info.trainers >= info.world_size:
            return
        counted = {*info.contributors, *itertools.chain(*info.contributor_reduced_with)}
        members = map(self._client.worker.member_id, range(info.world_size))
        missing = sorted({each for each in members if each} - counted)
        if not missing:
            return
        warn(
            f"The result of {self.name} is over {', '.join(info.contributors)} alone. The "
            f"contribution of {', '.join(missing)} is not in it: it was refused, and that worker "
            "has the error, or was withdrawn. If that is not what you want, do not use the result; "
            'warnings.simplefilter("error", basin.ContributorsChanged) makes this an error.',
            ContributorsChanged,
        )
