# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Horovod's arithmetic for integers, which Basin itself does not average or scale.

A scale multiplies in float64 and cuts off the fraction. An average divides the sum, which has
wrapped around if it had no room, and cuts off the fraction once, after the scale: that of -1 and 0
is 0.
"""

import torch

# Basin adds no numbers of these widths, so they are added as int32.
_NARROW = (torch.uint8, torch.int8, torch.int16)
DTYPES = (*_NARROW, torch.int32, torch.int64)


def is_integer(tensor: torch.Tensor) -> bool:
    return tensor.dtype in DTYPES


def before(tensor: torch.Tensor, prescale: float) -> torch.Tensor:
    """What is sent of a tensor."""
    scaled = tensor if prescale == 1.0 else (tensor.double() * prescale).to(tensor.dtype)
    return scaled.to(torch.int32) if scaled.dtype in _NARROW else scaled


def after(
    received: torch.Tensor, dtype: torch.dtype, divisor: int, postscale: float
) -> torch.Tensor:
    """The result in the dtype that the tensor had."""
    total = received.to(dtype)
    if postscale != 1.0:
        # Divided last: a product with postscale / divisor may be one too small.
        return (total.double() * postscale / divisor).to(dtype)
    if divisor == 1:
        return total
    # A narrow dtype may have no room for the divisor.
    return torch.div(total.long(), divisor, rounding_mode="trunc").to(dtype)
