# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Tells a script that divides by the number of workers that its gradients were divided already."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from basin.spec import Op
from basin.worker import RoundInfo, logger

# Of each lane, compared at each step with what was delivered.
_SAMPLED_PARAMETERS = 4


@dataclass
class _Element:
    """One of a gradient, and what it has to be now unless somebody has written to it."""

    parameter: torch.Tensor
    index: int
    value: float

    def now(self) -> float | None:
        gradient = self.parameter.grad
        if gradient is None or not gradient.is_contiguous():
            return None
        return float(gradient.view(-1)[self.index])

    def is_divided_by(self, divisor: float) -> bool:
        now = self.now()
        rounding = 4 * torch.finfo(self.parameter.dtype).eps * abs(self.value)
        return now is not None and abs(now * divisor - self.value) <= rounding


class DividedAgain:
    """Compares a few elements of an average when it is delivered and when a step applies it, and
    warns once when they have become 1/N, or 1/D of a weighted one with the divisor D. What
    basin.torch's clipping and gradient scalers multiply is told.

    Gradients that were divided again and clipped by torch after that are 1/N no more, but any
    fraction, as those that were clipped alone are: this is not seen. A script that divides .grad by
    the number of its micro-batches is right with AVERAGE, and when they are as many as the workers,
    nobody can tell: the warning says both.
    """

    def __init__(self, lane: str, op: Op) -> None:
        self._lane = lane
        self._op = op
        self._warned = False
        self._elements: list[_Element] = []
        self._micro_batches = 0  # Since the last step.

    def delivered(self, parameters: Iterable[torch.Tensor], micro_batches: int) -> None:
        """Their .grad is now what a round of so many micro-batches of this worker has come to."""
        self._elements = []
        self._micro_batches += micro_batches
        if self._warned or self._op == Op.SUM:
            return
        for parameter in itertools.islice(parameters, _SAMPLED_PARAMETERS):
            for index in {0, parameter.numel() // 2, parameter.numel() - 1}:
                element = _Element(parameter, index, 0.0)
                if (now := element.now()) is not None:
                    element.value = now
                    self._elements.append(element)

    def scaled(self, parameter: torch.Tensor, factor: float) -> None:
        """Somebody has multiplied .grad, for a reason that is no division by the workers."""
        for element in self._elements:
            if element.parameter is parameter:
                element.value *= factor

    def before_step(self, step: int, info: RoundInfo | None) -> None:
        elements, self._elements = self._elements, []
        micro_batches, self._micro_batches = self._micro_batches, 0
        told = sum(element.value != 0.0 for element in elements)
        if info is None or told < 2:
            return
        for divisor in {float(len(info.contributors)), info.divisor}:
            if divisor > 1 and all(element.is_divided_by(divisor) for element in elements):
                self._warn(step, info, divisor, micro_batches)
                return

    def _warn(self, step: int, info: RoundInfo, divisor: float, micro_batches: int) -> None:
        self._warned = True
        perhaps = ""
        if micro_batches == divisor and self._op == Op.AVERAGE:
            perhaps = (
                " Unless it was by the number of micro-batches, which is the same here: then "
                "divide each loss by it instead of .grad, so that it is not taken for this."
            )
        logger.warning(
            "divided again: the gradients that step %d applies are 1/%g of what %s of lane %s has "
            "delivered, which was divided by %g already. Do not divide by the number of workers, "
            "nor by what they have counted, or use op=basin.Sum.%s",
            step,
            divisor,
            self._op.name,
            self._lane,
            info.divisor,
            perhaps,
        )
