# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""How scripts/demo.sh uses its arguments, in a tree whose programs only print theirs."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "demo.sh"


class Demo(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = Path(folder.name)
        (self.tree / "scripts").mkdir()
        shutil.copy(SCRIPT, self.tree / "scripts/demo.sh")
        for program in (
            "scripts/setup.sh",
            "bin/cmake",
            "bin/ninja",
            ".venv/bin/python3",
            "build/release/simulation/basin-simulate",
        ):
            path = self.tree / program
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text('#!/bin/sh\necho "$(basename "$0")" "$@" >> "$SAID"\n')
            path.chmod(0o755)

    def run_demo(self, *arguments: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
        """Returns the finished process, and the calls of each program."""
        said = self.tree / "said"
        said.write_text("")
        done = subprocess.run(
            ["bash", str(self.tree / "scripts/demo.sh"), *arguments],
            env={**os.environ, "PATH": f"{self.tree}/bin:{os.environ['PATH']}", "SAID": str(said)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done, said.read_text().splitlines()

    def assert_launched(self, arguments: tuple[str, ...], sizes: tuple[int, int, int]) -> None:
        done, said = self.run_demo(*arguments)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual("setup.sh --check --demo", said[0])
        workers, least, most = sizes
        passed = arguments[2:] if arguments[:1] == ("--workers",) else arguments
        launch = (
            f"python3 -m basin.launch --workers {workers} --min-workers {least} "
            f"--max-workers {most} -- .venv/bin/python3 examples/digits.py"
        )
        self.assertEqual(" ".join((launch, *passed)), said[-1])
        self.assertEqual("ninja -C build/demo basind basinctl basin_c", said[-2])

    def test_what_is_launched(self) -> None:
        self.assert_launched((), (4, 4, 4))
        self.assert_launched(("--check",), (4, 4, 4))
        self.assert_launched(("--kill",), (4, 3, 4))
        self.assert_launched(("--add",), (4, 4, 5))
        self.assert_launched(("--add", "--kill"), (4, 3, 5))
        self.assert_launched(("--workers", "2"), (2, 2, 2))
        self.assert_launched(("--workers", "2", "--epochs", "3", "--add"), (2, 2, 3))

    def test_shards_are_compared_with_a_run_without_them(self) -> None:
        for arguments, expected in (
            (("--shards", "2"), "--workers 4 --shards 2 --"),
            (("--shards", "3", "--kill-shard"), "--workers 4 --shards 3 --kill-shard --"),
            (
                ("--epochs", "6", "--shards", "1", "--workers", "2", "--check"),
                "--workers 2 --shards 1 -- --epochs 6 --check",
            ),
        ):
            with self.subTest(arguments):
                done, said = self.run_demo(*arguments)
                self.assertEqual(0, done.returncode, done.stderr)
                self.assertEqual(f"python3 scripts/demo-shards.py {expected}", said[-1])
                self.assertEqual("ninja -C build/demo basind basinctl basin_c", said[-2])

    def test_the_simulator_needs_no_python(self) -> None:
        done, said = self.run_demo("--simulator", "--seed", "7")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual("setup.sh --check --no-python", said[0])
        self.assertEqual("ninja -C build/release basin-simulate", said[-2])
        self.assertEqual("basin-simulate --seed 7", said[-1])
        _, said = self.run_demo("--simulator", "--shards", "2")
        self.assertEqual("basin-simulate --shards 2", said[-1])

    def test_help_and_mistakes_build_nothing(self) -> None:
        done, said = self.run_demo("--help")
        self.assertEqual((0, []), (done.returncode, said))
        self.assertIn("usage: scripts/demo.sh", done.stdout)
        for arguments, problem in (
            (("--workers",), "--workers needs a number"),
            (("--workers", "--add"), "--workers needs a number"),
            (("--shards",), "--shards needs a number"),
            (("--shards", "0"), "--shards needs a number"),
            (("--kill-shard",), "--kill-shard needs --shards N"),
            (("--shards", "2", "--kill"), "--kill and --add change what is added up"),
            (("--add", "--shards", "2"), "--kill and --add change what is added up"),
        ):
            with self.subTest(arguments):
                done, said = self.run_demo(*arguments)
                self.assertEqual((1, []), (done.returncode, said))
                self.assertIn(problem, done.stderr)

    def test_a_build_that_fails_is_shown(self) -> None:
        (self.tree / "bin/ninja").write_text("#!/bin/sh\necho no room; exit 1\n")
        done, said = self.run_demo()
        self.assertEqual(1, done.returncode)
        self.assertIn("no room", done.stderr)
        self.assertIn("demo: the build has failed", done.stderr)
        self.assertFalse(any(line.startswith("python3") for line in said))


if __name__ == "__main__":
    unittest.main()
