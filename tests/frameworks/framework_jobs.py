# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Trainings in the environment of the frameworks: as workers of a job, and in one process.

The arguments of each test program: BASIND LIBBASIN
"""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any, ClassVar

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "python"))

from jobs import PATIENCE, environment, require  # noqa: E402 - found by the line above

require("numpy", "torch")
import numpy as np  # noqa: E402 - ends above when there is none
import torch  # noqa: E402

PYTHON = ROOT / ".cache/frameworks/bin/python3"
MXNET = ROOT / ".cache/mxnet/bin/python3"  # It needs an old NumPy.
PAGES = ROOT / "docs/frameworks"
WORKERS = 2
# One thread each: sums have one order, and the machine is shared. Nothing is fetched.
_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "JAX_PLATFORMS": "cpu",
    "OMP_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
}
# Prints those of its arguments that are no modules.
_FIND = """
import importlib.util, sys
print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])
"""


def require_frameworks(*modules: str, python: Path = PYTHON) -> None:
    """Ends this program as skipped when their environment, or one of them, is not installed."""
    missing = list(modules)
    if python.exists():
        command = [str(python), "-c", _FIND, *modules]
        missing = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    if missing:
        what = ", ".join(missing)
        print(f"skipped: {what} not installed; scripts/setup.sh --frameworks installs it")
        sys.exit(77)


def run(command: list[str], folder: Path, **more: str) -> str:
    """What the program prints."""
    done = subprocess.run(
        command,
        env=environment(**_QUIET, **more),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(done.stdout[-6000:] + done.stderr[-6000:])
    return done.stdout + done.stderr


def as_workers(
    script: Path, folder: Path, *options: str, python: Path = PYTHON, **more: str
) -> str:
    """Runs the script as workers of a job; returns what they print."""
    launch = [sys.executable, "-m", "basin.launch", *(options or ("-n", str(WORKERS)))]
    return run([*launch, "--", str(python), "-B", str(script)], folder, **more)


def results_of(folder: Path, rank: int) -> dict[str, Any]:
    """What a script has written: results-RANK.pt or, where it has no torch, results-RANK.npz, whose
    arrays are named CASE/NAME."""
    if (folder / f"results-{rank}.pt").exists():
        return dict(torch.load(folder / f"results-{rank}.pt"))
    results: dict[str, Any] = {}
    for key, value in np.load(folder / f"results-{rank}.npz").items():
        case, _, name = key.partition("/")
        results.setdefault(case, {})[name] = torch.from_numpy(value)
    return results


class FrameworkTest(unittest.TestCase):
    """A test of what a script of this folder has trained. It writes, for each case, what it got to
    results-RANK.pt or .npz."""

    script: ClassVar[str]
    python: ClassVar[Path] = PYTHON
    options: ClassVar[tuple[str, ...]] = ()  # Those of basin-run.
    variables: ClassVar[dict[str, str]] = {}  # In the script's environment.
    alone: ClassVar[dict[str, Any]]
    together: ClassVar[list[dict[str, Any]]]

    @classmethod
    def setUpClass(cls) -> None:
        if not hasattr(cls, "script"):
            raise unittest.SkipTest("a base of other tests")
        with tempfile.TemporaryDirectory() as folder:
            one, many = Path(folder) / "one", Path(folder) / "many"
            one.mkdir()
            many.mkdir()
            alone = {**cls.variables, "ALONE": "1"}
            run([str(cls.python), "-B", str(HERE / cls.script)], one, **alone)
            cls.alone = results_of(one, 0)
            as_workers(HERE / cls.script, many, *cls.options, python=cls.python, **cls.variables)
            cls.together = [results_of(many, rank) for rank in range(WORKERS)]

    def assert_equal_to_one_process(self, case: str, bound: float) -> None:
        """The workers hold the same bits, and one process the same numbers to within `bound` of the
        largest change in the training."""
        expected = self.alone[case]
        for rank, results in enumerate(self.together):
            self.assertEqual(expected.keys(), results[case].keys())
            for name, value in results[case].items():
                self.assertTrue(torch.equal(value, self.together[0][case][name]), (rank, name))
                error = float((value - expected[name]).abs().max())
                scale = float(expected[name].abs().max())
                self.assertLessEqual(error, bound * scale, (case, rank, name))

    def assert_trained(self, case: str) -> None:
        """The training has changed every parameter."""
        for name, value in self.alone[case].items():
            self.assertFalse(torch.equal(value, self.alone["start"][name]), (case, name))


def blocks(page: str, language: str = "python") -> list[str]:
    """The blocks of code of a page."""
    text = (PAGES / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def main() -> None:
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
