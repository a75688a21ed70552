# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A worker that is to leave: by a call, a signal, a notice in a file or at a URL, or an operator.

The script sees it at the end of its step, and calls shutdown(). If the notice is over before that,
the thread that trains gets NoticeOver wherever it is: an open round is withdrawn, and the process
ends.

Threads. will_leave() may be called by any thread and by a signal handler, also in the middle of
another call. A thread of this module looks at the notice and at the time.
"""

import contextlib
import ctypes
import http.client
import math
import os
import queue
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from types import FrameType
from typing import Any

from basin import client
from basin.arguments import number_of
from basin.errors import Error, FailedPrecondition, InvalidArgument
from basin.notices import logger

_POLL_SECONDS = 1.0
# The last part of a notice, in which the process ends without having finished its step.
_RESERVE = 0.5
_MOST_RESERVE_SECONDS = 5.0


class NoticeOver(SystemExit):
    """The time until this worker has to be gone is over, and its step is not. A script that does
    not catch it ends with 0."""

    def __init__(self) -> None:
        super().__init__(0)


class Leave:
    """True once this worker is to leave.

    leave_on: signals after which it leaves
    notice:   a path or a URL that exists once it is to leave; None: neither
    seconds:  from the signal or the notice until the process has to be gone; None: unknown
    """

    def __init__(
        self, leave_on: Iterable[int], notice: str | os.PathLike[str] | None, seconds: float | None
    ) -> None:
        self._seconds = None if seconds is None else _time("notice_seconds", seconds)
        self._notice = None if notice is None else os.fspath(notice)
        self._process = os.getpid()
        self._leaving = False
        self._member: client.Client | None = None
        # How long the process may still be there, in seconds; None: the worker has left.
        # A SimpleQueue may be used by a signal handler that has interrupted another use of it.
        self._told: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        self._trains = 0  # The thread that trains.
        self._closing = threading.Lock()
        self._closed = False
        self.over = False  # Whether its time is over, and its step is not.
        self._before: dict[int, Any] = {}
        signals = list(leave_on)
        if signals and threading.current_thread() is not threading.main_thread():
            raise FailedPrecondition(
                "init(leave_on=...) was used on a thread that gets no signals. Use it on the main "
                "thread."
            )
        for number in signals:
            self._before[number] = signal.signal(number, self._on_signal)

    def begin(self, member: client.Client) -> None:
        """This process has a worker, which the calling thread trains."""
        self._member = member
        self._trains = threading.get_ident()
        threading.Thread(target=self._watch, name="basin-leave", daemon=True).start()

    def close(self) -> None:
        """The worker leaves now. Signals are handled as before init()."""
        with self._closing:
            self._closed = True
        self._told.put(None)
        for number, handler in self._before.items():
            # None stands for a handler that Python cannot set again.
            with contextlib.suppress(ValueError):  # On another thread than that of init().
                signal.signal(number, handler or signal.SIG_DFL)
        self._before.clear()

    def __bool__(self) -> bool:
        if not self._leaving and not self._closed and self._member is not None:
            with contextlib.suppress(Error):  # The next call of the script raises it.
                # Another thread may have set it meanwhile, and it stays so.
                if self._member.worker.place().draining:
                    self._leaving = True
        return self._leaving

    def will_leave(self, by: float | None) -> None:
        """See basin.torch.will_leave()."""
        seconds = math.inf if by is None else _time("by", by)
        assert self._member is not None
        self._member.will_leave(ends_well=by is not None)
        self._leaving = True
        self._told.put(seconds)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            # A child after fork has the handler but no place in the job.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if self.over:
            raise NoticeOver
        if self._member is None or not client.was_member():
            raise SystemExit(0)  # No step has begun.
        self._leave_after_notice()

    def _leave_after_notice(self) -> None:
        with contextlib.suppress(Error):  # The next call of the script raises it.
            self.will_leave(self._seconds)
            if self._member is not None:
                self._member.ends_well = True

    # ---- the thread

    def _watch(self) -> None:
        interrupt, leave = math.inf, math.inf  # When, as monotonic times.
        while True:
            polls = self._notice is not None and not self._leaving
            until = min(interrupt, leave, time.monotonic() + _POLL_SECONDS if polls else math.inf)
            left = None if until == math.inf else max(0.0, until - time.monotonic())
            with contextlib.suppress(queue.Empty):
                seconds = self._told.get(timeout=left)
                if seconds is None:
                    return
                reserve = min(_RESERVE * seconds, _MOST_RESERVE_SECONDS)
                interrupt = min(interrupt, time.monotonic() + seconds - reserve)
                leave = min(leave, time.monotonic() + seconds - reserve / 2)
            if polls and self._is_noticed():
                logger.warning("%s says that this worker has to leave", self._notice)
                self._leave_after_notice()
            if time.monotonic() >= interrupt:
                interrupt = math.inf
                self._interrupt()
            if time.monotonic() >= leave:
                self._leave_for_the_script()
                return

    def _is_noticed(self) -> bool:
        assert self._notice is not None
        if "://" not in self._notice:
            return os.path.exists(self._notice)
        request = urllib.request.Request(self._notice, headers={"Metadata-Flavor": "Google"})
        try:
            with urllib.request.urlopen(request, timeout=_POLL_SECONDS) as answer:
                text = answer.read(100).decode(errors="replace").strip().upper()
        except (OSError, urllib.error.URLError, ValueError, http.client.HTTPException):
            return False  # Most of these have no page until the notice comes.
        return text not in ("", "FALSE", "NONE")

    def _interrupt(self) -> None:
        with self._closing:
            if self._closed:
                return
            self.over = True
            logger.warning(
                "the notice of this worker is over, and its step is not: its round goes on without "
                "it, and the process ends"
            )
            mine = next(iter(self._before), None)
            if mine is not None and self._trains == threading.main_thread().ident:
                signal.pthread_kill(self._trains, mine)  # It also ends a system call.
            else:
                error, thread = ctypes.py_object(NoticeOver), ctypes.c_ulong(self._trains)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, error)

    def _leave_for_the_script(self) -> None:
        """The script has not ended, for example because it waits for its disk. The others shall not
        wait for it."""
        with self._closing:
            if self._closed or self._member is None:
                return
            with contextlib.suppress(Error):
                self._member.leave_job(finished=True)


def _time(argument: str, value: object) -> float:
    number = number_of(value)
    if not 0 <= number < math.inf:
        raise InvalidArgument(f"{argument} cannot be {value!r}. Use a number of seconds.")
    return number
