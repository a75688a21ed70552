# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Tracks whether .grad still holds the result of a round, and the norm of that result."""

import ctypes
import itertools
import struct
import sys
import weakref

import torch

# The memory of this process.
_MEMORY = (ctypes.c_char * sys.maxsize).from_address(0)


class Delivered:
    """The last result of one parameter, whose gradients have `count` elements of `width` bytes. It
    is forgotten after the first write to it that is not reported here.

    gradient:     the .grad that holds the result, which it does not keep alive; None: no result
    version:      the version of its memory, which a write increases
    address:      of its memory
    sample:       a few of its elements, because a write through .data does not change the version;
                  none on a device, for which reading them would wait
    squared_norm: the squared norm of the present gradient
    """

    __slots__ = ("_read", "_size", "address", "gradient", "sample", "squared_norm", "version")

    def __init__(self, count: int, width: int) -> None:
        self.gradient: weakref.ref[torch.Tensor] | None = None
        self.version = self.address = 0
        self.sample: tuple[bytes, ...] = ()
        self.squared_norm = 0.0
        # Reads the first, a middle and the last element at once: this happens for each gradient of
        # each step.
        elements = sorted({0, count // 2, count - 1})
        gaps = [(b - a - 1) * width for a, b in itertools.pairwise(elements)]
        layout = "".join(f"{width}s{gap}x" for gap in gaps) + f"{width}s"
        form = struct.Struct("=" + layout)
        self._read, self._size = form.unpack_from, form.size

    def put(self, gradient: torch.Tensor, address: int, squared_norm: float) -> None:
        """Records that .grad is a result with this squared norm. It is at the address, without
        gaps."""
        self.gradient = weakref.ref(gradient)
        self.version, self.address = gradient._version, address
        self.sample = self._sample_of(gradient)
        self.squared_norm = squared_norm

    def drop(self) -> None:
        self.gradient = None

    def norm_in(self, gradient: torch.Tensor | None) -> float | None:
        """The squared norm of .grad; None if it is not the result of one round."""
        return self.squared_norm if gradient is not None and self._is_in(gradient) else None

    def scale(self, gradient: torch.Tensor, factor: float) -> None:
        """Reports that .grad, whose norm is known, was just multiplied by `factor`."""
        if not self._is_there(gradient):
            self.drop()
            return
        self.version = gradient._version
        self.sample = self._sample_of(gradient)
        self.squared_norm *= factor * factor

    def _is_in(self, gradient: torch.Tensor) -> bool:
        return (
            self.gradient is not None
            and self.gradient() is gradient
            and gradient._version == self.version
            and self._is_there(gradient)
            and self._sample_of(gradient) == self.sample
        )

    def _sample_of(self, gradient: torch.Tensor) -> tuple[bytes, ...]:
        return self._read(_MEMORY, self.address) if gradient.is_cpu else ()

    def _is_there(self, gradient: torch.Tensor) -> bool:
        """Whether its memory is that of the result: .data and resize_() give it another one without
        a new version."""
        return (
            gradient.layout is torch.strided
            and gradient.data_ptr() == self.address
            and gradient.untyped_storage().nbytes() >= self._size
        )
