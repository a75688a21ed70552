# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Calls in which workers bring each other rows: allgather and all-to-all. Both move the rows of
every worker to all of them; an all-to-all keeps those that are meant for this worker."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from basin.arguments import whole_number
from basin.errors import InvalidArgument, Unavailable
from basin.gathering import (
    Bytes,
    Gathered,
    Piece,
    check_single,
    gather,
    text_of_members,
    text_of_rows,
)
from basin.handle import Handle

if TYPE_CHECKING:
    from basin.client import Client

T = TypeVar("T")


class Rows(NamedTuple):
    """The rows of all workers: their bytes, by rank, how many each has, and the place of this
    worker among them."""

    content: Bytes
    counts: list[int]
    mine: int

    @property
    def before(self) -> int:
        """How many rows are before those of this worker."""
        return sum(self.counts[: self.mine])


def allgather(
    client: "Client",
    lane: str,
    name: str | None,
    pieces: Sequence[Piece],
    output: Callable[[list[Rows]], T],
    *,
    waits: bool,
    timeout: float | None,
    kind: str | None = None,
) -> Handle[T]:
    """Begins an allgather of each piece; `output` makes what wait() returns from their rows. For
    the other arguments see gather().

    kind: what the call is, beside dtypes and shapes; None: `lane`
    """
    one = len(pieces) == 1

    def made(gathered: Gathered) -> T:
        shares = gathered.shares
        mine = _place_of(client, gathered)
        copies = [] if one else gathered.all()
        starts = [0] * len(shares)
        received = []
        for i, piece in enumerate(pieces):
            counts = [share.numbers[i] for share in shares]
            rows = np.empty(sum(counts) * piece.row_bytes, np.uint8)
            begin = 0
            for j, count in enumerate(counts):
                size = count * piece.row_bytes
                part = rows[begin : begin + size]
                if one:
                    gathered.copy(j, part)
                else:
                    part[:] = copies[j][starts[j] : starts[j] + size]
                begin += size
                starts[j] += size
            received.append(Rows(rows, counts, mine))
        return output(received)

    return gather(
        client,
        client.place,
        lane,
        name,
        text_of_rows(kind or lane, pieces),
        [piece.rows for piece in pieces],
        _joined(pieces),
        made,
        waits=waits,
        timeout=timeout,
    )


class Received(NamedTuple):
    """The rows for this worker: their bytes, by the rank that sent them, and how many are of
    each."""

    content: Bytes
    counts: list[int]


def alltoall(
    client: "Client",
    call: str,
    lane: str,
    name: str | None,
    pieces: Sequence[Piece],
    splits: Sequence[object],
    output: Callable[[list[Received]], T],
    *,
    waits: bool,
    timeout: float | None,
) -> Handle[T]:
    """Begins an all-to-all of the rows of each piece; `output` makes what wait() returns from those
    for this worker. For the other arguments see gather().

    splits: of each piece, how many rows go to each rank, in order; None: all get as many
    """
    place = client.place
    check_single(call, place)
    size = place.world_size
    numbers = [_splits(call, piece, each, size) for piece, each in zip(pieces, splits, strict=True)]

    def check(workers: int) -> None:
        if workers != size:
            raise Unavailable(
                f"{call} was begun for {size} workers, and {workers} take part, because members "
                "have changed. Call it again, on all workers, with splits for them."
            )

    def made(gathered: Gathered) -> T:
        mine = _place_of(client, gathered)
        rows: list[list[Bytes]] = [[] for _ in pieces]
        counts: list[list[int]] = [[] for _ in pieces]
        for i, share in enumerate(gathered.shares):
            whole = np.empty(share.size, np.uint8)
            gathered.copy(i, whole)
            begin = 0
            for j, piece in enumerate(pieces):
                given = share.numbers[j * size : (j + 1) * size]
                first = begin + sum(given[:mine]) * piece.row_bytes
                # A copy, so that the rows of the others are not kept.
                rows[j].append(whole[first : first + given[mine] * piece.row_bytes].copy())
                counts[j].append(given[mine])
                begin += sum(given) * piece.row_bytes
        return output([Received(np.concatenate(each), n) for each, n in zip(rows, counts)])

    return gather(
        client,
        place,
        lane,
        name,
        text_of_rows(f"{lane} among {text_of_members(place)}", pieces),
        [number for each in numbers for number in each],
        _joined(pieces),
        made,
        waits=waits,
        timeout=timeout,
        check=check,
    )


def _joined(pieces: Sequence[Piece]) -> Bytes:
    """The bytes of all pieces; of one alone they are not copied."""
    if len(pieces) == 1:
        return pieces[0].content
    return np.concatenate([each.content for each in pieces])


def _place_of(client: "Client", gathered: Gathered) -> int:
    ids = [share.worker for share in gathered.shares]
    return ids.index(client.worker.id)


def _splits(call: str, piece: Piece, splits: object, size: int) -> list[int]:
    if splits is None:
        if piece.rows % size != 0:
            raise InvalidArgument(
                f"{call} was given {piece.rows} rows, which {size} workers cannot share evenly. "
                "Pass splits, the number of rows for each rank."
            )
        return [piece.rows // size] * size
    tolist = getattr(splits, "tolist", None)
    given = tolist() if callable(tolist) else splits
    numbers = [whole_number(each) for each in given] if isinstance(given, list | tuple) else []
    whole = [each for each in numbers if each is not None]
    if len(whole) != size or len(numbers) != size:
        raise InvalidArgument(
            f"{call} cannot use splits={splits!r}. Pass {size} whole numbers from 0: how many rows "
            "go to each rank."
        )
    if sum(whole) != piece.rows:
        raise InvalidArgument(
            f"{call} was given {piece.rows} rows and splits of {sum(whole)}. The splits have to "
            "add up to the rows."
        )
    return whole
