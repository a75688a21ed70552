# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The life of a process: many jobs one after the other, helpers of data loaders that begin as the
trainer did, and output that cannot be written. None of them ends a training or makes it hang.

Usage: test_lives.py BASIND LIBBASIN BASINCTL [CLASS...]
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from jobs import PATIENCE, environment, require

# Whatever has grown by then grows without a bound.
MANY_JOBS = """
import gc, os, sys
import torch
import basin.torch as bt
from torch import nn

def usage():
    gc.collect()
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return len(os.listdir("/proc/self/fd")), int(status["Threads"])

torch.set_num_threads(1)
used = []  # After each job. Threads of gRPC may end a while after a job.
for turn in range(40):
    bt.init(**({"job": f"job-{turn}"} if sys.argv[1] == "other" else {}))
    rank = bt.rank()
    torch.manual_seed(turn)
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    wrapped = bt.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(wrapped.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        wrapped(torch.randn(8, 8)).mean().backward()
        optimizer.step()
    assert bt.size() == 2, (turn, bt.size())
    total = bt.allreduce(torch.tensor([float(rank)]), "total", op=bt.Sum).item()
    assert total == 1.0, (turn, total)
    bt.shutdown()
    used.append(usage())
for early, late in zip(zip(*used[:10]), zip(*used[-10:])):
    assert min(late) <= max(early), used
print("same", flush=True)
"""
LOADER = """
import sys
import torch
import basin.torch as bt
from torch import nn
from torch.utils.data import DataLoader, Dataset

bt.init()
rank, size = bt.rank(), bt.size()

class Ranks(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        # In the processes of the loader, whether they are forked or began with this script.
        assert (bt.rank(), bt.size(), bt.is_initialized()) == (rank, size, True)
        try:
            bt.barrier()
        except bt.FailedPrecondition as error:
            assert "process" in str(error), error
        else:
            raise AssertionError("a barrier in a helper")
        return torch.full((4,), float(rank))

def main():
    model = nn.Linear(4, 1)
    bt.broadcast_parameters(model)
    optimizer = bt.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    loader = DataLoader(Ranks(), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1],
                        worker_init_fn=initialize)
    for _ in range(2):
        for given in loader:
            assert (given == rank).all(), given
            optimizer.zero_grad()
            model(given).mean().backward()
            optimizer.step()
    print("trained", flush=True)
    bt.shutdown()

def initialize(number):
    bt.init()

if __name__ == "__main__":
    main()
"""
# The child makes a worker of its own, and one that would take its parent's place.
CONNECTS_AGAIN = """
import os, subprocess, sys
import basin

client = basin.connect()
if len(sys.argv) == 1:
    again = subprocess.run([sys.executable, __file__, "again"], capture_output=True, text=True)
    assert again.returncode != 0, again
    print(again.stderr.splitlines()[-1], flush=True)
    client.barrier("together")
    os.environ.update(BASIN_JOB="another", BASIN_MAX_WORKERS="1", BASIN_MIN_WORKERS="1",
                      BASIN_START_WORKERS="1")
    other = subprocess.run([sys.executable, __file__, "again"], capture_output=True, text=True)
    assert other.returncode == 0, other
    client.barrier("still together")
client.close()
"""
# Logs, warns and reports, through Python and through the library.
TALKS = """
import sys
import torch
import basin.torch as bt
from basin.worker import logger
from torch import nn

if sys.argv[1:] == ["closes"]:
    sys.stderr.close()
bt.init()
model = nn.Linear(4, 1)
bt.broadcast_parameters(model)
optimizer = bt.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
for step in range(3):
    if step == 1:
        logger.warning("a line")
        bt.total_counts({"x": 1}, for_gradients=True)
        for lane in bt.context.current().lanes:
            lane.rounds.counted = ("nobody",)  # This warns.
    optimizer.zero_grad()
    model(torch.ones(2, 4)).mean().backward()
    optimizer.step()
bt.shutdown()
"""


class Workers(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def run_workers(
        self, script: str, *arguments: str, wrapped: str = "{}", **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Two workers; `wrapped` is a shell command in which {} is theirs."""
        path = self.folder / "script.py"
        path.write_text(script)
        command = wrapped.format(" ".join((sys.executable, str(path), *arguments)))
        return subprocess.run(
            [sys.executable, "-m", "basin.launch", "-n", "2", "--", "bash", "-c", command],
            env=environment(**more),
            capture_output=True,
            text=True,
            timeout=3 * PATIENCE,
            check=False,
        )

    def check(self, done: subprocess.CompletedProcess[str]) -> None:
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)


class Lives(Workers):
    def test_one_job_after_the_other_costs_nothing(self) -> None:
        for names in ("same", "other"):
            with self.subTest(names):
                done = self.run_workers(MANY_JOBS, names)
                self.check(done)
                self.assertEqual(2, done.stdout.count("same"))
                self.assertNotIn("peer_refused", done.stderr)


class Loaders(Workers):
    def check_loader(self, start: str) -> None:
        """Its processes, which start in this way, have the place of their trainer."""
        done = self.run_workers(LOADER, start)
        self.check(done)
        self.assertEqual(2, done.stdout.count("trained"))


class Children(Loaders):
    def test_spawned_processes_of_a_loader_have_the_place_of_their_trainer(self) -> None:
        self.check_loader("spawn")

    def test_a_child_does_not_take_the_place_of_its_parent(self) -> None:
        done = self.run_workers(CONNECTS_AGAIN)
        self.check(done)
        for rank in range(2):
            self.assertRegex(
                done.stdout,
                rf"\[{rank}\] .*IsHelper: Process \d+ was started by process \d+, which "
                rf"is worker worker-{rank} of job local, and would take its place",
            )


class OtherChildren(Loaders):
    def test_forked_processes_of_a_loader_have_the_place_of_their_trainer(self) -> None:
        for start in ("fork", "forkserver"):
            with self.subTest(start):
                self.check_loader(start)


class Output(Workers):
    def test_output_that_cannot_be_written_ends_no_training(self) -> None:
        for name, wrapped in (
            ("stderr closed", "{} 2>&-"),
            ("stdout closed", "{} >&-"),
            ("all closed", "{} <&- >&- 2>&-"),
            ("stderr full", "{} 2>/dev/full"),
            ("both full", "{} >/dev/full 2>/dev/full"),
            ("stderr broken", "{} 2> >(exec true)"),  # Its reader ends at once.
            ("both broken", "{} > >(exec true) 2>&1"),
        ):
            with self.subTest(name):
                self.check(self.run_workers(TALKS, wrapped=wrapped, PYTHONUNBUFFERED=""))
        with self.subTest("closed by the script"):
            self.check(self.run_workers(TALKS, "closes"))

    def test_a_home_and_folders_to_write_to_are_not_needed(self) -> None:
        for name, wrapped in (
            ("no HOME", "env -u HOME {}"),
            ("HOME is not there", "HOME=/nonexistent {}"),
            ("nowhere to write", "cd /proc && HOME=/proc TMPDIR=/proc {}"),
        ):
            with self.subTest(name):
                self.check(self.run_workers(TALKS, wrapped=wrapped))
        with self.subTest("basin-run has nowhere to write either"):
            self.check(self.run_workers(TALKS, HOME="/proc", TMPDIR="/proc"))


if __name__ == "__main__":
    require("numpy", "torch")
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
