# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A worker as in the C interface: tensors are addresses. `basin.Client` and `basin.torch` build on
it.

Memory. The library reads a pushed tensor until wait() has returned the outcome of the round, or
until abandon() or close() returns. The caller keeps the memory alive and unchanged until then.
Threads. Any thread may call any method except close(), which must be the last call.
"""

import contextlib
import ctypes
import enum
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from basin import _abi, descent
from basin._library import lib
from basin.arguments import string_of
from basin.errors import BY_CODE, AbortCause, Error, Evicted, InvalidArgument, RoundAborted
from basin.notices import logger
from basin.spec import (
    AVERAGES,
    Counts,
    LocalReduction,
    Op,
    RoundSpec,
    Weight,
    sample_ranges,
)

T = TypeVar("T")

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
# A wait consists of slices of this length, so that Ctrl-C and other signals are handled.
SLICE_SECONDS = 0.5
# More than the library has lanes of calls at one time.
_MOST_CALLS = 5000
# The same in a worker that is to leave, and may have little time.
_LEAVING_SLICE_SECONDS = 0.05
MAX_ID_BYTES = 256
MAX_SAMPLE_RANGES = 4096  # In one answer.
_REJOIN = (
    " basin.torch.rejoin() makes this worker a member again, with the state of the others; without "
    "PyTorch, close the client and connect again."
)
_INTEGERS = (_abi.I64, _abi.I32, _abi.U8)


def _nanoseconds(seconds: float | None) -> int:
    """Converts seconds to nanoseconds; None and infinity never pass."""
    if seconds is None or math.isinf(seconds):
        return _abi.FOREVER
    return max(0, int(seconds * 1e9))


def to_error(error: int | None) -> Error:
    """The exception for a basin_error, which the caller still owns."""
    kind = BY_CODE.get(lib.basin_error_code(error), Error)
    text = lib.basin_error_message(error).decode()
    exception = kind(text + _REJOIN if kind is Evicted else text)
    exception.fatal = bool(lib.basin_error_is_fatal(error))
    exception.restart_helps = bool(lib.basin_error_restart_helps(error))
    if isinstance(exception, RoundAborted):
        exception.abort_cause = AbortCause(lib.basin_error_abort_cause(error))
    return exception


def call(name: str, *arguments: Any) -> None:
    """Calls basin_<name> and raises its error."""
    error = c_void_p()
    if getattr(lib, "basin_" + name)(*arguments, byref(error)) == 0:
        return
    try:
        raise to_error(error.value)
    finally:
        lib.basin_error_free(error)


@dataclass(frozen=True)
class TensorSpec:
    """A contiguous tensor in C order. `dtype` is one of _abi.F32 and its like."""

    name: str
    dtype: int
    shape: tuple[int, ...]

    def to_c(self) -> _abi.Tensor:
        shape = (c_uint64 * max(1, len(self.shape)))(*self.shape)
        return _abi.Tensor(self.name.encode(), self.dtype, len(self.shape), shape)


def check_dtype(spec: RoundSpec, tensor: TensorSpec) -> None:
    """Raises InvalidArgument for an average or a scale of integers, which support neither."""
    if tensor.dtype not in _INTEGERS:
        return
    if spec.op in AVERAGES:
        raise InvalidArgument(
            f"Tensor {tensor.name} has integers, which have no {spec.op.name}. Use op=basin.Sum, "
            "or convert it to a floating dtype."
        )
    if (spec.prescale, spec.postscale, spec.predivide) != (1.0, 1.0, 1.0):
        raise InvalidArgument(
            f"Tensor {tensor.name} has integers, which take no scale. Omit the factors, or convert "
            "it to a floating dtype."
        )


@dataclass(frozen=True)
class Place:
    """The place of this worker in its job. Ranks are dense from 0 within a generation.

    rank:        of this trainer
    world_size:  the number of trainers
    first_rank:  the first rank of this worker; it has `ranks` of them if it stands for several
                 trainers, and its trainer with local rank i has the rank first_rank + i
    is_donor:    whether the newest members take the state from this worker, which is said when its
                 trainer has the results of all rounds before theirs
    donor_since: the generation in which they joined; (0, 0) if no member has to load the state
    expected:    of a worker that is not a member of a job that goes on without it: the rank and the
                 world size if it became a member now; None while the job waits for workers
    """

    is_member: bool
    rank: int
    world_size: int
    generation: tuple[int, int]
    joins: int
    draining: bool
    is_donor: bool = False
    donor_since: tuple[int, int] = (0, 0)
    first_rank: int = 0
    ranks: int = 1
    expected: tuple[int, int] | None = None

    def has(self, rank: int) -> bool:
        """Whether a trainer of this worker has the rank."""
        return self.first_rank <= rank < self.first_rank + self.ranks


class SampleEpoch(NamedTuple):
    """An epoch of a lane: its number, its number of samples, and a hash of what determines their
    order."""

    number: int
    samples: int
    order: int


class RoundSamples(NamedTuple):
    """What a round did to an epoch: how many samples it committed, how many of the epoch are
    committed after it, and whether the epoch has ended with it."""

    epoch: int
    committed: int
    epoch_committed: int
    epoch_ended: bool


class LeaseOutcome(enum.IntEnum):
    """The answer to a lease of samples."""

    LEASED = _abi.SAMPLES_LEASED
    NONE_NOW = _abi.SAMPLES_NONE_NOW  # Others hold what is left, or an earlier epoch goes on.
    ENDED = _abi.SAMPLES_ENDED  # All is committed, or the lane is at a later epoch.


class NonFinite(NamedTuple):
    """The position of an input that was not finite, with the element's index in C order. The tensor
    may be one that this worker has not registered."""

    worker: str
    tensor: str
    element: int


@dataclass(frozen=True)
class RoundInfo:
    """What was done in a round: the same on all workers that registered the same tensors.

    generation:          of the members when the round was reduced
    world_size:          the number of their trainers, contributors or not
    contract_version:    the version of the arithmetic
    spec:                as used: the op, the scales, and the counts over all contributors, each
                         None if one contributor did not report it
    auto_predivide:      whether spec.predivide was requested as "auto", and chosen in this round
    contributors:        ids of the workers that were counted, in byte order; in the same order:
    contributor_weights: the weight of each; 1 unless the round was weighted
    contributor_norms:   the 2-norm of each contribution; infinite if it was not finite, None if it
                         is unknown
    contributor_ranks:   the number of trainers in each contribution
    contributor_local_reductions:
                         how each was reduced on its node before it was sent
    contributor_reduced_with:
                         the ids of the other workers in each, in byte order. With the last two, and
                         because contributions are added in the order of `contributors`, this is the
                         reduction plan: the same plan gives the same bits, unless a part of it is
                         LocalReduction.FAST
    late:                the ids of the workers whose contributions were left out because they were
                         late, in byte order. They get this result, too; see round.late_policy
    late_carries:        whether the next contribution of each of these may have this one as well;
                         see RoundSpec.deferred
    contributor_deferred:
                         by contributor: the trainers whose gradients of the round before are in it
    divisor:             the divisor of an average: the number of these trainers, or the sum of the
                         weights
    tensor_divisors:     the divisor of each tensor that has a result, by name
    squared_norm:        of the result; None if it has only integers, or nothing
    tensor_norms:        the 2-norm of each tensor's result, by name; integers have none
    nonfinite:           the first input that was not finite; None if all were finite
    chain:               equal on all workers that have the same history
    samples:             the epoch whose samples the contributions named, and what the round did to
                         it; None if they named none
    """

    round: int
    generation: tuple[int, int]
    world_size: int
    contract_version: int
    spec: RoundSpec
    auto_predivide: bool
    contributors: tuple[str, ...]
    contributor_weights: tuple[int, ...]
    contributor_norms: tuple[float | None, ...]
    contributor_ranks: tuple[int, ...]
    contributor_local_reductions: tuple[LocalReduction, ...]
    contributor_reduced_with: tuple[tuple[str, ...], ...]
    divisor: int
    tensor_divisors: dict[str, int] = field(hash=False)
    squared_norm: float | None
    tensor_norms: dict[str, float] = field(hash=False)
    overflow: bool
    nonfinite: NonFinite | None
    chain: int
    samples: "RoundSamples | None" = None
    late: tuple[str, ...] = ()
    late_carries: bool = False
    contributor_deferred: tuple[int, ...] = ()

    @property
    def trainers(self) -> int:
        """The number of trainers in the contributions."""
        return sum(self.contributor_ranks)

    @property
    def sum_of_weights(self) -> int:
        """The sum of the contributors' weights; their number if the round is not weighted."""
        return sum(self.contributor_weights)

    @property
    def norm(self) -> float | None:
        """The 2-norm of the result, over all its tensors; None if it has none."""
        return None if self.squared_norm is None else math.sqrt(self.squared_norm)


def _known(squared_norm: float) -> float | None:
    """A negative number means unknown."""
    return None if squared_norm < 0 else squared_norm


class Result:
    """The received result of a round. It is freed with the object.

    names: of the tensors of its lane, by handle
    """

    def __init__(self, pointer: c_void_p, names: Sequence[str]) -> None:
        self._pointer = pointer
        self._names = names
        self._results: tuple[list[int], list[float]] | None = None

    def __del__(self) -> None:
        lib.basin_result_free(self._pointer)

    @property
    def info(self) -> RoundInfo:
        info = _abi.RoundInfo(size=ctypes.sizeof(_abi.RoundInfo))
        lib.basin_result_info(self._pointer, byref(info))
        nonfinite = None
        if info.has_nonfinite:
            worker = lib.basin_result_nonfinite_worker(self._pointer) or b""
            tensor = lib.basin_result_nonfinite_tensor(self._pointer) or b""
            nonfinite = NonFinite(worker.decode(), tensor.decode(), info.nonfinite_element)
        divisors, squared_norms = self.results()
        everyone = range(info.contributors)
        ids = (lib.basin_result_contributor(self._pointer, i) for i in everyone)
        squares = (lib.basin_result_contributor_squared_norm(self._pointer, i) for i in everyone)
        return RoundInfo(
            round=info.round,
            generation=(info.generation_term, info.generation_counter),
            world_size=info.world_size,
            contract_version=info.contract_version,
            spec=RoundSpec(
                op=Op(info.op),
                prescale=info.prescale,
                postscale=info.postscale,
                predivide=info.predivide,
                weight_by=Weight(info.weight),
                contributes_sum=bool(info.contributes_sum),
                divide_by_present=bool(info.divide_by_present),
                loss_scale=info.loss_scale,
                layout=info.layout,
                counts=Counts.from_c(info.samples, info.tokens, info.micro_batches),
            ),
            auto_predivide=bool(info.auto_predivide),
            contributors=tuple((id or b"").decode() for id in ids),
            contributor_weights=tuple(
                lib.basin_result_contributor_weight(self._pointer, i) for i in everyone
            ),
            contributor_norms=tuple(
                None if square < 0 else math.sqrt(square) for square in squares
            ),
            contributor_ranks=tuple(
                lib.basin_result_contributor_ranks(self._pointer, i) for i in everyone
            ),
            contributor_local_reductions=tuple(
                LocalReduction(lib.basin_result_contributor_local_reduction(self._pointer, i))
                for i in everyone
            ),
            contributor_reduced_with=tuple(self._reduced_with(i) for i in everyone),
            divisor=info.divisor,
            tensor_divisors=self._reduced(divisors),
            squared_norm=_known(info.squared_norm),
            tensor_norms={
                name: math.sqrt(square)
                for name, square in self._reduced(squared_norms).items()
                if square >= 0
            },
            overflow=bool(info.overflow),
            nonfinite=nonfinite,
            chain=info.chain,
            late=self._late(),
            late_carries=bool(info.late_carries),
            contributor_deferred=tuple(
                lib.basin_result_contributor_deferred(self._pointer, i) for i in everyone
            ),
            samples=(
                RoundSamples(
                    info.sample_epoch,
                    info.samples_committed,
                    info.epoch_committed,
                    bool(info.epoch_ended),
                )
                if info.has_sample_epoch
                else None
            ),
        )

    def _late(self) -> tuple[str, ...]:
        ids: list[str] = []
        while (id := lib.basin_result_late(self._pointer, len(ids))) is not None:
            ids.append(id.decode())
        return tuple(ids)

    def _reduced_with(self, contributor: int) -> tuple[str, ...]:
        others: list[str] = []
        while id := lib.basin_result_contributor_reduced_with(
            self._pointer, contributor, len(others)
        ):
            others.append(id.decode())
        return tuple(others)

    def _reduced(self, values: Sequence[T]) -> dict[str, T]:
        """By name: those of the `values` by handle whose tensors have a result."""
        divisors, _ = self.results()
        if 0 not in divisors:
            return dict(zip(self._names, values))
        each = zip(self._names, divisors, values)
        return {name: value for name, divisor, value in each if divisor > 0}

    @property
    def rejection(self) -> Error | None:
        """Why this worker's contribution was not counted as sent; None if it was."""
        rejection = lib.basin_result_rejection(self._pointer)
        return None if rejection is None else to_error(rejection)

    def has(self, tensor: int) -> bool:
        """Whether any worker contributed to the tensor."""
        return bool(lib.basin_result_has(self._pointer, tensor))

    def copy(self, tensor: int, address: int, size: int) -> None:
        """Copies the tensor, `size` bytes in C order."""
        call("result_copy", self._pointer, tensor, address, size)

    def copy_many(self, buffers: "ctypes.Array[_abi.Buffer]", count: int) -> None:
        """Copies the first `count` of these, each to its `out`."""
        call("result_copy_many", self._pointer, buffers, count)

    def results(self) -> tuple[list[int], list[float]]:
        """By handle: the divisor of each tensor, 0 without a result, and its squared norm, negative
        for integers."""
        if self._results is None:
            most = len(self._names)
            divisors, squares = (c_uint64 * most)(), (c_double * most)()
            count = lib.basin_result_tensors(self._pointer, most, divisors, squares)
            self._results = divisors[:count], squares[:count]
        return self._results


class PartedResult:
    """The result of a call without a name, by array of the call: it consists of `parts`."""

    def __init__(self, result: Result, parts: "Sequence[_abi.Part]") -> None:
        self._result = result
        self._parts = parts

    @property
    def info(self) -> RoundInfo:
        """With the position of an array in the call as the name of its tensor."""
        divisors, squares = self._result.results()
        arrays: dict[str, list[int]] = {}
        for part in self._parts:
            arrays.setdefault(str(part.array), []).append(part.tensor)
        norms = {
            name: math.sqrt(sum(squares[tensor] for tensor in tensors))
            for name, tensors in arrays.items()
            if min(squares[tensor] for tensor in tensors) >= 0
        }
        of_arrays = {name: divisors[tensors[0]] for name, tensors in arrays.items()}
        return replace(
            self._result.info,
            tensor_divisors={name: each for name, each in of_arrays.items() if each > 0},
            tensor_norms=norms,
        )

    def has(self, array: int) -> bool:
        """Whether any worker contributed to the array; also if it is empty."""
        return all(self._result.has(each.tensor) for each in self._parts if each.array == array)

    def copy(self, array: int, address: int, size: int) -> None:
        """Copies the array, `size` bytes in C order."""
        buffers = [
            _abi.Buffer(part.tensor, None, address + part.offset, part.bytes)
            for part in self._parts
            if part.array == array
        ]
        assert sum(buffer.bytes for buffer in buffers) == size
        self._result.copy_many((_abi.Buffer * len(buffers))(*buffers), len(buffers))


class Worker:
    """One worker of a job. Options are those of the C interface; options that are None are
    omitted."""

    def __init__(self, options: Mapping[str, str | None]) -> None:
        # The library holds a pointer to it as long as the worker exists.
        self._log = _abi.Log(_write_log)
        # Each lane's tensors, by handle; and those of calls, the last ones that were registered.
        self._names: dict[int, list[str]] = {}
        self._names_of_calls: OrderedDict[int, list[str]] = OrderedDict()
        self.rounds_begun = 0
        self._slice_seconds = SLICE_SECONDS
        self._pointer = c_void_p()
        made = c_void_p(lib.basin_options_new(_abi.READ_ENVIRONMENT))
        try:
            lib.basin_options_set_log(made, self._log, None)
            for key, value in options.items():
                if value is not None:
                    call("options_set", made, key.encode(), string_of(key, value).encode())
            self.options = {
                key: (lib.basin_options_get(made, key.encode()) or b"").decode()
                for key in {*options, *descent.IDENTITY}
            }
            descent.claim(self.options)
            try:
                call("connect", made, byref(self._pointer))
            except Error:
                descent.release(self.options)
                raise
        finally:
            lib.basin_options_free(made)

    def close(self) -> None:
        """Closes all connections. A worker that has not left counts as lost."""
        pointer, self._pointer = self._pointer, c_void_p()
        descent.release(self.options)
        lib.basin_close(pointer)

    @property
    def pointer(self) -> c_void_p:
        """The basin_worker."""
        return self._pointer

    # ---- the place in the job

    @property
    def id(self) -> str:
        text = ctypes.create_string_buffer(MAX_ID_BYTES)
        lib.basin_worker_id(self._pointer, text, MAX_ID_BYTES)
        return text.value.decode()

    def place(self) -> Place:
        place = _abi.Place(size=ctypes.sizeof(_abi.Place))
        call("get_place", self._pointer, byref(place))
        return Place(
            is_member=place.role == _abi.MEMBER,
            rank=place.rank,
            world_size=place.world_size,
            generation=(place.generation_term, place.generation_counter),
            joins=place.joins,
            draining=bool(place.draining),
            is_donor=bool(place.is_donor),
            donor_since=(place.donor_term, place.donor_counter),
            first_rank=place.first_rank,
            ranks=place.ranks,
            expected=(
                (place.expected_rank, place.expected_world_size)
                if place.expected_world_size > 0
                else None
            ),
        )

    def set_ranks(self, ranks: int, local_rank: int) -> None:
        """From the next begin on this worker's contributions hold what `ranks` trainers have, and
        this process has the number `local_rank` among them, from 0. In a weighted average of
        means, those of several trainers are multiplied by their weights, and that of one is
        not."""
        call("set_ranks", self._pointer, ranks, local_rank)

    def member_id(self, rank: int) -> str:
        text = ctypes.create_string_buffer(MAX_ID_BYTES)
        lib.basin_member_id(self._pointer, rank, text, MAX_ID_BYTES)
        return text.value.decode()

    def donor_id(self) -> str:
        """The id of the worker that serves the state to the newest members; empty if there is
        none."""
        text = ctypes.create_string_buffer(MAX_ID_BYTES)
        lib.basin_donor_id(self._pointer, text, MAX_ID_BYTES)
        return text.value.decode()

    def ready(self, step: int = 0, state_hash: int = 0) -> None:
        call("ready", self._pointer, step, state_hash)

    def await_welcome(self, timeout: float | None) -> None:
        self._wait_in_slices("await_welcome", timeout, _abi.DEADLINE_EXCEEDED)

    def await_member(self, timeout: float | None) -> None:
        self._wait_in_slices("await_member", timeout, _abi.DEADLINE_EXCEEDED)

    # ---- rounds

    def register(
        self, lane: str, kind: int, tensors: Sequence[TensorSpec]
    ) -> tuple[int, list[int]]:
        """Returns the handles of the lane and of the tensors."""
        specs = (_abi.Tensor * max(1, len(tensors)))(*(tensor.to_c() for tensor in tensors))
        lane_handle = c_uint32()
        handles = (c_uint32 * max(1, len(tensors)))()
        call(
            "register",
            self._pointer,
            lane.encode(),
            kind,
            specs,
            len(tensors),
            byref(lane_handle),
            handles,
        )
        names = self._names_in(lane_handle.value, kind == _abi.CALL)
        for handle, tensor in zip(handles, tensors, strict=False):
            names.extend([""] * (handle + 1 - len(names)))
            names[handle] = tensor.name
        return lane_handle.value, list(handles[: len(tensors)])

    def _names_in(self, lane: int, is_call: bool) -> list[str]:
        if not is_call:
            return self._names.setdefault(lane, [])
        names = self._names_of_calls.setdefault(lane, [])
        self._names_of_calls.move_to_end(lane)
        # A program may use any number of names, and the library forgets the lanes of idle ones.
        if len(self._names_of_calls) > _MOST_CALLS:
            self._names_of_calls.popitem(last=False)
        return names

    def next_call(
        self, arrays: Sequence[TensorSpec], timeout: float | None
    ) -> "tuple[int, list[_abi.Part]]":
        """The lane of the next call without a name, and the parts of its arrays; their names are
        not used. Let one thread at a time make these calls. Raises DeadlineExceeded when the
        aggregator has not said in time where the others are, and FailedPrecondition if the outcome
        of the one MOST_CALLS before was not waited for."""
        specs = (_abi.Tensor * max(1, len(arrays)))(*(array.to_c() for array in arrays))
        most = _abi.MOST_PARTS * len(arrays)
        lane, count = c_uint32(), c_size_t()
        parts = (_abi.Part * max(1, most))()
        self._wait_in_slices(
            "next_call",
            timeout,
            _abi.DEADLINE_EXCEEDED,
            specs,
            len(arrays),
            outputs=(byref(lane), parts, most, byref(count)),
        )
        made = list(parts[: count.value])
        names = self._names_in(lane.value, True)
        for part in made:
            names.extend([""] * (part.tensor + 1 - len(names)))
        return lane.value, made

    def begin(
        self,
        lane: int,
        spec: RoundSpec,
    ) -> None:
        call("begin", self._pointer, lane, byref(spec.to_c()))
        self.rounds_begun += 1

    # A round may be aborted before this worker has sent its whole contribution. The rest is then
    # dropped, and wait() raises RoundAborted, as it does if the abort comes later.

    def push(self, lane: int, tensor: int, address: int, size: int) -> None:
        """Pushes `size` bytes at the address. Raises InvalidArgument if the tensor has another
        size."""
        with contextlib.suppress(RoundAborted):
            call("push", self._pointer, lane, tensor, address, size)

    def push_many(self, lane: int, tensors: "ctypes.Array[_abi.Pushed]", count: int) -> None:
        """Pushes the first `count` of these in one call. Small tensors then share frames. If one is
        wrong, none is pushed."""
        with contextlib.suppress(RoundAborted):
            call("push_many", self._pointer, lane, tensors, count)

    def push_device(
        self,
        lane: int,
        tensors: "ctypes.Array[_abi.Pushed]",
        count: int,
        device: int,
        stream: int,
    ) -> None:
        """Pushes the first `count` of these, which are on a CUDA device, after the work that the
        stream has been given so far. commit() waits for the copies."""
        with contextlib.suppress(RoundAborted):
            call("push_device", self._pointer, lane, tensors, count, device, stream)

    def copy_device(
        self,
        result: Result,
        buffers: "ctypes.Array[_abi.Buffer]",
        count: int,
        device: int,
        stream: int,
    ) -> None:
        """Copies the first `count` of these to a CUDA device, each to its `out`, after the work
        that the stream has been given so far and before what it is given later."""
        call("result_copy_device", self._pointer, result._pointer, buffers, count, device, stream)

    def commit(self, lane: int) -> Error | None:
        """Declares this worker's contribution complete. If it is refused, it is withdrawn, so that
        the others do not wait for it, and the reason is returned."""
        try:
            call("commit", self._pointer, lane, _abi.RoundDone(), None)
        except RoundAborted:
            return None
        except Error as error:
            self.withdraw(lane, str(error))
            return error
        return None

    def withdraw(self, lane: int, reason: str, *, without_results: bool = False) -> None:
        """`without_results`: the group of the node brings them; see Group.share(). Then an empty
        reason means that another rank contributes the gradients."""
        name = "withdraw_without_results" if without_results else "withdraw"
        with contextlib.suppress(RoundAborted):
            call(name, self._pointer, lane, reason.encode(), _abi.RoundDone(), None)

    def wait(
        self, lane: int, timeout: float | None, meanwhile: Callable[[], bool] | None = None
    ) -> Result:
        """Waits for the outcome, and calls `meanwhile` from time to time. If that returns True and
        there is no outcome yet, it is called again at once. After OutcomeUnknown and Paused the
        round continues: wait again."""
        result = c_void_p()
        self._wait_in_slices(
            "wait",
            timeout,
            _abi.OUTCOME_UNKNOWN,
            lane,
            outputs=(byref(result),),
            meanwhile=meanwhile,
        )
        names = self._names_of_calls if lane in self._names_of_calls else self._names
        return Result(result, names[lane])

    def abandon(self) -> None:
        call("abandon", self._pointer)

    # ---- samples

    def samples_lease(
        self, lane: int, epoch: "SampleEpoch", count: int
    ) -> "tuple[LeaseOutcome, list[tuple[int, int]]]":
        """Leases up to `count` positions of the epoch, as ascending ranges [begin, end). Waits for
        the aggregator's answer."""
        capacity = max(1, min(count, MAX_SAMPLE_RANGES))
        ranges = (_abi.SampleRange * capacity)()
        written, outcome = c_size_t(), c_int()
        call(
            "samples_lease",
            self._pointer,
            lane,
            byref(_abi.SampleEpoch(*epoch)),
            count,
            ranges,
            capacity,
            byref(written),
            byref(outcome),
        )
        leased = [(each.begin, each.end) for each in ranges[: written.value]]
        return LeaseOutcome(outcome.value), leased

    def samples_lease_step(
        self, lane: int, epoch: "SampleEpoch", global_batch: int
    ) -> "tuple[LeaseOutcome, list[tuple[int, int]]]":
        """Leases this worker's share of the next step of `global_batch` samples of which it has
        none, as samples_lease() does."""
        ranges = (_abi.SampleRange * MAX_SAMPLE_RANGES)()
        written, outcome = c_size_t(), c_int()
        call(
            "samples_lease_step",
            self._pointer,
            lane,
            byref(_abi.SampleEpoch(*epoch)),
            global_batch,
            ranges,
            MAX_SAMPLE_RANGES,
            byref(written),
            byref(outcome),
        )
        leased = [(each.begin, each.end) for each in ranges[: written.value]]
        return LeaseOutcome(outcome.value), leased

    def samples_return(self, lane: int, epoch: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Returns positions that this worker will not use: ranges [begin, end) that ascend and do
        not touch."""
        call("samples_return", self._pointer, lane, epoch, sample_ranges(ranges), len(ranges))

    def samples_committed(self, lane: int) -> "tuple[SampleEpoch, list[tuple[int, int]]]":
        """What is committed as of the last verdict that this worker has; an epoch of 0 samples if
        nothing was ever committed."""
        capacity = 256
        while True:
            epoch, written = _abi.SampleEpoch(), c_size_t()
            ranges = (_abi.SampleRange * capacity)()
            call(
                "samples_committed",
                self._pointer,
                lane,
                byref(epoch),
                ranges,
                capacity,
                byref(written),
            )
            if written.value <= capacity:
                committed = [(each.begin, each.end) for each in ranges[: written.value]]
                return SampleEpoch(epoch.number, epoch.samples, epoch.order), committed
            capacity = written.value

    def samples_resume(
        self, lane: int, epoch: "SampleEpoch", committed: Sequence[tuple[int, int]]
    ) -> None:
        """Resumes from a checkpoint, before the first lease of its epoch."""
        call(
            "samples_resume",
            self._pointer,
            lane,
            byref(_abi.SampleEpoch(*epoch)),
            sample_ranges(committed),
            len(committed),
        )

    def report_batch(self, lane: int, samples: int, target: int) -> tuple[int, bool]:
        """Reports the samples whose gradients are accumulated for the next round. Returns those of
        all workers, and whether the round is closed: then each begins it with what it has."""
        total, closed = c_uint64(), c_int()
        call("report_batch", self._pointer, lane, samples, target, byref(total), byref(closed))
        return total.value, bool(closed.value)

    # ---- values

    def announce(
        self,
        lane: str,
        tensor: TensorSpec,
        version: int,
        address: int,
        size: int,
        *,
        in_place: bool = False,
    ) -> None:
        """Serves a value of this version. It is copied during the call, unless it is served in
        place: then the library may read it until stop_serving() or close() returns."""
        spec = tensor.to_c()
        hold = _abi.IN_PLACE if in_place else _abi.COPY
        call("announce", self._pointer, lane.encode(), byref(spec), version, address, size, hold)

    def stop_serving(self, lane: str, tensor: str) -> None:
        call("stop_serving", self._pointer, lane.encode(), tensor.encode())

    def get(
        self,
        lane: str,
        tensor: TensorSpec,
        version: int,
        source: str | None,
        timeout: float | None,
        address: int,
        size: int,
    ) -> None:
        """Waits for the value that `source` announced; None: from any worker that has it."""
        spec = tensor.to_c()
        call(
            "get",
            self._pointer,
            lane.encode(),
            byref(spec),
            version,
            None if source is None else source.encode(),
            _nanoseconds(timeout),
            address,
            size,
        )

    # ---- reports

    def busy(self, reason: str, expected: float) -> None:
        call("busy", self._pointer, reason.encode(), _nanoseconds(expected))

    def finished(self) -> None:
        call("finished", self._pointer)

    def will_leave(self) -> None:
        self._slice_seconds = _LEAVING_SLICE_SECONDS
        call("will_leave", self._pointer)

    def leave(self) -> None:
        call("leave", self._pointer)

    def _wait_in_slices(
        self,
        name: str,
        timeout: float | None,
        not_yet: int,
        *arguments: Any,
        outputs: tuple[Any, ...] = (),
        meanwhile: Callable[[], bool] | None = None,
    ) -> None:
        """Waits in short slices; raises the error of the last slice when `timeout` has passed."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        at_once = False
        while True:
            slice_seconds = 0.0 if at_once else min(self._slice_seconds, end - time.monotonic())
            try:
                call(name, self._pointer, *arguments, _nanoseconds(slice_seconds), *outputs)
                return
            except BY_CODE[not_yet]:
                if time.monotonic() >= end:
                    raise
                at_once = meanwhile is not None and meanwhile()


def _write_log(_user: object, level: int, message: bytes) -> None:
    logger.log(_LEVELS[level], "%s", message.decode(errors="replace"))
