# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The local phase of a lane's rounds: the ranks of this node reduce their gradients with NCCL, in
buckets while the backward runs, before one of them contributes the sums for all.

All ranks reduce the same buckets in the same order: the parameters in reverse order of their
registration, as a backward usually reaches them. A bucket is reduced when it and all before it are
complete; the rest at the end of the backward, with zeros for what this rank lacks. A last bucket
has the counts of the ranks, and which gradients each of them has.
"""

import contextlib
import hashlib
import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch

from basin import _abi
from basin.errors import Error, FailedPrecondition, InvalidArgument, Unsupported
from basin.group import Group, Shared, Tensor, Turn, open_group
from basin.lane.gradient import Gradient
from basin.spec import Counts, LocalReduction, Op, RoundSpec
from basin.torch import device, tensors
from basin.torch.parameters import Reduced
from basin.worker import Worker, logger

# As in PyTorch's DistributedDataParallel.
_BUCKET_BYTES = 25 << 20

TensorGradient = Gradient[torch.Tensor, torch.Tensor]

# Memory that a device may still write to, after a broadcast that neither ended nor could be
# aborted. torch would give it to other tensors, so it stays for the life of the process.
_never_freed: list[torch.Tensor] = []


@dataclass
class Share:
    """What the local phase leaves to this rank.

    alone:        whether each rank contributes for itself, because one had no memory for the sums
    leads:        whether this worker contributes for the node
    contributors: the trainers in its contribution; only known at the leader, else 0
    counts:       their sums
    sums:         each gradient that some rank has, and the sum
    reduction:    how the ranks were reduced, for the plan in the reply
    others:       the ids of the other workers
    """

    alone: bool = False
    leads: bool = False
    contributors: int = 0
    counts: Counts = field(default_factory=Counts)
    sums: Sequence[tuple[TensorGradient, torch.Tensor]] = ()
    reduction: LocalReduction = LocalReduction.NONE
    others: tuple[str, ...] = ()


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
        self._spec = spec
        self.use(gradients)
        self._turn: Turn | None = None
        self._next: Turn | None = None  # Taken before its phase began.
        self._led_by: str | None = None  # The leader of the last phase, if it got the sums.
        # The state of this rank's phase.
        self._counts = Counts()
        self._weight: int | None = None  # Multiplies each gradient; None: nothing does.
        self._came: dict[int, tuple[TensorGradient, int]] = {}  # With its stream, by handle.
        # The state of the turn.
        self._reduced = 0  # How many buckets were given to the group.
        self._lent: list[torch.Tensor] = []  # What the group uses.
        self._declines = False  # This rank has no memory for the rest of the turn.
        # The counts of this rank, and where the leader gets their sums. It is kept, because a rank
        # without memory for anything else needs it all the same.
        told = 7 + len(gradients)
        self._told = device.on_device([0] * told, gradients[0].parameter)
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

    def start(self, counts: Counts) -> None:
        """Begins a phase, in which this rank contributes with these counts. Raises
        FailedPrecondition if it is not in the group of its node."""
        self._came.clear()
        self._counts = counts
        self._take_turn()

    def add(self, each: TensorGradient, stream: int) -> None:
        """A gradient has come; it is what is `sent`, and was written in the stream."""
        self._came[each.facts.handle] = (each, stream)
        while self._reduced < len(self._buckets) and all(
            one.facts.handle in self._came for one in self._buckets[self._reduced]
        ):
            self._reduce_next(contributes=True)

    def finish(self, contributes: bool) -> Share:
        """Reduces the rest, waits, and begins again until all ranks that are left have contributed,
        or one has declined.

        contributes: False: the gradients of this rank count as zeros, and its counts do not count
        """
        partial = self._reduced > 0 and not self._declines
        if self._turn is not None and not contributes and partial:
            self._group.fail("the backward of a rank has failed")
            return self._end() or self._repeat(contributes)
        return self._repeat(contributes)

    def finish_again(self, contributes: bool) -> Share | None:
        """Repeats the phase for the next round, after no contributor was left in the last one. None
        if its leader is still here: then the gradients were not lost with it."""
        if self._led_by is None:
            return None
        if self._next is None:
            self._next = self._group.turn()
        if self._next.leader == self._led_by:
            return None
        return self._repeat(contributes)

    def share(self, worker: Worker, lane: int, seconds: float) -> bool:
        """Brings the results of the round to the ranks that did not lead the phase. Returns False
        if the round had none in so many seconds: call it again. Whatever fails, they come from the
        aggregator."""
        if not self._passes:
            try:
                self._passes = [
                    device.empty_like(each.parameter, each.facts.shape, each.facts.dtype)
                    for each in self._gradients
                ]
            except RuntimeError as error:  # torch.OutOfMemoryError is one.
                self._decline_results(worker, lane, error)
                return True
        places = [
            Shared(each.facts.handle, memory.data_ptr(), each.facts.bytes)
            for each, memory in zip(self._gradients, self._passes, strict=True)
        ]
        stream = device.stream_of(self._gradients[0].facts.cuda)
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

    def _decline_turn(self, error: RuntimeError) -> None:
        """There is no memory for what this rank reduces."""
        self._warn(
            "sums",
            f"worker {self._worker.id} and the other ranks of its node contribute this step for "
            "themselves: the device has no memory for the sums of the node besides the gradients",
            error,
        )
        self._declines = True
        self._group.decline_turn()

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
        self._declines = False
        self._sums = []  # Those of the last turn are the caller's.
        weighted = self._spec.op == Op.WEIGHTED_AVERAGE and not self._spec.contributes_sum
        self._weight = None
        # A contribution of one trainer is multiplied by the aggregator.
        if weighted and self._turn.members > 1:
            self._weight = _count_of(self._spec, self._counts)

    def _repeat(self, contributes: bool) -> Share:
        while True:
            if self._turn is None:
                self._take_turn()
            while self._reduced < len(self._buckets):
                self._reduce_next(contributes)
            self._reduce_counts(contributes)
            share = self._end()
            if share is not None:
                return share

    def _end(self) -> Share | None:
        """Returns None if there is another turn."""
        turn = self._turn
        assert turn is not None
        phase = self._group.end()
        self._turn = None
        if phase == _abi.PHASE_AGAIN:
            return None
        if phase == _abi.PHASE_DECLINED:
            self._led_by = None
            self._lent.clear()
            self._sums = []
            return Share(alone=True)
        self._led_by = turn.leader
        if not turn.leads:
            return Share()
        return self._share_of(turn, device.on_host(self._totals).tolist())

    def _reduce_next(self, contributes: bool) -> None:
        bucket = self._buckets[self._reduced]
        self._reduced += 1
        if not self._declines:
            lent, sums = len(self._lent), len(self._sums)
            try:
                parts = [self._tensor_of(each, contributes) for each in bucket]
            except torch.cuda.OutOfMemoryError as error:
                # What of the bucket has memory is not used.
                del self._lent[lent:], self._sums[sums:]
                self._decline_turn(error)
        if self._declines:
            parts = [self._without_memory(each) for each in bucket]
        # The present stream may still use what the memory for the sums was before.
        nothing = Tensor(_abi.U8, _abi.U8, 0, 0, 0, device.stream_of(bucket[0].facts.cuda))
        self._group.reduce([*parts, nothing])

    def _tensor_of(self, each: TensorGradient, contributes: bool) -> Tensor:
        """The gradient, multiplied by the weight, or zeros."""
        facts: Reduced = each.facts
        assert self._turn is not None
        dtype = self._dtype_of(facts)
        came = self._came.get(facts.handle) if contributes else None
        # A contribution with weight 0 is not read: it may have a NaN.
        if came is None or self._weight == 0:
            memory = device.empty_like(each.parameter, facts.shape, dtype).zero_()
            stream = device.stream_of(facts.cuda)
        else:
            stream = came[1]
            assert each.sent is not None
            memory = each.sent
            if self._weight is not None:
                memory = device.product(memory, self._weight, dtype, facts.cuda, stream)
        self._lent.append(memory)
        output = 0
        if self._turn.leads:
            total = device.empty_like(each.parameter, facts.shape, facts.dtype)
            self._sums.append((each, total))
            output = total.data_ptr()
        return Tensor(
            tensors.DTYPES[dtype],
            tensors.DTYPES[facts.dtype],
            memory.numel(),
            memory.data_ptr(),
            output,
            stream,
        )

    def _dtype_of(self, facts: Reduced) -> torch.dtype:
        """That in which the gradient is given to the group."""
        # A product is not rounded before it is added.
        widens = self._weight is not None and facts.dtype is not torch.float64
        return torch.float32 if widens else facts.dtype

    def _without_memory(self, each: TensorGradient) -> Tensor:
        """Takes the place of the tensor on a rank that has declined."""
        facts: Reduced = each.facts
        dtypes = (tensors.DTYPES[self._dtype_of(facts)], tensors.DTYPES[facts.dtype])
        return Tensor(*dtypes, facts.shape.numel(), 0, 0, device.stream_of(facts.cuda))

    def _reduce_counts(self, contributes: bool) -> None:
        """Reduces the counts of the ranks, and which gradients they have."""
        told: list[int] = [int(contributes)]
        for count in (self._counts.samples, self._counts.tokens, self._counts.micro_batches):
            known = contributes and count is not None
            told += [int(known), count if known and count is not None else 0]
        for each in self._gradients:
            told.append(int(contributes and each.facts.handle in self._came))
        self._told.copy_(torch.tensor(told))
        stream = device.stream_of(self._gradients[0].facts.cuda)
        place = (self._told.data_ptr(), self._totals.data_ptr(), stream)
        self._group.reduce([Tensor(_abi.I64, _abi.I64, len(told), *place)])

    def _share_of(self, turn: Turn, totals: list[int]) -> Share:
        contributors, *rest = totals
        counts = [rest[i + 1] if rest[i] == contributors else None for i in (0, 2, 4)]
        share = Share(leads=True, contributors=contributors, counts=Counts(*counts))
        share.reduction, share.others = turn.reduction, turn.others
        present = {
            each.facts.handle
            for each, ranks in zip(self._gradients, rest[6:], strict=True)
            if ranks > 0
        }
        share.sums = [pair for pair in self._sums if pair[0].facts.handle in present]
        if self._weight is not None and contributors == 1:
            # The others have failed, and the aggregator multiplies what is of one trainer.
            weight = _count_of(self._spec, share.counts)
            for _, total in share.sums if weight else ():
                total.div_(weight)
        return share


def _count_of(spec: RoundSpec, counts: Counts) -> int:
    return replace(spec, counts=counts).weight_count or 0


def _buckets(gradients: Iterable[TensorGradient]) -> Iterable[list[TensorGradient]]:
    bucket: list[TensorGradient] = []
    size = 0
    for each in gradients:
        bucket.append(each)
        size += each.facts.bytes
        if size >= _BUCKET_BYTES:
            yield bucket
            bucket, size = [], 0
    if bucket:
        yield bucket


class Node:
    """Whether and how a lane reduces within this node: for each layout of its tensors, a group."""

    def __init__(self, worker: Worker, lane: str, spec: RoundSpec, *, first: bool) -> None:
        self._worker = worker
        self._lane = lane
        self._spec = spec
        self._mode = worker.options["local_group"] or "off"
        if os.environ.get("LOCAL_WORLD_SIZE", "1") == "1":
            self._mode = "off"
        self._layout = ""
        self._layouts = 0
        self._gradients: Sequence[TensorGradient] = ()
        self.reduction: NodeReduction | None = None  # None: this rank contributes for itself.
        if self._mode != "off" and not first:
            self._leave_out("NCCL takes only the first lane of a process")

    def take(self, gradients: Sequence[TensorGradient]) -> None:
        """These are the gradients from now on. REQUIRES: no round is in flight."""
        if self._mode == "off" or not gradients or gradients is self._gradients:
            return
        self._gradients = gradients
        layout = _layout_of(gradients, self._spec)
        if layout == self._layout:
            if self.reduction is not None:
                self.reduction.use(gradients)
            return
        self.close()
        self._layout = layout
        self._layouts += 1
        where = {each.facts.cuda for each in gradients}
        if len(where) > 1 or -1 in where:
            self._leave_out("NCCL needs all parameters on one CUDA device")
            return
        # All ranks change their layout between the same two rounds.
        name = f"{self._lane} {self._layouts}"
        try:
            group = open_group(self._worker, where.pop(), name, layout)
        except Error as error:
            self._go_alone(error)
            return
        if group is not None:
            self.reduction = NodeReduction(self._worker, group, gradients, self._spec)

    def start(self, counts: Counts) -> None:
        """Begins a local phase, if this rank is in the group of its node."""
        if self.reduction is None:
            return
        try:
            self.reduction.start(counts)
        except FailedPrecondition as error:
            self._contribute_alone(str(error))
        except Error as error:
            if self.reduction.has_reduced:
                raise
            self._go_alone(error)

    def _go_alone(self, error: Error) -> None:
        """The ranks of this node have formed no group. Raises the error unless the mode is auto. It
        always is an error that ranks disagree: then a setting is wrong."""
        if self._mode != "auto" or isinstance(error, InvalidArgument):
            raise error
        self._contribute_alone(f"{error} (BASIN_LOCAL_GROUP is auto)")

    def _contribute_alone(self, why: str) -> None:
        logger.warning(
            "worker %s contributes to lane %s for itself: %s", self._worker.id, self._lane, why
        )
        self.leave()

    def leave(self) -> None:
        """This rank contributes for itself from now on."""
        self._mode = "off"
        self.close()

    def close(self) -> None:
        reduction, self.reduction = self.reduction, None
        if reduction is not None:
            reduction.close()

    def _leave_out(self, why: str) -> None:
        text = f"The gradients of lane {self._lane} are not reduced within this node: {why}"
        if self._mode != "auto":
            raise Unsupported(
                f"{text}, and BASIN_LOCAL_GROUP is {self._mode}. Set it to auto or off."
            )
        logger.warning("%s (BASIN_LOCAL_GROUP is auto). Each rank contributes for itself.", text)
        self._mode = "off"


def _layout_of(gradients: Sequence[TensorGradient], spec: RoundSpec) -> str:
    specs = [each.facts.spec for each in gradients]
    content = "\n".join(f"{one.name} {one.dtype} {one.shape}" for one in specs)
    content += f"\n{spec}"
    digest = hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
    return f"{len(specs)} tensors with the hash {digest} in buckets of {_BUCKET_BYTES} bytes"
