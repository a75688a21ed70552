# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What the log of a training says about a fault: pure functions of its lines.

Every trainer appends lines of five words to one log: what, its worker, its process, the time on the
machine's steady clock, and a number.

  born       its process has started; 0
  begin      it begins an attempt at a step, of so many samples
  step       the attempt has become the step of this number
  discarded  its system has thrown the attempt away, and the trainer goes on; 0

An attempt is lost if no model has it in the end: it was discarded, its process died or was ended in
the middle of it, or the training went back behind its step, to a checkpoint. The last is seen from
the numbers: an attempt that any worker began after the end of this one has become a step with the
same number or a smaller one.
"""

import bisect
import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass


@dataclass
class Attempt:
    """ended: infinite until it has become a step or was discarded
    step: the number of the step that it has become, from 1 on; 0 if it has become none
    """

    worker: int
    process: int
    begun: float
    samples: int
    ended: float = math.inf
    step: int = 0


class History:
    """The attempts in a log."""

    def __init__(self) -> None:
        self.of: dict[int, list[Attempt]] = defaultdict(list)  # Those of each worker, in order.
        self.processes: dict[int, int] = {}  # The last one of each worker.
        self._open: dict[tuple[int, int], Attempt] = {}
        self._rest = ""

    def feed(self, text: str) -> None:
        """Adds what has been appended to the log; its last line may be incomplete."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            what, worker, process, time, number = line.split()
            self._add(what, int(worker), int(process), float(time), int(number))

    def _add(self, what: str, worker: int, process: int, time: float, number: int) -> None:
        if what == "born":
            self.processes[worker] = process
        elif what == "begin":
            attempt = Attempt(worker, process, time, number)
            self.of[worker].append(attempt)
            self._open[worker, process] = attempt
        else:
            attempt = self._open.pop((worker, process))
            attempt.ended = time
            attempt.step = number

    def attempts(self) -> Iterator[Attempt]:
        return itertools.chain.from_iterable(self.of.values())

    def steps_of(self, worker: int) -> list[Attempt]:
        """Its attempts that have become steps, with those that were lost later."""
        return [each for each in self.of[worker] if each.step]

    def steps_after(self, worker: int, time: float) -> list[Attempt]:
        """Its steps that it began after this time. Does not look at earlier ones."""
        recent = itertools.takewhile(lambda each: each.begun > time, reversed(self.of[worker]))
        return [each for each in recent if each.step][::-1]


def progress(steps: Iterable[Attempt]) -> list[Attempt]:
    """The steps with a number beyond all before: without those that are made again."""
    beyond: list[Attempt] = []
    for each in steps:
        if not beyond or each.step > beyond[-1].step:
            beyond.append(each)
    return beyond


def median_step(history: History, worker: int, steps: int) -> float:
    """Seconds of a step, over the last ones of this worker."""
    ends = [each.ended for each in history.steps_of(worker)[-steps - 1 :]]
    return statistics.median(b - a for a, b in itertools.pairwise(ends))


def reached(history: History, worker: int, time: float) -> int:
    """The last step that it had made at this time; 0 before its first."""
    return next((a.step for a in reversed(history.of[worker]) if a.step and a.ended <= time), 0)


def has_resumed(history: History, survivors: Collection[int], fault: float) -> bool:
    """Whether each of them has begun and made a new step after the fault: one with a number beyond
    those of all survivors at the fault."""
    before = max(reached(history, worker, fault) for worker in survivors)
    return all(
        any(each.step > before for each in history.steps_after(worker, fault))
        for worker in survivors
    )


@dataclass(frozen=True)
class Cost:
    """Seconds that the worst of the survivors lost.

    pause: how much later than without the fault it made a step, new or not, that it had begun after
           the fault
    delay: the same for a new step, so with the steps that were made again before it
    """

    pause: float
    delay: float


def cost_of_a_fault(
    history: History, survivors: Collection[int], fault: float, step: float
) -> Cost:
    """step: seconds of an undisturbed step. REQUIRES: has_resumed()"""
    before = max(reached(history, worker, fault) for worker in survivors)
    costs = [_cost_of_one(history.steps_of(each), fault, before, step) for each in survivors]
    return Cost(
        pause=max(0.0, *(cost.pause for cost in costs)),
        delay=max(0.0, *(cost.delay for cost in costs)),
    )


def _cost_of_one(steps: list[Attempt], fault: float, before: int, step: float) -> Cost:
    last = [each for each in steps if each.ended <= fault][-1]
    later = [each for each in steps if each.ended > fault]
    begun_later = [each for each in later if each.begun > fault]

    def lateness(made: Attempt) -> float:
        """A step that it got from the others, instead of making it, takes its time as well."""
        beyond = made.step - last.step
        number = beyond if beyond > 0 else later.index(made) + 1
        return made.ended - last.ended - number * step

    new = next(each for each in begun_later if each.step > before)
    return Cost(pause=lateness(begun_later[0]), delay=lateness(new))


def cost_of_a_join(
    history: History, others: Collection[int], start: float, end: float, step: float
) -> Cost:
    """From the longest time between two steps of one of the others, or between two new ones, that
    ends after the start and begins before the end."""

    def longest(steps: list[Attempt]) -> float:
        waits = (
            b.ended - a.ended
            for a, b in itertools.pairwise(steps)
            if b.ended > start and a.ended < end
        )
        return max(waits, default=0.0)

    all_steps = [history.steps_of(worker) for worker in others]
    return Cost(
        pause=max(0.0, max(longest(steps) for steps in all_steps) - step),
        delay=max(0.0, max(longest(progress(steps)) for steps in all_steps) - step),
    )


def lost_attempts(history: History, since: float, gone: Collection[int] = ()) -> list[Attempt]:
    """The attempts that were lost because of what has happened since then.

    gone: the workers that make no steps any more: what they have begun last is lost
    """
    later = sorted((a.begun, a.step) for a in history.attempts() if a.step and a.begun > since)
    begins = [begun for begun, _ in later]
    # At each place, the smallest step from there on.
    smallest = list(itertools.accumulate((step for _, step in reversed(later)), min))[::-1]

    def was_undone(step: Attempt) -> bool:
        place = bisect.bisect_right(begins, step.ended)
        return place < len(smallest) and smallest[place] <= step.step

    def is_lost(attempt: Attempt, following: Attempt | None) -> bool:
        if attempt.step:
            return was_undone(attempt)
        if attempt.ended < math.inf:
            return attempt.ended > since
        return following.begun > since if following else attempt.worker in gone

    return [
        attempt
        for attempts in history.of.values()
        for attempt, following in itertools.zip_longest(attempts, attempts[1:])
        if is_lost(attempt, following)
    ]


@dataclass(frozen=True)
class Goodput:
    """share: of the samples that an undisturbed training would have had in this time. A step that
           was made again counts once, so the time for making it again is lost.
    steps: that count
    """

    share: float
    steps: int


def goodput(history: History, start: float, end: float, undisturbed: float) -> Goodput:
    """undisturbed: samples per second of all workers without a fault"""
    lost = {id(attempt) for attempt in lost_attempts(history, start)}
    kept = [
        each
        for each in history.attempts()
        if each.step and start < each.ended <= end and id(each) not in lost
    ]
    return Goodput(
        share=sum(each.samples for each in kept) / (undisturbed * (end - start)),
        steps=len({each.step for each in kept}),
    )
