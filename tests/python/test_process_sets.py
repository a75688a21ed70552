# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Process sets: calls of some workers of a job.

Usage: test_process_sets.py BASIND LIBBASIN
"""

import contextlib
import os
import signal
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from jobs import hear, make_events, require, say

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch_jobs import TorchTest, expect, main, session  # noqa: E402


def sets(rank: int) -> Any:
    from basin import Paused, Unavailable, client, descent, process_set
    from basin.torch import context

    with session() as bt:
        rank = bt.rank()
        outer = bt.add_process_set([2, 0])
        both = bt.add_process_set(bt.ProcessSet(0, 1))
        everyone = bt.allreduce(torch.tensor(rank), op=bt.Sum).item()
        made: dict[str, Any] = {"everyone": everyone, "included": outer.included()}
        if outer.included():
            x = torch.full((2,), rank + 1.0, requires_grad=True)
            total = bt.allreduce(x, op=bt.Sum, process_set=outer)
            (total.sum() * (rank + 1)).backward()
            made["outer"] = (outer.rank(), outer.size(), total.tolist(), x.grad)
            rows = bt.allgather_async(torch.full((rank,), rank), process_set=outer)
            made["rows"] = rows.wait().tolist()
            mine, _ = bt.alltoall(torch.tensor([rank, 10 + rank]), process_set=outer)
            made["sent"] = mine.tolist()
            made["said"] = bt.broadcast(torch.tensor(rank), 1, "x", process_set=outer).item()
        else:
            made["refused"] = expect(
                "InvalidArgument", lambda: bt.allgather(torch.ones(1), process_set=outer)
            )
        if both.included():
            part = bt.reducescatter(torch.arange(4.0), op=bt.Sum, process_set=both)
            made["part"] = part.tolist()
        made["texts"] = [
            expect("Mismatch", bt.add_process_set, [0, 1 + (rank == 1)]),
            expect("InvalidArgument", bt.add_process_set, [0, 3]),
            expect("InvalidArgument", bt.add_process_set, [1, 1]),
            expect("InvalidArgument", bt.add_process_set, []),
            expect(
                "FailedPrecondition",
                lambda: bt.barrier() or bt.allgather(torch.ones(1), process_set=bt.ProcessSet(0)),
            ),
        ]
        # A member that could not connect can add the same set again.
        failed = bt.ProcessSet(0, 1)
        with mock.patch.object(process_set, "connect", side_effect=Unavailable("not now")):
            if rank < 2:
                made["texts"].append(expect("Unavailable", bt.add_process_set, failed))
            else:
                bt.add_process_set(failed)
        made["failed"] = failed.workers
        # Helper processes are those of the worker of the job.
        made["helpers"] = descent.place_of_worker()
        member = context.current().client
        with mock.patch.multiple(member, _will_leave=True, ends_well=True):
            made["ends well"] = client.ends_well_with(Paused("the job"))
        made["after"] = bt.allreduce(torch.tensor(rank), op=bt.Sum).item()
        return made


def a_member_goes(rank: int, events: str, lost: bool) -> Any:
    """A member of a set leaves it, or dies, while the others wait for it."""
    with session() as bt:
        group = bt.add_process_set([0, 1, 2])
        bt.allreduce(torch.ones(1), op=bt.Sum, process_set=group)
        if rank == 2:
            for other in (0, 1):
                hear(Path(events) / f"wait {other}")
            if lost:
                os.kill(os.getpid(), signal.SIGKILL)
            bt.remove_process_set(group)
        else:
            handle = bt.allreduce_async(torch.ones(1), op=bt.Sum, process_set=group)
            say(Path(events) / f"wait {rank}")
            texts = [expect("Unavailable", handle.wait)]
            if rank == 1:
                hear(Path(events) / "first has gone")
            texts += [
                expect("Unavailable", lambda: bt.allgather(torch.ones(1), process_set=group))
                for _ in range(2)
            ]
            if rank == 0:  # Its second call has left the set.
                say(Path(events) / "first has gone")
        # The job goes on, also with a set of those that are there.
        bt.barrier("they are gone")
        if rank == 2:
            texts = [expect("Unavailable", lambda: bt.allgather(torch.ones(1), process_set=group))]
        again = bt.add_process_set([0, 1])
        if not again.included():
            return texts, None
        return texts, bt.allreduce(torch.ones(1), op=bt.Sum, process_set=again).item()


class ProcessSets(TorchTest):
    def test_only_the_members_make_its_calls(self) -> None:
        for rank, made in enumerate(self.jobs.run(sets, 3)):
            self.assertEqual((made["everyone"], made["after"]), (3, 3))
            self.assertEqual(made["included"], rank != 1)
            self.assertEqual(made["helpers"], (rank, 3))
            self.assertTrue(made["ends well"])
            if rank == 1:
                self.assertIn("ProcessSet(0, 2), of the workers w0, w2", made["refused"])
            else:
                place, size, total, gradient = made["outer"]
                self.assertEqual((place, size, total), (rank // 2, 2, [4.0, 4.0]))
                self.assertEqual(gradient.tolist(), [4.0, 4.0])
                self.assertEqual(made["rows"], [2, 2])
                self.assertEqual(made["sent"], [0, 2] if rank == 0 else [10, 12])
                self.assertEqual(made["said"], 2)
            if rank < 2:
                self.assertEqual(made["part"], [[0.0, 2.0], [4.0, 6.0]][rank])
            different, high, twice, none, unknown = made["texts"][:5]
            self.assertEqual(made["failed"], ("w0", "w1") if rank == 2 else ())
            self.assertIn("worker w0 calls add_process_set() of ranks 0 (w0), 1 (w1)", different)
            self.assertIn("worker w1 calls add_process_set() of ranks 0 (w0), 2 (w2)", different)
            self.assertIn("there are 3 workers", high)
            self.assertIn("different ranks", twice)
            self.assertIn("at least one", none)
            self.assertIn("Call add_process_set() on all workers first", unknown)

    def check_gone(self, lost: bool) -> None:
        with tempfile.TemporaryDirectory() as events, contextlib.ExitStack() as kept:
            make_events(events, ["wait 0", "wait 1", "first has gone"], kept)
            got = self.jobs.run(
                a_member_goes, 3, events, lost, mortal={2} if lost else (), BASIN_MIN_WORKERS="1"
            )
        for texts, again in got[:2]:
            for text in texts:
                self.assertIn("of the workers w0, w1, w2 has no more calls: w2 has left", text)
                self.assertIn("w0, w1 remains", text)
            self.assertEqual(again, 2.0)
        if not lost:
            self.assertIn("was removed here", got[2][0][0])

    def test_a_member_that_leaves_the_set_is_named_to_the_others(self) -> None:
        self.check_gone(lost=False)

    def test_a_member_that_is_lost_is_named_to_the_others(self) -> None:
        self.check_gone(lost=True)


if __name__ == "__main__":
    main()
