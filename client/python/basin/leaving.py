# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""SIGTERM as a graceful leave. Kubernetes sends it when it removes a pod, and a script that is the
first process of its container ignores it without a handler."""

import contextlib
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from basin import client
from basin.errors import Error, FailedPrecondition, Paused

# What a shell reports for a process that SIGTERM has ended. A controller that sees it knows that
# the part of this process is not done.
EXIT_CODE = 128 + signal.SIGTERM


class Leaving:
    """True once SIGTERM has come; see leave_on_sigterm()."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._before: Any = None
        self._signalled = False
        self._stops = False

    def __bool__(self) -> bool:
        # A script that never sees the signal has done its part: the signal came after its last
        # look, for example while it saved its result.
        self._stops = self._stops or self._signalled
        return self._signalled

    def __enter__(self) -> "Leaving":
        if threading.current_thread() is not threading.main_thread():
            raise FailedPrecondition(
                "leave_on_sigterm() was used on a thread that gets no signals. Use it on the main "
                "thread."
            )
        self._before = signal.signal(signal.SIGTERM, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # None stands for a handler that Python cannot set again.
        signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)
        if not self._signalled:
            return
        if isinstance(error, Paused) or (error is None and self._stops):
            client.leave_all()
            raise SystemExit(EXIT_CODE) from None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            # A child after fork, such as a worker of a data loader, has the handler but no place in
            # the job. It ends as it would without the handler.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        self._signalled = True
        if not client.was_member():
            raise SystemExit(EXIT_CODE)  # No step has begun.
        with contextlib.suppress(Error):  # The next call of the script raises it.
            client.will_leave_all()


def leave_on_sigterm() -> Leaving:
    """After SIGTERM, this worker finishes its step and leaves its job; the others continue.

    with basin.leave_on_sigterm() as leaving:
        basin.torch.init()
        ...
        while state.step < steps and not leaving:
            ...  # backward(), optimizer.step()
        basin.torch.shutdown()

    The process ends with 143 (128 + SIGTERM) at the end of the block if the script has seen
    `leaving`, or if a wait of a paused job has ended, which raises Paused. It ends at once with 143
    if the signal comes before init() or connect() has returned, or before a late joiner is a
    member. After shutdown() or close() nothing is interrupted, for example while the script saves
    its result. SIGTERM kills children that were forked, such as workers of a data loader. Raises
    FailedPrecondition on another thread than the main one, which alone gets signals.
    """
    return Leaving()
