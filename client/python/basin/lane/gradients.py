# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""All gradients of a lane: which of them are local, and what a user has done to them since the lane
last looked. A step that zeroes all results without applying them is skipped, and the next step
begins another round."""

import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol

from basin.lane.deferred import Shares
from basin.lane.gradient import LOCAL_STATES, Event, G, Gradient, P, State, on_all, that_can
from basin.lane.usage import Usage


class Store(Protocol[P, G]):
    """The parameters of a lane, and their gradients, as a framework has them.

    own_hooks: whether the lane pushes each gradient when it is accumulated; otherwise the caller
               calls push_ready()
    """

    own_hooks: bool

    # ---- parameters

    def connect(
        self, hook_of: Callable[[Any], Callable[[P], None]], reached: Callable[[P], None]
    ) -> None:
        """A backward calls hook_of(gradient) when it has accumulated the gradient, and `reached`
        when it has reached a parameter that a scan has refused."""

    @property
    def gradients(self) -> Mapping[P, Gradient[P, G]]:
        """Those of the parameters that are reduced, as of the last scan."""

    def scan(self) -> bool:
        """Adopts the present parameters. Returns whether anything has changed. REQUIRES: no round
        is in flight."""

    def name_of(self, parameter: P) -> str: ...

    def not_reduced(self, parameter: P) -> str:
        """An error for a parameter that is not one of the lane."""

    def parameters_of(self, optimizer: Any) -> Iterable[P]: ...

    def check_optimizer(self, optimizer: Any, call: str) -> None:
        """Raises an error if the optimizer of this `call` has parameters that the lane lacks."""

    # ---- .grad

    def grad(self, parameter: P) -> G | None: ...

    def set_grad(self, parameter: P, gradient: G | None) -> None:
        """Sets .grad. The parameter may have been converted since the gradient was computed."""

    def held(self, gradients: Iterable[Any]) -> list[G | None]:
        """The .grad of each."""

    def squared_norm(self, parameter: P) -> float | None:
        """That of .grad, if it is known without a look at the numbers."""

    def memory_of(self, gradients: Sequence[Any]) -> list[G]:
        """Returns the gradients in a form that can be sent."""

    # ---- what is deferred

    def computed(self, gradients: Sequence[Any]) -> list[G]:
        """Copies of what this worker has computed for each of these in the round in flight."""

    def can_add(self, gradients: Sequence[Any]) -> bool:
        """Whether what is deferred of each is of its parameter as it is now."""

    def add_deferred(self, gradients: Sequence[Any], memory: list[G], shares: Shares) -> list[G]:
        """The `memory` that can be sent of each, with what is deferred of it: in memory of its own
        where they differ."""

    def scale_deferred(self, gradients: Sequence[Any], shares: Shares) -> list[G]:
        """What is deferred of each, which can be sent for it."""

    # ---- the numbers of a gradient

    def copy(self, gradient: G) -> G: ...

    def is_zero(self, gradient: G) -> bool: ...

    def is_far(self, gradient: G) -> bool:
        """Whether is_zero() waits for a device, behind all that it was given. A backward does
        without it then."""

    def look_later(self, gradients: Sequence[G]) -> Callable[[], bool]:
        """Like is_zero() of all of these as they are now, for gradients that are far: only the call
        of what is returned waits."""

    def mark(self, gradient: G) -> object:
        """Returns a mark of the present gradient, for is_as()."""

    def is_as(self, gradient: G, mark: Any) -> bool:
        """Whether it is the marked gradient, without a detected write since then."""


class Gradients(Generic[P, G]):
    """Those of the parameters that a lane reduces.

    all: in the order of their registration
    """

    def __init__(self, store: Store[P, G], usage: Usage) -> None:
        self._store = store
        self._usage = usage
        self._of_parameter: dict[P, Gradient[P, G]] = {}
        self.all: list[Gradient[P, G]] = []
        # By optimizer: its parameters at its last action, and those of its gradients in `all`.
        self._of_optimizer: weakref.WeakKeyDictionary[Any, tuple[list[P], list[Gradient[P, G]]]] = (
            weakref.WeakKeyDictionary()
        )
        self._not_zero: Gradient[P, G] | None = None  # The last result seen that was not zeros.
        self._rounds = 0  # The number of rounds with results.
        self._last_was_zero = True  # The result of the last round may have been only zeros.
        # By optimizer: the number of rounds at its last step.
        self._rounds_at_step: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._rounds_left_out = 0  # The number of rounds when results were last dropped.
        # Whether the results of the last round were dropped, which nobody had to know yet.
        self._doubt: Callable[[], bool] | None = None

    def scan(self) -> None:
        """Adopts the present parameters."""
        if not self._store.scan():
            return
        self._of_parameter = dict(self._store.gradients)
        self.all = list(self._of_parameter.values())
        self._of_optimizer.clear()
        self._not_zero = None

    def of(self, parameter: P) -> Gradient[P, G] | None:
        return self._of_parameter.get(parameter)

    def held(self) -> Iterator[tuple[Gradient[P, G], G | None]]:
        """All, with their .grad."""
        return zip(self.all, self._store.held(self.all), strict=True)

    def of_optimizer(self, optimizer: Any) -> list[Gradient[P, G]]:
        parameters = list(self._store.parameters_of(optimizer))
        before, known = self._of_optimizer.get(optimizer, ([], []))
        if len(parameters) != len(before) or not all(map(operator.is_, parameters, before)):
            of_each = map(self._of_parameter.get, parameters)
            known = [each for each in of_each if each is not None]
            self._of_optimizer[optimizer] = parameters, known
        return known

    # ---- which are local

    def local(self, gradients: Sequence[Gradient[P, G]]) -> Iterator[Gradient[P, G]]:
        """Those of them that are local, other than the zeros of zero_grad(set_to_none=False). Zeros
        from a backward count."""
        for each, held in zip(gradients, self._store.held(gradients), strict=True):
            if held is not None and each.state in LOCAL_STATES and self._counts(each, held):
                yield each

    def _counts(self, each: Gradient[P, G], held: G) -> bool:
        return self._is_known_to_count(each, held) or not self._store.is_zero(held)

    def _is_known_to_count(self, each: Gradient[P, G], held: G) -> bool:
        if each.left is None:
            return False
        mark, counts = each.left
        return counts and self._store.is_as(held, mark)

    def was_written(self, each: Gradient[P, G]) -> bool:
        """Whether the gradient was changed since the last backward."""
        if each.left is None:
            return False
        held = self._store.grad(each.parameter)
        return held is None or not self._store.is_as(held, each.left[0])

    def note(self) -> None:
        """Records the gradients after a backward, to detect later changes. One that is far counts
        while it is unchanged, without a look at its numbers."""
        for each, held in self.held():
            touched, each.touched = each.touched, False
            if held is None or not each.is_local():
                each.left = None
            elif touched:
                each.left = (
                    self._store.mark(held),
                    self._store.is_far(held) or self._store.is_zero(held),
                )
            elif each.left is None or not self._store.is_as(held, each.left[0]):
                each.left = self._store.mark(held), False

    def has_local(self) -> bool:
        """Whether there are local gradients that were not sent."""
        # What is known to count comes first, because the others' numbers may be far.
        if any(
            held is not None and each.state in LOCAL_STATES and self._is_known_to_count(each, held)
            for each, held in self.held()
        ):
            return True
        return any(True for _ in self.local(self.all))

    def has_results(self) -> bool:
        return any(each.is_result() for each in self.all)

    def has_unapplied(self) -> bool:
        """Whether there are results of rounds before this one that no step has applied."""
        results = [each.aside for each in self.all]
        if not self._usage.in_round:
            if self._rounds in self._rounds_at_step.values():
                return False
            results += self._store.held(each for each in self.all if each.is_result())
        return any(result is not None and not self._store.is_zero(result) for result in results)

    # ---- what the user has done

    def look(self, *, near: bool = False) -> None:
        """Detects what the user has zeroed.

        near: does not wait to find out whether a step was skipped, which is found out later, before
              a call that needs to know it
        """
        results = that_can(self.all, Event.DISOWN)
        zeroed = [
            each
            for each, held in zip(results, self._store.held(results), strict=True)
            # Outside a backward, a local gradient may have replaced a result that is aside.
            if held is None or not (each.state is State.RESULT or self._counts(each, held))
        ]
        on_all(zeroed, Event.DISOWN, self._store)
        if not near:
            self._resolve_doubt()
        if results and not self._usage.in_round:
            self._look_for_skipped(results, near)

    def _look_for_skipped(self, results: Iterable[Gradient[P, G]], near: bool) -> None:
        """Detects that zero_grad() has dropped all of these results, so that the step is skipped;
        see look()."""
        kept = that_can(results, Event.DISOWN)
        if kept and self._last_was_zero:
            return  # The results themselves may have been zeros.
        # Some may be zeros in each step. The one that was not is looked at first.
        last = [] if self._not_zero is None else that_can([self._not_zero], Event.DISOWN)
        far = []
        for each in (*last, *kept):
            if near and each.is_result() and self._is_in_doubt(each):
                far.append(each)
            elif not each.is_result() or self._holds_something(each):
                self._not_zero = each
                return
        if far:
            self._resolve_doubt()
            self._doubt = self._store.look_later(
                [held for held in self._store.held(far) if held is not None]
            )
        else:
            self._rounds_left_out = self._rounds

    def _resolve_doubt(self) -> None:
        """Finds out what was left open since the last round."""
        are_zeros, self._doubt = self._doubt, None
        if are_zeros is not None and are_zeros():
            self._rounds_left_out = self._rounds

    def _is_in_doubt(self, each: Gradient[P, G]) -> bool:
        """Whether _holds_something() waits."""
        held = self._store.grad(each.parameter)
        known = self._store.squared_norm(each.parameter) is not None
        return held is not None and not known and self._store.is_far(held)

    def _holds_something(self, each: Gradient[P, G]) -> bool:
        """Whether .grad is not zeros."""
        squared_norm = self._store.squared_norm(each.parameter)
        if squared_norm is not None:
            return squared_norm != 0.0
        held = self._store.grad(each.parameter)
        return held is not None and not self._store.is_zero(held)

    def disown_what_was_written(self) -> None:
        """Treats what was written after a step as local: it comes from the user, or from a backward
        that Basin has not observed."""
        applied = [each for each in self.all if each.applied is not None]
        for each, held in zip(applied, self._store.held(applied), strict=True):
            if held is None or not each.is_result():
                continue
            if not self._store.is_as(held, each.applied) and not self._store.is_zero(held):
                each.on(Event.DISOWN, self._store)

    def has_round_for(self, optimizers: Iterable[Any] | None = None) -> bool:
        """Whether there was a round since the last step of these, or of any, or since a skipped
        step."""
        if optimizers is None:
            optimizers = self._rounds_at_step
        stepped = max((self._rounds_at_step.get(each, 0) for each in optimizers), default=0)
        return self._rounds > max(stepped, self._rounds_left_out)

    def has_delivered(self, may_be_zero: bool) -> None:
        """A round has results, which are in place. They may all be zeros."""
        self._rounds += 1
        self._last_was_zero = may_be_zero
        self._doubt = None

    def has_stepped(self, optimizer: Any) -> None:
        """The optimizer has applied the results."""
        self._rounds_at_step[optimizer] = self._rounds
        mine = self.of_optimizer(optimizer)
        for each, held in zip(mine, self._store.held(mine), strict=True):
            if held is not None and each.state is State.RESULT:
                each.applied = self._store.mark(held)

    # ---- before and after a backward, or a round

    def put_aside(self) -> None:
        on_all(self.all, Event.PUT_ASIDE, self._store)

    def restore(self) -> None:
        """Restores results and windows after a backward, or after a round that did not begin."""
        refused = that_can(self.all, Event.REFUSED)
        on_all(refused, Event.REFUSED, self._store)
        # If a local gradient has replaced a result, it stays aside until the next round.
        aside = that_can(self.all, Event.BACK)
        back = [
            each for each, held in zip(aside, self._store.held(aside), strict=True) if held is None
        ]
        on_all(back, Event.BACK, self._store)

    def copy_what_is_away(self) -> None:
        """Copies the saved gradients: a caller of push_ready() may compute new ones in their
        memory."""
        for each in self.all:
            each.applied = None
            each.aside = None if each.aside is None else self._store.copy(each.aside)
            each.apart = None if each.apart is None else self._store.copy(each.apart)

    def hide_sent(self) -> None:
        """Removes what was sent from .grad until there is an outcome: the library still reads it,
        so nothing may write to it."""
        for each in self.all:
            if each.is_sent():
                self._store.set_grad(each.parameter, None)

    def forget(self) -> None:
        for each in self.all:
            self._store.set_grad(each.parameter, None)
            each.forget()
        self._doubt = None
