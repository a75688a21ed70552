# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Messages that come too late or too early, that nothing can be computed from, or that are of
another version. The workers that send what they should continue to train.

Usage: test_messages.py BASIND BASINCTL ORACLE_TRAINER
"""

import importlib
import math
import struct
import sys
import unittest
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from oracle import Jobs
from programs import Basind, run
from translator import (
    DATA,
    PROTOCOL_2,
    SESSION,
    Change,
    Translator,
    as_it_is,
    of_later,
    sealed,
    unsealed,
)

PLAIN = Path(__file__).resolve().parents[2] / "examples/plain_python"
FAILED_PRECONDITION = 6  # The exit code of basinctl.
SUM, WEIGHTED_AVERAGE, BY_SAMPLES = 1, 3, 2
MOST = 2**48  # The highest count.

# Changes a Begin.
Odd = Callable[[Any], None]


class Plain(Jobs):
    """Workers made from the .proto files alone, which can send anything."""

    def plain_python(self) -> Any:
        if str(PLAIN) not in sys.path:
            sys.path.insert(0, str(PLAIN))
        return importlib.import_module("worker")

    def join(self, basind: Basind, *names: str) -> list[Any]:
        """Workers of one job with one number."""
        make = self.plain_python().Worker
        workers = [
            make(basind.grpc, "plain", "run", name, len(names), fresh=True, least=2)
            for name in names
        ]
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda worker: worker.register({"weight": 1}), workers))
        return workers

    def contribute(self, worker: Any, value: float, odd: Odd | None = None) -> float:
        """One round of this worker, whose begin is changed by `odd`. Returns its result."""
        send = worker.control.send

        def changed(message: Any) -> None:
            if odd is not None and message.HasField("begin"):
                odd(message.begin)
            send(message)

        worker.control.send = changed
        worker.allreduce({"weight": struct.pack("<f", value)}, op=SUM)
        worker.control.send = send
        return result_of(worker)

    def round(self, workers: list[Any], odd: Odd | None = None) -> list[float]:
        """Each worker contributes its index plus one; returns the result at each."""
        with ThreadPoolExecutor() as threads:
            values = range(1, len(workers) + 1)
            return list(threads.map(partial(self.contribute, odd=odd), workers, values))

    def send_frame(self, worker: Any, number: int) -> None:
        """A contribution of a thousand to round `number`."""
        pb = self.plain_python().exchange_pb
        chunks = self.plain_python().types_pb.ChunkRange(tensor=0, first=0, count=1)
        header = pb.ContributionHeader(lane=worker.lane, round=number, range=chunks)
        worker.sequence += 1
        worker._send_frame(
            pb.FrameHeader(contribution=header), struct.pack("<f", 1000), worker.sequence
        )


def result_of(worker: Any) -> float:
    (result,) = struct.unpack("<f", worker.result_of("weight"))
    return float(result)


class OutOfTime(Plain):
    def test_fault_w8_frames_that_come_too_late_have_no_effect(self) -> None:
        basind = self.start()
        workers = self.join(basind, "a", "b")
        self.assertEqual([3, 3], self.round(workers))
        # A frame for a round that has its verdict.
        self.send_frame(workers[0], 1)
        basind.await_event("frame_stale")
        self.assertEqual([3, 3], self.round(workers))
        # A frame of a process that another one has replaced.
        old = workers[0]
        make = self.plain_python().Worker
        workers[0] = make(basind.grpc, "plain", "run", "a", 2, fresh=True, least=2)
        basind.await_event("worker_superseded")
        self.send_frame(old, 3)
        workers[0].register({"weight": 1})
        self.assertEqual([3, 3], self.round(workers))
        old.stop.set()
        old.channel.close()
        for worker in workers:
            worker.leave()

    def test_fault_w9_frames_of_a_round_ahead_are_refused_and_not_kept(self) -> None:
        basind = self.start()
        workers = self.join(basind, "a", "b")
        self.assertEqual([3, 3], self.round(workers))
        self.send_frame(workers[0], 3)
        refused = basind.await_event("contribution_rejected")
        self.assertEqual("a", refused["worker"])
        self.assertIn("acts in round 3 while round 2 has no verdict", refused["reason"])
        self.assertEqual(0, self.metric(basind, 'basin_buffer_bytes{kind="received"}'))
        for _ in range(2):
            self.assertEqual([3, 3], self.round(workers))
        for worker in workers:
            worker.leave()

    def test_fault_w9_a_worker_that_is_ahead_of_the_others_waits_for_credit(self) -> None:
        budget = 64 << 20
        basind = self.start(f"--memory-budget={budget}B")
        # A step is as large as the budget.
        step = ("3", "--tensors=16", "--elements=1048576", "--stepwise")
        first, second = self.train(basind.grpc, 2, *step)
        for trainer in (first, second):
            trainer.await_event("member")
        first.tell()
        first.await_event("pushed", step=0)
        self.await_metric(
            basind,
            'basin_workers_without_credit{training_job="default",lane="model"}',
            lambda workers: workers == 1,
        )
        # Nothing of it can be reduced before the other worker begins.
        held = self.metric(basind, 'basin_buffer_bytes{kind="received"}')
        self.assertGreaterEqual(held, self.metric(basind, "basin_contribution_bytes_total"))
        self.assertLess(held, budget / 2)
        for trainer in (first, second):
            trainer.tell("run")
        second.tell()
        self.expect_whole(basind, [first, second], 3)


class NotToBeComputed(Plain):
    def refuse(self, basind: Basind, workers: list[Any], odd: Odd) -> str:
        """The last worker sends only an odd begin, and the others contribute 1 and 2. All have
        their sum. Returns why the last one was refused."""
        *others, offender = workers

        def only_begin(message: Any) -> None:
            if message.HasField("commit"):
                return
            if message.HasField("begin"):
                odd(message.begin)
                offender.to_push.clear()
            send(message)

        with ThreadPoolExecutor() as threads:
            values = range(1, len(others) + 1)
            results = [threads.submit(self.contribute, *each) for each in zip(others, values)]
            # The first begin is what others are compared with.
            basind.await_event("round_opened")
            send, offender.control.send = offender.control.send, only_begin
            offender.allreduce({"weight": struct.pack("<f", 1000)}, op=SUM)
            offender.control.send = send
            self.assertEqual([3, 3], [each.result() for each in results])
        self.assertEqual(3, result_of(offender))
        self.assertEqual(["a", "b"], [one.worker for one in offender.verdict.value.contributors])
        refused = basind.await_event("contribution_rejected")
        self.assertEqual("c", refused["worker"])
        return str(refused["reason"])

    def test_fault_w11_scales_and_counts_of_one_worker_are_refused_with_their_values(self) -> None:
        basind = self.start()
        workers = self.join(basind, "a", "b", "c")

        def spec(name: str, value: float) -> Odd:
            return lambda begin: setattr(begin.spec, name, value)

        def counts(samples: int) -> Odd:
            return lambda begin: setattr(begin.counts, "samples", samples)

        cases: list[tuple[Odd, str]] = [
            (spec("loss_scale", 1024), r"loss scale.*1024"),
            (spec("loss_scale", 1e300), r"loss scale.*1e\+300"),
            (spec("prescale", 1e300), r"prescale.*1e\+300"),
            # What a client that does not check would make of -1, NaN and 1e300.
            (counts(2**64 - 1), r"counts 18446744073709551615 samples, more than 2\^48"),
            (counts(2**63), r"counts 9223372036854775808 samples, more than 2\^48"),
            (counts(MOST + 1), r"counts 281474976710657 samples, more than 2\^48"),
            (spec("op", WEIGHTED_AVERAGE), "without a weight"),
            (spec("weight_by", BY_SAMPLES), "gives weights to op SUM"),
        ]
        for odd, text in cases:
            with self.subTest(text):
                self.assertRegex(self.refuse(basind, workers, odd), text)
        self.assertEqual([6] * 3, self.round(workers))
        self.assertEqual(
            len(cases),
            self.metric(basind, 'basin_events_total{event="contribution_rejected"}'),
        )
        for worker in workers:
            worker.leave()

    def test_fault_w11_a_scale_that_is_none_ends_the_session_and_the_others_train(self) -> None:
        basind = self.start()
        # No client may send these, so they are not rejected for the round alone.
        odd = {
            "c": ("loss_scale", math.nan),
            "d": ("prescale", math.inf),
            "e": ("postscale", 0.0),
            "f": ("predivide", -2.0),
        }
        workers = dict(zip("abcdef", self.join(basind, *"abcdef")))

        def change(field: str, value: float, begin: Any) -> None:
            setattr(begin.spec, field, value)

        def ends(worker: str) -> str:
            with self.assertRaises(SystemExit) as caught:
                self.contribute(workers[worker], 1000, partial(change, *odd[worker]))
            workers[worker].channel.close()
            return str(caught.exception)

        with ThreadPoolExecutor() as threads:
            results = [threads.submit(self.contribute, workers[one], 1) for one in "ab"]
            texts = {worker: threads.submit(ends, worker) for worker in odd}
            self.assertEqual([2, 2], [each.result() for each in results])
        for worker, (field, _) in odd.items():
            self.assertIn("INVALID_ARGUMENT", texts[worker].result())
            self.assertIn(f"begin.spec.{field}", texts[worker].result())
        value = workers["a"].verdict.value
        self.assertEqual(["a", "b"], [one.worker for one in value.contributors])
        for worker in "ab":
            workers[worker].leave()

    def test_fault_w11_a_weight_of_zero_counts_for_nothing_even_as_nan(self) -> None:
        basind = self.start()
        workers = self.join(basind, "a", "b", "c")

        def weighted(samples: int, begin: Any) -> None:
            begin.spec.op, begin.spec.weight_by = WEIGHTED_AVERAGE, BY_SAMPLES
            begin.counts.samples = samples

        with ThreadPoolExecutor() as threads:
            given = ((1.0, 3), (5.0, 1), (math.nan, 0))
            results = [
                threads.submit(self.contribute, worker, value, partial(weighted, samples))
                for worker, (value, samples) in zip(workers, given)
            ]
            self.assertEqual([2.0] * 3, [each.result() for each in results])
        value = workers[0].verdict.value
        self.assertEqual(["a", "b", "c"], [one.worker for one in value.contributors])
        self.assertEqual(4, value.divisor)
        for worker in workers:
            worker.leave()


class OtherVersions(Plain):
    basinctl = Path()

    def translate(self, target: str, up: Change = as_it_is, down: Change = as_it_is) -> Translator:
        translator = Translator(target, up, down)
        self.addCleanup(translator.close)
        return translator

    def hello_of(self, version: str, method: str, number: int, message: bytes) -> bytes:
        """As it is, except for this version in a hello."""
        if method != SESSION or number > 0:
            return message
        first = self.plain_python().session_pb.ToAggregator.FromString(unsealed(message))
        setattr(first.hello, version, 2)
        return sealed(first.SerializeToString())

    def test_fault_a12_a_worker_of_another_version_is_refused_with_both(self) -> None:
        basind = self.start()
        trainers = self.train(basind.grpc, 2, "60", "--pace-ms=5")
        trainers[0].await_event("applied", step=3)
        for version, both in (
            ("protocol", "protocol 2 with arithmetic contract 1; this aggregator speaks 1 with 1"),
            ("contract", "protocol 1 with arithmetic contract 2; this aggregator speaks 1 with 1"),
        ):
            hello = partial(self.hello_of, f"{version}_version")
            translator = self.translate(basind.grpc, up=hello)
            stranger = self.add(translator.address, "w2", "60", first=2)
            self.assertNotEqual(0, stranger.finish())
            (failed,) = stranger.find("failed")
            self.assertIn("VERSION_MISMATCH", failed["text"])
            self.assertIn(both, failed["text"])
            refused = basind.await_event("job_refused")
            self.assertEqual("w2", refused["worker"])
            self.assertIn(both, refused["reason"])
        self.expect_whole(basind, trainers, 60)

    def test_fault_a12_an_operator_of_another_version_is_refused_with_both(self) -> None:
        basind = self.start()
        translator = self.translate(
            basind.admin, up=lambda _method, _number, message: message + PROTOCOL_2
        )
        for command in (("status",), ("pause", "default")):
            refused = run(self.basinctl, *command, f"--address={translator.address}")
            self.assertEqual(FAILED_PRECONDITION, refused.returncode, refused.stderr)
            self.assertRegex(refused.stderr, "protocol version 2 was requested, but this is 1")
        answered = run(self.basinctl, "status", f"--address={basind.admin}")
        self.assertEqual(0, answered.returncode, answered.stderr)

    def test_fault_a12_fields_of_a_later_version_are_ignored_by_either_side(self) -> None:
        basind = self.start()
        later_worker = self.translate(basind.grpc, up=of_later)
        later_aggregator = self.translate(basind.grpc, down=of_later)
        large = ("10", "--tensors=4", "--elements=524288")
        trainers = [
            self.add(translator.address, f"w{i}", *large, first=2)
            for i, translator in enumerate((later_worker, later_aggregator))
        ]
        self.expect_whole(basind, trainers, 10)
        for translator in (later_worker, later_aggregator):
            self.assertEqual({SESSION, DATA}, set(translator.calls))


if __name__ == "__main__":
    Jobs.basind, OtherVersions.basinctl, Jobs.trainer = (
        Path(sys.argv.pop(1)).resolve() for _ in range(3)
    )
    unittest.main(verbosity=2)
