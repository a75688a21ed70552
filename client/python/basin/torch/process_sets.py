# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Process sets of basin.torch."""

from collections.abc import Iterable

from basin.errors import InvalidArgument
from basin.process_set import ProcessSet
from basin.torch.context import member


def add_process_set(ranks: ProcessSet | Iterable[int]) -> ProcessSet:
    """Makes a set of workers that call each other, while the job runs. All workers of the job call
    it, also those that are not in the set, with the same ranks.

        evens = basin.torch.add_process_set([0, 2])
        if evens.included():
            total = basin.torch.allreduce(x, op=basin.torch.Sum, process_set=evens)

    ranks: of the present generation; the set is of the workers that have them now, whatever ranks
           they have later

    Only its members make calls of the set. Once one has left or was lost, calls of the set raise
    Unavailable on the others, which names both: add another one. Each set is a job of its own at
    the aggregator, `<job>-set-<number>`: a worker's token must allow it, as one of `<job>*` does,
    and it counts in limits.jobs. Raises Mismatch, on all workers, if the ranks differ.
    """
    here = member("add_process_set()")
    added = ranks if isinstance(ranks, ProcessSet) else ProcessSet(ranks)
    added.add(here.client, here.timeout)
    here.process_sets.append(added)
    return added


def remove_process_set(process_set: ProcessSet) -> None:
    """Ends a set. All its members call it, and others may. shutdown() does it as well."""
    if not isinstance(process_set, ProcessSet):
        raise InvalidArgument(
            f"remove_process_set() was given a {type(process_set).__name__}. Give it what "
            "add_process_set() returned."
        )
    process_set.close()
