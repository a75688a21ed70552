# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""basin.lane without a framework: its tables, single actions, and random sequences of actions
compared with a reference of DistributedDataParallel's semantics.

Usage: test_lane.py LIBBASIN
The seed of each sequence is printed. BASIN_LANE_SEED replays one, BASIN_LANE_SEQUENCES runs more.
"""

import contextlib
import itertools
import os
import random
import sys
import unittest
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from jobs import require

require("numpy")
os.environ["BASIN_LIBRARY"] = sys.argv[1]

from basin.errors import (  # noqa: E402 - after the library is named
    Error,
    FailedPrecondition,
    InvalidArgument,
    OutcomeUnknown,
    RoundAborted,
    Unavailable,
    Unsupported,
)
from basin.lane.actions import DEEDS, Action, Deed, Situation  # noqa: E402
from basin.lane.deferred import can_be_added  # noqa: E402
from basin.lane.gradient import TRANSITIONS, Event, Gradient, State  # noqa: E402
from basin.spec import Op, RoundSpec, Weight  # noqa: E402
from number_lane import (  # noqa: E402
    AVERAGE,
    OF_MEANS,
    Number,
    NumberLane,
    Optimizer,
    Parameter,
    Round,
)

SEED = int(os.environ.get("BASIN_LANE_SEED", random.SystemRandom().randrange(10**9)))
SEQUENCES = int(os.environ.get("BASIN_LANE_SEQUENCES", 400))
ZERO, HALF = Fraction(0), Fraction(1, 2)
RoundOf = Callable[[int], Round]


# ---- the reference


@dataclass
class Reference:
    """The meaning of one worker's script, as sums: a local gradient is the sum of backwards that
    were not reduced, and a result is the sum of the rounds since it was zeroed. A round averages
    the unreduced gradients of all workers. This does not depend on a lane's implementation.

    optimizers: names of parameters by optimizer
    """

    optimizers: dict[str, list[str]]
    passes: int
    own: dict[str, Fraction] = field(default_factory=dict)
    result: dict[str, Fraction] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)  # Local gradients, unchanged since a backward.
    noted: set[str] = field(default_factory=set)  # Local gradients after the last backward.
    clipped: set[str] = field(default_factory=set)  # Those of them that were clipped since.
    stale: set[str] = field(default_factory=set)  # Results that were clipped after their step.
    applied: set[str] = field(default_factory=set)  # Results that a step has applied.
    micro_batches: int = 0
    half: bool = False
    rounds: int = 0
    begun: int = 0
    left_out: int = 0
    last_was_zero: bool = True
    stepped: dict[str, int] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)  # Parameters that were not frozen once.
    shown: set[str] = field(default_factory=set)  # Results at the last action.
    in_flight: set[str] | None = None  # Removed from .grad.
    in_flight_half: bool = False
    in_flight_micro_batches: int = 0
    sent: list[dict[str, Fraction]] = field(default_factory=list)

    def grad(self, name: str) -> Fraction | None:
        if self.in_flight is not None:  # Results are removed from .grad too.
            return None if name in self.in_flight else self.own.get(name)
        return self.own.get(name, self.result.get(name))

    def counts(self, name: str) -> bool:
        return name in self.own and (self.own[name] != 0 or name in self.made)

    def any_own(self) -> bool:
        return any(self.counts(name) for name in self.own)

    # ---- actions of the user

    def zero_grad(self, optimizer: str, set_to_none: bool) -> None:
        for name in self.optimizers[optimizer]:
            was_own = name in self.own
            if set_to_none:
                self.own.pop(name, None)
                self.result.pop(name, None)
            elif was_own:
                self.own[name] = ZERO
                self.result.pop(name, None)
            elif name in self.result:
                self.result[name] = ZERO
            self.made.discard(name)

    def clip(self, name: str) -> None:
        if self.own.get(name):
            self.own[name] *= HALF
            if name in self.noted:
                self.clipped.add(name)
        elif name not in self.own and self.result.get(name):
            self.result[name] *= HALF
            if name in self.applied:
                self.stale.add(name)

    def look(self, trainable: set[str]) -> None:
        """An action detects what was zeroed since the previous one."""
        self.known |= trainable
        had, self.shown = self.shown, set(self.result)
        left = had & self.shown
        some = any(self.result[name] or name in self.own for name in left)
        if had and not some and not (left and self.last_was_zero):
            self.left_out = self.rounds
        if not self.any_own():
            self.micro_batches, self.half = 0, False

    def disown(self) -> None:
        """What was written after a step is local."""
        for name in self.stale & self.result.keys():
            if self.result[name] != 0 and name not in self.own:
                self.own[name] = self.result.pop(name)
                self.shown.discard(name)

    def note(self, came: set[str]) -> None:
        self.made |= came
        self.noted = set(self.own)
        self.clipped.clear()

    def backward(
        self,
        made: list[tuple[str, Fraction]],
        fails_after: int | None,
        sync: bool,
        trainable: set[str],
        round_of: RoundOf,
    ) -> str:
        if self.in_flight is not None:
            return "FailedPrecondition"
        self.look(trainable)
        fails = fails_after is not None
        came = made[:fails_after]
        names = {name for name, _ in came}
        if not came:
            return "ZeroDivisionError" if fails else ""
        sends = sync and self.micro_batches + 1 >= self.passes
        applied = self.rounds in self.stepped.values() or not any(self.result.values())
        another = self.passes > 1 and not applied and not self.half
        refused = self.half or another
        if another and self.micro_batches == 0:
            self.own.clear()
            self.note(set())
            return "ZeroDivisionError" if fails else "FailedPrecondition"
        for name, value in came:
            self.own[name] = self.own.get(name, ZERO) + value
        if sends and not refused:
            self.micro_batches += 1
            ended = self.reduce(round_of, names if fails else None)
            return "ZeroDivisionError" if fails else ended
        self.note(names)
        if refused or fails:
            self.half = True
        else:
            self.micro_batches += 1
        if fails:
            return "ZeroDivisionError"
        return "FailedPrecondition" if refused else ""

    def step(self, optimizer: str, sync: bool, trainable: set[str], round_of: RoundOf) -> str:
        if self.in_flight is not None or not sync:
            return "FailedPrecondition"
        self.look(trainable)
        self.disown()
        window = self.passes > 1 and self.micro_batches > 0
        own = [
            name
            for name in (list(self.own) if window else self.optimizers[optimizer])
            if self.counts(name)
        ]
        if self.half or (own and not window):
            return "FailedPrecondition"
        if own and any(self.own.get(name) for name in self.clipped):
            return "FailedPrecondition"
        late = self.rounds <= max(self.stepped.get(optimizer, 0), self.left_out)
        if (own or late) and (error := self.reduce(round_of)):
            return error
        self.stepped[optimizer] = self.rounds
        mine = set(self.optimizers[optimizer])
        self.applied |= (self.result.keys() & mine) - self.own.keys()
        self.stale -= mine
        return ""

    def sync_gradients(self, sync: bool, trainable: set[str], round_of: RoundOf) -> str:
        if self.in_flight is not None or not sync:
            return "FailedPrecondition"
        self.look(trainable)
        self.disown()
        if self.half:
            return "FailedPrecondition"
        stepped = max(self.stepped.values(), default=0)
        if self.any_own() or self.rounds <= max(stepped, self.left_out):
            return self.reduce(round_of)
        return ""

    def retry_round(self, round_of: RoundOf) -> str:
        if self.in_flight is not None:
            return "FailedPrecondition"
        self.look(set())
        if self.half or not self.any_own():
            return "FailedPrecondition"
        return self.reduce(round_of)

    def wait_round(self, round_of: RoundOf) -> str:
        if self.in_flight is None:
            return "FailedPrecondition"
        return self.end(round_of(len(self.sent) - 1), again=True)

    # ---- a round

    def reduce(self, round_of: RoundOf, failed: set[str] | None = None) -> str:
        """A round of all local gradients; withdrawn if the backward that began it has
        `failed` after these."""
        self.in_flight = set(self.own) if failed is None else failed
        self.in_flight_half = failed is not None
        self.in_flight_micro_batches, self.micro_batches = self.micro_batches, 0
        self.sent.append(dict(self.own) if failed is None else {})
        return self.end(round_of(len(self.sent) - 1), again=False)

    def end(self, of_others: Round, again: bool) -> str:
        assert self.in_flight is not None
        if of_others.ending == "unknown" and not again:
            return "OutcomeUnknown"
        came, self.in_flight = self.in_flight, None
        counted = list(of_others.others) + ([] if self.in_flight_half else [self.own])
        if of_others.ending == "aborted" or not counted:
            self.note(came)
            self.half = self.in_flight_half
            self.micro_batches = self.in_flight_micro_batches
            return "RoundAborted"
        names = {name for each in counted for name in each}
        average = {
            name: sum((each.get(name, ZERO) for each in counted), ZERO) / len(counted)
            for name in names
        }
        for name in names & self.known:
            self.result[name] = self.result.get(name, ZERO) + average[name]
        self.own.clear()
        for marked in (self.made, self.noted, self.clipped, self.stale, self.applied):
            marked.clear()
        self.shown = set(self.result)
        self.rounds += 1
        self.last_was_zero = not any(average.values())
        return ""


# ---- random sequences


class Sequence:
    """One random script of one worker, run by a lane and by the reference."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.draw = random.Random(seed)
        self.world_size = self.draw.choice((1, 2, 3, 5))
        self.passes = self.draw.choice((1, 1, 2, 3))
        self.parameters = [Parameter(name, self.draw.random() < 0.2) for name in "abcd"]
        self.optimizers = {
            "first": Optimizer(self.parameters[:2]),
            "second": Optimizer(self.parameters[2:]),
        }
        batch = self.draw.choice((1, 2, 100))
        # Gradients on a device have the same semantics.
        far = random.Random(f"{seed}/far").random() < 0.5
        self.lane = NumberLane(self.parameters, self.round_of, self.passes, batch=batch, far=far)
        self.reference = Reference(
            {name: [p.name for p in o.parameters] for name, o in self.optimizers.items()},
            self.passes,
            known=self.trainable(),
        )
        self.rounds: dict[int, Round] = {}
        self.done: list[str] = []

    def trainable(self) -> set[str]:
        return {parameter.name for parameter in self.parameters if not parameter.frozen}

    def round_of(self, number: int) -> Round:
        """The same for both."""
        if number not in self.rounds:
            draw = random.Random(f"{self.seed}/{number}")
            if draw.random() < 0.2:  # Workers have left or joined.
                self.world_size = draw.choice((1, 2, 3, 5))
            others = [
                {p.name: self.value(draw) for p in self.parameters if draw.random() < 0.6}
                for _ in range(self.world_size - 1)
            ]
            ending = draw.choices(("result", "aborted", "unknown"), (8, 1, 1))[0]
            self.rounds[number] = Round(others, ending)
        return self.rounds[number]

    @staticmethod
    def value(draw: random.Random) -> Fraction:
        """Mostly not zero, with sums that are rarely zero."""
        if draw.random() < 0.15:
            return ZERO
        return Fraction(draw.randrange(1, 1 << 30) * draw.choice((1, -1)), 1 << draw.randrange(8))

    def run(self, actions: int) -> None:
        for _ in range(actions):
            in_flight = self.reference.in_flight is not None
            kinds = {
                self.backward: 10,
                self.step: 5,
                self.sync_gradients: 2,
                self.retry_round: 1,
                self.wait_round: 20 if in_flight else 1,
                # Writes while the library reads are not tested here.
                self.zero_grad: 0 if in_flight else 4,
                self.clip: 0 if in_flight else 1,
                self.freeze: 1,
            }
            self.draw.choices(list(kinds), list(kinds.values()))[0]()

    def compare(self, action: str, call: Any, expected: str) -> None:
        self.done.append(f"{action}: {expected or 'fine'}")
        got = ""
        try:
            call()
        except (Error, ZeroDivisionError) as error:
            got = type(error).__name__
        except Exception as error:
            raise AssertionError(f"{self}") from error
        assert got == expected, f"{self}\nwas {got or 'fine'}"
        grads = {p.name: None if p.grad is None else p.grad.value for p in self.parameters}
        wanted = {p.name: self.reference.grad(p.name) for p in self.parameters}
        assert grads == wanted, f"{self}\n.grad is {grads} and should be {wanted}"
        sent, to_send = self.lane.rounds.sent, self.reference.sent
        assert sent == to_send, f"{self}\nsent {sent[-1:]} and should {to_send[-1:]}"

    def __str__(self) -> str:
        done = "\n  ".join(self.done)
        return (
            f"BASIN_LANE_SEED={self.seed} BASIN_LANE_SEQUENCES=1, passes {self.passes}:\n  {done}"
        )

    # ---- actions

    def quiet(self) -> bool:
        return self.draw.random() < 0.35

    def call(self, quiet: bool, call: Any, *arguments: Any) -> Any:
        def called() -> None:
            with self.lane.usage.no_sync() if quiet else contextlib.nullcontext():
                call(*arguments)

        return called

    def backward(self) -> None:
        quiet = self.quiet()
        reached = [p for p in self.parameters if not p.frozen and self.draw.random() < 0.7]
        self.draw.shuffle(reached)
        made = [(p, self.value(self.draw)) for p in reached]
        fails_after = self.draw.randrange(len(made) + 1) if self.draw.random() < 0.15 else None
        named = [(p.name, value) for p, value in made]
        expected = self.reference.backward(
            named, fails_after, not quiet, self.trainable(), self.round_of
        )
        self.compare(
            f"backward of {', '.join(f'{n} {v}' for n, v in named)}"
            f"{'' if fails_after is None else f' that fails after {fails_after}'}"
            f"{' under no_sync()' if quiet else ''}",
            self.call(quiet, self.lane.backward, made, fails_after),
            expected,
        )

    def step(self) -> None:
        quiet = self.draw.random() < 0.1
        name = self.draw.choice(list(self.optimizers))
        expected = self.reference.step(name, not quiet, self.trainable(), self.round_of)
        call = self.call(quiet, self.lane.step, self.optimizers[name])
        self.compare(f"step of the {name}", call, expected)

    def sync_gradients(self) -> None:
        quiet = self.draw.random() < 0.1
        expected = self.reference.sync_gradients(not quiet, self.trainable(), self.round_of)
        self.compare("sync_gradients", self.call(quiet, self.lane.sync_gradients), expected)

    def retry_round(self) -> None:
        self.compare(
            "retry_round", self.lane.retry_round, self.reference.retry_round(self.round_of)
        )

    def wait_round(self) -> None:
        expected = self.reference.wait_round(self.round_of)
        self.compare("wait_round", self.call(False, self.lane.wait_round), expected)

    def zero_grad(self) -> None:
        names = self.draw.choice((["first"], ["second"], ["first", "second"], ["first", "second"]))
        set_to_none = self.draw.random() < 0.5
        for name in names:
            self.reference.zero_grad(name, set_to_none)
            call = self.call(False, self.optimizers[name].zero_grad, set_to_none)
            self.compare(f"zero_grad of the {name} to {'None' if set_to_none else '0'}", call, "")

    def clip(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None and parameter.grad.value != 0:
                parameter.grad.write(parameter.grad.value / 2)
            self.reference.clip(parameter.name)
        self.compare("clip", lambda: None, "")

    def freeze(self) -> None:
        parameter = self.draw.choice(self.parameters)
        parameter.frozen = not parameter.frozen
        self.done.append(f"{'freeze' if parameter.frozen else 'unfreeze'} {parameter.name}")


# ---- single actions


class TablesTest(unittest.TestCase):
    def test_each_action_has_a_row_for_each_stage(self) -> None:
        for action in Action:
            self.assertEqual(set(Situation), set(DEEDS[action]), action)
        used = {deed for row in DEEDS.values() for deed in row.values()}
        self.assertEqual(set(Deed), used)

    def test_an_event_that_a_gradient_cannot_have_is_an_error(self) -> None:
        parameter = Parameter("a")
        lane = NumberLane([parameter], lambda _: Round())
        for state in State:
            for event in Event:
                each: Gradient[Parameter, Number] = Gradient(parameter, 1)
                each.state = state
                if (state, event) in TRANSITIONS:
                    self.assertTrue(each.can(event))
                    continue
                with self.assertRaisesRegex(AssertionError, f"{state.name} cannot {event.name}"):
                    each.on(event, lane.store)
        self.assertEqual(set(State), {state for state, _ in TRANSITIONS})
        self.assertEqual(set(State), {state for state, _ in TRANSITIONS.values()})

    def test_no_framework_is_loaded(self) -> None:
        self.assertNotIn("torch", sys.modules)


class ActionsTest(unittest.TestCase):
    """One worker, with another one that contributes 10 to each parameter."""

    def setUp(self) -> None:
        self.parameters = [Parameter("a"), Parameter("b")]
        self.optimizer = Optimizer(self.parameters)
        self.round = Round([{"a": Fraction(10), "b": Fraction(10)}])
        self.lane = NumberLane(self.parameters, lambda _: self.round)

    def backward(self, *values: int, fails_after: int | None = None) -> None:
        made = [(p, Fraction(value)) for p, value in zip(self.parameters, values)]
        self.lane.backward(made, fails_after)

    def grads(self) -> list[int | None]:
        return [None if p.grad is None else int(p.grad.value) for p in self.parameters]

    def test_zeros_that_a_backward_made_are_no_zero_grad(self) -> None:
        self.backward(2, 4)
        with self.lane.usage.no_sync():
            self.backward(0, 0)
        self.backward(2, 4)
        self.assertEqual([12, 14], self.grads(), "the sum of two results")

    def test_zeros_that_a_backward_made_are_sent_by_hand(self) -> None:
        self.backward(2, 4)
        self.lane.step(self.optimizer)
        self.backward(2, 4)
        with self.lane.usage.no_sync():
            self.backward(0, 0)
        self.lane.sync_gradients()
        self.assertEqual([{"a": 2, "b": 4}] * 2 + [{"a": 0, "b": 0}], self.lane.rounds.sent)

    def test_zeros_that_a_backward_made_are_applied_by_no_step(self) -> None:
        with self.lane.usage.no_sync():
            self.backward(0, 0)
        with self.assertRaisesRegex(FailedPrecondition, "that is local"):
            self.lane.step(self.optimizer)

    def test_zeros_of_a_backward_that_failed_are_half_a_gradient(self) -> None:
        with self.lane.usage.no_sync(), self.assertRaises(ZeroDivisionError):
            self.backward(0, 0, fails_after=1)
        for call in (self.lane.sync_gradients, self.lane.retry_round):
            with self.assertRaisesRegex(FailedPrecondition, "part of a failed backward"):
                call()
        self.optimizer.zero_grad(set_to_none=False)
        self.lane.sync_gradients()
        self.assertEqual([5, 5], self.grads())

    def test_zero_grad_after_zeros_that_a_backward_made(self) -> None:
        for set_to_none in (False, True):
            self.setUp()
            self.backward(2, 4)
            with self.lane.usage.no_sync():
                self.backward(0, 0)
            self.optimizer.zero_grad(set_to_none)
            self.backward(2, 4)
            self.assertEqual([6, 7], self.grads())

    def test_a_step_that_is_left_out_with_own_gradients_is_left_out(self) -> None:
        # A worker without data for the second backward would begin a round, and wait.
        self.backward(2, 4)
        with self.lane.usage.no_sync():
            self.backward(2, 4)
        self.optimizer.zero_grad(set_to_none=True)
        self.lane.step(self.optimizer)
        self.assertEqual(2, len(self.lane.rounds.sent))

    def test_a_backward_does_not_look_at_gradients_that_are_on_a_device(self) -> None:
        for passes, set_to_none in itertools.product((1, 3), (True, False)):
            with self.subTest(passes=passes, set_to_none=set_to_none):
                self.setUp()
                self.lane = NumberLane(self.parameters, lambda _: self.round, passes, far=True)
                for _ in range(3):
                    self.lane.store.looks = 0
                    with self.lane.usage.no_sync():
                        self.backward(2, 4)
                        self.backward(2, 0)
                    self.backward(2, 4)
                    self.assertEqual(0, self.lane.store.looks)
                    self.assertEqual([8, 9], self.grads())
                    self.lane.step(self.optimizer)
                    self.optimizer.zero_grad(set_to_none)

    def test_an_error_between_begin_and_commit_withdraws(self) -> None:
        for call in ("after_begin", "memory_of", "send", "commit"):
            with self.subTest(call):
                self.setUp()
                with self.lane.usage.no_sync():
                    self.backward(2, 4)
                self.lane.calls.fails_at = call
                with self.assertRaisesRegex(Unavailable, f"{call} fails"):
                    self.lane.sync_gradients()
                self.assertEqual([10, 10], self.grads(), "the result of the others")
                self.assertEqual("withdraw", self.lane.calls.names[-1])
                self.lane.step(self.optimizer)
                self.optimizer.zero_grad(set_to_none=True)
                self.backward(2, 4)
                self.assertEqual([6, 7], self.grads())

    def test_an_error_after_the_backward_withdraws(self) -> None:
        for call in ("memory_of", "send", "commit"):
            with self.subTest(call):
                self.setUp()
                with self.lane.usage.no_sync():
                    self.backward(0, 4)
                self.lane.start_backward()
                self.parameters[0].grad = Number(Fraction(2))
                self.lane.store.hooks["a"](self.parameters[0])
                self.lane.calls.fails_at = call
                self.assertTrue(self.lane.end_backward(), "other lanes commit meanwhile")
                with self.assertRaisesRegex(Unavailable, f"{call} fails"):
                    self.lane.await_outcome()
                self.assertEqual([10, 10], self.grads())
                self.lane.step(self.optimizer)

    def test_a_gradient_is_marked_before_it_is_sent(self) -> None:
        # Ctrl-C may come right after the library has got the memory.
        self.round.ending = "unknown"
        self.lane.start_backward()
        self.parameters[0].grad = Number(Fraction(2))
        self.lane.calls.fails_at, self.lane.calls.failure = "send", KeyboardInterrupt()
        with self.assertRaises(KeyboardInterrupt):
            self.lane.store.hooks["a"](self.parameters[0])
        self.assertTrue(self.lane.withdraw("it was interrupted"))
        with self.assertRaises(OutcomeUnknown):
            self.lane.await_outcome()
        self.assertEqual([None, None], self.grads(), "nothing may write to what may be read")
        self.lane.wait_round()
        self.assertEqual([10, 10], self.grads())

    def test_what_came_before_a_failure_is_in_the_round_though_its_batch_is_not_full(self) -> None:
        self.lane = NumberLane(self.parameters, lambda _: self.round, batch=100)
        self.round.ending = "unknown"
        with self.assertRaises(ZeroDivisionError):
            self.backward(2, 4, fails_after=2)
        self.assertEqual([None, None], self.grads())
        self.lane.wait_round()
        self.assertEqual([10, 10], self.grads(), "the result of the others")

    def test_a_gradient_that_comes_twice_is_an_error_in_any_batch(self) -> None:
        for batch in (1, 2, 100):
            with self.subTest(batch):
                self.setUp()
                self.lane = NumberLane(self.parameters, lambda _: self.round, batch=batch)
                made = [(self.parameters[i], Fraction(1)) for i in (0, 1, 1)]
                with self.assertRaisesRegex(Unsupported, "of parameter b was accumulated twice"):
                    self.lane.backward(made, None)
                self.assertEqual([10, 10], self.grads(), "the result of the others")

    def test_an_error_between_begin_and_commit_on_all_workers_keeps_the_gradients(self) -> None:
        self.round = Round([])
        self.backward(1, 1)
        with self.lane.usage.no_sync():
            self.backward(2, 4)
        self.lane.calls.fails_at = "send"
        with self.assertRaisesRegex(Unavailable, "send fails"):
            self.lane.sync_gradients()
        self.assertEqual([2, 4], self.grads())
        self.lane.retry_round()
        self.assertEqual([3, 5], self.grads())

    def test_an_error_of_begin_changes_nothing(self) -> None:
        self.backward(2, 4)
        self.lane.step(self.optimizer)
        self.lane.calls.fails_at = "begin"
        with self.assertRaisesRegex(Unavailable, "begin fails"):
            self.lane.step(self.optimizer)
        self.assertEqual([6, 7], self.grads())
        self.assertEqual(1, len(self.lane.rounds.sent))
        self.lane.step(self.optimizer)
        self.assertEqual([11, 12], self.grads())

    def test_a_full_window_is_as_it_was_after_a_backward_that_was_refused(self) -> None:
        self.lane = NumberLane(self.parameters, lambda _: self.round, spec=OF_MEANS)
        self.backward(2, 4)
        with self.lane.usage.no_sync():
            self.backward(4, 0)
        for fails_after in (None, 1):
            with self.assertRaises((InvalidArgument, ZeroDivisionError)):
                self.backward(100, 100, fails_after=fails_after)
            self.assertEqual([4, 0], self.grads())
        self.lane.sync_gradients()
        self.assertEqual([6 + 7, 7 + 5], self.grads())

    def test_a_round_without_an_outcome_is_waited_for_again(self) -> None:
        self.round.ending = "unknown"
        with self.assertRaises(OutcomeUnknown):
            self.backward(2, 4)
        self.assertEqual([None, None], self.grads())
        for call in (self.lane.sync_gradients, self.lane.retry_round, lambda: self.backward(1)):
            with self.assertRaises(FailedPrecondition):
                call()
        self.lane.wait_round()
        self.assertEqual([6, 7], self.grads())

    def test_an_aborted_round_is_sent_again(self) -> None:
        self.round.ending = "aborted"
        with self.assertRaises(RoundAborted):
            self.backward(2, 0)
        self.assertEqual([2, 0], self.grads())
        with self.assertRaisesRegex(FailedPrecondition, "that is local"):
            self.lane.step(self.optimizer)
        self.round.ending = "result"
        self.lane.retry_round()
        self.assertEqual([6, 5], self.grads())
        self.assertEqual([1, 1], [counts.micro_batches for counts in self.lane.rounds.counts])


class DeferredTest(unittest.TestCase):
    """One worker whose contribution to the first round is too late, and another one that
    contributes 10 to each parameter."""

    def setUp(self) -> None:
        self.make(AVERAGE, 1, 2)

    def make(self, spec: RoundSpec, *late: int, samples: int | None = None) -> None:
        self.parameters = [Parameter("a"), Parameter("b")]
        self.optimizer = Optimizer(self.parameters)
        self.round = Round([{"a": Fraction(10), "b": Fraction(10)}], late=True)
        self.lane = NumberLane(self.parameters, lambda _: self.round, spec=spec)
        self.backward(*late, samples=samples)
        self.assertEqual([10, 10], self.grads())
        self.assertEqual([True], self.lane.rounds.told)
        self.round.late = False

    def backward(self, *values: int, samples: int | None = None) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        if samples is not None:
            self.lane.contribute(samples=samples)
        made = [(p, Fraction(value)) for p, value in zip(self.parameters, values)]
        self.lane.backward(made, None)

    def grads(self) -> list[Fraction | None]:
        return [None if p.grad is None else p.grad.value for p in self.parameters]

    def test_the_next_contribution_has_it_once(self) -> None:
        self.backward(4, 5)
        self.assertEqual([Fraction(10 + 4 + 1, 3), Fraction(10 + 5 + 2, 3)], self.grads())
        self.assertEqual([0, 1], self.lane.rounds.deferred)
        self.assertEqual(2, self.lane.rounds.counts[1].micro_batches)
        self.backward(4, 6)
        self.assertEqual([7, 8], self.grads())
        self.assertEqual([0, 1, 0], self.lane.rounds.deferred)
        self.assertEqual([], self.lane.rounds.lost)

    def test_it_is_sent_though_the_next_backward_does_not_reach_its_parameter(self) -> None:
        self.backward(4)
        self.assertEqual([Fraction(10 + 4 + 1, 3), Fraction(10 + 2, 3)], self.grads())

    def test_it_is_sent_though_there_is_no_next_backward(self) -> None:
        self.lane.step(self.optimizer)
        self.optimizer.zero_grad(set_to_none=True)
        self.lane.sync_gradients()
        self.assertEqual([Fraction(10 + 1, 3), Fraction(10 + 2, 3)], self.grads())
        self.assertEqual(1, self.lane.rounds.counts[1].micro_batches)

    def test_one_that_is_late_again_loses_it_and_is_deferred_alone(self) -> None:
        self.round.late = True
        self.backward(4, 5)
        self.assertEqual([10, 10], self.grads())
        self.assertRegex("".join(self.lane.rounds.lost), "too late")
        self.assertEqual([True, True], self.lane.rounds.told)
        self.round.late = False
        self.backward(7, 8)
        self.assertEqual([Fraction(10 + 7 + 4, 3), Fraction(10 + 8 + 5, 3)], self.grads())

    def test_an_aborted_round_loses_it_and_keeps_its_own_gradients(self) -> None:
        self.round.ending = "aborted"
        with self.assertRaises(RoundAborted):
            self.backward(4, 5)
        self.assertEqual([4, 5], self.grads())
        self.assertRegex("".join(self.lane.rounds.lost), "not committed")
        self.round.ending = "result"
        self.lane.retry_round()
        self.assertEqual([7, Fraction(15, 2)], self.grads())
        self.assertEqual([0, 1, 0], self.lane.rounds.deferred)

    def test_a_contribution_that_is_withdrawn_loses_it(self) -> None:
        self.lane.calls.fails_at = "commit"
        with self.assertRaises(Unavailable):
            self.backward(4, 5)
        self.assertEqual([10, 10], self.grads())
        self.assertRegex("".join(self.lane.rounds.lost), "withdrawn")
        self.backward(4, 6)
        self.assertEqual([7, 8], self.grads())

    def test_another_parameter_drops_it(self) -> None:
        self.lane.store.addable = False
        self.backward(4, 6)
        self.assertEqual([7, 8], self.grads())
        self.assertRegex("".join(self.lane.rounds.lost), "a parameter has another dtype")
        self.assertEqual([0, 0], self.lane.rounds.deferred)

    def test_another_loss_scale_drops_it(self) -> None:
        self.lane.rounds.loss_scale = 2.0
        self.backward(4, 6)
        self.assertEqual([7, 8], self.grads())
        self.assertRegex("".join(self.lane.rounds.lost), "another loss scale")
        self.assertEqual([0, 0], self.lane.rounds.deferred)

    def test_a_round_that_was_aborted_before_its_begin_drops_it(self) -> None:
        self.lane.rounds.passed = True
        self.backward(4, 6)
        self.assertEqual([7, 8], self.grads())
        self.assertEqual(["The last verdict is that of another round"], self.lane.rounds.lost)
        self.assertEqual([0, 0], self.lane.rounds.deferred)
        self.assertEqual([1, 1], [counts.micro_batches for counts in self.lane.rounds.counts])

    def test_a_worker_that_makes_no_more_rounds_is_told_of_it(self) -> None:
        self.lane.end_deferred()
        self.lane.end_deferred()
        self.assertEqual(["this worker makes no more rounds"], self.lane.rounds.lost)

    def test_means_are_weighted_by_their_counts(self) -> None:
        by_samples = RoundSpec(Op.WEIGHTED_AVERAGE, weight_by=Weight.SAMPLES)
        self.make(by_samples, 1, 2, samples=1)
        self.backward(5, 6, samples=3)
        self.assertEqual({"a": 4, "b": 5}, self.lane.rounds.sent[1])
        self.assertEqual(4, self.lane.rounds.counts[1].samples)

    def test_a_mean_of_a_tensor_that_one_of_both_lacks_has_its_share(self) -> None:
        by_samples = RoundSpec(Op.WEIGHTED_AVERAGE, weight_by=Weight.SAMPLES)
        self.make(by_samples, 1, samples=1)
        self.backward(5, 6, samples=3)
        self.assertEqual({"a": 4, "b": Fraction(9, 2)}, self.lane.rounds.sent[1])
        self.make(by_samples, 4, 8, samples=1)
        self.backward(8, samples=3)
        self.assertEqual({"a": 7, "b": 2}, self.lane.rounds.sent[1])

    def test_each_gradient_is_counted_once_or_its_loss_is_told(self) -> None:
        rng = random.Random(SEED)
        print(f"BASIN_LANE_SEED={SEED}", flush=True)
        counted, lost, deferred = Fraction(), Fraction(), Fraction(1)
        told, given = 0, Fraction(1)
        for value in range(2, 400):
            what = rng.choice(["counted", "counted", "late", "late", "aborted", "withdrawn"])
            self.round.late = what == "late"
            self.round.ending = "aborted" if what == "aborted" else "result"
            self.lane.calls.fails_at = "commit" if what == "withdrawn" else ""
            given += value
            with contextlib.suppress(RoundAborted, Unavailable):
                self.backward(value, 0)
            told += what != "counted" and deferred > 0
            if what == "counted":
                counted += value + deferred
            elif what == "aborted":
                lost += deferred
                self.round.ending = "result"
                self.lane.retry_round()
                counted += value
            else:
                lost += deferred if what == "late" else value + deferred
            deferred = Fraction(value if what == "late" else 0)
            self.assertEqual(told, len(self.lane.rounds.lost), self.lane.rounds.lost)
        sent = (each.get("a", Fraction()) for each in self.lane.rounds.counted)
        self.assertEqual(counted, sum(sent))
        self.assertEqual(given, counted + lost + deferred)

    def test_what_cannot_be_added_is_not_deferred(self) -> None:
        for spec in (RoundSpec(Op.MAX), RoundSpec(Op.AVERAGE, divide_by_present=True)):
            self.assertFalse(can_be_added(spec))
        for op in (Op.SUM, Op.AVERAGE, Op.WEIGHTED_AVERAGE):
            self.assertTrue(can_be_added(RoundSpec(op)))


class SequencesTest(unittest.TestCase):
    def test_random_actions_agree_with_the_reference(self) -> None:
        print(f"BASIN_LANE_SEED={SEED} BASIN_LANE_SEQUENCES={SEQUENCES}", flush=True)
        for seed in range(SEED, SEED + SEQUENCES):
            Sequence(seed).run(30)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
