# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Totals of counts over all workers, before the backward."""

import zlib
from collections.abc import Mapping

import numpy as np
import torch

from basin import _abi
from basin.arguments import string_of, whole_number
from basin.errors import InvalidArgument, Mismatch
from basin.handle import CALL_PREFIX
from basin.spec import LARGEST_COUNT, Op, RoundSpec
from basin.torch.context import member
from basin.worker import Result, TensorSpec

_MOST_NAMES = 63


def total_counts(
    counts: Mapping[str, int], *, name: str = "counts", for_gradients: bool = True
) -> dict[str, int]:
    """Returns the sums of these counts over all workers, by one small round before the backward.

    With op=basin.Sum, a loss of several parts, each with its own normaliser, is exact for any split
    of the data if every worker divides its sums by the totals:

        totals = basin.torch.total_counts({"nsp": sentences, "mlm": masked})
        nsp_part = nsp_losses.sum() / max(1, totals["nsp"])  # 0 / 1 if the total is 0.
        mlm_part = mlm_losses.sum() / max(1, totals["mlm"])
        (nsp_part + mlm_part).backward()

    counts: this worker's counts, whole numbers from 0; at most 63, with the same names on all
            workers
    name:   the name of the round; use a different one for different names of counts
    for_gradients:
            False, or a call under torch.no_grad(), if no gradients are divided by the totals, for
            example in an evaluation

    The next round of gradients should have the same contributors. If they differ, for example
    because a worker was lost, each worker issues the warning basin.torch.ContributorsChanged with
    both sets; warnings.simplefilter("error", basin.torch.ContributorsChanged) makes it an error.

    Raises Mismatch if a worker's counts have different names. After OutcomeUnknown or Paused the
    round continues: another call waits for the same round, with the counts given first.
    """
    here = member("total_counts()")
    string_of("name", name)
    if not isinstance(counts, Mapping) or not all(isinstance(each, str) for each in counts):
        raise InvalidArgument("total_counts() takes a mapping of names to numbers: {'mlm': 512}.")
    names = sorted(counts)
    if not 0 < len(names) <= _MOST_NAMES:
        raise InvalidArgument(
            f"total_counts() was given {len(names)} counts. Give it 1 to {_MOST_NAMES}."
        )
    sent = np.zeros(_MOST_NAMES + 1, np.int64)
    sent[: len(names)] = [_whole(each, counts[each]) for each in names]
    # A hash of the names, compared through its sum, which has room for 2^31 workers.
    sent[-1] = of_names = zlib.crc32("\n".join(names).encode())

    def output(result: Result) -> list[int]:
        received = np.empty_like(sent)
        result.copy(0, received.ctypes.data, received.nbytes)
        totals: list[int] = received.tolist()
        return totals

    called = f"total/{name}"
    tensor = TensorSpec(called, _abi.I64, sent.shape)
    handle = here.client.start(
        CALL_PREFIX + called,
        [(tensor, sent.ctypes.data, sent.nbytes)],
        sent,
        output,
        RoundSpec(Op.SUM),
        goes_on=True,
    )
    *sums, of_all = here.client.complete(handle, here.timeout)
    contributors = handle.info.contributors
    if of_all != of_names * len(contributors):
        raise Mismatch(
            f"total_counts() was called with {', '.join(names)} by this worker, and with different "
            "names by another one. Use the same names on all workers."
        )
    if for_gradients and torch.is_grad_enabled():
        for lane in here.lanes:
            lane.rounds.counted = contributors
    return dict(zip(names, sums))


def _whole(name: str, count: int) -> int:
    whole = whole_number(count)
    if whole is None or whole > LARGEST_COUNT:
        raise InvalidArgument(
            f"total_counts() was given {count!r} for {name}. Give a whole number from 0 to 2^48; "
            "an unknown count has no total."
        )
    return whole
