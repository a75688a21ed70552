# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""allgather, reducescatter, alltoall and broadcast of NumPy arrays.

Usage: test_collectives.py BASIND LIBBASIN
"""

import itertools
import os
import signal
import sys
import unittest
from typing import Any

from jobs import JobsTest, message, require

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
        return {
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
        if rank == 2:
            Gathering._begin_contents = (  # type: ignore[method-assign]
                lambda *_: os.kill(os.getpid(), signal.SIGKILL)
            )
        texts = [message("Unavailable", client.allgather, np.array([rank]))]
        while client.world_size == 3:  # The membership follows with the next rounds.
            client.barrier()
        gathered = client.allgather(np.array([rank])).tolist()
        return texts, gathered, client.reducescatter(np.ones(4), op=basin.Sum).tolist()


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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
