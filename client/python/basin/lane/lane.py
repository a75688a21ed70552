# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The gradients of one model or optimizer, and the rounds that reduce them.

gradient.py has the state of each gradient, gradients.py what the user has done to them, phase.py
the state of the round, and actions.py the effects of user actions. The local gradients of several
backwards (micro-batches) accumulate until a backward sends them; they are its window. Their counts
are sent with the round. A window is a sum, so a window of means in a weighted average has only one
backward: another one is refused, and does not change it. What was too late for its round may be
added to the next one; see deferred.py.

A backward only notes which gradients have come. They are checked, marked and sent in batches: with
hundreds of small tensors, anything that is done for each of them separately costs more than its
bytes.

Threads. One thread at a time runs backward and step.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, NoReturn, Protocol

from basin import forks
from basin.arguments import seconds
from basin.errors import Error, InvalidArgument, OutcomeUnknown, Paused, RoundAborted, Unsupported
from basin.lane import actions, gradient
from basin.lane.accumulation import Accumulation, check_passes
from basin.lane.actions import Action, Deed, Situation
from basin.lane.deferred import Deferred, can_be_added, fits, shares_of, sum_of
from basin.lane.gradient import LOCAL_STATES, G, Gradient, P, on_all
from basin.lane.gradients import Gradients, Store
from basin.lane.phase import Backward, Event, Phase
from basin.lane.ranges import Range, size, union
from basin.lane.samples import Samples
from basin.lane.usage import Usage
from basin.spec import Counts, RoundSpec


class Rounds(Protocol):
    """Carries out the rounds of a lane, one after the other. Gradients are those of the lane.

    loss_scale: that of this worker's gradients in the next round
    """

    loss_scale: float

    def begin(self, gradients: Sequence[Any], spec: RoundSpec) -> int:
        """Begins a round with these counts, in which these gradients may be sent. An error leaves
        no round open; it is InvalidArgument if what is deferred cannot be in this round. Returns
        its step, which is that of the spec unless the worker had to learn it from the others."""

    def after_begin(self) -> None: ...

    def report_batch(self, samples: int, target: int) -> bool:
        """Reports how many samples are accumulated for the next round. Returns whether all workers
        together have the target, or one of them has begun the round."""

    def send(self, gradients: Sequence[Any]) -> None:
        """Sends the memory that is `sent`, now or with a later call, at the latest in commit()."""

    def commit(self) -> Error | None:
        """Commits. Returns the reason if this worker's gradients are refused and withdrawn."""

    def withdraw(self, reason: str) -> None: ...

    def outcome(self, timeout: float | None) -> None:
        """Waits for the outcome. Raises OutcomeUnknown and Paused while the round continues, and
        another Error if no worker applies it."""

    def deliver(self, gradients: Sequence[Any]) -> list[Any]:
        """Writes each result, plus what is aside, to .grad. What was `sent` may be overwritten.
        Returns those that have a result."""

    def has_counted(self) -> bool:
        """Whether the last result has this worker's contribution."""

    def last_was_zero(self) -> bool:
        """Whether the result of the last round may have been only zeros."""

    def may_defer(self) -> bool:
        """Whether the last result is one that this worker's contribution was too late for, and its
        next one may have it as well."""

    def lose_deferred(self, why: str) -> None:
        """What was to be added to a later round is dropped; `why` is the end of a sentence."""

    def delivered(
        self,
        gradients: Sequence[Any],
        micro_batches: int,
        refusal: Exception | None,
        *,
        deferred: bool,
    ) -> None:
        """Called when all results are in place. Raises the refusal, or this worker's error.

        deferred: this worker's contribution was too late, and is kept for the next round
        """

    def start_again(self, *, in_round: bool) -> None:
        """Drops all that is known of rounds, because this worker was evicted."""


class Lane(Generic[P, G]):
    """Decides when gradients are sent and what .grad contains.

    store:     its parameters and their .grad
    rounds:    what carries out its rounds
    name:      the name of the lane
    spec:      the spec of its rounds, without counts and step
    passes:    backwards in a window: the last one sends, and so does a step() before it; 0: a
               step() sends, when all workers have a target batch
    owner:     the object whose methods the user calls, for messages: "the optimizer"
    batch_bytes:
               how much comes in a backward before it is sent
    timeout:   seconds that a backward waits for the outcome; None: forever
    """

    def __init__(
        self,
        store: Store[P, G],
        rounds: Rounds,
        name: str,
        spec: RoundSpec,
        passes: int,
        owner: str,
        batch_bytes: int,
        timeout: float | None,
    ) -> None:
        self.store = store
        self.rounds = rounds
        self.name = name
        self.usage = Usage(name, owner, passes)
        self.spec = spec
        self.passes = passes
        self._owner = owner
        self._batch_bytes = batch_bytes
        self._timeout = timeout
        self._forks = forks.count()
        self.gradients = Gradients(store, self.usage)
        store.connect(self._hook_of, self._reached_refused)
        self._collects = False  # Whether a gradient that comes is sent with a later batch.
        self._came: list[Gradient[P, G]] = []  # In this backward, and not sent yet.
        self._came_bytes = 0
        self._backward = Backward.NONE
        self._found = Situation.IDLE  # The state of the gradients when the backward began.
        self._sends = False  # Whether this backward pushes.
        self._with_graph = False  # Whether this backward makes a graph of the gradients.
        # Why this lane cannot reduce a backward, if one reaches it.
        self._broken: Exception | None = None
        self._failure: Exception | None = None  # The error to raise when this backward returns.
        self._next = Accumulation()  # The counts of the next backward that reaches a parameter.
        self._accumulation = Accumulation()  # The accumulation of local gradients.
        self._sent = Accumulation()  # The accumulation of the round in flight.
        self._sent_spec = spec  # The spec of what this worker computed for it.
        # Contributions of earlier rounds: what the next round has as well, and what this one has.
        self._deferred: Deferred | None = None
        self._added: Deferred | None = None
        # Those of which the round in flight has only what is deferred.
        self._only_deferred: list[Gradient[P, G]] = []
        self._refusal: Exception | None = None  # Why this worker is not counted in the round.
        # The abort of a step that comes again, if a backward of this worker has failed in it.
        self._again: RoundAborted | None = None
        self._samples: Samples | None = None
        self._handed_samples = 0  # In what a loader has handed out last.

    # ---- parameters

    def owner_of_local(self, parameter: P) -> str | None:
        """The object to call to reduce the parameter's .grad, if it is local; else None."""
        known = self.gradients.of(parameter)
        local = known is not None and known.is_local() and self.store.grad(parameter) is not None
        return self._owner if local else None

    # ---- the state of the gradients

    def _look(self, *, near: bool = False) -> None:
        """Detects what the user has zeroed; see Gradients.look()."""
        self.gradients.look(near=near)
        accumulation = self._accumulation
        if (
            accumulation.spoiled or accumulation.micro_batches > 0
        ) and not self.gradients.has_local():
            self._accumulation = Accumulation()

    def _situation(self, has_local: bool, reduced: bool) -> Situation:
        if self.usage.in_round:
            return Situation.IN_FLIGHT
        if self._accumulation.spoiled:
            return Situation.SPOILED
        if has_local and self._accumulation.micro_batches == 0:
            return Situation.STRAY
        if has_local:
            return (
                Situation.FULL if self._accumulation.is_full(self.spec) else Situation.ACCUMULATED
            )
        return Situation.REDUCED if reduced else Situation.IDLE

    # ---- one backward

    def _is_here(self) -> bool:
        """Whether the client is in this process, and not in one of which this is a fork."""
        return forks.count() == self._forks

    def start_backward(self, with_graph: bool = False) -> None:
        """Puts results aside. A model that cannot be reduced is an error of the backward that
        reaches it, and not of others.

        with_graph: it was called with create_graph=True
        """
        self.usage.check_may_begin()
        self._leave_backward()  # One that was interrupted may not have been left.
        self._again = None
        self._with_graph, self._broken = with_graph, None
        try:
            self.gradients.scan()
        except Exception as error:
            self._broken = error
        self._look(near=True)
        unapplied = self.passes != 1 and self.gradients.has_unapplied()
        self._found = self._situation(not unapplied and self.gradients.has_local(), unapplied)
        self.gradients.put_aside()
        if self._found is Situation.FULL:  # It will be refused, so its gradients are kept separate.
            for each in self.gradients.all:
                if self.store.grad(each.parameter) is not None:
                    each.on(gradient.Event.PUT_APART, self.store)
        self._failure = None
        self._backward = Backward.BEGUN
        is_last = self._accumulation.micro_batches + 1 >= self.passes > 0
        self._sends = self.usage.pushing and is_last

    def _hook_of(self, each: Gradient[P, G]) -> Callable[[P], None]:
        """The function to call when a backward has accumulated the gradient."""

        def hook(_: P) -> None:
            if not self._collects:
                self._come_first(each)
                return
            self._came.append(each)
            self._came_bytes += each.bytes
            if self._came_bytes >= self._batch_bytes:
                self._send_came()

        return hook

    def _come_first(self, each: Gradient[P, G]) -> None:
        """Called with the first gradient of a backward, and with all if it does not send them."""
        if self._backward is Backward.NONE or not self._is_here():
            return
        if self._backward is Backward.BEGUN:
            if not self.store.own_hooks:
                self.gradients.copy_what_is_away()
            self._reach()
        each.touched = True
        if self._sends and self.store.own_hooks and self._failure is None:
            self._push([each])
            self._collects = True

    def _reached_refused(self, _: P) -> None:
        """The function to call when a backward has reached a parameter that a scan has refused."""
        if self._backward is Backward.BEGUN and self._is_here():
            self._reach()

    def _reach(self) -> None:
        """The backward has reached this lane. If the model cannot be reduced, ends it here, before
        other hooks see its gradients."""
        self._backward = self._check_backward()
        failure = self._failure
        if self._broken is not None and failure is not None:
            self._failure = None
            raise failure

    def _send_came(self) -> None:
        for each in self._came:
            each.touched = True
        if self._came and self._is_here():
            self._push(self._came)
        self._came, self._came_bytes = [], 0

    def _check_backward(self) -> Backward:
        """Checks the backward that has reached this lane. Its errors are raised when it returns."""
        action = Action.BACKWARD if self.passes == 1 else Action.BACKWARD_OF_PASSES
        try:
            self.usage.check_takes_part("backward()")
            if self._broken is not None:
                raise self._broken
            if self._with_graph and self._sends:
                self.usage.refuse_graph()
            self.usage.decide(action, self._found, "backward()")
            if self._samples is not None and not self._sends:
                self._samples.check_stays_local(self._next.positions, self._owner)
            self._next.check(
                self.spec,
                self._accumulation,
                self._owner,
                knows_samples=self._samples is not None and self._samples.are_samples,
            )
        except Exception as error:
            self._failure = self._failure or error
            self._next = Accumulation()
            refused = actions.DEEDS[action][self._found] is Deed.REFUSE_ANOTHER
            return Backward.BEYOND if refused else Backward.REFUSED
        return Backward.HERE

    def push_ready(self, parameters: Iterable[P]) -> None:
        """Pushes the gradients of these parameters, and skips parameters without one. An error is
        kept for end_hooks()."""
        if self._backward is Backward.NONE or self._failure is not None or not self._is_here():
            return
        try:
            ready = []
            for parameter in parameters:
                known = self.gradients.of(parameter)
                if known is None:
                    raise InvalidArgument(self.store.not_reduced(parameter))
                if self.store.grad(parameter) is not None:
                    ready.append(known)
            if ready:
                self._push(ready)
        except Error as error:
            self._failure = self._failure or error

    def end_hooks(self) -> None:
        """Called when the backward has accumulated all gradients: sends those that were not yet.
        Raises the reason of this backward's refusal, or the error of push_ready()."""
        self._send_came()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _count_backward(self) -> None:
        """Adds this backward to the window as one more micro-batch."""
        self._next.micro_batches += 1
        self._accumulation.add(self._next)
        self._next = Accumulation()

    def _leave_backward(self) -> Backward:
        came, self._backward = self._backward, Backward.NONE
        for each in self._came:
            each.touched = True
        self._collects, self._came, self._came_bytes = False, [], 0
        return came

    def end_backward(self) -> bool:
        """Commits the round, if there is one, without waiting. Returns whether there is one."""
        came = self._leave_backward()
        if self.usage.in_round:
            self._complete()
            return True
        if came is Backward.HERE:
            self._count_backward()
            self.gradients.note()
        self.gradients.restore()
        return False

    def withdraw(self, reason: str) -> bool:
        """Like end_backward(), for a failed backward."""
        not_sent = self._came
        came = self._leave_backward()
        if came is Backward.NONE:
            return False  # It failed before this lane knew of it.
        if self.usage.in_round:
            with contextlib.suppress(Exception):
                # What has come is in the round.
                self._lend(not_sent, self.store.memory_of(not_sent))
            self._take_back(Event.FAIL, reason)
            return True
        if came is not Backward.BEGUN:
            # The counts given before this backward do not apply to the next one.
            self._next = Accumulation()
            self._end_failed(came)
            self.gradients.note()
        self.gradients.restore()
        return False

    def _end_failed(self, came: Backward) -> None:
        """Ends a failed backward that has reached this lane and sent nothing."""
        if (
            self._found is Situation.FULL
        ):  # Its gradients are dropped, and the accumulation is restored.
            for each in self.gradients.all:
                each.touched = False
            self.gradients.restore()
            return
        if came is Backward.BEYOND and self._accumulation.micro_batches == 0:
            for each in self.gradients.all:
                if each.is_local():
                    self.store.set_grad(each.parameter, None)  # The results are unchanged.
        else:
            self._accumulation.spoiled = True

    # ---- one round

    def _begin(self) -> None:
        if self.usage.in_round:
            return
        if self._backward is not Backward.NONE:
            self._count_backward()
        counts = self._counts().check_contributed()
        spec = replace(
            self.spec, counts=counts, step=self.usage.steps, loss_scale=self.rounds.loss_scale
        )
        if self._samples is not None:
            named = tuple(union(self._accumulation.positions))
            spec = replace(spec, samples=named, sample_epoch=self._samples.epoch.number)
        if self._deferred is not None and not fits(self._deferred, spec):
            self._drop_deferred("the rounds have another loss scale or epoch since")
        if self._deferred is not None and not self._can_add(self._deferred):
            self._drop_deferred("a parameter has another dtype, shape or device since")
        begun = None if self._deferred is None else self._begin_with(self._deferred, spec)
        if begun is None:
            begun = self.rounds.begin(self.gradients.all, spec), spec
        self.usage.steps, self._sent_spec = begun
        self.usage.on(Event.BEGIN)
        self._added, self._deferred = self._deferred, None
        self._again = None
        self._sent, self._accumulation = self._accumulation, Accumulation()
        self._refusal = None
        self.rounds.after_begin()

    def _can_add(self, deferred: Deferred) -> bool:
        mine = set(deferred.gradients) <= set(self.gradients.all)
        return mine and self.store.can_add(deferred.gradients)

    def _begin_with(self, deferred: Deferred, spec: RoundSpec) -> tuple[int, RoundSpec] | None:
        """Begins a round that has what is deferred as well. Returns its step, and the spec of what
        is computed for it; None if it cannot be added any more."""
        if self._accumulation.is_empty():
            # What is deferred is all of the contribution, so the other counts are known.
            spec = replace(spec, counts=Counts(0, 0, 0))
        try:
            both = replace(
                spec,
                deferred=1,
                counts=sum_of(deferred.counts, spec.counts).check_contributed(),
                samples=tuple(union([*deferred.positions, *spec.samples])),
            )
            return self.rounds.begin(self.gradients.all, both), spec
        except InvalidArgument as error:
            # A round was aborted since, for example, before this worker had begun it.
            self._drop_deferred(str(error).removesuffix("."))
            return None

    def _counts(self) -> Counts:
        """Those of the accumulation, whose samples are those of its batches if the user does not
        say. A batch without a backward has a part in the positions, but in no gradient."""
        counts = self._accumulation.counts()
        if counts.samples is not None or self._samples is None or not self._samples.are_samples:
            return counts
        # Without any, it is of the same batch as the backward before it.
        return replace(counts, samples=self._accumulation.handed or self._handed_samples)

    def _push(self, gradients: list[Gradient[P, G]]) -> None:
        memory = self.store.memory_of(gradients)
        self._begin()
        if self._added is not None:
            shares = shares_of(self._added.spec, self._sent_spec)
            memory = self.store.add_deferred(gradients, memory, shares)
        self._lend(gradients, memory)
        self.rounds.send(gradients)

    def _push_only_deferred(self) -> None:
        """Pushes what is deferred of the tensors of which this round has no other gradient."""
        if self._added is None:
            return
        self._only_deferred = [
            each
            for each in self.gradients.all
            if each.deferred is not None and each.state in LOCAL_STATES
        ]
        if self._only_deferred:
            shares = shares_of(self._added.spec, self._sent_spec)
            memory = self.store.scale_deferred(self._only_deferred, shares)
            self._lend(self._only_deferred, memory)
            self.rounds.send(self._only_deferred)

    def _lend(self, gradients: list[Gradient[P, G]], memory: list[G]) -> None:
        """Marks them as sent. Called before they are sent, so that no interruption leaves a
        gradient that the library reads and that is not marked."""
        for each, lent in zip(gradients, memory, strict=True):
            if each.sent is not None:
                name = self.store.name_of(each.parameter)
                raise Unsupported(
                    f"The gradient of parameter {name} was accumulated twice in one backward "
                    "(reentrant checkpointing does that). Use "
                    "checkpoint(..., use_reentrant=False), or run the backward under no_sync() and "
                    "another one after it."
                )
            each.sent = lent
        on_all(gradients, gradient.Event.SEND, self.store)

    def _complete(self) -> None:
        """Sends the gradients that were not pushed yet, and commits. An error is raised only after
        the outcome, because until then the others wait for this worker."""
        try:
            self._begin()
            if self._samples is not None and self._samples.in_steps and self._sent.is_empty():
                # If it alone were counted, it would commit a step without samples.
                self._take_back(Event.WITHDRAW, "it has no samples in this step")
                return
            rest = [
                each
                for each, held in self.gradients.held()
                if held is not None and each.state in LOCAL_STATES
            ]
            if rest:
                self._push(rest)
            self._push_only_deferred()
            self._refusal = self.rounds.commit()
            self.usage.on(Event.COMMIT)
        except BaseException as error:
            if not self.usage.in_round:
                self.gradients.restore()
                raise
            self._take_back(Event.WITHDRAW, f"it could not be sent: {error!r}")
            if not isinstance(error, Exception):
                raise
            self._refusal = error

    def _take_back(self, event: Event, reason: str) -> None:
        with contextlib.suppress(Error):  # The outcome will have the error.
            self.rounds.withdraw(reason)
        self.usage.on(event)

    def await_outcome(self) -> None:
        """Waits for the outcome and puts the results in place."""
        self._await_outcome(self._timeout)

    def _await_outcome(self, timeout: float | None) -> None:
        gradients = self.gradients.all
        try:
            self.rounds.outcome(timeout)
        except (OutcomeUnknown, Paused):
            self.gradients.hide_sent()
            raise
        except Error as error:
            # No worker applies this round. The gradients are unchanged.
            cause = self._refusal if self.usage.phase is Phase.WITHDRAWN else None
            for each in self._only_deferred:
                each.sent = None
            self._end_added("the round that had it was not committed")
            self._accumulation, self._sent = self._sent, Accumulation()
            self._accumulation.spoiled = self.usage.phase is Phase.FAILED
            self.usage.on(Event.END)
            for each in gradients:
                each.touched = each.touched or each.is_sent()
                each.on(gradient.Event.ABORT, self.store)
                each.sent = each.home = None
            self.gradients.note()
            self.gradients.restore()
            if isinstance(error, RoundAborted) and error.step_again:
                self._again = error if self._accumulation.spoiled else None
                self._drop_local()
            if cause is not None:
                raise cause from error
            raise
        except BaseException:  # Ctrl-C, for example.
            self.gradients.hide_sent()
            raise
        contributed = self.usage.phase is Phase.COMMITTED and self._refusal is None
        self.usage.on(Event.END)
        late = self._defer() if contributed and self.rounds.may_defer() else None
        delivered = self.rounds.deliver(gradients)
        on_all(delivered, gradient.Event.DELIVER, self.store)
        for each in delivered:
            each.aside = None
        if len(delivered) < len(gradients):
            missed = set(gradients).difference(delivered)
            on_all(missed, gradient.Event.MISS, self.store)
        for each in gradients:
            each.sent = each.home = each.left = each.applied = None
            each.touched = False
        self.gradients.has_delivered(self.rounds.last_was_zero())
        sent, self._sent = self._sent, Accumulation()
        counted = self.rounds.has_counted()
        if self._samples is not None:
            named = [*sent.positions, *(self._added.positions if self._added is not None else ())]
            self._samples.end_round(named, counted)
        lost = "it was too late" if contributed else "this worker has withdrawn"
        self._end_added(None if counted else f"in the round that had it, {lost}")
        if late is not None:
            self._keep(*late)
        self.rounds.delivered(
            gradients, sent.micro_batches, self._refusal, deferred=late is not None
        )

    def _defer(self) -> tuple[Deferred, list[G]] | None:
        """What this worker has computed for the round, which was too late for it, with copies that
        are made before the results come. None if there is nothing to keep, or if it could not be
        added."""
        mine = [
            each
            for each in self.gradients.all
            if each.is_sent() and each not in self._only_deferred
        ]
        if not mine or not can_be_added(self._sent_spec):
            return None
        deferred = Deferred(self._sent_spec, tuple(self._sent.positions), tuple(mine))
        return deferred, self.store.computed(mine)

    def _keep(self, deferred: Deferred, kept: list[G]) -> None:
        """The next round has this as well."""
        self._deferred = deferred
        for each, gradient_of_before in zip(deferred.gradients, kept, strict=True):
            each.deferred = gradient_of_before

    def _end_added(self, lost: str | None) -> None:
        """The round in flight has ended, and with it what was added to it.

        lost: why it was not counted
        """
        added, self._added, self._only_deferred = self._added, None, []
        if added is None:
            return
        added.forget()  # Some may not have been sent.
        for each in self.gradients.all:
            each.added = False
        if lost is not None:
            self.rounds.lose_deferred(lost)

    def _drop_deferred(self, why: str) -> None:
        dropped, self._deferred = self._deferred, None
        if dropped is not None:
            dropped.forget()
            self.rounds.lose_deferred(why)

    def end_deferred(self) -> None:
        """This worker makes no more rounds."""
        self._drop_deferred("this worker makes no more rounds")

    def _drop_local(self) -> None:
        for each in self.gradients.all:
            if each.is_local():
                self.store.set_grad(each.parameter, None)
        self._accumulation = Accumulation()
        self.gradients.note()

    def _reduce(self) -> None:
        """Runs a round of the local gradients, if any, outside a backward."""
        self.gradients.put_aside()
        self._complete()
        self.await_outcome()

    # ---- the positions of a sampler

    def is_spoiled(self) -> bool:
        """Whether there are gradients of a failed backward, which nothing sends."""
        return self._accumulation.spoiled

    def sample(self, samples: Samples, spec: RoundSpec) -> None:
        """From now on rounds name the positions that they were computed from, and have this spec.
        REQUIRES: no round is in flight."""
        self.give_samples_back()
        self._samples, self.spec = samples, spec
        self.forget_positions()

    def give_samples_back(self) -> None:
        """No backward of what is leased comes any more."""
        if self._samples is not None:
            self._samples.stop()

    def claim(self, handed: Sequence[Range], is_batch: bool) -> None:
        self._next.positions += handed
        # A batch before it had no backward.
        self._next.handed = size(handed) + (0 if is_batch else self._next.handed)
        self._handed_samples = self._next.handed

    def unclaim(self) -> None:
        self._next.positions = []
        self._next.handed = 0

    def unclaimed(self) -> bool:
        return bool(self._next.positions)

    def name_unused(self) -> None:
        """The script has run no backward of what was handed out last: the next round, in which this
        worker has nothing else, commits it as used."""
        self._accumulation.positions += self._next.positions
        self.unclaim()

    def in_use(self) -> list[Range]:
        if self._accumulation.positions and not self.usage.in_round:
            self._look(near=True)
        return [
            *self._next.positions,
            *self._accumulation.positions,
            *self._sent.positions,
            *(self._deferred.positions if self._deferred is not None else ()),
            *(self._added.positions if self._added is not None else ()),
        ]

    def forget_positions(self) -> None:
        for each in (self._next, self._accumulation, self._sent):
            each.positions = []
        # Other workers may train its samples again.
        self._drop_deferred("its epoch is over for this worker")
        if self._added is not None:
            self._added = replace(self._added, positions=())

    # ---- calls of the user

    def wait_round(self, timeout: float | None = None) -> None:
        """Waits again, after OutcomeUnknown or Paused, for `timeout` seconds; None: forever."""
        self.usage.check_takes_part("wait_round()")
        limit = seconds("timeout", timeout)
        self.usage.decide(Action.WAIT, self._situation(False, False), "wait_round()")
        self._await_outcome(limit)

    def retry_round(self) -> None:
        """Sends the gradients of an aborted round as the next round."""
        self.usage.check_takes_part("retry_round()")
        if not self.usage.in_round:
            self._look()
        situation = self._situation(self.gradients.has_local(), False)
        self.usage.decide(Action.RETRY, situation, "retry_round()")
        self._reduce()

    def sync_gradients(self) -> None:
        """Sends local gradients without a backward. If there are none, and there was no round since
        the last step or skipped step, it takes part without a contribution."""
        self.usage.check_takes_part("sync_gradients()")
        self.usage.check_no_round("sync_gradients()")
        self.gradients.scan()
        self._look()
        self.gradients.disown_what_was_written()
        situation = self._situation(self.gradients.has_local(), self.gradients.has_round_for())
        if self.usage.decide(Action.SYNC, situation, "sync_gradients()") is Deed.REDUCE:
            self._reduce()

    def is_batch_complete(self, target: int) -> bool:
        """Reports the samples of the local gradients, and returns whether step() is due: all
        workers together have `target` samples, or one of them has begun the round."""
        self.usage.check_takes_part("is_batch_complete()")
        self.usage.check_no_round("is_batch_complete()")
        self.gradients.scan()
        self._look()
        situation = self._situation(self.gradients.has_local(), self.gradients.has_round_for())
        if situation is Situation.REDUCED:
            return True
        if situation is Situation.SPOILED:
            return self.rounds.report_batch(0, target)
        samples = self._counts().samples if self._accumulation.micro_batches else 0
        deferred = 0 if self._deferred is None else self._deferred.counts.samples
        return self.rounds.report_batch((samples or 0) + (deferred or 0), target)

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
        self.usage.check_takes_part("contribute()")
        told = Counts(samples=samples, tokens=tokens).check_contributed()
        self._next.set_counts(told.samples, told.tokens)

    def set_passes(self, passes: int) -> None:
        """Changes the number of backwards in a window, between two steps. Raises InvalidArgument if
        it is no whole number from 1."""
        check_passes(passes)
        self.passes = self.usage.passes = passes

    def reduce_for(self, optimizer: Any, call: str) -> None:
        """Reduces the rest of a window, for a `call` that needs the result."""
        self.usage.check_takes_part(call)
        self.usage.check_no_round(call)
        again, self._again = self._again, None
        if again is not None:
            raise again
        self.gradients.scan()
        self._look()
        self.gradients.disown_what_was_written()
        action = Action.STEP if self.passes == 1 else Action.STEP_OF_PASSES
        short = self.passes != 1 and self._accumulation.micro_batches > 0
        local = list(
            self.gradients.local(
                self.gradients.all if short else self.gradients.of_optimizer(optimizer)
            )
        )
        situation = self._situation(bool(local), self.gradients.has_round_for([optimizer]))
        deed = self.usage.decide(action, situation, call)
        self.store.check_optimizer(optimizer, call)
        if deed is Deed.REFUSE_LOCAL:
            self.usage.refuse_local(call, self.store.name_of(local[0].parameter))
        if deed is Deed.REDUCE_SHORT:
            self._check_not_written(call)
        if deed in (Deed.REDUCE, Deed.REDUCE_SHORT):
            self._reduce()

    def _check_not_written(self, call: str) -> None:
        for each, held in self.gradients.held():
            # None or zeros mean that it was zeroed, not written to.
            if (
                held is not None
                and self.gradients.was_written(each)
                and not self.store.is_zero(held)
            ):
                self.usage.refuse_written(call, self.store.name_of(each.parameter))

    def after_step(self, optimizer: Any) -> None:
        self.gradients.has_stepped(optimizer)
        self.usage.steps += 1

    def start_again(self) -> None:
        """Drops all gradients, because this worker was evicted and the others have continued."""
        self.rounds.start_again(in_round=self.usage.in_round)
        self.gradients.forget()
        if self.usage.in_round:
            self.usage.on(Event.END)
        self._leave_backward()
        self._next, self._accumulation, self._sent = Accumulation(), Accumulation(), Accumulation()
        self._end_added("this worker was evicted")
        self._drop_deferred("this worker was evicted")
        self._refusal = self._failure = None
        if self._samples is not None:
            self._samples.forget()


def _check_named(unnamed: Sequence[object], unknown: Mapping[str, object]) -> None:
    if unnamed or unknown:
        given = [repr(count) for count in unnamed]
        given += [f"{name}={count!r}" for name, count in unknown.items()]
        raise TypeError(
            f"contribute() was given {', '.join(given)}, but needs the unit of each count. Call "
            "contribute(samples=..., tokens=...), with one of them or both; micro-batches are "
            "counted automatically."
        )
