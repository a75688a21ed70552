# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Broadcasts of torch tensors, with gradients."""

from typing import TypeVar

import torch

from basin import broadcasting
from basin.errors import Unsupported
from basin.gathering import Bytes
from basin.handle import Handle
from basin.process_set import ProcessSet
from basin.spec import Op
from basin.torch import differentiable, pieces, raw
from basin.torch.collectives import allreduce

T = TypeVar("T")


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    *,
    process_set: ProcessSet | None = None,
) -> Handle[torch.Tensor]:
    """Like broadcast(), but returns at once. Do not change the tensor until the handle is done."""
    return _broadcast("broadcast_async()", tensor, root_rank, name, process_set)


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    *,
    process_set: ProcessSet | None = None,
) -> torch.Tensor:
    """Returns a new tensor with the bits of that of the worker with rank `root_rank`.

    tensor: of any dtype; dtype and shape must equal the root's
    name:   as for allreduce()

    It is differentiable: the backward adds up the gradients of the result of all workers, which
    all of them have to run; the root gets the sum, and the others zeros.

    Raises Mismatch, on all workers, if dtype, shape or root differ, or others make another call;
    Unavailable, on all of them, if the root was lost before it had sent its values.
    """
    return pieces.complete(_broadcast("broadcast()", tensor, root_rank, name, process_set))


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    *,
    process_set: ProcessSet | None = None,
) -> Handle[torch.Tensor]:
    """Like broadcast_async(), but wait() writes the values to `tensor` and returns it."""
    return _broadcast("broadcast_async_()", tensor, root_rank, name, process_set)


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    *,
    process_set: ProcessSet | None = None,
) -> torch.Tensor:
    """Like broadcast(), in place."""
    return pieces.complete(_broadcast("broadcast_()", tensor, root_rank, name, process_set))


def _broadcast(
    call: str,
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None,
    process_set: ProcessSet | None,
) -> Handle[torch.Tensor]:
    client = pieces.client_of(call, name, process_set)
    piece = pieces.of(call, name, tensor)
    in_place = call.endswith("_()")
    called = "without a name" if name is None else name
    if in_place and pieces.tracks(tensor) and not tensor.is_leaf:
        raise Unsupported(
            f"{call} would write the values to tensor {called}, whose gradient would then be that "
            "of its old value. Use the call without the underscore, whose result is "
            "differentiable, or pass tensor.detach()."
        )
    tracked = not in_place and pieces.tracks(tensor)
    is_root = client.worker.place().has(client.check_root(root_rank))

    def output(received: list[Bytes]) -> torch.Tensor:
        if in_place:
            raw.write(called, tensor, pieces.numbers_of(received[0], tensor.dtype, tensor.shape))
            return tensor
        values = pieces.tensor_of(received[0], tensor, tensor.shape)
        if not tracked:
            return values
        return differentiable.attach(tensor, values, gradient_of)

    def gradient_of(gradient: torch.Tensor) -> torch.Tensor:
        named = None if name is None else f"gradient/broadcast/{name}"
        total = allreduce(gradient, named, op=Op.SUM, process_set=process_set)
        return total if is_root else torch.zeros_like(total)

    return broadcasting.broadcast(
        client,
        name,
        [piece],
        root_rank,
        output,
        waits="_async" not in call,
        timeout=pieces.timeout(),
    )
