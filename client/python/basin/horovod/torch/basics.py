# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The start and the end of a worker, and its place among the others."""

import atexit
import sys
from collections.abc import Iterable
from typing import Any

import basin.torch
from basin import machine
from basin.errors import Unsupported
from basin.horovod import timeline
from basin.process_set import ProcessSet
from basin.torch import context

_ends_at_exit = False


def init(comm: Any = None, process_sets: Iterable[ProcessSet] | str | None = None) -> None:
    """Connects this process as a worker of its job. A second call does nothing.

    process_sets: sets that are added at once, as by add_process_set(); "dynamic" means that more
                  are added later, which is always possible

    When the script ends, the worker leaves its job as after shutdown(), unless an exception ends
    it: then it counts as lost. Raises Unsupported with ranks or a communicator of MPI, and
    ValueError with another word as process_sets.
    """
    global _ends_at_exit
    if comm is not None:
        raise Unsupported(
            "init() was given ranks or a communicator of MPI, which Basin does not use. Call it "
            "without them on all workers, and make sets of them with add_process_set()."
        )
    sets = _sets_of(process_sets)
    if basin.torch.is_initialized():
        return
    basin.torch.init(timeline=timeline.wanted())
    if not _ends_at_exit:
        _ends_at_exit = True
        atexit.register(_end)
    for each in sets:
        basin.torch.add_process_set(each)


def _sets_of(process_sets: Iterable[ProcessSet] | str | None) -> list[ProcessSet]:
    if not isinstance(process_sets, str):
        return list(process_sets or ())
    if process_sets.lower() != "dynamic":
        raise ValueError(
            f"init() was given process_sets={process_sets!r}. Give it a list of ProcessSet, or "
            '"dynamic".'
        )
    return []


def shutdown() -> None:
    """Leaves the job. A second call does nothing."""
    basin.torch.shutdown()


def _end() -> None:
    # The interpreter keeps the exception that has ended the script there.
    if getattr(sys, "last_value", None) is None:
        basin.torch.shutdown()


def is_initialized() -> bool:
    """Whether init() was called, and shutdown() was not."""
    return basin.torch.is_initialized()


def rank() -> int:
    """From 0 to size() - 1. Raises ValueError before init(), as all of these do."""
    _check("rank()")
    return basin.torch.rank()


def size() -> int:
    """The number of workers."""
    _check("size()")
    return basin.torch.size()


def local_rank() -> int:
    """The rank of this worker on its machine, from its launcher."""
    _check("local_rank()")
    return machine.local_rank()


def local_size() -> int:
    """The number of workers on this machine, from the launcher."""
    _check("local_size()")
    return machine.local_size()


def cross_rank() -> int:
    """The number of this worker's machine, from its launcher."""
    _check("cross_rank()")
    return machine.number()


def cross_size() -> int:
    """The number of machines, from the launcher."""
    _check("cross_size()")
    return machine.machines()


def is_homogeneous() -> bool:
    """Whether all machines have as many workers as this one."""
    _check("is_homogeneous()")
    return basin.torch.size() == machine.local_size() * machine.machines()


def _check(call: str) -> None:
    if not basin.torch.is_initialized():
        raise ValueError(f"{call} was called before init(). Call hvd.init() first.")


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Says that the timeline is wanted, which Basin writes from the start of a worker on: to
    BASIN_TIMELINE, or to HOROVOD_TIMELINE, if one of them is set.

    file_path, mark_cycles:
        not used

    Raises Unsupported, with the way out, if no timeline is written; ValueError before init().
    """
    _check_timeline("start_timeline()")


def stop_timeline() -> None:
    """Does nothing: a timeline ends with its worker. Raises as start_timeline() does."""
    _check_timeline("stop_timeline()")


def _check_timeline(call: str) -> None:
    _check(call)
    timeline.check_written(call, context.current().client)
