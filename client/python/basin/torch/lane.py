# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The tensors of a lane: basin.lane decides when gradients are sent and what .grad contains, and
this module carries it out with tensors and the client."""

import contextlib
import ctypes
import math
import operator
import os
import struct
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch

from basin import _abi
from basin.arguments import seconds
from basin.errors import (
    Error,
    FailedPrecondition,
    InvalidArgument,
    OutcomeUnknown,
    Paused,
    RoundAborted,
    Unsupported,
)
from basin.lane.gradient import Gradient
from basin.lane.lane import Lane
from basin.spec import Counts, RoundSpec
from basin.torch import device, forks, tensors
from basin.torch.batch import FULL_BYTES, Batch
from basin.torch.buffers import BufferLane
from basin.torch.divided_again import DividedAgain
from basin.torch.layout import LayoutCheck
from basin.torch.node import Node, Share
from basin.torch.parameters import Parameters, Reduced
from basin.torch.state import JobState
from basin.worker import TURN_SECONDS, Result, RoundInfo, Worker

# The folders of this package and of torch.
_NOT_THE_USER = (
    os.path.dirname(os.path.dirname(__file__)) + os.sep,
    os.path.dirname(torch.__file__) + os.sep,
)

_held_by = operator.attrgetter("parameter.grad")
_version_sent = operator.attrgetter("sent._version")

# _abi.Buffer, which takes longer to write field by field.
_BUFFER = struct.Struct("@IPPN")
assert _BUFFER.size == ctypes.sizeof(_abi.Buffer)

TensorGradient = Gradient[torch.Tensor, torch.Tensor]

# Why the aggregator aborts a round that nobody contributes to any more.
_NO_CONTRIBUTOR = "no contributor is left"


class ContributorsChanged(UserWarning):
    """Warns of gradients that are divided by the counts of a different set of workers."""


@dataclass
class Totals:
    """The cost of a lane's rounds for this worker so far. Times are seconds of the trainer's
    thread, without work that overlaps with the backward."""

    rounds: int = 0
    bytes_pushed: int = 0
    bytes_received: int = 0
    push_seconds: float = 0.0
    wait_seconds: float = 0.0


class GradientLane(Lane[torch.Tensor, torch.Tensor]):
    """Pushes gradients, waits, and writes results. It never decides.

    spec:      the spec of its rounds, without counts and step
    optimizer: the optimizer that all parameters belong to, if it is known
    buffers:   buffers to send and receive with each round
    modules:   models that may contain the parameters
    compared:  whether all workers must have gradients of the same tensors
    first:     whether it is the first lane of this process
    passes, owner, own_hooks:
               see Lane
    """

    def __init__(
        self,
        worker: Worker,
        name: str,
        names: Mapping[torch.Tensor, str],
        spec: RoundSpec,
        wire_dtype: torch.dtype | None,
        timeout: float | None,
        state: JobState,
        *,
        passes: int = 1,
        owner: str,
        own_hooks: bool = True,
        optimizer: torch.optim.Optimizer | None = None,
        buffers: BufferLane | None = None,
        modules: Callable[[], Iterable[torch.nn.Module]] = tuple,
        compared: bool = True,
        first: bool = True,
    ) -> None:
        super().__init__(name, spec, passes, owner, own_hooks, FULL_BYTES)
        self._worker = worker
        self._state = state
        self._forks = forks.count()
        self._wire_dtype = wire_dtype
        self._timeout = timeout
        self._optimizer = optimizer
        self._buffers = buffers

        self._lane, _ = worker.register(name, _abi.GRADIENT, [])
        self._batch = Batch(worker, self._lane)
        self._cuda_batches: dict[int, Batch] = {}  # By device.
        # Each CUDA device has a thread of autograd, and their hooks come at the same time.
        self._hooked = threading.RLock()
        self._in_hook = False
        # What the library reads in this round, so that it stays whatever happens to .grad.
        self._lent: list[torch.UntypedStorage] = []
        # What was sent in this round, and in which version; the library may still read it.
        self._sent_now: list[TensorGradient] = []
        self._versions: list[int] = []
        self._parameters = Parameters(worker, name, names, self._hook_on_device, modules, optimizer)
        self._layout = LayoutCheck(worker, name, compared)
        self._node = Node(worker, name, spec, first=first)
        self._local_phase = False  # The round has begun for this node, and not for the job.
        self._shares = False  # Its results are to be shared within the node.
        self._partial = False  # What was sent to the node is not counted.
        self._own_counts = Counts()

        self._expected_round: int | None = None  # The first round of a late joiner.
        self._outcome: Result | None = None  # The result that is being delivered.
        self._outcome_seconds = 0.0  # How long the last wait took.
        self._buffers_refusal: Error | None = None
        self.totals = Totals()
        self._divided_again = DividedAgain(name, spec.op)
        # The loss scale of this worker's gradients, equal on all workers.
        self.loss_scale = 1.0
        # The contributors of the counts that divide the next round's gradients.
        self.counted: tuple[str, ...] | None = None
        self.info: RoundInfo | None = None  # The facts about the last round.
        try:
            self.scan()
            self._node.take(self._all)
        except BaseException:
            self.close()
            raise

    @property
    def timeout(self) -> float | None:
        return self._timeout

    # ---- parameters

    def scan_parameters(self) -> list[torch.Tensor] | None:
        replaced = self._parameters.scan()
        if replaced is None:
            return None
        self._parameters.register()
        # Not during a backward, where compiled autograd would trace it.
        self._layout.take(self._parameters.layout())
        self._parameters.finish_scan()
        return replaced

    def _hook_on_device(self, parameter: torch.Tensor) -> Callable[[torch.Tensor], None]:
        """The hook of a parameter. If any is on a CUDA device, hooks come at the same time. One
        that is there notes the stream in which its gradient was accumulated: it may be sent from a
        thread or a hook with another one."""
        hook = self.hook_of(parameter)
        facts = self.facts_of(parameter)
        if not self._parameters.on_cuda:
            return hook

        def hook_on_cuda(of: torch.Tensor) -> None:
            with self._hooked:
                if facts.cuda >= 0:
                    facts.stream = device.stream_of(facts.cuda)
                self._in_hook = True
                try:
                    hook(of)
                finally:
                    self._in_hook = False

        return hook_on_cuda

    def facts_of(self, parameter: torch.Tensor) -> Reduced:
        return self._parameters.facts(parameter)

    def reduced(self) -> Iterable[torch.Tensor]:
        return self._parameters

    def name_of(self, parameter: torch.Tensor) -> str:
        return self._parameters.name_of(parameter)

    def knows(self, parameter: torch.Tensor) -> bool:
        return self._parameters.knows(parameter)

    def not_reduced(self, parameter: torch.Tensor) -> str:
        return (
            f"A parameter of shape {tuple(parameter.shape)} is not one of lane {self.name}. Create "
            f"{self._owner} from the model with which it is used."
        )

    def parameters_of(self, optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
        return parameters_of(optimizer)

    def check_optimizer(self, optimizer: torch.optim.Optimizer, call: str) -> None:
        if self._parameters.are_present(parameters_of(optimizer), optimizer is self._optimizer):
            return
        for parameter in parameters_of(optimizer):
            if self._parameters.was_replaced(parameter):
                raise FailedPrecondition(
                    f"{call} was called on an optimizer with a parameter of shape "
                    f"{tuple(parameter.shape)} that the model has replaced by another object (an "
                    "assignment, or load_state_dict(assign=True)), so the new one would not be "
                    "trained. Create the optimizer after parameters are replaced, or put the new "
                    "one into its param_groups."
                )
            if optimizer is self._optimizer and not self.knows(parameter):
                raise InvalidArgument(
                    f"A parameter of shape {tuple(parameter.shape)} was added to the optimizer "
                    "after DistributedOptimizer(). Add parameter groups before that."
                )

    def leave_node(self) -> None:
        """This worker contributes no more, or for itself; the other ranks of its node go on."""
        self._node.leave()

    def close(self) -> None:
        self._parameters.close()
        self._node.close()
        self.usage.closed = True

    # ---- gradients

    def grad(self, parameter: torch.Tensor) -> torch.Tensor | None:
        return parameter.grad

    def held(self, gradients: Iterable[TensorGradient]) -> list[torch.Tensor | None]:
        return list(map(_held_by, gradients))

    def set_grad(self, parameter: torch.Tensor, gradient: torch.Tensor | None) -> None:
        if gradient is not None and gradient.dtype != parameter.dtype:
            gradient = gradient.to(parameter.dtype)
        parameter.grad = gradient

    def copy(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.clone()

    def is_zero(self, gradient: torch.Tensor) -> bool:
        # Most gradients are not zero, which a small part shows.
        if gradient.dim() > 1 and len(gradient) > 1 and gradient[0].any():
            return False
        return not gradient.any()

    def is_far(self, gradient: torch.Tensor) -> bool:
        return not gradient.is_cpu

    def look_later(self, gradients: Sequence[torch.Tensor]) -> Callable[[], bool]:
        flags = [gradient.any() for gradient in gradients]
        return lambda: not any(flags)

    def mark(self, gradient: torch.Tensor) -> object:
        return weakref.ref(gradient), gradient._version

    def is_as(self, gradient: torch.Tensor, mark: Any) -> bool:
        marked, version = mark
        return marked() is gradient and gradient._version == version

    def squared_norm(self, parameter: torch.Tensor) -> float | None:
        """The squared norm of .grad; None if it is not the result of one round."""
        result = self._parameters.result_of(parameter)
        return None if result is None else result.norm_in(parameter.grad)

    def is_in_doubt(self, each: TensorGradient) -> bool:
        known = each.facts.result.norm_in(each.parameter.grad) is not None
        return not known and super().is_in_doubt(each)

    def holds_something(self, each: TensorGradient) -> bool:
        squared_norm = each.facts.result.norm_in(each.parameter.grad)
        if squared_norm is not None:
            return bool(squared_norm != 0.0)
        return super().holds_something(each)

    def last_was_zero(self) -> bool:
        return self.info is None or not self.info.squared_norm

    def is_here(self) -> bool:
        return forks.count() == self._forks

    # ---- one round

    def before_begin(self) -> None:
        self._expected_round = self._state.before_round(self.name)

    def begin(self, counts: Counts) -> None:
        # A signal may have left gradients of a round that has ended.
        self._drop_batches()
        self._lent.clear()
        self._sent_now.clear()
        self._versions.clear()
        self._buffers_refusal = None
        self._node.take(self._all)
        self._node.start(counts)
        self._own_counts, self._partial = counts, False
        self._local_phase = self._node.reduction is not None
        if not self._local_phase:
            self._begin_in_job(counts)

    def _begin_in_job(self, counts: Counts, share: Share | None = None) -> None:
        """`share`: what this worker contributes for its node; None: it contributes for itself."""
        share = share or Share(contributors=1)
        spec = replace(
            self._spec,
            counts=counts,
            loss_scale=self.loss_scale,
            layout=self._layout.hash,
            step=self.usage.steps,
            carries=share.contributors - 1,
            local_reduction=share.reduction,
            reduced_with=share.others,
        )
        self._worker.begin(self._lane, spec)

    def after_begin(self) -> None:
        if not self._local_phase:
            self._state.after_begin(self.name)

    def memory_of(self, gradients: Sequence[TensorGradient]) -> list[torch.Tensor]:
        memory = []
        for each in gradients:
            facts, gradient = each.facts, each.parameter.grad
            if gradient is None:
                raise Unsupported(
                    f"The gradient of parameter {self.name_of(each.parameter)} was removed during "
                    "the backward. Remove it after backward() has returned."
                )
            storage = None
            if type(gradient) is torch.Tensor and gradient.layout is torch.strided:
                storage = gradient.untyped_storage()
            if (
                storage is None
                or storage.nbytes() != facts.bytes
                or gradient.dtype is not facts.dtype
                or gradient.shape != facts.shape
                or gradient.requires_grad
                or not (gradient.is_cpu or facts.cuda >= 0)
                or (facts.cuda >= 0 and device.cuda_index(gradient) != facts.cuda)
                or not gradient.is_contiguous()
                or not self._own_hooks
            ):
                gradient = self._memory_of_unusual(each, gradient)
            memory.append(gradient)
        return memory

    def _memory_of_unusual(self, each: TensorGradient, gradient: torch.Tensor) -> torch.Tensor:
        self._parameters.check_gradient(each.parameter, gradient)
        if each.facts.cuda < 0:
            return self._copy_of_unusual(each.parameter, gradient)
        # The present stream may be another one, when several gradients are sent together.
        with device.in_stream(self._stream_of(each.facts), each.facts.cuda):
            return self._copy_of_unusual(each.parameter, gradient)

    def _copy_of_unusual(self, parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        memory = gradient.detach().contiguous()
        if not self._own_hooks:
            # The caller of push_ready() continues to write to the gradient.
            memory = memory.clone() if gradient.is_contiguous() else memory
        elif memory.untyped_storage().nbytes() != tensors.bytes_of(memory):
            # It shares its storage with other tensors.
            memory = memory.clone()
            if gradient.is_contiguous():
                parameter.grad = memory
        return memory

    def send(self, gradients: Sequence[TensorGradient]) -> None:
        began = time.perf_counter()
        self._sent_now += gradients
        self._versions += map(_version_sent, gradients)
        size = 0
        if self._wire_dtype is None and not self._parameters.on_cuda:
            size = self._batch.add_as_they_are(gradients, self._lent)
            gradients = ()
        for each in gradients:
            memory = each.sent
            assert memory is not None
            each.facts.address = memory.data_ptr()
            self._lent.append(memory.untyped_storage())
            if self._local_phase:
                assert self._node.reduction is not None
                self._node.reduction.add(each, self._stream_of(each.facts))
            else:
                size += self._add(each.facts, memory)
        self.totals.bytes_pushed += size
        self.totals.push_seconds += time.perf_counter() - began

    def _add(self, facts: Reduced, memory: torch.Tensor) -> int:
        """Adds the tensor to a batch. Returns the bytes to be sent."""
        add = self._batch.add if facts.cuda < 0 else self._cuda_batch(facts).add
        address = memory.data_ptr()
        if self._wire_dtype is not None and facts.dtype is torch.float32:
            wire_dtype = tensors.DTYPES[self._wire_dtype]
            # bfloat16 has the range of float32, and needs no scale.
            exponent = _abi.FIT_EXPONENT if wire_dtype == _abi.F16 else 0
            add(facts.handle, address, facts.bytes, wire_dtype, exponent)
            return facts.bytes // 2
        add(facts.handle, address, facts.bytes)
        return facts.bytes

    def commit(self) -> Error | None:
        self._check_unchanged()
        if self._local_phase:
            return self._end_local_phase()
        self._push_rest()
        return self._worker.commit(self._lane)

    def _check_unchanged(self) -> None:
        """Raises Unsupported if a gradient was written to after it was sent: the library may have
        read it before, after or meanwhile."""
        versions = list(map(_version_sent, self._sent_now))
        if versions == self._versions:
            return
        changes = zip(self._sent_now, versions, self._versions, strict=True)
        written = next(each for each, now, then in changes if now != then)
        raise Unsupported(
            f"The gradient of parameter {self.name_of(written.parameter)} was written to in the "
            "backward after it was sent, so it is not known what was sent. Write to .grad when "
            "backward() has returned, or from a hook of the tensor (register_hook), which comes "
            "before."
        )

    def _push_rest(self) -> None:
        began = time.perf_counter()
        self._batch.push()
        for batch in self._cuda_batches.values():
            batch.push()
        self.totals.push_seconds += time.perf_counter() - began
        self._send_buffers()

    # ---- with the other ranks of this node

    def _end_local_phase(self, reason: str | None = None) -> Error | None:
        """Waits for the sums of this node, and contributes them, or withdraws because another rank
        does. If there are none, contributes for itself. With a `reason`, what this rank has sent is
        not counted."""
        reduction = self._node.reduction
        assert reduction is not None
        self._partial = reason is not None
        share = reduction.finish(contributes=reason is None)
        return self._contribute(share, reason)

    def _contribute(self, share: Share, reason: str | None) -> Error | None:
        if share.alone:
            return self._contribute_alone(reason)
        leads = share.contributors > 0
        if leads:
            self._begin_in_job(share.counts, share)
        else:
            self._begin_in_job(self._own_counts)
        self._local_phase = False
        self._shares = True
        self._state.after_begin(self.name)
        for each, total in share.sums if leads else ():
            self._lent.append(total.untyped_storage())
            self.totals.bytes_pushed += self._add(each.facts, total)
        self._push_rest()
        if leads:
            return self._worker.commit(self._lane)
        if share.leads:
            self._worker.withdraw(self._lane, reason or "no rank of its node has gradients")
        else:
            self._worker.withdraw(self._lane, reason or "", without_results=True)
        return None

    def _contribute_alone(self, reason: str | None) -> Error | None:
        """A rank of this node had no memory for the sums, so each of them does this."""
        self._begin_in_job(self._own_counts)
        self._local_phase = False
        self._state.after_begin(self.name)
        for each in self._all if reason is None else ():
            if each.sent is not None:
                self.totals.bytes_pushed += self._add(each.facts, each.sent)
        self._push_rest()
        if reason is None:
            return self._worker.commit(self._lane)
        self._worker.withdraw(self._lane, reason)
        return None

    def _repeats(self, error: RoundAborted) -> bool:
        """Whether the round was aborted because the leader of this node was lost with the gradients
        of all its ranks. Then they have contributed to the next round."""
        reduction = self._node.reduction
        if reduction is None or _NO_CONTRIBUTOR not in str(error):
            return False
        share = reduction.finish_again(contributes=not self._partial)
        if share is None:
            return False
        reason = "its backward has failed" if self._partial else None
        refusal = self._contribute(share, reason)
        if refusal is not None:
            raise refusal
        return True

    # ----

    def _stream_of(self, facts: Reduced) -> int:
        """The stream of a CUDA device that has written the gradient."""
        if device.is_captured():
            raise FailedPrecondition(
                f"The gradient of parameter {facts.spec.name} of lane {self.name} on "
                f"cuda:{facts.cuda} was accumulated while a CUDA graph is captured, which would "
                "repeat the copy without the round. Capture the forward and the backward under "
                f"no_sync(), replay the graph, and call sync_gradients() of {self._owner}."
            )
        # After a backward its streams have been joined with the caller's.
        return facts.stream if self._in_hook else device.stream_of(facts.cuda)

    def _cuda_batch(self, facts: Reduced) -> Batch:
        """The batch of a gradient on a CUDA device, for the stream that has written it."""
        stream = self._stream_of(facts)
        batch = self._cuda_batches.get(facts.cuda)
        if batch is None:
            batch = Batch(self._worker, self._lane, facts.cuda)
            self._cuda_batches[facts.cuda] = batch
        batch.use_stream(stream)
        return batch

    def _drop_batches(self) -> None:
        self._batch.drop()
        for batch in self._cuda_batches.values():
            batch.drop()

    def withdraw_round(self, reason: str) -> None:
        self._drop_batches()
        if self._local_phase:
            self._end_local_phase(reason)
            return
        try:
            self._send_buffers()
        finally:
            self._worker.withdraw(self._lane, reason)

    def _send_buffers(self) -> None:
        """Begins the round of buffers before the commit, so that members cannot change between the
        two rounds."""
        if self._buffers is not None:
            self._buffers.send()

    # ---- the outcome

    def outcome(self, timeout: float | None) -> None:
        began = time.perf_counter()
        if self._buffers is not None:
            refusal = self._buffers.receive(timeout, self._state.serve_in_round)
            self._buffers_refusal = refusal or self._buffers_refusal
        try:
            result = self._wait(timeout)
        except (OutcomeUnknown, Paused):
            raise
        except Error:
            self._lent.clear()
            raise
        # The step is not part of the reply, which is the same on all workers.
        info = result.info
        self.info = replace(info, spec=replace(info.spec, step=self.usage.steps))
        self._outcome = result
        self.totals.wait_seconds += time.perf_counter() - began
        self._check_round(self.info.round)

    def _wait(self, timeout: float | None) -> Result:
        end = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            try:
                result = self._wait_for_shared(end)
                if result is not None:
                    return result
                left = None if timeout is None else max(0.0, end - time.monotonic())
                return self._worker.wait(self._lane, left, self._state.serve_in_round)
            except RoundAborted as error:
                self._end_sharing()
                if not self._repeats(error):
                    raise

    def _wait_for_shared(self, end: float) -> Result | None:
        """Shares results within the node. The outcome, if it comes first."""
        while self._shares:
            if self._share(min(TURN_SECONDS, max(0.0, end - time.monotonic()))):
                return None
            self._state.serve_in_round()
            try:
                result = self._worker.wait(self._lane, 0.0)
            except OutcomeUnknown:
                if time.monotonic() >= end:
                    raise
            else:
                self._end_sharing()
                return result
        return None

    def _share(self, seconds: float) -> bool:
        reduction = self._node.reduction
        if reduction is None or reduction.share(self._worker, self._lane, seconds):
            self._shares = False
        return not self._shares

    def _end_sharing(self) -> None:
        """The round has ended, so there is nothing to wait for."""
        if self._shares:
            self._share(0.0)
            self._shares = False

    def _check_round(self, number: int) -> None:
        if self._expected_round not in (None, number):
            raise FailedPrecondition(
                f"This worker joined lane {self.name} with the state before round "
                f"{self._expected_round}, but its first round was {number}. Its parameters are not "
                "those of the others: start it again."
            )

    def deliver(self, gradients: Sequence[TensorGradient]) -> list[TensorGradient]:
        assert self._outcome is not None
        divisors, squared_norms = self._outcome.results()
        delivered: list[TensorGradient] = []
        written: list[tuple[torch.Tensor, int]] = []  # With its address.
        buffers = (_abi.Buffer * len(gradients))()
        known, at, size = len(divisors), 0, 0
        on_cuda: dict[int, list[tuple[int, int, int]]] = {}  # Handle, address, bytes.
        pack, width = _BUFFER.pack_into, _BUFFER.size
        for each in gradients:
            facts, memory = each.facts, each.sent
            handle, count = facts.handle, facts.bytes
            if not 0 <= handle < known or divisors[handle] == 0:
                continue
            if memory is None or memory.data_ptr() != facts.address:
                # It was not sent, or its memory was replaced through .data.
                memory = device.empty_like(each.parameter, facts.shape, facts.dtype)
                facts.address = memory.data_ptr()
            address = facts.address
            if facts.cuda < 0:
                pack(buffers, at, handle, 0, address, count)
                at += width
            else:
                on_cuda.setdefault(facts.cuda, []).append((handle, address, count))
            size += count
            delivered.append(each)
            written.append((memory, address))
        self._outcome.copy_many(buffers, at // width)
        for index, written_there in on_cuda.items():
            for i, (handle, address, count) in enumerate(written_there):
                pack(buffers, i * width, handle, 0, address, count)
            self._worker.copy_device(
                self._outcome, buffers, len(written_there), index, device.stream_of(index)
            )
        self.totals.bytes_received += size
        for each, (memory, address) in zip(delivered, written, strict=True):
            facts, parameter = each.facts, each.parameter
            whole = memory.dtype is parameter.dtype
            if whole and each.aside is None and parameter.is_contiguous():
                if parameter.grad is not memory:
                    parameter.grad = memory
            else:
                memory, whole = self._add_aside(each, memory, whole)
                address = memory.data_ptr()
            squared_norm = squared_norms[facts.handle]
            # It is unknown if negative. The norm of a result with a NaN is a NaN.
            if whole and not squared_norm < 0:
                facts.result.put(memory, address, squared_norm)
            else:
                facts.result.drop()
        return delivered

    def _add_aside(
        self, each: TensorGradient, result: torch.Tensor, whole: bool
    ) -> tuple[torch.Tensor, bool]:
        """Writes the result plus what is aside to .grad. Returns it, and whether it is the result
        alone, of the dtype that was reduced."""
        with torch.no_grad():
            if not each.parameter.is_contiguous():
                result = torch.empty_like(each.parameter).copy_(result)
            if each.aside is not None:
                whole = whole and not self.is_far(each.aside) and not each.aside.any()
                result.add_(each.aside)
        self.set_grad(each.parameter, result)
        return result, whole

    def delivered(self, micro_batches: int, refusal: Exception | None) -> None:
        assert self.info is not None and self._outcome is not None
        rejection, self._outcome = self._outcome.rejection, None
        self._lent.clear()
        results = (parameter for parameter in self._parameters if self.has_result_of(parameter))
        self._divided_again.delivered(results, micro_batches)
        self.totals.rounds += 1
        self._compare_counted()
        refusal = self._buffers_refusal or refusal or rejection
        if refusal is not None:
            raise self._layout.explain(refusal, self.info.spec.layout)

    def _compare_counted(self) -> None:
        counted, self.counted = self.counted, None
        if counted is None or self.info is None or self.info.contributors == counted:
            return
        warnings.warn(
            f"total_counts() summed over {', '.join(counted)}, but round {self.info.round} of lane "
            f"{self.name} has gradients of {', '.join(self.info.contributors)}, divided by those "
            "totals. If that is not what you want, skip this step (zero_grad() instead of step()); "
            "all workers get this warning. For totals that normalise no loss, such as those of an "
            "evaluation, use for_gradients=False.",
            ContributorsChanged,
            stacklevel=_levels_to_the_user(),
        )

    # ---- calls of the user

    def wait_round(self, timeout: float | None = None) -> None:
        """Waits again, after OutcomeUnknown or Paused, for `timeout` seconds; None: forever."""
        self.usage.check_takes_part("wait_round()")
        self.wait(seconds("timeout", timeout))

    def contribute(
        self,
        *unnamed: NoReturn,
        samples: int | None = None,
        tokens: int | None = None,
        **unknown: NoReturn,
    ) -> None:
        """Declares the counts in the next backward's loss, before each backward; None is unknown.
        last_round().spec.counts has the sums over a window and over all workers.

        unnamed, unknown: not allowed; the TypeError names the right arguments
        """
        _check_named(unnamed, unknown)
        self.tell(Counts(samples=samples, tokens=tokens))

    @contextlib.contextmanager
    def scaling(self, parameters: Iterable[torch.Tensor], factor: float) -> Iterator[None]:
        """Encloses a multiplication of the .grad of these by `factor`: clipping, or a scaler."""
        mine = [parameter for parameter in parameters if self.knows(parameter)]
        results = [each for each in mine if self.squared_norm(each) is not None]
        yield
        for parameter in results:
            assert parameter.grad is not None
            self._parameters.facts(parameter).result.scale(parameter.grad, factor)
        for parameter in mine:
            self._divided_again.scaled(parameter, factor)

    def reduces_for(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether the optimizer applies gradients that this lane reduces."""
        return any(
            self.knows(parameter) or self._parameters.was_replaced(parameter)
            for parameter in parameters_of(optimizer)
        )

    def check_loss_scale(self, scale: float, call: str) -> None:
        """Checks that the results that `call` of a scaler unscales were sent with its scale. That
        scale has been compared with the other workers'."""
        if self.info is not None and self.has_results() and self.info.spec.loss_scale != scale:
            self.usage.refuse_loss_scale(call, scale, self.info.spec.loss_scale)

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Makes sure that .grad is the result of a round."""
        self.reduce_for(optimizer, "step()")
        self._divided_again.before_step(self.usage.steps, self.info)

    # ---- for late joiners

    @property
    def next_round(self) -> int:
        """The number of the first round without an outcome, which may be in progress."""
        return 1 if self.info is None else self.info.round + 1

    def parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The parameters that are reduced, with their names."""
        return ((self.name_of(parameter), parameter) for parameter in self._parameters)

    def start_again(self) -> None:
        self._drop_batches()
        self.leave_node()
        self._local_phase = self._shares = False
        if self.usage.in_round:
            self._worker.abandon()
        self._lent.clear()
        super().start_again()
        for parameter in self._parameters:
            self._parameters.facts(parameter).result.drop()
        self.counted = None
        if self._buffers is not None:
            self._buffers.start_again()


def _levels_to_the_user() -> int:
    """The stacklevel with which the caller's warning names the user's line: the first one outside
    this package and torch."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_THE_USER):
        level, frame = level + 1, frame.f_back
    return level


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _check_named(unnamed: Sequence[object], unknown: Mapping[str, object]) -> None:
    if unnamed or unknown:
        given = [repr(count) for count in unnamed]
        given += [f"{name}={count!r}" for name, count in unknown.items()]
        raise TypeError(
            f"contribute() was given {', '.join(given)}, but needs the unit of each count. Call "
            "contribute(samples=..., tokens=...), with one of them or both; micro-batches are "
            "counted automatically."
        )


class LaneOwner:
    """The methods of an object that owns a lane."""

    _lane: GradientLane

    def wait_round(self, timeout: float | None = None) -> None:
        """Waits again, after OutcomeUnknown or Paused, for `timeout` seconds; None: forever."""
        self._lane.wait_round(timeout)

    def retry_round(self) -> None:
        """Sends the gradients of an aborted round again. Those of a failed backward are refused:
        run it again."""
        self._lane.retry_round()

    def contribute(
        self,
        *unnamed: NoReturn,
        samples: int | None = None,
        tokens: int | None = None,
        **unknown: NoReturn,
    ) -> None:
        """Declares the counts in the next backward's loss, before each backward; None is unknown.
        last_round().spec.counts has the sums over all workers."""
        self._lane.contribute(*unnamed, samples=samples, tokens=tokens, **unknown)

    def sync_gradients(self) -> None:
        """Reduces the accumulated gradients without another backward."""
        self._lane.sync_gradients()

    def last_round(self) -> RoundInfo | None:
        """The facts about the last round; None before the first one."""
        return self._lane.info

    def totals(self) -> Totals:
        """Bytes and seconds of all rounds so far."""
        return self._lane.totals
