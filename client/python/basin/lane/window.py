# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Micro-batches whose gradients go with one round, and what is counted of them."""

from basin.errors import InvalidArgument
from basin.spec import Counts, Op, RoundSpec, Weight

# What to contribute instead of means.
AS_SUMS = {
    Weight.SAMPLES: 'Make each loss the sum over its samples, and say contributes="sum".',
    Weight.TOKENS: 'Make each loss the sum over its tokens, and say contributes="sum".',
    Weight.MICRO_BATCHES: (
        "Leave each loss a mean, do not divide it by the length of the window, and say "
        'contributes="sum": the round divides by the micro-batches of all workers.'
    ),
}


def may_accumulate(spec: RoundSpec) -> bool:
    """Whether a window may have several micro-batches: their gradients add up to a sum, no mean."""
    return spec.op != Op.WEIGHTED_AVERAGE or spec.contributes_sum


class Window:
    """What the gradients of a round are made of. A count is known when it was told for each
    micro-batch."""

    def __init__(self) -> None:
        self.micro_batches = 0
        self.spoiled = False  # It holds a part of a backward that has failed.
        self._samples: int | None = None
        self._tokens: int | None = None

    def tell(self, samples: int | None, tokens: int | None) -> None:
        """What is known of the one micro-batch that this is. What was told before of one that never
        came to a backward is forgotten."""
        self._samples, self._tokens = samples, tokens

    def add(self, other: "Window") -> None:
        def total(mine: int | None, more: int | None) -> int | None:
            return None if mine is None or more is None else mine + more

        if self.micro_batches == 0:
            self._samples, self._tokens = other._samples, other._tokens
        else:
            self._samples = total(self._samples, other._samples)
            self._tokens = total(self._tokens, other._tokens)
        self.micro_batches += other.micro_batches

    def is_full(self, spec: RoundSpec) -> bool:
        """Whether it takes no other micro-batch."""
        return self.micro_batches > 0 and not may_accumulate(spec)

    def check(self, spec: RoundSpec, window: "Window", owner: str) -> None:
        """Whether a backward of these counts may be added to the window of a weighted average."""
        if spec.op != Op.WEIGHTED_AVERAGE:
            return
        if window.is_full(spec):
            # Whatever the counts: a script would run until its data are uneven.
            raise InvalidArgument(
                'backward() was to add a micro-batch to another one, and contributes="mean" is for '
                "windows of one: the sum of K means is K times too large, and when they are over "
                "unequal numbers, no weight makes the mean over all out of it. "
                f"{AS_SUMS[spec.weight_by]} What was accumulated before is unchanged: "
                f"sync_gradients() of {owner} sends it."
            )
        if spec.weight_by != Weight.MICRO_BATCHES and self._count_of(spec.weight_by) is None:
            name = spec.weight_by.name.lower()
            raise InvalidArgument(
                f"Gradients are averaged by {name}, and nobody has said how many the backward is "
                f"made of. Call contribute({name}=...) of {owner} before each backward(), with 0 "
                "when there are none."
            )

    def _count_of(self, weight: Weight) -> int | None:
        return self._samples if weight == Weight.SAMPLES else self._tokens

    def counts(self) -> Counts:
        if self.micro_batches == 0:
            return Counts(0, 0, 0)
        return Counts(self._samples, self._tokens, self.micro_batches)
