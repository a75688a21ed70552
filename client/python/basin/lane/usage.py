# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The errors of calls at the wrong time.

  after shutdown()                  nothing is allowed
  after finished()                  nothing that takes part in a round
  while a round is in flight        nothing that begins another or needs its result: wait_round()
  within no_sync()                  nothing that needs the result of a round

Other refusals depend on the state of the gradients, and are in actions.py. Nothing here touches a
gradient.
"""

import contextlib
from collections.abc import Iterator
from typing import NoReturn

from basin.errors import FailedPrecondition, Unsupported
from basin.lane.actions import DEEDS, Action, Deed, Situation
from basin.lane.phase import TRANSITIONS, Event, Phase


class Usage:
    """The state of a lane that determines which calls are allowed. Each check raises
    FailedPrecondition for a `call`, such as "step()".

    lane:   the name of the lane
    owner:  the object whose methods the user calls: "the optimizer"
    passes: backwards in a window; 0: until all workers have a target batch
    """

    def __init__(self, lane: str, owner: str, passes: int) -> None:
        self._lane = lane
        self._owner = owner
        self.passes = passes
        self.steps = 0  # The number of completed steps.
        self.closed = False
        self.finished = False
        self.pushing = True  # False within no_sync().
        self.phase = Phase.NONE

    @property
    def in_round(self) -> bool:
        return self.phase is not Phase.NONE

    def on(self, event: Event) -> None:
        row = TRANSITIONS.get((self.phase, event))
        assert row is not None, f"{event.name} of a round that is {self.phase.name}"
        self.phase = row

    def decide(self, action: Action, situation: Situation, call: str) -> Deed:
        """Returns the effect of the `call`. Raises FailedPrecondition if it is refused, except for
        REFUSE_LOCAL and REFUSE_FULL, whose errors the lane raises."""
        deed = DEEDS[action][situation]
        if deed is Deed.REFUSE_IN_FLIGHT:
            self.check_has_outcome(call)
        elif deed is Deed.REFUSE_SPOILED:
            self._refuse_spoiled(call)
        elif deed is Deed.REFUSE_IDLE:
            self._refuse_idle()
        elif deed is Deed.REFUSE_RETRY:
            self._refuse_retry()
        elif deed is Deed.REFUSE_ANOTHER:
            self._refuse_another_pass()
        return deed

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Keeps the gradients of backwards within it local: to accumulate micro-batches, or when
        another model's backward passes through this one. step() is refused within it."""
        self.check_takes_part("no_sync()")
        before, self.pushing = self.pushing, False
        try:
            yield
        finally:
            self.pushing = before

    def check_open(self, call: str) -> None:
        """Raises an error after shutdown(), when gradients are only local."""
        if self.closed:
            raise FailedPrecondition(
                f"{call} was called after shutdown(), when {self._owner} no longer reduces "
                "gradients. Create another one after init(); to train alone, use the optimizer or "
                "the model without Basin."
            )

    def check_takes_part(self, call: str) -> None:
        """Like check_open(), and also after finished()."""
        self.check_open(call)
        if self.finished:
            raise FailedPrecondition(
                f"{call} was called after finished(), when this worker no longer takes part in "
                f"rounds and {self._owner} no longer reduces gradients. Call finished() after the "
                "last step(); the model may still be evaluated and saved."
            )

    def check_may_begin(self) -> None:
        """Checks that a backward, of any model, may begin."""
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

    def check_no_round(self, call: str) -> None:
        """Like check_has_outcome(), and also within no_sync()."""
        self.check_has_outcome(call)
        if not self.pushing:
            raise FailedPrecondition(
                f"{call} of step {self.steps} was called within no_sync(), or with "
                "require_backward_grad_sync = False, where gradients are local. Call it after a "
                "backward outside no_sync()."
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
            "part of a failed backward. Call zero_grad() and run the backward again, with all "
            "micro-batches of this step."
        )

    def _refuse_another_pass(self) -> NoReturn:
        """Another backward would begin a window that the other workers do not have, and later
        rounds would mix different steps."""
        last, longer = "sync_gradients()", ""
        if self.passes > 0:
            last = f"backward number {self.passes} (backward_passes_per_step), or {last},"
            longer = ", or make the window longer"
        raise FailedPrecondition(
            f"backward() was called after the last one of step {self.steps}: {last} has sent the "
            f"gradients of lane {self._lane}. Call step() first, or zero_grad() to skip the "
            f"step{longer}."
        )

    def refuse_written(self, call: str, parameter: str) -> NoReturn:
        """A full window is reduced before it is clipped. A short one would be clipped before it is
        reduced, by its local norm, and parameters would diverge."""
        window = "micro-batches (target_batch)"
        if self.passes > 0:
            window = f"fewer than {self.passes} backwards (backward_passes_per_step)"
        raise FailedPrecondition(
            f"{call} of step {self.steps} was called on a window of {window}, which has not been "
            "reduced, but the gradient of "
            f"parameter {parameter} of lane {self._lane} was written to, for example by clipping, "
            "which other workers apply to the result. Call sync_gradients() of "
            f"{self._owner} after the last backward() and before anything that changes .grad."
        )

    def refuse_local(self, call: str, parameter: str) -> NoReturn:
        """The gradient was never sent, or belongs to an aborted round."""
        raise FailedPrecondition(
            f"{call} of step {self.steps} was called on a gradient of parameter {parameter} that "
            "is local. Run the last backward outside no_sync(), or call sync_gradients(); after an "
            f"aborted round call retry_round() of {self._owner}. Results of torch.autograd.grad(), "
            "or of a backward() that was imported by name before init(), are not detected, and "
            "need sync_gradients() too."
        )

    def refuse_graph(self) -> NoReturn:
        """The result of a round replaces the gradient, and has no graph."""
        raise Unsupported(
            f"backward(create_graph=True) has reached the parameters of lane {self._lane}, whose "
            "gradients are replaced by those of all workers, which have no graph. Use "
            "torch.autograd.grad(loss, parameters, create_graph=True) for the inner gradient, and "
            "one backward() for the whole loss."
        )

    def refuse_loss_scale(self, call: str, scale: float, sent: float) -> NoReturn:
        """A gradient scaler would divide by its scale what was sent with another scale."""
        raise FailedPrecondition(
            f"{call} of step {self.steps} was called on a gradient scaler whose scale is "
            f"{scale:g}, but the gradients of lane {self._lane} were sent as scaled by {sent:g}. "
            "Workers compare the scale of the last scaler that scaled a loss before the backward. "
            "Use one scaler for all optimizers, or call scale() of each right before the backward "
            "of its loss, and update() after step()."
        )
