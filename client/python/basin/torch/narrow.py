# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""float32 gradients that are sent in 16 bits."""

import math

import torch

# Values are scaled so that the largest one has this exponent, which leaves room for small ones
# without overflow.
_LARGEST_EXPONENT = {torch.float16: 15, torch.bfloat16: 0}
_MOST = 126  # kMaxCastExponent of kernels/cast.h.


def exponent_of(tensor: torch.Tensor, dtype: torch.dtype) -> int:
    """The power of two by which a tensor is scaled before the cast. It is undone exactly on
    arrival.

    bfloat16 has the range of float32, and needs no scale.
    """
    if dtype == torch.bfloat16:
        return 0
    largest = float(tensor.abs().max())
    if largest == 0.0 or not math.isfinite(largest):
        return 0
    _, exponent = math.frexp(largest)
    return max(-_MOST, min(_MOST, _LARGEST_EXPONENT[dtype] - exponent))
