# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The local phase of a lane's rounds: the ranks of this node reduce their gradients with NCCL, in
buckets while the backward runs, before one of them contributes the sums for all.

All ranks reduce the same buckets in the same order: the parameters in reverse order of their
registration, as a backward usually reaches them. A bucket is reduced when it and all before it are
complete; the rest at the end of the backward, with zeros for what this rank lacks. A last bucket
has the counts of the ranks, and which gradients each of them has.
"""

import contextlib
import enum
import hashlib
import logging
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from basin import _abi, machine
from basin.errors import (
    Error,
    FailedPrecondition,
    InvalidArgument,
    OutcomeUnknown,
    RoundAborted,
    Unsupported,
)
from basin.group import Group, Turn, open_group
from basin.spec import Counts, Op, RoundSpec
from basin.torch import device, raw, tensors
from basin.torch.contributor import Alone, Contributor
from basin.torch.parameters import TensorGradient
from basin.worker import SLICE_SECONDS, Result, Worker, logger

# As in PyTorch's DistributedDataParallel.
_BUCKET_BYTES = 25 << 20

# Memory that a device may still write to, after a broadcast that neither ended nor could be
# aborted. torch would give it to other tensors, so it stays for the life of the process.
_never_freed: list[torch.Tensor] = []


@dataclass
class Share:
    """What the local phase leaves to this rank.

    alone: whether each rank contributes for itself, because something has failed on one
    leads: whether this worker contributes for the node, if any rank has gradients
    spec:  that of its contribution for the node; None: it makes none
    sums:  each gradient that some rank has, and the sum
    """

    alone: bool = False
    leads: bool = False
    spec: RoundSpec | None = None
    sums: Sequence[tuple[TensorGradient, torch.Tensor]] = ()


class NodeReduction:
    """The local phases of one lane, one after the other: start() when the first gradient comes,
    add() for each, and finish().

    gradients: those of the lane, all on one CUDA device
    """

    def __init__(
        self, worker: Worker, group: Group, gradients: Sequence[TensorGradient], spec: RoundSpec
    ) -> None:
        self._worker = worker
        self._group = group
        self._spec = spec  # That of this round, with the counts of this rank.
        self.use(gradients)
        self._turn: Turn | None = None
        self._next: Turn | None = None  # Taken before its phase began.
        self._led_by: str | None = None  # The leader of the last phase, if it got the sums.
        # The state of this rank's phase.
        self._weight: int | None = None  # Multiplies each gradient; None: nothing does.
        self.came: dict[int, tuple[TensorGradient, int]] = {}  # With its stream, by handle.
        # The state of the turn.
        self._reduced = 0  # How many buckets were given to the group.
        self._lent: list[torch.Tensor] = []  # What the group uses.
        self._failed = False  # This rank reduces no more in it.
        # The counts of this rank, and where the leader gets their sums.
        told = 7 + len(gradients)
        self._counts = device.on_device([0] * told, gradients[0].parameter)
        self._totals = device.on_device([0] * told, gradients[0].parameter)
        self._sums: list[tuple[TensorGradient, torch.Tensor]] = []  # At the leader.
        self._passes: list[torch.Tensor] = []  # Through which results come.
        self._doubtful: list[torch.Tensor] = []  # Those that the device may still use.
        self.has_reduced = False  # Whether there was a turn, so that gradients may be reduced.
        self._warned_of: set[str] = set()  # What there was no memory for.

    def use(self, gradients: Sequence[TensorGradient]) -> None:
        """These are the gradients of the same tensors from now on."""
        self._gradients = list(reversed(gradients))
        self._buckets = list(_buckets(self._gradients))

    def close(self) -> None:
        _never_freed.extend(self._doubtful)
        self._group.close()

    def start(self, spec: RoundSpec) -> None:
        """Begins a phase, in which this rank contributes with these counts. Raises
        FailedPrecondition if it is not in the group of its node."""
        self.came.clear()
        self._spec = spec
        self._take_turn()

    def add(self, each: TensorGradient, stream: int) -> None:
        """A gradient has come; it is what is `sent`, and was written in the stream."""
        self.came[each.handle] = (each, stream)
        while self._has_next() and all(
            one.handle in self.came for one in self._buckets[self._reduced]
        ):
            self._reduce_next(contributes=True)

    def _has_next(self) -> bool:
        return not self._failed and self._reduced < len(self._buckets)

    def finish(self, contributes: bool) -> Share:
        """Reduces the rest, and waits for what becomes of it.

        contributes: False: the gradients of this rank count as zeros, and its counts do not count
        """
        if self._turn is None:
            self._take_turn()
        if not contributes and self._reduced > 0 and not self._failed:
            self._fail("the backward of a rank has failed")
        while self._has_next():
            self._reduce_next(contributes)
        if not self._failed:
            self._reduce_counts(contributes)
        return self._end()

    def has_lost_its_leader(self) -> bool:
        """Whether the leader of the last phase, which had the sums, is gone. Called when no
        contributor was left in the round. Waits for the next turn."""
        if self._led_by is None:
            return False
        if self._next is None:
            self._next = self._group.turn()
        lost = self._next.leader != self._led_by
        if lost:
            self._led_by = None
        return lost

    def share(self, worker: Worker, lane: int, seconds: float) -> bool:
        """Brings the results of the round to the ranks that did not lead the phase. Returns False
        if the round had none in so many seconds: call it again. Whatever fails, they come from the
        aggregator."""
        if not self._passes:
            try:
                self._passes = [
                    device.empty_like(each.parameter, each.shape, each.dtype)
                    for each in self._gradients
                ]
            except RuntimeError as error:  # torch.OutOfMemoryError is one.
                self._decline_results(worker, lane, error)
                return True
        places = [
            _abi.Shared(each.handle, memory.data_ptr(), each.bytes)
            for each, memory in zip(self._gradients, self._passes, strict=True)
        ]
        stream = device.stream_of(self._gradients[0].cuda)
        try:
            if not self._group.share(worker, lane, places, stream, seconds):
                return False
        except Error as error:
            logger.debug("worker %s gets results from the aggregator: %s", worker.id, error)
            self._doubtful += self._passes
        self._passes = []
        return True

    def _decline_results(self, worker: Worker, lane: int, error: RuntimeError) -> None:
        """There is no memory for the results of the round."""
        self._warn(
            "results",
            f"worker {worker.id} gets results from the aggregator and not from its node, whose "
            "ranks form their group again: the device has no memory for them besides the gradients",
            error,
        )
        with contextlib.suppress(Error):  # The next phase has it as well.
            self._next = self._group.decline_results(worker, lane)

    def _fail(self, reason: str) -> None:
        self._failed = True
        self._group.fail(reason)

    def _fail_without_memory(self, error: RuntimeError) -> None:
        """There is no memory for what this rank reduces."""
        self._warn(
            "sums",
            f"worker {self._worker.id} and the other ranks of its node contribute this step for "
            "themselves: the device has no memory for the sums of the node besides the gradients",
            error,
        )
        self._fail("a rank has no memory for the sums of the node")

    def _warn(self, of: str, text: str, error: RuntimeError) -> None:
        """Warns once that there is no memory for something."""
        level = logging.DEBUG if of in self._warned_of else logging.WARNING
        self._warned_of.add(of)
        way_out = "Use smaller batches, or set BASIN_LOCAL_GROUP to off."
        logger.log(level, "%s (%s). %s", text, error, way_out)

    # ---- one turn

    def _take_turn(self) -> None:
        turn, self._next = self._next, None
        self._turn = self._group.turn() if turn is None else turn
        self.has_reduced = True
        self._doubtful.clear()  # The group would not give a turn if it were in use.
        self._reduced = 0
        self._lent.clear()
        self._failed = False
        self._sums = []  # Those of the last turn are the caller's.
        weighted = self._spec.op == Op.WEIGHTED_AVERAGE and not self._spec.contributes_sum
        self._weight = None
        # A contribution of one trainer is multiplied by the aggregator.
        if weighted and self._turn.members > 1:
            self._weight = self._spec.weight_count or 0

    def _end(self) -> Share:
        turn = self._turn
        assert turn is not None
        phase = self._group.end()
        self._turn = None
        if phase == _abi.PHASE_ALONE:
            self._led_by = None
            self._lent.clear()
            self._sums = []
            return Share(alone=True)
        self._led_by = turn.leader
        if not turn.leads:
            return Share()
        return self._share_of(turn, raw.on_host(self._totals).tolist())

    def _reduce_next(self, contributes: bool) -> None:
        bucket = self._buckets[self._reduced]
        self._reduced += 1
        try:
            parts = [self._tensor_of(each, contributes) for each in bucket]
        except torch.cuda.OutOfMemoryError as error:
            self._fail_without_memory(error)
            return
        # The present stream may still use what the memory for the sums was before.
        nothing = _abi.Grouped(_abi.U8, _abi.U8, 0, 0, 0, device.stream_of(bucket[0].cuda))
        self._group.reduce([*parts, nothing])

    def _tensor_of(self, each: TensorGradient, contributes: bool) -> _abi.Grouped:
        """The gradient, multiplied by the weight, or zeros."""
        assert self._turn is not None
        # A product is not rounded before it is added.
        widens = self._weight is not None and each.dtype is not torch.float64
        dtype = torch.float32 if widens else each.dtype
        came = self.came.get(each.handle) if contributes else None
        # A contribution with weight 0 is not read: it may have a NaN.
        if came is None or self._weight == 0:
            memory = device.empty_like(each.parameter, each.shape, dtype).zero_()
            stream = device.stream_of(each.cuda)
        else:
            stream = came[1]
            assert each.sent is not None
            memory = each.sent
            if self._weight is not None:
                memory = device.product(memory, self._weight, dtype, each.cuda, stream)
        self._lent.append(memory)
        output = 0
        if self._turn.leads:
            total = device.empty_like(each.parameter, each.shape, each.dtype)
            self._sums.append((each, total))
            output = total.data_ptr()
        return _abi.Grouped(
            tensors.DTYPES[dtype],
            tensors.DTYPES[each.dtype],
            memory.numel(),
            memory.data_ptr(),
            output,
            stream,
        )

    def _reduce_counts(self, contributes: bool) -> None:
        """Reduces the counts of the ranks, and which gradients they have."""
        told: list[int] = [int(contributes)]
        counts = self._spec.counts
        for count in (counts.samples, counts.tokens, counts.micro_batches):
            known = contributes and count is not None
            told += [int(known), count if known and count is not None else 0]
        for each in self._gradients:
            told.append(int(contributes and each.handle in self.came))
        self._counts.copy_(torch.tensor(told, device="cpu"))
        stream = device.stream_of(self._gradients[0].cuda)
        place = (self._counts.data_ptr(), self._totals.data_ptr(), stream)
        self._group.reduce([_abi.Grouped(_abi.I64, _abi.I64, len(told), *place)])

    def _share_of(self, turn: Turn, totals: list[int]) -> Share:
        contributors, *rest = totals
        if contributors == 0:
            return Share(leads=True)
        counts = [rest[i + 1] if rest[i] == contributors else None for i in (0, 2, 4)]
        spec = replace(
            self._spec,
            counts=Counts(*counts),
            carries=contributors - 1,
            local_reduction=turn.reduction,
            reduced_with=turn.others,
        )
        present = {
            each.handle for each, ranks in zip(self._gradients, rest[6:], strict=True) if ranks > 0
        }
        sums = [pair for pair in self._sums if pair[0].handle in present]
        if self._weight is not None and contributors == 1 and spec.weight_count:
            # The others have failed, and the aggregator multiplies what is of one trainer.
            for _, total in sums:
                total.div_(spec.weight_count)
        return Share(leads=True, spec=spec, sums=sums)


def _buckets(gradients: Iterable[TensorGradient]) -> Iterable[list[TensorGradient]]:
    bucket: list[TensorGradient] = []
    size = 0
    for each in gradients:
        bucket.append(each)
        size += each.bytes
        if size >= _BUCKET_BYTES:
            yield bucket
            bucket, size = [], 0
    if bucket:
        yield bucket


class NodePhase(enum.Enum):
    """The phase of a round to which the ranks of a node contribute together."""

    REDUCING = "the ranks reduce, and in the job the round has not begun"
    SHARING = "this rank has contributed or withdrawn; the results come through the node"
    WAITING = "like SHARING, but the results come from the aggregator, or are here"


class InNode:
    """Contributes for all ranks of this node, or withdraws because another rank does.

    alone: contributes what the ranks have reduced
    """

    def __init__(self, alone: Alone, reduction: NodeReduction) -> None:
        self._alone = alone
        self.reduction = reduction
        self._phase = NodePhase.WAITING
        # The state of this round.
        self._spec = RoundSpec(Op.SUM)  # With the counts of this rank.
        self._counts = True  # What this rank has sent to the node counts.

    def begin(self, spec: RoundSpec) -> None:
        self.reduction.start(spec)
        self._phase, self._spec, self._counts = NodePhase.REDUCING, spec, True

    def after_begin(self) -> None:
        """In the job the round has not begun."""

    def add(self, gradients: Sequence[TensorGradient]) -> None:
        for each in gradients:
            self.reduction.add(each, self._alone.stream_of(each))

    def commit(self) -> Error | None:
        return self._contribute(self.reduction.finish(contributes=True), None)

    def withdraw(self, reason: str) -> None:
        if self._phase is not NodePhase.REDUCING:
            self._alone.withdraw(reason)
            return
        self._counts = False
        self._contribute(self.reduction.finish(contributes=False), reason)

    def _contribute(self, share: Share, reason: str | None) -> Error | None:
        """Contributes the sums of this node, or withdraws because another rank does. If there are
        none, each rank contributes for itself. With a `reason`, what this rank has sent does not
        count."""
        alone = self._alone
        spec = share.spec or self._spec
        if share.spec is None and not share.alone:
            spec = replace(spec, optimizer="")  # Only contributions are compared.
        alone.begin(spec)
        self._phase = NodePhase.WAITING if share.alone else NodePhase.SHARING
        alone.after_begin()
        if share.alone and reason is None:
            alone.add([each for each, _ in self.reduction.came.values()])
        for each, total in share.sums:
            alone.add_from_device(each, total.data_ptr())
        alone.push_rest()
        if share.spec is not None or (share.alone and reason is None):
            return alone.worker.commit(alone.lane)
        if share.leads:
            reason = reason or "no rank of its node has gradients"
        through_node = not share.leads and not share.alone
        alone.worker.withdraw(alone.lane, reason or "", without_results=through_node)
        return None

    def wait(self, timeout: float | None) -> Result:
        end = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            try:
                result = self._wait_for_shared(end)
                if result is not None:
                    return result
                left = None if timeout is None else max(0.0, end - time.monotonic())
                return self._alone.wait(left)
            except RoundAborted as error:
                self._end_sharing()
                if not self._repeats(error):
                    raise

    def _wait_for_shared(self, end: float) -> Result | None:
        """Shares results within the node. The outcome, if it comes first."""
        alone = self._alone
        while self._phase is NodePhase.SHARING:
            if self._share(min(SLICE_SECONDS, max(0.0, end - time.monotonic()))):
                return None
            alone.state.serve_in_round()
            try:
                result = alone.worker.wait(alone.lane, 0.0)
            except OutcomeUnknown:
                if time.monotonic() >= end:
                    raise
            else:
                self._end_sharing()
                return result
        return None

    def _share(self, seconds: float) -> bool:
        """Whether there is nothing left to share."""
        if not self.reduction.share(self._alone.worker, self._alone.lane, seconds):
            return False
        self._phase = NodePhase.WAITING
        return True

    def _end_sharing(self) -> None:
        """The round has ended, so there is nothing to wait for."""
        if self._phase is NodePhase.SHARING:
            self._share(0.0)
            self._phase = NodePhase.WAITING

    def _repeats(self, error: RoundAborted) -> bool:
        """Whether the round was aborted because the leader of this node was lost with the gradients
        of all its ranks. Then each of them has contributed to the next round."""
        if not error.no_contributor or not self.reduction.has_lost_its_leader():
            return False
        reason = None if self._counts else "its backward has failed"
        refusal = self._contribute(Share(alone=True), reason)
        if refusal is not None:
            raise refusal
        return True


class Node:
    """Chooses how this worker contributes to each round of a lane: alone, or in a group of the
    ranks of this node, of which there is one for each layout of the lane's tensors."""

    def __init__(self, alone: Alone, spec: RoundSpec, *, first: bool) -> None:
        self._alone = alone
        self._spec = spec
        self._mode = alone.worker.options["local_group"] or "off"
        if machine.local_size() == 1:
            self._mode = "off"
        self._layout = ""
        self._layouts = 0
        self._gradients: Sequence[TensorGradient] = ()
        self._in_node: InNode | None = None
        if self._mode != "off" and not first:
            self._leave_out("NCCL takes only the first lane of a process")

    @property
    def groups_ranks(self) -> bool:
        """Whether one rank contributes for others."""
        return self._in_node is not None

    @property
    def may_group_ranks(self) -> bool:
        """Whether one rank may contribute for others in a later round."""
        return self._mode != "off"

    def begin(self, gradients: Sequence[TensorGradient], spec: RoundSpec) -> Contributor:
        """Begins a round of these gradients. Returns what takes part in it."""
        self.take(gradients)
        if self._in_node is not None:
            try:
                self._in_node.begin(spec)
                return self._in_node
            except FailedPrecondition as error:
                self._contribute_alone(str(error))
            except Error as error:
                if self._in_node.reduction.has_reduced:
                    raise
                self._go_alone(error)
        self._alone.begin(spec)
        return self._alone

    def take(self, gradients: Sequence[TensorGradient]) -> None:
        """These are the gradients from now on. REQUIRES: no round is in flight."""
        if self._mode == "off" or not gradients or gradients is self._gradients:
            return
        self._gradients = gradients
        layout = _layout_of(gradients, self._spec)
        if layout == self._layout:
            if self._in_node is not None:
                self._in_node.reduction.use(gradients)
            return
        self.close()
        self._layout = layout
        self._layouts += 1
        where = {each.cuda for each in gradients}
        if len(where) > 1 or -1 in where:
            self._leave_out("NCCL needs all parameters on one CUDA device")
            return
        # All ranks change their layout between the same two rounds.
        worker, name = self._alone.worker, f"{self._alone.name} {self._layouts}"
        try:
            group = open_group(worker, where.pop(), name, layout)
        except Error as error:
            self._go_alone(error)
            return
        if group is not None:
            reduction = NodeReduction(worker, group, gradients, self._spec)
            self._in_node = InNode(self._alone, reduction)

    def _go_alone(self, error: Error) -> None:
        """The ranks of this node have formed no group. Raises the error unless the mode is auto. It
        always is an error that ranks disagree: then a setting is wrong."""
        if self._mode != "auto" or isinstance(error, InvalidArgument):
            raise error
        self._contribute_alone(f"{error} (BASIN_LOCAL_GROUP is auto)")

    def _contribute_alone(self, why: str) -> None:
        logger.warning(
            "worker %s contributes to lane %s for itself: %s",
            self._alone.worker.id,
            self._alone.name,
            why,
        )
        self.leave()

    def leave(self) -> None:
        """This rank contributes for itself from now on."""
        self._mode = "off"
        self.close()

    def close(self) -> None:
        in_node, self._in_node = self._in_node, None
        if in_node is not None:
            in_node.reduction.close()

    def _leave_out(self, why: str) -> None:
        text = f"The gradients of lane {self._alone.name} are not reduced within this node: {why}"
        if self._mode != "auto":
            raise Unsupported(
                f"{text}, and BASIN_LOCAL_GROUP is {self._mode}. Set it to auto or off."
            )
        logger.warning("%s (BASIN_LOCAL_GROUP is auto). Each rank contributes for itself.", text)
        self._mode = "off"


def _layout_of(gradients: Sequence[TensorGradient], spec: RoundSpec) -> str:
    specs = [each.spec for each in gradients]
    content = "\n".join(f"{one.name} {one.dtype} {one.shape}" for one in specs)
    content += f"\n{spec}"
    digest = hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
    return f"{len(specs)} tensors with the hash {digest} in buckets of {_BUCKET_BYTES} bytes"
