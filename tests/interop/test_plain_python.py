# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A worker that uses only the .proto files takes part in a job with two C++ workers."""

import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/aggregator/basind"))
from programs import PATIENCE, Basind, clean_environment  # noqa: E402

BASIND, CPP_WORKER = (Path(argument) for argument in (sys.argv.pop(1), sys.argv.pop(1)))
PLAIN_WORKER = ROOT / "examples/plain_python/worker.py"
ROUNDS = 3
# Several frames, and an incomplete last chunk.
ELEMENTS = 500_000
LINE = re.compile(r"round (\d+): COMMITTED over (.*); divisor (\d+); weight = (\S+)$")


class PlainPython(unittest.TestCase):
    def test_joins_two_cpp_workers(self) -> None:
        with Basind(BASIND) as basind:
            basind.await_serving()
            plain: list[str | Path] = [
                sys.executable,
                PLAIN_WORKER,
                "--fresh",
                f"--address={basind.grpc}",
                "--worker=p",
                "--workers=3",
                "--value=6",
                f"--rounds={ROUNDS}",
                f"--elements={ELEMENTS}",
            ]
            commands: dict[str, list[str | Path]] = {"p": plain} | {
                worker: [CPP_WORKER, value, str(ROUNDS), str(ELEMENTS)]
                for worker, value in (("a", "1"), ("b", "2"))
            }
            workers = {
                worker: subprocess.Popen(
                    command,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=clean_environment(
                        BASIN_ADDRESS=basind.grpc,
                        BASIN_WORKER_ID=worker,
                        BASIN_MAX_WORKERS="3",
                        BASIN_FRESH="true",
                    ),
                )
                for worker, command in commands.items()
            }
            said = {
                worker: process.communicate(timeout=PATIENCE)[0].splitlines()
                for worker, process in workers.items()
            }
            for worker, process in workers.items():
                self.assertEqual(process.returncode, 0, worker)
        for worker, lines in said.items():
            rounds = [LINE.match(line) for line in lines]
            self.assertEqual(len(rounds), ROUNDS, (worker, lines))
            for number, found in enumerate(rounds, 1):
                assert found is not None, (worker, lines)
                self.assertEqual(found[1], str(number))
                self.assertEqual(found[2], "a, b, p")
                self.assertEqual(found[3], "3")
                self.assertEqual(float(found[4]), 3.0)


if __name__ == "__main__":
    unittest.main()
