# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Calls on rows through the C++ interface.

Usage: test_rows_cpp.py ROWS_WORKER_CPP BASIND LIBBASIN
"""

import subprocess
import sys

_WORKER = sys.argv.pop(1)

from jobs import PATIENCE, JobsTest, main, require  # noqa: E402 - reads the other arguments

require("numpy")
import numpy as np  # noqa: E402 - ends above when there is none


class RowsCpp(JobsTest):
    def start(self, job: str, rank: int, *arguments: str) -> "subprocess.Popen[str]":
        environment = self.jobs.environment(job, rank, 2)
        return subprocess.Popen(
            [_WORKER, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def test_every_call_of_two_workers(self) -> None:
        workers = [self.start("rows", rank) for rank in range(2)]
        sums = [["reducescatter 10 12"], ["reducescatter 14"]]
        received = [["alltoall 0", "alltoall 10"], ["alltoall 1 2", "alltoall 11 12"]]
        for rank, worker in enumerate(workers):
            out, error = worker.communicate(timeout=PATIENCE)
            self.assertEqual(worker.returncode, 0, error)
            lines = out.splitlines()
            self.assertEqual(lines[:2], ["allgather", "allgather 1 1"])
            self.assertEqual(lines[2:4], received[rank])
            self.assertEqual(lines[4:5], sums[rank])
            self.assertEqual(lines[5], "broadcast 10 11 12")
            self.assertIn("MISMATCH", lines[6])
            self.assertIn("worker w0 calls allgather of int64[*]", lines[6])
            self.assertIn("worker w1 calls allgather of float64[*]", lines[6])
            self.assertEqual(lines[7], "INVALID_ARGUMENT")

    def test_a_worker_of_python_makes_the_same_calls(self) -> None:
        import basin  # Found by the path that jobs sets.

        worker = self.start("mixed", 1, "shared")
        address = self.jobs.aggregator.address
        with basin.connect(address, "mixed", "w0", max_workers=2, fresh=True) as client:
            gathered = client.allgather(np.empty((0, 2), np.float32), "rows")
            sent, counts = client.alltoall(np.arange(3), [1, 2], "sent")
            total = client.reducescatter(np.arange(3), "sum", op=basin.Sum)
            said = client.broadcast_async(np.arange(3), "said", root_rank=1).wait()
            client.barrier("end")
        out, error = worker.communicate(timeout=PATIENCE)
        self.assertEqual(worker.returncode, 0, error)
        self.assertEqual(gathered.tolist(), [[1.0, 1.0]])
        self.assertEqual((sent.tolist(), counts), ([0, 10], [1, 1]))
        self.assertEqual(total.tolist(), [10, 12])
        self.assertEqual(said.tolist(), [10, 11, 12])
        lines = ["allgather", "allgather 1 1", "alltoall 1 2", "alltoall 11 12", "reducescatter 14"]
        self.assertEqual(out.splitlines(), [*lines, "broadcast 10 11 12"])


if __name__ == "__main__":
    main()
