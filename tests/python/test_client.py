# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""basin.connect() and what it returns, against a real aggregator.

Usage: test_client.py BASIND LIBBASIN
"""

import contextlib
import inspect
import json
import logging
import os
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from jobs import JobsTest, hear, logged, main, make_events, require, say

require("numpy")
import numpy as np  # noqa: E402 - ends above when there is none

# The package itself, without checks of types.
INTERNAL = ("start", "start_unnamed", "agree_on_version", "broadcast_memory")
DTYPES = ("float64", "float32", "float16", "int64", "int32", "uint8")


def contribution(rank: int, dtype: str) -> Any:
    """An array that differs for each worker and element; it and its sums are exact in every
    dtype."""
    return ((np.arange(24).reshape(2, 3, 4) + 3 * rank) % 17).astype(dtype)


def sum_of_every_dtype(rank: int) -> dict[str, Any]:
    import basin

    with basin.connect() as client:
        return {
            dtype: client.allreduce(contribution(rank, dtype), f"sum.{dtype}", op=basin.Sum)
            for dtype in DTYPES
        }


def every_op(rank: int) -> dict[str, Any]:
    import basin

    array = np.array([rank + 1.0, -rank, 2.0], np.float32)
    with basin.connect() as client:
        results = {
            op.name: client.allreduce(array, op.name, op=op)
            for op in (basin.Sum, basin.Average, basin.Min, basin.Max, basin.Product)
        }
        results["scaled"] = client.allreduce(
            array, "scaled", op=basin.Sum, prescale_factor=0.5, postscale_factor=4.0
        )
        client.barrier()
        return results


def place(rank: int) -> tuple[int, int, str, bool]:
    import basin

    with basin.connect() as client:
        client.barrier("placed")
        first = client.generation
        client.barrier("again")
        return client.rank, client.world_size, client.worker_id, client.generation == first


def two_at_once(rank: int) -> tuple[list[float], list[float], list[str], int]:
    import basin

    with basin.connect() as client:
        first = client.allreduce_async(np.full(3, rank, np.float64), "first", op=basin.Sum)
        # Not contiguous: sent in C order.
        array = np.arange(6.0).reshape(2, 3).T
        second = client.allreduce_async(array, "second", op=basin.Average)
        b = second.wait()
        a = first.wait()
        assert first.done() and first.wait() is a
        client.barrier()
        return list(a), list(b.ravel()), list(first.info.contributors), second.info.divisor


def broadcasts(rank: int) -> list[list[float]]:
    import basin

    with basin.connect() as client:
        received = [
            client.broadcast(np.array([np.nan, -0.0, rank + 10.0 * k]), "value", root_rank=1)
            for k in range(2)
        ]
        client.barrier()  # The worker that serves the value stays until all have it.
        return [array.tolist() for array in received]


def shapes_differ(rank: int) -> str:
    import basin

    with basin.connect() as client:
        array = np.zeros(3 + (rank == 2), np.float32)
        try:
            client.allreduce(array, "array", op=basin.Sum, timeout=30.0)
            text = ""
        except basin.Mismatch as error:
            text = str(error)
        client.barrier()
        return text


def ops_differ(rank: int) -> tuple[str, list[float]]:
    import basin

    with basin.connect() as client:
        array = np.ones(2, np.float32)
        op = basin.Max if rank == 2 else basin.Sum
        try:
            result, text = client.allreduce(array, "array", op=op).tolist(), ""
        except basin.Mismatch as error:
            result, text = [], str(error)
        client.barrier()
        return text, result


def late_worker(rank: int) -> tuple[bool, list[float]]:
    import basin

    with basin.connect() as client:
        client.barrier("start")
        if rank == 0:
            # The others have no outcome before this worker contributes.
            unknown = False
            client.barrier("checked")
            client.busy("evaluates", expected=1.0)
            result = client.allreduce(np.ones(1), "x", op=basin.Sum)
        else:
            handle = client.allreduce_async(np.ones(1), "x", op=basin.Sum)
            try:
                handle.wait(0)
                unknown = False
            except basin.OutcomeUnknown:
                unknown = True
            # The lane has a round in flight, so it cannot have a second one.
            if unknown:
                try:
                    client.allreduce_async(np.ones(1), "x", op=basin.Sum)
                    raise AssertionError("a second round was begun")
                except basin.FailedPrecondition:
                    pass
            client.barrier("checked")
            result = handle.wait()
        client.barrier("end")
        return unknown, result.tolist()


def joins_when_it_is_ready(rank: int, folder: str) -> list[Any]:
    """Rank 1 is welcomed, and becomes a member with its first call."""
    import basin

    go, outside, alone = (Path(folder) / event for event in ("go", "outside", "alone"))
    options: Any = {"min_workers": 1, "start_workers": 1, "max_workers": 2}
    one = np.ones(1, np.float32)
    if rank == 1:
        hear(go)
        with basin.connect(ready=False, **options) as client:
            told = [(client.rank, client.world_size), client.place.is_member]
            say(outside)
            hear(alone)
            total = client.allreduce(one, "sum", op=basin.Sum)
            return [*told, float(total[0]), (client.rank, client.world_size)]
    with basin.connect(ready=False, **options) as client:
        told = [(client.rank, client.world_size), client.place.is_member]
        sums = [float(client.allreduce(one, "sum", op=basin.Sum)[0])]
        say(go)
        hear(outside)
        sums += [float(client.allreduce(one, "sum", op=basin.Sum)[0]) for _ in range(3)]
        say(alone)
        while client.world_size == 1:
            client.allreduce(one, "sum", op=basin.Sum)
        total = client.allreduce(one, "sum", op=basin.Sum)
        return [*told, float(total[0]), (client.rank, client.world_size), sums]


def barriers_that_time_out(rank: int) -> int:
    import basin

    ended = 0
    with basin.connect() as client:
        for turn in ("first", "second"):
            # The other worker reaches the barrier after this one has given up.
            if rank == 0:
                try:
                    client.barrier("late", timeout=0)
                except basin.OutcomeUnknown:
                    ended += 1
            client.barrier(turn)
            client.barrier("late")
        client.barrier("end")
        return ended


def broadcasts_that_time_out(rank: int) -> tuple[list[str], list[float]]:
    import basin

    ended = []
    with basin.connect() as client:

        def broadcast(number: float, timeout: float | None = None) -> float:
            array = np.full(1, number)
            return float(client.broadcast(array, "x", root_rank=1, timeout=timeout)[0])

        announce, get = client.worker.announce, client.worker.get

        def late_announce(*arguments: Any) -> None:
            client.barrier("asked")
            announce(*arguments)

        def get_at_once(lane: Any, spec: Any, version: Any, source: Any, _: Any, *to: Any) -> None:
            get(lane, spec, version, source, 0, *to)

        # The root has not called it yet.
        if rank == 0:
            try:
                broadcast(0, timeout=0)
            except basin.DeadlineExceeded as error:
                ended.append(str(error))
        client.barrier("called")
        values = [broadcast(10 + rank)]
        # The root has called it, but has not announced the value.
        if rank == 0:
            with mock.patch.object(client.worker, "get", get_at_once):
                try:
                    broadcast(0)
                except basin.DeadlineExceeded as error:
                    ended.append(str(error))
            client.barrier("asked")
            values.append(broadcast(0))
        else:
            with mock.patch.object(client.worker, "announce", late_announce):
                values.append(broadcast(21))
        values.append(broadcast(30 + rank))
        return ended, values


def begun_again(rank: int) -> tuple[str, str, list[float]]:
    import basin

    with basin.connect() as client:
        first = client.allreduce_async(np.full(1, 1.0), "x", op=basin.Sum)
        client.barrier("begun")
        said = []
        for begin in (client.allreduce_async, client.allreduce):
            try:
                begin(np.full(1, 2.0), "x", op=basin.Sum)
                said.append("")
            except basin.FailedPrecondition as error:
                said.append(str(error))
        sums = [first.wait()[0], client.allreduce(np.full(1, 2.0), "x", op=basin.Sum)[0]]
        client.barrier("end")
        return said[0], said[1], sums


def calls_that_time_out(rank: int) -> tuple[int, str, list[float]]:
    import basin

    ended = 0
    text = ""
    sums = []
    with basin.connect() as client:
        for name, late in (("x", client.allreduce), ("y", client.skip_round)):
            if rank == 0:
                try:
                    late(np.full(1, 1.0), name, op=basin.Sum, timeout=0)
                except basin.OutcomeUnknown:
                    ended += 1
                try:
                    client.allreduce_async(np.full(1, 5.0), name, op=basin.Sum)
                except basin.FailedPrecondition as error:
                    text = str(error)
            client.barrier("given up")
            # The second call's numbers are ignored, and the next round is of all workers again.
            for number in (7.0 if rank == 0 else 1.0, 10.0):
                sums.append(client.allreduce(np.full(1, number), name, op=basin.Sum)[0])
        client.barrier("end")
        return ended, text, sums


def dropped(rank: int) -> tuple[bool, int]:
    import gc

    import basin
    from basin import client as module

    def train() -> int:
        client = basin.connect()
        client.barrier()
        return client.world_size

    size = train()
    gc.collect()
    return len(module._open_clients) == 1, size


def forked(rank: int) -> tuple[bool, list[float]]:
    import basin

    with basin.connect() as client:
        client.barrier()
        child = os.fork()
        if child == 0:
            try:
                client.allreduce(np.ones(1), "x", op=basin.Sum)
            except basin.FailedPrecondition:
                client.close()  # This does nothing.
                os._exit(7)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        result = client.allreduce(np.ones(1), "x", op=basin.Sum)
        client.barrier("end")
        return os.waitstatus_to_exitcode(status) == 7, result.tolist()


def debug_log(rank: int) -> list[str]:
    import basin

    logger = logging.getLogger("basin")
    logger.setLevel(logging.DEBUG)
    try:
        with logged() as lines, basin.connect(log_level="debug") as client:
            client.barrier()
        return lines
    finally:
        logger.setLevel(logging.NOTSET)


def with_timeline(rank: int) -> tuple[list[str], str]:
    """The names of the slices of this worker's trace, and the error for a folder that is not."""
    import basin

    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        options: dict[str, Any] = {"timeline_every": 2, "timeline_max_bytes": 100000}
        # A slice of less than a microsecond is left out of a trace, so what is copied is large.
        ones = np.ones(1 << 18, np.float32)
        with basin.connect(timeline=str(trace), **options) as client:
            for _ in range(4):
                client.allreduce(ones, "ones", op=basin.Sum)
        events = json.loads(trace.read_text())
        try:
            basin.connect(timeline=f"{folder}/no/trace.json")
        except basin.InvalidArgument as error:
            return [event["name"] for event in events if event["ph"] == "X"], str(error)
    return [], ""


def one_skips(rank: int) -> tuple[dict[str, list[float]], str]:
    import basin

    array = np.array([rank + 3.0, -1.0], np.float32)
    with basin.connect() as client:
        results = {}
        for op in (basin.Sum, basin.Average, basin.Min, basin.Max):
            call = client.skip_round if rank == 2 else client.allreduce
            results[op.name] = call(
                array, op.name, op=op, prescale_factor=2.0, postscale_factor=0.5
            ).tolist()
        try:
            client.skip_round(array, "nobody", op=basin.Sum)
            text = ""
        except basin.NotFound as error:
            text = str(error)
        client.barrier()
        return results, text


def says_that_it_is_busy(rank: int) -> None:
    import basin

    with basin.connect() as client:
        client.busy(f"w{rank} writes a checkpoint", expected=2.5)
        client.barrier()
        client.busy("", expected=0)
        client.barrier("over")


def from_the_launcher(rank: int) -> tuple[str, int, int]:
    import basin

    for name in ("BASIN_WORKER_ID", "BASIN_MAX_WORKERS"):
        del os.environ[name]
    os.environ.update(RANK=str(rank), WORLD_SIZE="3")
    with basin.connect() as client:
        client.barrier()
        return client.worker_id, client.world_size, client.rank


def from_arguments(rank: int) -> tuple[str, int, str]:
    import basin

    address, job = os.environ["BASIN_ADDRESS"], os.environ["BASIN_JOB"]
    os.environ.update(BASIN_ADDRESS="127.0.0.1:1", BASIN_JOB="other", BASIN_MAX_WORKERS="7")
    with basin.connect(
        address,
        job,
        f"me-{rank}",
        run_id="run-1",
        min_workers=1,
        max_workers=2,
        start_workers=2,
        fresh=True,
        streams=3,
        log_level="error",
        pinned_bytes=1 << 20,
        timeout=60,
    ) as client:
        client.barrier()
        return client.worker_id, client.world_size, client.worker.options["pinned_bytes"]


def closes(rank: int) -> list[str]:
    import basin

    client = basin.connect()
    client.barrier()
    handle = client.allreduce_async(np.ones(1), "last", op=basin.Sum)
    client.close()
    client.close()
    said = []
    for call in (
        lambda: client.allreduce(np.ones(1), "x", op=basin.Sum),
        lambda: client.barrier(),
        lambda: client.broadcast(np.ones(1), "x", root_rank=0),
        lambda: client.finished(),
        lambda: client.busy("x", 1),
        lambda: client.rank,
        lambda: client.world_size,
        lambda: client.generation,
        lambda: client.place,
        lambda: client.worker_id,
        lambda: client.allreduce_async(np.ones(1), "x", op=basin.Sum),
        lambda: client.skip_round(np.ones(1), "x", op=basin.Sum),
        lambda: client.__enter__(),
        handle.wait,
    ):
        try:
            call()
            said.append("")
        except basin.Error as error:
            said.append(str(error))
    return said


def place_of_none(client: Any) -> list[str]:
    """The errors of a finished client about its place."""
    import basin

    said = []
    for name in ("rank", "world_size", "generation", "place"):
        try:
            said.append(str(getattr(client, name)))
        except basin.FailedPrecondition as error:
            said.append(str(error))
    client.finished()
    client.busy("saves", 1.0)
    return [*said, client.worker_id]


def one_finishes(rank: int) -> list[Any]:
    import basin

    with basin.connect(min_workers=1) as client:
        client.barrier()
        if rank == 2:
            handle = client.allreduce_async(np.ones(1), "of all", op=basin.Sum)
            try:
                client.finished()
                early = ""
            except basin.FailedPrecondition as error:
                early = str(error)
            client.barrier("seen")
            of_all = handle.wait()[0]
            client.finished()
            return [early, of_all, place_of_none(client)]
        client.barrier("seen")
        client.allreduce(np.ones(1), "of all", op=basin.Sum)
        sums = [client.allreduce(np.ones(1), "x", op=basin.Sum)[0] for _ in range(20)]
        client.barrier("others")
        return sums


class ClientTest(JobsTest):
    def test_sums_every_dtype_and_keeps_the_shape(self) -> None:
        for results in self.jobs.run(sum_of_every_dtype, 3):
            for dtype in DTYPES:
                expected = sum(contribution(rank, dtype) for rank in range(3))
                self.assertEqual(np.dtype(dtype), results[dtype].dtype)
                np.testing.assert_array_equal(expected.astype(dtype), results[dtype])

    def test_does_what_each_op_says(self) -> None:
        a = np.array([[rank + 1.0, -rank, 2.0] for rank in range(3)], np.float32)
        expected = {
            "SUM": a.sum(0),
            "AVERAGE": a.mean(0),
            "MIN": a.min(0),
            "MAX": a.max(0),
            "PRODUCT": a.prod(0),
            "scaled": 2 * a.sum(0),
        }
        for results in self.jobs.run(every_op, 3):
            for name, value in expected.items():
                np.testing.assert_array_equal(value, results[name], err_msg=name)

    def test_ranks_are_dense_and_the_generation_stays(self) -> None:
        places = self.jobs.run(place, 3)
        self.assertEqual([0, 1, 2], sorted(rank for rank, *_ in places))
        self.assertEqual([(3, f"w{i}", True) for i in range(3)], [p[1:] for p in places])

    def test_rounds_of_different_names_go_on_side_by_side(self) -> None:
        for first, second, contributors, divisor in self.jobs.run(two_at_once, 2):
            self.assertEqual([1.0] * 3, first)
            self.assertEqual([0.0, 3.0, 1.0, 4.0, 2.0, 5.0], second)
            self.assertEqual((["w0", "w1"], 2), (contributors, divisor))

    def test_broadcast_copies_the_bits_of_the_root(self) -> None:
        for received in self.jobs.run(broadcasts, 3):
            for k, (nan, zero, value) in enumerate(received):
                self.assertTrue(np.isnan(nan) and np.signbit(zero) and zero == 0.0)
                self.assertIn(value, [rank + 10.0 * k for rank in range(3)])
        self.assertEqual(1, len({str(received) for received in self.jobs.run(broadcasts, 3)}))

    def test_a_broadcast_that_timed_out_goes_on_when_it_is_called_again(self) -> None:
        (ended, *first), (_, *second) = self.jobs.run(broadcasts_that_time_out, 2)
        self.assertEqual([[11.0, 21.0, 31.0]], first)
        self.assertEqual(first, second)
        self.assertEqual(2, len(ended), ended)
        self.assertIn("call/broadcast/x", ended[0])
        self.assertIn("w1", ended[1])

    def test_another_shape_than_the_first_is_a_typed_error_that_names_the_array(self) -> None:
        texts = self.jobs.run(shapes_differ, 3)
        refused = [rank for rank, text in enumerate(texts) if text]
        self.assertIn(refused, ([2], [0, 1]), texts)
        for rank in refused:
            self.assertIn("tensor array", texts[rank])

    def test_another_op_is_a_typed_error_of_the_odd_one_out(self) -> None:
        *others, (text, result) = self.jobs.run(ops_differ, 3)
        self.assertEqual([], result)
        self.assertIn("MAX", text)
        self.assertEqual([("", [2.0, 2.0])] * 2, others)

    def test_a_client_without_references_is_kept_until_the_end(self) -> None:
        self.assertEqual([(True, 2)] * 2, self.jobs.run(dropped, 2))

    def test_a_worker_that_is_not_ready_joins_with_its_first_call(self) -> None:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as kept:
            make_events(folder, ("go", "outside", "alone"), kept)
            first, late = self.jobs.run(joins_when_it_is_ready, 2, folder)
        self.assertEqual([(0, 1), True, 2.0, (0, 2), [1.0] * 4], first)
        self.assertEqual([(1, 2), False, 2.0, (1, 2)], late)

    def test_a_barrier_that_timed_out_is_the_same_when_it_is_called_again(self) -> None:
        self.assertEqual([2, 0], self.jobs.run(barriers_that_time_out, 2))

    def test_a_name_is_not_begun_again_before_its_outcome_was_waited_for(self) -> None:
        for *said, sums in self.jobs.run(begun_again, 2):
            for text in said:
                self.assertRegex(text, r"^x was begun a second time.* wait\(\) for its handle")
            self.assertEqual([2.0, 4.0], sums)

    def test_a_call_that_timed_out_waits_for_the_same_round_when_it_is_called_again(self) -> None:
        late, other = self.jobs.run(calls_that_time_out, 2)
        self.assertEqual((2, 0), (late[0], other[0]))
        self.assertRegex(late[1], "^y was begun a second time.* Call it again without _async")
        for *_, sums in (late, other):
            self.assertEqual([2.0, 20.0, 1.0, 20.0], sums)

    def test_a_round_without_outcome_goes_on(self) -> None:
        outcomes = self.jobs.run(late_worker, 3)
        self.assertEqual([[3.0]] * 3, [result for _, result in outcomes])

    def test_fork_leaves_the_parent_alone(self) -> None:
        self.assertEqual([(True, [2.0])] * 2, self.jobs.run(forked, 2))

    def test_log_goes_to_python(self) -> None:
        for lines in self.jobs.run(debug_log, 2):
            self.assertTrue(any("worker w" in line for line in lines), lines)

    def test_a_timeline_has_the_calls(self) -> None:
        for slices, error in self.jobs.run(with_timeline, 2):
            rounds = [name for name in slices if name.startswith("round ")]
            self.assertEqual(["round 2", "round 4"], rounds)
            self.assertLessEqual({"push", "verdict", "copy"}, set(slices))
            self.assertIn("timeline (BASIN_TIMELINE) is ", error)

    def test_a_worker_that_has_finished_is_not_missed(self) -> None:
        *sums, [early, of_all, place] = self.jobs.run(one_finishes, 3)
        self.assertRegex(
            early, r"^finished\(\) was used with rounds in flight .*: of all\. Wait for"
        )
        self.assertEqual(3.0, of_all)
        *said, worker_id = place
        self.assertEqual((4, "w2"), (len(said), worker_id))
        for text in said:
            self.assertIn("was used after finished(), when this worker no longer has a place", text)
        for each in sums:
            self.assertEqual([2.0] * 20, each)

    def test_a_worker_that_skips_a_round_gets_the_result_of_the_others(self) -> None:
        expected = {"SUM": [7.0, -2.0], "AVERAGE": [7 / 3, -2 / 3], "MIN": [3, -1], "MAX": [4, -1]}
        for results, text in self.jobs.run(one_skips, 3):
            for name, value in expected.items():
                np.testing.assert_array_equal(np.array(value, np.float32), results[name], name)
            self.assertNotEqual("", text)

    def test_the_aggregator_knows_who_is_busy_and_why(self) -> None:
        self.jobs.run(says_that_it_is_busy, 2)
        log = "".join(self.jobs.aggregator.lines)
        for rank in range(2):
            self.assertIn(f"w{rank} writes a checkpoint", log)

    def test_the_launcher_sets_the_identity_of_a_worker(self) -> None:
        self.assertEqual(
            [(f"worker-{i}", 3, i) for i in range(3)],
            sorted(self.jobs.run(from_the_launcher, 3)),
        )

    def test_arguments_come_before_the_environment(self) -> None:
        self.assertEqual(
            [("me-0", 2, "1048576"), ("me-1", 2, "1048576")], self.jobs.run(from_arguments, 2)
        )

    def test_after_close_every_call_is_a_typed_error(self) -> None:
        for said in self.jobs.run(closes, 2):
            self.assertEqual(14, len(said))
            for text in said:
                self.assertRegex(text, r" was used after close\(\).* connect another client")


class Manual(unittest.TestCase):
    def test_everything_public_is_annotated_and_explained(self) -> None:
        os.environ["BASIN_LIBRARY"] = sys.argv[2]
        import basin

        for kind in (basin.Client, basin.Handle):
            for name, member in vars(kind).items():
                if name.startswith("_") or name in (
                    "start",
                    "agree_on_version",
                    "broadcast_memory",
                ):
                    continue
                function = member.fget if isinstance(member, property) else member
                if not callable(function):
                    continue
                with self.subTest(f"{kind.__name__}.{name}"):
                    self.assertTrue(inspect.getdoc(function))
                    signature = inspect.signature(function)
                    self.assertIsNot(inspect.Signature.empty, signature.return_annotation)
                    for parameter in list(signature.parameters.values())[1:]:
                        self.assertIsNot(inspect.Parameter.empty, parameter.annotation)


class Errors(unittest.TestCase):
    def test_invalid_options(self) -> None:
        os.environ["BASIN_LIBRARY"] = sys.argv[2]
        import basin

        with self.assertRaisesRegex(basin.InvalidArgument, "address"):
            basin.connect(address="no-port")
        with self.assertRaisesRegex(basin.InvalidArgument, "address cannot be 5"):
            basin.connect(address=5)  # type: ignore[arg-type]
        with self.assertRaisesRegex(basin.InvalidArgument, "pinned_bytes .*-1.* whole number"):
            basin.connect(pinned_bytes=-1)
        with self.assertRaisesRegex(basin.InvalidArgument, "timeout cannot be 'x'"):
            basin.connect(timeout="x")  # type: ignore[arg-type]
        with self.assertRaisesRegex(basin.DeadlineExceeded, "."):
            basin.connect(address="127.0.0.1:1", max_workers=1, timeout=0.05)

    def test_a_library_of_another_release_is_refused_by_name(self) -> None:
        from basin import _abi, _library

        with self.assertRaisesRegex(ImportError, r"lib/x has no basin_abi_version.*libbasin\.so"):
            _library._declare(SimpleNamespace(), Path("lib/x"))  # type: ignore[arg-type]

        def library(version: int) -> Any:
            return SimpleNamespace(
                basin_abi_version=lambda: version, basin_version=lambda: b"0.0.9"
            )

        with self.assertRaisesRegex(ImportError, r"lib/x has version 7 .*of the same release"):
            _library._declare(library(7), Path("lib/x"))
        lacking = r"lib/x is of release 0\.0\.9 and has no basin_code_name.*of the same release"
        with self.assertRaisesRegex(ImportError, lacking):
            _library._declare(library(_abi.ABI_VERSION), Path("lib/x"))

    def test_a_file_that_is_no_library_is_refused_by_name(self) -> None:
        from basin import _library

        with tempfile.NamedTemporaryFile("w") as file:
            file.write("no library")
            file.flush()
            with (
                mock.patch.dict(os.environ, BASIN_LIBRARY=file.name),
                self.assertRaisesRegex(ImportError, f"{file.name} cannot be loaded: .*BASIN_LIB"),
            ):
                _library._load()

    def test_codes_have_the_names_of_the_c_interface(self) -> None:
        import ctypes

        from basin.errors import BY_CODE

        library = ctypes.CDLL(sys.argv[2])
        library.basin_code_name.restype = ctypes.c_char_p
        for code, kind in BY_CODE.items():
            name = library.basin_code_name(code).decode()
            self.assertEqual(name.replace("_", ""), kind.__name__.upper())
        self.assertEqual(b"UNKNOWN", library.basin_code_name(len(BY_CODE) + 1))


if __name__ == "__main__":
    main()
