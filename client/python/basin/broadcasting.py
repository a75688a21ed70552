# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A broadcast as a round to which only the root contributes. When it is over, every member has the
values, so the root may leave right after it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from basin import _abi
from basin.errors import Unavailable
from basin.gathering import Bytes, Piece, parts_of, text_of_shapes
from basin.handle import CALL_PREFIX, Handle
from basin.spec import Op, RoundSpec
from basin.worker import PartedResult, Result, TensorSpec

if TYPE_CHECKING:
    from basin.client import Client

T = TypeVar("T")


def broadcast(
    client: "Client",
    name: str | None,
    pieces: Sequence[Piece],
    root_rank: int,
    output: Callable[[list[Bytes]], T],
    *,
    waits: bool,
    timeout: float | None,
    kind: str = "broadcast",
) -> Handle[T]:
    """Begins a broadcast of the root's pieces; `output` makes what wait() returns from their bytes.
    Raises Mismatch, on all workers, if dtypes, shapes or the root differ. See also gather().

    kind: what the call is; those with names are matched by kind and name
    """
    root = client.check_root(root_rank)
    source = client.worker.member_id(root)
    is_root = client.worker.place().has(root)
    text = text_of_shapes(f"{kind} from rank {root} (worker {source})", pieces)
    spec = RoundSpec(Op.MAX, call=text)
    memory = [piece.content for piece in pieces]
    addresses = [content.ctypes.data if is_root else None for content in memory]

    def made(result: PartedResult) -> T:
        received = []
        for i, content in enumerate(memory):
            if not result.has(i):
                raise Unavailable(
                    f"Worker {source}, the root of the broadcast, was lost before it had sent its "
                    "values. Call it again, on all workers, with a root that is there."
                )
            copy = np.empty(content.nbytes, np.uint8)
            result.copy(i, copy.ctypes.data, copy.nbytes)
            received.append(copy)
        return output(received)

    if name is None:
        given = [
            (TensorSpec(f"{i}", _abi.U8, (content.nbytes,)), address, content.nbytes)
            for i, (content, address) in enumerate(zip(memory, addresses))
        ]
        return client.start_unnamed(given, memory, made, spec, waits, timeout)
    lane = f"{CALL_PREFIX}{kind} of values/{name}"
    parts, specs = parts_of([content.nbytes for content in memory])
    _, tensors = client.worker.register(lane, _abi.CALL, specs)
    pushed: list[tuple[TensorSpec, int | None, int]] = []
    for part, tensor, each in zip(parts, tensors, specs):
        part.tensor = tensor
        address = addresses[part.array]
        pushed.append((each, None if address is None else address + part.offset, part.bytes))

    def of_parts(result: Result) -> T:
        return made(PartedResult(result, parts))

    return client.start(lane, pushed, memory, of_parts, spec, waits)
