# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""allgather and all-to-all of torch tensors, with gradients."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from basin import exchange
from basin.errors import InvalidArgument
from basin.handle import Handle
from basin.process_set import ProcessSet
from basin.spec import Op
from basin.torch import differentiable, pieces
from basin.torch.collectives import allreduce

T = TypeVar("T")
# The rows for this worker, and how many are of each rank.
Received = tuple[torch.Tensor, torch.Tensor]


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, *, process_set: ProcessSet | None = None
) -> Handle[torch.Tensor]:
    """Like allgather(), but returns at once. Do not change the tensor until the handle is done."""
    return _allgather("allgather_async()", [tensor], name, pieces.only, process_set)


def allgather(
    tensor: torch.Tensor, name: str | None = None, *, process_set: ProcessSet | None = None
) -> torch.Tensor:
    """Returns the rows of the tensors of all workers, by rank, bit for bit, in a new tensor.

    tensor: of any dtype. Workers may have different numbers of rows, which is the first dimension,
            also none; a number is one row
    name:   as for allreduce(), but the number of rows may change

    It is differentiable: the backward adds up the gradients of the result of all workers, which
    all of them have to run, and each gets that of its rows. With a name, the gradients of each
    total number of rows have a name of their own, which counts in `limits.lane_names`: omit the
    name where that number changes often.

    Raises Mismatch, on all workers, if dtypes or the other dimensions differ, or others make
    another call; Unavailable, on all of them, if one was lost before it had sent its rows: then
    call it again. After OutcomeUnknown or Paused another call waits for the same result, and
    ignores its tensor. The same holds for all calls of this kind.
    """
    return pieces.complete(_allgather("allgather()", [tensor], name, pieces.only, process_set))


def grouped_allgather_async(
    group: Sequence[torch.Tensor],
    name: str | None = None,
    *,
    process_set: ProcessSet | None = None,
) -> Handle[list[torch.Tensor]]:
    """Like grouped_allgather(), but returns at once."""
    return _allgather("grouped_allgather_async()", group, name, list, process_set)


def grouped_allgather(
    group: Sequence[torch.Tensor],
    name: str | None = None,
    *,
    process_set: ProcessSet | None = None,
) -> list[torch.Tensor]:
    """Like allgather() of each tensor, with all of them in one call: they are matched by their
    position in the group, and are of the same workers."""
    return pieces.complete(_allgather("grouped_allgather()", group, name, list, process_set))


def alltoall_async(
    tensor: torch.Tensor,
    splits: Sequence[int] | torch.Tensor | None = None,
    name: str | None = None,
    *,
    process_set: ProcessSet | None = None,
) -> Handle[Received]:
    """Like alltoall(), but returns at once. Do not change the tensor until the handle is done."""
    return _alltoall("alltoall_async()", [tensor], [splits], name, _only, process_set)


def alltoall(
    tensor: torch.Tensor,
    splits: Sequence[int] | torch.Tensor | None = None,
    name: str | None = None,
    *,
    process_set: ProcessSet | None = None,
) -> Received:
    """Sends rows to each worker. Returns the rows for this one, by the rank that sent them, and how
    many are of each, as int64.

    tensor: as for allgather()
    splits: how many rows go to each rank, in order; None: all get as many

    It is differentiable: the backward sends the gradients of the rows back. Every worker receives
    what all have sent, and keeps its rows, so it costs as much as an allgather. Raises
    InvalidArgument, before anything is sent, if the splits are not one number for each rank that
    add up to the rows.
    """
    return pieces.complete(_alltoall("alltoall()", [tensor], [splits], name, _only, process_set))


def grouped_alltoall_async(
    group: Sequence[torch.Tensor],
    splits: Sequence[Sequence[int] | torch.Tensor | None] | None = None,
    name: str | None = None,
    *,
    process_set: ProcessSet | None = None,
) -> Handle[list[Received]]:
    """Like grouped_alltoall(), but returns at once."""
    call = "grouped_alltoall_async()"
    return _alltoall(call, group, _splits_of(call, group, splits), name, list, process_set)


def grouped_alltoall(
    group: Sequence[torch.Tensor],
    splits: Sequence[Sequence[int] | torch.Tensor | None] | None = None,
    name: str | None = None,
    *,
    process_set: ProcessSet | None = None,
) -> list[Received]:
    """Like alltoall() of each tensor, with all of them in one call: they are matched by their
    position in the group, and are of the same workers.

    splits: one for each tensor, as for alltoall(); None: every rank gets as many rows of each
    """
    call = "grouped_alltoall()"
    return pieces.complete(
        _alltoall(call, group, _splits_of(call, group, splits), name, list, process_set)
    )


def _splits_of(
    call: str,
    group: Sequence[torch.Tensor],
    splits: Sequence[Sequence[int] | torch.Tensor | None] | None,
) -> Sequence[Sequence[int] | torch.Tensor | None]:
    if splits is None:
        return [None] * len(group)
    if not isinstance(splits, list | tuple) or len(splits) != len(group):
        raise InvalidArgument(
            f"{call} was given {len(group)} tensors and splits={splits!r}. Pass a list with the "
            "splits of each tensor, or None."
        )
    return splits


def _only(received: list[Received]) -> Received:
    return received[0]


def _allgather(
    call: str,
    group: Sequence[torch.Tensor],
    name: str | None,
    finish: Callable[[list[torch.Tensor]], T],
    process_set: ProcessSet | None,
) -> Handle[T]:
    client = pieces.client_of(call, name, process_set)
    given = pieces.group_of(call, name, group)
    tracked = [pieces.tracks(tensor) for tensor in group]

    def output(received: list[exchange.Rows]) -> T:
        made = []
        for i, (tensor, piece, rows) in enumerate(zip(group, given, received)):
            shape = (sum(rows.counts), *piece.row_shape)
            gathered = pieces.tensor_of(rows.content, tensor, shape)
            if tracked[i]:
                of_rows = _gradient_of_rows(
                    tensor, rows, None if name is None else f"{name}.{i}", process_set
                )
                gathered = differentiable.attach(tensor, gathered, of_rows)
            made.append(gathered)
        return finish(made)

    return exchange.allgather(
        client,
        "grouped_allgather" if call.startswith("grouped") else "allgather",
        name,
        given,
        output,
        waits="_async" not in call,
        timeout=pieces.timeout(),
    )


def _gradient_of_rows(
    tensor: torch.Tensor, rows: exchange.Rows, name: str | None, process_set: ProcessSet | None
) -> Callable[[torch.Tensor], torch.Tensor]:
    named = None if name is None else f"gradient/allgather/{name}/{sum(rows.counts)}"

    def gradient_of(gradient: torch.Tensor) -> torch.Tensor:
        whole = allreduce(gradient, named, op=Op.SUM, process_set=process_set)
        mine = whole[rows.before : rows.before + rows.counts[rows.mine]]
        return mine.reshape(tensor.shape)

    return gradient_of


def _alltoall(
    call: str,
    group: Sequence[torch.Tensor],
    splits: Sequence[Sequence[int] | torch.Tensor | None],
    name: str | None,
    finish: Callable[[list[Received]], T],
    process_set: ProcessSet | None,
) -> Handle[T]:
    client = pieces.client_of(call, name, process_set)
    grouped = call.startswith("grouped")
    given = pieces.group_of(call, name, group) if grouped else [pieces.of(call, name, group[0])]
    tracked = [pieces.tracks(tensor) for tensor in group]

    def output(received: list[exchange.Received]) -> T:
        made = []
        for i, (tensor, piece, (content, counts)) in enumerate(zip(group, given, received)):
            rows = pieces.tensor_of(content, tensor, (sum(counts), *piece.row_shape))
            if tracked[i]:
                named = None if name is None else f"{name}.{i}" if grouped else name
                rows = differentiable.attach(
                    tensor, rows, _sent_back(tensor, counts, named, process_set)
                )
            made.append((rows, torch.tensor(counts, dtype=torch.int64)))
        return finish(made)

    return exchange.alltoall(
        client,
        call,
        "grouped_alltoall" if grouped else "alltoall",
        name,
        given,
        splits,
        output,
        waits="_async" not in call,
        timeout=pieces.timeout(),
    )


def _sent_back(
    tensor: torch.Tensor, counts: list[int], name: str | None, process_set: ProcessSet | None
) -> Callable[[torch.Tensor], torch.Tensor]:
    named = None if name is None else f"gradient/{name}"

    def gradient_of(gradient: torch.Tensor) -> torch.Tensor:
        back, _ = alltoall(gradient, counts, named, process_set=process_set)
        return back.reshape(tensor.shape)

    return gradient_of
