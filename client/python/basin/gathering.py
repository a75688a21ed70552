# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Brings bytes of every worker to all of them, as the results of two rounds.

In the first round each worker says how many bytes it has, as a weight, which the reply lists. In
the second one each contributes them as tensors of its own, to which nobody else adds anything. When
the second round is over, every member has the bytes of all, so a worker may leave right after it.
"""

import itertools
import math
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from basin import _abi
from basin.errors import Error, OutcomeUnknown, Paused, Unavailable, Unsupported
from basin.handle import CALL_PREFIX, Handle
from basin.spec import Counts, Op, RoundSpec, Weight
from basin.worker import SLICE_SECONDS, Place, Result, RoundInfo, TensorSpec

if TYPE_CHECKING:
    from basin.client import Client

T = TypeVar("T")
Bytes = NDArray[np.uint8]

# A longer text is cut, and a hash of the whole is added. The library takes at most 400 bytes.
_MOST_TEXT = 300


class Piece(NamedTuple):
    """A tensor of a worker: dtype, as NumPy and torch name it, shape, the bytes of one element, and
    those of all in C order."""

    dtype: str
    shape: tuple[int, ...]
    element: int
    content: Bytes

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.shape[1:]

    @property
    def rows(self) -> int:
        """A number is one row."""
        return self.shape[0] if self.shape else 1

    @property
    def row_bytes(self) -> int:
        return self.element * math.prod(self.row_shape)


class Share(NamedTuple):
    """What a worker has sent: numbers, and so many bytes."""

    worker: str
    numbers: tuple[int, ...]
    size: int


class _Content(NamedTuple):
    numbers: NDArray[np.int64]
    content: Bytes


def text_of_rows(kind: str, pieces: Iterable[Piece]) -> str:
    """What workers must agree on, if they may have different numbers of rows."""
    rows = (f"{each.dtype}[{', '.join(['*', *map(str, each.row_shape)])}]" for each in pieces)
    return shortened(f"{kind} of {', '.join(rows)}")


def text_of_shapes(kind: str, pieces: Iterable[Piece]) -> str:
    """What workers must agree on, if they have the same dtypes and shapes."""
    shapes = (f"{each.dtype}[{', '.join(map(str, each.shape))}]" for each in pieces)
    return shortened(f"{kind} of {', '.join(shapes)}")


def check_single(call: str, place: Place) -> None:
    """Raises Unsupported on a worker of several ranks, in a call that has rows for each rank."""
    if place.ranks > 1:
        raise Unsupported(
            f"{call} has rows for each rank, and this worker stands for {place.ranks} of them. "
            "Connect a worker for each trainer: omit ranks, or set local_group to off."
        )


def text_of_members(place: Place) -> str:
    """What workers must agree on, if ranks matter."""
    return f"{place.world_size} workers (generation {'.'.join(map(str, place.generation))})"


def shortened(text: str) -> str:
    """Different texts stay different."""
    if len(text) <= _MOST_TEXT:
        return text
    return f"{text[:_MOST_TEXT]}... (hash {zlib.crc32(text.encode()):08x})"


class Gathered:
    """The bytes of all workers, by rank at the time when they began the call; `info` is that of the
    second round."""

    def __init__(self, result: Result, shares: list[Share], parts: list[list[_abi.Part]]) -> None:
        self._result = result
        self.info = result.info
        order = sorted(range(len(shares)), key=lambda i: (shares[i].numbers[0], shares[i].worker))
        self.shares = [
            Share(shares[i].worker, shares[i].numbers[1:], shares[i].size) for i in order
        ]
        self._parts = [parts[i] for i in order]

    def copy(self, share: int, out: Bytes) -> None:
        """Copies the bytes of a share."""
        address = out.ctypes.data
        buffers = [
            _abi.Buffer(part.tensor, None, address + part.offset, part.bytes)
            for part in self._parts[share]
        ]
        assert sum(buffer.bytes for buffer in buffers) == out.nbytes == self.shares[share].size
        self._result.copy_many((_abi.Buffer * max(1, len(buffers)))(*buffers), len(buffers))

    def all(self) -> list[Bytes]:
        """A copy of each share."""
        copies = [np.empty(share.size, np.uint8) for share in self.shares]
        for i, copy in enumerate(copies):
            self.copy(i, copy)
        return copies


class Gathering(Handle[T]):
    """A gathering in progress. Its first round may be a call without a name; its second one is a
    round of a lane of its own, which has no place in the order of calls. So a thread can begin the
    second one as soon as the first one has ended, whatever the worker's program does meanwhile."""

    def __init__(self, *arguments: Any, content: _Content, check: Callable[[int], None]) -> None:
        super().__init__(*arguments)
        self._content = content
        self._check = check  # Gets the number of workers; may raise, on all of them alike.
        self._shares: dict[str, int] | None = None  # After the first round: bytes by worker.
        self._sizes_info: RoundInfo | None = None  # The facts of the first round.
        self._parts: list[_abi.Part] = []
        self._thread: threading.Thread | None = None

    def go_on(self) -> None:
        """Begins the second round also if no thread is in wait(), which the others wait for."""
        if self._thread is None and self._shares is None and self._failed is None:
            self._thread = threading.Thread(target=self._begin_alone, daemon=True)
            self._thread.start()

    def end_thread(self) -> None:
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _begin_alone(self) -> None:
        while True:
            with self._waiting:
                if self._shares is not None or self._failed is not None or self._client.is_closed:
                    return
                try:
                    self._begin_contents(SLICE_SECONDS)
                except OutcomeUnknown:
                    continue
                except Paused:
                    return  # Only a wait of the user is to end with it.
                except Exception as error:
                    self._failed = self._failed or error  # rejoin() may have given it up.
                    self._client.ended(self)

    def _take(self, timeout: float | None) -> T:
        end = None if timeout is None else time.monotonic() + timeout
        if self._shares is None:
            self._begin_contents(timeout)
        assert self._shares is not None
        left = None if end is None else max(0.0, end - time.monotonic())
        result = self._client.worker.wait(self._lane, left)
        self._info = result.info
        refusal = self._refusal or result.rejection
        if refusal is not None:
            raise refusal
        self._client.check_result(result.info)
        gathered = self._gathered(result, self._shares)
        # Only now, because a user can make this warning an error.
        assert self._sizes_info is not None
        self._compare_members(self._sizes_info)
        return self._make(gathered)

    def _begin_contents(self, timeout: float | None) -> None:
        """Waits for the first round, and begins the second one. What fails on this worker alone is
        the outcome of the second round here, because the others wait until this worker has begun
        it."""
        result = self._client.worker.wait(self._lane, timeout)
        if self._failed is not None:  # Given up by rejoin().
            raise self._failed
        self._info = self._sizes_info = info = result.info
        refusal = self._refusal or result.rejection
        try:
            self._client.check_result(info)
            self._check(len(info.contributors))
        except Error as error:
            # All workers have it, and none begins the second round.
            raise refusal or error from None
        lane_name = self._lane_of_contents()
        try:
            if refusal is not None:
                raise refusal
            self._push_contents(lane_name, info)
        except Exception as error:
            self._stand_aside(lane_name, error)

    def _stand_aside(self, lane_name: str, error: Exception) -> None:
        worker = self._client.worker
        lane, _ = worker.register(lane_name, _abi.CALL, [])
        worker.begin(lane, RoundSpec(Op.MAX))
        self._lane, self._shares, self._refusal = lane, {}, error
        worker.withdraw(lane, str(error))

    def _push_contents(self, lane_name: str, info: RoundInfo) -> None:
        client, worker = self._client, self._client.worker
        sizes = dict(zip(info.contributors, (each - 1 for each in info.contributor_weights)))
        numbers, content = self._content
        arrays = [size for each in sizes.values() for size in (numbers.nbytes, each)]
        parts, specs = parts_of(arrays)
        lane, tensors = worker.register(lane_name, _abi.CALL, specs)
        for part, tensor in zip(parts, tensors):
            part.tensor = tensor
        worker.begin(lane, RoundSpec(Op.MAX))
        addresses: list[int | None] = [
            address if each == worker.id else None
            for each in sizes
            for address in (numbers.ctypes.data, content.ctypes.data)
        ]
        self._lane, self._shares, self._parts = lane, sizes, parts
        client.push_parts(lane, parts, addresses)
        self._refusal = worker.commit(lane)

    def _lane_of_contents(self) -> str:
        if self._unnamed is None:
            return f"{CALL_PREFIX}contents/{self._key}"
        return f"{CALL_PREFIX}contents/{self._client.unnamed_lane(self._lane)}"

    def _gathered(self, result: Result, sizes: dict[str, int]) -> Gathered:
        shares, parts = [], []
        of_array = {
            array: list(each)
            for array, each in itertools.groupby(self._parts, lambda part: int(part.array))
        }
        for i, (worker, size) in enumerate(sizes.items()):
            header, mine = of_array[2 * i], of_array.get(2 * i + 1, [])
            if not all(result.has(part.tensor) for part in (*header, *mine)):
                raise Unavailable(
                    f"Worker {worker} was lost before it had sent its part of {self.name}. Call it "
                    "again, on all workers."
                )
            numbers = np.empty_like(self._content.numbers)
            for part in header:
                result.copy(part.tensor, numbers.ctypes.data + part.offset, part.bytes)
            shares.append(Share(worker, tuple(numbers.tolist()), size))
            parts.append(mine)
        return Gathered(result, shares, parts)


def gather(
    client: "Client",
    place: Place,
    lane: str,
    name: str | None,
    text: str,
    numbers: Sequence[int],
    content: Bytes,
    output: Callable[[Gathered], T],
    *,
    waits: bool,
    timeout: float | None,
    check: Callable[[int], None] = lambda _: None,
) -> Handle[T]:
    """Begins a call of all workers in which each gives numbers, as many on all of them, and bytes,
    of any size. `content` must not change until the call has ended.

    place:   that of this worker when the call was begun
    lane:    of the calls with names; they are matched by `lane` and `name`
    text:    what the call is: Mismatch, on all workers, if it differs
    output:  makes what wait() returns
    waits:   the caller waits with Client.complete()
    timeout: seconds that a call without a name waits for room
    check:   gets the number of workers that take part, and may raise: on all workers or none
    """
    nothing = np.zeros(1, np.float32)
    spec = RoundSpec(
        Op.WEIGHTED_AVERAGE,
        weight_by=Weight.SAMPLES,
        contributes_sum=True,
        counts=Counts(samples=content.nbytes + 1),
        call=text,
    )
    tensors = [(TensorSpec("sizes", _abi.F32, (1,)), nothing.ctypes.data, nothing.nbytes)]
    given = _Content(np.array([place.first_rank, *numbers], np.int64), content)
    kind = partial(Gathering, content=given, check=check)
    begun: Handle[T]
    if name is None:
        begun = client.start_unnamed(tensors, nothing, output, spec, waits, timeout, kind)
    else:
        named = f"{CALL_PREFIX}{lane}/{name}"
        begun = client.start(named, tensors, nothing, output, spec, waits, kind=kind)
    if not waits and isinstance(begun, Gathering):
        begun.go_on()
    return begun


def parts_of(sizes: Sequence[int]) -> tuple[list[_abi.Part], list[TensorSpec]]:
    """Tensors for arrays of so many bytes: of lengths that are powers of two, so that a lane needs
    few of them, whatever the sizes are."""
    parts, specs = [], []
    used: dict[int, int] = {}
    for array, size in enumerate(sizes):
        offset = 0
        for bit in reversed(range(size.bit_length())):
            length = 1 << bit
            if not size & length:
                continue
            before = used.get(length, 0)
            used[length] = before + 1
            parts.append(_abi.Part(array, offset, length, 0))
            specs.append(TensorSpec(f"u8/{length}/{before}", _abi.U8, (length,)))
            offset += length
    return parts, specs
