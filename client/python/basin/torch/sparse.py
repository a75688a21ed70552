# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Sums of sparse tensors, such as gradients of an embedding: the rows of all workers are gathered,
and each worker adds up those with the same index. What is sent grows with the rows that have
numbers, not with the size of the tensor."""

from collections.abc import Callable
from typing import TypeVar

import torch

from basin import exchange
from basin.client import Client
from basin.errors import InvalidArgument, Unsupported
from basin.handle import Handle
from basin.spec import Op, RoundSpec
from basin.torch import merging, pieces, raw, tensors

T = TypeVar("T")


def allreduce(
    client: Client,
    call: str,
    tensor: torch.Tensor,
    name: str | None,
    spec: RoundSpec,
    finish: Callable[[list[torch.Tensor]], T],
) -> Handle[T]:
    """Begins a sum or an average of sparse tensors of one size. The result is coalesced. Raises
    Unsupported for what rows cannot do."""
    called = "without a name" if name is None else name
    _check(call, called, tensor, spec)
    merged = tensor.detach().coalesce()
    indices = merged.indices().t().contiguous()
    given = [pieces.of(call, name, indices), pieces.of(call, name, merged.values())]
    factor = spec.prescale * spec.postscale

    def output(received: list[exchange.Rows]) -> T:
        of_indices, of_values = received
        rows = sum(of_indices.counts)
        places = raw.numbers_of(of_indices.content, torch.int64, (rows, *given[0].row_shape))
        values = raw.numbers_of(of_values.content, tensor.dtype, (rows, *given[1].row_shape))
        divisor = len(of_indices.counts) if spec.op == Op.AVERAGE else 1
        shape = tuple(tensor.shape)
        total = merging.merge(places, values, factor / divisor, shape, tensor.dtype)
        return finish([total.to(tensor.device)])

    size = ", ".join(map(str, tensor.shape))
    return exchange.allgather(
        client,
        "sparse",
        name,
        given,
        output,
        waits="_async" not in call,
        timeout=pieces.timeout(),
        kind=f"sparse {spec.op.name} of size [{size}], times {factor!r},",
    )


def _check(call: str, called: str, tensor: torch.Tensor, spec: RoundSpec) -> None:
    if spec.op not in (Op.SUM, Op.AVERAGE) or spec.predivide != 1.0 or spec.divide_by_present:
        raise Unsupported(
            f"{call} was given the sparse tensor {called} with {spec.op.name} and its options. A "
            "sparse tensor has a plain sum or average: omit them, or pass tensor.to_dense()."
        )
    if call.endswith("_()"):
        raise Unsupported(
            f"{call} would write other rows to the sparse tensor {called}. Use the call without "
            "the underscore, and its result."
        )
    if tensor.requires_grad and torch.is_grad_enabled():
        raise Unsupported(
            f"{call} gives no gradient through the sparse tensor {called}. Pass tensor.detach()."
        )
    tensors.check_dtype(called, tensor.dtype)
    if not tensor.dtype.is_floating_point and (spec.op, spec.prescale, spec.postscale) != (
        Op.SUM,
        1.0,
        1.0,
    ):
        raise InvalidArgument(
            f"Tensor {called} has integers, which have no average and take no scale. Use "
            "op=basin.Sum, or convert it to a floating dtype."
        )
