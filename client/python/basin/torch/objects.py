# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Sends bytes of some workers to all of them, as the results of rounds.

The first round carries the number of bytes of each worker, the second one carries the bytes. When a
round is over, every member holds its result, so a worker may leave right after it has sent its
bytes.
"""

import numpy as np

from basin import _abi
from basin.arguments import whole_number
from basin.client import CALL_PREFIX
from basin.errors import InvalidArgument, OutcomeUnknown, Paused, Unavailable
from basin.spec import Counts, Op, RoundSpec, Weight
from basin.torch.context import Context
from basin.worker import Result, TensorSpec


def broadcast(here: Context, name: str, content: bytes, root_rank: int) -> bytes:
    """Returns the content of the worker with this rank."""
    root, place = whole_number(root_rank), here.client.place
    if root is None:
        raise InvalidArgument(f"root_rank cannot be {root_rank!r}. Use a rank, for example 0.")
    if root >= place.world_size:
        raise InvalidArgument(
            f"Rank {root} cannot be the root: there are {place.world_size} workers. Name one from "
            f"0 to {place.world_size - 1}."
        )
    given = gather(here, name, content if place.has(root) else None)
    if len(given) != 1:
        raise Unavailable(
            f"{len(given)} workers had rank {root} during the broadcast of {name}, because members "
            "have changed. Call it again, on all workers."
        )
    return given[0]


def gather(here: Context, name: str, content: bytes | None) -> list[bytes]:
    """Returns the contents of the workers, by rank, without those whose `content` is None. Every
    member calls it, and calls it again after OutcomeUnknown or Paused.

    Raises Unavailable if a worker was lost between the two rounds.
    """
    try:
        if name not in here.gathering:
            here.gathering[name] = _sizes(here, name, content)
        given = _contents(here, name, content, here.gathering[name])
    except (OutcomeUnknown, Paused):
        raise  # The round continues, and the next call waits for it.
    except BaseException:
        here.gathering.pop(name, None)
        raise
    del here.gathering[name]
    worker = here.client.worker
    ranks = {worker.member_id(rank): rank for rank in range(worker.place().world_size)}
    return [
        given[each] for each in sorted(given, key=lambda each: (ranks.get(each, 1 << 32), each))
    ]


def _sizes(here: Context, name: str, content: bytes | None) -> dict[str, int]:
    """The number of bytes of each worker, by id. They are sent as weights, which the reply
    lists."""
    nothing = np.zeros(1, np.float32)
    spec = RoundSpec(
        Op.WEIGHTED_AVERAGE,
        weight_by=Weight.SAMPLES,
        contributes_sum=True,
        counts=Counts(samples=0 if content is None else len(content) + 1),
    )
    tensor = TensorSpec("sizes", _abi.F32, nothing.shape)
    handle = here.client.start(
        f"{CALL_PREFIX}object/{name}/sizes",
        [(tensor, nothing.ctypes.data, nothing.nbytes)],
        nothing,
        lambda _: None,
        spec,
        goes_on=True,
    )
    here.client.complete(handle, here.timeout)
    info = handle.info
    return {
        worker: weight - 1
        for worker, weight in zip(info.contributors, info.contributor_weights)
        if weight > 0
    }


def _contents(
    here: Context, name: str, content: bytes | None, sizes: dict[str, int]
) -> dict[str, bytes]:
    worker = here.client.worker
    lane = f"{CALL_PREFIX}object/{name}/contents"
    specs = [
        TensorSpec(f"{i}.{_room(size)}", _abi.U8, (_room(size),))
        for i, size in enumerate(sizes.values())
    ]
    _, handles = worker.register(lane, _abi.CALL, specs)
    given = content or b""
    memory = np.frombuffer(given.ljust(_room(len(given)), b"\0"), np.uint8)
    mine = worker.id
    tensors = [
        (spec, memory.ctypes.data if each == mine else None, memory.nbytes)
        for spec, each in zip(specs, sizes)
    ]

    def output(result: Result) -> dict[str, bytes]:
        received = {}
        for handle, spec, (each, size) in zip(handles, specs, sizes.items()):
            if not result.has(handle):
                raise Unavailable(
                    f"Worker {each} was lost before it had sent its content for {name}. Call it "
                    "again, on all workers."
                )
            part = np.empty(spec.shape, np.uint8)
            result.copy(handle, part.ctypes.data, part.nbytes)
            received[each] = part.tobytes()[:size]
        return received

    handle = here.client.start(lane, tensors, memory, output, RoundSpec(Op.MAX), goes_on=True)
    return here.client.complete(handle, here.timeout)


def _room(size: int) -> int:
    """Rounds a size up by at most an eighth, so that few tensors have to be registered: a tensor
    keeps its shape."""
    step = 1 << max(3, size.bit_length() - 4)
    return max(1, -(-size // step)) * step
