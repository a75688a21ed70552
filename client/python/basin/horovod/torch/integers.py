# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Horovod's arithmetic for integers, which Basin itself does not average or scale.

A scale multiplies in float64 and cuts off the fraction. An average divides the sum, which has
wrapped around if it had no room, and cuts off the fraction as well: that of -1 and 0 is 0.
"""

import torch

# Basin adds no numbers of these widths, so they are added as int32.
_NARROW = (torch.uint8, torch.int8, torch.int16)
DTYPES = (*_NARROW, torch.int32, torch.int64)


def is_integer(tensor: torch.Tensor) -> bool:
    return tensor.dtype in DTYPES


def before(tensor: torch.Tensor, prescale: float) -> torch.Tensor:
    """What is sent of a tensor."""
    scaled = _scaled(tensor, prescale)
    return scaled.to(torch.int32) if scaled.dtype in _NARROW else scaled


def after(
    received: torch.Tensor, dtype: torch.dtype, divisor: int, postscale: float
) -> torch.Tensor:
    """The result in the dtype that the tensor had."""
    total = received.to(dtype)
    if postscale != 1.0:
        return _scaled(total, postscale / divisor)
    return total if divisor == 1 else torch.div(total, divisor, rounding_mode="trunc")


def _scaled(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    return tensor if factor == 1.0 else (tensor.double() * factor).to(tensor.dtype)
