# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A lane whose gradients are fractions and whose rounds a test defines."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from basin.errors import Error, InvalidArgument, OutcomeUnknown, RoundAborted, Unavailable
from basin.lane.deferred import Shares
from basin.lane.gradient import Gradient
from basin.lane.lane import Lane
from basin.spec import Counts, Op, RoundSpec, Weight


@dataclass(eq=False)
class Number:
    """A gradient of one element. A write increases its version, as for a tensor."""

    value: Fraction
    version: int = 0

    def write(self, value: Fraction) -> None:
        self.value = value
        self.version += 1


@dataclass(eq=False)
class Parameter:
    name: str
    frozen: bool = False
    grad: Number | None = None


@dataclass(eq=False)
class Optimizer:
    parameters: list[Parameter]

    def zero_grad(self, set_to_none: bool) -> None:
        for parameter in self.parameters:
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.write(Fraction(0))


@dataclass
class Round:
    """The other workers' part in a round of this worker.

    others:  the counted contributions, by name
    ending:  "result", "aborted" or "unknown", which becomes a result when it waits again
    late:    whether this worker's contribution is too late, and may be in the next round
    """

    others: list[dict[str, Fraction]] = field(default_factory=list)
    ending: str = "result"
    late: bool = False


AVERAGE = RoundSpec(Op.AVERAGE)
OF_MEANS = RoundSpec(Op.WEIGHTED_AVERAGE, weight_by=Weight.MICRO_BATCHES, contributes_sum=False)


class Calls:
    """What a lane has called, and the call that fails next.

    fails_at: its name
    failure:  with what; None: Unavailable
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.fails_at = ""
        self.failure: BaseException | None = None

    def note(self, name: str) -> None:
        self.names.append(name)
        if self.fails_at == name:
            self.fails_at = ""
            raise self.failure or Unavailable(f"{name} fails")


NumberGradient = Gradient[Parameter, Number]


class NumberStore:
    """
    all:     the parameters, some of which may be frozen
    far:     whether gradients are on a device
    """

    def __init__(self, all: list[Parameter], far: bool, calls: Calls) -> None:
        self._all = all
        self._far = far
        self._calls = calls
        self.own_hooks = True
        self.addable = True  # What is deferred.
        self.looks = 0  # At the numbers of a gradient.
        self.gradients: dict[Parameter, NumberGradient] = {}
        self.hooks: dict[str, Callable[[Parameter], None]] = {}

    def connect(
        self,
        hook_of: Callable[[NumberGradient], Callable[[Parameter], None]],
        reached: Callable[[Parameter], None],
    ) -> None:
        self._hook_of = hook_of

    def scan(self) -> bool:
        new = [p for p in self._all if not p.frozen and p not in self.gradients]
        for parameter in new:
            each = self.gradients[parameter] = NumberGradient(parameter, 1)
            self.hooks[parameter.name] = self._hook_of(each)
        return bool(new)

    def name_of(self, parameter: Parameter) -> str:
        return parameter.name

    def not_reduced(self, parameter: Parameter) -> str:
        raise NotImplementedError

    def parameters_of(self, optimizer: Optimizer) -> Iterator[Parameter]:
        return iter(optimizer.parameters)

    def check_optimizer(self, optimizer: Optimizer, call: str) -> None:
        pass

    def grad(self, parameter: Parameter) -> Number | None:
        return parameter.grad

    def set_grad(self, parameter: Parameter, gradient: Number | None) -> None:
        parameter.grad = gradient

    def held(self, gradients: Iterable[NumberGradient]) -> list[Number | None]:
        return [each.parameter.grad for each in gradients]

    def squared_norm(self, parameter: Parameter) -> float | None:
        return None

    def copy(self, gradient: Number) -> Number:
        return Number(gradient.value)

    def is_zero(self, gradient: Number) -> bool:
        self.looks += 1
        return gradient.value == 0

    def is_far(self, gradient: Number) -> bool:
        return self._far

    def look_later(self, gradients: Sequence[Number]) -> Callable[[], bool]:
        numbers = [Number(each.value) for each in gradients]
        return lambda: all(map(self.is_zero, numbers))

    def mark(self, gradient: Number) -> object:
        return gradient, gradient.version

    def is_as(self, gradient: Number, mark: Any) -> bool:
        marked, version = mark
        return marked is gradient and gradient.version == version

    def memory_of(self, gradients: Sequence[NumberGradient]) -> list[Number]:
        self._calls.note("memory_of")
        memory = [each.parameter.grad for each in gradients if each.parameter.grad is not None]
        assert len(memory) == len(gradients)
        return memory

    def computed(self, gradients: Sequence[NumberGradient]) -> list[Number]:
        found = [each.home if each.added else each.sent for each in gradients]
        return [Number(each.value) for each in found if each is not None]

    def can_add(self, gradients: Sequence[NumberGradient]) -> bool:
        return self.addable

    def add_deferred(
        self, gradients: Sequence[NumberGradient], memory: list[Number], shares: Shares
    ) -> list[Number]:
        sums = []
        for each, present in zip(gradients, memory, strict=True):
            value = present.value * Fraction(shares.present)
            if each.deferred is not None:
                value += each.deferred.value * Fraction(shares.deferred)
            each.home, each.added, each.deferred = each.parameter.grad, True, None
            sums.append(Number(value))
        return sums

    def scale_deferred(self, gradients: Sequence[NumberGradient], shares: Shares) -> list[Number]:
        scaled = []
        for each in gradients:
            assert each.deferred is not None
            scaled.append(Number(each.deferred.value * Fraction(shares.deferred)))
            each.deferred = None
        return scaled


class NumberRounds:
    """
    round_of: by number, from 0, what the others do
    lost:     why what was deferred is in no round, as often as that was told
    deferred: by round, the deferred gradients that its begin had
    told:     by delivered round, whether this worker's contribution is deferred
    counted:  this worker's contributions that rounds have counted
    passed:   whether others have made a round since that this worker had not begun
    """

    loss_scale = 1.0

    def __init__(self, round_of: Callable[[int], Round], calls: Calls) -> None:
        self._round_of = round_of
        self._calls = calls
        self.sent: list[dict[str, Fraction]] = []  # The counts by round.
        self.counts: list[Counts] = []
        self.deferred: list[int] = []
        self.lost: list[str] = []
        self.told: list[bool] = []
        self.counted: list[dict[str, Fraction]] = []
        self.passed = False
        self._late = False
        self._in_flight: dict[str, Fraction] | None = None
        self._waited = False
        self._result: dict[str, Fraction] = {}
        self._last_was_zero = True

    def last_was_zero(self) -> bool:
        return self._last_was_zero

    def has_counted(self) -> bool:
        return bool(self.sent[-1]) and not self._late

    def may_defer(self) -> bool:
        return self._late

    def lose_deferred(self, why: str) -> None:
        self.lost.append(why)

    def begin(self, gradients: Sequence[NumberGradient], spec: RoundSpec) -> int:
        self._calls.note("begin")
        assert self._in_flight is None
        if spec.deferred > 0 and self.passed:
            raise InvalidArgument("The last verdict is that of another round.")
        self._in_flight = {}
        self._waited = False
        self.counts.append(spec.counts)
        self.deferred.append(spec.deferred)
        self._late = False
        return spec.step

    def after_begin(self) -> None:
        self._calls.note("after_begin")

    def report_batch(self, samples: int, target: int) -> bool:
        return samples >= target

    def send(self, gradients: Sequence[NumberGradient]) -> None:
        self._calls.note("send")
        for each in gradients:
            name = each.parameter.name
            assert self._in_flight is not None and name not in self._in_flight
            assert each.sent is not None and each.is_sent()
            self._in_flight[name] = each.sent.value

    def commit(self) -> Error | None:
        self._calls.note("commit")
        assert self._in_flight is not None
        self.sent.append(self._in_flight)
        return None

    def withdraw(self, reason: str) -> None:
        self._calls.names.append("withdraw")
        assert len(self.sent) < len(self.counts), "a round is committed or withdrawn, once"
        self.sent.append({})
        self._in_flight = None

    def outcome(self, timeout: float | None) -> None:
        number = len(self.counts) - 1
        assert len(self.sent) == len(self.counts), "a round is committed or withdrawn, once"
        of_others = self._round_of(number)
        if of_others.ending == "unknown" and not self._waited:
            self._waited = True
            raise OutcomeUnknown("no verdict arrived in time")
        counted = [dict(each) for each in of_others.others]
        gradients = len(counted)
        if self._in_flight is not None:
            self._late = of_others.late
            if not self._late:
                counted.append(self._in_flight)
                gradients += 1 + self.deferred[-1]
        mine, self._in_flight = self._in_flight, None
        if of_others.ending == "aborted" or not counted:
            raise RoundAborted("nobody applies it")
        if mine is not None and not self._late:
            self.counted.append(mine)
        names = {name for each in counted for name in each}
        zero = Fraction(0)
        self._result = {
            name: sum((each.get(name, zero) for each in counted), zero) / gradients
            for name in names
        }
        self._last_was_zero = not any(self._result.values())

    def deliver(self, gradients: Sequence[NumberGradient]) -> list[NumberGradient]:
        delivered = [each for each in gradients if each.parameter.name in self._result]
        for each in delivered:
            before = each.aside.value if each.aside else 0
            each.parameter.grad = Number(self._result[each.parameter.name] + before)
        return delivered

    def delivered(
        self,
        gradients: Sequence[NumberGradient],
        micro_batches: int,
        refusal: Exception | None,
        *,
        deferred: bool,
    ) -> None:
        self.told.append(deferred)
        if refusal is not None:
            raise refusal

    def start_again(self, *, in_round: bool) -> None:
        raise NotImplementedError


class NumberLane(Lane[Parameter, Number]):
    """batch: how many gradients are sent together in a backward; see NumberStore, NumberRounds."""

    store: NumberStore
    rounds: NumberRounds

    def __init__(
        self,
        parameters: list[Parameter],
        round_of: Callable[[int], Round],
        passes: int = 1,
        spec: RoundSpec = AVERAGE,
        batch: int = 2,
        far: bool = False,
    ) -> None:
        self.calls = Calls()
        super().__init__(
            NumberStore(parameters, far, self.calls),
            NumberRounds(round_of, self.calls),
            "gradients",
            spec,
            passes,
            "the optimizer",
            batch_bytes=batch,
            timeout=None,
        )
        self.gradients.scan()

    # ---- actions of the user

    def backward(self, made: list[tuple[Parameter, Fraction]], fails_after: int | None) -> None:
        """A backward of the whole process, which fails after this many gradients."""
        try:
            self.start_backward()
            for count, (parameter, value) in enumerate(made):
                if count == fails_after:
                    raise ZeroDivisionError
                if parameter.grad is None:
                    parameter.grad = Number(value)
                else:
                    parameter.grad.write(parameter.grad.value + value)
                self.store.hooks[parameter.name](parameter)
            if fails_after is not None and fails_after >= len(made):
                raise ZeroDivisionError
            self.end_hooks()
        except BaseException as error:
            if self.withdraw(repr(error)):
                with contextlib.suppress(Error):
                    self.await_outcome()
            raise
        if self.end_backward():
            self.await_outcome()

    def step(self, optimizer: Optimizer) -> list[Fraction | None]:
        """Returns the applied gradients."""
        self.reduce_for(optimizer, "step()")
        applied = [None if p.grad is None else p.grad.value for p in optimizer.parameters]
        self.after_step(optimizer)
        return applied
