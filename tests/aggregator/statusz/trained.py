# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A running basind with a job of two trainers, for the tests of its status page."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "basind"))
from programs import Basind, Trainer

# Every character of it may stand in the name of a lane or a tensor.
HOSTILE = (
    """<script>document.title='owned'</script><img src=x onerror="document.title='owned'">&"'"""
)


class Trained(unittest.TestCase):
    basind_program = Path()
    trainer_program = Path()

    def setUp(self) -> None:
        # Late soon, so that the events name a worker.
        self.basind = Basind(
            self.basind_program, "--round-late-warning=100ms", "--limits-workers=100"
        )
        self.addCleanup(self.basind.__exit__, None, None, None)
        self.basind.await_serving()

    def join(self, job: str, **variables: str) -> tuple[Trainer, Trainer]:
        """Two members of the job, `a` and `b`."""
        trainers = [
            Trainer(self.trainer_program, self.basind.grpc, job, name, 2, 2, **variables)
            for name in ("a", "b")
        ]
        for trainer in trainers:
            self.addCleanup(trainer.kill)
            trainer.say("join")
        for trainer in trainers:
            self.assertRegex(trainer.answer(), r"member \d of 2")
        return trainers[0], trainers[1]

    def rounds(self, a: Trainer, b: Trainer, count: int) -> None:
        for value in range(count):
            self.begin(a, value + 1)
            self.end_round(a, b)

    def begin(self, a: Trainer, value: int = 1) -> None:
        """Its whole part of a round; then it waits for the others."""
        self.assertEqual("begun", a.ask(f"begin {value}"))
        a.say("finish")

    def end_round(self, a: Trainer, b: Trainer) -> None:
        """Ends the round, which `a` has begun."""
        self.begin(b)
        for trainer in (a, b):
            self.assertIn("COMMITTED", trainer.answer())

    def hang_in_a_round(self, a: Trainer) -> None:
        """Waits until the aggregator has named `b`, which does not begin the round."""
        self.begin(a)
        self.basind.await_event("worker_late")
