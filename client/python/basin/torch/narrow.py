# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Gradients of float32 that travel in 16 bits."""

import math

import torch

# Values are scaled so that the largest one has this exponent: room below for small ones, and none
# that overflows.
_LARGEST_EXPONENT = {torch.float16: 15, torch.bfloat16: 0}
_MOST = 126  # kMaxCastExponent of kernels/cast.h.


def exponent_of(tensor: torch.Tensor, dtype: torch.dtype) -> int:
    """The power of two that a tensor is scaled by before the cast, undone exactly on arrival.

    bfloat16 has the range of float32, and needs none.
    """
    if dtype == torch.bfloat16:
        return 0
    largest = float(tensor.abs().max())
    if largest == 0.0 or not math.isfinite(largest):
        return 0
    _, exponent = math.frexp(largest)
    return max(-_MOST, min(_MOST, _LARGEST_EXPONENT[dtype] - exponent))
