# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Where the round of a lane stands for this worker, as a table."""

import enum


class Phase(enum.Enum):
    """The round of a lane."""

    NONE = "there is none"
    OPEN = "it has begun; gradients are pushed"
    COMMITTED = "all were pushed; the outcome is awaited"
    WITHDRAWN = "it goes on without this worker's gradients, which are whole"
    FAILED = "it goes on without this worker's gradients, which hold a part of a backward"


class Event(enum.Enum):
    BEGIN = "begin"
    COMMIT = "commit"
    WITHDRAW = "the contribution could not be made"
    FAIL = "the backward has failed"
    END = "the outcome, whatever it is"


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
    """The outermost backward of this process, as a lane sees it."""

    NONE = "there is none"
    BEGUN = "it has not come to a parameter of the lane"
    HERE = "it has"
    REFUSED = "it has, and is refused; the full window that it found is apart, if there was one"
    BEYOND = "it has, and is refused: what was in .grad is aside"
