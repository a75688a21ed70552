# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Other projects find the installed client, build against it, and train.

The client is installed into a new folder. A project in C, the examples in C and C++, and a program
that uses pkg-config are built outside the tree against only that folder, and run with a real
aggregator.

Usage: test_consumers.py CMAKE BUILD_FOLDER C_COMPILER C++_COMPILER BASIND
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import ClassVar

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120.0
CMAKE, BUILD, CC, CXX, BASIND = "", "", "", "", ""


def run(*command: str | Path, **environment: str) -> str:
    """The output of a command, which must succeed."""
    done = subprocess.run(
        command, env=clean(environment), capture_output=True, text=True, timeout=PATIENCE
    )
    if done.returncode != 0:
        raise AssertionError(f"{command} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def clean(environment: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BASIN_")}
    return {**kept, **environment}


class Consumers(unittest.TestCase):
    QUIET = ("--admin-listen=none", "--http-listen=none", "--local-listen=none")
    folder: ClassVar[tempfile.TemporaryDirectory[str]]
    prefix: ClassVar[Path]
    aggregator: ClassVar["subprocess.Popen[str]"]
    address: ClassVar[str]

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.prefix = Path(cls.folder.name) / "installed"
        run(CMAKE, "--install", BUILD, "--component", "client", "--prefix", cls.prefix)
        cls.aggregator = subprocess.Popen(
            [BASIND, "serve", "--grpc-listen=127.0.0.1:0", *cls.QUIET],
            env=clean({}),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert cls.aggregator.stdout is not None
        addresses = None
        while addresses is None:
            line = cls.aggregator.stdout.readline()
            assert line, "basind ended"
            addresses = json.loads(line).get("addresses")
        cls.address = addresses["grpc"]

    @classmethod
    def tearDownClass(cls) -> None:
        cls.aggregator.kill()
        cls.aggregator.wait()
        if cls.aggregator.stdout is not None:
            cls.aggregator.stdout.close()
        cls.folder.cleanup()

    def build(self, source: Path) -> Path:
        """The build folder of a project that uses only the installed files."""
        build = Path(self.folder.name) / source.name
        run(
            *(CMAKE, "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=Release"),
            *(f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_C_COMPILER={CC}"),
            f"-DCMAKE_CXX_COMPILER={CXX}",
        )
        run(CMAKE, "--build", build)
        return build

    def environment(self, job: str, worker: str, workers: int, **more: str) -> dict[str, str]:
        return {
            "BASIN_ADDRESS": self.address,
            "BASIN_JOB": job,
            "BASIN_WORKER_ID": worker,
            "BASIN_MAX_WORKERS": str(workers),
            "BASIN_FRESH": "true",
            **more,
        }

    def test_a_project_in_c_uses_the_package(self) -> None:
        program = self.build(ROOT / "tests/packaging/consumer_c") / "consumer"
        said = run(program, **self.environment("c", "a", 1))
        self.assertEqual("rank 0 of 1: 1 contributors, sum 1 2 3 4\n", said)

    def test_pkg_config_is_enough(self) -> None:
        pkg_config = [
            "pkg-config",
            f"--with-path={next(self.prefix.rglob('basin.pc')).parent}",
            *("--cflags", "--libs", "basin"),
        ]
        flags = run(*pkg_config).split()
        program = Path(self.folder.name) / "plain"
        source = ROOT / "tests/packaging/consumer_c/main.c"
        run(CC, "-std=c99", source, "-o", program, *flags)
        library = next(self.prefix.rglob("libbasin.so")).parent
        said = run(program, **self.environment("p", "a", 1, LD_LIBRARY_PATH=str(library)))
        self.assertEqual("rank 0 of 1: 1 contributors, sum 1 2 3 4\n", said)

    def test_the_headers_stand_alone_without_a_warning(self) -> None:
        include = self.prefix / "include"
        strict = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-fsyntax-only"]
        headers = sorted(include.rglob("*.h"))
        self.assertEqual(
            ["basin.h", "client.h", "rows.h", "status.h", "trainer.h", "types.h"],
            [header.name for header in headers],
        )
        for header in headers:
            with self.subTest(header.name):
                run(CXX, "-std=c++17", *strict, "-x", "c++", f"-I{include}", header)
        run(CC, "-std=c99", *strict, "-x", "c", include / "basin/basin.h")

    def test_the_installed_library_has_no_run_path(self) -> None:
        library = next(self.prefix.rglob("libbasin.so"))
        self.assertNotRegex(run("readelf", "--dynamic", library), r"\((RPATH|RUNPATH)\)")

    def test_the_example_in_c_trains_with_two_workers_of_which_one_is_replaced(self) -> None:
        program = self.build(ROOT / "examples/c") / "linear_regression"

        def start(worker: str) -> "subprocess.Popen[str]":
            trainer = subprocess.Popen(
                [program, "2500"],
                env=clean(self.environment("train-c", worker, 2)),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            self.addCleanup(trainer.communicate)
            self.addCleanup(trainer.kill)
            return trainer

        a, b = start("a"), start("b")
        self.await_event("train-c", "generation", r"a, b")
        b.kill()
        self.await_event("train-c", "paused", ".")
        c = start("c")
        self.await_event("train-c", "generation", r"a, c")
        ends = []
        for trainer in (a, c):
            said, errors = trainer.communicate(timeout=PATIENCE)
            self.assertEqual(0, trainer.returncode, errors)
            ends.append(re.sub(r"loss [^,]+,", "loss,", said))
        self.assertRegex(ends[0], r"^step 2500, loss, parameters( -?0x1(\.\w+)?p[+-]\d+){9}\n$")
        self.assertEqual(ends[0], ends[1], "the workers differ")
        # The parameters of the samples: -3.5, -2.5, ... and 2.
        parameters = [float.fromhex(number) for number in ends[0].split()[4:]]
        for found, made in zip(parameters, [*(k - 3.5 for k in range(8)), 2.0]):
            self.assertAlmostEqual(found, made, delta=0.01)

    def test_the_example_of_an_allgather_prints_the_scores_of_all_workers(self) -> None:
        program = self.build(ROOT / "examples/c") / "allgather"
        workers = [
            subprocess.Popen(
                [program],
                env=clean(self.environment("gather-c", f"w{rank}", 2)),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        for worker in workers:
            said, errors = worker.communicate(timeout=PATIENCE)
            self.assertEqual(0, worker.returncode, errors)
            self.assertEqual("rank 0: 1 scores 0\nrank 1: 2 scores 10 11\nmean 7\n", said)

    def test_the_examples_end_with_the_exit_code_of_their_error(self) -> None:
        for folder in ("c", "cpp"):
            with self.subTest(folder):
                program = self.build(ROOT / "examples" / folder) / "linear_regression"
                wrong = self.environment("exit", "a", 2, BASIN_MIN_WORKERS="3")
                done = subprocess.run([program], env=clean(wrong), capture_output=True, text=True)
                self.assertEqual(78, done.returncode, done.stderr)
                self.assertIn("INVALID_ARGUMENT: ", done.stderr)

    def test_the_example_trains_while_workers_die_and_join(self) -> None:
        program = self.build(ROOT / "examples/cpp") / "linear_regression"

        def start(worker: str) -> "subprocess.Popen[str]":
            return subprocess.Popen(
                [program, "400", "20"],
                env=clean(self.environment("train", worker, 3, BASIN_MIN_WORKERS="2")),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )

        trainers = {worker: start(worker) for worker in "abc"}
        self.addCleanup(self.end, trainers)
        self.await_event("train", "generation", r"a, b, c")
        trainers["b"].send_signal(signal.SIGKILL)
        trainers.pop("b").communicate()
        self.await_event("train", "generation", r"a, c")
        trainers["d"] = start("d")
        self.await_event("train", "generation", r"a, c, d")
        ends = {}
        for worker, trainer in trainers.items():
            said, errors = trainer.communicate(timeout=PATIENCE)
            self.assertEqual(0, trainer.returncode, errors)
            ends[worker] = re.sub(r"loss [^,]+,", "loss,", said)
        self.assertRegex(ends["a"], r"^step 400, loss, parameters( -?0x1\.\w+p[+-]\d+){9}\n$")
        self.assertEqual({ends["a"]}, set(ends.values()), "the workers differ")
        # The parameters of the samples: -3.5, -2.5, ... and 2.
        parameters = [float.fromhex(number) for number in ends["a"].split()[4:]]
        for found, made in zip(parameters, [*(k - 3.5 for k in range(8)), 2.0]):
            self.assertAlmostEqual(found, made, delta=0.01)

    @staticmethod
    def end(trainers: "dict[str, subprocess.Popen[str]]") -> None:
        for trainer in trainers.values():
            trainer.kill()

    def await_event(self, job: str, event: str, reason: str) -> None:
        """Reads the aggregator's log until this event."""
        assert self.aggregator.stdout is not None
        for line in self.aggregator.stdout:
            if f'"event":"{event}","job":"{job}"' in line and re.search(reason, line):
                return
        self.fail("the aggregator ended")


if __name__ == "__main__":
    CMAKE, BUILD, CC, CXX, BASIND = sys.argv[1:6]
    unittest.main(argv=sys.argv[:1], verbosity=2)
