# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The phases of a lane's round from this worker's view, with their transitions as a table."""

import enum


class Phase(enum.Enum):
    """The phase of a lane's round."""

    NONE = "there is no round"
    OPEN = "it has begun; gradients are pushed"
    COMMITTED = "all gradients were pushed; it waits for the outcome"
    WITHDRAWN = "it continues without this worker's gradients, which are complete"
    FAILED = "it continues without this worker's gradients, which are partial"


class Event(enum.Enum):
    BEGIN = "begin"
    COMMIT = "commit"
    WITHDRAW = "the contribution could not be sent"
    FAIL = "the backward has failed"
    END = "any outcome"


TRANSITIONS: dict[tuple[Phase, Event], Phase] = {
    (Phase.NONE, Event.BEGIN): Phase.OPEN,
    (Phase.OPEN, Event.COMMIT): Phase.COMMITTED,
    (Phase.OPEN, Event.WITHDRAW): Phase.WITHDRAWN,
    (Phase.OPEN, Event.FAIL): Phase.FAILED,
    (Phase.OPEN, Event.END): Phase.NONE,
    (Phase.COMMITTED, Event.END): Phase.NONE,
    (Phase.WITHDRAWN, Event.END): Phase.NONE,
    (Phase.FAILED, Event.END): Phase.NONE,
}


class Backward(enum.Enum):
    """The outermost backward of this process from a lane's view."""

    NONE = "there is no backward"
    BEGUN = "it has not reached a parameter of the lane"
    HERE = "it has reached one"
    REFUSED = "it has reached one, and is refused; an existing full window is apart"
    BEYOND = "it has reached one, and is refused; the previous .grad is aside"
