# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The rounds of a gradient lane with the client: what is sent, by whom it is contributed, and how
results reach .grad."""

import ctypes
import operator
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from basin import _abi, notices
from basin.client import Client
from basin.errors import Error, FailedPrecondition, OutcomeUnknown, Paused, Unsupported
from basin.lane.ranges import Range
from basin.lane.samples import Ledger
from basin.spec import RoundSpec
from basin.torch import device
from basin.torch.ahead import Ahead
from basin.torch.buffers import BufferLane
from basin.torch.contributor import Alone, Contributor, Totals
from basin.torch.divided_again import DividedAgain
from basin.torch.node import Node
from basin.torch.parameters import TensorGradient
from basin.torch.row_gradients import RowGradients
from basin.torch.state import JobState
from basin.torch.store import TensorStore
from basin.worker import LeaseOutcome, Result, RoundInfo, SampleEpoch, Worker

_version_sent = operator.attrgetter("sent._version")

# _abi.Buffer, which takes longer to write field by field.
_BUFFER = struct.Struct("@IPPN")
assert _BUFFER.size == ctypes.sizeof(_abi.Buffer)


class LaneLedger:
    """The ledger of a lane, whose handle is `lane`."""

    def __init__(self, worker: Worker, lane: int) -> None:
        self._worker = worker
        self._lane = lane

    def lease(self, epoch: SampleEpoch, count: int) -> tuple[LeaseOutcome, list[Range]]:
        return self._worker.samples_lease(self._lane, epoch, count)

    def lease_step(self, epoch: SampleEpoch, global_batch: int) -> tuple[LeaseOutcome, list[Range]]:
        return self._worker.samples_lease_step(self._lane, epoch, global_batch)

    def generation(self) -> tuple[int, int]:
        return self._worker.place().generation

    def give_back(self, number: int, given: Sequence[Range]) -> None:
        self._worker.samples_return(self._lane, number, given)

    def committed(self) -> tuple[SampleEpoch, list[Range]]:
        return self._worker.samples_committed(self._lane)

    def resume(self, epoch: SampleEpoch, committed: Sequence[Range]) -> None:
        self._worker.samples_resume(self._lane, epoch, committed)


class TensorRounds:
    """
    lane, spec: those of the lane: its name, and see basin.lane.Lane
    full:       how many bytes are pushed together
    buffers:    buffers to send and receive with each round
    first:      whether it is the first lane of this process
    client:     that of the worker
    may_be_sparse:
                whether gradients may be sparse, alike on all workers; called when the first round
                begins
    """

    def __init__(
        self,
        worker: Worker,
        lane: str,
        spec: RoundSpec,
        store: TensorStore,
        state: JobState,
        wire_dtype: torch.dtype | None,
        full: int,
        buffers: BufferLane | None,
        first: bool,
        client: Client,
        may_be_sparse: Callable[[], bool],
    ) -> None:
        self._worker = worker
        self._lane = lane
        self._store = store
        self._state = state
        self.buffers = buffers
        self.totals = Totals()
        alone = Alone(worker, lane, state, self.totals, wire_dtype, full, buffers, store.stream_of)
        self._handle = alone.lane
        self._alone = alone
        self._contributor: Contributor = alone
        self.node = Node(alone, spec, first=first)
        # What the library reads in this round, so that it stays whatever happens to .grad.
        self._lent: list[torch.UntypedStorage] = []
        # What was sent in this round, and in which version; the library may still read it.
        self._sent_now: list[TensorGradient] = []
        self._versions: list[int] = []
        self._step = 0  # That of this round.
        self._spec = spec
        self._expected_round: int | None = None  # The first round of a late joiner.
        self._outcome: Result | None = None  # The result that is being delivered.
        self._buffers_refusal: Error | None = None
        self.divided_again = DividedAgain(lane, spec.op)
        self._rows: RowGradients | None = None
        self._client = client
        self._may_be_sparse: Callable[[], bool] | None = may_be_sparse
        store.check_sparse = self._check_sparse
        # The loss scale of this worker's gradients, equal on all workers.
        self.loss_scale = 1.0
        # The contributors of the counts that divide the next round's gradients.
        self.counted: tuple[str, ...] | None = None
        self.info: RoundInfo | None = None  # The facts about the last round.

    def sample(self, spec: RoundSpec) -> None:
        """From now on rounds have this spec, because a sampler gives the samples."""
        self.divided_again = DividedAgain(self._lane, spec.op)

    def _find_out_about_rows(self) -> None:
        """Before the first round, which all workers begin with the same models."""
        may_be_sparse, self._may_be_sparse = self._may_be_sparse, None
        if may_be_sparse is not None and may_be_sparse():
            self._rows = RowGradients(self._client, self._lane, self._handle)

    def _check_sparse(self, name: str) -> None:
        self._find_out_about_rows()
        if self._rows is None:
            raise Unsupported(
                f"The gradient of parameter {name} of lane {self._lane} is sparse, and no layer of "
                "a shared model says so. Share the model with broadcast_parameters(model) or "
                "State(model) before the first backward, or pass sparse_gradients=True on all "
                "workers, or sparse_as_dense=True; or make it dense: Embedding(sparse=False)."
            )
        self._rows.check(name, self._spec, groups_ranks=self.node.groups_ranks)

    def ledger(self) -> Ledger:
        """That of the samples of this lane."""
        return LaneLedger(self._worker, self._handle)

    @property
    def worker_id(self) -> str:
        return self._worker.id

    def world_size(self) -> int:
        return self._worker.place().world_size

    def report_batch(self, samples: int, target: int) -> bool:
        _, closed = self._worker.report_batch(self._handle, samples, target)
        return closed

    # ---- without the trainer

    def why_not_ahead(self) -> str | None:
        """Why this lane can make no rounds while its trainer loads the state, if so: they need more
        than this lane, or something that is not loaded yet."""
        if self.buffers is not None:
            return "buffers are sent with each round (broadcast_buffers=True)"
        undecided = self._may_be_sparse
        if self._rows is not None or (undecided is not None and undecided()):
            return "the rows of sparse gradients come in calls beside the rounds"
        if self.node.groups_ranks:
            return "the ranks of a node reduce together (local_group=)"
        if self._store.layout.compares_values:
            return "check_parameters compares what is not loaded yet"
        if self.loss_scale != 1.0:
            return "the loss has a scale, which a joiner does not know yet"
        return None

    def spec_ahead(self, spec: RoundSpec) -> RoundSpec:
        """That of rounds without the trainer."""
        return replace(spec, layout=self._store.layout.begin(None), compares_step=False)

    def ahead(self, spec: RoundSpec, most: int, others_call: Callable[[], bool]) -> Ahead:
        """Makes rounds from now on, until the trainer has the state."""
        return Ahead(self._worker, self._handle, spec, most, others_call)

    # ---- the contribution

    def begin(self, gradients: Sequence[TensorGradient], spec: RoundSpec) -> int:
        self._spec, self._outcome = spec, None
        self._find_out_about_rows()
        if self._rows is not None:
            self._rows.begin()
        self._expected_round, steps = self._state.before_round(self._lane)
        if steps is not None:
            # The others compare the steps. Their next round has another number than the one after
            # the last result, if rounds were aborted since.
            self._expected_round = None
        self._lent.clear()
        self._sent_now.clear()
        self._versions.clear()
        self._buffers_refusal = None
        self._step = spec.step if steps is None else steps
        same_step = self._state.counts_steps
        spec = replace(
            spec,
            step=self._step,
            loss_scale=self.loss_scale,
            layout=self._store.layout.begin(self._step if same_step else None),
            compares_step=same_step,
            optimizer="" if self._store.numbers is None else self._store.numbers.text(),
        )
        self._contributor = self._state.rounds_ahead() or self.node.begin(gradients, spec)
        return self._step

    def after_begin(self) -> None:
        self._contributor.after_begin()

    def send(self, gradients: Sequence[TensorGradient]) -> None:
        began = time.perf_counter()
        self._sent_now += gradients
        self._versions += map(_version_sent, gradients)
        dense = []
        for each in gradients:
            memory = each.sent
            assert memory is not None
            if each.places is not None:
                assert self._rows is not None
                self._rows.add(each, each.places)
                continue
            each.address = memory.data_ptr()
            self._lent.append(memory.untyped_storage())
            dense.append(each)
        self._contributor.add(dense)
        self.totals.push_seconds += time.perf_counter() - began

    def commit(self) -> Error | None:
        self._check_unchanged()
        if self._rows is not None:
            self._rows.commit()
        return self._contributor.commit()

    def _check_unchanged(self) -> None:
        """Raises Unsupported if a gradient was written to after it was sent: the library may have
        read it before, after or meanwhile."""
        versions = list(map(_version_sent, self._sent_now))
        if versions == self._versions:
            return
        changes = zip(self._sent_now, versions, self._versions, strict=True)
        written = next(each for each, now, then in changes if now != then)
        name = self._store.name_of(written.parameter)
        raise Unsupported(
            f"The gradient of parameter {name} was written to in the backward after it was sent, "
            "so it is not known what was sent. Write to .grad when backward() has returned, or "
            "from a hook of the tensor (register_hook), which comes before."
        )

    def withdraw(self, reason: str) -> None:
        if self._rows is not None:
            self._rows.withdraw()
        self._contributor.withdraw(reason)

    # ---- the outcome

    def outcome(self, timeout: float | None) -> None:
        began = time.perf_counter()
        if self.buffers is not None:
            refusal = self.buffers.receive(timeout, self._state.serve_in_round)
            self._buffers_refusal = refusal or self._buffers_refusal
        try:
            if self._outcome is None:
                self._take_outcome(timeout)
            if self._rows is not None:
                assert self._outcome is not None and self.info is not None
                self._rows.receive(self._outcome, self.info, timeout)
        except (OutcomeUnknown, Paused):
            raise
        except Error:
            self._lent.clear()
            raise
        self.totals.wait_seconds += time.perf_counter() - began

    def _take_outcome(self, timeout: float | None) -> None:
        result = self._contributor.wait(timeout)
        # The step is not part of the reply, which is the same on all workers.
        info = result.info
        self.info = replace(info, spec=replace(info.spec, step=self._step))
        self._outcome = result
        self._check_round(self.info.round)
        self._state.after_outcome(self.info)

    def _check_round(self, number: int) -> None:
        if self._expected_round not in (None, number):
            raise FailedPrecondition(
                f"This worker joined lane {self._lane} with the state before round "
                f"{self._expected_round}, but its first round was {number}. Its parameters are not "
                "those of the others: start it again."
            )

    def deliver(self, gradients: Sequence[TensorGradient]) -> list[TensorGradient]:
        assert self._outcome is not None
        divisors, squared_norms = self._outcome.results()
        delivered: list[TensorGradient] = []
        memory: list[torch.Tensor] = []  # In which each result comes.
        on_device: dict[int, list[TensorGradient]] = {}
        for each in gradients:
            if not 0 <= each.handle < len(divisors) or divisors[each.handle] == 0:
                continue
            result = each.sent
            if result is None or result.data_ptr() != each.address:
                # It was not sent, or its memory was replaced through .data.
                result = device.empty_like(each.parameter, each.shape, each.dtype)
                each.address = result.data_ptr()
            delivered.append(each)
            memory.append(result)
            on_device.setdefault(each.cuda, []).append(each)
        for index, come in on_device.items():
            self._copy(self._outcome, come, index)
        # .grad, and whether it is the result alone. Those that are views of one tensor share its
        # version, so all are written before one is recorded.
        placed = [
            self._store.put_result(each, result)
            for each, result in zip(delivered, memory, strict=True)
        ]
        for each, (gradient, whole) in zip(delivered, placed, strict=True):
            squared_norm = squared_norms[each.handle]
            # It is unknown if negative. The norm of a result with a NaN is a NaN.
            if whole and not squared_norm < 0:
                each.result.put(gradient, gradient.data_ptr(), squared_norm)
            else:
                each.result.drop()
        return self._with_rows(gradients, delivered)

    def _with_rows(
        self, gradients: Sequence[TensorGradient], delivered: list[TensorGradient]
    ) -> list[TensorGradient]:
        """Adds the rows of sparse gradients, and the gradients that have only rows."""
        if self._rows is None or not self._rows.has_any():
            return delivered
        assert self.info is not None
        known = set(delivered)
        for each in gradients:
            name = each.spec.name
            rows = self._rows.total_for(each, name, self.info)
            if rows is None:
                continue
            self._store.put_rows(each, rows, beside=each in known)
            each.result.drop()
            if each not in known:
                delivered.append(each)
        return delivered

    def _copy(self, outcome: Result, gradients: Sequence[TensorGradient], index: int) -> None:
        """Copies the results to the addresses, on this CUDA device, or on the CPU if negative."""
        count, width = len(gradients), _BUFFER.size
        buffers = (_abi.Buffer * count)()
        for i, each in enumerate(gradients):
            _BUFFER.pack_into(buffers, i * width, each.handle, 0, each.address, each.bytes)
            self.totals.bytes_received += each.bytes
        if index < 0:
            outcome.copy_many(buffers, count)
        else:
            self._worker.copy_device(outcome, buffers, count, index, device.stream_of(index))

    def may_defer(self) -> bool:
        # The gradients of a node are added up before they are sent, those of a hook of torch's
        # DistributedDataParallel are in memory that it uses again, and rows have their own places.
        contributes = self._contributor is self._alone and not self.node.may_group_ranks
        late = self.info is not None and self.info.late_carries and self._is_late(self.info)
        has_rows = any(each.places is not None for each in self._sent_now)
        return late and contributes and self._store.own_hooks and not has_rows

    def _is_late(self, info: RoundInfo) -> bool:
        return self._worker.id in info.late

    def lose_deferred(self, why: str) -> None:
        notices.warn(
            f"Gradients of worker {self._worker.id} that were too late for a round of lane "
            f"{self._lane} are not added to a later one: {why}. The samples of an elastic sampler "
            "come again.",
            notices.ContributorsChanged,
        )

    def has_counted(self) -> bool:
        return self.info is not None and self._worker.id in self.info.contributors

    def last_was_zero(self) -> bool:
        if self._rows is not None and self._rows.has_any():
            return False
        return self.info is None or not self.info.squared_norm

    def delivered(
        self,
        gradients: Sequence[TensorGradient],
        micro_batches: int,
        refusal: Exception | None,
        *,
        deferred: bool,
    ) -> None:
        assert self.info is not None and self._outcome is not None
        rejection, self._outcome = self._outcome.rejection, None
        self._lent.clear()
        self._store.parameters.have_compared()
        delivered = (each.parameter for each in gradients if each.is_result())
        results = (parameter for parameter in delivered if parameter.grad is not None)
        self.divided_again.delivered(results, micro_batches)
        self.totals.rounds += 1
        self._compare_counted()
        self._report_late(deferred)
        self._store.layout.round_ended(all_counted=self.info.trainers >= self.info.world_size)
        refusal = self._buffers_refusal or refusal or rejection
        if refusal is not None:
            raise self._store.layout.explain(refusal, self.info)

    def _compare_counted(self) -> None:
        counted, self.counted = self.counted, None
        if counted is None or self.info is None or self.info.contributors == counted:
            return
        notices.warn(
            f"total_counts() summed over {', '.join(counted)}, but round {self.info.round} of lane "
            f"{self._lane} has gradients of {', '.join(self.info.contributors)}, divided by those "
            "totals. If that is not what you want, skip this step (zero_grad() instead of step()); "
            "all workers get this warning. For totals that normalise no loss, such as those of an "
            "evaluation, use for_gradients=False.",
            notices.ContributorsChanged,
        )

    def _report_late(self, deferred: bool) -> None:
        if self.info is None or not self._is_late(self.info):
            return
        policy = "carry" if self.info.late_carries else "leave_out"
        then = "the samples of an elastic sampler come again"
        if deferred:
            then = "its next round has these gradients, too"
        notices.warn(
            f"Round {self.info.round} of lane {self._lane} went on without the gradients of worker "
            f"{self._worker.id}, which were late (the aggregator's round.late_policy is {policy}). "
            "This worker has the result of the others, like all of them, and goes on; "
            f"{then}.",
            notices.ContributorsChanged,
        )

    def start_again(self, *, in_round: bool) -> None:
        self.node.leave()
        self._outcome = None
        if self._rows is not None:
            self._rows.start_again()
        if in_round:
            self._worker.abandon()
        self._lent.clear()
        for each in self._store.gradients.values():
            each.result.drop()
        self.counted = None
        if self.buffers is not None:
            self.buffers.start_again()
