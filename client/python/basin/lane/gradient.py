# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The state of one parameter's .grad, with its transitions in the table below. An event without an
entry for the present state is an error of this package.

At the start of an outermost backward, a result is put aside, so that the backward computes a
separate gradient. When the round has an outcome, the earlier result is added to the new one. Two
backwards before a step therefore give the sum of two results, for every op and after any change of
the members.
"""

import enum
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

P = TypeVar("P")
G = TypeVar("G")


class State(enum.Enum):
    # States are looked up for each gradient of each step, and the hash of enum is slow.
    __hash__ = object.__hash__

    LOCAL = "None, or a local gradient that was not sent"
    SENT = "in the round in flight; the library may read its memory until the outcome"
    RESULT = "the result of a round"
    LOCAL_ASIDE = "like LOCAL, and a result is aside"
    SENT_ASIDE = "like SENT, and a result is aside"
    LOCAL_APART = "the gradient of a backward being refused; that of a full window is apart"
    LOCAL_APART_ASIDE = "like LOCAL_APART, and a result is aside"


LOCAL_STATES = frozenset({State.LOCAL, State.LOCAL_ASIDE})
SENT_STATES = frozenset({State.SENT, State.SENT_ASIDE})


class Event(enum.Enum):
    __hash__ = object.__hash__  # For the same reason as in State.

    PUT_ASIDE = "a backward, or a round without one, begins"
    BACK = "no gradient has replaced the result that is aside"
    PUT_APART = "a backward begins that will be refused"
    REFUSED = "the refused backward is over"
    SEND = "the gradient was pushed"
    DELIVER = "the round has a result for it"
    MISS = "the round has no result for it"
    ABORT = "the round has no result at all"
    DISOWN = "the user has zeroed the result, or replaced it by another gradient"


class Grads(Protocol):
    """Where gradients are stored."""

    def grad(self, parameter: Any) -> Any: ...

    def set_grad(self, parameter: Any, gradient: Any) -> None: ...


class Gradient(Generic[P, G]):
    """The gradient of one parameter.

    bytes:   the size of the gradient
    aside:   a result that is not in .grad
    apart:   a local gradient that is not in .grad
    sent:    memory that the library reads
    home:    the .grad of which `sent` is a copy, if it is one; its result goes there
    deferred:
             a gradient of an earlier round, which was too late, for the next one; see deferred.py
    added:   whether that of an earlier round was added to what is `sent`
    left:    the gradient after the last backward, and whether it counts as local, zeros or not,
             while it is that one; None: it is not from an observed backward
    applied: the result after a step; None: no step since the round
    """

    __slots__ = (
        "added",
        "apart",
        "applied",
        "aside",
        "bytes",
        "deferred",
        "home",
        "left",
        "parameter",
        "sent",
        "state",
        "touched",
    )

    def __init__(self, parameter: P, bytes: int) -> None:
        self.parameter = parameter
        self.bytes = bytes
        self.forget()

    def forget(self) -> None:
        """Drops all that is known but the parameter."""
        self.state = State.LOCAL
        self.aside: G | None = None
        self.apart: G | None = None
        self.sent: G | None = None
        self.home: G | None = None
        self.deferred: G | None = None
        self.added = False
        self.left: tuple[object, bool] | None = None
        self.applied: object = None
        self.touched = False  # Whether the backward has reached it.

    def is_result(self) -> bool:
        return self.state is State.RESULT

    def is_local(self) -> bool:
        return self.state in LOCAL_STATES

    def is_sent(self) -> bool:
        return self.state in SENT_STATES

    def can(self, event: Event) -> bool:
        return self.state in _ROWS[event]

    def on(self, event: Event, grads: Grads) -> None:
        row = _ROWS[event].get(self.state)
        if row is None:
            raise AssertionError(f"a gradient in state {self.state.name} cannot {event.name}")
        self.state, effect = row
        if effect is not None:
            effect(self, grads)


def that_can(gradients: Iterable[Gradient[P, G]], event: Event) -> list[Gradient[P, G]]:
    rows = _ROWS[event]
    return [each for each in gradients if each.state in rows]


def on_all(gradients: Iterable[Gradient[P, G]], event: Event, grads: Grads) -> None:
    """The event happens to all of these."""
    rows = _ROWS[event]
    known: State | None = None  # Most are in the same state.
    after, effect = State.LOCAL, None
    for each in gradients:
        state = each.state
        if state is not known:
            row = rows.get(state)
            if row is None:
                each.on(event, grads)  # Raises.
                continue
            known = state
            after, effect = row
        each.state = after
        if effect is not None:
            effect(each, grads)


def _remove(gradient: Gradient[Any, Any], grads: Grads) -> Any:
    held = grads.grad(gradient.parameter)
    grads.set_grad(gradient.parameter, None)
    return held


def _lay_aside(gradient: Gradient[Any, Any], grads: Grads) -> None:
    gradient.aside = _remove(gradient, grads)


def _take_back(gradient: Gradient[Any, Any], grads: Grads) -> None:
    grads.set_grad(gradient.parameter, gradient.aside)
    gradient.aside = None


def _lay_apart(gradient: Gradient[Any, Any], grads: Grads) -> None:
    gradient.apart = _remove(gradient, grads)


def _drop_refused(gradient: Gradient[Any, Any], grads: Grads) -> None:
    grads.set_grad(gradient.parameter, gradient.apart)
    gradient.apart = None


def _local_again(gradient: Gradient[Any, Any], grads: Grads) -> None:
    sent = gradient.sent if gradient.home is None else gradient.home
    gradient.sent = gradient.home = None
    if grads.grad(gradient.parameter) is None:  # It was removed while the outcome was unknown.
        grads.set_grad(gradient.parameter, sent)


def _clear(gradient: Gradient[Any, Any], grads: Grads) -> None:
    grads.set_grad(gradient.parameter, None)
    gradient.sent = gradient.home = None


def _drop_result(gradient: Gradient[Any, Any], grads: Grads) -> None:
    gradient.aside = gradient.applied = None


Effect = Callable[[Gradient[Any, Any], Grads], None]

# On DELIVER the rounds have written .grad: the new result plus the one that is aside.
TRANSITIONS: dict[tuple[State, Event], tuple[State, Effect | None]] = {
    # from                            event             to                     effect
    (State.LOCAL, Event.PUT_ASIDE): (State.LOCAL, None),
    (State.LOCAL, Event.PUT_APART): (State.LOCAL_APART, _lay_apart),
    (State.LOCAL, Event.SEND): (State.SENT, None),
    (State.LOCAL, Event.DELIVER): (State.RESULT, None),
    (State.LOCAL, Event.MISS): (State.LOCAL, _clear),
    (State.LOCAL, Event.ABORT): (State.LOCAL, None),
    (State.SENT, Event.DELIVER): (State.RESULT, None),
    (State.SENT, Event.MISS): (State.LOCAL, _clear),
    (State.SENT, Event.ABORT): (State.LOCAL, _local_again),
    (State.RESULT, Event.PUT_ASIDE): (State.LOCAL_ASIDE, _lay_aside),
    (State.RESULT, Event.DISOWN): (State.LOCAL, _drop_result),
    (State.LOCAL_ASIDE, Event.PUT_ASIDE): (State.LOCAL_ASIDE, None),
    (State.LOCAL_ASIDE, Event.BACK): (State.RESULT, _take_back),
    (State.LOCAL_ASIDE, Event.PUT_APART): (State.LOCAL_APART_ASIDE, _lay_apart),
    (State.LOCAL_ASIDE, Event.SEND): (State.SENT_ASIDE, None),
    (State.LOCAL_ASIDE, Event.DELIVER): (State.RESULT, None),
    (State.LOCAL_ASIDE, Event.MISS): (State.RESULT, _take_back),
    (State.LOCAL_ASIDE, Event.ABORT): (State.LOCAL_ASIDE, None),
    (State.LOCAL_ASIDE, Event.DISOWN): (State.LOCAL, _drop_result),
    (State.SENT_ASIDE, Event.DELIVER): (State.RESULT, None),
    (State.SENT_ASIDE, Event.MISS): (State.RESULT, _take_back),
    (State.SENT_ASIDE, Event.ABORT): (State.LOCAL_ASIDE, _local_again),
    (State.LOCAL_APART, Event.REFUSED): (State.LOCAL, _drop_refused),
    (State.LOCAL_APART_ASIDE, Event.REFUSED): (State.LOCAL_ASIDE, _drop_refused),
}

# The same by event and then by state, which is looked up faster.
_ROWS = {
    event: {state: row for (state, of), row in TRANSITIONS.items() if of is event}
    for event in Event
}
