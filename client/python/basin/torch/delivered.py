# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Whether .grad still holds what a round has put there, and the norm that the round told of it."""

import weakref
from dataclasses import dataclass

import torch


@dataclass
class _Result:
    """
    gradient:     where it was put; it is not kept alive
    version:      of its memory; a write to it makes another one
    sample:       a few of its elements, because a write through .data does not
    squared_norm: of the gradient as it is now
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
    """The results of a lane's last rounds. What is known of one ends with the first write to it
    that nobody tells."""

    def __init__(self) -> None:
        self._results: dict[torch.Tensor, _Result] = {}

    def put(self, parameter: torch.Tensor, squared_norm: float) -> None:
        """The parameter's .grad is a result of this squared norm, and nothing else."""
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
        """Of .grad; None when it is not the result of one round."""
        result = self._results.get(parameter)
        return result.squared_norm if result and result.is_in(parameter.grad) else None

    def scale(self, parameter: torch.Tensor, factor: float) -> None:
        """Somebody has just multiplied .grad, whose norm was known before, by `factor`."""
        result, gradient = self._results[parameter], parameter.grad
        assert gradient is not None
        result.version, result.sample = gradient._version, _sample(gradient)
        result.squared_norm *= factor * factor


def _sample(gradient: torch.Tensor) -> torch.Tensor:
    """The first, a middle and the last element of its memory, which has no gaps."""
    stride = (gradient.numel() - 1) // 2
    return gradient.detach().as_strided((3,), (stride,), gradient.storage_offset()).clone()


def _bits(sample: torch.Tensor) -> torch.Tensor:
    return sample.view(torch.uint8)  # NaN equals itself.
