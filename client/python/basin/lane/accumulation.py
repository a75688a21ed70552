# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The micro-batches whose gradients one round sends, their counts, and the positions of the epoch
that they were computed from."""

from basin.arguments import whole_number
from basin.errors import InvalidArgument
from basin.lane.ranges import Range
from basin.spec import Counts, Op, RoundSpec, Weight

# The advice to contribute sums instead of means.
AS_SUMS = {
    Weight.SAMPLES: 'Make each loss the sum over its samples, and use contributes="sum".',
    Weight.TOKENS: 'Make each loss the sum over its tokens, and use contributes="sum".',
    Weight.MICRO_BATCHES: (
        "Make each loss a mean, do not divide it by the length of the window, and use "
        'contributes="sum": the round divides by the micro-batches of all workers.'
    ),
}


def may_accumulate(spec: RoundSpec) -> bool:
    """Whether a window may have several micro-batches, whose gradients add up to a sum."""
    return spec.op != Op.WEIGHTED_AVERAGE or spec.contributes_sum


def check_passes(passes: object) -> None:
    """Raises InvalidArgument unless a window can have so many backwards."""
    if not whole_number(passes):
        raise InvalidArgument(
            f"backward_passes_per_step cannot be {passes!r}. Use a whole number from 1."
        )


class Accumulation:
    """The counts of a round's gradients. A count is known if it was given for each micro-batch."""

    def __init__(self) -> None:
        self.micro_batches = 0
        self.spoiled = False  # Whether it holds a part of a failed backward.
        self.positions: list[Range] = []
        # Samples of the batches that had a backward; others are in the positions only.
        self.handed = 0
        self._samples: int | None = None
        self._tokens: int | None = None

    def set_counts(self, samples: int | None, tokens: int | None) -> None:
        """Sets the counts of this single micro-batch, and replaces counts that were given before
        without a backward."""
        self._samples, self._tokens = samples, tokens

    def add(self, other: "Accumulation") -> None:
        def total(mine: int | None, more: int | None) -> int | None:
            return None if mine is None or more is None else mine + more

        if self.micro_batches == 0:
            self._samples, self._tokens = other._samples, other._tokens
        else:
            self._samples = total(self._samples, other._samples)
            self._tokens = total(self._tokens, other._tokens)
        self.micro_batches += other.micro_batches
        self.positions += other.positions
        self.handed += other.handed

    def is_empty(self) -> bool:
        """Whether it has neither a backward nor positions."""
        return self.micro_batches == 0 and not self.positions

    def is_full(self, spec: RoundSpec) -> bool:
        """Whether no other micro-batch may be added."""
        return self.micro_batches > 0 and not may_accumulate(spec)

    def check(
        self, spec: RoundSpec, accumulation: "Accumulation", owner: str, *, knows_samples: bool
    ) -> None:
        """Checks that a backward with these counts may be added to the accumulation of a weighted
        average.

        knows_samples: a sampler gives their number if the user does not
        """
        if spec.op != Op.WEIGHTED_AVERAGE:
            return
        if accumulation.is_full(spec):
            # For all counts, so that the error appears before data become uneven.
            raise InvalidArgument(
                'backward() would add a micro-batch to another one, but contributes="mean" allows '
                "only one: the sum of K means is K times too large, and if they are over unequal "
                "numbers, no weight recovers the mean over all. "
                f"{AS_SUMS[spec.weight_by]} The gradients accumulated before are unchanged: "
                f"sync_gradients() of {owner} sends them."
            )
        if spec.weight_by == Weight.SAMPLES and knows_samples:
            return
        if spec.weight_by != Weight.MICRO_BATCHES and self._count_of(spec.weight_by) is None:
            name = spec.weight_by.name.lower()
            raise InvalidArgument(
                f"Gradients are averaged by {name}, but their number in this backward is unknown. "
                f"Call contribute({name}=...) of {owner} before each backward(), with 0 if there "
                "are none."
            )

    def _count_of(self, weight: Weight) -> int | None:
        return self._samples if weight == Weight.SAMPLES else self._tokens

    def counts(self) -> Counts:
        if self.micro_batches == 0:
            return Counts(0, 0, 0)
        return Counts(self._samples, self._tokens, self.micro_batches)
