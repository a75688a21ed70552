# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Sparse tensors in torch's COO layout: what they are, and how rows are added up."""

import torch


def is_sparse(tensor: object) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.layout == torch.sparse_coo


def numbers_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or the values of a sparse one, which need not be merged."""
    return tensor._values() if is_sparse(tensor) else tensor


def wide(values: torch.Tensor) -> torch.Tensor:
    """In the dtype in which they are added up."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def merge(
    places: torch.Tensor,
    values: torch.Tensor,
    factor: float,
    shape: tuple[int, ...],
    dtype: torch.dtype,
) -> torch.Tensor:
    """Adds up the values of the same place, in their order, as a dense sum does: in float32 or
    float64, rounded once to `dtype`. The result is coalesced."""
    added = wide(values)
    distinct, which = torch.unique(places, dim=0, return_inverse=True)
    total = added.new_zeros((distinct.shape[0], *values.shape[1:]))
    total.index_add_(0, which, added)
    if factor != 1.0:
        total *= factor
    made = torch.sparse_coo_tensor(
        distinct.t(), total.to(dtype), shape, is_coalesced=True, check_invariants=False
    )
    return made
