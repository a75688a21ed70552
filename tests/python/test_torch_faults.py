# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A worker is killed in the middle of a backward: the others end with the same parameters and
buffers, in each of the three ways to reduce gradients. Its loss is seen at once, also if processes
of its data loader live on.

Usage: test_torch_faults.py BASIND LIBBASIN
"""

import contextlib
import datetime
import hashlib
import json
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from jobs import JobsTest, hear, main, make_events, require, say

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402
from torch_jobs import process_group_of_one, wrap  # noqa: E402

WORKERS = ("w0", "w1", "w2")


def train(rank: int, way: str, dying: int, place: str) -> tuple[str, list[str]]:
    """Ten steps in one of the three ways. The dying worker dies in this place of the sixth. Returns
    the digest of the parameters (and of the buffers where they are the model's), and the
    contributors of the last round."""
    import basin.torch as bt

    torch.set_num_threads(1)
    bt.init()
    torch.manual_seed(rank)
    net: Any = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).double()
    if way == "optimizer":
        bt.broadcast_parameters(net)
    elif way == "hook":
        group = process_group_of_one()  # It ends with the process.
        group.__enter__()
    model, optimizer, owner = wrap(bt, net, way)
    optimizer.param_groups[0]["momentum"] = 0.9

    def die(*_: Any) -> None:
        if rank == dying and step == 5:
            os.kill(os.getpid(), signal.SIGKILL)

    if place == "backward":
        net[0].weight.register_hook(die)  # The last layer is on its way then.
    elif place == "step":
        optimizer.register_step_pre_hook(die)  # Its round is over.
    for step in range(10):
        if place == "forward":
            die()
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(10 * step + rank)
        x = torch.randn(4, 5, dtype=torch.float64, generator=generator)
        model(x).square().mean().backward()
        optimizer.step()
    tensors = list(net.parameters()) + (list(net.buffers()) if way != "optimizer" else [])
    content = b"".join(t.detach().numpy().tobytes() for t in tensors)
    contributors = list(owner.last_round().contributors)
    bt.barrier("end")
    bt.shutdown()
    return hashlib.sha256(content).hexdigest(), contributors


def with_a_loader(rank: int, folder: str) -> Any:
    """Worker 1 dies while the two processes of its loader wait. Worker 0 trains on without it."""
    import multiprocessing

    import basin.torch as bt

    class Data(Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> torch.Tensor:
            if index >= 8:
                (Path(folder) / f"loads-{os.getpid()}").touch()
                say(Path(folder) / "loads")
                hear(Path(folder) / "gone")
            return torch.ones(5)

    # A daemon may have no processes.
    this: Any = multiprocessing.current_process()
    this._config["daemon"] = False
    torch.set_num_threads(1)
    bt.init()
    net = torch.nn.Linear(5, 1)
    bt.broadcast_parameters(net)
    optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1)
    bt.DistributedOptimizer(optimizer, net.named_parameters())
    if rank == 1:
        loader = DataLoader(Data(), 4, num_workers=2, multiprocessing_context="fork")
        batches = iter(loader)
    step = 0
    while True:
        batch = torch.ones(4, 5) if rank == 0 else next(batches)
        optimizer.zero_grad()
        net(batch).square().mean().backward()
        optimizer.step()
        step += 1
        if rank == 1 and step == 2:
            hear(Path(folder) / "loads")
            (Path(folder) / "killed").write_text(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        if step > 2 and optimizer.last_round().world_size == 1:
            break
    # The processes of the loader live, and have heard nothing.
    loading = [int(each.name.split("-")[1]) for each in Path(folder).glob("loads-*")]
    alive = [each for each in loading if Path(f"/proc/{each}").exists()]
    say(Path(folder) / "gone")
    bt.shutdown()
    return os.environ["BASIN_JOB"], len(alive), float((Path(folder) / "killed").read_text())


class KilledWithItsLoader(JobsTest):
    def test_its_connections_end_with_its_process(self) -> None:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as kept:
            make_events(folder, ("loads", "gone"), kept)
            survivor, gone = self.jobs.run(
                with_a_loader, 2, folder, mortal=(1,), BASIN_MIN_WORKERS="1"
            )
        self.assertIsNone(gone)
        job, alive, killed = survivor
        self.assertGreaterEqual(alive, 1)
        entries = [json.loads(line) for line in self.jobs.aggregator.lines]
        first: dict[str, Any] = {}
        for entry in entries:
            if entry.get("job") == job and entry.get("worker") == "w1":
                first.setdefault(entry["event"], entry)
        self.assertEqual("It closed its connections.", first["worker_disconnected"]["reason"])
        lost = first["worker_lost"]
        self.assertIn("did not reconnect in time", lost["reason"])
        # Its lease is a minute here.
        seen = datetime.datetime.fromisoformat(lost["time"].replace("Z", "+00:00"))
        self.assertLess(seen.timestamp() - killed, 30)


class KilledWorker(JobsTest):
    def assert_the_others_agree(self, way: str, dying: int, place: str) -> None:
        ends = self.jobs.run(train, 3, way, dying, place, mortal=(dying,), BASIN_MIN_WORKERS="2")
        self.assertIsNone(ends.pop(dying))
        digests, contributors = zip(*ends, strict=True)
        left = [worker for worker in WORKERS if worker != WORKERS[dying]]
        self.assertEqual((left, left), contributors)
        self.assertEqual(1, len(set(digests)))

    def test_optimizer(self) -> None:
        self.assert_the_others_agree("optimizer", 0, "backward")

    def test_model_loses_the_worker_whose_buffers_all_have(self) -> None:
        for place in ("forward", "backward", "step"):
            with self.subTest(place):
                self.assert_the_others_agree("model", 0, place)

    def test_model_loses_another_worker(self) -> None:
        self.assert_the_others_agree("model", 2, "backward")

    def test_hook_loses_the_worker_whose_buffers_all_have(self) -> None:
        self.assert_the_others_agree("hook", 0, "backward")


if __name__ == "__main__":
    main()
