# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Calls on rows through the C interface, by a worker that is compiled as C, alone and together with
workers in C++ and Python.

Usage: test_rows_c.py C_COMPILER ROWS_WORKER_CPP BASIND LIBBASIN
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import ClassVar

_COMPILER, _CPP_WORKER = sys.argv[1:3]
del sys.argv[1:3]

from jobs import PATIENCE, ROOT, JobsTest, main, message, require  # noqa: E402 - reads the others

require("numpy")
import numpy as np  # noqa: E402 - ends above when there is none

_STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")


class RowsC(JobsTest):
    folder: ClassVar[tempfile.TemporaryDirectory[str]]
    worker: ClassVar[str]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.worker = str(Path(cls.folder.name) / "rows_worker")
        source, library = Path(__file__).with_name("rows_worker.c"), Path(sys.argv[2])
        subprocess.run(
            [
                *(_COMPILER, *_STRICT, f"-I{ROOT / 'client/c/include'}"),
                *(source, library, f"-Wl,-rpath,{library.parent}", "-o", cls.worker),
            ],
            check=True,
        )

    def start(
        self, program: str, job: str, rank: int, workers: int, *arguments: str, **more: str
    ) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [program, *arguments],
            env={**self.jobs.environment(job, rank, workers), **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def lines(self, worker: "subprocess.Popen[str]") -> list[str]:
        out, error = worker.communicate(timeout=PATIENCE)
        self.assertEqual(worker.returncode, 0, error)
        return out.splitlines()

    def test_every_call_of_two_workers(self) -> None:
        workers = [self.start(self.worker, "rows", rank, 2) for rank in range(2)]
        received = [["alltoall 0", "alltoall 10"], ["alltoall 1 2", "alltoall 11 12"]]
        sums = ["reducescatter 10 12", "reducescatter 14"]
        for rank, worker in enumerate(workers):
            lines = self.lines(worker)
            self.assertEqual(lines[:2], ["allgather", "allgather 1 1"])
            self.assertEqual(lines[2:4], received[rank])
            self.assertEqual(lines[4:6], [sums[rank], "broadcast 10 11 12"])
            self.assertIn("MISMATCH", lines[6])
            self.assertIn("worker w0 calls allgather of int64[*]", lines[6])
            self.assertIn("worker w1 calls allgather of float64[*]", lines[6])
            self.assertEqual(lines[7], "INVALID_ARGUMENT")

    def test_workers_in_c_cpp_and_python_make_the_same_calls(self) -> None:
        import basin  # Found by the path that jobs sets.

        others = [
            self.start(_CPP_WORKER, "mixed", 1, 3, "shared"),
            self.start(self.worker, "mixed", 2, 3, "shared"),
        ]
        address = self.jobs.aggregator.address
        with basin.connect(address, "mixed", "w0", max_workers=3, fresh=True) as client:
            gathered = client.allgather(np.empty((0, 2), np.float32), "rows")
            sent, counts = client.alltoall(np.arange(3), [1, 1, 1], "sent")
            total = client.reducescatter(np.arange(3), "sum", op=basin.Sum)
            said = client.broadcast_async(np.arange(3), "said", root_rank=1).wait()
            client.barrier("end")
        self.assertEqual(gathered.tolist(), [[1.0, 1.0], [2.0, 2.0], [2.0, 2.0]])
        self.assertEqual((sent.tolist(), counts), ([0, 10, 20], [1, 1, 1]))
        self.assertEqual(total.tolist(), [30])
        self.assertEqual(said.tolist(), [10, 11, 12])
        for rank, worker in enumerate(others, 1):
            self.assertEqual(
                self.lines(worker),
                [
                    *("allgather", "allgather 1 1", "allgather 2 2 2 2"),
                    *(f"alltoall {base + rank}" for base in (0, 10, 20)),
                    *(f"reducescatter {30 + 3 * rank}", "broadcast 10 11 12"),
                ],
            )

    def test_a_loss_between_the_rounds_is_an_error_in_all_languages(self) -> None:
        import basin

        cpp = self.start(_CPP_WORKER, "loss", 1, 3, "lost", BASIN_MIN_WORKERS="1")
        lost = self.start(self.worker, "loss", 2, 3, "lost", BASIN_MIN_WORKERS="1")
        address = self.jobs.aggregator.address
        with basin.connect(
            address, "loss", "w0", min_workers=1, max_workers=3, fresh=True
        ) as client:
            text = message("Unavailable", client.allgather, np.arange(3), "lost")
            client.barrier("end")
        self.assertIn("Worker w2 was lost before it had sent its part of", text)
        (line,) = self.lines(cpp)
        self.assertRegex(line, "^UNAVAILABLE Worker w2 was lost before it had sent its part of")
        self.assertEqual(self.lines(lost), [])


if __name__ == "__main__":
    main()
