# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Reduce-scatter: a reduction of which each worker keeps its rows."""

from collections.abc import Iterable
from dataclasses import replace

from basin.errors import InvalidArgument, Unavailable
from basin.gathering import check_single, shortened, text_of_members
from basin.spec import RoundSpec
from basin.worker import Place, RoundInfo


def spec_of(
    spec: RoundSpec, place: Place, tensors: Iterable[tuple[str, tuple[int, ...]]]
) -> RoundSpec:
    """That of a round which reduces tensors, of dtypes and shapes, for the workers of this place:
    one of another generation has other rows."""
    shapes = ", ".join(f"{dtype}[{', '.join(map(str, shape))}]" for dtype, shape in tensors)
    call = f"reducescatter among {text_of_members(place)}: {spec.op.name} of {shapes}"
    return replace(spec, call=shortened(call))


def check_contributors(call: str, place: Place, info: RoundInfo) -> None:
    """Raises Unavailable, on all workers, if rows belong to a worker that was lost."""
    if info.trainers != place.world_size:
        raise Unavailable(
            f"{call} was begun for {place.world_size} workers, and {info.trainers} took part, "
            "because members have changed. Call it again, on all workers."
        )


def rows_of(call: str, shape: tuple[int, ...], place: Place) -> tuple[int, int]:
    """The range of rows for this worker. The first ranks have one more if they cannot have as
    many."""
    check_single(call, place)
    if not shape:
        raise InvalidArgument(
            f"{call} was given a number, which has no rows to share. Use allreduce()."
        )
    least, more = divmod(shape[0], place.world_size)
    rank = place.rank
    begin = rank * least + min(rank, more)
    return begin, begin + least + (rank < more)
