# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A contribution that came too late for its round, and is added to that of the next one.

With the late policy `carry`, the verdict of a round that went on without this worker says that its
contribution may be in the next one. Its gradients are copied before the result takes their place,
and are added to those of the next round when these are sent. They are in that round or in none:
what ends it otherwise than with a result that counts them, drops them.
"""

from dataclasses import dataclass
from typing import Any

from basin.lane.gradient import Gradient
from basin.lane.ranges import Range
from basin.spec import Counts, Op, RoundSpec


@dataclass(frozen=True)
class Deferred:
    """What is known of such a contribution, besides its gradients.

    spec:      that of its round, with its counts
    positions: those of the epoch that it was computed from, as yet committed by no round
    gradients: those of which it has one, which keep that until it is sent
    """

    spec: RoundSpec
    positions: tuple[Range, ...]
    gradients: tuple[Gradient[Any, Any], ...]

    @property
    def counts(self) -> Counts:
        return self.spec.counts

    def forget(self) -> None:
        """What was not sent is in no round."""
        for each in self.gradients:
            each.deferred = None


@dataclass(frozen=True)
class Shares:
    """By what the gradients of two contributions are multiplied before they are added up."""

    deferred: float = 1.0
    present: float = 1.0


def can_be_added(spec: RoundSpec) -> bool:
    """Whether a contribution to rounds of this spec can be added to another one: not an extreme or
    a product, and not where each tensor is divided by those who have sent it, because they are not
    the same in both."""
    return spec.op in (Op.SUM, Op.AVERAGE, Op.WEIGHTED_AVERAGE) and not spec.divide_by_present


def fits(deferred: Deferred, spec: RoundSpec) -> bool:
    """Whether what was computed for the one round can be added to what is sent in this one."""
    before = deferred.spec
    return (
        before.op == spec.op
        and before.weight_by == spec.weight_by
        and before.contributes_sum == spec.contributes_sum
        and before.loss_scale == spec.loss_scale
        and before.sample_epoch == spec.sample_epoch
    )


def sum_of(deferred: Counts, present: Counts) -> Counts:
    """The counts of both. One that is unknown in either is unknown."""

    def total(one: int | None, other: int | None) -> int | None:
        return None if one is None or other is None else one + other

    return Counts(
        total(deferred.samples, present.samples),
        total(deferred.tokens, present.tokens),
        total(deferred.micro_batches, present.micro_batches),
    )


def shares_of(deferred: RoundSpec, present: RoundSpec) -> Shares:
    """Sums are added up, and so are the gradients of an average, whose divisor counts both. The
    mean over all samples is that of two means, each by its share of the samples."""
    if present.op != Op.WEIGHTED_AVERAGE or present.contributes_sum:
        return Shares()
    earlier, now = deferred.weight_count or 0, present.weight_count or 0
    if earlier + now == 0:
        return Shares()  # The contribution is not read.
    return Shares(earlier / (earlier + now), now / (earlier + now))
