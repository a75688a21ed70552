# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What a call of torch.distributed returns: something to wait for, or a future."""

import threading
import time
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from basin.errors import OutcomeUnknown
from basin.handle import Handle
from basin.torch.backend.membership import seconds_of
from basin.worker import SLICE_SECONDS

Tensors = list[torch.Tensor]


class Waiters:
    """The threads that wait for futures, one for each: a callback of a future may wait for another
    one, so no thread can do it for several."""

    def __init__(self) -> None:
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self.is_closed = False

    def start(self, wait: Any) -> None:
        def run() -> None:
            try:
                wait()
            finally:
                with self._lock:
                    self._threads.discard(threading.current_thread())

        thread = threading.Thread(target=run, name="basin future", daemon=True)
        with self._lock:
            self._threads.add(thread)
        thread.start()

    def close(self) -> None:
        """Ends the threads; a future without an outcome fails then."""
        self.is_closed = True
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()


class BasinWork(Work):
    """A call in progress."""

    def __init__(
        self, handle: Handle[Tensors], waiters: Waiters, default_timeout: float | None
    ) -> None:
        super().__init__()
        self._handle = handle
        self._waiters = waiters
        self._timeout = default_timeout
        self._future: Any = None
        self._making = threading.Lock()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Returns True when the tensors have the result. Raises OutcomeUnknown after `timeout`, by
        default that of the group; wait again."""
        self._handle.wait(seconds_of(timeout) or self._timeout)
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self._handle.done()

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> Exception | None:
        """The error of the call, when it has ended with one."""
        if not self.is_completed():
            return None
        try:
            self._handle.wait(0)
        except Exception as error:
            return error
        return None

    def result(self) -> Tensors:
        """The tensors that have the result."""
        return self._handle.wait(self._timeout)

    def get_future(self) -> Any:
        """A future of the tensors that have the result."""
        with self._making:
            if self._future is None:
                ended: Any = torch.futures.Future()
                # An error that is set in Python is a value for torch's own code; one that a
                # callback raises is an error.
                self._future = ended.then(lambda _: self._handle.wait(0))

                def wait() -> None:
                    self._wait_until_ended()
                    ended.set_result(None)

                self._waiters.start(wait)
            return self._future

    def _wait_until_ended(self) -> None:
        end = None if self._timeout is None else time.monotonic() + self._timeout
        while not self._waiters.is_closed:
            try:
                self._handle.wait(SLICE_SECONDS)
                return
            except OutcomeUnknown:
                if end is not None and time.monotonic() > end:
                    return
            except Exception:
                return  # The future has it.
