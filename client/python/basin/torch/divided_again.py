# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Warns a script that divides by the number of workers again."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from basin.spec import Op
from basin.worker import RoundInfo, logger

# How many parameters of each lane are compared at each step with the delivered gradients.
_SAMPLED_PARAMETERS = 4
# At how many steps those on a device are: a look waits for the device, and a script that divides
# does so from the first step on.
_STEPS_ON_DEVICE = 10


@dataclass
class _Element:
    """An element of a gradient, and its expected value if there was no unreported write: what was
    `delivered`, a copy that stays on the device, times a factor."""

    parameter: torch.Tensor
    index: int
    delivered: torch.Tensor
    factor: float = 1.0

    def value(self) -> float:
        return float(self.delivered) * self.factor

    def is_divided_by(self, divisor: float) -> bool:
        now, value = _element_of(self.parameter, self.index), self.value()
        rounding = 4 * torch.finfo(self.parameter.dtype).eps * abs(value)
        return now is not None and abs(float(now) * divisor - value) <= rounding


def _element_of(parameter: torch.Tensor, index: int) -> torch.Tensor | None:
    gradient = parameter.grad
    if gradient is None or gradient.layout != torch.strided or not gradient.is_contiguous():
        return None
    return gradient.detach().view(-1)[index]


class DividedAgain:
    """Compares a few elements of an average when it is delivered and when a step applies it, and
    warns once if they have become 1/N of it, or 1/D of a weighted average with the divisor D.
    basin.torch's clipping and gradient scalers report their factors through scaled().

    Gradients that were divided again and then clipped by torch cannot be distinguished from clipped
    ones, and are not detected. A script that divides .grad by the number of its micro-batches is
    correct with AVERAGE. If that number equals the number of workers, the two cases cannot be
    distinguished, and the warning mentions both.
    """

    def __init__(self, lane: str, op: Op) -> None:
        self._lane = lane
        self._op = op
        self._warned = False
        self._elements: list[_Element] = []
        self._steps_on_device = 0
        self._micro_batches = 0  # Since the last step.

    def delivered(self, parameters: Iterable[torch.Tensor], micro_batches: int) -> None:
        """Their .grad is now the result of a round with `micro_batches` of this worker."""
        self._elements = []
        self._micro_batches += micro_batches
        if self._warned or self._op == Op.SUM:
            return
        for parameter in itertools.islice(parameters, _SAMPLED_PARAMETERS):
            if not parameter.is_cpu and self._steps_on_device >= _STEPS_ON_DEVICE:
                continue
            for index in {0, parameter.numel() // 2, parameter.numel() - 1}:
                if (now := _element_of(parameter, index)) is not None:
                    self._elements.append(_Element(parameter, index, now.clone()))

    def scaled(self, parameter: torch.Tensor, factor: float) -> None:
        """Reports that .grad was multiplied by `factor` for another reason."""
        for element in self._elements:
            if element.parameter is parameter:
                element.factor *= factor

    def before_step(self, step: int, info: RoundInfo | None) -> None:
        elements, self._elements = self._elements, []
        micro_batches, self._micro_batches = self._micro_batches, 0
        self._steps_on_device += any(not element.delivered.is_cpu for element in elements)
        meaningful = sum(element.value() != 0.0 for element in elements)
        if info is None or meaningful < 2:
            return
        for divisor in {float(len(info.contributors)), float(info.trainers), info.divisor}:
            if divisor > 1 and all(element.is_divided_by(divisor) for element in elements):
                self._warn(step, info, divisor, micro_batches)
                return

    def _warn(self, step: int, info: RoundInfo, divisor: float, micro_batches: int) -> None:
        self._warned = True
        perhaps = ""
        if micro_batches == divisor and self._op == Op.AVERAGE:
            perhaps = (
                " If the script divides by the number of micro-batches, which is the same here, "
                "divide each loss by it instead of .grad to avoid this warning."
            )
        logger.warning(
            "divided again: the gradients that step %d applies are 1/%g of those that %s of lane "
            "%s has delivered, which were divided by %g already. Do not divide by the number of "
            "workers or by their counts, or use op=basin.Sum.%s",
            step,
            divisor,
            self._op.name,
            self._lane,
            info.divisor,
            perhaps,
        )
