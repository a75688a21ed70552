# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Sends bytes of some workers to all of them, as the results of rounds.

The first round carries the number of bytes of each worker, the second one carries the bytes. When a
round is over, every member holds its result, so a worker may leave right after it has sent its
bytes.
"""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from basin import _abi
from basin.errors import Error, InvalidArgument, Mismatch, OutcomeUnknown, Paused, Unavailable
from basin.handle import CALL_PREFIX
from basin.spec import Counts, Op, RoundSpec, Weight
from basin.torch.context import Context
from basin.worker import Result, TensorSpec


def broadcast(
    here: Context, call: str, name: str, pack: Callable[[], bytes], root_rank: int
) -> bytes:
    """Returns what `pack` returns on the worker with this rank, the only one that calls it."""
    root = here.client.check_root(root_rank)
    given = gather(here, call, name, pack if here.client.place.has(root) else None)
    if len(given) != 1:
        raise Unavailable(
            f"{len(given)} workers had rank {root} during the broadcast of {name}, because members "
            "have changed. Call it again, on all workers."
        )
    return given[0]


def gather(
    here: Context,
    call: str,
    name: str,
    pack: Callable[[], bytes] | None,
    *,
    from_all: bool = False,
) -> list[bytes]:
    """Returns what `pack` returns on the workers, by rank, without those where it is None. Every
    member calls it, and calls it again after OutcomeUnknown or Paused.

    Raises Unavailable if a worker was lost between the two rounds, InvalidArgument on all members
    if `pack` has failed on one, and Mismatch if one has sent its content with another `call`, or
    none although they come from_all.
    """
    content = None if pack is None else _sealed(call, name, pack)
    try:
        if name not in here.gathering:
            here.gathering[name] = _sizes(here, name, content)
        sizes = here.gathering[name]
        given = _contents(here, name, content, {k: v for k, v in sizes.items() if v >= 0})
    except (OutcomeUnknown, Paused):
        raise  # The round continues, and the next call waits for it.
    except BaseException:
        here.gathering.pop(name, None)
        raise
    del here.gathering[name]
    silent = [each for each, size in sizes.items() if size < 0]
    if from_all and silent:
        raise Mismatch(
            f"This worker has called {call} with the name {name}, and worker {silent[0]} has given "
            "nothing to it. Make the same calls on all workers, or use other names."
        )
    worker = here.client.worker
    ranks = {worker.member_id(rank): rank for rank in range(worker.place().world_size)}
    return [
        _opened(call, name, each, given[each])
        for each in sorted(given, key=lambda each: (ranks.get(each, 1 << 32), each))
    ]


def unpickle(name: str, packed: bytes, load: Callable[[bytes], Any] = pickle.loads) -> Any:
    """Raises InvalidArgument if this worker cannot make the object."""
    try:
        return load(packed)
    except Error:
        raise
    except Exception as error:
        raise InvalidArgument(
            f"This worker cannot unpickle {name}: {type(error).__name__}: {error}. All workers "
            "need the same packages, and its classes at the top level of a module that all import."
        ) from error


def _sealed(call: str, name: str, pack: Callable[[], bytes]) -> bytes:
    """The content and its call, or why there is none: the others wait for it."""
    try:
        return call.encode() + b"\0" + pack()
    except Exception as error:
        text = f"{name} cannot be pickled: {type(error).__name__}: {error}"
        return b"\0" + text.encode(errors="replace")


def _opened(call: str, name: str, worker: str, content: bytes) -> bytes:
    sent_by, _, packed = content.partition(b"\0")
    if not sent_by:
        raise InvalidArgument(
            f"{call} has failed on worker {worker}: {packed.decode()}. Give it plain data, or "
            "objects whose classes are at the top level of a module."
        )
    if sent_by.decode() != call:
        raise Mismatch(
            f"This worker has called {call} with the name {name}, and worker {worker} "
            f"{sent_by.decode()}. Make the same calls on all workers, or use other names."
        )
    return packed


def _sizes(here: Context, name: str, content: bytes | None) -> dict[str, int]:
    """The number of bytes of each worker, by id; -1 for one without content. They are sent as
    weights, which the reply lists."""
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
        worker: weight - 1 for worker, weight in zip(info.contributors, info.contributor_weights)
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
