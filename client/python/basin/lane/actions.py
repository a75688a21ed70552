# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What each action of the user does with the gradients that it finds, as a table: the lane looks up
what to do, and does it."""

import enum


class Action(enum.Enum):
    """What the user does."""

    BACKWARD = "a backward comes to a parameter of the lane"
    BACKWARD_OF_WINDOWS = "as BACKWARD, with backward_passes_per_step"
    STEP = "step(), or what needs the result for it: unscale_() of a scaler, say"
    STEP_OF_WINDOWS = "as STEP, with backward_passes_per_step"
    SYNC = "sync_gradients()"
    RETRY = "retry_round()"
    WAIT = "wait_round()"


class Stage(enum.Enum):
    """The gradients that an action finds."""

    IDLE = "no round since the last step, or since one was left out, and nothing of this worker"
    WINDOW = "local, of backwards that were seen"
    FULL = "as WINDOW, and it takes no other backward"
    STRAY = "local, which no backward that was seen has made"
    SPOILED = "local, with a part of a backward that has failed"
    REDUCED = "the result of a round, which no step has applied"
    IN_FLIGHT = "in a round that has no outcome yet"


class Deed(enum.Enum):
    """What an action comes to."""

    ACCUMULATE = "the backward adds to the window"
    USE = "what is in .grad is used as it is"
    REDUCE = "a round of what there is, maybe of nothing"
    REDUCE_SHORT = "a round of a window that nobody has written to"
    WAIT = "waits for the outcome"
    REFUSE_IN_FLIGHT = "the outcome comes first"
    REFUSE_IDLE = "there is no round to wait for"
    REFUSE_RETRY = "there is nothing to send again"
    REFUSE_SPOILED = "half a gradient is never sent"
    REFUSE_LOCAL = "a step applies results alone"
    REFUSE_FULL = "a sum of means is no mean"
    REFUSE_ANOTHER = "the other workers have no such window"


# What each action does with what it finds.
_BACKWARD = {
    Stage.IDLE: Deed.ACCUMULATE,
    Stage.WINDOW: Deed.ACCUMULATE,
    Stage.FULL: Deed.REFUSE_FULL,
    Stage.STRAY: Deed.ACCUMULATE,
    Stage.SPOILED: Deed.REFUSE_SPOILED,
    Stage.REDUCED: Deed.ACCUMULATE,
    Stage.IN_FLIGHT: Deed.REFUSE_IN_FLIGHT,
}
_STEP = {
    Stage.IDLE: Deed.REDUCE,
    Stage.WINDOW: Deed.REFUSE_LOCAL,
    Stage.FULL: Deed.REFUSE_LOCAL,
    Stage.STRAY: Deed.REFUSE_LOCAL,
    Stage.SPOILED: Deed.REFUSE_SPOILED,
    Stage.REDUCED: Deed.USE,
    Stage.IN_FLIGHT: Deed.REFUSE_IN_FLIGHT,
}
DEEDS: dict[Action, dict[Stage, Deed]] = {
    Action.BACKWARD: _BACKWARD,
    Action.BACKWARD_OF_WINDOWS: {**_BACKWARD, Stage.REDUCED: Deed.REFUSE_ANOTHER},
    Action.STEP: _STEP,
    Action.STEP_OF_WINDOWS: {**_STEP, Stage.WINDOW: Deed.REDUCE_SHORT},
    Action.SYNC: {
        Stage.IDLE: Deed.REDUCE,
        Stage.WINDOW: Deed.REDUCE,
        Stage.FULL: Deed.REDUCE,
        Stage.STRAY: Deed.REDUCE,
        Stage.SPOILED: Deed.REFUSE_SPOILED,
        Stage.REDUCED: Deed.USE,
        Stage.IN_FLIGHT: Deed.REFUSE_IN_FLIGHT,
    },
    Action.RETRY: {
        Stage.IDLE: Deed.REFUSE_RETRY,
        Stage.WINDOW: Deed.REDUCE,
        Stage.FULL: Deed.REDUCE,
        Stage.STRAY: Deed.REDUCE,
        Stage.SPOILED: Deed.REFUSE_SPOILED,
        Stage.REDUCED: Deed.REFUSE_RETRY,
        Stage.IN_FLIGHT: Deed.REFUSE_RETRY,
    },
    Action.WAIT: {
        stage: Deed.WAIT if stage is Stage.IN_FLIGHT else Deed.REFUSE_IDLE for stage in Stage
    },
}
