# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A worker is killed in the middle of a backward: the others end with the same parameters and
buffers, in each of the three ways to reduce gradients.

Usage: test_torch_faults.py BASIND LIBBASIN
"""

import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

from jobs import PACKAGE, PATIENCE, environment, require

WORKERS = ("worker-0", "worker-1", "worker-2")
# Argument 1: the way; argument 2: the worker that dies; argument 3: where.
TRAINS = """
import hashlib, os, signal, sys
import basin.torch as bt
import torch
from torch import nn
from torch_jobs import process_group_of_one, wrap

way, dying, place = sys.argv[1:]
torch.set_num_threads(1)
bt.init()
me = bt.context.current().client.worker_id
torch.manual_seed(bt.rank())
net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).double()
if way == "optimizer":
    bt.broadcast_parameters(net)
elif way == "hook":
    group = process_group_of_one()  # It ends with the process.
    group.__enter__()
model, optimizer, owner = wrap(bt, net, way)
optimizer.param_groups[0]["momentum"] = 0.9

def die(*_):
    if me == dying and step == 5:
        os.kill(os.getpid(), signal.SIGKILL)

if place == "backward":
    net[0].weight.register_hook(die)  # The last layer is on its way then.
elif place == "step":
    optimizer.register_step_pre_hook(die)  # Its round is over.
for step in range(10):
    if place == "forward":
        die()
    optimizer.zero_grad()
    generator = torch.Generator().manual_seed(10 * step + int(me[-1]))
    x = torch.randn(4, 5, dtype=torch.float64, generator=generator)
    model(x).square().mean().backward()
    optimizer.step()
tensors = list(net.parameters()) + (list(net.buffers()) if way != "optimizer" else [])
digest = hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in tensors)).hexdigest()
print(digest, *owner.last_round().contributors)
bt.barrier("end")
bt.shutdown()
"""


def train(way: str, dying: str, place: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "basin.launch", "-n", "3", "--min-workers", "2", "--"),
            *(sys.executable, "-c", TRAINS, way, dying, place),
        ],
        env=environment(PYTHONPATH=f"{PACKAGE}{os.pathsep}{Path(__file__).parent}"),
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
        check=False,
    )


class KilledWorker(unittest.TestCase):
    def assert_the_others_agree(self, way: str, dying: str, place: str) -> None:
        done = train(way, dying, place)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertIn(f"worker {dying[-1]} was ended by SIGKILL", done.stderr)
        ends = re.findall(r"^\[\d\] ([0-9a-f]{64}) (.*)$", done.stdout, re.MULTILINE)
        left = " ".join(worker for worker in WORKERS if worker != dying)
        self.assertEqual([left, left], [contributors for _, contributors in ends])
        self.assertEqual(1, len({digest for digest, _ in ends}))

    def test_optimizer(self) -> None:
        self.assert_the_others_agree("optimizer", "worker-0", "backward")

    def test_model_loses_the_worker_whose_buffers_all_have(self) -> None:
        for place in ("forward", "backward", "step"):
            with self.subTest(place):
                self.assert_the_others_agree("model", "worker-0", place)

    def test_model_loses_another_worker(self) -> None:
        self.assert_the_others_agree("model", "worker-2", "backward")

    def test_hook_loses_the_worker_whose_buffers_all_have(self) -> None:
        self.assert_the_others_agree("hook", "worker-0", "backward")


if __name__ == "__main__":
    require("numpy", "torch")
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
