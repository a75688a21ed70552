# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A lane of gradients of torch tensors. basin.lane decides when they are sent and what .grad
contains; store.py has the tensors, and rounds.py the client."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NoReturn

import torch

from basin.errors import FailedPrecondition
from basin.lane.accumulation import Accumulation
from basin.lane.lane import Lane
from basin.lane.samples import Samples
from basin.spec import RoundSpec
from basin.torch.ahead import Ahead
from basin.torch.contributor import Totals
from basin.torch.rounds import TensorRounds
from basin.torch.store import TensorStore, parameters_of
from basin.worker import RoundInfo


class GradientLane(Lane[torch.Tensor, torch.Tensor]):
    """Adds what only users of torch call."""

    store: TensorStore
    rounds: TensorRounds

    # Whether each step applies the results as they come, which a sampler relies on.
    _plain_steps = False
    scales_rates = False  # Whether the learning rates of its steps follow the batch.
    changes_results = False  # Whether the script clips results, or has a gradient scaler.

    def start(self) -> None:
        """Adopts the present parameters. If that fails, the lane is closed."""
        try:
            self.gradients.scan()
            mine: list[Any] = self.gradients.all
            self.rounds.node.take(mine)
        except BaseException:
            self.close()
            raise

    def knows(self, parameter: torch.Tensor) -> bool:
        return self.store.parameters.knows(parameter)

    def leave_node(self) -> None:
        """This worker contributes no more, or for itself; the other ranks of its node go on."""
        self.rounds.node.leave()

    def close(self) -> None:
        self.end_deferred()
        self.store.parameters.close()
        self.rounds.node.close()
        self.usage.closed = True

    # ---- calls of the user

    @contextlib.contextmanager
    def scaling(self, parameters: Iterable[torch.Tensor], factor: float) -> Iterator[None]:
        """Encloses a multiplication of the .grad of these by `factor`: clipping, or a scaler."""
        mine = [parameter for parameter in parameters if self.knows(parameter)]
        self.changes_results = self.changes_results or bool(mine)
        results = [each for each in mine if self.store.squared_norm(each) is not None]
        yield
        for parameter in results:
            assert parameter.grad is not None
            self.store.gradients[parameter].result.scale(parameter.grad, factor)
        for parameter in mine:
            self.rounds.divided_again.scaled(parameter, factor)

    def reduces_for(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether the optimizer applies gradients that this lane reduces."""
        return any(
            self.knows(parameter) or self.store.parameters.was_replaced(parameter)
            for parameter in parameters_of(optimizer)
        )

    def check_loss_scale(self, scale: float, call: str) -> None:
        """Checks that the results that `call` of a scaler unscales were sent with its scale. That
        scale has been compared with the other workers'."""
        if (
            self.rounds.info is not None
            and self.gradients.has_results()
            and self.rounds.info.spec.loss_scale != scale
        ):
            self.usage.refuse_loss_scale(call, scale, self.rounds.info.spec.loss_scale)

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Makes sure that .grad is the result of a round, and that the buffers are those of rank
        0."""
        self.reduce_for(optimizer, "step()")
        self._check_plain()
        self.write_buffers()
        self.rounds.divided_again.before_step(self.usage.steps, self.rounds.info)

    def sample_with(self, samples: Samples, spec: RoundSpec, *, plain_steps: bool) -> None:
        """Like sample(). With plain_steps, a step that applies something else than the result of a
        round is refused: in a round without samples the sampler would apply the result itself, and
        parameters would diverge."""
        self.sample(samples, spec)
        self.rounds.sample(spec)
        self._plain_steps = plain_steps

    def _check_plain(self) -> None:
        if not self._plain_steps:
            return
        # One of them is enough: clipping and scalers change all.
        result = next((each.parameter for each in self.gradients.all if each.is_result()), None)
        changed = result is not None and self.store.squared_norm(result) is None
        if changed or self.changes_results or self.rounds.loss_scale != 1.0:
            raise FailedPrecondition(
                f"step() of step {self.usage.steps} was called on gradients of lane {self.name} "
                "that were changed since their round, for example by clipping or a gradient "
                "scaler. In a round in which this worker has no samples, the sampler makes the "
                "step, and must change them in the same way. Give the sampler step=, a function "
                "that does all that the loop does after backward()."
            )

    def write_buffers(self) -> None:
        """Writes the buffers of rank 0 that a graph of autograd had still saved when they came."""
        if self.rounds.buffers is not None:
            self.rounds.buffers.write()

    # ---- for late joiners

    def has_unapplied(self) -> bool:
        """Whether there are results of rounds before this one that no step has applied."""
        return self.gradients.has_unapplied()

    @property
    def next_round(self) -> int:
        """The number of the first round without an outcome, which may be in progress."""
        return 1 if self.rounds.info is None else self.rounds.info.round + 1

    @property
    def steps(self) -> int:
        """The number of the next step, from 0, as all workers count them."""
        return self.usage.steps

    @property
    def last_chain(self) -> tuple[int, int] | None:
        """The number of the last round with an outcome and its chain, which only workers with the
        same history have."""
        info = self.rounds.info
        return None if info is None else (info.round, info.chain)

    def parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The parameters that are reduced, with their names."""
        return ((self.store.name_of(each), each) for each in self.store.gradients)

    def why_not_ahead(self) -> str | None:
        """Why no joiner of this lane can take part in rounds before it has the state, if so."""
        if self._samples is not None and self._samples.global_batch is not None:
            return "its sampler has keep_global_batch, so each member has a share of each step"
        if self.passes == 0:
            return "a member without samples would close the target_batch of the others"
        return self.rounds.why_not_ahead()

    def spec_ahead(self) -> RoundSpec | None:
        """The spec of rounds of a joiner before it has the state; None: it makes none."""
        if self.why_not_ahead() is not None:
            return None
        return self.rounds.spec_ahead(replace(self.spec, counts=Accumulation().counts()))

    def ahead(self, spec: RoundSpec, most: int, others_call: Callable[[], bool]) -> Ahead:
        return self.rounds.ahead(spec, most, others_call)


class LaneOwner:
    """The methods of an object that owns a lane."""

    _lane: GradientLane

    def wait_round(self, timeout: float | None = None) -> None:
        """Waits again, after OutcomeUnknown or Paused, for `timeout` seconds; None: forever."""
        self._lane.wait_round(timeout)

    def retry_round(self) -> None:
        """Sends the gradients of an aborted round again. Those of a failed backward are refused:
        run it again."""
        self._lane.retry_round()

    def contribute(
        self,
        *unnamed: NoReturn,
        samples: int | None = None,
        tokens: int | None = None,
        **unknown: NoReturn,
    ) -> None:
        """Declares the counts in the next backward's loss, before each backward; None is unknown.
        last_round().spec.counts has the sums over all workers."""
        self._lane.contribute(*unnamed, samples=samples, tokens=tokens, **unknown)

    def sync_gradients(self) -> None:
        """Reduces the accumulated gradients without another backward."""
        self._lane.sync_gradients()

    def last_round(self) -> RoundInfo | None:
        """The facts about the last round; None before the first one."""
        return self._lane.rounds.info

    def totals(self) -> Totals:
        """Bytes and seconds of all rounds so far."""
        return self._lane.rounds.totals
