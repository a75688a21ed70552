# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Two aggregators of which one leads: whatever happens to it, the other takes over, no step is
lost, and no trainer is restarted.

In each step all four workers are counted, and all apply the same bytes (oracle.py), so their
parameters are those of a training without faults.

Usage: test_standby.py BASIND BASINCTL ORACLE_TRAINER
"""

import os
import signal
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Any

from oracle import Jobs, Oracle
from programs import Basind, run
from test_clock import DAY, HOUR, Clock, library

BASINCTL = Path()

LEASE = "1s"
WORKERS = 4
EVERYBODY = 0b1111
STEPS = 120
PACE = "--pace-ms=20"


class Standby(Jobs):
    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.directory = Path(folder.name) / "leader"

    def candidate(self, lease: str = LEASE, **variables: Any) -> Basind:
        """An aggregator that may lead."""
        basind = Basind(
            self.basind,
            f"--standby-authority=file:{self.directory}",
            f"--standby-lease={lease}",
            **variables,
        )
        self.addCleanup(basind.__exit__, None, None, None)
        basind.await_serving()
        return basind

    def pair(self, *clocks: Clock) -> tuple[Basind, Basind]:
        """A leader, and an aggregator that stands by and knows it; with clocks of their own."""
        first, second = (clock.variables for clock in clocks) if clocks else ({}, {})
        leader = self.candidate(**first)
        leader.await_event("leads")
        standby = self.candidate(**second)
        while leader.grpc not in standby.await_event("follows")["reason"]:
            pass
        return leader, standby

    def workers(self, *aggregators: Basind, steps: int = STEPS) -> list[Oracle]:
        addresses = ",".join(each.grpc for each in aggregators)
        return self.train(addresses, WORKERS, str(steps), PACE, least=WORKERS)

    def await_step(self, trainers: list[Oracle], more: int) -> None:
        """Waits until each trainer has applied so many more steps than any has now."""
        reached = max(len(trainer.find("applied")) for trainer in trainers) + more
        for trainer in trainers:
            trainer.await_more("applied", reached)

    def expect_every_step(self, trainers: list[Oracle], steps: int = STEPS) -> None:
        self.expect_ends(trainers)
        for trainer in trainers:
            self.assertEqual([EVERYBODY] * steps, self.masks(trainer), trainer.worker)

    def test_a_standby_refuses_workers_and_names_the_leader(self) -> None:
        leader, standby = self.pair()
        self.assertEqual((200, "ok\n"), leader.get("/readyz"))
        self.assertEqual(200, standby.get("/livez")[0])
        for each in (leader, standby):
            self.assertEqual((200, "ok\n"), each.get("/standbyz"))
        status, text = standby.get("/readyz")
        self.assertEqual(503, status)
        self.assertIn(f"not the leader; it is {os.uname().nodename}", text)
        self.assertIn(f"at {leader.grpc}. ", text)
        self.assertEqual(1, self.metric(leader, "basin_leader"))
        self.assertEqual(0, self.metric(standby, "basin_leader"))
        fences = {self.metric(each, "basin_leader_fence") for each in (leader, standby)}
        self.assertEqual(1, len(fences))
        shown = run(BASINCTL, "status", f"--address={standby.admin}").stdout
        self.assertIn(f"stands by; it is {os.uname().nodename}", shown)
        refused = run(BASINCTL, "step-down", f"--address={standby.admin}")
        self.assertEqual(6, refused.returncode, refused.stderr)
        self.assertIn(leader.grpc, refused.stderr)

    def test_the_order_of_the_addresses_does_not_matter(self) -> None:
        leader, standby = self.pair()
        self.expect_every_step(self.workers(standby, leader, steps=20), steps=20)
        self.assertEqual([], [line for line in standby.lines if line["level"] == "warning"])

    def test_another_deployment_says_so_and_takes_no_lead(self) -> None:
        leader = self.candidate(BASIN_STANDBY_DEPLOYMENT="east")
        leader.await_event("leads")
        other = self.candidate(BASIN_STANDBY_DEPLOYMENT="west")
        away = other.await_event("authority_away")["reason"]
        for text in (away, other.get("/readyz")[1]):
            self.assertIn("is of the deployment east, and this aggregator is of west", text)
        self.assertEqual(503, other.get("/standbyz")[0])
        # It gives up the lead, which its own standbys take, and nobody else.
        self.assertEqual(0, leader.end())
        standby = self.candidate(BASIN_STANDBY_DEPLOYMENT="east")
        standby.await_event("leads")
        self.assertEqual([], [line for line in other.lines if line["event"] == "leads"])

    def test_fault_a1_a_leader_that_is_killed_is_replaced(self) -> None:
        leader, standby = self.pair()
        trainers = self.workers(leader, standby)
        self.await_step(trainers, 20)
        leader.process.kill()
        standby.await_event("leads")
        self.await_step(trainers, 20)
        third = self.candidate()
        self.assertIn(standby.grpc, third.await_event("follows")["reason"])
        self.expect_every_step(trainers)

    def test_fault_a4_a_leader_that_is_stopped_is_replaced_and_follows(self) -> None:
        leader, standby = self.pair()
        trainers = self.workers(leader, standby)
        self.await_step(trainers, 20)
        leader.process.send_signal(signal.SIGSTOP)
        standby.await_event("leads")
        self.await_step(trainers, 20)
        leader.process.send_signal(signal.SIGCONT)
        leader.await_event("leads_no_more")
        while standby.grpc not in leader.await_event("follows")["reason"]:
            pass
        self.await_step(trainers, 5)
        self.assertEqual(503, leader.get("/readyz")[0])
        # And back again.
        standby.process.send_signal(signal.SIGSTOP)
        leader.await_event("leads")
        standby.process.send_signal(signal.SIGCONT)
        self.expect_every_step(trainers)

    def test_fault_a4_a_leader_that_nobody_replaced_goes_on_where_it_was(self) -> None:
        leader = self.candidate(lease="4s")
        leader.await_event("leads")
        trainers = self.workers(leader)
        self.await_step(trainers, 20)
        leader.process.send_signal(signal.SIGSTOP)
        # Longer than it may decide, and not so long that it gives up.
        threading.Event().wait(4)
        leader.process.send_signal(signal.SIGCONT)
        self.expect_every_step(trainers)
        leader.end()
        events = [line["event"] for line in leader.lines]
        self.assertEqual(1, events.count("leads"))
        self.assertNotIn("worker_lost", events)

    def test_fault_s5_clocks_that_jump_do_not_move_the_lead(self) -> None:
        if library() is None:
            self.skipTest("libfaketime is missing")
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        clocks = Clock(folder, "leader"), Clock(folder, "standby")
        leader, standby = self.pair(*clocks)
        steps = 400
        trainers = self.workers(leader, standby, steps=steps)
        for jumps in ((HOUR, 0), (HOUR, -HOUR), (-DAY, DAY), (0, DAY), (DAY, -HOUR)):
            for clock, jump in zip(clocks, jumps, strict=True):
                clock.set(jump)
            # Longer than a lease.
            self.await_step(trainers, 60)
        fence = self.metric(leader, "basin_leader_fence")
        # To one whose clock is a day behind.
        done = run(BASINCTL, "step-down", f"--address={leader.admin}")
        self.assertEqual(0, done.returncode, done.stderr)
        standby.await_event("leads")
        self.await_step(trainers, 20)
        self.assertGreater(self.metric(standby, "basin_leader_fence"), fence)
        self.expect_every_step(trainers, steps)
        for each in (leader, standby):
            each.end()
            events = [line["event"] for line in each.lines]
            self.assertEqual(1, events.count("leads"), events)
            for event in ("worker_lost", "worker_late", "authority_away"):
                self.assertNotIn(event, events)

    def test_fault_a3_a_leader_hands_over_when_it_is_asked_to(self) -> None:
        leader, standby = self.pair()
        trainers = self.workers(leader, standby)
        self.await_step(trainers, 20)
        for _ in range(2):
            done = run(BASINCTL, "step-down", f"--address={leader.admin}")
            self.assertEqual(0, done.returncode, done.stderr)
            standby.await_event("leads")
            self.await_step(trainers, 10)
            leader, standby = standby, leader
        self.expect_every_step(trainers)
        for each in (leader, standby):
            self.assertNotIn("worker_lost", [line["event"] for line in each.lines])

    def test_fault_a3_a_leader_that_gets_sigterm_hands_over(self) -> None:
        leader, standby = self.pair()
        trainers = self.workers(leader, standby)
        self.await_step(trainers, 20)
        self.assertEqual(0, leader.end())
        standby.await_event("leads")
        self.expect_every_step(trainers)

    def test_fault_a5_an_authority_that_loses_its_record_gets_one_leader_again(self) -> None:
        leader, standby = self.pair()
        trainers = self.workers(leader, standby)
        self.await_step(trainers, 20)
        self.directory.rename(self.directory.with_name("lost"))
        self.assertIn("lost the record", leader.await_event("leads_no_more")["reason"])
        self.await_step(trainers, 20)
        self.expect_every_step(trainers)
        ready = sorted(each.get("/readyz")[0] for each in (leader, standby))
        self.assertEqual([200, 503], ready)


if __name__ == "__main__":
    Standby.basind, BASINCTL, Standby.trainer = (
        Path(argument).resolve() for argument in (sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1))
    )
    unittest.main(verbosity=2)
