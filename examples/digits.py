# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Trains a small CNN on handwritten digits with several workers.

    basin-run -n 4 -- python examples/digits.py

The data are the 1,797 images of 8 x 8 that scikit-learn includes; every fifth is for the test. Each
worker takes its part of every batch, and Basin averages the gradients, so all workers hold the same
parameters, bit for bit.

With --kill, and basin-run's --min-workers 3, the last worker is killed during the run, as if its
machine had failed: the others finish the step that they were in.

With --add, and basin-run's --max-workers 5, one more worker is started during the run, and
continues with the others' parameters, momentum and step.

After SIGTERM a worker finishes its step and leaves, and the others continue: Kubernetes sends it to
a pod that a resize removes. The worker ends with 143.

With --check, one process repeats the same training on the whole batches. The parameters agree over
the whole run in float64, and over the first steps in float32, after which training amplifies
rounding like any other small difference.

scripts/demo-shards.py compares two runs: --width makes the network large enough for several shards,
--hash-file tells it the parameters, and --signal when to kill a shard.
"""

import argparse
import functools
import hashlib
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import basin
import basin.torch as bt
import torch
from sklearn.datasets import load_digits
from torch import nn

BATCH = 64  # Samples of all workers together.
WIDTH = 64
WANTED_ACCURACY = 0.97
FLOAT64_BOUND = 1e-10
FLOAT32_BOUND, FLOAT32_STEPS = 1e-6, 20
ADD_AT, KILL_AT = 50, 100  # Steps.
STEPS_TOGETHER = 100  # The minimum with a worker that was added.


class Net(nn.Module):
    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(nn.Linear(512, width), nn.ReLU(), nn.Linear(width, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.classifier(self.features(images).flatten(1))
        return scores


@dataclass
class Data:
    """Images of shape (n, 1, 8, 8) from 0 to 1, and their digits."""

    train_images: torch.Tensor
    train_digits: torch.Tensor
    test_images: torch.Tensor
    test_digits: torch.Tensor


def load(dtype: torch.dtype) -> Data:
    bunch = load_digits()
    images = torch.tensor(bunch.images / 16.0, dtype=dtype).unsqueeze(1)
    digits = torch.tensor(bunch.target)
    test = torch.arange(len(digits)) % 5 == 0
    return Data(images[~test], digits[~test], images[test], digits[test])


def make_optimizer(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


def steps_in(data: Data) -> int:
    """The number of steps in one epoch."""
    return len(data.train_digits) // BATCH


@functools.lru_cache(maxsize=1)
def order_in(epoch: int, count: int) -> torch.Tensor:
    """The order of the samples, the same on every worker, even if it has joined late."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(1 + epoch))


def train(
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Data,
    state: Any,
    part: Callable[[], slice],
    leaving: object,
    *,
    show: bool = False,
    after_forward: Callable[[], None] = lambda: None,
    after_step: Callable[[], None] = lambda: None,
) -> None:
    """Trains on `part` of every batch, from state.step to state.last or until `leaving` is true."""
    while state.step < state.last and not leaving:
        epoch, place = divmod(state.step, steps_in(data))
        batch = order_in(epoch, len(data.train_digits))[place * BATCH : (place + 1) * BATCH]
        mine = batch[part()]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(data.train_images[mine]), data.train_digits[mine])
        after_forward()
        loss.backward()
        optimizer.step()
        state.step += 1
        after_step()
        if show and place + 1 == steps_in(data):
            percent = 100 * accuracy(net, data)
            epochs = math.ceil(state.last / steps_in(data))
            print(f"epoch {epoch + 1:2}/{epochs}  loss {loss:.4f}  test accuracy {percent:.1f} %")


def accuracy(net: nn.Module, data: Data) -> float:
    with torch.no_grad():
        right = net(data.test_images).argmax(1) == data.test_digits
    return float(right.double().mean())


def hash_of(net: nn.Module) -> str:
    """A hash of all parameters, by name and bits."""
    digest = hashlib.sha256()
    for name, tensor in net.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def my_part() -> slice:
    return slice(bt.rank(), BATCH // bt.size() * bt.size(), bt.size())


def demonstrate(options: argparse.Namespace, leaving: object) -> bool:
    """Trains and prints the results. Returns whether they are as expected."""
    kill, add = options.kill, options.add
    data = load(torch.float32)
    torch.manual_seed(100 + bt.rank())  # Values differ among workers until State().
    net = Net(options.width)
    optimizer: Any = bt.DistributedOptimizer(make_optimizer(net), net.named_parameters())
    last = options.epochs * steps_in(data)
    state = bt.State(net, optimizer, last=last, workers=(), added="" if add else "nobody")
    began = state.step
    if began > 0:
        print(f"joined at step {began} with parameters {hash_of(net)}")
    dies = kill and began == 0 and bt.rank() == bt.size() - 1
    adds = add and began == 0 and bt.rank() == 0

    def after_forward() -> None:
        if dies and state.step == KILL_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        if adds and state.step == ADD_AT:
            os.kill(int(os.environ["BASIN_RUN_PROCESS"]), signal.SIGUSR1)
        if options.signal is not None and bt.rank() == 0 and state.step == KILL_AT:
            os.kill(options.signal, signal.SIGUSR1)

    def after_step() -> None:
        """Makes the same changes on all workers."""
        workers = optimizer.last_round().contributors
        state.workers = state.workers or workers
        new = set(workers) - set(state.workers)
        if new and not state.added:
            state.added = min(new)
            state.last = max(state.last, state.step + STEPS_TOGETHER)
        if not state.added and state.step == state.last < 20 * last:
            state.last += steps_in(data)  # Goes on until the added worker has joined.

    start = time.perf_counter()
    train(
        net,
        optimizer,
        data,
        state,
        my_part,
        leaving,
        show=bt.rank() == 0,
        after_forward=after_forward,
        after_step=after_step,
    )
    seconds = time.perf_counter() - start
    if leaving:
        print(f"leaves at step {state.step} with parameters {hash_of(net)}")
        return True

    totals = optimizer.totals()
    compute = seconds - totals.push_seconds - totals.wait_seconds
    mine = (hash_of(net), accuracy(net, data), totals, compute)
    everybody = bt.allgather_object(mine)
    good = all(each[0] == mine[0] and each[1] >= WANTED_ACCURACY for each in everybody)
    good = good and state.added != ""
    if bt.rank() == 0:
        print(f"\n{len(everybody)} workers, {state.step} steps in {seconds:.1f} s")
        print("worker  parameters        test accuracy  MB sent  MB received  ms per step:", end="")
        print(" compute   push   wait")
        for rank, (digest, right, of_worker, computing) in enumerate(everybody):
            times = (computing, of_worker.push_seconds, of_worker.wait_seconds)
            print(
                f"{rank:6}  {digest}  {100 * right:11.1f} %  "
                f"{of_worker.bytes_pushed / 1e6:7.1f}  {of_worker.bytes_received / 1e6:11.1f}"
                + " " * 15
                + "".join(f"  {1000 * each / of_worker.rounds:5.2f}" for each in times)
            )
        print("all workers hold the same parameters" if good else "FAILED")
        if options.hash_file is not None:
            options.hash_file.write_text(mine[0])
    return good


def check(epochs: int, width: int, leaving: object) -> bool:
    """Compares with one process on the same batches. Returns whether the parameters agree."""
    good = True
    for dtype, bound, max_steps in (
        (torch.float64, FLOAT64_BOUND, None),
        (torch.float32, FLOAT32_BOUND, FLOAT32_STEPS),
    ):
        data = load(dtype)
        torch.manual_seed(1)
        net, alone = Net(width).to(dtype), Net(width).to(dtype)
        alone.load_state_dict(net.state_dict())
        optimizer = bt.DistributedOptimizer(make_optimizer(net), net.named_parameters())
        steps = max_steps or epochs * steps_in(data)
        train(net, optimizer, data, SimpleNamespace(step=0, last=steps), my_part, leaving)
        if leaving:
            return True
        if bt.rank() == 0:
            whole = functools.partial(slice, 0, BATCH // bt.size() * bt.size())
            state = SimpleNamespace(step=0, last=steps)
            train(alone, make_optimizer(alone), data, state, whole, leaving=False)
            pairs = zip(net.parameters(), alone.parameters(), strict=True)
            difference = max(float((a - b).detach().abs().max()) for a, b in pairs)
            good = good and difference <= bound
            name = str(dtype).removeprefix("torch.")
            print(
                f"{name} after {steps} steps: largest difference from one process "
                f"{difference:.2g}, limit {bound:.0e}"
            )
    return all(bt.allgather_object(good))


def main() -> int:
    parser = argparse.ArgumentParser(description="Trains a small CNN on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--check", action="store_true", help="compare with one process")
    parser.add_argument("--kill", action="store_true", help="kill the last worker during the run")
    parser.add_argument("--add", action="store_true", help="start another worker during the run")
    parser.add_argument(
        "--width", type=int, default=WIDTH, help="of the hidden layer (default: %(default)s)"
    )
    parser.add_argument(
        "--hash-file", type=Path, metavar="FILE", help="write the hash of the parameters there"
    )
    parser.add_argument(
        "--signal", type=int, metavar="PID", help=f"send SIGUSR1 there in step {KILL_AT}"
    )
    options = parser.parse_args()
    if options.add and options.check:
        parser.error("--check needs a run whose workers do not change")
    torch.set_num_threads(1)
    with basin.leave_on_sigterm() as leaving:
        bt.init()
        good = demonstrate(options, leaving)
        if options.check and not leaving:
            good = check(options.epochs, options.width, leaving) and good
        if not leaving:
            bt.barrier("end")
        bt.shutdown()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
