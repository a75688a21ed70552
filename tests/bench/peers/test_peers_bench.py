# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What peers.py computes from the log of a training and from a file of results."""

import dataclasses
import unittest
from collections.abc import Iterator

import account
import results
import table
from account import History
from processes import below, parent_in
from results import Key, Measured, Results, Run

SAMPLES = 64


class Script:
    """The log of a training with one process per worker, written step by step."""

    def __init__(self) -> None:
        self.text = ""
        self._process: dict[int, int] = {}

    def line(self, what: str, worker: int, time: float, number: int = 0) -> None:
        process = self._process.setdefault(worker, 100 * worker + 1)
        self.text += f"{what} {worker} {process} {time} {number}\n"

    def restart(self, worker: int, time: float) -> None:
        self._process[worker] = self._process.get(worker, 100 * worker) + 1
        self.line("born", worker, time)

    def begin(self, worker: int, time: float) -> None:
        self.line("begin", worker, time, SAMPLES)

    def steps(self, workers: tuple[int, ...], start: float, numbers: range) -> None:
        """Steps of a second each."""
        for number in numbers:
            for worker in workers:
                self.begin(worker, start)
            start += 1
            for worker in workers:
                self.line("step", worker, start, number)

    def history(self) -> History:
        history = History()
        history.feed(self.text)
        return history


def undisturbed() -> Script:
    """Two workers that have made steps 1 to 5 at 1 to 5 s, and have begun the next one."""
    script = Script()
    for worker in (0, 1):
        script.restart(worker, 0)
    script.steps((0, 1), 0, range(1, 6))
    return script


class Logs(unittest.TestCase):
    def test_a_step_is_an_attempt_with_a_number(self) -> None:
        script = Script()
        script.begin(0, 1)
        script.line("step", 0, 2, 7)
        [attempt] = script.history().of[0]
        self.assertEqual(
            (0, 1, 1.0, SAMPLES, 2.0, 7),
            (
                attempt.worker,
                attempt.process,
                attempt.begun,
                attempt.samples,
                attempt.ended,
                attempt.step,
            ),
        )

    def test_pieces_of_lines_are_joined(self) -> None:
        text = undisturbed().text
        history = History()
        for character in text:
            history.feed(character)
        self.assertEqual(undisturbed().history().of, history.of)

    def test_an_incomplete_line_does_not_count_yet(self) -> None:
        script = undisturbed()
        history = History()
        history.feed(script.text[:-1])
        self.assertEqual(4, account.reached(history, 1, 9))
        history.feed("\n")
        self.assertEqual(5, account.reached(history, 1, 9))

    def test_the_last_process_of_a_worker_is_known_before_its_first_step(self) -> None:
        script = undisturbed()
        script.restart(1, 6)
        self.assertEqual({0: 1, 1: 102}, script.history().processes)

    def test_two_processes_of_a_worker_have_attempts_of_their_own(self) -> None:
        script = Script()
        script.begin(0, 1)
        old = script.text.splitlines()[0].split()[2]
        script.restart(0, 2)
        script.begin(0, 3)
        script.line("step", 0, 4, 1)
        script.text += f"step 0 {old} 5 9\n"  # An orphan goes on.
        self.assertEqual([9, 1], [each.step for each in script.history().of[0]])


class CostOfAFault(unittest.TestCase):
    def cost(self, script: Script, survivors: tuple[int, ...] = (0,)) -> account.Cost:
        history = script.history()
        self.assertTrue(account.has_resumed(history, survivors, 5.5))
        return account.cost_of_a_fault(history, survivors, 5.5, 1)

    def test_nothing_if_the_steps_go_on_in_time(self) -> None:
        script = undisturbed()
        script.steps((0,), 5, range(6, 8))
        self.assertEqual(account.Cost(0, 0), self.cost(script))

    def test_a_step_that_was_begun_before_the_fault_does_not_show_that_it_is_over(self) -> None:
        script = undisturbed()
        script.steps((0,), 5, range(6, 7))
        self.assertFalse(account.has_resumed(script.history(), (0,), 5.5))

    def test_the_time_that_the_step_of_the_fault_takes_longer(self) -> None:
        script = undisturbed()
        script.begin(0, 5)
        script.line("step", 0, 9, 6)  # 3 s late.
        script.steps((0,), 9, range(7, 8))
        self.assertEqual(account.Cost(3, 3), self.cost(script))

    def test_an_attempt_that_was_discarded_costs_its_time(self) -> None:
        script = undisturbed()
        script.begin(0, 5)
        script.line("discarded", 0, 7)
        script.steps((0,), 7, range(6, 7))
        self.assertEqual(account.Cost(2, 2), self.cost(script))

    def test_steps_that_are_made_again_delay_the_next_new_one(self) -> None:
        script = undisturbed()
        script.restart(0, 8)
        script.steps((0,), 10, range(3, 7))  # The checkpoint was of step 2.
        self.assertEqual(account.Cost(pause=5, delay=8), self.cost(script))

    def test_a_step_that_a_survivor_got_from_the_others_takes_its_time(self) -> None:
        script = undisturbed()
        script.begin(0, 5)
        script.line("discarded", 0, 8)
        script.steps((0,), 8, range(7, 8))  # The others made step 6.
        self.assertEqual(account.Cost(2, 2), self.cost(script))

    def test_the_worst_survivor_counts(self) -> None:
        script = undisturbed()
        for worker, late in ((0, 1), (1, 2)):
            script.begin(worker, 5)
            script.line("step", worker, 6 + late, 6)
            script.steps((worker,), 6 + late, range(7, 8))
        self.assertEqual(account.Cost(2, 2), self.cost(script, (0, 1)))

    def test_a_new_step_is_beyond_those_of_all_survivors(self) -> None:
        script = undisturbed()
        script.begin(0, 5)
        script.line("step", 0, 5.4, 6)  # Worker 1 has not ended it.
        script.steps((1,), 6, range(6, 7))
        script.steps((0,), 6, range(7, 8))
        self.assertFalse(account.has_resumed(script.history(), (0, 1), 5.5))
        script.steps((1,), 7, range(7, 8))
        self.assertTrue(account.has_resumed(script.history(), (0, 1), 5.5))


class CostOfAJoin(unittest.TestCase):
    def test_the_longest_wait_for_a_step_beyond_an_undisturbed_one(self) -> None:
        script = undisturbed()
        script.steps((0, 1), 8, range(6, 9))
        history = script.history()
        self.assertEqual(account.Cost(3, 3), account.cost_of_a_join(history, (0, 1), 4.5, 9, 1))

    def test_waits_before_the_start_and_after_the_end_do_not_count(self) -> None:
        script = undisturbed()
        script.steps((0, 1), 8, range(6, 9))
        history = script.history()
        self.assertEqual(account.Cost(0, 0), account.cost_of_a_join(history, (0, 1), 9.5, 10, 1))
        self.assertEqual(account.Cost(0, 0), account.cost_of_a_join(history, (0, 1), 1.5, 3, 1))

    def test_steps_that_are_made_again_are_waits_for_a_new_one(self) -> None:
        script = undisturbed()
        script.restart(0, 6)
        script.steps((0,), 7, range(4, 7))  # The checkpoint was of step 3.
        cost = account.cost_of_a_join(script.history(), (0,), 4.5, 11, 1)
        self.assertEqual(account.Cost(pause=2, delay=4), cost)


class LostAttempts(unittest.TestCase):
    def lost(self, script: Script, since: float = 5.5, gone: tuple[int, ...] = ()) -> list[object]:
        lost = account.lost_attempts(script.history(), since, gone)
        return [(each.worker, each.begun, each.step) for each in lost]

    def test_none_in_an_undisturbed_training(self) -> None:
        script = undisturbed()
        script.steps((0, 1), 5, range(6, 9))
        self.assertEqual([], self.lost(script))

    def test_what_was_discarded_after_the_fault(self) -> None:
        script = undisturbed()
        script.begin(0, 5)
        script.line("discarded", 0, 6)
        self.assertEqual([(0, 5.0, 0)], self.lost(script))
        self.assertEqual([], self.lost(script, since=6.5))

    def test_what_its_process_did_not_end(self) -> None:
        script = undisturbed()
        script.begin(0, 5)
        script.restart(0, 6)
        script.begin(0, 7)
        self.assertEqual([(0, 5.0, 0)], self.lost(script))

    def test_what_is_being_done_is_not_lost_unless_its_worker_is_gone(self) -> None:
        script = undisturbed()
        script.begin(0, 5)
        script.begin(1, 5)
        self.assertEqual([], self.lost(script))
        self.assertEqual([(1, 5.0, 0)], self.lost(script, gone=(1,)))

    def test_steps_behind_a_checkpoint_that_the_training_went_back_to(self) -> None:
        script = undisturbed()
        script.restart(0, 6)
        script.restart(1, 6)
        script.steps((0, 1), 7, range(4, 5))  # Step 5 will be made again, too.
        self.assertEqual([(0, 3.0, 4), (0, 4.0, 5), (1, 3.0, 4), (1, 4.0, 5)], self.lost(script))

    def test_steps_of_a_worker_that_did_not_come_back(self) -> None:
        script = undisturbed()
        script.restart(0, 6)
        script.steps((0,), 7, range(5, 8))
        self.assertEqual([(0, 4.0, 5), (1, 4.0, 5)], self.lost(script))

    def test_a_worker_that_ends_a_step_later_than_others_undoes_nothing(self) -> None:
        script = undisturbed()
        script.begin(0, 5)
        script.begin(1, 5.6)
        script.line("step", 0, 6, 6)
        script.line("step", 1, 7, 6)
        self.assertEqual([], self.lost(script))

    def test_what_was_lost_before_does_not_count(self) -> None:
        script = undisturbed()
        script.restart(0, 5)
        script.restart(1, 5)
        script.steps((0, 1), 5.1, range(4, 6))
        script.steps((0, 1), 7.1, range(6, 9))
        self.assertEqual([], self.lost(script, since=7))


class GoodputOfAStorm(unittest.TestCase):
    def test_all_of_it_without_a_fault(self) -> None:
        script = undisturbed()
        script.steps((0, 1), 5, range(6, 16))
        self.assertEqual(
            account.Goodput(share=1, steps=10),
            account.goodput(script.history(), 5, 15, 2 * SAMPLES),
        )

    def test_steps_that_are_made_again_are_time_lost(self) -> None:
        script = undisturbed()
        script.steps((0, 1), 5, range(6, 11))
        script.restart(0, 10)
        script.restart(1, 10)
        script.steps((0, 1), 10, range(6, 11))  # The same five steps.
        self.assertEqual(
            account.Goodput(share=0.5, steps=5),
            account.goodput(script.history(), 5, 15, 2 * SAMPLES),
        )

    def test_a_step_without_a_worker_is_worth_the_samples_of_the_others(self) -> None:
        script = undisturbed()
        script.steps((0,), 5, range(6, 16))
        self.assertEqual(
            account.Goodput(share=0.5, steps=10),
            account.goodput(script.history(), 5, 15, 2 * SAMPLES),
        )

    def test_what_is_undone_after_the_storm_does_not_count_in_it(self) -> None:
        script = undisturbed()
        script.steps((0, 1), 5, range(6, 16))
        script.restart(0, 15)
        script.restart(1, 15)
        script.steps((0, 1), 16, range(11, 16))
        self.assertEqual(0.5, account.goodput(script.history(), 5, 15, 2 * SAMPLES).share)


class MedianStep(unittest.TestCase):
    def test_of_the_last_steps(self) -> None:
        script = Script()
        for number, end in enumerate((10, 20, 30, 40, 50, 51, 52, 53), 1):
            script.begin(0, end - 1)
            script.line("step", 0, end, number)
        self.assertEqual(1, account.median_step(script.history(), 0, 3))


class Processes(unittest.TestCase):
    def test_descendants_are_found_through_all_generations(self) -> None:
        parents = {2: 1, 3: 2, 4: 3, 5: 1, 6: 9}
        self.assertEqual([3, 4], below(2, parents))
        self.assertEqual({2, 3, 4, 5}, set(below(1, parents)))

    def test_a_name_may_look_like_the_end_of_a_name(self) -> None:
        self.assertEqual(17, parent_in("4711 (a) R 1 (b)) S 17 4711 4711 0"))


KILL = Key("kill", "default", "basin")


def run_of(key: Key = KILL, step: float = 0.1, **measured: object) -> Run:
    values: dict[str, object] = {"recovered": True, "delay": 0.5, "pause": 0.4, **measured}
    return Run(
        key=key,
        conditions={"step": 0.1},
        measured=Measured(**values),  # type: ignore[arg-type]
        step=step,
        load=0.5,
        took=30,
    )


class FileOfResults(unittest.TestCase):
    def test_a_run_is_read_as_it_was_written(self) -> None:
        run = run_of(again=2, samples=128, note="worker-1 ended")
        self.assertEqual([run], results.read(results.line_of_run(run)).runs)

    def test_a_line_that_was_cut_is_not_read(self) -> None:
        line = results.line_of_run(run_of())
        text = line + line[: len(line) // 2]
        self.assertEqual(line, results.whole_lines(text))
        self.assertEqual(1, len(results.read(text).runs))

    def test_what_is_missing_is_named_in_the_order_of_the_plan(self) -> None:
        plan = results.plan(["basin", "torchft"], ["default"], ["kill", "stop"], runs=2)
        self.assertEqual(8, len(plan))
        self.assertEqual(plan, list(Results().missing(plan)))
        done = Results(runs=[run_of(plan[0]), run_of(plan[1])])
        self.assertEqual(plan[2:], list(done.missing(plan)))

    def test_more_runs_than_planned_do_no_harm(self) -> None:
        plan = results.plan(["basin"], ["default"], ["kill"], runs=1)
        self.assertEqual([], list(Results(runs=[run_of(plan[0])] * 3).missing(plan)))

    def test_a_round_of_all_faults_comes_before_the_second_run_of_one(self) -> None:
        plan = results.plan(["basin", "torchft"], ["default", "tuned"], ["kill", "stop"], runs=2)
        self.assertEqual(8, len(set(plan[:8])))


class Table(unittest.TestCase):
    def rows(self, *runs: Run, **left_out: str) -> Iterator[list[str]]:
        text = table.in_markdown(Results(runs=list(runs), left_out=left_out))
        for line in text.splitlines():
            if line.startswith("|"):
                yield [cell.strip() for cell in line.strip("|").split("|")]

    def row(self, *runs: Run) -> dict[str, str]:
        heads, _, row = self.rows(*runs)
        return dict(zip(heads, row, strict=True))

    def test_a_row_has_medians_and_the_worst(self) -> None:
        row = self.row(
            run_of(delay=1.0, pause=0.1, again=0, samples=64),
            run_of(delay=9.0, pause=0.3, again=5, samples=640),
            run_of(delay=2.0, pause=0.2, again=1, samples=128),
        )
        self.assertEqual("kill -9 of one", row["fault"])
        self.assertEqual("2.00", row["s lost, median"])
        self.assertEqual("9.00", row["most"])
        self.assertEqual("0.20", row["s without a step, median"])
        self.assertEqual("5", row["steps made again, most"])
        self.assertEqual("128", row["samples lost, median"])
        self.assertEqual("0 of 3", row["never"])

    def test_runs_that_never_recovered_are_counted_and_explained(self) -> None:
        never = run_of(recovered=False, delay=None, pause=None, note="worker-1 ended")
        row = self.row(never, run_of(), never)
        self.assertEqual("2 of 3 (worker-1 ended)", row["never"])
        self.assertEqual("0.50", row["s lost, median"])
        self.assertEqual("-", self.row(never)["s lost, median"])

    def test_settings_and_systems_have_rows_of_their_own(self) -> None:
        tuned = dataclasses.replace(KILL, settings="tuned")
        torchft = dataclasses.replace(KILL, system="torchft")
        _, _, *rows = self.rows(*map(run_of, (KILL, torchft, tuned)))
        self.assertEqual(
            [["Basin", "default"], ["Basin", "tuned"], ["torchft", "default"]],
            [row[1:3] for row in rows],
        )

    def test_storms_have_a_table_of_their_own(self) -> None:
        storm = dataclasses.replace(KILL, fault="storm")
        row = self.row(
            run_of(storm, goodput=0.9, steps=900, samples=64),
            run_of(storm, goodput=0.5, steps=500, samples=64),
            run_of(storm, goodput=0.8, steps=800, samples=64),
        )
        self.assertEqual("0.80", row["goodput, median"])
        self.assertEqual("0.50", row["least"])
        self.assertEqual("800", row["steps, median"])

    def test_a_missing_system_is_named_with_the_reason(self) -> None:
        text = table.in_markdown(Results(left_out={"horovod": "it does not build here"}))
        self.assertIn("Horovod is missing: it does not build here", text)


if __name__ == "__main__":
    unittest.main()
