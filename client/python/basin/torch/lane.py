# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The gradients of one model or optimizer, and the rounds that reduce them.

A parameter's .grad is one of
  none    nothing is known
  pushed  in the round in flight; its memory is the library's, to read, until the outcome
  held    the result of a round
  local   anything else: this worker's own gradient, not pushed yet (a backward under no_sync, say)

Local gradients of several backwards, micro-batches, accumulate until a backward sends them: they
are its window. What counts were given for them go with the round. A window is a sum, so that of a
weighted average of means is one backward: another one is refused, and leaves it as it was.

At the start of an outermost backward what is held is put aside, so that the backward makes a
gradient of its own; after the verdict it is added to the result. So two backwards before a step
give the sum of two results, whatever the op and whoever joined between them.

Threads. One thread at a time runs backward and step.
"""

import contextlib
import os
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import torch

from basin import _abi
from basin.arguments import seconds
from basin.errors import (
    Error,
    FailedPrecondition,
    InvalidArgument,
    OutcomeUnknown,
    Paused,
    Unsupported,
)
from basin.spec import Counts, RoundSpec
from basin.torch import narrow, tensors
from basin.torch.buffers import BufferLane
from basin.torch.delivered import Delivered
from basin.torch.divided_again import DividedAgain
from basin.torch.layout import LayoutCheck
from basin.torch.parameters import Parameters
from basin.torch.state import JobState
from basin.torch.usage import Usage
from basin.torch.window import Window
from basin.worker import Result, RoundInfo, Worker

# Folders of this package and of torch.
_NOT_THE_USER = (
    os.path.dirname(os.path.dirname(__file__)) + os.sep,
    os.path.dirname(torch.__file__) + os.sep,
)


class ContributorsChanged(UserWarning):
    """Gradients of other workers than those whose counts they are divided by."""


@dataclass
class Totals:
    """What the rounds of a lane have cost this worker so far. Times are seconds of the trainer's
    thread; what overlaps with the backward is in none of them."""

    rounds: int = 0
    bytes_pushed: int = 0
    bytes_received: int = 0
    push_seconds: float = 0.0
    wait_seconds: float = 0.0


class GradientLane:
    """Pushes gradients and puts results in their place. It waits; it never decides.

    spec:      of its rounds, but for counts and step
    passes:    backwards in a window: the last one sends, and so does a step() before it
    owner:     what its user calls to wait again or to retry, for messages: "the optimizer"
    own_hooks: whether it pushes each gradient when it is accumulated; otherwise somebody calls
               push_ready()
    optimizer: the one that all parameters belong to, if it is known
    buffers:   are sent and received with each round
    modules:   models that may have the parameters
    compared:  whether all workers must have gradients of the same tensors
    """

    def __init__(
        self,
        worker: Worker,
        name: str,
        names: Mapping[torch.Tensor, str],
        spec: RoundSpec,
        wire_dtype: torch.dtype | None,
        timeout: float | None,
        state: JobState,
        *,
        passes: int = 1,
        owner: str,
        own_hooks: bool = True,
        optimizer: torch.optim.Optimizer | None = None,
        buffers: BufferLane | None = None,
        modules: Callable[[], Iterable[torch.nn.Module]] = tuple,
        compared: bool = True,
    ) -> None:
        self._worker = worker
        self._state = state
        self._process = os.getpid()
        self.name = name
        self._spec = spec
        self._passes = passes
        self._wire_dtype = wire_dtype
        self._timeout = timeout
        self._owner = owner
        self._own_hooks = own_hooks
        self._optimizer = optimizer
        self._buffers = buffers

        self._lane, _ = worker.register(name, _abi.GRADIENT, [])
        self._parameters = Parameters(worker, name, names, self._ready, modules, optimizer)
        self._layout = LayoutCheck(worker, name, compared)

        self.usage = Usage(name, owner, passes)
        self._in_backward = False
        self._sends = False  # Whether this backward pushes.
        self._reached = False  # Whether it has come to a parameter.
        self._beyond = False  # Whether it was one too many for its window.
        self._told = Window()  # Of the next backward that comes to a parameter.
        self._window = Window()  # Of what is local.
        self._failed = False  # Whether what is pushed holds a part of a backward that has failed.
        # As the last backward has left it: parameter, gradient and version of its memory.
        self._left_local: list[tuple[torch.Tensor, torch.Tensor, int]] = []
        self._sent = Window()  # Of the round in flight.
        self._refusal: Error | None = None  # Why this worker is not counted in the round.
        self._expected_round: int | None = None  # Of a worker that has joined late.
        self._failure: Error | None = None
        self._pushed: dict[torch.Tensor, torch.Tensor] = {}
        self._held: set[torch.Tensor] = set()
        self._aside: dict[torch.Tensor, torch.Tensor] = {}
        # A window that is full, out of the way of a backward that may come here.
        self._apart: dict[torch.Tensor, torch.Tensor] = {}

        # By optimizer: how many rounds there had been at its last step.
        self._rounds_at_step: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = (
            weakref.WeakKeyDictionary()
        )
        # As a step has left them, until the next round: gradient and version of its memory.
        self._applied: dict[torch.Tensor, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._rounds_left_out = 0  # How many there had been when results were last dropped.
        self.totals = Totals()
        self.delivered = Delivered()
        self._divided_again = DividedAgain(name, spec.op)
        # Of the gradients of this worker; the same on all.
        self.loss_scale = 1.0
        # Who contributed to the counts that the next round's gradients are divided by.
        self.counted: tuple[str, ...] | None = None
        self.info: RoundInfo | None = None  # Of the last round.
        try:
            self.scan()
        except BaseException:
            self.close()
            raise

    # ---- parameters

    def scan(self) -> None:
        """Takes the parameters as they are now; see Parameters."""
        for parameter in self._parameters.scan():
            self._held.discard(parameter)
            for known in (self._aside, self._apart, self._applied):
                known.pop(parameter, None)
            self.delivered.drop(parameter)
        self._parameters.register()
        # Not while gradients are made, where compiled autograd would look into it.
        self._layout.take(self._parameters.layout())

    def name_of(self, parameter: torch.Tensor) -> str:
        return self._parameters.name_of(parameter)

    def owner_of_local(self, parameter: torch.Tensor) -> str | None:
        """Whom to ask to reduce the parameter's .grad, when it is this worker's own."""
        return self._owner if parameter in self._local() else None

    def knows(self, parameter: torch.Tensor) -> bool:
        return self._parameters.knows(parameter)

    def close(self) -> None:
        self._parameters.close()
        self.usage.closed = True

    def finish(self) -> None:
        """This worker is out of data, and contributes to no further round."""
        self.usage.finished = True

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of backwards within stay local: to accumulate micro-batches, or when another
        model's backward passes through this one. step() is refused within."""
        with self.usage.no_sync():
            yield

    # ---- one backward

    def start_backward(self) -> None:
        """Puts aside what is held."""
        self.usage.check_may_begin()
        self.scan()
        self._forget_what_was_zeroed()
        self._put_aside()
        if self._window.is_full(self._spec):
            self._keep_apart()
        self._failure = None
        self._in_backward = True
        self._reached = self._beyond = False
        self._sends = self.usage.pushing and self._window.micro_batches + 1 >= self._passes

    def _put_aside(self) -> None:
        for parameter in self._held:
            if parameter.grad is not None:
                self._aside[parameter] = parameter.grad
                parameter.grad = None
        self._held.clear()

    def _keep_apart(self) -> None:
        """A backward that comes here will be refused; what it makes is to be added to nothing."""
        for parameter in self._local():
            assert parameter.grad is not None
            self._apart[parameter] = parameter.grad
            parameter.grad = None

    def _copy_what_is_away(self) -> None:
        """Whoever else pushes may have put it where gradients are made, which is about to begin."""
        self._applied.clear()
        for away in (self._aside, self._apart):
            for parameter, gradient in away.items():
                away[parameter] = gradient.clone()

    def _restore_apart(self) -> None:
        for parameter in self._local():
            parameter.grad = None  # It was refused.
        for parameter, gradient in self._apart.items():
            parameter.grad = gradient
        self._apart.clear()
        self._note_local()

    def _forget_what_was_zeroed(self) -> None:
        if self._were_dropped():
            self._rounds_left_out = self.totals.rounds
        for parameter in list(self._held):
            if parameter.grad is None:
                self._held.discard(parameter)
        for parameter in list(self._aside):
            # Outside of a backward, what is aside has a local gradient in its place.
            # zero_grad(set_to_none=False) leaves no trace but zeros.
            if parameter.grad is None or not parameter.grad.any():
                del self._aside[parameter]
        if self.usage.spoiled and not self.has_local():
            self.usage.spoiled, self._window, self._left_local = False, Window(), []
        # Gradients of zeros that a backward has made count.
        if self._window.micro_batches > 0 and self._written() and not self.has_local():
            self._window, self._left_local = Window(), []

    def _were_dropped(self) -> bool:
        """Whether zero_grad() has taken all results of the last round: its step is left out."""
        if not self._held or self._aside or self.usage.in_round:
            return False
        kept = [parameter for parameter in self._held if parameter.grad is not None]
        if kept and (self.info is None or not self.info.squared_norm):
            return False  # They may have been zeros.
        return not any(self._holds_something(parameter) for parameter in kept)

    def _holds_something(self, parameter: torch.Tensor) -> bool:
        squared_norm = self.delivered.squared_norm(parameter)
        if squared_norm is not None:
            return squared_norm != 0.0
        return parameter.grad is not None and bool(parameter.grad.any())

    def _disown_what_was_written(self) -> None:
        """What was written after a step is no result: a backward that Basin has not seen has made
        it, or the user."""
        for parameter, (applied, version) in self._applied.items():
            gradient = parameter.grad
            if gradient is None or parameter not in self._held:
                continue
            if (applied() is not gradient or gradient._version != version) and gradient.any():
                self._held.discard(parameter)

    def _has_round_for(self, optimizers: Iterable[torch.optim.Optimizer]) -> bool:
        """Whether there was a round since the last step of these, or since one was left out."""
        stepped = max((self._rounds_at_step.get(each, 0) for each in optimizers), default=0)
        return self.totals.rounds > max(stepped, self._rounds_left_out)

    def _written(self) -> list[torch.Tensor]:
        """The parameters whose local gradients somebody has changed since the last backward."""
        return [
            parameter
            for parameter, gradient, version in self._left_local
            if parameter.grad is not gradient or gradient._version != version
        ]

    def has_local(self) -> bool:
        """Whether there is anything but zeros in the window, which was not sent."""
        return any(bool(p.grad.any()) for p in self._local() if p.grad is not None)

    def _ready(self, parameter: torch.Tensor) -> None:
        """The hook: a gradient has been accumulated."""
        if os.getpid() != self._process:
            return  # The client stayed with the parent.
        if not self._in_backward:
            return
        if not self._reached:
            self._reached = True
            if not self._own_hooks:
                self._copy_what_is_away()
            self._check_window()
        if not self._sends or not self._own_hooks or self._failure is not None:
            return
        if parameter in self._pushed:
            raise Unsupported(
                f"The gradient of parameter {self.name_of(parameter)} was accumulated twice in one "
                "backward (reentrant checkpointing does that). Use "
                "checkpoint(..., use_reentrant=False), or run the backward under no_sync() and "
                "another one after it."
            )
        self._push(parameter)

    def push_ready(self, parameters: Iterable[torch.Tensor]) -> None:
        """Pushes the gradients of these parameters; one without a gradient is skipped. An error is
        kept for raise_failure()."""
        if os.getpid() != self._process or not self._in_backward or self._failure is not None:
            return
        try:
            for parameter in parameters:
                if parameter not in self._parameters:
                    raise InvalidArgument(
                        f"A parameter of shape {tuple(parameter.shape)} is not one of lane "
                        f"{self.name}. Make {self._owner} of the model that it is used with."
                    )
                if parameter.grad is not None:
                    self._push(parameter)
        except Error as error:
            self._failure = self._failure or error

    def raise_failure(self) -> None:
        """Raises what push_ready() has failed with in this backward."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _push(self, parameter: torch.Tensor) -> None:
        began = time.perf_counter()
        gradient = parameter.grad
        assert gradient is not None
        self._parameters.check_gradient(parameter, gradient)
        memory = gradient.detach().contiguous()
        if not self._own_hooks:
            # Whoever pushes goes on writing to the gradient.
            memory = memory.clone() if gradient.is_contiguous() else memory
        elif memory.untyped_storage().nbytes() != tensors.bytes_of(memory):
            # It shares its storage with others.
            memory = memory.clone()
            if gradient.is_contiguous():
                parameter.grad = memory
        self._begin()
        handle = self._parameters.handle(parameter)
        size = tensors.bytes_of(memory)
        if self._wire_dtype is not None and memory.dtype == torch.float32:
            wire_dtype = tensors.DTYPES[self._wire_dtype]
            exponent = narrow.exponent_of(memory, self._wire_dtype)
            self._worker.push_narrow(
                self._lane, handle, memory.data_ptr(), size, wire_dtype, exponent
            )
            self.totals.bytes_pushed += size // 2
        else:
            self._worker.push(self._lane, handle, memory.data_ptr(), size)
            self.totals.bytes_pushed += size
        self._pushed[parameter] = memory
        self.totals.push_seconds += time.perf_counter() - began

    def _begin(self) -> None:
        if self.usage.in_round:
            return
        expected = self._state.before_round(self.name)
        if self._in_backward:
            self._count_backward()
        spec = replace(
            self._spec,
            counts=self._window.counts().check_contributed(),
            loss_scale=self.loss_scale,
            layout=self._layout.hash,
            step=self.usage.steps,
        )
        self._worker.begin(self._lane, spec)
        self.usage.in_round = True
        self._sent, self._window = self._window, Window()
        self._left_local = []
        self._refusal = None
        self._failed = False
        self._expected_round = expected
        self._state.after_begin(self.name)

    def _check_window(self) -> None:
        """Of the backward that has come to this lane. What is wrong is raised when it returns."""
        try:
            self.usage.check_takes_part("backward()")
            self.usage.check_not_spoiled("backward()")
            self._check_window_is_applied()
            self._told.check(self._spec, self._window, self._owner)
        except Error as error:
            self._failure = self._failure or error
            self._told = Window()

    def _count_backward(self) -> None:
        """This backward is one more micro-batch of the window."""
        self._told.micro_batches += 1
        self._window.add(self._told)
        self._told = Window()

    def end_backward(self) -> bool:
        """Commits, if there is a round, without waiting. Returns whether there is one."""
        self._in_backward = False
        if not self.usage.in_round:
            if self._apart:  # It did not come by.
                self._restore_apart()
            elif self._reached:
                self._count_backward()
                self._note_local()
            self._restore_aside()
            return False
        self._push_local()  # Accumulated before; this backward did not come by.
        self._commit()
        return True

    def _note_local(self) -> None:
        """Notes what is local, to see later whether somebody has changed it."""
        self._left_local = [
            (parameter, parameter.grad, parameter.grad._version)
            for parameter in self._local()
            if parameter.grad is not None
        ]

    def _local(self) -> list[torch.Tensor]:
        return [
            parameter
            for parameter in self._parameters
            if parameter.grad is not None
            and parameter not in self._held
            and parameter not in self._pushed
        ]

    def _push_local(self) -> None:
        for parameter in self._local():
            self._push(parameter)

    def _commit(self) -> None:
        self._send_buffers()
        self._refusal = self._worker.commit(self._lane)

    def _send_buffers(self) -> None:
        """Before the commit, so that members cannot change between the two rounds."""
        if self._buffers is not None:
            self._buffers.send()

    def withdraw(self, reason: str) -> bool:
        """As end_backward(), for a backward that has failed."""
        started, self._in_backward = self._in_backward, False
        if not started:
            return False  # It failed before this lane came to it.
        if not self.usage.in_round:
            if self._reached:  # What was told is of the next backward that comes to this lane.
                self._told = Window()
            if self._apart:
                self._restore_apart()
            elif self._beyond and self._window.micro_batches == 0:
                for parameter in self._local():
                    parameter.grad = None  # The results, which are aside, are as they were.
            elif self._reached:
                self.usage.spoiled = True
            self._restore_aside()
            return False
        self._failed = True
        self._send_buffers()
        self._worker.withdraw(self._lane, reason)
        return True

    def _restore_aside(self) -> None:
        for parameter, result in list(self._aside.items()):
            # With a local gradient in its place it stays aside until the next round.
            if parameter.grad is None:
                parameter.grad = result
                self._held.add(parameter)
                del self._aside[parameter]

    # ---- the outcome

    def settle(self) -> None:
        """Waits for the outcome and puts the results in place."""
        self._settle(self._timeout)

    def _settle(self, timeout: float | None) -> None:
        began = time.perf_counter()
        try:
            if self._buffers is not None:
                refusal = self._buffers.receive(timeout, self._state.serve_in_round)
                self._refusal = refusal or self._refusal
            result = self._worker.wait(self._lane, timeout, self._state.serve_in_round)
        except (OutcomeUnknown, Paused, KeyboardInterrupt):
            # The library still reads the gradients: nobody may write to them.
            for parameter in self._pushed:
                parameter.grad = None
            raise
        except Error:
            # Nobody applies this round. The gradients are as they were.
            self.usage.in_round = False
            self._window = self._sent
            self.usage.spoiled = self._failed
            for parameter, memory in self._pushed.items():
                if parameter.grad is None:
                    parameter.grad = memory
            self._pushed.clear()
            self._note_local()
            self._restore_aside()
            raise
        self.usage.in_round = False
        # The reply is the same on all workers, and this label is not in it.
        self.info = replace(result.info, spec=replace(result.info.spec, step=self.usage.steps))
        self._check_round(self.info.round)
        with torch.no_grad():
            for parameter, handle in self._parameters.handles():
                self._assign(parameter, handle, result)
        self._pushed.clear()
        self._applied.clear()
        self._divided_again.delivered(
            (p for p in self._parameters if p in self._held), self._sent.micro_batches
        )
        self.totals.rounds += 1
        self.totals.wait_seconds += time.perf_counter() - began
        self._compare_counted()
        refusal = self._refusal or result.rejection
        if refusal is not None:
            raise self._layout.explain(refusal, self.info.spec.layout)

    def _compare_counted(self) -> None:
        counted, self.counted = self.counted, None
        if counted is None or self.info is None or self.info.contributors == counted:
            return
        warnings.warn(
            f"total_counts() summed over {', '.join(counted)}, and round {self.info.round} of lane "
            f"{self.name} has gradients of {', '.join(self.info.contributors)}, divided by those "
            "totals. Leave this step out (zero_grad() instead of step()) if that is not what you "
            "want; all workers are told the same. Totals that no loss is divided by, of an "
            "evaluation, say, want for_gradients=False.",
            ContributorsChanged,
            stacklevel=_levels_to_the_user(),
        )

    def _check_round(self, number: int) -> None:
        if self._expected_round not in (None, number):
            raise FailedPrecondition(
                f"This worker joined lane {self.name} with the state before round "
                f"{self._expected_round}, and its first round was {number}. Its parameters are not "
                "those of the others: start it again."
            )

    def _assign(self, parameter: torch.Tensor, handle: int, result: Result) -> None:
        before = self._aside.pop(parameter, None)
        memory = self._pushed.get(parameter)
        if result.has(handle):
            if memory is None:
                memory = torch.empty(parameter.shape, dtype=parameter.dtype)
            result.copy(handle, memory.data_ptr(), tensors.bytes_of(memory))
            self.totals.bytes_received += tensors.bytes_of(memory)
            gradient = memory
            if not parameter.is_contiguous():
                gradient = torch.empty_like(parameter).copy_(memory)
            if before is not None:
                gradient.add_(before)
            parameter.grad = gradient
            squared_norm = result.squared_norm(handle)
            if squared_norm is not None and (before is None or not before.any()):
                self.delivered.put(parameter, squared_norm)
            else:
                self.delivered.drop(parameter)
        else:
            parameter.grad = before
        if parameter.grad is not None:
            self._held.add(parameter)

    def wait_round(self, timeout: float | None = None) -> None:
        """Waits again, after OutcomeUnknown or Paused; for ever, unless `timeout` seconds are
        given."""
        self.usage.check_takes_part("wait_round()")
        timeout = seconds("timeout", timeout)
        self.usage.check_in_flight()
        self._settle(timeout)

    def retry_round(self) -> None:
        """Sends what an aborted round had, as the next round."""
        self.usage.check_takes_part("retry_round()")
        if not self.usage.in_round:
            self._forget_what_was_zeroed()
            self.usage.check_not_spoiled("retry_round()")
        self.usage.check_may_retry(bool(self._local()))
        self._reduce_local()

    def _reduce_local(self) -> None:
        """A round of what is local, outside of a backward; maybe of nothing."""
        self._put_aside()
        self._begin()
        self._push_local()
        self._commit()
        self.settle()

    def sync_gradients(self) -> None:
        """Sends what is local, without a backward. Takes part with nothing, when there is nothing
        and there was no round since the last step, or since zero_grad() left one out."""
        self.usage.check_takes_part("sync_gradients()")
        self.usage.check_settled("sync_gradients()")
        self.scan()
        self._forget_what_was_zeroed()
        self._disown_what_was_written()
        self.usage.check_not_spoiled("sync_gradients()")
        if self.has_local() or not self._has_round_for(self._rounds_at_step):
            self._reduce_local()

    def contribute(
        self,
        *unnamed: NoReturn,
        samples: int | None = None,
        tokens: int | None = None,
        **unknown: NoReturn,
    ) -> None:
        """What the next backward's loss is made of: told before it, for each one; None is unknown.
        The sums over a window and over all workers are in last_round().spec.counts.

        unnamed, unknown: nothing may be given so, and the TypeError says how
        """
        _check_named(unnamed, unknown)
        self.usage.check_takes_part("contribute()")
        told = Counts(samples=samples, tokens=tokens).check_contributed()
        self._told.tell(told.samples, told.tokens)

    # ---- one step

    @contextlib.contextmanager
    def scaling(self, parameters: Iterable[torch.Tensor], factor: float) -> Iterator[None]:
        """Within, somebody multiplies the .grad of these by `factor`: clipping, or a scaler."""
        mine = [parameter for parameter in parameters if self.knows(parameter)]
        results = [each for each in mine if self.delivered.squared_norm(each) is not None]
        yield
        for parameter in results:
            self.delivered.scale(parameter, factor)
        for parameter in mine:
            self._divided_again.scaled(parameter, factor)

    def reduces_for(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether gradients that this lane reduces are what the optimizer applies."""
        return any(
            self.knows(parameter) or self._parameters.was_replaced(parameter)
            for parameter in parameters_of(optimizer)
        )

    def check_loss_scale(self, scale: float, call: str) -> None:
        """Whether the results that `call` of a scaler divides by its scale were sent with that one.
        What other workers' gradients were scaled by was compared with it."""
        if self.info is not None and self._held and self.info.spec.loss_scale != scale:
            self.usage.refuse_loss_scale(call, scale, self.info.spec.loss_scale)

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Makes sure that .grad is the result of a round."""
        self.reduce_for(optimizer, "step()")
        self._divided_again.before_step(self.usage.steps, self.info)

    def reduce_for(self, optimizer: torch.optim.Optimizer, call: str) -> None:
        """Reduces what is left of a window, for a `call` that needs the result."""
        self.usage.check_takes_part(call)
        self.usage.check_settled(call)
        self.scan()
        self._check_step(optimizer, call)
        short = self._passes > 1 and self.has_local()
        if short:
            self._check_not_written(call)
        # Otherwise the others may have a round that this worker has nothing for.
        if short or not self._has_round_for([optimizer]):
            self._reduce_local()

    def _check_not_written(self, call: str) -> None:
        for parameter in self._written():
            if parameter.grad is not None and parameter.grad.any():  # Otherwise it was zeroed.
                self.usage.refuse_written(call, self.name_of(parameter))

    def _check_window_is_applied(self) -> None:
        if self._passes > 1 and self.has_unapplied():
            self._beyond = True
            self.usage.refuse_another_window()

    def _check_step(self, optimizer: torch.optim.Optimizer, call: str) -> None:
        self._forget_what_was_zeroed()
        self._disown_what_was_written()
        self.usage.check_not_spoiled(call)
        local = set(self._local())
        for parameter in parameters_of(optimizer):
            if self._parameters.was_replaced(parameter):
                raise FailedPrecondition(
                    f"{call} is of an optimizer that has a parameter of shape "
                    f"{tuple(parameter.shape)} which the model has replaced by another object (an "
                    "assignment, or load_state_dict(assign=True)), so that it would not be "
                    "trained. Make the optimizer after parameters are replaced, or put the new one "
                    "into its param_groups."
                )
            if optimizer is self._optimizer and not self.knows(parameter):
                raise InvalidArgument(
                    f"The optimizer was given a parameter of shape {tuple(parameter.shape)} "
                    "after DistributedOptimizer. Add parameter groups before it."
                )
            if parameter not in local or parameter.grad is None:
                continue
            is_short = self._passes > 1 and self._window.micro_batches > 0
            if not is_short and parameter.grad.any():
                self.usage.refuse_own(call, self.name_of(parameter))

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._rounds_at_step[optimizer] = self.totals.rounds
        for parameter in parameters_of(optimizer):
            if parameter in self._held and parameter.grad is not None:
                applied = weakref.ref(parameter.grad), parameter.grad._version
                self._applied[parameter] = applied
        self.usage.steps += 1

    # ---- for workers that join

    @property
    def next_round(self) -> int:
        """The number of the first round without an outcome, which may be under way."""
        return 1 if self.info is None else self.info.round + 1

    def has_unapplied(self) -> bool:
        """Whether there are results of rounds before this one that no step has applied."""
        results = list(self._aside.values())
        if not self.usage.in_round:
            if self.totals.rounds in self._rounds_at_step.values():
                return False
            results += [p.grad for p in self._held if p.grad is not None]
        return any(bool(result.any()) for result in results)

    def parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Those that are reduced, with their names."""
        return ((self.name_of(parameter), parameter) for parameter in self._parameters)

    def start_again(self) -> None:
        """Forgets all gradients: this worker was away, and the others have gone on."""
        if self.usage.in_round:
            self._worker.abandon()
        for parameter in self._parameters:
            parameter.grad = None
        self._pushed.clear()
        self._held.clear()
        self._aside.clear()
        self._apart.clear()
        self._applied.clear()
        self.delivered.clear()
        self.counted = None
        self.usage.in_round = self._in_backward = False
        self._told, self._window, self.usage.spoiled = Window(), Window(), False
        self._failed = False
        self._refusal = self._failure = None
        if self._buffers is not None:
            self._buffers.start_again()


def _levels_to_the_user() -> int:
    """The stacklevel of a warning, for its caller, that names the line of the user: the first one
    that is neither here nor in torch."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_THE_USER):
        level, frame = level + 1, frame.f_back
    return level


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _check_named(unnamed: Sequence[object], unknown: Mapping[str, object]) -> None:
    if unnamed or unknown:
        given = [repr(count) for count in unnamed]
        given += [f"{name}={count!r}" for name, count in unknown.items()]
        raise TypeError(
            f"contribute() was given {', '.join(given)}, and it has to be said what that counts. "
            "Call contribute(samples=..., tokens=...), with one of them or both; micro-batches are "
            "counted by themselves."
        )


class LaneOwner:
    """What the user of a lane may ask of the object that has it."""

    _lane: GradientLane

    def wait_round(self, timeout: float | None = None) -> None:
        """Waits again, after OutcomeUnknown or Paused; for ever, unless `timeout` seconds are
        given."""
        self._lane.wait_round(timeout)

    def retry_round(self) -> None:
        """Sends the gradients of a round that was aborted again. Those of a backward that had
        failed are refused: run it again."""
        self._lane.retry_round()

    def contribute(
        self,
        *unnamed: NoReturn,
        samples: int | None = None,
        tokens: int | None = None,
        **unknown: NoReturn,
    ) -> None:
        """What the next backward's loss is made of: told before it, for each one; None is unknown.
        The sums over all workers are in last_round().spec.counts."""
        self._lane.contribute(*unnamed, samples=samples, tokens=tokens, **unknown)

    def sync_gradients(self) -> None:
        """Reduces the gradients that were accumulated, without another backward."""
        self._lane.sync_gradients()

    def last_round(self) -> RoundInfo | None:
        """What was done in the last round; None before the first one."""
        return self._lane.info

    def totals(self) -> Totals:
        """Bytes and seconds of all rounds so far."""
        return self._lane.totals
