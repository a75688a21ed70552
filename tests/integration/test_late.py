# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Real trainers whose aggregator leaves out of a round whoever is late.

Usage: test_late.py BASIND BASINCTL TRAINER
"""

import contextlib
import json
import signal
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path

from commanded import Trainer, Workers, job
from programs import Basind, run

BASIND = Path()
BASINCTL = Path()

# Longer than a worker that is not late needs on a busy machine.
GRACE = "10s"


class Late(unittest.TestCase):
    @contextlib.contextmanager
    def three(self) -> Iterator[tuple[Basind, Workers]]:
        """Three workers that have made one round."""
        options = ("--round-late-policy=leave_out", f"--round-grace={GRACE}", "--worker-lease=60s")
        with Basind(BASIND, *options) as basind:
            basind.await_serving()
            with job(basind, "late", 3) as workers:
                workers.all("register m 2 100000 8")
                workers.round("m")
                yield basind, workers
            basind.end()
            self.assertNotIn("worker_lost", [line["event"] for line in basind.lines])

    def tell(self, workers: list[Trainer], values: list[float]) -> None:
        """They contribute these values, and wait for the result."""
        for worker, value in zip(workers, values):
            worker.say(f"push m {value}")
            worker.expect()
            worker.say("commit m")

    def results(self, workers: list[Trainer]) -> set[str]:
        for worker in workers:
            worker.say("result m")
        return {worker.expect().strip() for worker in workers}

    def go_on(self, workers: Workers) -> None:
        """The late one contributes to the round that left it out, and all to the next one."""
        self.tell([workers[2]], [100])
        workers[2].expect()
        self.assertEqual({"2.000000 w2"}, self.results(workers))
        self.tell(workers, [1, 3, 5])
        for worker in workers:
            worker.expect()
        self.assertEqual({"3.000000"}, self.results(workers))

    def test_the_others_go_on_while_a_trainer_is_elsewhere(self) -> None:
        with self.three() as (basind, workers):
            self.tell(workers[:2], [1, 3])
            self.assertEqual("w2", basind.await_event("contribution_late")["worker"])
            for worker in workers[:2]:
                worker.expect()
            self.go_on(workers)
            listed = run(BASINCTL, "rounds", "late", "-o", "json", f"--address={basind.admin}")
            lanes = json.loads(listed.stdout)["lanes"]
            self.assertIn(["w2"], [each.get("late") for each in lanes[0]["recent"]])
            _, metrics = basind.get("/metrics")
            self.assertRegex(metrics, r'basin_contributions_total\{[^}]*result="late"[^}]*\} 1\b')

    def test_a_stopped_process_is_left_out_and_awaited_for_the_result(self) -> None:
        """Either every member gets a result, or none does."""
        with self.three() as (basind, workers):
            workers[2].process.send_signal(signal.SIGSTOP)
            self.tell(workers[:2], [1, 3])
            self.assertEqual("w2", basind.await_event("contribution_late")["worker"])
            workers[2].process.send_signal(signal.SIGCONT)
            for worker in workers[:2]:
                worker.expect()
            self.go_on(workers)


if __name__ == "__main__":
    BASIND, BASINCTL, Trainer.program = (Path(sys.argv.pop(1)).resolve() for _ in range(3))
    unittest.main(verbosity=2)
