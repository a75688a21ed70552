# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Broadcasts of torch tensors, with gradients."""

from collections.abc import Callable, Sequence
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
    return _broadcast("broadcast_async()", [tensor], root_rank, name, pieces.only, process_set)


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
    return pieces.complete(
        _broadcast("broadcast()", [tensor], root_rank, name, pieces.only, process_set)
    )


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    *,
    process_set: ProcessSet | None = None,
) -> Handle[torch.Tensor]:
    """Like broadcast_async(), but wait() writes the values to `tensor` and returns it."""
    return _broadcast("broadcast_async_()", [tensor], root_rank, name, pieces.only, process_set)


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    *,
    process_set: ProcessSet | None = None,
) -> torch.Tensor:
    """Like broadcast(), in place."""
    return pieces.complete(
        _broadcast("broadcast_()", [tensor], root_rank, name, pieces.only, process_set)
    )


def grouped_broadcast_async(
    group: Sequence[torch.Tensor],
    root_rank: int,
    name: str | None = None,
    *,
    process_set: ProcessSet | None = None,
) -> Handle[list[torch.Tensor]]:
    """Like grouped_broadcast(), but returns at once."""
    return _broadcast("grouped_broadcast_async()", group, root_rank, name, list, process_set)


def grouped_broadcast(
    group: Sequence[torch.Tensor],
    root_rank: int,
    name: str | None = None,
    *,
    process_set: ProcessSet | None = None,
) -> list[torch.Tensor]:
    """Like broadcast() of each tensor, with all of them in one round: they are matched by their
    position in the group, and all workers get either all of the root's values or none."""
    return pieces.complete(
        _broadcast("grouped_broadcast()", group, root_rank, name, list, process_set)
    )


def grouped_broadcast_async_(
    group: Sequence[torch.Tensor],
    root_rank: int,
    name: str | None = None,
    *,
    process_set: ProcessSet | None = None,
) -> Handle[list[torch.Tensor]]:
    """Like grouped_broadcast_async(), but wait() writes the values to the tensors and returns
    them."""
    return _broadcast("grouped_broadcast_async_()", group, root_rank, name, list, process_set)


def grouped_broadcast_(
    group: Sequence[torch.Tensor],
    root_rank: int,
    name: str | None = None,
    *,
    process_set: ProcessSet | None = None,
) -> list[torch.Tensor]:
    """Like grouped_broadcast(), in place."""
    return pieces.complete(
        _broadcast("grouped_broadcast_()", group, root_rank, name, list, process_set)
    )


def _broadcast(
    call: str,
    group: Sequence[torch.Tensor],
    root_rank: int,
    name: str | None,
    finish: Callable[[list[torch.Tensor]], T],
    process_set: ProcessSet | None,
) -> Handle[T]:
    client = pieces.client_of(call, name, process_set)
    in_place, grouped = call.endswith("_()"), call.startswith("grouped")
    if grouped:
        named = pieces.named_in(call, name, group)
    else:
        named = [("without a name" if name is None else name, group[0])]
    given = [pieces.of(call, called, tensor) for called, tensor in named]
    for called, tensor in named:
        if in_place and pieces.tracks(tensor) and not tensor.is_leaf:
            raise Unsupported(
                f"{call} would write the values to tensor {called}, whose gradient would then be "
                "that of its old value. Use the call without the underscore, whose result is "
                "differentiable, or pass tensor.detach()."
            )
    tracked = [not in_place and pieces.tracks(tensor) for tensor in group]
    is_root = client.worker.place().has(client.check_root(root_rank))

    def output(received: list[Bytes]) -> T:
        made = []
        for i, ((called, tensor), content) in enumerate(zip(named, received)):
            if in_place:
                raw.write(called, tensor, raw.numbers_of(content, tensor.dtype, tensor.shape))
                made.append(tensor)
                continue
            values = pieces.tensor_of(content, tensor, tensor.shape)
            if tracked[i]:
                of = None if name is None else f"{name}.{i}" if grouped else name
                values = differentiable.attach(tensor, values, _sum_at(is_root, of, process_set))
            made.append(values)
        return finish(made)

    return broadcasting.broadcast(
        client,
        name,
        given,
        root_rank,
        output,
        waits="_async" not in call,
        timeout=pieces.timeout(),
        kind="grouped_broadcast" if grouped else "broadcast",
    )


def _sum_at(
    is_root: bool, name: str | None, process_set: ProcessSet | None
) -> Callable[[torch.Tensor], torch.Tensor]:
    """The gradient of what a worker has given to a broadcast."""
    named = None if name is None else f"gradient/broadcast/{name}"

    def gradient_of(gradient: torch.Tensor) -> torch.Tensor:
        total = allreduce(gradient, named, op=Op.SUM, process_set=process_set)
        return total if is_root else torch.zeros_like(total)

    return gradient_of
