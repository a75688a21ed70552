# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Training against basind, with real processes at both ends and an operator.

Usage: test_training.py BASIND BASINCTL TRAINER
"""

import json
import shutil
import signal
import sys
import tempfile
import unittest
from pathlib import Path

from programs import Basind, Trainer, run

BASIND = Path()
BASINCTL = Path()
TRAINER = Path()


def pair(address: str, least: int = 2) -> tuple[Trainer, Trainer]:
    """Two trainers of one job, not yet members."""
    first, second = (Trainer(TRAINER, address, "vision", name, least, 2) for name in ("a", "b"))
    return first, second


class Training(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.state = self.folder / "state"

    def start(self, *arguments: str) -> Basind:
        basind = Basind(BASIND, "--log-level=debug", *arguments)
        self.addCleanup(basind.__exit__, None, None, None)
        basind.await_serving()
        return basind

    def join(self, basind: Basind, least: int = 2) -> tuple[Trainer, Trainer]:
        a, b = pair(basind.grpc, least)
        for trainer in (a, b):
            self.addCleanup(trainer.kill)
        a.say("join")
        b.say("join")
        self.assertEqual(
            {"member 0 of 2", "member 1 of 2"}, {a.answer(), b.answer()}, basind.stderr()
        )
        return a, b

    def round(self, a: Trainer, b: Trainer, number: int) -> None:
        for trainer, value in ((a, 1), (b, 2)):
            self.assertEqual("begun", trainer.ask(f"begin {value}"))
            trainer.say("finish")
        for trainer in (a, b):
            self.assertEqual(f"round {number}: COMMITTED over 2, 3", trainer.answer())

    def ctl(self, basind: Basind, *arguments: str) -> str:
        done = run(BASINCTL, *arguments, f"--address={basind.admin}")
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout

    def test_rounds_are_seen_by_operators_and_in_metrics(self) -> None:
        basind = self.start(f"--state-file={self.state}")
        a, b = self.join(basind)
        for number in (1, 2, 3):
            self.round(a, b, number)
        _, page = basind.get("/metrics")
        for sample in (
            'basin_rounds_total{outcome="committed",training_job="vision"} 3',
            'basin_round_duration_seconds_count{training_job="vision"} 3',
            'basin_members{training_job="vision",state="member"} 2',
            'basin_job_state{training_job="vision",state="running"} 1',
            'basin_round{training_job="vision",lane="model"} 4',
            'basin_worker_last_seen_seconds{training_job="vision",worker="a"}',
            "basin_sessions 2",
        ):
            self.assertIn(sample, page)
        jobs = json.loads(self.ctl(basind, "status", "-o", "json"))["jobs"]
        self.assertEqual(["vision"], [job["job"] for job in jobs])
        self.assertEqual("3", jobs[0]["committed_rounds"])
        members = json.loads(self.ctl(basind, "members", "vision", "-o", "json"))["members"]
        self.assertEqual([0, 1], [member["rank"] for member in members])
        self.assertEqual(["127.0.0.1"] * 2, [member["address"] for member in members])
        self.assertIn("committed", self.ctl(basind, "rounds", "vision"))
        events = self.ctl(basind, "events", "--job=vision")
        self.assertEqual(3, events.count("round_committed"))
        state = self.state.read_text()
        self.assertIn("job vision run", state)
        self.assertTrue(state.endswith("members 2\na\nb\n") or state.endswith("members 2\nb\na\n"))

    def test_a_waiting_round_names_the_late_workers(self) -> None:
        basind = self.start()
        a, b = self.join(basind)
        self.assertEqual("begun", a.ask("begin 1"))
        a.say("finish")
        basind.await_event("round_opened")
        shown = json.loads(self.ctl(basind, "rounds", "vision", "-o", "json"))
        waits = {row["worker"]: row["what"] for row in shown["lanes"][0]["open"]["waiting"]}
        self.assertEqual("begin", waits["b"])
        self.assertIn("(last seen", self.ctl(basind, "rounds", "vision"))
        self.assertEqual("begun", b.ask("begin 2"))
        b.say("finish")
        self.assertEqual("round 1: COMMITTED over 2, 3", a.answer())

    def test_an_evicted_worker_gets_the_reason_and_the_others_continue(self) -> None:
        basind = self.start()
        a, b = self.join(basind, least=1)
        self.round(a, b, 1)
        self.ctl(basind, "evict", "vision", "b", "--reason=wrong data set")
        lost = basind.await_event("worker_lost")
        self.assertEqual(("vision", "b"), (lost["job"], lost["worker"]))
        self.assertIn("wrong data set", lost["reason"])
        self.assertEqual("begun", a.ask("begin 1"))
        self.assertEqual("round 2: COMMITTED over 1, 1", a.ask("finish"))

    def test_a_worker_whose_process_has_ended_is_not_waited_for(self) -> None:
        basind = self.start("--worker-lease=1h", "--worker-closed-lease=1h")
        a, b = self.join(basind, least=1)
        self.round(a, b, 1)
        b.process.kill()
        b.process.wait()
        self.ctl(basind, "report-exit", "vision", "b", "--status=-9")
        lost = basind.await_event("worker_lost")
        self.assertEqual(("vision", "b"), (lost["job"], lost["worker"]))
        self.assertIn("has exited", lost["reason"])
        self.assertEqual("begun", a.ask("begin 1"))
        self.assertEqual("round 2: COMMITTED over 1, 1", a.ask("finish"))

    def test_an_open_round_ends_before_the_aggregator_does(self) -> None:
        basind = self.start()
        a, b = self.join(basind)
        self.assertEqual("begun", a.ask("begin 1"))
        self.assertEqual("begun", b.ask("begin 2"))
        a.say("finish")
        basind.await_event("round_opened")
        basind.process.send_signal(signal.SIGTERM)
        basind.await_event("draining")
        self.assertEqual(503, basind.get("/readyz")[0])
        self.assertEqual(200, basind.get("/livez")[0])
        b.say("finish")
        for trainer in (a, b):
            self.assertEqual("round 1: COMMITTED over 2, 3", trainer.answer())
        basind.await_event("ended")
        self.assertEqual(0, basind.process.wait())

    def test_the_second_signal_does_not_wait_for_rounds(self) -> None:
        basind = self.start("--drain-grace=1h")
        a, _ = self.join(basind)
        self.assertEqual("begun", a.ask("begin 1"))
        a.say("finish")
        basind.await_event("round_opened")
        basind.process.send_signal(signal.SIGTERM)
        basind.await_event("draining")
        basind.process.send_signal(signal.SIGTERM)
        self.assertEqual(128 + signal.SIGTERM, basind.process.wait())

    def test_training_goes_on_after_the_aggregator_is_killed(self) -> None:
        first = self.start(f"--state-file={self.state}")
        a, b = self.join(first)
        self.round(a, b, 1)
        first.process.kill()
        first.process.wait()
        second = Basind(
            BASIND,
            f"--state-file={self.state}",
            ports=(
                f"--grpc-listen={first.grpc}",
                "--http-listen=127.0.0.1:0",
                "--admin-listen=127.0.0.1:0",
            ),
        )
        self.addCleanup(second.__exit__, None, None, None)
        second.await_serving()
        self.round(a, b, 2)
        second.process.send_signal(signal.SIGTERM)
        second.await_event("ended")
        events = [line["event"] for line in second.lines]
        self.assertIn("recovered", events)
        self.assertLess(events.index("recovering"), events.index("recovered"))

    def test_Fault_A8_training_goes_on_without_a_place_for_the_state_file(self) -> None:
        basind = self.start(f"--state-file={self.folder}/gone/state")
        a, b = self.join(basind)
        self.round(a, b, 1)
        failures = "basin_state_file_failures_total "
        page = basind.get("/metrics")[1]
        value = next(line for line in page.splitlines() if line.startswith(failures))
        self.assertGreater(float(value.split()[1]), 0)


if __name__ == "__main__":
    TRAINER = Path(sys.argv.pop()).resolve()
    BASINCTL = Path(sys.argv.pop()).resolve()
    BASIND = Path(sys.argv.pop()).resolve()
    unittest.main(verbosity=2)
