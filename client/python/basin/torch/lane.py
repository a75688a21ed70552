# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The gradients of one optimizer, and the rounds that reduce them.

A parameter's .grad is one of
  none    nothing is known
  local   this worker's own gradient, not pushed yet (a backward under no_push, say)
  pushed  in the round in flight; its memory is the library's, to read, until the outcome
  held    the result of a round

At the start of an outermost backward what is held is put aside, so that the backward makes a
gradient of its own; after the verdict it is added to the result. So two backwards before a step
give the sum of two results, whatever the op and whoever joined between them.

Threads. One thread at a time runs backward and step.
"""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch.utils.hooks import RemovableHandle

from basin import _abi
from basin.client import Op
from basin.errors import Error, FailedPrecondition, OutcomeUnknown, Paused, Unsupported
from basin.torch import narrow, tensors
from basin.worker import Result, RoundInfo, Worker


@dataclass
class Totals:
    """What an optimizer's rounds have cost this worker so far. Times are seconds of the trainer's
    thread; what overlaps with the backward is in none of them."""

    rounds: int = 0
    bytes_pushed: int = 0
    bytes_received: int = 0
    push_seconds: float = 0.0
    wait_seconds: float = 0.0


class GradientLane:
    """Pushes gradients and puts results in their place. It waits; it never decides."""

    def __init__(
        self,
        worker: Worker,
        name: str,
        names: Mapping[torch.Tensor, str],
        op: Op,
        wire_dtype: torch.dtype | None,
        timeout: float | None,
    ) -> None:
        self._worker = worker
        self._process = os.getpid()
        self._name = name
        self._names = dict(names)
        self._op = op
        self._wire_dtype = wire_dtype
        self._timeout = timeout

        self._lane, _ = worker.register(name, _abi.GRADIENT, [])
        self._handles: dict[torch.Tensor, int] = {}
        self._hooks: dict[torch.Tensor, RemovableHandle] = {}

        self._pushing = True
        self._in_backward = False
        self._in_round = False
        self._refusal: Error | None = None
        self._pushed: dict[torch.Tensor, torch.Tensor] = {}
        self._local: set[torch.Tensor] = set()
        self._held: set[torch.Tensor] = set()
        self._aside: dict[torch.Tensor, torch.Tensor] = {}

        self._round_since_step = False
        self._steps = 0
        self.totals = Totals()
        self.info: RoundInfo | None = None  # Of the last round.
        self.scan()

    # ---- parameters

    def scan(self) -> None:
        """Takes parameters that can be reduced since the last scan: lazy ones that have got a
        shape, frozen ones that have been unfrozen."""
        new = [p for p in self._names if p not in self._hooks and self._can_be_reduced(p)]
        if new:
            specs = [tensors.spec_of(self._names[p], p) for p in new]
            _, handles = self._worker.register(self._name, _abi.GRADIENT, specs)
            for parameter, handle in zip(new, handles):
                self._handles[parameter] = handle
                self._hooks[parameter] = parameter.register_post_accumulate_grad_hook(self._ready)
        for parameter in self._hooks:
            hooks = getattr(parameter, "_post_accumulate_grad_hooks", None)
            if hooks is not None and len(hooks) > 1:
                raise Unsupported(
                    f"Parameter {self._names[parameter]} has another post-accumulate hook, which "
                    "would see or change the gradient before it is reduced (an optimizer fused "
                    "into the backward does that). Remove it, and use what .grad holds when "
                    "backward() has returned."
                )

    def _can_be_reduced(self, parameter: torch.Tensor) -> bool:
        if not parameter.requires_grad or torch.nn.parameter.is_lazy(parameter):
            return False
        tensors.check(self._names[parameter], parameter)
        return parameter.numel() > 0

    def add_parameter(self, parameter: torch.Tensor, name: str) -> None:
        self._names[parameter] = name

    def knows(self, parameter: torch.Tensor) -> bool:
        return parameter in self._names

    def close(self) -> None:
        for hook in self._hooks.values():
            hook.remove()
        self._hooks.clear()

    @contextlib.contextmanager
    def no_push(self) -> Iterator[None]:
        """Gradients of backwards within stay local: to accumulate micro-batches, or when another
        model's backward passes through this one."""
        before, self._pushing = self._pushing, False
        try:
            yield
        finally:
            self._pushing = before

    # ---- one backward

    def start_backward(self) -> None:
        """Puts aside what is held."""
        if self._in_round:
            raise FailedPrecondition(
                f"The last round of lane {self._name} has no outcome yet. Call wait_round() of the "
                "optimizer before the next backward."
            )
        self.scan()
        self._forget_what_was_zeroed()
        if self._pushing:
            for parameter in self._held & self._local:
                raise Unsupported(
                    f"Parameter {self._names[parameter]} holds a result with gradients of a "
                    "no_push backward added to it, and they cannot be told apart. Call step() or "
                    "zero_grad() between the two."
                )
            for parameter in self._hooks:
                if parameter.grad is None:
                    continue
                if parameter in self._held:
                    self._aside[parameter] = parameter.grad
                    parameter.grad = None
                else:
                    self._local.add(parameter)
            self._held.clear()
        self._in_backward = True

    def _forget_what_was_zeroed(self) -> None:
        for parameter in self._held | self._local | self._aside.keys():
            if parameter.grad is None:
                self._held.discard(parameter)
                self._local.discard(parameter)
                self._aside.pop(parameter, None)
        for parameter in self._held & self._local:
            # zero_grad(set_to_none=False) leaves no other trace.
            if parameter.grad is not None and not parameter.grad.any():
                self._held.discard(parameter)
                self._local.discard(parameter)

    def _ready(self, parameter: torch.Tensor) -> None:
        """The hook: a gradient has been accumulated."""
        if os.getpid() != self._process:
            return  # The client stayed with the parent.
        if not self._pushing or not self._in_backward:
            self._local.add(parameter)
            return
        if parameter in self._pushed:
            raise Unsupported(
                f"The gradient of parameter {self._names[parameter]} was accumulated twice in one "
                "backward (reentrant checkpointing does that). Use "
                "checkpoint(..., use_reentrant=False), or run the backward under no_push() and "
                "another one after it."
            )
        self._push(parameter)

    def _push(self, parameter: torch.Tensor) -> None:
        began = time.perf_counter()
        gradient = parameter.grad
        assert gradient is not None
        tensors.check(f"{self._names[parameter]}.grad", gradient)
        memory = gradient.detach().contiguous()
        if memory.untyped_storage().nbytes() != tensors.bytes_of(memory):
            # It shares its storage with others.
            memory = memory.clone()
            if gradient.is_contiguous():
                parameter.grad = memory
        self._begin()
        handle = self._handles[parameter]
        if self._wire_dtype is not None and memory.dtype == torch.float32:
            exponent = narrow.exponent_of(memory, self._wire_dtype)
            self._worker.push_narrow(
                self._lane, handle, memory.data_ptr(), tensors.DTYPES[self._wire_dtype], exponent
            )
            self.totals.bytes_pushed += tensors.bytes_of(memory) // 2
        else:
            self._worker.push(self._lane, handle, memory.data_ptr())
            self.totals.bytes_pushed += tensors.bytes_of(memory)
        self._pushed[parameter] = memory
        self._local.discard(parameter)
        self.totals.push_seconds += time.perf_counter() - began

    def _begin(self) -> None:
        if not self._in_round:
            self._worker.begin(self._lane, self._op, step=self._steps)
            self._in_round = True
            self._refusal = None

    def end_backward(self) -> bool:
        """Commits, if there is a round, without waiting. Returns whether there is one."""
        self._in_backward = False
        if not self._in_round:
            self._restore_aside()
            return False
        for parameter in list(self._local):
            # Accumulated before; this backward did not come by.
            if parameter.grad is not None:
                self._push(parameter)
        self._commit()
        return True

    def _commit(self) -> None:
        try:
            self._worker.commit(self._lane)
        except Error as error:
            self._refusal = error
            self._worker.withdraw(self._lane, str(error))

    def withdraw(self, reason: str) -> bool:
        """As end_backward(), for a backward that has failed."""
        started, self._in_backward = self._in_backward, False
        if not started:
            return False  # It failed before this lane came to it.
        if not self._in_round:
            self._restore_aside()
            return False
        self._worker.withdraw(self._lane, reason)
        return True

    def _restore_aside(self) -> None:
        for parameter, result in list(self._aside.items()):
            # Of an aborted round both are kept.
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
            result = self._worker.wait(self._lane, timeout)
        except (OutcomeUnknown, Paused, KeyboardInterrupt):
            # The library still reads the gradients: nobody may write to them.
            for parameter in self._pushed:
                parameter.grad = None
            raise
        except Error:
            # Nobody applies this round. The gradients are as they were.
            self._in_round = False
            for parameter, memory in self._pushed.items():
                if parameter.grad is None:
                    parameter.grad = memory
                self._local.add(parameter)
            self._pushed.clear()
            raise
        self._in_round = False
        self._round_since_step = True
        self.info = result.info
        with torch.no_grad():
            for parameter, handle in self._handles.items():
                self._assign(parameter, handle, result)
        self._pushed.clear()
        self._local.clear()
        self.totals.rounds += 1
        self.totals.wait_seconds += time.perf_counter() - began
        refusal = self._refusal or result.rejection
        if refusal is not None:
            raise refusal

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
        else:
            parameter.grad = before
        if parameter.grad is not None:
            self._held.add(parameter)

    def wait_round(self, timeout: float | None = None) -> None:
        """Waits again, after OutcomeUnknown or Paused; for ever, unless `timeout` seconds are
        given."""
        if not self._in_round:
            raise FailedPrecondition(f"Lane {self._name} has no round in flight. Do not wait.")
        self._settle(timeout)

    def retry_round(self) -> None:
        """Sends what an aborted round had, as the next round."""
        if self._in_round or not self._local:
            raise FailedPrecondition(
                f"Lane {self._name} has no gradients of an aborted round. Run backward() instead."
            )
        self._begin()
        for parameter in list(self._local):
            if parameter.grad is not None:
                self._push(parameter)
        self._commit()
        self.settle()

    # ---- one step

    def before_step(self) -> None:
        """Makes sure that .grad is the result of a round."""
        if os.getpid() != self._process:
            return
        if self._in_round:
            raise FailedPrecondition(
                f"step() was called on gradients of lane {self._name} that were pushed and have no "
                "outcome yet. Call it after backward() has returned; after OutcomeUnknown, call "
                "wait_round() of the optimizer first."
            )
        self._forget_what_was_zeroed()
        for parameter in self._local:
            if parameter.grad is not None and parameter.grad.any():
                raise FailedPrecondition(
                    f"step() was called on a gradient of parameter {self._names[parameter]} that "
                    "is this worker's own. Run the last backward outside of no_push(); after an "
                    "aborted round call retry_round() of the optimizer."
                )
        if self._round_since_step:
            return
        # The others have a round that this worker has nothing for.
        self.scan()
        for parameter in self._hooks:
            if parameter in self._held and parameter.grad is not None:
                self._aside[parameter] = parameter.grad
        self._begin()
        self._commit()
        self.settle()

    def after_step(self) -> None:
        self._round_since_step = False
        self._steps += 1
