# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A worker of a training job, for NumPy arrays.

with basin.connect(address="127.0.0.1:29600", job="mnist") as client:
    gradient = client.allreduce(gradient, "gradient", op=basin.Average)
"""

import atexit
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from basin import _abi, descent, exit_code
from basin.arguments import number_of, seconds, string_of, whole_number
from basin.described import Described
from basin.dlpack import SupportsDLPack
from basin.errors import (
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    InvalidArgument,
    Mismatch,
    OutcomeUnknown,
    Paused,
    Unsupported,
)
from basin.handle import CALL_PREFIX, Handle, Unnamed
from basin.progress import Progress
from basin.row_calls import RowCalls
from basin.spec import Counts, Op, ReductionOptions, RoundSpec, contribution, reduction
from basin.taken import Array, take_for
from basin.worker import (
    PartedResult,
    Place,
    Result,
    RoundInfo,
    TensorSpec,
    Worker,
    check_dtype,
    logger,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")

_DIGESTS_LANE = CALL_PREFIX + "digests"
# How long a worker whose last call was a broadcast waits for the others.
_HAND_OVER_SECONDS = 60.0
# After how long connect() repeats what it waits for; the time doubles, up to the second one.
_FIRST_REMINDER_SECONDS = 10.0
_LAST_REMINDER_SECONDS = 80.0
# How long workers whose broadcasts differ wait for each other, to say how.
_DESCRIPTION_SECONDS = 10.0


class Client(RowCalls):
    """A member of a job, created by connect(). Any thread may call any method except close()."""

    members = 0  # How many of this process became members.

    def __init__(self, worker: Worker, timeout: float | None, is_ready: bool) -> None:
        self.worker = worker
        self._process = os.getpid()
        self._timeout = timeout  # For ready().
        self._is_ready = threading.Event()
        self._becoming_ready = threading.Lock()
        self._is_late = False  # Whether it lacked the state of the job when it became a member.
        # Until it is ready: the expected rank and world size, and those that the user was told.
        self._expected = worker.place().expected
        self._foretold: tuple[int, int] | None = None
        # Called when a worker becomes a member after connect().
        self.joined: Callable[[], None] | None = None
        # By name, or by lane. They are kept alive, because the library may still read their memory.
        self._in_flight: dict[str | tuple[str, int], Handle[Any]] = {}
        # Held while a call without a name is begun, because their order counts.
        self._beginning = threading.Lock()
        # Those of calls without a name, by handle.
        self._unnamed_lanes: dict[int, str] = {}
        # By name: the number of broadcasts.
        self._versions: dict[str, int] = {}
        # By name: the agreed version of a broadcast that timed out after that, and what it moves.
        self._open_versions: dict[str, tuple[int, Described]] = {}
        # How many rounds this worker had begun when it last took part in a broadcast.
        self._last_broadcast: int | None = None
        self._progress = Progress()
        self._closed = False
        self._has_left = False
        self._finished = False
        # Called with the facts of each result; may raise to refuse it.
        self.check_result: Callable[[RoundInfo], None] = lambda _: None
        # Called with the lane of each call before it begins; may raise to refuse the call.
        self.before_call: Callable[[str], None] | None = None
        self._will_leave = False
        # Whether this process has done all that it should when it leaves as it said.
        self.ends_well = False
        # Leaves the job for leave_on_sigterm(); what holds this client may have more to close.
        self.leave: Callable[[], None] = self.close
        if is_ready:
            self._note_ready()
        _open_clients.add(self)

    @property
    def is_closed(self) -> bool:
        """Whether close() was called."""
        return self._closed

    def check_open(self, call: str) -> None:
        """Raises FailedPrecondition for a `call` after close()."""
        if self._closed:
            raise FailedPrecondition(
                f"{call} was used after close(), when this worker has left its job. Use it before, "
                "or connect another client."
            )

    def check_member(self, call: str) -> None:
        """Like check_open(), and also after finished()."""
        self.check_open(call)
        if self._finished:
            raise FailedPrecondition(
                f"{call} was used after finished(), when this worker no longer has a place in the "
                "job and takes part in no round. Use it before."
            )

    # ---- the place in the job

    @property
    def worker_id(self) -> str:
        """The id of this worker, unique in the job."""
        self.check_open("worker_id")
        return self.worker.id

    @property
    def place(self) -> Place:
        """Rank, world size and generation at the same moment. Raises FailedPrecondition after
        finished(), and errors that are fatal for this process, such as Superseded. The same holds
        for rank, world_size and generation."""
        return self._place("place")

    @property
    def rank(self) -> int:
        """The rank of this trainer, from 0 to world_size - 1 within a generation."""
        return self._place("rank").rank

    @property
    def world_size(self) -> int:
        """The number of trainers in the present generation."""
        return self._place("world_size").world_size

    @property
    def generation(self) -> tuple[int, int]:
        """The version of the membership. It changes with the members and only increases."""
        return self._place("generation").generation

    def _place(self, call: str) -> Place:
        self.check_member(call)
        place = self.worker.place()
        if not (self._is_ready.is_set() or place.is_member):
            # While the job is paused there is no news.
            self._expected = place.expected or self._expected
            if self._expected is not None:
                self._foretold = rank, world_size = self._expected
                place = replace(place, rank=rank, world_size=world_size)
        descent.place(self.worker.options, place.rank, place.world_size)
        return place

    def ready(self) -> None:
        """Makes a worker a member that connect(ready=False) has left outside, and returns when it
        is one. The others wait for it from then on. Each collective call does so by itself."""
        self.check_member("ready()")
        if self._is_ready.is_set():
            return
        with self._becoming_ready:
            if self._is_ready.is_set():
                return
            if not self.worker.place().is_member:
                self.worker.ready()
            _wait(self.worker.await_member, "become a member", self._timeout)
            place, foretold = self.place, self._foretold
            if foretold is not None and foretold != (place.rank, place.world_size):
                logger.warning(
                    "this worker has joined as rank %d of %d, and was told before that it would be "
                    "rank %d of %d: others have joined or left meanwhile. Read rank and world size "
                    "again where they were used.",
                    place.rank,
                    place.world_size,
                    *foretold,
                )
            if self.joined is not None:
                self.joined()
            self._note_ready()

    def _note_ready(self) -> None:
        Client.members += 1
        place = self.worker.place()
        self._is_late = place.donor_since != (0, 0) and not place.is_donor
        self._is_ready.set()

    def check_begins(self, call: str) -> None:
        """Raises Unsupported if this worker has joined a job that trains already, for a `call`
        that all workers make together at the start."""
        self.check_member(call)
        if self._is_late or not (self._is_ready.is_set() or self.worker.place().is_member):
            raise Unsupported(
                f"Worker {self.worker.id} joins a job that trains already, and {call} is made by "
                "all workers at the start. Nothing gives this one the present state of the "
                "training: end the job, and start all workers from its last checkpoint."
            )

    def rejoin(self, timeout: float | None) -> None:
        """Makes this worker a member again after an eviction. Its rounds are abandoned."""
        self._give_up_rounds()
        self.worker.ready()
        self.worker.await_member(timeout)
        self._note_ready()

    def take_part(self, call: str) -> None:
        """For a `call` that all members make together: this worker is one from then on."""
        self.check_member(call)
        self.ready()

    # ---- collectives

    def allreduce(
        self,
        array: ArrayLike | SupportsDLPack,
        name: str | None = None,
        *,
        op: Op,
        counts: Counts | None = None,
        timeout: float | None = None,
        **options: "Unpack[ReductionOptions]",
    ) -> Array:
        """Reduces `array` over all members; each gets the same bits.

        array:            a NumPy array, or any array in CPU memory that supports DLPack, such as a
                          torch tensor; any shape; float64, float32, float16, bfloat16, int64,
                          int32, uint8
        name:             the name by which the arrays of different workers are matched; a name has
                          one shape and dtype. Calls without a name are matched by their order in
                          the program of each worker, and may have any shape: all workers make the
                          same ones in the same order. Names are for calls that a worker may make at
                          another place of its program, such as one that joins a job without
                          gradients
        counts:           the samples, tokens and micro-batches in this contribution. A weighted
                          average needs the count that is its weight; 0 adds nothing, whatever the
                          array holds. The handle's info has the sums over all workers, for every
                          op.
        timeout:          seconds until OutcomeUnknown; None: forever
        options:          must be the same on all workers:
        weight_by:        for op=basin.WeightedAverage: "samples", "tokens" or "micro_batches"
        contributes:      for op=basin.WeightedAverage: "mean" if the array is the mean over what
                          weight_by names, "sum" if it is the sum
        prescale_factor:  multiplies each array before the sum
        postscale_factor: multiplies the result after the sum
        gradient_predivide_factor:
                          divides each array before the sum and multiplies the result after it, so
                          that the sum stays in range. "auto": a power of two near the square root
                          of the number of workers, chosen for each round
        divide_by_present:
                          divides an average by the number of workers that sent the array, and
                          ignores those that skipped it

        Returns a new array of the same shape and dtype. A floating sum is computed in float32
        (float64 for float64), over worker ids in byte order, and rounded once. NumPy has no
        bfloat16: an array of ml_dtypes keeps its dtype, and an array that came through DLPack is
        returned as float32 with the same numbers.

        Raises InvalidArgument for another dtype and for contradictory options, before anything is
        sent; Unsupported for a device other than the CPU; Mismatch if shape, dtype, op or options
        differ from the others', and without a name on all workers, with what two of them call;
        NotFound if the counts of all workers are 0; RoundAborted if the round has no result.
        Warns of ContributorsChanged if the contribution of a member is not in the result, because
        it was refused or withdrawn. After OutcomeUnknown and Paused the round continues: another
        call waits for the same round, and ignores the array that it is given.
        """
        seconds("timeout", timeout)
        spec = contribution(reduction("allreduce()", op, options), counts)
        handle = self._reduce("allreduce()", array, name, True, spec, goes_on=True, timeout=timeout)
        return self.complete(handle, timeout)

    def allreduce_async(
        self,
        array: ArrayLike | SupportsDLPack,
        name: str | None = None,
        *,
        op: Op,
        counts: Counts | None = None,
        **options: "Unpack[ReductionOptions]",
    ) -> Handle[Array]:
        """Like allreduce(), but returns at once. Do not change `array` until the handle is done.

        At most 16 calls without a name are in flight; another one waits for the oldest.
        Raises FailedPrecondition if the outcome of the previous round of this name has not been
        waited for.
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
        not wait for one, and returns their result.

        like: an array with the shape and dtype of the name; its numbers are not read

        The other arguments are as for allreduce(), and op and options must equal the others'. An
        average is divided by the number of all members, as if this one had sent zeros, unless
        divide_by_present is set; a weighted average is divided by the counts of the others; a
        minimum, maximum or product is that of the others. Raises NotFound if all members skip the
        round.
        """
        seconds("timeout", timeout)
        spec = contribution(reduction("skip_round()", op, options), Counts(0, 0, 0))
        handle = self._reduce("skip_round()", like, name, False, spec, goes_on=True)
        return self.complete(handle, timeout)

    def _reduce(
        self,
        call: str,
        array: ArrayLike | SupportsDLPack,
        name: str | None,
        contributes: bool,
        spec: RoundSpec,
        goes_on: bool = False,
        over_all: bool = True,
        timeout: float | None = None,
    ) -> Handle[Array]:
        self.take_part(call)
        taken = take_for(name, array)

        def output(result: Result | PartedResult) -> Array:
            received = np.empty_like(taken.array)
            result.copy(0, received.ctypes.data, received.nbytes)
            return taken.give(received)

        address = taken.array.ctypes.data
        if name is None:
            sent = [(taken.spec, address, taken.array.nbytes)]
            return self.start_unnamed(sent, taken, output, spec, goes_on, timeout)
        return self.start(
            CALL_PREFIX + taken.name,
            [(taken.spec, address if contributes else None, taken.array.nbytes)],
            taken,
            output,
            spec,
            goes_on,
            over_all,
        )

    def check_root(self, root_rank: int) -> int:
        """Raises InvalidArgument if no member has this rank."""
        root, place = whole_number(root_rank), self.worker.place()
        if root is None:
            raise InvalidArgument(f"root_rank cannot be {root_rank!r}. Use a rank, for example 0.")
        if root >= place.world_size:
            raise InvalidArgument(
                f"Rank {root} cannot be the root: there are {place.world_size} workers. Name one "
                f"from 0 to {place.world_size - 1}."
            )
        return root

    def broadcast_memory(
        self,
        name: str,
        version: int,
        described: Described,
        tensors: Sequence[tuple[TensorSpec, int, int]],
        timeout: float | None,
        digests: Callable[[], bytes] | None = None,
    ) -> None:
        """Broadcasts tensors in place, each given by address and bytes, as the version that
        agree_on_version() returned. Waits `timeout` seconds for the root's values.

        digests: returns those of all tensors, in a row and each of one length. With it, only the
                 tensors whose digest is not the root's are moved"""
        end = math.inf if timeout is None else time.monotonic() + timeout
        root = self.check_root(described.root_rank)
        place = self.worker.place()
        lane = CALL_PREFIX + "broadcast"
        self.note_served()
        if place.has(root):
            for spec, address, size in tensors:
                self.worker.announce(lane, spec, version, address, size)
            if tensors and digests is not None:
                made = np.frombuffer(digests(), np.uint8)
                spec = TensorSpec(name, _abi.U8, made.shape)
                self.worker.announce(_DIGESTS_LANE, spec, version, made.ctypes.data, made.nbytes)
            return
        source = self.worker.member_id(root)

        def get(lane: str, spec: TensorSpec, address: int, size: int) -> None:
            left = max(0.0, end - time.monotonic())
            self.worker.get(lane, spec, version, source, left, address, size)

        try:
            if tensors and digests is not None:
                mine = np.frombuffer(digests(), np.uint8)
                theirs = np.empty_like(mine)
                spec = TensorSpec(name, _abi.U8, theirs.shape)
                get(_DIGESTS_LANE, spec, theirs.ctypes.data, theirs.nbytes)
                differs = (mine != theirs).reshape(len(tensors), -1).any(axis=1)
                tensors = [tensor for tensor, moves in zip(tensors, differs) if moves]
            for spec, address, size in tensors:
                get(lane, spec, address, size)
        except DeadlineExceeded:
            self._open_versions[name] = version, described
            raise

    def barrier(self, name: str = "barrier", timeout: float | None = None) -> None:
        """Returns when every member has called it with this name.

        timeout: seconds until OutcomeUnknown; None: forever. After OutcomeUnknown or Paused the
                 barrier stays open, and another call waits for the same one
        """
        self.take_part("barrier()")
        seconds("timeout", timeout)
        lane = CALL_PREFIX + "barrier/" + string_of("name", name)
        here = np.ones(1, np.uint8)
        spec = TensorSpec("here", _abi.U8, (1,))
        tensors = [(spec, here.ctypes.data, here.nbytes)]
        handle = self.start(lane, tensors, here, lambda _: None, RoundSpec(Op.MAX), goes_on=True)
        self.complete(handle, timeout)

    # ---- reports

    def busy(self, reason: str, expected: float) -> None:
        """Reports that this trainer does something else, for example an evaluation or a checkpoint.
        Workers that wait for it get the reason.

        expected: about how many seconds it takes; 0: it is over
        """
        self.check_open("busy()")
        number = number_of(expected)
        if not number >= 0:
            raise InvalidArgument(f"expected cannot be {expected!r}. Use a number of seconds.")
        self.worker.busy(string_of("reason", reason), number)

    def report_progress(self, done: float, **metrics: float) -> None:
        """Reports how far the training is, where something shows it: a TrainJob of Kubeflow Trainer
        does, in status.trainerStatus with the estimated time that is left, and otherwise the
        annotations of the pod that BASIN_PROGRESS_POD names. Elsewhere it does nothing. All workers
        may call it, in each step; rank 0 sends the latest report every five seconds, in the
        background, and never fails because of it. Raises InvalidArgument if BASIN_PROGRESS_POD is
        not NAMESPACE/NAME.

        done:    the share of the whole training that is done, from 0 to 1
        metrics: numbers to show beside it, by name; the number of workers is one of them
        """
        self.check_open("report_progress()")
        place = self.worker.place()
        first = place.is_member and place.rank == 0
        self._progress.report(done, {"workers": place.world_size, **metrics}, send=first)

    def finished(self) -> None:
        """Declares that this worker is out of data: it contributes to no further round, and the
        others do not wait for it. It no longer has a rank, and can only be closed. Raises
        FailedPrecondition while its own rounds have no outcome: wait() for them first."""
        self.check_open("finished()")
        if self._in_flight:
            names = ", ".join(each.name for each in list(self._in_flight.values()))
            raise FailedPrecondition(
                f"finished() was used with rounds in flight whose outcome was not waited for: "
                f"{names}. Wait for their handles first, or close() the client, which abandons "
                "them."
            )
        self.worker.finished()
        self._finished = True

    def will_leave(self, *, ends_well: bool = False) -> None:
        """Declares that this worker leaves at the end of its step; a signal handler may call it.

        The step continues, except in a paused job, where the missing workers may never come: there,
        each wait ends with Paused, about five seconds after the pause began. Then close() the
        client: the round goes on without this worker.

        ends_well: a script that does not catch that Paused ends with 0"""
        self.check_open("will_leave()")
        self._will_leave = True
        self.ends_well = self.ends_well or ends_well
        self.worker.will_leave()

    def has_said_it_leaves(self) -> bool:
        """Whether will_leave() was called."""
        return self._will_leave

    def leaves_with(self, kind: type[BaseException] | None) -> bool:
        """Whether this worker leaves as it should with an exception of this kind, or with None:
        Paused is how a wait ends after will_leave(), and SystemExit is how the script may end."""
        return kind is None or (self._will_leave and issubclass(kind, Paused | SystemExit))

    def close(self, *, finished: bool = True) -> None:
        """Leaves the job. Does nothing the second time, or in a child after fork.

        finished: this worker has done its part, and the others continue without a replacement;
                  otherwise they wait for one if they need all workers

        After a broadcast() that no round has followed, it waits up to a minute for the others to
        get the value.
        """
        if self._closed or os.getpid() != self._process:
            return
        if finished:
            self.hand_over()
        self._closed = True
        _open_clients.discard(self)
        in_flight = list(self._in_flight.values())
        try:
            self.leave_job(finished)
        finally:
            for handle in in_flight:
                handle.end_thread()
            self.worker.close()
            self._in_flight.clear()
            # The others have gone on, so it may wait for its receiver.
            self._progress.close()

    def leave_job(self, finished: bool) -> None:
        """Leaves the job, but keeps its memory. Any thread may call it; see close()."""
        if self._has_left:
            return
        self._has_left = True
        if finished and self._is_ready.is_set():
            self.worker.finished()
        self.worker.leave()

    def note_served(self) -> None:
        """Until the next round, a root may be asked for what it has broadcast: see hand_over()."""
        self._last_broadcast = self.worker.rounds_begun

    def hand_over(self) -> None:
        """After a broadcast that no round has followed, waits until every worker has completed it,
        because the root can serve its value only until it leaves."""
        last, self._last_broadcast = self._last_broadcast, None
        if self._closed or self._finished or os.getpid() != self._process:
            return
        if last != self.worker.rounds_begun:
            return
        try:
            if self.world_size > 1:
                self.barrier("hand over", _HAND_OVER_SECONDS)
        except Error as error:
            logger.warning("some workers may lack the value of the last broadcast: %s", error)

    def __enter__(self) -> "Client":
        self.check_open("A client")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(finished=self.leaves_with(kind))

    def start(
        self,
        lane_name: str,
        tensors: Sequence[tuple[TensorSpec, int | None, int]],
        memory: object,
        output: "Callable[[Any], T]",
        spec: RoundSpec,
        goes_on: bool = False,
        over_all: bool = False,
        kind: "type[Handle[Any]] | Callable[..., Handle[Any]]" = Handle,
    ) -> Handle[T]:
        """Starts a round of a call lane. Its tensors, given by address and bytes, lie in `memory`;
        this worker does not contribute to tensors without an address. They are the first tensors of
        the lane, so their handles count from 0. `output` converts the result to what wait()
        returns.

        goes_on: this is a synchronous call, which waits with complete(). If the previous call of
                 this name has left its round without the outcome, this call continues that round
                 unchanged, because a new round would be ahead of the other workers
        over_all: the user is warned of a result without a part of every member
        kind: makes the handle
        """
        for tensor, _, _ in tensors:
            check_dtype(spec, tensor)
        name = lane_name.removeprefix(CALL_PREFIX)
        # Otherwise the library would drop the outcome of the previous round, and its handle would
        # get that of the next one.
        before = self._in_flight.get(name)
        if before is not None and not (goes_on and before._is_left):
            how = "Call it again without _async" if before._is_left else "wait() for its handle"
            raise FailedPrecondition(
                f"{name} was begun a second time, but the outcome of its previous round was not "
                f"waited for. {how} first, or use another name."
            )
        if self.before_call is not None and before is None:
            self.before_call(lane_name)
        named = [tensor for tensor, _, _ in tensors]
        try:
            lane, handles = self.worker.register(lane_name, _abi.CALL, named)
        except Mismatch as error:
            if before is not None:
                raise
            return self._start_refused(lane_name, memory, output, spec, error)
        if before is not None:
            before._is_left = False
            before._make = output
            return before
        self.worker.begin(lane, spec)
        handle = kind(self, lane, name, memory, output, over_all)
        self._in_flight[name] = handle
        for pushed, (_, address, size) in zip(handles, tensors):
            if address is not None:  # Skipped otherwise.
                self.worker.push(lane, pushed, address, size)
        handle._refusal = self.worker.commit(lane)
        return handle

    def start_unnamed(
        self,
        arrays: Sequence[tuple[TensorSpec, int | None, int]],
        memory: object,
        output: "Callable[[Any], T]",
        spec: RoundSpec,
        goes_on: bool,
        timeout: float | None,
        kind: "type[Handle[Any]] | Callable[..., Handle[Any]]" = Handle,
    ) -> Handle[T]:
        """Like start(), for a call without a name: the next one of this worker's program. `output`
        gets the results by array. Waits `timeout` seconds for room, and for the place of the others
        in their programs, which is known after the first call."""
        for array, _, _ in arrays:
            check_dtype(spec, array)
        specs = [array for array, _, _ in arrays]
        key = spec.op, spec.call, tuple((array.dtype, array.shape) for array in specs)
        with self._beginning:
            in_flight = list(self._in_flight.values())  # Another thread may end one meanwhile.
            unnamed = [each for each in in_flight if each._unnamed is not None]
            left = next((each for each in unnamed if each._is_left), None)
            if left is not None:
                assert left._unnamed is not None
                if not goes_on or left._unnamed.key != key:
                    raise FailedPrecondition(
                        f"A call without a name was begun, but the outcome of {left.name} was not "
                        "waited for. Make the same call again first, without _async."
                    )
                left._is_left = False
                left._make = output
                return left
            if self.before_call is not None:
                self.before_call(CALL_PREFIX + "unnamed")
            lane, parts = self._next_call(specs, timeout, unnamed)
            self.worker.begin(lane, spec)
            shapes = ", ".join(str(list(array.shape)) for array in specs[:4])
            more = f" and {len(specs) - 4} more" if len(specs) > 4 else ""
            what = spec.call or f"{spec.op.name} of shape {shapes}{more}"
            name = f"the call without a name, {what}"
            handle = kind(self, lane, name, memory, output, True)
            handle._key, handle._unnamed = ("unnamed", lane), Unnamed(key, parts)
            self._in_flight[handle._key] = handle
        self.push_parts(lane, parts, [address for _, address, _ in arrays])
        handle._refusal = self.worker.commit(lane)
        return handle

    def push_parts(
        self, lane: int, parts: "Sequence[_abi.Part]", addresses: Sequence[int | None]
    ) -> None:
        """Pushes the parts of arrays at these addresses. Arrays without an address are skipped."""
        pushed = (_abi.Pushed * max(1, len(parts)))()
        count = 0
        for part in parts:
            address = addresses[part.array]
            if address is None:
                continue
            to = pushed[count]
            to.tensor, to.data, to.bytes = part.tensor, address + part.offset, part.bytes
            count += 1
        self.worker.push_many(lane, pushed, count)

    def _next_call(
        self, specs: Sequence[TensorSpec], timeout: float | None, in_flight: list[Handle[Any]]
    ) -> "tuple[int, list[_abi.Part]]":
        """Waits for the oldest of the calls without a name if there are too many."""
        while True:
            try:
                lane, parts = self.worker.next_call(specs, timeout)
            except FailedPrecondition:
                if not in_flight:
                    raise
                oldest = in_flight.pop(0)
            else:
                # A call of two rounds holds its lane also in the second one.
                holder = self._in_flight.get(("unnamed", lane))
                if holder is None:
                    return lane, parts
                oldest = holder
            try:
                oldest.wait(timeout)
            except Exception:
                if oldest._failed is None:
                    raise
                # It has ended, and its handle raises this again.

    def unnamed_lane(self, lane: int) -> str:
        """The place of a lane of calls without names, which is the same on all workers."""
        if not self._unnamed_lanes:
            lanes = {}
            for place in range(_abi.MOST_CALLS):
                name = f"unnamed/{_abi.MOST_CALLS}/{place}"
                handle, _ = self.worker.register(CALL_PREFIX + name, _abi.CALL, [])
                lanes[handle] = name
            self._unnamed_lanes = lanes  # At once: several threads ask.
        return self._unnamed_lanes[lane]

    def _start_refused(
        self,
        lane_name: str,
        memory: object,
        output: Callable[[Result], T],
        spec: RoundSpec,
        refusal: Error,
    ) -> Handle[T]:
        """Takes part in the round without a contribution, so that the others do not wait for one.
        The handle raises the refusal."""
        lane, _ = self.worker.register(lane_name, _abi.CALL, [])
        self.worker.begin(lane, spec)
        name = lane_name.removeprefix(CALL_PREFIX)
        handle = Handle(self, lane, name, memory, output, over_all=False)
        handle._refusal = refusal
        self._in_flight[name] = handle
        self.worker.withdraw(lane, str(refusal))
        return handle

    def complete(self, handle: Handle[T], timeout: float | None) -> T:
        """Waits for the result of a synchronous call that was started with `goes_on`."""
        try:
            return handle.wait(timeout)
        except BaseException:  # Includes Ctrl-C.
            handle._is_left = True
            handle.go_on()
            raise

    def _give_up_rounds(self) -> None:
        """Abandons the rounds of calls, and the membership with them: this worker must declare
        itself ready again."""
        given_up = list(self._in_flight.values())  # Their threads may end some meanwhile.
        if not given_up:
            return
        for handle in given_up:
            handle._failed = FailedPrecondition(
                f"The round of {handle.name} was abandoned by rejoin(), and has no outcome here. "
                "Begin it again."
            )
        self._in_flight.clear()
        self.worker.abandon()
        # Otherwise one of them could begin a round after the rejoin.
        for handle in given_up:
            handle.end_thread()

    def agree_on_version(self, name: str, described: Described, timeout: float | None) -> int:
        """Returns the version of the next value to broadcast, on which all members agree, including
        late joiners. This round also ensures that all members have the previous value before it is
        replaced. Waits `timeout` seconds for the others; None: forever.

        Raises Mismatch on all members if what they broadcast differs."""
        if name in self._open_versions:
            version, before = self._open_versions[name]
            if difference := described.difference(before, "the broadcast that is still open"):
                raise Mismatch(f"{difference} Continue that one first.")
            del self._open_versions[name]
            return version
        # The largest fingerprint is that of all if it is the smallest as well.
        text, mine = described.to_bytes(), described.fingerprint()
        known = np.array([self._versions.get(name, 0), mine, ~mine, len(text)], np.int64)
        try:
            agreed = self._largest(known, "broadcast/" + name, timeout)
        except OutcomeUnknown as error:
            raise DeadlineExceeded(f"Not every worker has called broadcast(): {error}") from error
        highest, largest, inverse_of_smallest, longest = map(int, agreed)
        self._versions[name] = version = highest + 1
        if largest != ~inverse_of_smallest:
            raise self._mismatch(name, described, longest)
        return version

    def _largest(self, array: Array, name: str, timeout: float | None) -> Array:
        spec = RoundSpec(Op.MAX)
        handle = self._reduce("broadcast()", array, name, True, spec, goes_on=True, over_all=False)
        return self.complete(handle, timeout)

    def _mismatch(self, name: str, described: Described, longest: int) -> Mismatch:
        """The error for this worker, after a round in which all have seen that they differ. Another
        round brings what rank 0 broadcasts, because a worker may end with its error."""
        way_out = "Broadcast the same on all workers."
        text = described.to_bytes() if self.worker.place().has(0) else b""
        memory = np.frombuffer(text.ljust(longest, b"\0"), np.uint8)
        lane = f"broadcast/{name}/described.{longest}"
        try:
            received = self._largest(memory, lane, _DESCRIPTION_SECONDS)
            first = Described.from_bytes(received.tobytes().rstrip(b"\0"))
        except (Error, ValueError):
            return Mismatch(f"The broadcast of {name} differs between workers. {way_out}")
        difference = described.difference(first, "rank 0") or (
            "Another worker broadcasts something else than this one does, and says what."
        )
        return Mismatch(f"The broadcast of {name} differs between workers. {difference} {way_out}")

    def ended(self, handle: Handle[Any]) -> None:
        """Another call may take the place of this one, whose outcome is known."""
        if self._in_flight.get(handle._key) is handle:
            del self._in_flight[handle._key]


def connect(
    address: str | None = None,
    job: str | None = None,
    worker_id: str | None = None,
    *,
    run_id: str | None = None,
    min_workers: int | None = None,
    max_workers: int | None = None,
    start_workers: int | None = None,
    ranks: int | None = None,
    local_rank: int | None = None,
    fresh: bool | None = None,
    streams: int | None = None,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    token_file: str | None = None,
    local: bool | None = None,
    log_level: str | None = None,
    pinned_bytes: int | None = None,
    timeline: str | None = None,
    timeline_every: int | None = None,
    timeline_max_bytes: int | None = None,
    local_group: str | None = None,
    nccl_library: str | None = None,
    software: str | None = None,
    timeout: float | None = 600.0,
    ready: bool = True,
) -> Client:
    """Connects a worker to its job and returns when it is a member, with a rank.

    Missing options come from the environment, such as BASIN_ADDRESS, and the worker's id from the
    launcher (torchrun, a Kubernetes indexed Job, mpirun, srun). A new job begins when
    `start_workers`, by default all `max_workers`, are ready, or with at least `min_workers` after
    the aggregator's job.start_timeout (5 minutes).

    Within 2 seconds the log states what it waits for, and repeats it from time to time. After
    `timeout` seconds, which should be longer than start_timeout, it raises DeadlineExceeded with
    the same reason.

    With ready=False it returns before that if the others train already, and they go on without this
    worker, which may still build its model. Its first collective call makes it a member, or
    Client.ready(). Until then rank and world size are those that it would have if it became a
    member now, and change when others join or leave. A worker that a new or paused job waits for
    is a member at once.

    A process that a worker has started with its own environment, such as a spawned one of a data
    loader that imports the script again, would take the worker's place: it gets FailedPrecondition.

    A script that ends with an error of Basin has the error's `exit_code` from now on, unless it has
    set sys.excepthook.
    """

    def text(value: int | None) -> str | None:
        return None if value is None else str(value)

    exit_code.install()
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
            "ranks": text(ranks),
            "local_rank": text(local_rank),
            "fresh": None if fresh is None else str(fresh).lower(),
            "streams": text(streams),
            "tls_ca": tls_ca,
            "tls_cert": tls_cert,
            "tls_key": tls_key,
            "token_file": token_file,
            "local": None if local is None else str(local).lower(),
            "log_level": log_level,
            "pinned_bytes": text(pinned_bytes),
            "timeline": timeline,
            "timeline_every": text(timeline_every),
            "timeline_max_bytes": text(timeline_max_bytes),
            "local_group": local_group,
            "nccl_library": nccl_library,
            "software": software,
        }
    )
    try:
        if not ready:
            _wait(worker.await_welcome, "be welcomed", timeout)
            ready = worker.place().expected is None
        if ready:
            worker.ready()
            _wait(worker.await_member, "become a member", timeout)
            place = worker.place()
            descent.place(worker.options, place.rank, place.world_size)
        return Client(worker, timeout, ready)
    except BaseException:
        worker.close()
        raise


def _wait(wait: Callable[[float], None], what: str, timeout: float | None) -> None:
    """Repeats what the worker waits for, at growing intervals."""
    end = math.inf if timeout is None else time.monotonic() + timeout
    patience = _FIRST_REMINDER_SECONDS
    while (left := end - time.monotonic()) > patience:
        try:
            return wait(patience)
        except DeadlineExceeded as error:
            logger.warning("still waits to %s: %s", what, error)
        patience = min(2 * patience, _LAST_REMINDER_SECONDS)
    wait(left)


# Closes clients at exit: otherwise the worker would count as lost, and its threads could outlive
# the interpreter. A client without references is kept until then, because its library calls it
# back.
_open_clients: "set[Client]" = set()


def was_member() -> bool:
    """Whether a worker of this process is, or was, a member of a job."""
    return Client.members > 0


def will_leave_all() -> None:
    """Client.will_leave() of every worker of this process; a signal handler may call it."""
    for client in list(_open_clients):
        client.will_leave()


def ends_well_with(error: BaseException) -> bool:
    """Whether a script that ends with this error has done what it should, because every worker of
    this process was told to leave."""
    told = [client for client in _open_clients if client.ends_well]
    return bool(told) and all(client.leaves_with(type(error)) for client in _open_clients)


def leave_all() -> None:
    """Every worker of this process leaves its job."""
    for client in list(_open_clients):
        client.leave()


@atexit.register
def _close_all() -> None:
    for client in list(_open_clients):
        raised = getattr(sys, "last_value", None)
        if raised is None and not client.has_said_it_leaves():
            client.hand_over()
        kind = None if raised is None else type(raised)
        client.close(finished=client.has_said_it_leaves() and client.leaves_with(kind))
