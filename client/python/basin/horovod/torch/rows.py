# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""allgather, broadcast, alltoall and barrier with Horovod's arguments.

Horovod's gradients of an allgather and of a broadcast are averages over the workers, where those of
basin.torch are sums.
"""

from collections.abc import Sequence
from typing import Any

import torch

import basin.torch
from basin.horovod.torch import handle as handles
from basin.horovod.torch.handle import Pending, synchronize
from basin.horovod.torch.process_sets import AnySet, basins, global_process_set


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: AnySet = global_process_set
) -> Pending:
    """Begins an allgather(), without a gradient; synchronize() returns its result."""
    chosen = basins(process_set)
    return handles.of(basin.torch.allgather_async(tensor.detach(), name, process_set=chosen))


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: AnySet = global_process_set
) -> torch.Tensor:
    """Returns the rows of the tensors of all workers, by rank, in a new tensor. The numbers of rows
    may differ. Any dtype."""
    given = _with_average_gradient(tensor, process_set)
    return basin.torch.allgather(given, name, process_set=basins(process_set))


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: AnySet = global_process_set,
) -> Pending:
    """Begins a grouped_allgather(), without gradients; synchronize() returns its results."""
    given = [tensor.detach() for tensor in tensors]
    chosen = basins(process_set)
    return handles.of(basin.torch.grouped_allgather_async(given, name, process_set=chosen))


def grouped_allgather(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: AnySet = global_process_set,
) -> list[torch.Tensor]:
    """Like allgather() of each tensor, in one call."""
    given = [_with_average_gradient(tensor, process_set) for tensor in tensors]
    return basin.torch.grouped_allgather(given, name, process_set=basins(process_set))


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: AnySet = global_process_set,
) -> Pending:
    """Begins a broadcast(), without a gradient; synchronize() returns its result."""
    chosen = basins(process_set)
    return handles.of(
        basin.torch.broadcast_async(
            tensor.detach(), root_of(root_rank, process_set), name, process_set=chosen
        )
    )


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: AnySet = global_process_set,
) -> torch.Tensor:
    """Returns the root's values in a new tensor. Any dtype.

    root_rank: of the job, also with a set
    """
    given = _with_average_gradient(tensor, process_set)
    root = root_of(root_rank, process_set)
    return basin.torch.broadcast(given, root, name, process_set=basins(process_set))


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: AnySet = global_process_set,
) -> Pending:
    """Like broadcast_async(), but synchronize() writes the values to the tensor and returns it."""
    root, chosen = root_of(root_rank, process_set), basins(process_set)
    started = basin.torch.broadcast_async_(tensor.detach(), root, name, process_set=chosen)
    return handles.of(started, lambda _: tensor)


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: AnySet = global_process_set,
) -> torch.Tensor:
    """Like broadcast(), in place."""
    made: torch.Tensor = synchronize(broadcast_async_(tensor, root_rank, name, process_set))
    return made


def alltoall_async(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: AnySet = global_process_set,
) -> Pending:
    """Begins an alltoall(), without a gradient; synchronize() returns the rows and how many are of
    each rank, also without splits."""
    chosen = basins(process_set)
    started = basin.torch.alltoall_async(tensor.detach(), splits, name, process_set=chosen)
    return handles.of(started, lambda received: (received[0], _counts(received[1], splits)))


def alltoall(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: AnySet = global_process_set,
) -> Any:
    """Sends rows to each worker. Returns those for this one, by the rank that sent them; with
    splits, a tuple of them and of how many are of each rank.

    splits: how many rows go to each rank, as a tensor or a list; None: all get as many
    """
    received, counts = basin.torch.alltoall(tensor, splits, name, process_set=basins(process_set))
    return received if splits is None else (received, _counts(counts, splits))


def barrier(process_set: AnySet = global_process_set) -> None:
    """Returns when every worker, or every member of the set, has called it."""
    chosen = basins(process_set)
    if chosen is None:
        basin.torch.barrier()
    else:
        basin.torch.allgather(torch.empty(0), process_set=chosen)


def _counts(counts: torch.Tensor, splits: Any) -> torch.Tensor:
    like = splits.dtype if isinstance(splits, torch.Tensor) else torch.int32
    return counts.to(like)


def root_of(root_rank: int, process_set: AnySet) -> int:
    """The root as its set numbers it."""
    chosen = basins(process_set)
    if chosen is None:
        return root_rank
    if root_rank not in chosen.ranks:
        raise ValueError(
            f"root_rank {root_rank} is not in {chosen}. Use the rank of a member of the set."
        )
    return chosen.ranks.index(root_rank)


def _with_average_gradient(tensor: torch.Tensor, process_set: AnySet) -> torch.Tensor:
    """The tensor, whose gradient is divided by the number of workers on its way back."""
    if not (tensor.requires_grad and torch.is_grad_enabled()):
        return tensor
    workers = (process_set or global_process_set).size()
    view = tensor.view_as(tensor)
    view.register_hook(lambda gradient: gradient / workers)
    return view
