# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Ends all processes of a system, also those in sessions of their own whose parent was killed.

torchrun starts each worker in a session of its own, so no signal to a process group reaches all of
them, and what it had started lives on when it is killed. The process that calls adopt_orphans()
becomes the parent of such processes, so that everything that it has started stays below it.
"""

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections import defaultdict
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_LOOK_EVERY = 0.02  # Seconds.


def adopt_orphans() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def parent_in(stat: str) -> int:
    """The parent in the text of /proc/PID/stat, in which the name may have spaces and brackets."""
    return int(stat.rpartition(")")[2].split()[1])


def below(root: int, parents: dict[int, int]) -> list[int]:
    """The processes that descend from this one, parents before children."""
    children = defaultdict(list)
    for process, parent in parents.items():
        children[parent].append(process)
    found = [root]
    for process in found:
        found.extend(children[process])
    return found[1:]


def descendants(root: int) -> list[int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # It has ended meanwhile.
            parents[int(path.parent.name)] = parent_in(path.read_text())
    return below(root, parents)


def kill_with_descendants(process: int) -> None:
    """As the end of a container does: all at once."""
    for each in [process, *descendants(process)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def end_descendants(limit: float = 30) -> None:
    """Kills and reaps all that descend from this process. REQUIRES: adopt_orphans()"""
    end = time.monotonic() + limit
    while processes := descendants(os.getpid()):
        if time.monotonic() > end:
            raise RuntimeError(f"these processes do not end after SIGKILL: {processes}")
        for each in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):  # Not yet a child of this process.
                os.waitpid(each, os.WNOHANG)
        threading.Event().wait(_LOOK_EVERY)
