# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Process sets. Those that are added are sets of basin.torch; this file has the one of all."""

from collections.abc import Iterable
from typing import Any

import basin.torch
from basin.process_set import ProcessSet


class GlobalProcessSet:
    """All workers of the job."""

    process_set_id = 0

    @property
    def ranks(self) -> list[int]:
        """All ranks of the present generation."""
        return list(range(basin.torch.size()))

    def included(self) -> bool:
        """True: every worker is a member."""
        return True

    def size(self) -> int:
        """The number of workers."""
        return basin.torch.size()

    def rank(self) -> int:
        """The rank of this worker in the job."""
        return basin.torch.rank()

    def __repr__(self) -> str:
        return "GlobalProcessSet()"


global_process_set = GlobalProcessSet()
AnySet = ProcessSet | GlobalProcessSet


def basins(process_set: Any) -> ProcessSet | None:
    """The set as basin.torch takes it. Raises ValueError if it is none."""
    if process_set is None or isinstance(process_set, GlobalProcessSet):
        return None
    if not isinstance(process_set, ProcessSet):
        raise ValueError(
            f"process_set was given a {type(process_set).__name__}. Give it a ProcessSet that "
            "add_process_set() has returned, or global_process_set."
        )
    return process_set


def size_of(process_set: AnySet) -> int:
    return process_set.size()


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Makes a set of these ranks, in a call of all workers; see basin.torch.add_process_set()."""
    return basin.torch.add_process_set(process_set)


def remove_process_set(process_set: ProcessSet) -> bool:
    """Ends a set. Returns whether there was one to end; the global one cannot be ended."""
    if basins(process_set) is None:
        return False
    basin.torch.remove_process_set(process_set)
    return True
