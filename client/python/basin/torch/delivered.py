# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Tracks whether .grad still holds the result of a round, and the norm of that result."""

import ctypes
import weakref
from typing import Any

import torch

_read = ctypes.string_at


class Delivered:
    """The last result of one parameter. It is forgotten after the first write to it that is not
    reported here.

    gradient:     the .grad that holds the result, which it does not keep alive; None: no result
    version:      the version of its memory, which a write increases
    sample:       a few of its elements, because a write through .data does not change the version
    squared_norm: the squared norm of the present gradient
    """

    __slots__ = ("gradient", "sample", "squared_norm", "version")

    def __init__(self) -> None:
        self.gradient: weakref.ref[torch.Tensor] | None = None
        self.version = 0
        self.sample: Any = None
        self.squared_norm = 0.0

    def put(self, gradient: torch.Tensor, address: int, size: int, squared_norm: float) -> None:
        """Records that .grad is a result with this squared norm: `size` bytes without gaps at the
        address."""
        self.gradient = weakref.ref(gradient)
        self.version = gradient._version
        self.sample = _sample(address, size, gradient.element_size())
        self.squared_norm = squared_norm

    def drop(self) -> None:
        self.gradient = None

    def norm_in(self, gradient: torch.Tensor | None) -> float | None:
        """The squared norm of .grad; None if it is not the result of one round."""
        return self.squared_norm if gradient is not None and self._is_in(gradient) else None

    def scale(self, gradient: torch.Tensor, factor: float) -> None:
        """Reports that .grad, whose norm is known, was just multiplied by `factor`."""
        self.version, self.sample = gradient._version, _sample_of(gradient)
        self.squared_norm *= factor * factor

    def _is_in(self, gradient: torch.Tensor) -> bool:
        return (
            self.gradient is not None
            and self.gradient() is gradient
            and gradient._version == self.version
            and _sample_of(gradient) == self.sample
        )


def _sample_of(gradient: torch.Tensor) -> Any:
    return _sample(gradient.data_ptr(), gradient.nbytes, gradient.element_size())


def _sample(address: int, size: int, width: int) -> Any:
    """The bytes of the first, a middle and the last element."""
    last = address + size - width
    middle = address + size // width // 2 * width
    return _read(address, width), _read(middle, width), _read(last, width)
