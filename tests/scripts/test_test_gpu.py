# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""scripts/test-gpu.sh packs what a machine with a GPU needs, and it runs without this tree.

Without a GPU everything but CUDA itself runs, so that the first run on a GPU does not fail because
of the script.
"""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "test-gpu.sh"

NO_GPU = 77


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")


class Carried(unittest.TestCase):
    def test_what_is_carried_runs_without_the_tree(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            packed = Path(folder, "packed")
            built = run(SCRIPT, "--carry", packed)
            self.assertEqual(0, built.returncode, built.stdout + built.stderr)
            moved = Path(folder, "elsewhere")
            packed.rename(moved)
            ended = run(
                "/usr/bin/env",
                "-i",
                "PATH=/usr/bin:/bin",
                moved / "test-gpu.sh",
                "--carried",
                "--no-bench",
            )
            output = ended.stdout + ended.stderr
            has_gpu = Path("/dev/nvidiactl").exists()
            self.assertEqual(0 if has_gpu else NO_GPU, ended.returncode, output)
            self.assertTrue(list(Path(moved, "lib").glob("libabsl_*")))
            parts = ("== contract", "== trainer", "== group", "== aggregator", "[  PASSED  ]")
            for part in parts:
                self.assertIn(part, output)
            self.assertEqual(not has_gpu, "nothing of CUDA has run" in output)
            self.assertIn("[  PASSED  ]", (moved / "report.txt").read_text())

    def test_a_failure_is_a_failure(self) -> None:
        """Programs that fail, in place of those that were packed."""
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(SCRIPT, folder)
            others = (
                "basin_aggregator_device_test",
                "basin_client_nccl_cuda_test",
                "kernels_cuda_trainer_test",
            )
            for program in ("cuda_contract", *others):
                path = Path(folder, program)
                path.write_text("#!/bin/sh\nexit 0\n")
                path.chmod(0o755)
            script = Path(folder, "test-gpu.sh")
            for program in others:
                Path(folder, program).write_text("#!/bin/sh\nexit 1\n")
                ended = run(script, "--carried", "--no-bench", "--no-sanitizer")
                self.assertEqual(1, ended.returncode, ended.stdout)
                Path(folder, program).write_text("#!/bin/sh\nexit 0\n")
            ended = run(script, "--carried", "--no-bench", "--no-sanitizer")
            self.assertEqual(0, ended.returncode, ended.stdout)
            Path(folder, "cuda_contract").write_text("#!/bin/sh\nexit 77\n")
            ended = run(script, "--carried", "--no-bench", "--no-sanitizer")
            self.assertEqual(NO_GPU, ended.returncode, ended.stdout)

    def test_mistakes_are_named(self) -> None:
        for arguments in (["--carry"], ["--nope"]):
            ended = run(SCRIPT, *arguments)
            self.assertEqual(2, ended.returncode)
            self.assertIn(arguments[0], ended.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
