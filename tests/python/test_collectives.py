# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""allgather, reducescatter, alltoall and broadcast of NumPy arrays.

Usage: test_collectives.py BASIND LIBBASIN
"""

import contextlib
import itertools
import os
import signal
import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from jobs import JobsTest, hear, main, make_events, message, require, say

require("numpy")
import numpy as np  # noqa: E402 - ends above when there is none


def everything(rank: int, name: str | None) -> Any:
    """Each call with a name, or each without one."""
    import basin

    def named(call: str) -> str | None:
        return None if name is None else f"{name} {call}"

    with basin.connect() as client:
        rank, size = client.rank, client.world_size
        rows = np.full((rank, 3), rank, np.int16)
        rows[:, 0] = -1
        gathered = client.allgather(rows, named("rows"))
        numbers = client.allgather(np.float64(rank), named("numbers"))
        flags = client.allgather(np.array([rank == 1]), named("flags"))
        nothing = client.allgather(np.zeros((2, 0), np.complex64), named("nothing"))
        # A name keeps no number of rows.
        again = [client.allgather(np.full(each * rank, 1.0), named("more")) for each in (1, 9, 0)]
        later = client.allgather_async(np.array([rank]), named("later"))
        total = client.allreduce(np.ones(2), named("total"), op=basin.Sum)
        scattered = client.reducescatter(
            np.arange(10.0).reshape(5, 2) + rank, named("scattered"), op=basin.Average
        )
        sent, counts = client.alltoall(
            np.arange(6) + 10 * rank, [1, 2, 3][:size] if size == 3 else [2, 4], named("sent")
        )
        evenly, _ = client.alltoall(np.arange(6) + 10 * rank, name=named("evenly"))
        said = client.broadcast(
            np.full(3, np.nan if rank == 1 else 0.0), named("said"), root_rank=1
        )
        # All in flight at once.
        pending: list[Any] = [
            client.reducescatter_async(np.arange(4.0) + rank, named("async sum"), op=basin.Sum),
            client.alltoall_async(np.arange(size) + 10 * rank, name=named("async sent")),
            client.broadcast_async(np.array([rank, -rank]), named("async said"), root_rank=1),
        ]
        return {
            "pending": [handle.wait() for handle in reversed(pending)],
            "gathered": gathered,
            "numbers": numbers,
            "flags": flags,
            "nothing": nothing.shape,
            "again": [each.size for each in again],
            "later": later.wait(),
            "total": total,
            "scattered": scattered,
            "sent": (rank, sent, counts),
            "evenly": evenly,
            "said": said,
        }


def different(rank: int) -> Any:
    import basin

    with basin.connect() as client:
        ones = np.ones((2, 2), np.float32)
        calls = {
            "kind": lambda: (
                client.alltoall(ones, [1, 1, 0]) if rank == 1 else client.allgather(ones[:rank])
            ),
            "dtype": lambda: client.allgather(ones.astype(np.int8) if rank == 1 else ones),
            "shape": lambda: client.allgather(ones[:, : 2 - (rank == 1)]),
            "reduction": lambda: (client.reducescatter if rank == 1 else client.allreduce)(
                ones, op=basin.Sum
            ),
            "root": lambda: client.broadcast(ones, root_rank=int(rank == 1)),
            "name": lambda: client.allgather(ones.astype(np.int8) if rank == 1 else ones, "x"),
        }
        texts = {kind: message("Mismatch", call) for kind, call in calls.items()}
        wrong = {
            "even": message("InvalidArgument", client.alltoall, np.ones(5)),
            "sum": message("InvalidArgument", client.alltoall, np.ones(5), [1, 1]),
            "number": message("InvalidArgument", client.alltoall, np.ones(5), [1, 1, 1.5]),
            "none": message("InvalidArgument", client.reducescatter, np.ones(()), op=basin.Sum),
            "object": message("InvalidArgument", client.allgather, np.array([None, "x"])),
        }
        return texts, wrong, client.allgather(np.array([rank])).tolist()


def in_any_order(rank: int) -> Any:
    """Many at once, which each worker waits for in another order, behind another call."""
    import basin

    with basin.connect() as client:
        handles = [client.allgather_async(np.full(i, rank)) for i in range(40)]
        client.barrier()
        order = range(40) if rank == 0 else reversed(range(40))
        sums = {i: int(handles[i].wait().sum()) for i in order}
        return [sums[i] for i in range(40)]


def one_is_lost(rank: int) -> Any:
    """The last worker ends between the two rounds of an allgather, and the next calls go on."""
    import basin
    from basin.gathering import Gathering

    with basin.connect() as client:
        client.allgather(np.array([rank]))

        def end(gathering: Gathering[Any], timeout: float | None) -> None:
            client.worker.wait(gathering._lane, timeout)  # The first round has its contribution.
            os.kill(os.getpid(), signal.SIGKILL)

        if rank == 2:
            Gathering._begin_contents = end  # type: ignore[method-assign, assignment]
        texts = [message("Unavailable", client.allgather, np.array([rank]))]
        while client.world_size == 3:  # The membership follows with the next rounds.
            client.barrier()
        gathered = client.allgather(np.array([rank])).tolist()
        return texts, gathered, client.reducescatter(np.ones(4), op=basin.Sum).tolist()


def lanes_asked_twice_at_once(rank: int) -> Any:
    """The second call asks for a lane while the first one registers them."""
    import basin

    with basin.connect() as client:
        register = client.worker.register
        inner: list[str] = []

        def ask(*arguments: Any) -> Any:
            made = register(*arguments)
            client.worker.register = register  # type: ignore[method-assign]
            if not inner:
                inner.append("asks")
                last, _ = register("call/unnamed/16/15", 1, [])
                inner[0] = client.unnamed_lane(last)
            return made

        first, _ = register("call/unnamed/16/0", 1, [])
        client.worker.register = ask  # type: ignore[method-assign, assignment]
        return client.unnamed_lane(first), *inner


def one_is_refused(rank: int) -> Any:
    """What fails on one worker between the rounds, which it can do in three ways, is no loss for
    the others."""
    import basin
    from basin.gathering import Gathering
    from basin.worker import Worker

    def refuse(worker: Worker, lane: int) -> basin.Error:
        worker.withdraw(lane, "not now")
        return basin.Unavailable("not now")

    def fail(*_: Any) -> Any:
        raise basin.ResourceExhausted("no room")

    got: list[Any] = []
    with basin.connect() as client:
        for name in (None, "named"):
            with warnings.catch_warnings(record=True) as warned:
                # On w0 the warning is an error, and w2 has its rows all the same.
                warnings.simplefilter("error" if rank == 0 else "always")
                call = partial(client.allgather, np.array([rank]), name)
                if rank == 1:
                    with mock.patch.object(Worker, "commit", refuse):
                        handle = client.allgather_async(np.array([rank]), name)
                        got.append(message("Unavailable", handle.wait))
                elif rank == 0:
                    got.append(message("ContributorsChanged", call))
                else:
                    got.append((call().tolist(), [str(each.message) for each in warned]))
            client.barrier()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if rank == 1:
                    with mock.patch.object(Gathering, "_push_contents", fail):
                        got.append(message("ResourceExhausted", call))
                else:
                    got.append(message("Unavailable", call))
            got.append(call().tolist())
            # A refused worker has its own error also if all end with one after the first round.
            if rank == 1:
                with mock.patch.object(Worker, "commit", refuse):
                    sending = partial(client.alltoall, np.arange(3), name=name)
                    got.append(message("Unavailable", sending))
            else:
                got.append(message("Unavailable", client.alltoall, np.arange(3), name=name))
            got.append(client.alltoall(np.arange(3), name=name)[0].tolist())
    return got


def one_has_left_the_call(rank: int, events: str) -> Any:
    """The call of one worker times out, and it does other things while the others go on."""
    import basin

    with basin.connect() as client:
        client.allgather(np.array([rank]))  # Before it, one without a name cannot begin at once.
        for i, name in enumerate((None, "named")):
            call = partial(client.allgather, np.array([rank]), name)
            if rank == 0:
                assert message("OutcomeUnknown", partial(call, timeout=0.0))
                say(Path(events) / f"left {i}")
                hear(Path(events) / f"done {i}")
            else:
                hear(Path(events) / f"left {i}")
            gathered = call().tolist()
            if rank == 1:
                say(Path(events) / f"done {i}")
        return gathered


def given_up(rank: int, events: str) -> Any:
    """rejoin() ends the threads of calls that it gives up, while they wait."""
    import basin

    with basin.connect() as client:
        client.allgather(np.array([rank]))
        if rank == 1:
            hear(Path(events) / "gave up")
            return None
        names = [None, "a", "b", "c"]
        handles = [client.allgather_async(np.array([rank]), name) for name in names]
        threads = [handle._thread for handle in handles]  # type: ignore[attr-defined]
        alive: list[bool] = []

        def look() -> None:
            alive.extend(thread.is_alive() for thread in threads)
            raise basin.Unavailable("it has been seen")

        with mock.patch.object(client.worker, "ready", look):
            assert message("Unavailable", client.rejoin, None)
        client.close(finished=False)
        say(Path(events) / "gave up")
        return alive, [message("FailedPrecondition", handle.wait) for handle in handles]


def of_several_ranks(rank: int) -> Any:
    import basin

    with basin.connect(ranks=2, min_workers=1, max_workers=1, local_group="off") as client:
        return [
            message("Unsupported", client.alltoall, np.ones(4)),
            message("Unsupported", client.reducescatter, np.ones(4), op=basin.Sum),
            client.allgather(np.ones(2)).tolist(),
        ]


class Collectives(JobsTest):
    def check(self, size: int, name: str | None) -> None:
        for rank, got in enumerate(self.jobs.run(everything, size, name)):
            self.assertEqual(got["gathered"].dtype, np.int16)
            rows = [[-1, 1, 1], *[[-1, 2, 2]] * 2] if size == 3 else [[-1, 1, 1]]
            self.assertEqual(got["gathered"].tolist(), rows)
            self.assertEqual(got["numbers"].tolist(), list(range(size)))
            self.assertEqual(got["flags"].tolist(), [False, True, False][:size])
            self.assertEqual(got["nothing"], (2 * size, 0))
            ranks = sum(range(size))
            self.assertEqual(got["again"], [ranks, 9 * ranks, 0])
            self.assertEqual(got["later"].tolist(), list(range(size)))
            self.assertEqual(got["total"].tolist(), [size, size])
            whole = np.arange(10.0).reshape(5, 2) + (size - 1) / 2
            mine = [(0, 2), (2, 4), (4, 5)] if size == 3 else [(0, 3), (3, 5)]
            begin, end = mine[rank]
            self.assertEqual(got["scattered"].tolist(), whole[begin:end].tolist())
            self.assertEqual(got["sent"][0], rank)
            begin, end = ([(0, 1), (1, 3), (3, 6)] if size == 3 else [(0, 2), (2, 6)])[rank]
            each = [[*range(10 * i + begin, 10 * i + end)] for i in range(size)]
            self.assertEqual(got["sent"][1].tolist(), list(itertools.chain(*each)))
            self.assertEqual(got["sent"][2], [end - begin] * size)
            step = 6 // size
            each = [[*range(10 * i + step * rank, 10 * i + step * (rank + 1))] for i in range(size)]
            self.assertEqual(got["evenly"].tolist(), list(itertools.chain(*each)))
            self.assertTrue(np.isnan(got["said"]).all())
            root, (exchanged, ones), added = got["pending"]
            self.assertEqual(root.tolist(), [1, -1])
            self.assertEqual(exchanged.tolist(), [10 * i + rank for i in range(size)])
            self.assertEqual(ones, [1] * size)
            total = [size * i + ranks for i in range(4)]
            begin, end = ([(0, 2), (2, 3), (3, 4)] if size == 3 else [(0, 2), (2, 4)])[rank]
            self.assertEqual(added.tolist(), total[begin:end])

    def test_every_call_without_names(self) -> None:
        self.check(3, None)

    def test_every_call_with_names_and_of_two_workers(self) -> None:
        self.check(2, "my")

    def test_different_calls_are_errors_that_name_both_sides(self) -> None:
        for texts, wrong, after in self.jobs.run(different, 3):
            sides = {
                "kind": ("allgather of float32[*, 2]", "alltoall among 3 workers"),
                "dtype": ("allgather of float32[*, 2]", "allgather of int8[*, 2]"),
                "shape": ("allgather of float32[*, 2]", "allgather of float32[*, 1]"),
                "reduction": ("SUM of f32[2,2]", "reducescatter among 3 workers"),
                "root": ("broadcast from rank 0", "broadcast from rank 1"),
                "name": ("allgather of float32[*, 2]", "allgather of int8[*, 2]"),
            }
            for kind, (first, second) in sides.items():
                self.assertIn(f"worker w0 calls {first}", texts[kind])
                self.assertIn(f"worker w1 calls {second}", texts[kind])
            self.assertIn("5 rows, which 3 workers cannot share evenly", wrong["even"])
            for kind in ("sum", "number"):
                self.assertIn("Pass 3 whole numbers", wrong[kind])
            self.assertIn("has no rows to share", wrong["none"])
            self.assertIn("whose elements are not plain numbers", wrong["object"])
            self.assertEqual(after, [0, 1, 2])

    def test_many_at_once_are_waited_for_in_any_order(self) -> None:
        for sums in self.jobs.run(in_any_order, 3):
            self.assertEqual(sums, [3 * i for i in range(40)])

    def test_a_loss_between_the_rounds_is_an_error_for_all_others(self) -> None:
        lost = self.jobs.run(one_is_lost, 3, mortal={2}, BASIN_MIN_WORKERS="1")
        for rank, (texts, gathered, scattered) in enumerate(lost[:2]):
            self.assertIn("Worker w2 was lost before it had sent its part", texts[0])
            self.assertEqual(gathered, [0, 1])
            self.assertEqual(scattered, [2.0, 2.0], rank)

    def test_lanes_of_calls_without_names_are_known_all_at_once(self) -> None:
        (lanes,) = self.jobs.run(lanes_asked_twice_at_once, 1)
        self.assertEqual(lanes, ("unnamed/16/0", "unnamed/16/15"))

    def test_what_fails_on_one_worker_is_no_wait_for_the_others(self) -> None:
        every = self.jobs.run(one_is_refused, 3)
        for i in (0, 5):
            warned, refused, (gathered, warnings_of_others) = (each[i] for each in every)
            self.assertIn("The contribution of w1 is not in it", warned)
            self.assertEqual(refused, "not now")
            self.assertEqual(gathered, [0, 2])
            self.assertIn("The contribution of w1 is not in it", warnings_of_others[0])
            self.assertEqual(every[1][i + 1], "no room")
            self.assertEqual(every[1][i + 3], "not now")
            for rank, got in enumerate(every):
                if rank != 1:
                    self.assertIn("Worker w1 was lost before it had sent its part", got[i + 1])
                    self.assertIn("3 workers, and 2 take part", got[i + 3])
                self.assertEqual(got[i + 2], [0, 1, 2])
                self.assertEqual(got[i + 4], [rank] * 3)

    def test_the_others_go_on_when_one_has_timed_out(self) -> None:
        with tempfile.TemporaryDirectory() as events, contextlib.ExitStack() as kept:
            make_events(events, ["left 0", "done 0", "left 1", "done 1"], kept)
            got = self.jobs.run(one_has_left_the_call, 2, events)
        self.assertEqual(got, [[0, 1]] * 2)

    def test_rejoin_ends_the_threads_of_what_it_gives_up(self) -> None:
        with tempfile.TemporaryDirectory() as events, contextlib.ExitStack() as kept:
            make_events(events, ["gave up"], kept)
            (alive, texts), _ = self.jobs.run(given_up, 2, events, BASIN_MIN_WORKERS="1")
        self.assertEqual(alive, [False] * 4)
        for text in texts:
            self.assertIn("was abandoned by rejoin()", text)

    def test_a_worker_of_several_ranks_has_no_rows_of_one(self) -> None:
        ((sent, scattered, gathered),) = self.jobs.run(of_several_ranks, 1)
        self.assertIn("alltoall() has rows for each rank, and this worker stands for 2", sent)
        self.assertIn("reducescatter() has rows for each rank", scattered)
        self.assertEqual(gathered, [1.0, 1.0])


if __name__ == "__main__":
    main()
