# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Micro-batches whose gradients go with one round, and what is counted of them."""

from basin.errors import InvalidArgument
from basin.spec import Counts, Op, RoundSpec, Weight


class Window:
    """What the gradients of a round are made of. A count is known when it was told for each
    micro-batch."""

    def __init__(self) -> None:
        self.micro_batches = 0
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

    def check(self, spec: RoundSpec, window: "Window", owner: str) -> None:
        """Whether a backward of these counts may be added to the window of a weighted average."""
        if spec.op != Op.WEIGHTED_AVERAGE or spec.weight_by == Weight.MICRO_BATCHES:
            return
        name = spec.weight_by.name.lower()
        count, total = self._count_of(spec.weight_by), window._count_of(spec.weight_by)
        if count is None:
            raise InvalidArgument(
                f"Gradients are averaged by {name}, and nobody has said how many the backward is "
                f"made of. Call contribute({name}=...) of {owner} before each backward(), with 0 "
                "when there are none."
            )
        if spec.contributes_sum or window.micro_batches == 0:
            return
        if total != count * window.micro_batches:
            raise InvalidArgument(
                f"Micro-batches of {count} and of other numbers of {name} are accumulated, each "
                "with the gradient of a mean. No weight makes the mean over all of them out of "
                "their sum: the smaller ones would count too much. Make each loss the sum over its "
                f'{name} and say contributes="sum", or send each by a backward of its own.'
            )

    def _count_of(self, weight: Weight) -> int | None:
        return self._samples if weight == Weight.SAMPLES else self._tokens

    def counts(self) -> Counts:
        if self.micro_batches == 0:
            return Counts(0, 0, 0)
        return Counts(self._samples, self._tokens, self.micro_batches)
