# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""scripts/test-gpu.sh packs what a machine with a GPU needs, and it runs without this tree.

Without a GPU everything but CUDA itself runs, so that the first run on a GPU does not fail because
of the script.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "test-gpu.sh"

NO_GPU = 77
MOST_CARRIED = 64 << 20
HAS_GPU = Path("/dev/nvidiactl").exists()

# What tests/gpu/run.py says of each part without a GPU.
PARTS = {
    "results": "the averages on the device are those of the CPU, bit for bit",
    "plain": r"\S+ MiB of parameters; losses of Basin: ",
    "amp": r"\S+ MiB of parameters; losses of Basin: ",
    "accumulate": r"\S+ MiB of parameters; losses of Basin: ",
    "device": r"reduce.device auto: .* the parameters have the bits of reduce.device cpu",
    "group": r"skipped: there was no group: .*NCCL needs all parameters on one CUDA device",
}


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")


def run_alone(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """With nothing of this environment but a Python that has torch."""
    return run("/usr/bin/env", "-i", "PATH=/usr/bin:/bin", f"PYTHON={sys.executable}", *command)


class Carried(unittest.TestCase):
    def test_what_is_carried_runs_without_the_tree(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            packed = Path(folder, "packed")
            built = run(SCRIPT, "--carry", packed)
            self.assertEqual(0, built.returncode, built.stdout + built.stderr)
            moved = Path(folder, "elsewhere")
            packed.rename(moved)
            size = sum(path.stat().st_size for path in moved.rglob("*") if path.is_file())
            self.assertLess(size, MOST_CARRIED)
            self.assertTrue(list(Path(moved, "lib").glob("libabsl_*")))

            ended = run_alone(moved / "test-gpu.sh", "--carried")
            output = ended.stdout + ended.stderr
            print(output)  # docs/performance.md has it.
            self.assertEqual(0 if HAS_GPU else NO_GPU, ended.returncode, output)
            for part in ("contract", "trainer", "group", "aggregator", "bench", "train"):
                self.assertIn(f"== {part}\n", output)
            self.assertIn("[  PASSED  ]", output)
            self.assertEqual(not HAS_GPU, "nothing of CUDA has run" in output)
            self.assertEqual((moved / "report.txt").read_text(), ended.stdout)
            if HAS_GPU:
                return
            # Four numbers of contributions, and two directions of copies and both at once.
            self.assertEqual(4 + 3, len(re.findall(r"^PASS ", output, re.MULTILINE)), output)
            for part, told in PARTS.items():
                self.assertRegex(output, f"(?m)^{part}: {told}")
            self.assert_benchmarks_judge(moved)
            self.assert_needs_cuda(moved)

    def assert_benchmarks_judge(self, moved: Path) -> None:
        """No device reaches a share of 10^9."""
        for program in ("cuda_bench", "copy_bench"):
            libraries = f"LD_LIBRARY_PATH={moved / 'lib'}"
            ended = run_alone(libraries, moved / program, "--emulated", "--least=1e9")
            self.assertEqual(1, ended.returncode, ended.stdout)
            self.assertRegex(ended.stdout, "(?m)^FAIL ")

    def assert_needs_cuda(self, moved: Path) -> None:
        """With a GPU the training never falls back to the CPU."""
        path = f"PYTHONPATH={moved / 'python'}"
        ended = run_alone(path, sys.executable, moved / "gpu" / "run.py", "--device=cuda")
        self.assertEqual(1, ended.returncode, ended.stdout)
        self.assertIn("sees no CUDA device", ended.stdout)

    def test_a_failure_is_a_failure(self) -> None:
        """Programs that fail, in place of those that were packed."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            shutil.copy(SCRIPT, folder)
            script = folder / "test-gpu.sh"
            python = folder / "python3"
            programs = (
                folder / "basin_aggregator_device_test",
                folder / "basin_client_nccl_cuda_test",
                folder / "kernels_cuda_trainer_test",
                folder / "cuda_bench",
                folder / "copy_bench",
            )
            basind = folder / "python" / "basin" / "bin" / "basind"
            basind.parent.mkdir(parents=True)
            for program in (folder / "cuda_contract", *programs, basind, python):
                self.make(program, "exit 0")

            def ended() -> subprocess.CompletedProcess[str]:
                with_python = ("env", f"PYTHON={python}", script)
                return run(*with_python, "--carried", "--no-sanitizer")

            for program in programs:
                self.make(program, "exit 1")
                self.assertEqual(1, ended().returncode, program)
                self.make(program, "exit 0")
            # The check for torch passes, and the training fails.
            self.make(python, '[ "$1" = -c ]')
            self.assertEqual(1, ended().returncode)
            self.make(python, "exit 0")
            passed = ended()
            self.assertEqual(0, passed.returncode, passed.stdout)
            self.assertNotIn("skipped", passed.stdout)
            self.make(folder / "cuda_contract", "exit 77")
            self.assertEqual(NO_GPU, ended().returncode)
            self.make(python, "echo There is no torch; exit 1")
            without = ended()
            self.assertEqual(NO_GPU, without.returncode, without.stdout)
            self.assertIn(f"skipped: {python} (There is no torch)", without.stdout)

    def make(self, program: Path, *lines: str) -> None:
        program.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        program.chmod(0o755)

    def test_mistakes_are_named(self) -> None:
        for arguments in (["--carry"], ["--nope"]):
            ended = run(SCRIPT, *arguments)
            self.assertEqual(2, ended.returncode)
            self.assertIn(arguments[0], ended.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
