# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Tracks whether .grad still holds the result of a round, and the norm of that result."""

import weakref
from dataclasses import dataclass

import torch


@dataclass
class _Result:
    """
    gradient:     the .grad that holds the result; it is not kept alive
    version:      the version of its memory, which a write increases
    sample:       a few of its elements, because a write through .data does not change the version
    squared_norm: the squared norm of the present gradient
    """

    gradient: weakref.ref[torch.Tensor]
    version: int
    sample: torch.Tensor
    squared_norm: float

    def is_in(self, gradient: torch.Tensor | None) -> bool:
        return (
            gradient is not None
            and self.gradient() is gradient
            and gradient._version == self.version
            and torch.equal(_bits(_sample(gradient)), _bits(self.sample))
        )


class Delivered:
    """The results of a lane's last rounds. A result is forgotten after the first write to it that
    is not reported here."""

    def __init__(self) -> None:
        self._results: dict[torch.Tensor, _Result] = {}

    def put(self, parameter: torch.Tensor, squared_norm: float) -> None:
        """Records that the parameter's .grad is a result with this squared norm."""
        gradient = parameter.grad
        assert gradient is not None
        self._results[parameter] = _Result(
            weakref.ref(gradient), gradient._version, _sample(gradient), squared_norm
        )

    def drop(self, parameter: torch.Tensor) -> None:
        self._results.pop(parameter, None)

    def clear(self) -> None:
        self._results.clear()

    def squared_norm(self, parameter: torch.Tensor) -> float | None:
        """The squared norm of .grad; None if it is not the result of one round."""
        result = self._results.get(parameter)
        return result.squared_norm if result and result.is_in(parameter.grad) else None

    def scale(self, parameter: torch.Tensor, factor: float) -> None:
        """Reports that .grad, whose norm is known, was just multiplied by `factor`."""
        result, gradient = self._results[parameter], parameter.grad
        assert gradient is not None
        result.version, result.sample = gradient._version, _sample(gradient)
        result.squared_norm *= factor * factor


def _sample(gradient: torch.Tensor) -> torch.Tensor:
    """The first, a middle and the last element of its memory, which must have no gaps."""
    stride = (gradient.numel() - 1) // 2
    return gradient.detach().as_strided((3,), (stride,), gradient.storage_offset()).clone()


def _bits(sample: torch.Tensor) -> torch.Tensor:
    return sample.view(torch.uint8)  # NaN equals itself.
