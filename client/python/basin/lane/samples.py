# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The positions of an epoch that are leased to this worker, from their lease to the round that
commits them.

  leased     by take(), for a loader; then it is ahead: the loader has it in its queue
  handed out to the training loop, for its next backward
  in use     claimed by gradients that are local, or by the round in flight
  committed  with a round that counts this worker's contribution

A position that is leased but neither ahead nor in use comes again with the next take(): its round
was withdrawn, its backward has failed, or its gradients were dropped. So no event has to say that
a position is to come again, and none can be forgotten.

With a global batch, each take() is this worker's share of one step, and a round is of one step.
What comes again then has to come before what is ahead, and the shares are those of the ranks of one
generation. So renew() gives all back in these cases, and the next take() is of the lowest step.

Threads. One thread at a time: the one that runs backward and step.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from basin.errors import FailedPrecondition
from basin.lane import ranges
from basin.lane.ranges import Range
from basin.worker import LeaseOutcome, SampleEpoch


class Ledger(Protocol):
    """What is leased and committed in a lane, as the aggregator knows it."""

    def lease(self, epoch: SampleEpoch, count: int) -> tuple[LeaseOutcome, list[Range]]:
        """Leases at most `count` positions. An epoch after the present one gives that up. Raises
        Mismatch if the epoch has another length or order at the other workers."""

    def lease_step(self, epoch: SampleEpoch, global_batch: int) -> tuple[LeaseOutcome, list[Range]]:
        """Likewise this worker's share of the next step of `global_batch` positions."""

    def generation(self) -> tuple[int, int]:
        """That of the ranks by which steps are shared."""

    def give_back(self, number: int, given: Sequence[Range]) -> None:
        """Gives leased positions of this epoch back, for other workers."""

    def committed(self) -> tuple[SampleEpoch, list[Range]]:
        """The last epoch of which something was committed, and what, as of the last verdict; one of
        0 samples if there is none."""

    def resume(self, epoch: SampleEpoch, committed: Sequence[Range]) -> None:
        """Before the first lease of an epoch: what is committed in it, from a checkpoint. A job
        that is further already goes on where it is."""


class Claims(Protocol):
    """What a lane knows of the positions that were handed out."""

    def claim(self, handed: Sequence[Range], is_batch: bool) -> None:
        """The next backward is of these, and of those that were handed out one by one before it. A
        batch replaces the one before, which had no backward."""

    def unclaim(self) -> None:
        """No backward comes for what was handed out since the last one."""

    def unclaimed(self) -> bool:
        """Whether positions were handed out since the last backward."""

    def in_use(self) -> Sequence[Range]:
        """What was handed out, as far as its gradients are local or in a round."""

    def forget_positions(self) -> None:
        """What was handed out so far is named in no later round."""


@dataclass
class EpochReport:
    """What has become of an epoch so far, as of this worker's last verdict.

    epoch:     its number
    samples:   how many positions it has
    committed: how many are committed, by all workers
    mine:      how many of these by this worker, since it has begun
    returned:  how many this worker has given back, in this process
    rounds:    in which this worker took part, of which ...
    idle:      ... it had no positions in this many
    """

    epoch: int
    samples: int
    committed: int = 0
    mine: int = 0
    returned: int = 0
    rounds: int = 0
    idle: int = 0


class Samples:
    """The positions of one worker in one lane.

    ledger:   see there
    claims:   the lane
    samples, order:
              of each epoch, see SampleEpoch
    are_samples:
              whether a position is one sample. Otherwise it is several steps of the training, and
              over when the loop asks for the next one
    take_part:
              takes part in a round without a backward
    global_batch:
              how many positions each round is of, over all workers; None: as many as they lease
    """

    def __init__(
        self,
        ledger: Ledger,
        claims: Claims,
        samples: int,
        order: int,
        are_samples: bool,
        take_part: Callable[[], None],
        global_batch: int | None = None,
    ) -> None:
        self._ledger = ledger
        self._claims = claims
        self._samples = samples
        self._order = order
        self.are_samples = are_samples
        self._take_part = take_part
        self.global_batch = global_batch
        self._generation = (0, 0)  # That of the steps that are leased.
        self._held: list[Range] = []  # Leased, and not committed.
        # What each take() has returned, in the order in which a loader hands it out.
        self._ahead: deque[list[Range]] = deque()
        self._open: list[Range] = []  # Handed out, and not over.
        self.life = 0  # Grows when all that is ahead becomes void.
        self._resumed: list[Range] | None = None  # What a checkpoint has as committed.
        self.has_ended = False
        self.is_over = False  # Whether a loop has reached the end of the epoch.
        self.was_resumed_at_its_end = False  # Whether a checkpoint has all as committed.
        self.report = EpochReport(0, samples)

    @property
    def epoch(self) -> SampleEpoch:
        return SampleEpoch(self.report.epoch, self._samples, self._order)

    @property
    def in_steps(self) -> bool:
        """Whether each round is of one step of a global batch."""
        return self.global_batch is not None

    # ---- epochs

    def set_epoch(self, number: int) -> None:
        """Goes on with this epoch. What is held of another one goes back."""
        self.is_over = False
        if number != self.report.epoch:
            self._start(number, None)

    def resume(self, number: int, committed: Sequence[Range]) -> None:
        """Goes on with this epoch, of which a checkpoint has these as committed."""
        self._start(number, ranges.union(committed))

    def _start(self, number: int, resumed: list[Range] | None) -> None:
        self.stop()
        self._claims.forget_positions()
        self.forget()
        self.has_ended = self.is_over = False
        self._resumed = resumed
        self.was_resumed_at_its_end = ranges.size(resumed or []) == self._samples > 0
        self.report = EpochReport(number, self._samples)

    def committed(self) -> list[Range]:
        """What is committed in this epoch, as of this worker's last verdict."""
        known, committed = self._ledger.committed()
        if known.samples > 0 and known.number == self.report.epoch:
            return committed
        if self.has_ended:
            return [(0, self._samples)] if self._samples > 0 else []
        return list(self._resumed or [])

    def begin(self) -> None:
        """A loop over the epoch begins, or goes on. If a loop has reached the end of one, and
        set_epoch() was not called since, it is the next epoch."""
        if self.is_over:
            self.set_epoch(self.report.epoch + 1)
        self.stop()

    def stop(self) -> None:
        """A loop over the epoch has ended: gives back what is not in use."""
        self._ahead.clear()
        self.life += 1
        self._open = []
        self._claims.unclaim()
        unused = ranges.without(self._held, self._claims.in_use())
        if unused:
            self._held = ranges.without(self._held, unused)
            self.report.returned += ranges.size(unused)
            self._ledger.give_back(self.report.epoch, unused)

    def forget(self) -> None:
        """No lease is left, because this worker was evicted."""
        self._ahead.clear()
        self.life += 1
        self._held, self._open = [], []

    # ---- positions

    def renew(self) -> None:
        """Before the loop hands out more. With a global batch, each item is one step: one that the
        script has run no backward of is over, and shares that are not of the next steps go back."""
        if self.global_batch is None:
            return
        if self._claims.unclaimed():
            self._take_part()
        if self._unused() or (self._held and self._generation != self._ledger.generation()):
            self.stop()

    def _unused(self) -> list[Range]:
        """What is leased, and neither ahead nor in use."""
        ahead = [each for taken in self._ahead for each in taken]
        return ranges.without(self._held, [*ahead, *self._open, *self._claims.in_use()])

    def take(self, count: int) -> list[Range]:
        """At most `count` positions for a loader; none if there are none now, or has_ended."""
        taken = self._find(count)
        if taken:
            self._ahead.append(taken)
        return taken

    def _find(self, count: int) -> list[Range]:
        if again := self._unused():
            return ranges.first(again, count)
        self.has_ended = self.has_ended or self._samples == 0
        if self.has_ended:
            return []
        resumed, self._resumed = self._resumed, None
        if resumed:
            self._ledger.resume(self.epoch, resumed)
        outcome, leased = self._lease(count)
        self.has_ended = outcome is LeaseOutcome.ENDED
        if self.has_ended:
            self._held = []
            self._claims.forget_positions()
        self._held = ranges.union([*self._held, *leased])
        return leased

    def _lease(self, count: int) -> tuple[LeaseOutcome, list[Range]]:
        if self.global_batch is None:
            return self._ledger.lease(self.epoch, count)
        if not self._held:
            self._generation = self._ledger.generation()
        return self._ledger.lease_step(self.epoch, self.global_batch)

    def hand_out(self, count: int | None, is_batch: bool = True) -> None:
        """The loader hands out the next `count` positions that are ahead; None: those of one
        take(). They are a batch, unless the script makes its batches itself."""
        handed: list[Range] = []
        while self._ahead and (count is None or ranges.size(handed) < count):
            taken = self._ahead.popleft()
            if count is None:
                handed = taken
                break
            part = ranges.first(taken, count - ranges.size(handed))
            handed += part
            if rest := ranges.without(taken, part):
                self._ahead.appendleft(rest)
        if self.are_samples:
            self._claims.claim(handed, is_batch)
        else:
            self._open_is_over()
            self._open = handed

    def _open_is_over(self) -> None:
        if self._open:
            self._claims.claim(self._open, is_batch=True)
            self._open = []

    def loader_is_empty(self) -> None:
        """What a loader has not handed out comes again."""
        self._ahead.clear()

    def wait(self, count: int) -> bool:
        """Returns whether there are positions, which the next take() returns. While others hold
        what is left, it takes part in their rounds; False if the epoch has ended."""
        self._open_is_over()
        while not self._find(count):
            if self.has_ended:
                self.is_over = True
                return False
            self.report.idle += 1
            self._take_part()
        return True

    # ---- rounds

    def check_stays_local(self, handed: Sequence[Range], owner: str) -> None:
        """Checks that a backward of these positions may keep its gradients local. With a global
        batch it may not: the round would be of two steps, and so none."""
        if self.global_batch is not None and handed:
            raise FailedPrecondition(
                f"A backward of a batch was run within no_sync() of {owner}, but its sampler has "
                f"keep_global_batch={self.global_batch}, with which each batch is a step of all "
                "workers, with a round of its own. Run it outside no_sync(). For smaller batches "
                "in memory, sum the losses of the parts of a batch before one backward."
            )

    def end_round(self, named: Sequence[Range], counted: bool) -> None:
        """A round has a result. It named these positions of this worker, and commits them if its
        contribution was counted."""
        self.report.rounds += 1
        if counted:
            self.report.mine += ranges.size(named)
            self._held = ranges.without(self._held, named)
