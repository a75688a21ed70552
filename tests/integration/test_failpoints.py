# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Processes that die at a certain place in the code.

Usage: test_failpoints.py BASIND BASINCTL BASIND_FAILPOINTS ORACLE_TRAINER LIBBASIN SOURCE_FOLDER
"""

import json
import re
import signal
import sys
import time
import unittest
from pathlib import Path
from typing import Any

from oracle import Jobs, Line, Oracle
from programs import PATIENCE, Basind, run

BASINCTL = Path()
BASIND_FAILPOINTS = Path()
LIBBASIN = Path()
SOURCE = Path()

KILLED = -signal.SIGKILL

# 32 frames per step, whatever the link, with frames of the least size.
LARGE = ("--tensors=4", "--elements=524288")
SMALL_FRAMES = "--memory-frame=256KiB"


class Failpoints(Jobs):
    def test_released_programs_have_none(self) -> None:
        names = set()
        for folder in ("aggregator", "client", "runtime"):
            for file in (SOURCE / folder).rglob("*.cc"):
                names |= set(re.findall(r'BASIN_FAILPOINT\("([^"]+)"\)', file.read_text()))
        self.assertGreaterEqual(len(names), 4)
        with_failpoints = BASIND_FAILPOINTS.read_bytes() + self.trainer.read_bytes()
        for name in names:
            text = name.encode() + b"\0"
            self.assertIn(text, with_failpoints, name)
            for released in (self.basind, BASINCTL, LIBBASIN):
                self.assertNotIn(text, released.read_bytes(), (released, name))
        for released in (self.basind, BASINCTL, LIBBASIN):
            self.assertNotIn(b"ReachFailpoint", released.read_bytes(), released)

    def test_fault_w1_killed_between_two_frames_of_a_step(self) -> None:
        basind = self.start(SMALL_FRAMES)
        trainers = [
            self.add(basind.grpc, "w0", "12", *LARGE, first=3),
            self.add(
                basind.grpc, "w1", "12", *LARGE, first=3, FAILPOINTS="contribution.sent=kill@163"
            ),
            self.add(basind.grpc, "w2", "12", *LARGE, first=3),
        ]
        self.assertEqual(KILLED, trainers[1].finish())
        self.expect_ends([trainers[0], trainers[2]])
        self.expect_one_history(trainers)
        # In step 5 it had sent three of 32 frames, none of which may count.
        self.assertEqual([7] * 5 + [5] * 7, self.masks(trainers[0]))
        basind.end()
        self.assertEqual(["w1"], self.events(basind, "worker_lost"))
        self.assertEqual([], self.events(basind, "round_aborted"))

    def test_fault_w2_killed_after_prepared_is_counted(self) -> None:
        basind = self.start()
        trainers = [
            self.add(basind.grpc, "w0", "12", first=3),
            self.add(basind.grpc, "w1", "12", first=3, FAILPOINTS="staged.unsent=kill@6"),
            self.add(basind.grpc, "w2", "12", first=3),
        ]
        self.assertEqual(KILLED, trainers[1].finish())
        self.expect_ends([trainers[0], trainers[2]])
        self.expect_one_history(trainers)
        self.assertEqual([7] * 6 + [5] * 6, self.masks(trainers[0]))
        self.assertEqual(5, len(trainers[1].find("applied")))
        basind.end()
        self.assertEqual([], self.events(basind, "attempt_restarted"))

    def waited_for(self, basind: Basind) -> set[str]:
        """The workers that the open round waits for, from an operator's view."""
        shown = run(BASINCTL, "rounds", "default", "-o", "json", f"--address={basind.admin}")
        self.assertEqual(0, shown.returncode, shown.stderr)
        lanes = json.loads(shown.stdout)["lanes"]
        return {wait["worker"] for lane in lanes for wait in lane["open"]["waiting"]}

    def test_fault_w2_killed_after_its_commit_before_the_others_is_counted(self) -> None:
        basind = self.start()
        trainers = self.train(basind.grpc, 3, "6", "--stepwise")
        for trainer in trainers:
            trainer.await_event("member")
            trainer.tell()
        for trainer in trainers:
            trainer.await_event("pushed", step=0)
        trainers[0].tell()
        trainers[1].tell()
        deadline = time.monotonic() + PATIENCE
        while (waited := self.waited_for(basind)) != {"w2"}:
            self.assertLess(time.monotonic(), deadline, waited)
        trainers[0].send(signal.SIGKILL)
        self.assertEqual("w0", basind.await_event("worker_lost")["worker"])
        for trainer in trainers[1:]:
            trainer.tell("run")
        trainers[1].tell("run")
        self.expect_ends(trainers[1:])
        self.assertEqual([7] + [6] * 5, self.masks(trainers[1]))

    def test_fault_w18_donor_killed_between_two_frames_of_the_state(self) -> None:
        """Another donor replaces the lost one, and serves the state of the same step."""
        basind = self.start(SMALL_FRAMES)
        serves = ("60", "--pace-ms=20", "--donor-only")
        trainers = [
            self.add(basind.grpc, "w0", *serves, first=2, FAILPOINTS="value.sent=kill@2"),
            self.add(basind.grpc, "w1", *serves, first=2),
        ]
        trainers[0].await_event("applied", step=5)
        late = self.add(basind.grpc, "w2", *serves, first=2)
        self.assertEqual(KILLED, trainers[0].finish())
        self.expect_ends([trainers[1], late])
        self.expect_one_history([*trainers, late])
        self.assertEqual(1, len(late.find("source_lost")))
        self.assertGreater(late.find("member")[0]["step"], 5)

    def test_fault_a1_aggregator_killed_between_two_results(self) -> None:
        basind = self.start(
            SMALL_FRAMES, program=BASIND_FAILPOINTS, FAILPOINTS="result.sent=kill@400"
        )
        trainers = self.train(basind.grpc, 3, "12", *LARGE)
        self.assertEqual(KILLED, basind.process.wait())
        done = max(len(trainer.find("applied")) for trainer in trainers)
        self.assertLess(done, 12)
        self.restart(basind).await_event("recovered")
        self.expect_ends(trainers)
        self.assertEqual([7] * 12, self.masks(trainers[0]))

    def test_fault_a11_aggregator_whose_loop_stands_still_is_not_live(self) -> None:
        basind = self.start(
            "--health-live-within=500ms",
            program=BASIND_FAILPOINTS,
            FAILPOINTS="verdict.told=hold@5",
        )
        self.assertEqual(200, basind.get("/livez")[0])
        trainers = self.train(basind.grpc, 2, "12")
        basind.await_event("failpoint")
        deadline = time.monotonic() + PATIENCE
        while (page := basind.get("/livez"))[0] != 503:
            self.assertLess(time.monotonic(), deadline)
        self.assertRegex(page[1], r"^The event loop has not answered for \S+\.\n$")
        self.assertIn("/livez fails", basind.await_event("loop_stuck")["reason"])
        # A line for each thread, among them the one that does the loop's work and stands still.
        while "ReachFailpoint" not in (stack := basind.await_event("stack")["reason"]):
            pass
        self.assertRegex(stack, r"^\S+ \(thread \d+\): .*Engine::")
        # A supervisor would do the same.
        basind.process.kill()
        self.restart(basind).await_event("recovered")
        self.expect_ends(trainers)
        self.assertEqual([3] * 12, self.masks(trainers[0]))

    def hold_after_first_verdict(self) -> tuple[Basind, list[Oracle], Oracle]:
        """Three workers, of which only one has received the verdict of step 5."""
        basind = self.start(program=BASIND_FAILPOINTS, FAILPOINTS="verdict.told=hold@16")
        trainers = self.train(basind.grpc, 3, "12")
        told = self.first_of(trainers, "applied", step=5)
        basind.await_event("failpoint")
        basind.process.kill()
        return basind, trainers, told

    def test_fault_a2_aggregator_killed_after_the_first_verdict(self) -> None:
        basind, trainers, told = self.hold_after_first_verdict()
        basind.process.wait()
        for trainer in trainers:
            self.assertEqual(trainer is told, bool(trainer.find("applied", step=5)))
        self.restart(basind).await_event("recovered")
        self.expect_ends(trainers)
        self.assertEqual([7] * 12, self.masks(told))

    def test_fault_a2_and_the_worker_with_the_verdict_dies_too(self) -> None:
        basind, trainers, told = self.hold_after_first_verdict()
        told.send(signal.SIGKILL)
        self.assertEqual(KILLED, told.finish())
        self.restart(basind, "--recovery-window=1s").await_event("recovered")
        others = [trainer for trainer in trainers if trainer is not told]
        self.expect_ends(others)
        # The dead worker had applied the same as the others.
        self.expect_one_history(trainers)
        self.assertEqual(7, told.find("applied", step=5)[0]["mask"])
        self.assertEqual(7, others[0].find("applied", step=5)[0]["mask"])


class Said:
    """The possible output of a trainer."""

    worker = "w0"
    stopped = False

    def __init__(self, *lines: Line) -> None:
        self.lines = lines

    def find(self, event: str, **fields: Any) -> list[Line]:
        return [line for line in self.lines if {**line, "event": event, **fields} == line]


def applied(**other: Any) -> Line:
    return {
        "event": "applied",
        "step": 4,
        "round": 5,
        "mask": 3,
        "mixed": 0,
        "divisor": 2,
        "digest": "d",
        "chain": "c",
        "history": "h",
        "contributors": ["w0", "w1"],
        **other,
    }


class PlantedBreaches(Jobs):
    """expect_one_history finds each kind of violation."""

    def expect_breach(self, *trainers: Said) -> None:
        with self.assertRaises(AssertionError):
            self.expect_one_history(trainers)

    def test_none(self) -> None:
        self.expect_one_history([Said(applied()), Said(applied(), applied(round=6, step=5))])

    def test_bytes_that_are_of_several_sets_of_contributors(self) -> None:
        self.expect_breach(Said(applied(mixed=1)))
        self.expect_breach(Said({"event": "member", "mixed": 1}))

    def test_somebody_counted_twice_or_not(self) -> None:
        self.expect_breach(Said(applied(mask=5)))
        self.expect_breach(Said(applied(mask=1)))
        self.expect_breach(Said(applied(divisor=3)))

    def test_two_versions(self) -> None:
        for other in ({"digest": "e"}, {"chain": "d"}, {"history": "i"}):
            self.expect_breach(Said(applied()), Said(applied(**other)))
        one_less = {"contributors": ["w0"], "mask": 1, "divisor": 1}
        self.expect_breach(Said(applied()), Said(applied(**one_less)))

    def test_a_step_or_a_round_twice(self) -> None:
        self.expect_breach(Said(applied(), applied()))
        self.expect_breach(Said(applied(), applied(round=6)))

    def test_a_call_that_was_late(self) -> None:
        self.expect_breach(Said({"event": "overdue"}))


if __name__ == "__main__":
    paths = [Path(sys.argv.pop(1)).resolve() for _ in range(6)]
    Jobs.basind, BASINCTL, BASIND_FAILPOINTS, Jobs.trainer, LIBBASIN, SOURCE = paths
    unittest.main(verbosity=2)
