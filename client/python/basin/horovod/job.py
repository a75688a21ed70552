# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The start and the end of a worker, and its place among the others, for the frameworks besides
PyTorch. There is one worker in a process, because Horovod's calls name none."""

import atexit
import sys
from typing import Any

from basin import machine
from basin.client import Client, connect
from basin.errors import Unsupported
from basin.horovod import timeline

_client: Client | None = None
_ends_at_exit = False


class GlobalProcessSet:
    """All workers of the job."""

    process_set_id = 0

    @property
    def ranks(self) -> list[int]:
        """All ranks of the present generation."""
        return list(range(size()))

    def included(self) -> bool:
        """True: every worker is a member."""
        return True

    def size(self) -> int:
        """The number of workers."""
        return size()

    def rank(self) -> int:
        """The rank of this worker in the job."""
        return rank()

    def __repr__(self) -> str:
        return "GlobalProcessSet()"


global_process_set = GlobalProcessSet()


def check_global(call: str, process_set: Any) -> None:
    """Raises Unsupported for a set of some workers."""
    if not (process_set is None or isinstance(process_set, GlobalProcessSet)):
        raise Unsupported(
            f"{call} was given {process_set!r} as process_set. Calls on some of the workers are "
            "there for PyTorch only: omit it, or start these workers as a job of their own."
        )


def add_process_set(process_set: Any) -> Any:
    """Raises Unsupported: see check_global()."""
    check_global("add_process_set()", process_set)
    return global_process_set


def remove_process_set(process_set: Any) -> bool:
    """False: only the set of all workers is there, which cannot be ended."""
    return False


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Connects this process as a worker of its job. A second call does nothing.

    When the script ends, the worker leaves its job as after shutdown(), unless an exception ends
    it: then it counts as lost. Raises Unsupported with ranks or a communicator of MPI, and with
    process sets.
    """
    global _client, _ends_at_exit
    if comm is not None:
        raise Unsupported(
            "init() was given ranks or a communicator of MPI, which Basin does not use. Call it "
            "without them on all workers."
        )
    if process_sets:
        check_global("init()", process_sets)
    if is_initialized():
        return
    _client = connect(timeline=timeline.wanted())
    if not _ends_at_exit:
        _ends_at_exit = True
        atexit.register(_end)


def shutdown() -> None:
    """Leaves the job. A second call does nothing."""
    global _client
    ended, _client = _client, None
    if ended is not None:
        ended.close()


def _end() -> None:
    # The interpreter keeps the exception that has ended the script there.
    if getattr(sys, "last_value", None) is None:
        shutdown()


def is_initialized() -> bool:
    """Whether init() was called, and shutdown() was not."""
    return _client is not None and not _client.is_closed


def current(call: str) -> Client:
    """The worker of this process. Raises ValueError before init()."""
    if _client is None:
        raise ValueError(f"{call} was called before init(). Call hvd.init() first.")
    return _client


def rank() -> int:
    """From 0 to size() - 1. Raises ValueError before init(), as all of these do."""
    return current("rank()").rank


def size() -> int:
    """The number of workers."""
    return current("size()").world_size


def local_rank() -> int:
    """The rank of this worker on its machine, from its launcher."""
    current("local_rank()")
    return machine.local_rank()


def local_size() -> int:
    """The number of workers on this machine, from the launcher."""
    current("local_size()")
    return machine.local_size()


def cross_rank() -> int:
    """The number of this worker's machine, from its launcher."""
    current("cross_rank()")
    return machine.number()


def cross_size() -> int:
    """The number of machines, from the launcher."""
    current("cross_size()")
    return machine.machines()


def is_homogeneous() -> bool:
    """Whether all machines have as many workers as this one."""
    return size() == machine.local_size() * machine.machines()


def barrier(process_set: Any = global_process_set) -> None:
    """Returns when every worker has called it."""
    check_global("barrier()", process_set)
    current("barrier()").barrier()


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Says that the timeline is wanted, which Basin writes from the start of a worker on: to
    BASIN_TIMELINE, or to HOROVOD_TIMELINE, if one of them is set.

    file_path, mark_cycles:
        not used

    Raises Unsupported, with the way out, if no timeline is written; ValueError before init().
    """
    call = "start_timeline()"
    timeline.check_written(call, current(call))


def stop_timeline() -> None:
    """Does nothing: a timeline ends with its worker. Raises as start_timeline() does."""
    call = "stop_timeline()"
    timeline.check_written(call, current(call))
