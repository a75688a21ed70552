# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Real trainers and a real aggregator, with faults in the middle of training.

The trainers run examples/cpp/linear_regression.cc. All trainers that take part in a step apply the
same average, and the samples of a step are the same however many trainers share them. Every trainer
that reaches the end therefore prints the same last line, bit for bit, whatever happened on the way.

Usage: test_faults.py BASIND TRAINER
"""

import signal
import subprocess
import sys
import threading
import unittest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "aggregator/basind"))
from programs import PATIENCE, Basind, Commanded

BASIND = Path()
TRAINER = Path()

MOST = 4  # The number of workers of a job.
STEPS = 150
PACE_MS = 10


class Trainer(Commanded):
    """A trainer that runs to its end without commands."""

    def __init__(self, address: str, worker: str, *, least: int, first: int, steps: int) -> None:
        self.worker = worker
        super().__init__(
            [TRAINER, str(steps), str(PACE_MS)],
            PATIENCE,
            subprocess.PIPE,
            BASIN_ADDRESS=address,
            BASIN_WORKER_ID=worker,
            BASIN_MIN_WORKERS=str(least),
            BASIN_START_WORKERS=str(first),
            BASIN_MAX_WORKERS=str(MOST),
            BASIN_RUN_ID="run",
            BASIN_FRESH="true",
            BASIN_LOG_LEVEL="info",
        )

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def finish(self) -> tuple[int, str, str]:
        """The exit status, the last line of stdout, and stderr."""
        out, err = self.process.communicate()
        self._watchdog.cancel()
        return self.process.returncode, out.strip(), err


class Faults(unittest.TestCase):
    def start(self, *arguments: str, **more: Any) -> Basind:
        basind = Basind(BASIND, "--log-level=debug", *arguments, **more)
        self.addCleanup(basind.__exit__, None, None, None)
        basind.await_serving()
        return basind

    def train(
        self, basind: Basind, workers: int, *, least: int = 1, steps: int = STEPS
    ) -> list[Trainer]:
        return [
            self.add(basind, f"w{i}", workers, least=least, steps=steps) for i in range(workers)
        ]

    def add(
        self, basind: Basind, worker: str, workers: int, *, least: int = 1, steps: int = STEPS
    ) -> Trainer:
        trainer = Trainer(basind.grpc, worker, least=least, first=workers, steps=steps)
        self.addCleanup(trainer.kill)
        return trainer

    def await_round(self, basind: Basind, number: int) -> None:
        """Reads the log until this round, or a later one, has been committed."""
        while basind.await_event("round_committed")["round"] < number:
            pass

    def expect_equal_ends(self, trainers: list[Trainer], steps: int = STEPS) -> None:
        ends = {trainer.worker: trainer.finish() for trainer in trainers}
        for worker, (status, _, said) in ends.items():
            self.assertEqual(0, status, (worker, said))
        models = set()
        for worker, (_, line, _) in ends.items():
            step, _, parameters = line.partition(" parameters ")
            self.assertRegex(step, rf"^step {steps}, loss ", worker)
            models.add(parameters)
        self.assertEqual(1, len(models), ends)

    def events(self, basind: Basind, event: str) -> list[str]:
        return [line.get("worker", "") for line in basind.lines if line["event"] == event]

    def test_without_a_fault(self) -> None:
        basind = self.start()
        self.expect_equal_ends(self.train(basind, 3))

    def test_fault_w1_killed_worker_costs_the_others_nothing(self) -> None:
        basind = self.start()
        trainers = self.train(basind, 3)
        self.await_round(basind, 20)
        trainers[1].send(signal.SIGKILL)
        basind.await_event("worker_lost")
        self.expect_equal_ends([trainers[0], trainers[2]])
        basind.end()
        self.assertEqual(["w1"], self.events(basind, "worker_lost"))
        self.assertEqual([], self.events(basind, "round_aborted"))

    def test_fault_w6_a_worker_that_gets_sigterm_leaves_after_its_step(self) -> None:
        basind = self.start()
        trainers = self.train(basind, 3)
        self.await_round(basind, 20)
        trainers[1].send(signal.SIGTERM)
        status, line, said = trainers[1].finish()
        self.assertEqual(128 + signal.SIGTERM, status, said)
        self.assertRegex(line, r"^step \d+, loss ")
        self.expect_equal_ends([trainers[0], trainers[2]])
        basind.end()
        self.assertEqual([], self.events(basind, "worker_lost"))
        self.assertEqual([], self.events(basind, "round_aborted"))

    def test_fault_w6_the_last_worker_that_gets_sigterm_leaves_a_paused_job(self) -> None:
        basind = self.start("--round-late-warning=200ms")
        trainers = self.train(basind, 2, least=2, steps=1_000_000)
        self.await_round(basind, 20)
        trainers[1].send(signal.SIGKILL)
        basind.await_event("paused")
        trainers[0].send(signal.SIGTERM)
        status, line, said = trainers[0].finish()
        self.assertEqual(128 + signal.SIGTERM, status, said)
        self.assertRegex(line, r"^step \d+, loss ")
        basind.end()
        self.assertEqual(["w0"], self.events(basind, "worker_left"))

    def test_fault_w6_workers_that_get_sigterm_together_leave_without_a_pause(self) -> None:
        basind = self.start()
        trainers = self.train(basind, 4, least=4, steps=1_000_000)
        self.await_round(basind, 20)
        for trainer in trainers:
            trainer.send(signal.SIGTERM)
        for trainer in trainers:
            status, _, said = trainer.finish()
            self.assertEqual(128 + signal.SIGTERM, status, said)
        basind.end()
        self.assertEqual([], self.events(basind, "paused"))

    def test_fault_w3_stopped_beyond_its_lease_is_evicted_once_and_rejoins(self) -> None:
        basind = self.start("--worker-lease=1500ms", "--worker-heartbeat=200ms")
        trainers = self.train(basind, 3, steps=1000)
        self.await_round(basind, 20)
        trainers[1].send(signal.SIGSTOP)
        basind.await_event("worker_lost")
        basind.await_event("round_committed")
        trainers[1].send(signal.SIGCONT)
        self.expect_equal_ends(trainers, steps=1000)
        basind.end()
        self.assertEqual(["w1"], self.events(basind, "worker_lost"))

    def test_fault_w4_stopped_below_its_lease_is_only_late(self) -> None:
        basind = self.start("--round-late-warning=200ms")
        trainers = self.train(basind, 3)
        self.await_round(basind, 20)
        trainers[1].send(signal.SIGSTOP)
        self.assertEqual("w1", basind.await_event("worker_late")["worker"])
        trainers[1].send(signal.SIGCONT)
        self.expect_equal_ends(trainers)
        basind.end()
        self.assertEqual([], self.events(basind, "worker_lost"))

    def test_fault_w6_leaving_keeps_nobody_waiting(self) -> None:
        basind = self.start()
        trainers = [self.add(basind, worker, 3) for worker in ("w0", "w1")]
        short = self.add(basind, "w2", 3, steps=40)
        status, line, said = short.finish()
        self.assertEqual(0, status, said)
        self.assertRegex(line, "^step 40,")
        self.expect_equal_ends(trainers)
        basind.end()
        self.assertEqual([], self.events(basind, "worker_lost"))
        self.assertEqual([], self.events(basind, "worker_late"))

    def test_fault_w15_a_newer_process_of_a_worker_replaces_the_older(self) -> None:
        basind = self.start()
        trainers = self.train(basind, 2)
        self.await_round(basind, 20)
        twin = self.add(basind, "w1", 2)
        basind.await_event("worker_superseded")
        status, _, said = trainers[1].finish()
        self.assertNotEqual(0, status)
        self.assertIn("SUPERSEDED", said)
        self.expect_equal_ends([trainers[0], twin])

    def test_fault_w17_a_joiner_during_training_ends_with_the_same_model(self) -> None:
        basind = self.start()
        trainers = self.train(basind, 2)
        self.await_round(basind, 20)
        trainers.append(self.add(basind, "late", 2))
        self.expect_equal_ends(trainers)
        basind.end()
        ready = [line["reason"] for line in basind.lines if line["event"] == "generation"]
        self.assertTrue(any("late" in text for text in ready), ready)

    def test_fault_w19_below_the_minimum_training_waits_for_a_replacement(self) -> None:
        basind = self.start()
        trainers = self.train(basind, 2, least=2)
        self.await_round(basind, 20)
        trainers[1].send(signal.SIGKILL)
        basind.await_event("paused")
        replacement = self.add(basind, "w1", 2, least=2)
        self.expect_equal_ends([trainers[0], replacement])

    def test_fault_a1_killed_aggregator_costs_no_step(self) -> None:
        first = self.start()
        trainers = self.train(first, 3)
        for _ in range(2):
            self.await_round(first, 20)
            first.process.kill()
            first.process.wait()
            next_one = self.start(
                ports=(
                    f"--grpc-listen={first.grpc}",
                    "--http-listen=127.0.0.1:0",
                    "--admin-listen=127.0.0.1:0",
                )
            )
            next_one.await_event("recovered")
            first = next_one
        self.expect_equal_ends(trainers)

    def test_fault_a4_stopped_aggregator_evicts_nobody_when_it_goes_on(self) -> None:
        basind = self.start("--worker-lease=1s", "--worker-heartbeat=200ms")
        trainers = self.train(basind, 3)
        self.await_round(basind, 20)
        basind.process.send_signal(signal.SIGSTOP)
        # Longer than the lease.
        threading.Event().wait(2.5)
        basind.process.send_signal(signal.SIGCONT)
        basind.await_event("stalled")
        self.expect_equal_ends(trainers)
        basind.end()
        self.assertEqual([], self.events(basind, "worker_lost"))


if __name__ == "__main__":
    BASIND, TRAINER = (Path(argument).resolve() for argument in (sys.argv.pop(1), sys.argv.pop(1)))
    unittest.main(verbosity=2)
