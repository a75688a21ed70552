# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The priority of threads that work beside the training."""

import contextlib
import os
import threading

_LOWEST = 19  # The nice value.


def lower() -> None:
    """From now on the calling thread only gets what other threads leave of the processors. Linux
    lets nobody take that back without a privilege, so it is for threads that end."""
    with contextlib.suppress(OSError):  # A sandbox may forbid it; then the thread only costs more.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)
