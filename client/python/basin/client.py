# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A worker of a training job, for NumPy arrays.

with basin.connect(address="127.0.0.1:29600", job="mnist") as client:
    gradient = client.allreduce(gradient, "gradient", op=basin.Average)
"""

import atexit
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from basin import _abi, dlpack
from basin.arguments import number_of, seconds, string_of, whole_number
from basin.dlpack import SupportsDLPack
from basin.errors import (
    Error,
    FailedPrecondition,
    InvalidArgument,
    OutcomeUnknown,
    Paused,
)
from basin.spec import Counts, Op, ReductionOptions, RoundSpec, contribution, reduction
from basin.worker import Place, Result, RoundInfo, TensorSpec, Worker, check_dtype, logger

if TYPE_CHECKING:
    from typing_extensions import Unpack

Array = NDArray[Any]


_DTYPES = {
    np.dtype(np.float64): _abi.F64,
    np.dtype(np.float32): _abi.F32,
    np.dtype(np.float16): _abi.F16,
    np.dtype(np.int64): _abi.I64,
    np.dtype(np.int32): _abi.I32,
    np.dtype(np.uint8): _abi.U8,
}

CALL_PREFIX = "call/"
# How long a worker whose last call was a broadcast stays for the others.
_HAND_OVER_SECONDS = 60.0


@dataclass(frozen=True)
class _Taken:
    """What a caller gave, in C order.

    widened: it came through DLPack as bfloat16, which NumPy has not; here are its bits, and the
             caller gets float32
    """

    name: str
    array: Array
    widened: bool

    @property
    def spec(self) -> TensorSpec:
        if self.widened or self.array.dtype.name == "bfloat16":  # That of ml_dtypes.
            return TensorSpec(self.name, _abi.BF16, self.array.shape)
        dtype = _DTYPES.get(self.array.dtype)
        if dtype is None:
            known = ", ".join(str(each) for each in _DTYPES)
            raise InvalidArgument(
                f"Array {self.name} has dtype {self.array.dtype}, which Basin cannot reduce. "
                f"Convert it to one of {known}, bfloat16."
            )
        return TensorSpec(self.name, dtype, self.array.shape)

    def give(self, received: Array) -> Array:
        return dlpack.widen(received) if self.widened else received


def _take(name: str, array: ArrayLike | SupportsDLPack) -> _Taken:
    string_of("name", name)
    if isinstance(array, SupportsDLPack) and not isinstance(array, np.ndarray):
        memory, is_bfloat16 = dlpack.view(name, array)
        return _Taken(name, np.asarray(memory, order="C"), is_bfloat16)
    try:
        return _Taken(name, np.asarray(array, order="C"), False)
    except ValueError as error:
        raise InvalidArgument(
            f"Array {name} cannot be made: {str(error).rstrip('.')}. Give it numbers in one shape."
        ) from None


T = TypeVar("T")


class Handle(Generic[T]):
    """An allreduce on its way. What was given stays the library's, to read, until it has ended."""

    def __init__(
        self,
        client: "Client",
        lane: int,
        name: str,
        memory: object,
        output: Callable[[Result], T],
    ) -> None:
        self._client = client
        self._lane = lane
        self.name = name  # For messages.
        self._memory = memory  # Kept alive.
        self._make = output
        # Of a synchronous call that has ended without the outcome: nobody else holds this handle.
        self._is_left = False
        # Why this worker's contribution was withdrawn.
        self._refusal: Error | None = None
        self._output: T | None = None
        self._info: RoundInfo | None = None
        self._failed: Exception | None = None

    @property
    def info(self) -> RoundInfo:
        """Of the round, when it has ended."""
        if self._info is None:
            raise FailedPrecondition("The round has not ended. Wait for it before you ask.")
        return self._info

    def done(self) -> bool:
        """Whether wait() would return at once."""
        try:
            self.wait(0)
        except OutcomeUnknown:
            return False
        except Exception:
            return True  # wait() raises it again.
        return True

    def wait(self, timeout: float | None = None) -> T:
        """The reduced array: a new one, of the same shape and dtype.

        Raises OutcomeUnknown after `timeout` seconds, and Paused when the job is: the round goes
        on then; wait again. Raises what the round has ended with otherwise, each time.
        """
        seconds("timeout", timeout)
        if self._failed is not None:
            raise self._failed
        if self._output is None:
            self._client.check_open("wait()")
            try:
                self._output = self._take(timeout)
            except (OutcomeUnknown, Paused):
                raise
            except Exception as error:
                self._failed = error
                self._client._ended(self)
                raise
            self._client._ended(self)
        return self._output

    def _take(self, timeout: float | None) -> T:
        result = self._client.worker.wait(self._lane, timeout)
        self._info = result.info
        refusal = self._refusal or result.rejection
        if refusal is not None:
            raise refusal
        return self._make(result)


class Client:
    """A member of a job; made by connect(). Any thread may call anything, but close()."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._process = os.getpid()
        # By name: what the library may still read must not be freed.
        self._in_flight: dict[str, Handle[Any]] = {}
        # By name: how often it was broadcast.
        self._versions: dict[str, int] = {}
        # How many rounds this worker had begun when it last took part in a broadcast.
        self._last_broadcast: int | None = None
        self._closed = False
        self._finished = False
        # Told the lane of each call before it is begun; may refuse it.
        self.before_call: Callable[[str], None] | None = None
        _open_clients.add(self)

    def check_open(self, call: str) -> None:
        """Raises FailedPrecondition for a `call` after close()."""
        if self._closed:
            raise FailedPrecondition(
                f"{call} was used after close(), when this worker has left its job. Use it before, "
                "or connect another one."
            )

    def check_member(self, call: str) -> None:
        """As check_open(), and after finished()."""
        self.check_open(call)
        if self._finished:
            raise FailedPrecondition(
                f"{call} was used after finished(), when this worker has no place in the job any "
                "more and takes part in nothing. Use it before."
            )

    # ---- the place in the job

    @property
    def worker_id(self) -> str:
        """Of this worker, unique in the job."""
        self.check_open("worker_id")
        return self.worker.id

    @property
    def place(self) -> Place:
        """Rank, world size and generation of one moment. Raises FailedPrecondition after
        finished(), when this worker has none, and what is fatal for this process, Superseded, say;
        so do the three below."""
        return self._place("place")

    @property
    def rank(self) -> int:
        """Of this worker: 0 to world_size - 1 within a generation."""
        return self._place("rank").rank

    @property
    def world_size(self) -> int:
        """How many members there are in the present generation."""
        return self._place("world_size").world_size

    @property
    def generation(self) -> tuple[int, int]:
        """Another one means other members. It never goes back."""
        return self._place("generation").generation

    def _place(self, call: str) -> Place:
        self.check_member(call)
        return self.worker.place()

    # ---- collectives

    def allreduce(
        self,
        array: ArrayLike | SupportsDLPack,
        name: str,
        *,
        op: Op,
        counts: Counts | None = None,
        timeout: float | None = None,
        **options: "Unpack[ReductionOptions]",
    ) -> Array:
        """Reduces `array` over all members: each gets the same bits.

        array:            a NumPy array or anything of the CPU that offers DLPack, a torch tensor,
                          say; any shape; float64, float32, float16, bfloat16, int64, int32, uint8
        name:             what the arrays of different workers are matched by; shape and dtype
                          belong to it
        counts:           what this contribution stands for: its samples, tokens, micro-batches.
                          A weighted average needs the one that it is weighted by; 0 adds nothing,
                          whatever the array holds. The sums over all workers are in the handle's
                          info, for every op.
        timeout:          seconds until OutcomeUnknown; None: for ever
        options:          the same on all workers:
        weight_by:        of op=basin.WeightedAverage: "samples", "tokens" or "micro_batches"
        contributes:      of op=basin.WeightedAverage: "mean" when the array is the mean over what
                          weight_by names, "sum" when it is the sum
        prescale_factor:  each array is multiplied by it before the sum
        postscale_factor: and the result after it
        gradient_predivide_factor:
                          each array is divided by it before the sum, and the result multiplied
                          after it, so that the sum stays in range. "auto": a power of two near the
                          root of the number of workers, chosen for each round
        divide_by_present:
                          an average is divided by who has sent the array, not by who has skipped

        Returns a new array of the same shape and dtype. A floating sum is made in float32 (float64
        for float64), over worker ids in byte order, and rounded once. NumPy has no bfloat16: one of
        ml_dtypes comes back as it is, one through DLPack as float32, which holds the same numbers.

        Raises InvalidArgument for another dtype and for options that do not go together, before
        anything is sent; Unsupported for another device than the CPU; Mismatch when shape, dtype,
        op or options differ from the others'; NotFound when the counts of all are 0; RoundAborted
        when nobody has a result; and OutcomeUnknown and Paused, after which the round goes on: call
        it again, and it waits for the same round, to which the array given again is not added.
        """
        seconds("timeout", timeout)
        spec = contribution(reduction("allreduce()", op, options), counts)
        handle = self._reduce("allreduce()", array, name, True, spec, goes_on=True)
        return self.complete(handle, timeout)

    def allreduce_async(
        self,
        array: ArrayLike | SupportsDLPack,
        name: str,
        *,
        op: Op,
        counts: Counts | None = None,
        **options: "Unpack[ReductionOptions]",
    ) -> Handle[Array]:
        """As allreduce(), and returns at once. Leave `array` unchanged until the handle is done.

        Raises FailedPrecondition while the outcome of the name's round before was not waited for.
        """
        spec = contribution(reduction("allreduce_async()", op, options), counts)
        return self._reduce("allreduce_async()", array, name, True, spec)

    def skip_round(
        self,
        like: ArrayLike | SupportsDLPack,
        name: str,
        *,
        op: Op,
        timeout: float | None = None,
        **options: "Unpack[ReductionOptions]",
    ) -> Array:
        """Takes part in the next allreduce of `name` without a contribution, so that the others do
        not wait for one, and returns what they have come to.

        like: an array of the shape and dtype that belong to the name; its numbers are not read

        The rest is as for allreduce(), and op and options must be the others'. An average is
        divided by the number of all members, as if this one had sent zeros, unless
        divide_by_present; a weighted one by the counts of the others; a minimum, maximum or product
        is that of the others. Raises NotFound when all members skip the round.
        """
        seconds("timeout", timeout)
        spec = contribution(reduction("skip_round()", op, options), Counts(0, 0, 0))
        handle = self._reduce("skip_round()", like, name, False, spec, goes_on=True)
        return self.complete(handle, timeout)

    def _reduce(
        self,
        call: str,
        array: ArrayLike | SupportsDLPack,
        name: str,
        contributes: bool,
        spec: RoundSpec,
        goes_on: bool = False,
    ) -> Handle[Array]:
        self.check_member(call)
        taken = _take(name, array)

        def output(result: Result) -> Array:
            received = np.empty_like(taken.array)
            result.copy(0, received.ctypes.data, received.nbytes)
            return taken.give(received)

        return self.start(
            CALL_PREFIX + taken.name,
            [(taken.spec, taken.array.ctypes.data if contributes else None, taken.array.nbytes)],
            taken,
            output,
            spec,
            goes_on,
        )

    def broadcast(
        self,
        array: ArrayLike | SupportsDLPack,
        name: str,
        *,
        root_rank: int,
        timeout: float | None = 300.0,
    ) -> Array:
        """The bits of the array of the worker of rank `root_rank`, for all.

        array:     as for allreduce(), of any dtype; shape and dtype must be the root's
        root_rank: a rank of the present generation
        timeout:   seconds until DeadlineExceeded; None: for ever

        Every member calls it. Raises Unavailable when the root has left before it has served the
        value. Returns a new array.
        """
        self.check_member("broadcast()")
        taken = _take(name, array)
        received = np.array(taken.array, order="C", copy=True)
        spec = TensorSpec(name, _abi.U8, (received.nbytes,))
        self.broadcast_memory(
            name, [(spec, received.ctypes.data, received.nbytes)], root_rank, timeout
        )
        return taken.give(received)

    def broadcast_memory(
        self,
        name: str,
        tensors: Sequence[tuple[TensorSpec, int, int]],
        root_rank: int,
        timeout: float | None,
    ) -> None:
        """Broadcasts tensors in place, each given by address and bytes."""
        seconds("timeout", timeout)
        root = whole_number(root_rank)
        if root is None:
            raise InvalidArgument(f"root_rank cannot be {root_rank!r}. Use a rank, 0, say.")
        version = self._next_version(name)
        place = self.worker.place()
        if root >= place.world_size:
            raise InvalidArgument(
                f"Rank {root} cannot be the root: there are {place.world_size} workers. Name "
                f"one from 0 to {place.world_size - 1}."
            )
        lane = CALL_PREFIX + "broadcast"
        self._last_broadcast = self.worker.rounds_begun
        if place.rank == root:
            for spec, address, size in tensors:
                self.worker.announce(lane, spec, version, address, size)
            return
        source = self.worker.member_id(root)
        for spec, address, size in tensors:
            self.worker.get(lane, spec, version, source, timeout, address, size)

    def barrier(self, name: str = "barrier", timeout: float | None = None) -> None:
        """Returns when every member has called it with this name.

        timeout: seconds until OutcomeUnknown; None: for ever. After OutcomeUnknown or Paused the
                 barrier goes on: call it again, and it is the same one
        """
        self.check_member("barrier()")
        seconds("timeout", timeout)
        lane = CALL_PREFIX + "barrier/" + string_of("name", name)
        here = np.ones(1, np.uint8)
        spec = TensorSpec("here", _abi.U8, (1,))
        tensors = [(spec, here.ctypes.data, here.nbytes)]
        handle = self.start(lane, tensors, here, lambda _: None, RoundSpec(Op.MAX), goes_on=True)
        self.complete(handle, timeout)

    # ---- how it is going

    def busy(self, reason: str, expected: float) -> None:
        """This trainer does something else, evaluates or writes a checkpoint, say. The reason is
        named when others wait for it.

        expected: about how many seconds it takes; 0: it is over
        """
        self.check_open("busy()")
        number = number_of(expected)
        if not number >= 0:
            raise InvalidArgument(f"expected cannot be {expected!r}. Use a number of seconds.")
        self.worker.busy(string_of("reason", reason), number)

    def finished(self) -> None:
        """Out of data: this worker contributes to no further round, and is not missed. It has no
        rank any more, and can only be closed. Raises FailedPrecondition while rounds that it
        contributes to have no outcome: wait() for them."""
        self.check_open("finished()")
        if self._in_flight:
            names = ", ".join(self._in_flight)
            raise FailedPrecondition(
                f"finished() was used with rounds in flight whose outcome was not waited for: "
                f"{names}. Wait for their handles first, or close() the client, which gives them "
                "up."
            )
        self.worker.finished()
        self._finished = True

    def close(self, *, finished: bool = True) -> None:
        """Leaves the job. Nothing happens the second time, or in a child after fork.

        finished: this worker has done its part, and the others go on without one in its place;
                  otherwise it is missed, if they need all workers

        After a broadcast() with no round behind it, it waits up to a minute for the others to get
        the value.
        """
        if self._closed or os.getpid() != self._process:
            return
        if finished:
            self.hand_over()
        self._closed = True
        _open_clients.discard(self)
        try:
            if finished:
                self.worker.finished()
            self.worker.leave()
        finally:
            self.worker.close()
            self._in_flight.clear()

    def hand_over(self) -> None:
        """After a broadcast with no round behind it, waits until every worker is through it: the
        root can serve its value only while it is here."""
        last, self._last_broadcast = self._last_broadcast, None
        if self._closed or self._finished or os.getpid() != self._process:
            return
        if last != self.worker.rounds_begun:
            return
        try:
            if self.world_size > 1:
                self.barrier("hand over", _HAND_OVER_SECONDS)
        except Error as error:
            logger.warning("not everybody may have the value of the last broadcast: %s", error)

    def __enter__(self) -> "Client":
        self.check_open("A client")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(finished=kind is None)

    def start(
        self,
        lane_name: str,
        tensors: Sequence[tuple[TensorSpec, int | None, int]],
        memory: object,
        output: Callable[[Result], T],
        spec: RoundSpec,
        goes_on: bool = False,
    ) -> Handle[T]:
        """One round of a call lane whose tensors, given by address and bytes, lie in `memory`; this
        worker does not contribute to those without an address. They are the lane's first ones, so
        their handles count from 0; `output` makes of the result what wait() returns.

        goes_on: a synchronous call, which waits with complete(). When the one before it of this
                 name has left its round without the outcome, it is that round, as it was begun:
                 a second one would be a round ahead of the other workers
        """
        for tensor, _, _ in tensors:
            check_dtype(spec, tensor)
        name = lane_name.removeprefix(CALL_PREFIX)
        # The library would drop the outcome of the round before, and hand its handle the next one.
        before = self._in_flight.get(name)
        if before is not None and not (goes_on and before._is_left):
            how = "Call it again without _async" if before._is_left else "wait() for its handle"
            raise FailedPrecondition(
                f"{name} was begun a second time, and the outcome of its round before was not "
                f"waited for. {how} first, or use another name."
            )
        if self.before_call is not None and before is None:
            self.before_call(lane_name)
        named = [tensor for tensor, _, _ in tensors]
        lane, handles = self.worker.register(lane_name, _abi.CALL, named)
        if before is not None:
            before._is_left = False
            before._make = output
            return before
        self.worker.begin(lane, spec)
        handle = Handle(self, lane, name, memory, output)
        self._in_flight[name] = handle
        for pushed, (_, address, size) in zip(handles, tensors):
            if address is not None:  # Skipped otherwise.
                self.worker.push(lane, pushed, address, size)
        handle._refusal = self.worker.commit(lane)
        return handle

    def complete(self, handle: Handle[T], timeout: float | None) -> T:
        """Waits for what a synchronous call has started with `goes_on`, and returns it."""
        try:
            return handle.wait(timeout)
        except BaseException:  # Ctrl-C, too.
            handle._is_left = True
            raise

    def give_up_rounds(self) -> None:
        """Of calls, and the membership with them: this worker must be ready again."""
        if not self._in_flight:
            return
        self.worker.abandon()
        for handle in self._in_flight.values():
            handle._failed = FailedPrecondition(
                f"The round of {handle.name} was given up by rejoin(), and has no outcome here. "
                "Begin it again."
            )
        self._in_flight.clear()

    def _next_version(self, name: str) -> int:
        """Agreed by all members, so that a worker that joined late takes part. It also keeps the
        value before this one where it is until everybody has it."""
        known = np.array([self._versions.get(name, 0)], np.int64)
        agreed = self.allreduce(known, "broadcast/" + name, op=Op.MAX)
        self._versions[name] = version = int(agreed[0]) + 1
        return version

    def _ended(self, handle: Handle[Any]) -> None:
        if self._in_flight.get(handle.name) is handle:
            del self._in_flight[handle.name]


def connect(
    address: str | None = None,
    job: str | None = None,
    worker_id: str | None = None,
    *,
    run_id: str | None = None,
    min_workers: int | None = None,
    max_workers: int | None = None,
    start_workers: int | None = None,
    fresh: bool | None = None,
    streams: int | None = None,
    log_level: str | None = None,
    timeout: float | None = 600.0,
) -> Client:
    """Connects a worker to its job and returns when it is a member, with a rank.

    What is not given is taken from the environment: BASIN_ADDRESS and so on for each option, and
    who this worker is from the launcher (torchrun, an indexed job of Kubernetes, mpirun, srun).
    A new job begins when `start_workers`, by default all `max_workers`, are there, or with at least
    `min_workers` when the aggregator's job.start_timeout (5 minutes) has passed.

    What it waits for is in the log within 2 seconds. Raises DeadlineExceeded, which says it too,
    after `timeout` seconds, which should be longer than start_timeout.
    """

    def text(value: int | None) -> str | None:
        return None if value is None else str(value)

    seconds("timeout", timeout)
    worker = Worker(
        {
            "address": address,
            "job": job,
            "worker_id": worker_id,
            "run_id": run_id,
            "min_workers": text(min_workers),
            "max_workers": text(max_workers),
            "start_workers": text(start_workers),
            "fresh": None if fresh is None else str(fresh).lower(),
            "streams": text(streams),
            "log_level": log_level,
        }
    )
    try:
        worker.ready()
        worker.await_member(timeout)
    except BaseException:
        worker.close()
        raise
    return Client(worker)


# A process that ends without a close would be counted as lost, and its threads may not outlive
# the interpreter. One that nobody refers to any more is kept until then: its library calls it back.
_open_clients: "set[Client]" = set()


@atexit.register
def _close_all() -> None:
    for client in list(_open_clients):
        if not hasattr(sys, "last_value"):  # The script did not end with an exception.
            client.hand_over()
        client.close(finished=False)
