# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The gradients of one model or optimizer, and the rounds that reduce them.

gradient.py has the state of each gradient, phase.py that of the round, and actions.py the effects
of user actions. The local gradients of several backwards (micro-batches) accumulate until a
backward sends them; they are its window. Their counts are sent with the round. A window is a sum,
so a window of means in a weighted average has only one backward: another one is refused, and does
not change it.

A backward only notes which gradients have come. They are checked, marked and sent in batches: with
hundreds of small tensors, anything that is done for each of them separately costs more than its
bytes.

Threads. One thread at a time runs backward and step.
"""

import contextlib
import operator
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic

from basin.errors import Error, InvalidArgument, OutcomeUnknown, Paused, Unsupported
from basin.lane import actions, gradient
from basin.lane.actions import Action, Deed, Stage
from basin.lane.gradient import LOCAL_STATES, Facts, G, Gradient, P, State, on_all, that_can
from basin.lane.phase import Backward, Event, Phase
from basin.lane.usage import Usage
from basin.lane.window import Window
from basin.spec import Counts, RoundSpec


class Lane(ABC, Generic[P, G]):
    """Decides when gradients are sent and what .grad contains. A subclass holds the tensors and
    calls the client.

    name:      the name of the lane
    spec:      the spec of its rounds, without counts and step
    passes:    backwards in a window: the last one sends, and so does a step() before it
    owner:     the object whose methods the user calls, for messages: "the optimizer"
    own_hooks: whether it pushes each gradient when it is accumulated; otherwise the caller calls
               push_ready()
    batch_bytes:
               how much comes in a backward before it is sent
    """

    def __init__(
        self,
        name: str,
        spec: RoundSpec,
        passes: int,
        owner: str,
        own_hooks: bool,
        batch_bytes: int,
    ) -> None:
        self.name = name
        self.usage = Usage(name, owner, passes)
        self._spec = spec
        self._passes = passes
        self._owner = owner
        self._own_hooks = own_hooks
        self._batch_bytes = batch_bytes
        self._gradients: dict[P, Gradient[P, G]] = {}
        self._all: list[Gradient[P, G]] = []  # Those of the parameters that are reduced.
        # By optimizer: its parameters at its last action, and those of its gradients in _all.
        self._of_optimizer: weakref.WeakKeyDictionary[Any, tuple[list[P], list[Gradient[P, G]]]] = (
            weakref.WeakKeyDictionary()
        )
        self._not_zero: Gradient[P, G] | None = None  # The last result seen that was not zeros.
        self._collects = False  # Whether a gradient that comes is sent with a later batch.
        self._came: list[Gradient[P, G]] = []  # In this backward, and not sent yet.
        self._came_bytes = 0
        self._backward = Backward.NONE
        self._found = Stage.IDLE  # The state of the gradients when the backward began.
        self._sends = False  # Whether this backward pushes.
        self._failure: Exception | None = None  # The error to raise when this backward returns.
        self._told = Window()  # The counts of the next backward that reaches a parameter.
        self._window = Window()  # The window of local gradients.
        self._sent = Window()  # The window of the round in flight.
        self._refusal: Exception | None = None  # Why this worker is not counted in the round.
        self._rounds = 0  # The number of rounds with results.
        # By optimizer: the number of rounds at its last step.
        self._rounds_at_step: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._rounds_left_out = 0  # The number of rounds when results were last dropped.
        # Whether the results of the last round were dropped, which nobody had to know yet.
        self._doubt: Callable[[], bool] | None = None

    # ---- implemented by a subclass

    def is_here(self) -> bool:
        """Whether the client is in this process, and not in one of which this is a fork."""
        return True

    @abstractmethod
    def grad(self, parameter: P) -> G | None:
        """The parameter's .grad."""

    @abstractmethod
    def set_grad(self, parameter: P, gradient: G | None) -> None:
        """Sets .grad. The parameter may have been converted since the gradient was computed."""

    def held(self, gradients: Iterable[Gradient[P, G]]) -> list[G | None]:
        """The .grad of each."""
        return [self.grad(each.parameter) for each in gradients]

    @abstractmethod
    def copy(self, gradient: G) -> G: ...

    @abstractmethod
    def is_zero(self, gradient: G) -> bool: ...

    def is_far(self, gradient: G) -> bool:
        """Whether is_zero() waits for a device, behind all that it was given. A backward does
        without it then."""
        return False

    def look_later(self, gradients: Sequence[G]) -> Callable[[], bool]:
        """Like is_zero() of all of these as they are now, for gradients that are far: only the call
        of what is returned waits."""
        raise NotImplementedError

    @abstractmethod
    def mark(self, gradient: G) -> object:
        """Returns a mark of the present gradient, for is_as()."""

    @abstractmethod
    def is_as(self, gradient: G, mark: object) -> bool:
        """Whether it is the marked gradient, without a detected write since then."""

    @abstractmethod
    def name_of(self, parameter: P) -> str: ...

    @abstractmethod
    def reduced(self) -> Iterable[P]:
        """The parameters whose gradients are reduced, as of the last scan."""

    @abstractmethod
    def facts_of(self, parameter: P) -> Facts:
        """What is known of the parameter: one object, which a scan may change."""

    @abstractmethod
    def scan_parameters(self) -> list[P] | None:
        """Adopts the present parameters, and returns those that were replaced; None if nothing has
        changed. REQUIRES: no round is in flight."""

    @abstractmethod
    def parameters_of(self, optimizer: Any) -> Iterable[P]: ...

    @abstractmethod
    def check_optimizer(self, optimizer: Any, call: str) -> None:
        """Raises an error if the optimizer of this `call` has parameters that the lane lacks."""

    @abstractmethod
    def before_begin(self) -> None:
        """Called before a round begins; an error here leaves no round open."""

    @abstractmethod
    def begin(self, counts: Counts) -> None: ...

    @abstractmethod
    def after_begin(self) -> None: ...

    @abstractmethod
    def memory_of(self, gradients: Sequence[Gradient[P, G]]) -> list[G]:
        """Returns the gradients in a form that can be sent. Raises its errors before a round
        begins."""

    @abstractmethod
    def send(self, gradients: Sequence[Gradient[P, G]]) -> None:
        """Sends the memory that is `sent`, now or with a later call, at the latest in commit()."""

    @abstractmethod
    def commit(self) -> Error | None:
        """Commits. Returns the reason if this worker's gradients are refused and withdrawn."""

    @abstractmethod
    def withdraw_round(self, reason: str) -> None: ...

    @abstractmethod
    def outcome(self, timeout: float | None) -> None:
        """Waits for the outcome. Raises OutcomeUnknown and Paused while the round continues, and
        another Error if no worker applies it."""

    @abstractmethod
    def deliver(self, gradients: Sequence[Gradient[P, G]]) -> list[Gradient[P, G]]:
        """Writes each result, plus what is aside, to .grad. What was `sent` may be overwritten.
        Returns those that have a result."""

    @abstractmethod
    def delivered(self, micro_batches: int, refusal: Exception | None) -> None:
        """Called when all results are in place. Raises the refusal, or this worker's error."""

    @property
    @abstractmethod
    def timeout(self) -> float | None:
        """Seconds that a backward waits for the outcome; None: forever."""

    # ---- parameters

    def scan(self) -> None:
        """Adopts the present parameters."""
        replaced = self.scan_parameters()
        if replaced is None:
            return
        for parameter in replaced:
            self._gradients.pop(parameter, None)
        self._gradients = {each: self.gradient_of(each) for each in self.reduced()}
        self._all = list(self._gradients.values())
        self._of_optimizer.clear()
        self._not_zero = None

    def gradient_of(self, parameter: P) -> Gradient[P, G]:
        """That of a parameter that is reduced, or will be when this scan is over."""
        known = self._gradients.get(parameter)
        if known is None:
            known = self._gradients[parameter] = Gradient(parameter, self.facts_of(parameter))
        return known

    def owner_of_local(self, parameter: P) -> str | None:
        """The object to call to reduce the parameter's .grad, if it is local; else None."""
        known = self._gradients.get(parameter)
        local = known is not None and known.is_local() and self.grad(parameter) is not None
        return self._owner if local else None

    def finish(self) -> None:
        """Declares that this worker is out of data and contributes to no further round."""
        self.usage.finished = True

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Keeps the gradients of backwards within it local: to accumulate micro-batches, or when
        another model's backward passes through this one. step() is refused within it."""
        with self.usage.no_sync():
            yield

    # ---- the state of the gradients

    def _local(self, gradients: Sequence[Gradient[P, G]]) -> Iterator[Gradient[P, G]]:
        """Those of them that are local, other than the zeros of zero_grad(set_to_none=False). Zeros
        from a backward count."""
        for each, held in zip(gradients, self.held(gradients), strict=True):
            if held is not None and each.state in LOCAL_STATES and self._counts(each, held):
                yield each

    def _counts(self, each: Gradient[P, G], held: G) -> bool:
        return self._is_known_to_count(each, held) or not self.is_zero(held)

    def _is_known_to_count(self, each: Gradient[P, G], held: G) -> bool:
        if each.left is None:
            return False
        mark, counts = each.left
        return counts and self.is_as(held, mark)

    def _was_written(self, each: Gradient[P, G]) -> bool:
        """Whether the gradient was changed since the last backward."""
        if each.left is None:
            return False
        held = self.grad(each.parameter)
        return held is None or not self.is_as(held, each.left[0])

    def _note(self) -> None:
        """Records the gradients after a backward, to detect later changes. One that is far counts
        while it is unchanged, without a look at its numbers."""
        for each, held in zip(self._all, self.held(self._all), strict=True):
            touched, each.touched = each.touched, False
            if held is None or not each.is_local():
                each.left = None
            elif touched:
                each.left = self.mark(held), self.is_far(held) or self.is_zero(held)
            elif each.left is None or not self.is_as(held, each.left[0]):
                each.left = self.mark(held), False

    def _look(self, *, near: bool = False) -> None:
        """Detects what the user has zeroed.

        near: does not wait to find out whether a step was skipped, which is found out later, before
              a call that needs to know it
        """
        results = that_can(self._all, gradient.Event.DISOWN)
        zeroed = [
            each
            for each, held in zip(results, self.held(results), strict=True)
            # Outside a backward, a local gradient may have replaced a result that is aside.
            if held is None or not (each.state is State.RESULT or self._counts(each, held))
        ]
        on_all(zeroed, gradient.Event.DISOWN, self)
        if not near:
            self._settle_doubt()
        if results and not self.usage.in_round:
            self._look_for_skipped(results, near)
        if (self._window.spoiled or self._window.micro_batches > 0) and not self.has_local():
            self._window = Window()

    def _look_for_skipped(self, results: Iterable[Gradient[P, G]], near: bool) -> None:
        """Detects that zero_grad() has dropped all of these results, so that the step is skipped;
        see _look()."""
        kept = that_can(results, gradient.Event.DISOWN)
        if kept and self.last_was_zero():
            return  # The results themselves may have been zeros.
        # Some may be zeros in each step. The one that was not is looked at first.
        last = [] if self._not_zero is None else that_can([self._not_zero], gradient.Event.DISOWN)
        far = []
        for each in (*last, *kept):
            if near and each.is_result() and self.is_in_doubt(each):
                far.append(each)
            elif not each.is_result() or self.holds_something(each):
                self._not_zero = each
                return
        if far:
            self._settle_doubt()
            self._doubt = self.look_later([held for held in self.held(far) if held is not None])
        else:
            self._rounds_left_out = self._rounds

    def _settle_doubt(self) -> None:
        """Finds out what was left open since the last round."""
        are_zeros, self._doubt = self._doubt, None
        if are_zeros is not None and are_zeros():
            self._rounds_left_out = self._rounds

    def last_was_zero(self) -> bool:
        """Whether the result of the last round may have been only zeros."""
        return False

    def is_in_doubt(self, each: Gradient[P, G]) -> bool:
        """Whether holds_something() waits."""
        held = self.grad(each.parameter)
        return held is not None and self.is_far(held)

    def holds_something(self, each: Gradient[P, G]) -> bool:
        """Whether .grad is not zeros."""
        held = self.grad(each.parameter)
        return held is not None and not self.is_zero(held)

    def _disown_what_was_written(self) -> None:
        """Treats what was written after a step as local: it comes from the user, or from a backward
        that Basin has not observed."""
        applied = [each for each in self._all if each.applied is not None]
        for each, held in zip(applied, self.held(applied), strict=True):
            if held is None or not each.is_result():
                continue
            if not self.is_as(held, each.applied) and not self.is_zero(held):
                each.on(gradient.Event.DISOWN, self)

    def _has_round_for(self, optimizers: Iterable[Any]) -> bool:
        """Whether there was a round since the last step of these, or since a skipped step."""
        stepped = max((self._rounds_at_step.get(each, 0) for each in optimizers), default=0)
        return self._rounds > max(stepped, self._rounds_left_out)

    def has_local(self) -> bool:
        """Whether there are local gradients that were not sent."""
        # What is known to count comes first, because the others' numbers may be far.
        if any(
            held is not None and each.state in LOCAL_STATES and self._is_known_to_count(each, held)
            for each, held in zip(self._all, self.held(self._all), strict=True)
        ):
            return True
        return any(True for _ in self._local(self._all))

    def has_result_of(self, parameter: P) -> bool:
        """Whether the parameter's .grad is a result."""
        known = self._gradients.get(parameter)
        return known is not None and known.is_result() and self.grad(parameter) is not None

    def has_results(self) -> bool:
        return any(each.is_result() for each in self._all)

    def has_unapplied(self) -> bool:
        """Whether there are results of rounds before this one that no step has applied."""
        results = [each.aside for each in self._all]
        if not self.usage.in_round:
            if self._rounds in self._rounds_at_step.values():
                return False
            results += self.held(each for each in self._all if each.is_result())
        return any(result is not None and not self.is_zero(result) for result in results)

    def _stage(self, has_local: bool, reduced: bool) -> Stage:
        if self.usage.in_round:
            return Stage.IN_FLIGHT
        if self._window.spoiled:
            return Stage.SPOILED
        if has_local and self._window.micro_batches == 0:
            return Stage.STRAY
        if has_local:
            return Stage.FULL if self._window.is_full(self._spec) else Stage.WINDOW
        return Stage.REDUCED if reduced else Stage.IDLE

    # ---- one backward

    def start_backward(self) -> None:
        """Puts results aside."""
        self.usage.check_may_begin()
        self._leave_backward()  # One that was interrupted may not have been left.
        self.scan()
        self._look(near=True)
        unapplied = self._passes > 1 and self.has_unapplied()
        self._found = self._stage(not unapplied and self.has_local(), unapplied)
        self._put_aside()
        if self._found is Stage.FULL:  # It will be refused, so its gradients are kept separate.
            for each in self._all:
                if self.grad(each.parameter) is not None:
                    each.on(gradient.Event.PUT_APART, self)
        self._failure = None
        self._backward = Backward.BEGUN
        self._sends = self.usage.pushing and self._window.micro_batches + 1 >= self._passes

    def _put_aside(self) -> None:
        on_all(self._all, gradient.Event.PUT_ASIDE, self)

    def _restore(self) -> None:
        """Restores results and windows after a backward, or after a round that did not begin."""
        refused = that_can(self._all, gradient.Event.REFUSED)
        on_all(refused, gradient.Event.REFUSED, self)
        # If a local gradient has replaced a result, it stays aside until the next round.
        aside = that_can(self._all, gradient.Event.BACK)
        back = [each for each, held in zip(aside, self.held(aside), strict=True) if held is None]
        on_all(back, gradient.Event.BACK, self)

    def _copy_what_is_away(self) -> None:
        """Copies the saved gradients: a caller of push_ready() may compute new ones in their
        memory."""
        for each in self._all:
            each.applied = None
            each.aside = None if each.aside is None else self.copy(each.aside)
            each.apart = None if each.apart is None else self.copy(each.apart)

    def hook_of(self, parameter: P) -> Callable[[P], None]:
        """The function to call when a backward has accumulated the parameter's gradient."""
        each = self.gradient_of(parameter)

        def hook(_: P) -> None:
            if not self._collects:
                self._come_first(each)
                return
            self._came.append(each)
            self._came_bytes += each.facts.bytes
            if self._came_bytes >= self._batch_bytes:
                self._send_came()

        return hook

    def _come_first(self, each: Gradient[P, G]) -> None:
        """Called with the first gradient of a backward, and with all if it does not send them."""
        if self._backward is Backward.NONE or not self.is_here():
            return
        if self._backward is Backward.BEGUN:
            if not self._own_hooks:
                self._copy_what_is_away()
            self._backward = self._check_backward()
        each.touched = True
        if self._sends and self._own_hooks and self._failure is None:
            self._push([each])
            self._collects = True

    def _send_came(self) -> None:
        for each in self._came:
            each.touched = True
        if self._came and self.is_here():
            self._push(self._came)
        self._came, self._came_bytes = [], 0

    def _check_backward(self) -> Backward:
        """Checks the backward that has reached this lane. Its errors are raised when it returns."""
        action = Action.BACKWARD if self._passes == 1 else Action.BACKWARD_OF_WINDOWS
        try:
            self.usage.check_takes_part("backward()")
            self.usage.decide(action, self._found, "backward()")
            self._told.check(self._spec, self._window, self._owner)
        except Error as error:
            self._failure = self._failure or error
            self._told = Window()
            refused = actions.DEEDS[action][self._found] is Deed.REFUSE_ANOTHER
            return Backward.BEYOND if refused else Backward.REFUSED
        return Backward.HERE

    def push_ready(self, parameters: Iterable[P]) -> None:
        """Pushes the gradients of these parameters, and skips parameters without one. An error is
        kept for end_hooks()."""
        if self._backward is Backward.NONE or self._failure is not None or not self.is_here():
            return
        try:
            ready = []
            for parameter in parameters:
                known = self._gradients.get(parameter)
                if known is None:
                    raise InvalidArgument(self.not_reduced(parameter))
                if self.grad(parameter) is not None:
                    ready.append(known)
            if ready:
                self._push(ready)
        except Error as error:
            self._failure = self._failure or error

    def not_reduced(self, parameter: P) -> str:
        return f"A parameter is not one of lane {self.name}."

    def end_hooks(self) -> None:
        """Called when the backward has accumulated all gradients: sends those that were not yet.
        Raises the reason of this backward's refusal, or the error of push_ready()."""
        self._send_came()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _count_backward(self) -> None:
        """Adds this backward to the window as one more micro-batch."""
        self._told.micro_batches += 1
        self._window.add(self._told)
        self._told = Window()

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
            self._note()
        self._restore()
        return False

    def withdraw(self, reason: str) -> bool:
        """Like end_backward(), for a failed backward."""
        not_sent = self._came
        came = self._leave_backward()
        if came is Backward.NONE:
            return False  # It failed before this lane knew of it.
        if self.usage.in_round:
            with contextlib.suppress(Exception):
                self._lend(not_sent, self.memory_of(not_sent))  # What has come is in the round.
            self._take_back(Event.FAIL, reason)
            return True
        if came is not Backward.BEGUN:
            # The counts given before this backward do not apply to the next one.
            self._told = Window()
            self._end_failed(came)
            self._note()
        self._restore()
        return False

    def _end_failed(self, came: Backward) -> None:
        """Ends a failed backward that has reached this lane and sent nothing."""
        if self._found is Stage.FULL:  # Its gradients are dropped, and the window is restored.
            for each in self._all:
                each.touched = False
            self._restore()
            return
        if came is Backward.BEYOND and self._window.micro_batches == 0:
            for each in self._all:
                if each.is_local():
                    self.set_grad(each.parameter, None)  # The results are unchanged.
        else:
            self._window.spoiled = True

    # ---- one round

    def _begin(self) -> None:
        if self.usage.in_round:
            return
        self.before_begin()
        if self._backward is not Backward.NONE:
            self._count_backward()
        self.begin(self._window.counts().check_contributed())
        self.usage.on(Event.BEGIN)
        self._sent, self._window = self._window, Window()
        self._refusal = None
        self.after_begin()

    def _push(self, gradients: list[Gradient[P, G]]) -> None:
        memory = self.memory_of(gradients)
        self._begin()
        self._lend(gradients, memory)
        self.send(gradients)

    def _lend(self, gradients: list[Gradient[P, G]], memory: list[G]) -> None:
        """Marks them as sent. Called before they are sent, so that no interruption leaves a
        gradient that the library reads and that is not marked."""
        for each, lent in zip(gradients, memory, strict=True):
            if each.sent is not None:
                raise Unsupported(
                    f"The gradient of parameter {self.name_of(each.parameter)} was accumulated "
                    "twice in one backward (reentrant checkpointing does that). Use "
                    "checkpoint(..., use_reentrant=False), or run the backward under no_sync() and "
                    "another one after it."
                )
            each.sent = lent
        on_all(gradients, gradient.Event.SEND, self)

    def _complete(self) -> None:
        """Sends the gradients that were not pushed yet, and commits. An error is raised only after
        the outcome, because until then the others wait for this worker."""
        try:
            self._begin()
            rest = [
                each
                for each, held in zip(self._all, self.held(self._all), strict=True)
                if held is not None and each.state in LOCAL_STATES
            ]
            if rest:
                self._push(rest)
            self._refusal = self.commit()
            self.usage.on(Event.COMMIT)
        except BaseException as error:
            if not self.usage.in_round:
                self._restore()
                raise
            self._take_back(Event.WITHDRAW, f"it could not be sent: {error!r}")
            if not isinstance(error, Exception):
                raise
            self._refusal = error

    def _take_back(self, event: Event, reason: str) -> None:
        with contextlib.suppress(Error):  # The outcome will have the error.
            self.withdraw_round(reason)
        self.usage.on(event)

    def settle(self) -> None:
        """Waits for the outcome and puts the results in place."""
        self._settle(self.timeout)

    def _settle(self, timeout: float | None) -> None:
        gradients = self._all
        try:
            self.outcome(timeout)
        except (OutcomeUnknown, Paused):
            self.hide_sent()
            raise
        except Error as error:
            # No worker applies this round. The gradients are unchanged.
            cause = self._refusal if self.usage.phase is Phase.WITHDRAWN else None
            self._window = self._sent
            self._window.spoiled = self.usage.phase is Phase.FAILED
            self.usage.on(Event.END)
            for each in gradients:
                each.touched = each.touched or each.is_sent()
                each.on(gradient.Event.ABORT, self)
                each.sent = None
            self._note()
            self._restore()
            if cause is not None:
                raise cause from error
            raise
        except BaseException:  # Ctrl-C, for example.
            self.hide_sent()
            raise
        self.usage.on(Event.END)
        delivered = self.deliver(gradients)
        on_all(delivered, gradient.Event.DELIVER, self)
        for each in delivered:
            each.aside = None
        if len(delivered) < len(gradients):
            missed = set(gradients).difference(delivered)
            on_all(missed, gradient.Event.MISS, self)
        for each in gradients:
            each.sent = each.left = each.applied = None
            each.touched = False
        self._rounds += 1
        self._doubt = None
        self.delivered(self._sent.micro_batches, self._refusal)

    def hide_sent(self) -> None:
        """Removes what was sent from .grad until there is an outcome: the library still reads it,
        so nothing may write to it."""
        for each in self._all:
            if each.is_sent():
                self.set_grad(each.parameter, None)

    def _reduce(self) -> None:
        """Runs a round of the local gradients, if any, outside a backward."""
        self._put_aside()
        self._complete()
        self.settle()

    # ---- calls of the user

    def wait(self, timeout: float | None) -> None:
        self.usage.check_takes_part("wait_round()")
        self.usage.decide(Action.WAIT, self._stage(False, False), "wait_round()")
        self._settle(timeout)

    def retry_round(self) -> None:
        """Sends the gradients of an aborted round as the next round."""
        self.usage.check_takes_part("retry_round()")
        if not self.usage.in_round:
            self._look()
        stage = self._stage(self.has_local(), False)
        self.usage.decide(Action.RETRY, stage, "retry_round()")
        self._reduce()

    def sync_gradients(self) -> None:
        """Sends local gradients without a backward. If there are none, and there was no round since
        the last step or skipped step, it takes part without a contribution."""
        self.usage.check_takes_part("sync_gradients()")
        self.usage.check_settled("sync_gradients()")
        self.scan()
        self._look()
        self._disown_what_was_written()
        stage = self._stage(self.has_local(), self._has_round_for(self._rounds_at_step))
        if self.usage.decide(Action.SYNC, stage, "sync_gradients()") is Deed.REDUCE:
            self._reduce()

    def tell(self, counts: Counts) -> None:
        """Sets the counts of the next backward."""
        self.usage.check_takes_part("contribute()")
        told = counts.check_contributed()
        self._told.tell(told.samples, told.tokens)

    def reduce_for(self, optimizer: Any, call: str) -> None:
        """Reduces the rest of a window, for a `call` that needs the result."""
        self.usage.check_takes_part(call)
        self.usage.check_settled(call)
        self.scan()
        self._look()
        self._disown_what_was_written()
        action = Action.STEP if self._passes == 1 else Action.STEP_OF_WINDOWS
        short = self._passes > 1 and self._window.micro_batches > 0
        local = list(self._local(self._all if short else self._reduced_of(optimizer)))
        stage = self._stage(bool(local), self._has_round_for([optimizer]))
        deed = self.usage.decide(action, stage, call)
        self.check_optimizer(optimizer, call)
        if deed is Deed.REFUSE_LOCAL:
            self.usage.refuse_local(call, self.name_of(local[0].parameter))
        if deed is Deed.REDUCE_SHORT:
            self._check_not_written(call)
        if deed in (Deed.REDUCE, Deed.REDUCE_SHORT):
            self._reduce()

    def _reduced_of(self, optimizer: Any) -> list[Gradient[P, G]]:
        parameters = list(self.parameters_of(optimizer))
        before, known = self._of_optimizer.get(optimizer, ([], []))
        if len(parameters) != len(before) or not all(map(operator.is_, parameters, before)):
            of_each = map(self._gradients.get, parameters)
            known = [each for each in of_each if each is not None]
            self._of_optimizer[optimizer] = parameters, known
        return known

    def _check_not_written(self, call: str) -> None:
        for each, held in zip(self._all, self.held(self._all), strict=True):
            # None or zeros mean that it was zeroed, not written to.
            if held is not None and self._was_written(each) and not self.is_zero(held):
                self.usage.refuse_written(call, self.name_of(each.parameter))

    def after_step(self, optimizer: Any) -> None:
        self._rounds_at_step[optimizer] = self._rounds
        mine = self._reduced_of(optimizer)
        for each, held in zip(mine, self.held(mine), strict=True):
            if held is not None and each.state is State.RESULT:
                each.applied = self.mark(held)
        self.usage.steps += 1

    def start_again(self) -> None:
        """Drops all gradients, because this worker was evicted and the others have continued."""
        for parameter in self.reduced():
            self.set_grad(parameter, None)
        for each in self._all:
            each.forget()
        if self.usage.in_round:
            self.usage.on(Event.END)
        self._leave_backward()
        self._told, self._window = Window(), Window()
        self._refusal = self._failure = self._doubt = None
