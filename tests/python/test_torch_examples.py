# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The examples for PyTorch, and the scripts of docs/migrating.md before and after.

Horovod is not installed: the test runs only the migrated script under Basin, which must train
the same as the script for DistributedDataParallel.

Usage: test_torch_examples.py BASIND LIBBASIN
"""

import difflib
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from jobs import PATIENCE, ROOT, environment, require

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none

WORKERS = 2
MIGRATING = ROOT / "examples/migrating"


def under_basin(script: Path, *arguments: str, workers: int = WORKERS) -> list[str]:
    """The lines that the workers print, without their ranks."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "basin.launch", "-n", str(workers), "--"),
            *(sys.executable, "-B", str(script), *arguments),
        ],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return [line.partition("] ")[2] for line in done.stdout.splitlines()]


# Runs a script and ends the process without the interpreter's own end: threads of Gloo that live
# until then abort the process now and then, when the interpreter takes its lock from them.
RUN_AND_EXIT = "import os, runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0]); os._exit(0)"


def under_torchrun(script: Path, *arguments: str) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *(f"--nproc-per-node={WORKERS}", "--no-python"),
            *(sys.executable, "-c", RUN_AND_EXIT, str(script), *arguments),
        ],
        env=environment(OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)


class Examples(unittest.TestCase):
    def assert_all_hold_the_same(self, lines: list[str]) -> None:
        hashes = [line for line in lines if line.startswith("parameters ")]
        self.assertEqual(WORKERS, len(hashes), lines)
        self.assertEqual(1, len(set(hashes)), lines)

    def test_plain_loop(self) -> None:
        lines = under_basin(ROOT / "examples/pytorch_loop.py")
        self.assert_all_hold_the_same(lines)
        right = [
            float(found[1]) for line in lines if (found := re.search(r"([\d.]+) % right", line))
        ]
        self.assertEqual(6, len(right))
        self.assertLess(right[0], 60.0)
        self.assertGreater(right[-1], 95.0)

    def test_weights_by_tokens(self) -> None:
        together = under_basin(ROOT / "examples/pytorch_tokens.py")
        self.assert_all_hold_the_same(together)
        alone = under_basin(ROOT / "examples/pytorch_tokens.py", workers=1)
        pattern = r"step \d+: loss ([\d.]+) over (\d+) tokens of 32 sentences, in (\d) micro"
        of_two, of_one = (re.findall(pattern, "\n".join(each)) for each in (together, alone))
        self.assertEqual(6, len(of_two))
        for (loss, tokens, parts), (same_loss, same_tokens, fewer) in zip(of_two, of_one):
            self.assertEqual((tokens, "4", "2"), (same_tokens, parts, fewer))
            self.assertAlmostEqual(float(loss), float(same_loss), delta=0.002)
        self.assertLess(float(of_two[-1][0]), 0.2 * float(of_two[0][0]))

    def test_two_losses_and_a_scaler(self) -> None:
        lines = under_basin(ROOT / "examples/pytorch_two_losses.py")
        self.assert_all_hold_the_same(lines)
        [first, last] = [line for line in lines if line.startswith("step ")]
        self.assertRegex(
            first, r"in 128 rows of 2 workers, SUM with a scale of 1073741824; overflow"
        )
        self.assertRegex(last, r"; norm \d+\.\d+; this worker's part of the loss")
        scales = {line for line in lines if line.startswith("scale ")}
        [(scale, left_out)] = re.findall(r"scale (\d+), (\d+) steps left out", "".join(scales))
        self.assertEqual(2**30, int(scale) * 2 ** int(left_out))
        self.assertGreater(int(left_out), 0)
        losses = [float(line.rpartition(" ")[2]) for line in (first, last)]
        self.assertLess(losses[1], 0.2 * losses[0])

    def test_ddp_with_the_hook(self) -> None:
        lines = under_basin(ROOT / "examples/pytorch_ddp.py")
        self.assert_all_hold_the_same(lines)
        (found,) = re.findall(r"loss ([\d.]+), at the end ([\d.]+)", "\n".join(lines))
        self.assertLess(float(found[1]), 0.5 * float(found[0]))


class Bert(unittest.TestCase):
    """examples/bert: one process trains the same, whatever layers the workers skip."""

    def _train(self, *arguments: str, workers: int = WORKERS) -> list[str]:
        lines = under_basin(ROOT / "examples/bert/pretraining.py", *arguments, workers=workers)
        hashes = [line for line in lines if line.startswith("parameters ")]
        self.assertEqual(workers, len(hashes), lines)
        self.assertEqual(1, len(set(hashes)), lines)
        return lines

    def _curve(self, lines: list[str]) -> dict[int, float]:
        found = re.findall(r"step (\d+): loss ([\d.]+);", "\n".join(lines))
        return {int(step): float(loss) for step, loss in found}

    def _sent(self, lines: list[str]) -> float:
        return sum(map(float, re.findall(r"sent (\d+) bytes", "\n".join(lines))))

    def test_criterion_3_1_to_3_7_the_loss_of_one_process_and_of_a_resumed_run(self) -> None:
        sent = {"0": self._sent(self._train("--drop", "0", "--until", "20"))}
        for drop in ("0.2", "0.5"):
            together = self._train("--drop", drop)
            sent[drop] = self._sent(together)
            curve = self._curve(together)
            self.assertEqual(12, len(curve), together)
            self.assertLess(curve[55], 0.8 * curve[0])
            alone = self._curve(self._train("--drop", drop, workers=1))
            for step, loss in curve.items():
                self.assertAlmostEqual(loss, alone[step], delta=1e-8 * loss)
            # 2 workers, 2 micro-batches each, of 16 pairs.
            batch = (
                r"effective batch 64 pairs with \d+ masked words, in 4 micro-batches of 2 workers"
            )
            for line in together:
                if line.startswith("step "):
                    self.assertRegex(line, batch)
            with tempfile.TemporaryDirectory() as folder:
                options = ("--drop", drop, "--checkpoint", f"{folder}/last.basin")
                before = self._train(*options, "--until", "25")
                after = self._train(*options)
            self.assertEqual(curve, self._curve(before) | self._curve(after))
            self.assertEqual(together[-1], after[-1])
        # A layer is sent unless both micro-batches of a worker have skipped it.
        self.assertLess(sent["0.2"], sent["0"])
        self.assertLess(sent["0.5"], 0.9 * sent["0"])


class Migrating(unittest.TestCase):
    def test_scripts_train_the_same_before_and_after(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            before, after, of_horovod = (f"{folder}/{name}" for name in ("before", "after", "hvd"))
            under_torchrun(MIGRATING / "ddp_before.py", before)
            under_basin(MIGRATING / "ddp_after.py", after)
            under_basin(MIGRATING / "horovod_after.py", of_horovod)
            expected = torch.load(before, weights_only=True)
            for path in (after, of_horovod):
                got = torch.load(path, weights_only=True)
                self.assertEqual(expected.keys(), got.keys())
                for name, tensor in expected.items():
                    torch.testing.assert_close(tensor, got[name], rtol=1e-10, atol=1e-12, msg=name)

    def test_the_page_shows_these_scripts(self) -> None:
        page = (ROOT / "docs/migrating.md").read_text()
        shown = re.findall(r"^```diff\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        expected = [difference(kind) for kind in ("ddp", "horovod")]
        self.assertEqual(expected, shown)


def difference(kind: str) -> str:
    """The complete diff of the script before and after, without the line of the licence."""
    before, after = (
        (MIGRATING / f"{kind}_{when}.py").read_text().splitlines(keepends=True)[1:]
        for when in ("before", "after")
    )
    lines = list(difflib.unified_diff(before, after, n=1000))
    return "".join(line if line.strip() else "\n" for line in lines[3:])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
