# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Basin's state in this process: its client, and the lanes whose gradients backward() reduces.

There is one context, because there is one `torch.autograd.backward`: init() wraps it, and
shutdown() restores it. Autograd's own hooks run too early: a final callback runs at the end of each
nested backward, and not at all under compiled autograd. The step of every optimizer is hooked,
because any optimizer may apply the gradients that a model's lane reduces. torch.compile leaves all
of these alone, so a compiled function that calls backward() or step() does what it does otherwise.
"""

import functools
import os
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from basin import client, descent
from basin.arguments import seconds
from basin.errors import Error, FailedPrecondition, RoundAborted, Unsupported
from basin.process_set import ProcessSet
from basin.torch import closures
from basin.torch.alone import AloneWatch
from basin.torch.lane import GradientLane
from basin.torch.leave import Leave
from basin.torch.scaler import ScalerWatch
from basin.torch.state import JobState
from basin.torch.unshared import UnsharedWatch
from basin.worker import Place, logger


class Context:
    """One process's client and lanes."""

    def __init__(
        self,
        connected: client.Client,
        timeout: float | None,
        own_state: bool,
        leave: Leave,
        strict_data: bool,
    ) -> None:
        self.client = connected
        self.leave = leave
        self.timeout = timeout
        self.lanes: list[GradientLane] = []
        self.lanes_made = 0  # With those that are closed: the name of a lane is used once.
        self.process_sets: list[ProcessSet] = []
        self.state = JobState(connected.worker, self.lanes, own_state)
        connected.before_call = self.state.before_call
        connected.joined = self.state.join
        connected.leave = functools.partial(stop, finished=True)
        self._process = os.getpid()
        self._depth = 0
        self._backward: Callable[..., Any] = torch.autograd.backward
        torch.autograd.backward = torch.compiler.disable(self._wrap(self._backward))
        self.unshared = UnsharedWatch(self.state, self._world_size)
        self._alone = AloneWatch(self._world_size, strict_data)
        self._watches = (self._alone, ScalerWatch(self.lanes), self.unshared)
        self._step_hooks = (
            register_optimizer_step_pre_hook(torch.compiler.disable(self._before_step)),
            register_optimizer_step_post_hook(torch.compiler.disable(self._after_step)),
        )

    def close(self, finished: bool) -> None:
        self.leave.close()
        for lane in self.lanes:
            if finished and not lane.usage.finished and lane.gradients.has_local():
                logger.warning(
                    "shutdown() at step %d: gradients of lane %s were accumulated but never sent, "
                    "and are lost. Call sync_gradients() and step() at the end of the data, or "
                    "zero_grad() to drop them.",
                    lane.usage.steps,
                    lane.name,
                )
        torch.autograd.backward = self._backward
        for watch in self._watches:
            watch.close()
        for hook in self._step_hooks:
            hook.remove()
        for lane in self.lanes:
            lane.close()
        self.lanes.clear()
        self.state.close()
        for each in self.process_sets:
            each.close(finished)
        self.client.close(finished=finished)

    def close_lane(self, lane: GradientLane) -> None:
        """From now on gradients of its parameters are local."""
        lane.close()
        if lane in self.lanes:  # Not of a context before this one.
            self.lanes.remove(lane)

    def rejoin(self, timeout: float | None) -> None:
        """See basin.torch.rejoin()."""
        self.client.check_member("rejoin()")
        seconds("timeout", timeout)
        for lane in self.lanes:
            lane.start_again()
        self.client.rejoin(timeout)
        self.state.rejoin()

    def finish(self) -> None:
        """This worker is out of data; see basin.torch.finished()."""
        if self._depth > 0:
            raise FailedPrecondition("finished() was called in a backward. Call it after step().")
        for lane in self.lanes:
            lane.usage.check_has_outcome("finished()")
        if any(lane.gradients.has_local() for lane in self.lanes):
            raise FailedPrecondition(
                "finished() was called with gradients that were not sent and would be lost. Call "
                "step() before it, or zero_grad() to drop them."
            )
        for lane in self.lanes:
            lane.leave_node()
            lane.end_deferred()
            lane.give_samples_back()
        self.client.finished()
        for lane in self.lanes:
            lane.usage.finished = True

    def _world_size(self) -> int:
        place = self.client.worker.place()
        return place.world_size if place.is_member else 0

    def is_inherited(self) -> bool:
        """Whether this process is a fork of the one that is the worker."""
        return os.getpid() != self._process

    def place(self, call: str) -> Place:
        """The place of this worker, for a `call` that reports it."""
        self.client.check_member(call)
        return self.client.place

    def _wrap(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def reducing_backward(*arguments: Any, **options: Any) -> Any:
            if os.getpid() != self._process or self._depth > 0:
                return backward(*arguments, **options)
            self._depth += 1
            try:
                with_graph = _makes_graph(arguments, options)
                for lane in self.lanes:
                    lane.start_backward(with_graph)
                backward(*arguments, **options)
                for lane in self.lanes:
                    lane.end_hooks()
            except BaseException as error:
                self._withdraw(error)
                raise
            else:
                self._commit()
            finally:
                self._depth -= 1

        return reducing_backward

    def _commit(self) -> None:
        """Commits all lanes before waiting for one, so that no lane waits for another."""
        committed: list[GradientLane] = []
        failure: Exception | None = None
        for lane in self.lanes:
            try:
                if lane.end_backward():
                    committed.append(lane)
            except Exception as error:  # The others still wait for the other lanes.
                failure = failure or error
            except BaseException as error:
                self._withdraw(error)
                self._hide_sent()
                raise
        for lane in committed:
            try:
                lane.await_outcome()
            except Exception as error:
                failure = failure or error
            except BaseException:
                self._hide_sent()
                raise
        if failure is not None:
            raise failure

    def _withdraw(self, error: BaseException) -> None:
        """Withdraws this worker's part. The others continue without it, and it gets their result,
        so that its parameters stay equal to theirs."""
        withdrawn: list[GradientLane] = []
        for lane in self.lanes:
            try:
                if lane.withdraw(f"backward raised {error!r}"):
                    withdrawn.append(lane)
            except Exception as consequence:  # The others still wait for the other lanes.
                logger.error("lane %s was not withdrawn: %s", lane.name, consequence)
        if not isinstance(error, Exception):
            return  # Ctrl-C: the other workers may have ended as well, so do not wait.
        for lane in withdrawn:
            try:
                lane.await_outcome()
            except RoundAborted as consequence:
                logger.error(
                    "a backward has failed, and its round had no result either. The gradients "
                    "hold a part of that backward, so do not retry: call zero_grad(), and run it "
                    "again or step() without it. The round ended with: %s",
                    consequence,
                )
            except Error as consequence:
                logger.error("a backward has failed, and its round raised: %s", consequence)

    def _hide_sent(self) -> None:
        for lane in self.lanes:
            if lane.usage.in_round:
                lane.gradients.hide_sent()

    def _before_step(
        self, optimizer: torch.optim.Optimizer, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Returns the arguments of the step, if they are others."""
        if os.getpid() != self._process:
            return None  # The client stayed with the parent.
        lanes = [lane for lane in self.lanes if lane.reduces_for(optimizer)]
        changed = closures.evaluate(optimizer, arguments, options) if lanes else None
        for lane in lanes:
            lane.before_step(optimizer)
            self.state.before_step()
        self.unshared.before_step(optimizer, self.lanes)
        return changed

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if os.getpid() != self._process:
            return
        for lane in self.lanes:
            if lane.reduces_for(optimizer):
                lane.after_step(optimizer)
                self.state.after_step(optimizer)
                self._alone.after_step()
                if lane.store.optimizer is not None:  # It knows no buffers.
                    self.unshared.after_step(lane.store.gradients)


def _makes_graph(arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Whether this is a backward with create_graph=True, its fourth argument."""
    return bool(arguments[3] if len(arguments) > 3 else options.get("create_graph", False))


_context: Context | None = None
# Why this process has no context of its own: it is a helper of a worker, such as a process of a
# data loader.
_helper: descent.IsHelper | None = None


def start(
    connected: client.Client,
    timeout: float | None,
    own_state: bool,
    leave: Leave,
    strict_data: bool,
) -> None:
    global _context
    _context = Context(connected, timeout, own_state, leave, strict_data)
    leave.begin(connected)


def start_helper(why: descent.IsHelper) -> None:
    """From now on this process has its worker's rank and size, and nothing else."""
    global _helper
    _helper = why


def stop(finished: bool) -> None:
    global _context, _helper
    stopped, _context, _helper = _context, None, None
    if stopped is not None:
        stopped.close(finished)


def is_started() -> bool:
    return _context is not None or _helper is not None


def is_helper() -> bool:
    """Whether this process is a helper that was forked, or has called init()."""
    return _helper is not None or (_context is not None and _context.is_inherited())


def rank_and_size(call: str) -> tuple[int, int]:
    """Returns those of this worker, or of the one that this helper process serves."""
    if is_helper():
        return descent.place_of_worker()
    place = current().place(call)
    return place.rank, place.world_size


def current() -> Context:
    if _helper is not None:
        raise FailedPrecondition(str(_helper))
    if _context is None:
        raise FailedPrecondition("Basin is not initialized here. Call basin.torch.init() first.")
    return _context


def member(call: str) -> Context:
    """Like current(), for a `call` that all workers of the job make together. A late joiner counts
    from its first one on."""
    here = current()
    here.client.take_part(call)
    return here


def check_begins(why: str, option: str) -> None:
    """Raises Unsupported if this worker joins a job that trains already, for a framework that
    cannot do so; the `option` of the framework names a checkpoint."""
    here = current()
    worker = here.client.worker
    if not worker.place().is_member or here.state.joins:
        raise Unsupported(
            f"Worker {worker.id} joins a job that trains already, but {why}. "
            f"End the job, and start all workers from its last checkpoint ({option})."
        )
