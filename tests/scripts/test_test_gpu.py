# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""scripts/test-gpu.sh packs what a machine with a GPU needs, and it runs without this tree.

Without a GPU everything but CUDA itself runs, so that the first run on a GPU does not fail because
of the script.

Usage: test_test_gpu.py [CLASS...]
"""

import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "test-gpu.sh"

NO_GPU = 77
MOST_CARRIED = 64 << 20
HAS_GPU = Path("/dev/nvidiactl").exists()

CHECKS = (
    "devices",
    "contract-short",
    "trainer",
    "training",
    "nccl",
    "reduction-speed",
    "copy-speed",
    "aggregator",
    "training-more",
    "contract",
    "memcheck",
    "racecheck",
    "synccheck",
)
# Those that run without a GPU.
ON_THE_HOST = {
    "devices",
    "trainer",
    "training",
    "nccl",
    "reduction-speed",
    "copy-speed",
    "aggregator",
    "training-more",
}
LINE = re.compile(r"(PASS|FAIL|TIME|SKIP) (\S+) +\d+\.\d s( .*)?")

# What tests/gpu/run.py says of each part without a GPU.
PARTS = {
    "results": "the averages on the device are those of the CPU, bit for bit",
    "plain": r"\S+ MiB of parameters; losses of Basin: ",
    "amp": r"\S+ MiB of parameters; losses of Basin: ",
    "accumulate": r"\S+ MiB of parameters; losses of Basin: ",
    "device": r"reduce.device auto: .* the parameters have the bits of reduce.device cpu",
    "group": r"skipped: there was no group: .*NCCL needs all parameters on one CUDA device",
    "expandable_segments": "skipped: there is no CUDA device",
    "cudaMallocAsync": "skipped: there is no CUDA device",
}


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")


def run_alone(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """With nothing of this environment but a Python that has torch."""
    return run("/usr/bin/env", "-i", "PATH=/usr/bin:/bin", f"PYTHON={sys.executable}", *command)


def verdicts(folder: Path) -> dict[str, str]:
    """The word of each check, in their order."""
    words = {}
    for line in (folder / "summary.txt").read_text().splitlines():
        match = LINE.fullmatch(line)
        assert match is not None, line
        words[match[2]] = match[1]
    return words


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

            # A busy machine may take longer than one with a GPU may.
            ended = run_alone(moved / "test-gpu.sh", "--carried", "--within", "2400")
            output = ended.stdout + ended.stderr
            print(output)  # docs/performance.md has it.
            self.assertEqual(0 if HAS_GPU else NO_GPU, ended.returncode, output)
            self.assertEqual(CHECKS, tuple(verdicts(moved)))
            self.assertIn("[  PASSED  ]", output)
            self.assertEqual(not HAS_GPU, "nothing of CUDA has run" in output)
            self.assertEqual((moved / "report.txt").read_text(), ended.stdout)
            self.assertIn((moved / "summary.txt").read_text(), ended.stdout)
            if HAS_GPU:
                return
            for check, word in verdicts(moved).items():
                self.assertEqual("PASS" if check in ON_THE_HOST else "SKIP", word, check)
            # Four numbers of contributions, and two directions of copies and both at once.
            shares = re.findall(r"^.*, as a share of .*: [0-9.]+%$", output, re.MULTILINE)
            self.assertEqual(4 + 3, len(shares), output)
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
        with zipfile.ZipFile(moved / "basin.whl") as wheel:
            wheel.extractall(moved / "python")
        path = f"PYTHONPATH={moved / 'python'}"
        ended = run_alone(path, sys.executable, moved / "gpu" / "run.py", "--device=cuda")
        self.assertEqual(1, ended.returncode, ended.stdout)
        self.assertIn("sees no CUDA device", ended.stdout)


class Alone(unittest.TestCase):
    def test_the_kernels_build_without_the_other_dependencies(self) -> None:
        """As on a machine with a GPU and nvcc, for one architecture."""
        languages = ("CXX", "CUDA") if shutil.which("ccache") else ()
        launchers = [f"CMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in languages]
        with tempfile.TemporaryDirectory() as folder:
            built = run(
                "env", *launchers, SCRIPT, "--build", folder, "--arch", "90", "--build-only"
            )
            self.assertEqual(0, built.returncode, built.stdout + built.stderr)
            ended = run(Path(folder, "cuda_contract"))
            self.assertEqual(2, ended.returncode, ended.stderr)
            self.assertIn("usage: cuda_contract", ended.stderr)


# Unpacks a wheel, and finds NCCL and what else is asked for.
PYTHON = """
case "$1" in
  -m) mkdir -p "$5/basin/bin" && cp basind "$5/basin/bin/basind" ;;
  -) [ "$2" != nccl/lib/libnccl.so.2 ] || echo /packages/libnccl.so.2 ;;
esac"""
SANITIZER = 'echo "$@" >>sanitizer-arguments; echo "==1== ERROR SUMMARY: 0 errors"'
# The program of each check. The sanitizers and the trainings run others.
PROGRAMS = {
    "trainer": "device_cuda_test",
    "nccl": "basin_node_nccl_cuda_test",
    "reduction-speed": "cuda_bench",
    "copy-speed": "copy_bench",
    "aggregator": "basin_aggregator_device_test",
}


class Judged(unittest.TestCase):
    """With other programs in place of those that are packed, beside a GPU that does not exist."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        shutil.copy(SCRIPT, self.folder)
        for program in ("cuda_contract", *PROGRAMS.values(), "nvidia-smi"):
            self.make(program, "exit 0")
        self.make("basind", 'echo "0 (a GPU), with a driver for CUDA 13.0"')
        self.make("python3", PYTHON)
        self.make("compute-sanitizer", SANITIZER)

    def make(self, program: str, *lines: str) -> None:
        path = self.folder / program
        path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        path.chmod(0o755)

    def judge(self, *arguments: str, environment: tuple[str, ...] = ()) -> int:
        """Runs the script, and keeps the words of its checks."""
        path = f"PATH={self.folder}:/usr/bin:/bin"
        script = (str(self.folder / "test-gpu.sh"), "--carried", *arguments)
        hidden = "CUDA_VISIBLE_DEVICES="  # Only nvidia-smi decides whether there is a GPU.
        command = ("env", path, hidden, *environment, *script)
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=self.folder
        )
        self.output = ended.stdout + ended.stderr
        if (self.folder / "summary.txt").exists():
            self.words = verdicts(self.folder)
        return ended.returncode

    def test_all_pass(self) -> None:
        self.assertEqual(0, self.judge(), self.output)
        self.assertEqual(dict.fromkeys(CHECKS, "PASS"), self.words)
        self.assertEqual(CHECKS, tuple(self.words))
        first, *others = (self.folder / "sanitizer-arguments").read_text().splitlines()
        # Errors that are returned are part of the tests.
        self.assertIn("--tool memcheck --error-exitcode 9 --report-api-errors no", first)
        self.assertEqual(2, len(others))

    def test_a_failure_is_that_of_its_check(self) -> None:
        for check, program in PROGRAMS.items():
            self.make(program, "exit 3")
            self.assertEqual(1, self.judge("--only", f"{check},contract"), self.output)
            self.assertEqual({check: "FAIL", "contract": "PASS"}, self.words)
            self.make(program, "exit 0")
        self.make("python3", PYTHON, 'case "$1" in */run.py) exit 1 ;; esac')
        self.assertEqual(1, self.judge("--only", "training,training-more,trainer"), self.output)
        expected = {"trainer": "PASS", "training": "FAIL", "training-more": "FAIL"}
        self.assertEqual(expected, self.words)

    def test_a_driver_that_does_not_work_is_a_failure(self) -> None:
        """What finds no GPU is skipped only where there is none."""
        self.make("cuda_contract", "exit 77")
        only = ("--only", "contract-short")
        self.assertEqual(1, self.judge(*only), self.output)
        self.assertEqual({"contract-short": "FAIL"}, self.words)
        self.make("nvidia-smi", "exit 9")
        self.assertEqual(NO_GPU, self.judge(*only), self.output)
        self.assertEqual({"contract-short": "SKIP"}, self.words)

    def test_basind_must_find_the_gpu(self) -> None:
        self.make("basind", "echo libcudart.so.13 was not found")
        self.assertEqual(1, self.judge("--only", "devices"), self.output)
        self.make("nvidia-smi", "exit 9")
        self.assertEqual(NO_GPU, self.judge("--only", "devices"), self.output)

    def test_what_does_not_end_is_ended(self) -> None:
        """With what it has started. What is left has no time."""
        self.make("cuda_contract", "sleep 600 & echo $! >started; wait")
        only = ("--only", "contract-short,trainer")
        self.assertEqual(1, self.judge(*only, "--within", "5"), self.output)
        self.assertEqual({"contract-short": "TIME", "trainer": "TIME"}, self.words)
        self.assertIn("trainer           0.0 s  not started", self.output)
        started = int((self.folder / "started").read_text())
        status = Path("/proc", str(started), "status")
        self.assertTrue(not status.exists() or "State:\tZ" in status.read_text())

    def test_a_sanitizer_that_cannot_run_is_skipped(self) -> None:
        only = ("--only", "memcheck")
        self.make("compute-sanitizer", "echo Device not supported; exit 1")
        self.assertEqual(0, self.judge(*only), self.output)
        self.assertIn("SKIP memcheck          0.", self.output)
        self.assertIn("it cannot run here: Device not supported", self.output)
        for lines in (('echo "ERROR SUMMARY: 3 errors"', "exit 9"), ("echo nothing",)):
            self.make("compute-sanitizer", *lines)
            self.assertEqual(1, self.judge(*only), self.output)

    def test_python_without_torch_is_skipped(self) -> None:
        self.make("python3", PYTHON, '[ "$1" != -c ] || { echo There is no torch; exit 1; }')
        self.assertEqual(0, self.judge("--only", "training"), self.output)
        self.assertRegex(self.output, r"SKIP training .* python3 \(There is no torch\)")

    def test_nccl_is_that_of_python_unless_it_is_named(self) -> None:
        self.make(PROGRAMS["nccl"], 'echo "NCCL $BASIN_NCCL_LIBRARY"')
        self.assertEqual(0, self.judge("--only", "nccl"), self.output)
        self.assertIn("NCCL /packages/libnccl.so.2\n", self.output)
        named = ("BASIN_NCCL_LIBRARY=/mine/libnccl.so.2",)
        self.assertEqual(0, self.judge("--only", "nccl", environment=named), self.output)
        self.assertIn("NCCL /mine/libnccl.so.2\n", self.output)

    def test_the_output_goes_where_out_says(self) -> None:
        """While it comes."""
        out = self.folder / "out"
        self.make(PROGRAMS["trainer"], f"echo so far; sleep 0.5; cp {out}/report.txt seen")
        self.assertEqual(0, self.judge("--only", "trainer", environment=(f"OUT={out}",)))
        self.assertIn("so far", (self.folder / "seen").read_text())
        self.assertIn("so far", (out / "report.txt").read_text())
        self.assertEqual({"trainer": "PASS"}, verdicts(out))
        self.assertFalse((self.folder / "report.txt").exists())


class Mistakes(unittest.TestCase):
    def test_mistakes_are_named(self) -> None:
        for arguments in (["--carry"], ["--nope"], ["--only", "nope"], ["--within", "nope"]):
            ended = run(SCRIPT, *arguments)
            self.assertEqual(2, ended.returncode)
            self.assertIn(arguments[-1], ended.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
