# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The exit code of a script that ends with an exception.

Usage: test_exit_code.py LIBBASIN
"""

import os
import pty
import subprocess
import sys
import unittest

from jobs import PACKAGE, PATIENCE, require

ENVIRONMENT = {"PYTHONPATH": str(PACKAGE)}

# connect() fails before it needs an aggregator.
REFUSED = "import basin\nbasin.connect('127.0.0.1:1', 'job', min_workers=3, max_workers=2)\n"
# The script called connect(), and went on.
CALLED = f"""
import basin
try:
    {REFUSED.splitlines()[1]}
except basin.InvalidArgument:
    pass
"""
RESTART_HELPS = """
RESTART_HELPS = basin.LineageConflict("")
RESTART_HELPS.restart_helps = True  # As from the library.
"""
OWN_HOOK = """
import sys
sys.excepthook = lambda *_: print("own hook")
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=ENVIRONMENT,
    )


class ExitCode(unittest.TestCase):
    def test_an_error_that_another_try_cannot_change(self) -> None:
        done = run(REFUSED)
        self.assertEqual(78, done.returncode, done.stderr)
        # The traceback is the one that Python writes.
        self.assertEqual(1, done.stderr.count("Traceback"))
        self.assertIn("basin.errors.InvalidArgument: ", done.stderr.splitlines()[-1])

    def test_each_class(self) -> None:
        for error, code in (
            ("basin.InvalidArgument('')", 78),
            ("basin.Mismatch('')", 78),
            ("basin.VersionMismatch('')", 78),
            ("basin.Unsupported('')", 78),
            ("RESTART_HELPS", 75),
            ("basin.Superseded('')", 1),
            ("basin.Unavailable('')", 1),
            ("basin.Evicted('')", 1),
            ("basin.Error('')", 1),
            ("ValueError('')", 1),
        ):
            with self.subTest(error):
                done = run(f"{CALLED}{RESTART_HELPS}raise {error}\n")
                self.assertEqual(code, done.returncode)
                self.assertEqual(1, done.stderr.count("Traceback"))

    def test_each_is_that_of_a_program_in_c(self) -> None:
        done = run(
            "import ctypes, os\n"
            "from basin.errors import BY_CODE\n"
            "library = ctypes.CDLL(os.environ['BASIN_LIBRARY'])\n"
            "for code, kind in BY_CODE.items():\n"
            "    error = kind('')\n"
            "    error.restart_helps = kind.__name__ == 'LineageConflict'  # As from the library.\n"
            "    assert error.exit_code == library.basin_exit_code(code), kind\n"
            "print(len(BY_CODE))\n"
        )
        self.assertEqual((0, "18\n"), (done.returncode, done.stdout), done.stderr)

    def test_a_hook_of_the_script_is_kept(self) -> None:
        for script in (OWN_HOOK + REFUSED, CALLED + OWN_HOOK + REFUSED):
            done = run(script)
            self.assertEqual((1, "own hook\n"), (done.returncode, done.stdout))

    def test_a_script_that_did_not_call_basin(self) -> None:
        done = run("import basin\nraise basin.InvalidArgument('')\n")
        self.assertEqual(1, done.returncode)

    def test_an_error_that_was_handled(self) -> None:
        self.assertEqual(0, run(CALLED).returncode)

    def test_the_exit_is_an_ordinary_one(self) -> None:
        # Handlers run, and still see that the script has ended with an exception.
        done = run(
            "import atexit, sys\n"
            "atexit.register(lambda: print('handler', repr(sys.last_value)[:16]))\n" + REFUSED
        )
        self.assertEqual("handler InvalidArgument(\n", done.stdout)
        self.assertEqual(78, done.returncode)

    def test_a_prompt_stays_open(self) -> None:
        keyboard, terminal = pty.openpty()
        self.addCleanup(os.close, keyboard)
        os.write(keyboard, f"{REFUSED}print('still here')\nexit()\n".encode())
        done = subprocess.run(
            [sys.executable],
            check=False,
            stdin=terminal,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env=ENVIRONMENT,
        )
        os.close(terminal)
        self.assertIn("InvalidArgument", done.stderr)
        self.assertEqual("still here\n", done.stdout)


if __name__ == "__main__":
    require("numpy")
    ENVIRONMENT["BASIN_LIBRARY"] = sys.argv[1]
    unittest.main(argv=sys.argv[:1], verbosity=2)
