# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What is said to a user of a lane who calls too early or too late.

  after shutdown()                  nothing is allowed
  after finished()                  nothing that takes part in a round
  while a round is in flight        nothing that begins another or needs its result: wait_round()
  within no_sync()                  nothing that needs the result of a round

What else is refused depends on the gradients that a call finds, and is in actions.py. Nothing here
touches a gradient.
"""

import contextlib
from collections.abc import Iterator
from typing import NoReturn

from basin.errors import FailedPrecondition
from basin.lane.actions import DEEDS, Action, Deed, Stage
from basin.lane.phase import TRANSITIONS, Event, Phase


class Usage:
    """The state of a lane as its user's calls meet it. Each check raises FailedPrecondition for a
    `call`, "step()", say.

    lane:   its name
    owner:  what its user calls to wait again or to retry: "the optimizer"
    passes: backwards in a window
    """

    def __init__(self, lane: str, owner: str, passes: int) -> None:
        self._lane = lane
        self._owner = owner
        self._passes = passes
        self.steps = 0  # That are done.
        self.closed = False
        self.finished = False  # Said by this worker of all rounds.
        self.pushing = True  # No no_sync() around it.
        self.phase = Phase.NONE

    @property
    def in_round(self) -> bool:
        return self.phase is not Phase.NONE

    def take(self, event: Event) -> None:
        row = TRANSITIONS.get((self.phase, event))
        assert row is not None, f"{event.name} of a round that is {self.phase.name}"
        self.phase = row

    def decide(self, action: Action, stage: Stage, call: str) -> Deed:
        """What the `call` comes to; raises FailedPrecondition for what is refused, but for
        REFUSE_LOCAL and REFUSE_FULL, whose messages the lane knows."""
        deed = DEEDS[action][stage]
        if deed is Deed.REFUSE_IN_FLIGHT:
            self.check_has_outcome(call)
        elif deed is Deed.REFUSE_SPOILED:
            self._refuse_spoiled(call)
        elif deed is Deed.REFUSE_IDLE:
            self._refuse_idle()
        elif deed is Deed.REFUSE_RETRY:
            self._refuse_retry()
        elif deed is Deed.REFUSE_ANOTHER:
            self._refuse_another_window()
        return deed

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        self.check_takes_part("no_sync()")
        before, self.pushing = self.pushing, False
        try:
            yield
        finally:
            self.pushing = before

    def check_open(self, call: str) -> None:
        """After shutdown() gradients are this worker's own."""
        if self.closed:
            raise FailedPrecondition(
                f"{call} was called after shutdown(), and {self._owner} of before it reduces "
                "nothing any more. Make another one after init(); to train on alone, use the "
                "optimizer or the model without Basin."
            )

    def check_takes_part(self, call: str) -> None:
        """As check_open(), and after finished()."""
        self.check_open(call)
        if self.finished:
            raise FailedPrecondition(
                f"{call} was called after finished(), when this worker takes part in no more "
                f"rounds and {self._owner} reduces nothing any more. Say finished() after the last "
                "step(); the model may still be evaluated and saved."
            )

    def check_may_begin(self) -> None:
        """A backward, of any model."""
        if self.in_round:
            raise FailedPrecondition(
                f"The last round of lane {self._lane} has no outcome yet. Call wait_round() of "
                f"{self._owner} before the next backward."
            )

    def check_has_outcome(self, call: str) -> None:
        if self.in_round:
            raise FailedPrecondition(
                f"{call} of step {self.steps} was called on gradients of lane {self._lane} that "
                "were pushed and have no outcome yet. Call it after backward() has returned; after "
                f"OutcomeUnknown, call wait_round() of {self._owner} first."
            )

    def check_settled(self, call: str) -> None:
        """As check_has_outcome(), and within no_sync()."""
        self.check_has_outcome(call)
        if not self.pushing:
            raise FailedPrecondition(
                f"{call} of step {self.steps} was called within no_sync(), or with "
                "require_backward_grad_sync = False, where gradients are this worker's own. Call "
                "it after a backward outside of no_sync()."
            )

    def _refuse_idle(self) -> NoReturn:
        raise FailedPrecondition(f"Lane {self._lane} has no round in flight. Do not wait.")

    def _refuse_retry(self) -> NoReturn:
        raise FailedPrecondition(
            f"Lane {self._lane} has no gradients of an aborted round. Run backward() instead."
        )

    def _refuse_spoiled(self, call: str) -> NoReturn:
        raise FailedPrecondition(
            f"{call} of step {self.steps} was called on gradients of lane {self._lane} that hold a "
            "part of a backward that has failed. Call zero_grad() and run the backward again, with "
            "all micro-batches of this step."
        )

    def _refuse_another_window(self) -> NoReturn:
        """Another backward would begin a window that the other workers have not: from then on their
        rounds would be of different steps."""
        raise FailedPrecondition(
            f"backward() was called after the last one of step {self.steps}: the gradients of "
            f"lane {self._lane} were sent by number {self._passes} "
            "(backward_passes_per_step), or before, by hand. Call step() first, or zero_grad() "
            "to leave the step out, or make the window longer."
        )

    def refuse_written(self, call: str, parameter: str) -> NoReturn:
        """A full window was reduced before it was clipped, say; a short one would be clipped before
        it is reduced, and by its own norm: parameters would part."""
        raise FailedPrecondition(
            f"{call} of step {self.steps} was called on a window of fewer than {self._passes} "
            "backwards (backward_passes_per_step), which has not been reduced, and somebody has "
            f"written to the gradient of parameter {parameter} of lane {self._lane}: by clipping, "
            f"say, which other workers do to the result. Call sync_gradients() of {self._owner} "
            "after the last backward() and before anything that changes .grad."
        )

    def refuse_local(self, call: str, parameter: str) -> NoReturn:
        """It was never sent, or came back from an aborted round."""
        raise FailedPrecondition(
            f"{call} of step {self.steps} was called on a gradient of parameter {parameter} that "
            "is this worker's own. Run the last backward outside of no_sync(), or call its "
            f"sync_gradients(); after an aborted round call retry_round() of {self._owner}. What "
            "torch.autograd.grad() makes, or a backward() that was imported by name before init(), "
            "is not seen, and needs sync_gradients() too."
        )

    def refuse_loss_scale(self, call: str, scale: float, sent: float) -> NoReturn:
        """A gradient scaler would divide by its own scale what was sent with another one's."""
        raise FailedPrecondition(
            f"{call} of step {self.steps} is of a gradient scaler whose scale is {scale:g}, and "
            f"the gradients of lane {self._lane} were sent as scaled by {sent:g}: of several "
            "scalers the last one that scaled a loss before the backward counts, and workers "
            "compare its scale. Use one scaler for all optimizers, or call scale() of each right "
            "before the backward of its loss, and update() after step()."
        )
