# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Handles of asynchronous calls."""

from collections.abc import Callable
from typing import Any

import basin.torch
from basin.handle import Handle


class Pending:
    """A call in progress: calls of Basin, and what makes the output of their results."""

    def __init__(
        self, handles: list[Handle[Any]], finish: Callable[[list[Handle[Any]], list[Any]], Any]
    ) -> None:
        self._handles = handles
        self._finish = finish
        self._output: tuple[Any] | None = None

    def done(self) -> bool:
        return self._output is not None or all(map(basin.torch.poll, self._handles))

    def wait(self) -> Any:
        if self._output is None:
            received = [basin.torch.synchronize(handle) for handle in self._handles]
            self._output = (self._finish(self._handles, received),)
        return self._output[0]

    def then(self, change: Callable[[Any], Any]) -> "Pending":
        """The same call, whose output is made of this one's."""
        before = self._finish
        return Pending(self._handles, lambda begun, received: change(before(begun, received)))


def of(handle: Handle[Any], finish: Callable[[Any], Any] = lambda received: received) -> Pending:
    """The call of one handle, whose result `finish` turns into the output."""
    return Pending([handle], lambda _, received: finish(received[0]))


def poll(handle: Pending) -> bool:
    """Whether synchronize() would return at once."""
    return _checked("poll()", handle).done()


def synchronize(handle: Pending) -> Any:
    """Waits for an asynchronous call, and returns its output. Another call with the same handle
    returns the same output."""
    return _checked("synchronize()", handle).wait()


def _checked(call: str, handle: Pending) -> Pending:
    if not isinstance(handle, Pending):
        raise ValueError(
            f"{call} was given a {type(handle).__name__}. Give it what an asynchronous call, such "
            "as allreduce_async(), has returned."
        )
    return handle
