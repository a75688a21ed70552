# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Registered states, with real workers (state_worker.cc) and a real aggregator.

Usage: test_states.py BASIND STATE_WORKER
"""

import signal
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "aggregator/basind"))
from programs import PATIENCE, Basind, Commanded

BASIND = Path()
WORKER = Path()

MOST = 4  # The number of workers of a job.


class StateWorker(Commanded):
    def __init__(self, address: str, worker: str, first: int, least: int, *arguments: str) -> None:
        super().__init__(
            [WORKER, *arguments],
            PATIENCE,
            BASIN_ADDRESS=address,
            BASIN_WORKER_ID=worker,
            BASIN_MIN_WORKERS=str(least),
            BASIN_START_WORKERS=str(first),
            BASIN_MAX_WORKERS=str(MOST),
            BASIN_RUN_ID="run",
            BASIN_FRESH="true",
        )

    def ask(self, line: str) -> str:
        self.say(line)
        return self.answer()


class States(unittest.TestCase):
    def setUp(self) -> None:
        self.basind = Basind(BASIND, "--log-level=debug")
        self.addCleanup(self.basind.__exit__, None, None, None)
        self.basind.await_serving()

    def add(self, worker: str, first: int, *arguments: str, least: int = 1) -> StateWorker:
        added = StateWorker(self.basind.grpc, worker, first, least, *(arguments or ("text",)))
        self.addCleanup(added.kill)
        self.assertEqual("ok", added.answer())
        return added

    def start(self, count: int, least: int = 1) -> list[StateWorker]:
        """Members that have the state 2 and "++" after two rounds."""
        workers = [self.add(f"w{i}", count, least=least) for i in range(count)]
        self.all(workers, "ready")
        self.all(workers, "member")
        self.train(workers)
        self.train(workers)
        self.expect_states(workers, "2 ++")
        return workers

    def all(self, workers: list[StateWorker], line: str, expected: str = "ok") -> None:
        for worker in workers:
            worker.say(line)
        for worker in workers:
            self.assertEqual(expected, worker.answer())

    def train(self, workers: list[StateWorker]) -> int:
        """One round; returns the number of members after it."""
        self.all(workers, "begin")
        for worker in workers:
            worker.say("finish")
        (members,) = {worker.answer() for worker in workers}
        return int(members)

    def admit(self, workers: list[StateWorker], joiner: StateWorker) -> str:
        """Trains until the joiner is a member that has not loaded the states; returns them."""
        self.assertEqual("ok", joiner.ask("ready"))
        while self.train(workers) == len(workers):
            pass
        states = workers[0].ask("states")
        self.expect_states(workers, states)
        return states

    def expect_states(self, workers: list[StateWorker], states: str) -> None:
        self.all(workers, "states", states)

    def test_a_joiner_gets_the_states_of_the_boundary(self) -> None:
        workers = self.start(2)
        for number in (2, 3):
            joiner = self.add(f"w{number}", 2)
            states = self.admit(workers, joiner)
            joiner.say("member")
            self.all(workers, "begin")
            self.assertEqual("ok", joiner.answer())
            self.assertEqual(states, joiner.ask("states"))
            self.assertEqual("ok", joiner.ask("begin"))
            workers.append(joiner)
            self.all(workers, "finish", str(len(workers)))
            self.assertEqual(len(workers), self.train(workers))
            value, words = workers[0].ask("states").split()
            self.assertEqual(int(value), len(words))
            self.expect_states(workers, f"{value} {words}")

    def test_the_furthest_at_the_start_gives_its_states_to_the_others(self) -> None:
        workers = [self.add(f"w{i}", 2) for i in range(2)]
        for worker, step in zip(workers, ("3", "5"), strict=True):
            self.assertEqual("ok", worker.ask(f"value {step}"))
            self.assertEqual("ok", worker.ask(f"ready {step}"))
        for worker in workers:
            worker.say("member")
        self.assertEqual("ok", workers[1].answer())
        self.assertEqual("ok", workers[1].ask("begin"))
        self.assertEqual("ok", workers[0].answer())
        self.expect_states(workers, "5 ")
        self.assertEqual("ok", workers[0].ask("begin"))
        self.all(workers, "finish", "2")
        self.expect_states(workers, "6 +")

    def test_those_that_start_together_with_other_states_load_those_of_the_first(self) -> None:
        workers = [self.add(f"w{i}", 2) for i in range(2)]
        for worker, value in zip(workers, ("3", "4"), strict=True):
            self.assertEqual("ok", worker.ask(f"value {value}"))
        self.all(workers, "ready")
        for worker in workers:
            worker.say("member")
        self.assertEqual("ok", workers[0].answer())
        self.assertEqual("ok", workers[0].ask("begin"))
        self.assertEqual("ok", workers[1].answer())
        self.expect_states(workers, "3 ")
        self.assertEqual("ok", workers[1].ask("begin"))
        self.all(workers, "finish", "2")
        self.expect_states(workers, "4 +")

    def test_one_that_starts_together_with_another_model_is_refused(self) -> None:
        workers = [self.add("w0", 2), self.add("w1", 2, "others")]
        self.all(workers, "ready")
        for worker in workers:
            worker.say("member")
        self.assertEqual("ok", workers[0].answer())
        self.assertEqual("ok", workers[0].ask("begin"))
        self.assertIn("MISMATCH", workers[1].answer())

    def test_a_worker_with_two_gradient_lanes_is_refused(self) -> None:
        (worker,) = self.start(1)
        self.assertEqual("ok", worker.ask("lane discriminator"))
        self.assertIn("has registered states", worker.ask("begin"))

    def test_an_allreduce_serves_too(self) -> None:
        workers = self.start(2)
        joiner = self.add("w2", 2)
        states = self.admit(workers, joiner)
        joiner.say("member")
        for worker in workers:
            worker.say("allreduce")
        self.assertEqual("ok", joiner.answer())
        self.assertEqual(states, joiner.ask("states"))
        joiner.say("allreduce")
        for worker in (*workers, joiner):
            self.assertEqual("3", worker.answer())
        self.expect_states([*workers, joiner], workers[0].ask("states"))

    def test_a_donor_that_is_killed_while_it_serves_is_replaced(self) -> None:
        workers = self.start(2)
        joiner = self.add("w2", 2)
        states = self.admit(workers, joiner)
        donor, other = workers
        self.all([donor], "begin")  # It serves from now on, and answers nothing:
        donor.process.send_signal(signal.SIGSTOP)
        joiner.say("member")
        donor.process.send_signal(signal.SIGKILL)
        self.assertEqual("w0", self.basind.await_event("worker_lost")["worker"])
        self.all([other], "begin")
        other.say("finish")
        self.assertEqual("ok", joiner.answer())
        self.assertEqual(states, joiner.ask("states"))
        self.assertEqual("ok", joiner.ask("begin"))
        joiner.say("finish")
        self.assertEqual({"2"}, {other.answer(), joiner.answer()})
        self.expect_states([other, joiner], other.ask("states"))

    def test_a_replacement_in_the_middle_of_a_round_gets_the_states_before_it(self) -> None:
        workers = self.start(2, least=2)
        self.all(workers, "begin")
        workers[1].process.send_signal(signal.SIGKILL)
        workers[0].say("finish")
        self.basind.await_event("paused")
        joiner = self.add("w1", 2, least=2)
        for line in ("ready", "member", "states", "begin", "finish"):
            joiner.say(line)
        answer = workers[0].answer()
        while answer.startswith("PAUSED"):  # The round goes on.
            answer = workers[0].ask("wait")
        self.assertEqual("2", answer)
        for expected in ("ok", "ok", "2 ++", "ok", "2"):
            self.assertEqual(expected, joiner.answer())
        self.expect_states([workers[0], joiner], "3 +++")

    def test_another_model_or_name_is_refused_before_anything_is_set(self) -> None:
        workers = self.start(2)
        for arguments, texts in (
            (("other text",), ('state "words" is of "other text" here and of "text" there',)),
            (("text", "zeal"), ('has no state "words"',)),
        ):
            joiner = self.add("w2", 2, *arguments)
            self.assertEqual("ok", joiner.ask("value 7"))
            self.admit(workers, joiner)
            joiner.say("member")
            self.all(workers, "begin")
            answer = joiner.answer()
            for text in ("MISMATCH: ", "Worker w2 of job default", "worker w", *texts):
                self.assertIn(text, answer)
            self.assertEqual("7 ", joiner.ask("states"))
            self.assertIn("has not loaded its states", joiner.ask("begin"))
            self.assertEqual("ok", joiner.ask("leave"))
            self.all(workers, "finish", "2")  # The others go on without it.
            joiner.kill()

    def test_a_state_that_cannot_be_got_costs_no_round(self) -> None:
        workers = self.start(2)
        joiner = self.add("w2", 2)
        states = self.admit(workers, joiner)
        joiner.say("member")
        donor = workers[0]
        self.assertEqual("ok", donor.ask("get no words are left"))
        answer = donor.ask("begin")
        for text in ("FAILED_PRECONDITION: ", "Worker w0", 'state "words": no words are left'):
            self.assertIn(text, answer)
        self.expect_states([donor], states)
        self.assertEqual("ok", donor.ask("get"))
        self.all(workers, "begin")
        self.assertEqual("ok", joiner.answer())
        self.assertEqual(states, joiner.ask("states"))
        self.assertEqual("ok", joiner.ask("begin"))
        self.all([*workers, joiner], "finish", "3")

    def test_a_state_that_cannot_be_set_leaves_all_as_they_were(self) -> None:
        workers = self.start(2)
        joiner = self.add("w2", 2)
        self.assertEqual("ok", joiner.ask("value 7"))
        states = self.admit(workers, joiner)
        self.assertEqual("ok", joiner.ask("set the words are too long"))
        self.all(workers, "begin")
        answer = joiner.ask("member")
        for text in ("FAILED_PRECONDITION: ", 'state "words"', "the words are too long"):
            self.assertIn(text, answer)
        self.assertEqual("7 ", joiner.ask("states"))
        self.assertIn("has not loaded its states", joiner.ask("begin"))
        self.assertEqual("ok", joiner.ask("member"))
        self.assertEqual(states, joiner.ask("states"))
        self.assertEqual("ok", joiner.ask("begin"))
        self.all([*workers, joiner], "finish", "3")


if __name__ == "__main__":
    BASIND, WORKER = (Path(argument).resolve() for argument in (sys.argv.pop(1), sys.argv.pop(1)))
    unittest.main(verbosity=2)
