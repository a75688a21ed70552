# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""An aggregator in a control group with little memory: what does not fit is refused before the
kernel ends the process, and if the kernel does, training continues with the next one.

Usage: test_out_of_memory.py BASIND ORACLE_TRAINER
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

from oracle import Jobs
from programs import PATIENCE, Basind

MIB = 1 << 20
LIMIT = 192 * MIB
BUDGET = LIMIT * 2 // 5  # What basind makes of it.

# Takes more than the control group has, one page after the other.
HOG = "import sys; bytearray(b'x') * int(sys.argv[1])"


class Group:
    """A control group for memory, of version 1 or 2. Raises OSError if there can be none."""

    def __init__(self) -> None:
        root = Path("/sys/fs/cgroup")
        self._unified = (root / "cgroup.controllers").exists()
        self.folder = (root if self._unified else root / "memory") / f"basin-test-{os.getpid()}"
        self.folder.mkdir()
        try:
            # Without swap.
            swap, limit = "memory.swappiness", "memory.limit_in_bytes"
            if self._unified:
                swap, limit = "memory.swap.max", "memory.max"
            (self.folder / swap).write_text("0", encoding="ascii")
            (self.folder / limit).write_text(str(LIMIT), encoding="ascii")
        except OSError:
            self.folder.rmdir()
            raise

    def around(self, first_to_end: bool = False) -> tuple[str, ...]:
        """What runs a program in this group, as the one that the kernel ends first."""
        enter = f"echo $$ > {self.folder}/cgroup.procs"
        if first_to_end:
            enter += " && echo 1000 > /proc/$$/oom_score_adj"
        return ("sh", "-c", f'{enter} && exec "$@"', "sh")

    def ended(self) -> int:
        """How many processes of it the kernel has ended."""
        file = "memory.events" if self._unified else "memory.oom_control"
        text = (self.folder / file).read_text(encoding="ascii")
        return int(re.findall(r"^oom_kill (\d+)$", text, re.M)[0])

    def close(self) -> None:
        """All processes of it have ended."""
        self.folder.rmdir()


class OutOfMemory(Jobs):
    def setUp(self) -> None:
        super().setUp()
        try:
            self.group = Group()
        except OSError as error:
            self.skipTest(f"no control group for memory can be made here: {error}")
        self.addCleanup(self.group.close)

    def start_in_group(self, *arguments: str, **more: Any) -> Basind:
        basind = self.start(*arguments, before=self.group.around(**more))
        limit = self.metric(basind, "basin_buffer_limit_bytes")
        self.assertAlmostEqual(BUDGET, limit, delta=MIB)
        return basind

    def test_fault_a7_what_does_not_fit_is_refused_before_the_kernel_ends_the_process(self) -> None:
        basind = self.start_in_group()
        # A step does not fit into the control group.
        large = ("1", "--tensors=8", "--elements=6815744")
        trainers = self.train(basind.grpc, 2, *large)
        trainers[0].await_event("pushed", step=0)
        # A job has room for one frame of each worker, at least.
        greedy = self.add(basind.grpc, "w2", "1", BASIN_JOB="greedy", BASIN_MAX_WORKERS="10000")
        why = basind.await_event("job_refused")["reason"]
        self.assertRegex(
            why,
            r"^RESOURCE_EXHAUSTED: Job greedy needs at least \d+ bytes for 10000 workers .* are "
            r"free\. Give the aggregator more memory, or lower max_workers\.$",
        )
        # The worker tries again, because another job may end, and says why.
        greedy.await_said("needs at least")
        greedy.kill()
        self.expect_whole(basind, trainers, 1)
        self.assertEqual(0, self.group.ended())

    def test_fault_a7_if_the_kernel_ends_the_process_training_continues_with_the_next(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            state = f"--state-file={folder}/state"
            basind = self.start_in_group(state, first_to_end=True)
            trainers = self.train(basind.grpc, 2, "1000000", "--pace-ms=5", least=2)
            for trainer in trainers:
                trainer.await_more("applied", 5)
            hog = subprocess.Popen(
                [*self.group.around(), sys.executable, "-c", HOG, str(2 * LIMIT)]
            )
            self.addCleanup(hog.wait)
            self.addCleanup(hog.kill)
            self.assertEqual(-signal.SIGKILL, basind.process.wait(PATIENCE))
            self.assertGreaterEqual(self.group.ended(), 1)
            basind = self.restart(basind, state)
            for trainer in trainers:
                trainer.await_more("applied", len(trainer.find("applied")) + 20)
            for trainer in trainers:
                trainer.process.send_signal(signal.SIGTERM)
            for trainer in trainers:
                trainer.finish()
            self.expect_one_history(trainers)
            # Both were counted in every step, until one of them left.
            masks = self.masks(trainers[0])
            self.assertEqual({3}, set(masks[:-1]))
            steps = [line["step"] for line in trainers[0].find("applied")]
            self.assertEqual(list(range(len(steps))), steps)
            # The last round ends without a result if one of them leaves first.
            basind.end()
            self.assertEqual([], self.events(basind, "worker_lost"))


if __name__ == "__main__":
    Jobs.basind, Jobs.trainer = (Path(sys.argv.pop(1)).resolve() for _ in range(2))
    unittest.main(verbosity=2)
