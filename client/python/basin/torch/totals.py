# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What all workers count together, before the backward."""

import zlib
from collections.abc import Mapping

import numpy as np

from basin.errors import InvalidArgument, Mismatch
from basin.spec import Counts, Op
from basin.torch.context import current


def total_counts(counts: Mapping[str, int], *, name: str = "counts") -> dict[str, int]:
    """The sums of these counts over all workers, by one small round before the backward.

    With op=basin.Sum a loss of several parts is exact for any split, each part with its own
    normaliser, when every worker divides its sums by the totals:

        totals = basin.torch.total_counts({"nsp": sentences, "mlm": masked})
        loss = nsp_loss.sum() / totals["nsp"] + mlm_loss.sum() / totals["mlm"]
        loss.backward()

    counts: whole numbers from 0, of this worker; the same names on all of them
    name:   of the round; another one for other names

    The next round of gradients should have the same contributors. When it has others, a worker was
    lost, say, each worker warns (basin.torch.ContributorsChanged) and names both sets; make it an
    error with warnings.simplefilter("error", basin.torch.ContributorsChanged).

    Raises Mismatch when a worker counts under other names.
    """
    names = sorted(counts)
    if not names:
        raise InvalidArgument("total_counts() was given no counts. Give it at least one.")
    # Compared by summing it: it has room for 2^31 workers.
    of_names = zlib.crc32("\n".join(names).encode())
    given = [Counts(samples=counts[each]).samples or 0 for each in names]
    here = current()
    handle = here.client.allreduce_async(np.array([*given, of_names]), f"total/{name}", op=Op.SUM)
    *sums, of_all = handle.wait(here.timeout).tolist()
    contributors = handle.info.contributors
    if of_all != of_names * len(contributors):
        raise Mismatch(
            f"total_counts() was called with {', '.join(names)} by this worker, and with other "
            "names by another one. Count under the same names on all workers."
        )
    for lane in here.lanes:
        lane.counted = contributors
    return dict(zip(names, sums))
