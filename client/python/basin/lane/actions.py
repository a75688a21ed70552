# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The table of what each user action does for each state of the gradients. The lane looks up the
entry and carries it out."""

import enum


class Action(enum.Enum):
    """An action of the user."""

    BACKWARD = "a backward reaches a parameter of the lane"
    BACKWARD_OF_PASSES = "like BACKWARD, with backward_passes_per_step"
    STEP = "step(), or a call that needs its result, such as unscale_() of a scaler"
    STEP_OF_PASSES = "like STEP, with backward_passes_per_step"
    SYNC = "sync_gradients()"
    RETRY = "retry_round()"
    WAIT = "wait_round()"


class Situation(enum.Enum):
    """The state of the gradients when an action happens."""

    IDLE = "no round since the last step or skipped step, and no local gradients"
    ACCUMULATED = "local, from observed backwards"
    FULL = "like ACCUMULATED, and no other backward may be added"
    STRAY = "local, but not from an observed backward"
    SPOILED = "local, with a part of a failed backward"
    REDUCED = "the result of a round that no step has applied"
    IN_FLIGHT = "in a round without an outcome"


class Deed(enum.Enum):
    """The effect of an action, or the reason of its refusal."""

    # A result that no step has applied is aside meanwhile, and is added to the next one.
    ACCUMULATE = "the backward adds to the window"
    USE = ".grad is used unchanged"
    REDUCE = "a round of the local gradients, if any"
    REDUCE_SHORT = "a round of a window, if it was not written to"
    WAIT = "waits for the outcome"
    REFUSE_IN_FLIGHT = "the round must have an outcome first"
    REFUSE_IDLE = "there is no round to wait for"
    REFUSE_RETRY = "there is nothing to send again"
    REFUSE_SPOILED = "a partial gradient is never sent"
    REFUSE_LOCAL = "a step applies only results"
    REFUSE_FULL = "a sum of means is not a mean"
    REFUSE_ANOTHER = "the other workers have no such window"


# The effect of each action in each state of the gradients.
_BACKWARD = {
    Situation.IDLE: Deed.ACCUMULATE,
    Situation.ACCUMULATED: Deed.ACCUMULATE,
    Situation.FULL: Deed.REFUSE_FULL,
    Situation.STRAY: Deed.ACCUMULATE,
    Situation.SPOILED: Deed.REFUSE_SPOILED,
    Situation.REDUCED: Deed.ACCUMULATE,
    Situation.IN_FLIGHT: Deed.REFUSE_IN_FLIGHT,
}
_STEP = {
    Situation.IDLE: Deed.REDUCE,
    Situation.ACCUMULATED: Deed.REFUSE_LOCAL,
    Situation.FULL: Deed.REFUSE_LOCAL,
    Situation.STRAY: Deed.REFUSE_LOCAL,
    Situation.SPOILED: Deed.REFUSE_SPOILED,
    Situation.REDUCED: Deed.USE,
    Situation.IN_FLIGHT: Deed.REFUSE_IN_FLIGHT,
}
DEEDS: dict[Action, dict[Situation, Deed]] = {
    Action.BACKWARD: _BACKWARD,
    Action.BACKWARD_OF_PASSES: {**_BACKWARD, Situation.REDUCED: Deed.REFUSE_ANOTHER},
    Action.STEP: _STEP,
    Action.STEP_OF_PASSES: {**_STEP, Situation.ACCUMULATED: Deed.REDUCE_SHORT},
    Action.SYNC: {
        Situation.IDLE: Deed.REDUCE,
        Situation.ACCUMULATED: Deed.REDUCE,
        Situation.FULL: Deed.REDUCE,
        Situation.STRAY: Deed.REDUCE,
        Situation.SPOILED: Deed.REFUSE_SPOILED,
        Situation.REDUCED: Deed.USE,
        Situation.IN_FLIGHT: Deed.REFUSE_IN_FLIGHT,
    },
    Action.RETRY: {
        Situation.IDLE: Deed.REFUSE_RETRY,
        Situation.ACCUMULATED: Deed.REDUCE,
        Situation.FULL: Deed.REDUCE,
        Situation.STRAY: Deed.REDUCE,
        Situation.SPOILED: Deed.REFUSE_SPOILED,
        Situation.REDUCED: Deed.REFUSE_RETRY,
        Situation.IN_FLIGHT: Deed.REFUSE_RETRY,
    },
    Action.WAIT: {
        situation: Deed.WAIT if situation is Situation.IN_FLIGHT else Deed.REFUSE_IDLE
        for situation in Situation
    },
}
