# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""All at once: a training grows from 1 worker to 8 and shrinks to 3, while workers are killed, one
is drained by an operator, one gets a notice of its machine, and the aggregator is killed and
restarted. It ends with each sample trained once in each epoch, and with the parameters of one
process without faults.

By hand, in a built tree: tests/python/test_torch_everything.py
"""

import argparse
import multiprocessing
import os
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import jobs

jobs.require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

JOB = "everything"
EPOCHS, SAMPLES, GLOBAL_BATCH = 6, 250, 25
STEPS = EPOCHS * -(-SAMPLES // GLOBAL_BATCH)
SEED = 3
MOST = 8  # Workers.
BOUND = 1e-6  # The largest relative difference of a parameter.

# What the driver answers a worker that is about to train a step.
GO, DIE, AWAIT_NOTICE = "go", "die", "await the notice"


# ---- the training


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, 6, dtype=torch.float64, generator=generator)
    return TensorDataset(x, torch.arange(SAMPLES))


def model() -> Any:
    torch.manual_seed(7)
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    return net.double()


def optimizer_of(net: Any) -> Any:
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


def scheduler_of(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.99)


def loss_of(net: Any, x: torch.Tensor) -> Any:
    return net(x).square().mean()


def alone() -> list[torch.Tensor]:
    """The parameters of one process without faults and without Basin."""
    net = model()
    optimizer = optimizer_of(net)
    scheduler = scheduler_of(optimizer)
    x, _ = data().tensors
    for epoch in range(EPOCHS):
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(SEED + epoch))
        for indices in order.split(GLOBAL_BATCH):
            optimizer.zero_grad()
            loss_of(net, x[indices]).backward()
            optimizer.step()
            scheduler.step()
    return [p.detach() for p in net.parameters()]


def work(variables: dict[str, str], folder: str, driver: Connection) -> None:
    """A worker, which asks the driver before each step. It ends as its training script would."""
    # The processes of its loader start as in any program.
    multiprocessing.set_start_method(None, force=True)
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    os.environ.update(variables)
    import basin
    import basin.torch

    torch.set_num_threads(1)
    name = variables["BASIN_WORKER_ID"]
    basin.torch.init(notice=Path(folder) / f"notice-{name}")
    net = model()
    optimizer = basin.torch.DistributedOptimizer(optimizer_of(net), net.named_parameters())
    scheduler = scheduler_of(optimizer)
    sampler = basin.torch.ElasticBatchSampler(
        data(), optimizer, keep_global_batch=GLOBAL_BATCH, seed=SEED, scheduler=scheduler
    )
    loader = DataLoader(data(), batch_sampler=sampler, num_workers=1 if name == "w2" else 0)
    state = basin.torch.State(net, optimizer, scheduler=scheduler, sampler=sampler)
    answer: str = GO

    def in_backward(_: Any) -> None:
        if answer == DIE:
            os.kill(os.getpid(), signal.SIGKILL)

    net[0].weight.register_hook(in_backward)
    while state.epoch < EPOCHS and not basin.torch.leaving():
        sampler.set_epoch(state.epoch)
        for x, indices in loader:
            driver.send(("at", state.step, basin.torch.size()))
            answer = driver.recv()
            while answer == AWAIT_NOTICE and not basin.torch.leaving():
                loss_of(net, x)  # A long step.
            optimizer.zero_grad()
            try:
                loss_of(net, x).backward()
                optimizer.step()
            except basin.RoundAborted as aborted:
                if not aborted.step_again:
                    raise
                driver.send(("again", state.step, basin.torch.size()))
                continue
            driver.send(("used", state.epoch, indices.tolist()))
            scheduler.step()
            state.step += 1
            if basin.torch.leaving():
                break
        else:
            state.epoch += 1
    left = basin.torch.leaving()
    basin.torch.shutdown()
    parameters = [p.detach().numpy() for p in net.parameters()]
    driver.send(("left" if left else "ended", state.step, parameters))


# ---- what happens meanwhile


@dataclass
class Row:
    """What has happened, and which of its steps each worker had to make again since."""

    seconds: float
    event: str
    step: int
    workers: int
    again: Counter[str] = field(default_factory=Counter)

    @property
    def cost(self) -> int:
        return max(self.again.values(), default=0)


class Driver:
    def __init__(self, options: argparse.Namespace, folder: str) -> None:
        self._options, self._folder = options, folder
        self._context = jobs.fork_context()
        self.aggregator = jobs.Aggregator(options.basind, admin="127.0.0.1:0")
        self._address = self.aggregator.address
        self.processes: dict[str, Any] = {}
        self._connections: dict[Connection, str] = {}
        self._answers: dict[str, str] = {}  # To be given with the next question.
        self.expected_codes: dict[str, int] = {}
        self._began = time.monotonic()
        self.rows: list[Row] = []
        self.used: Counter[tuple[int, int]] = Counter()
        self.ended: dict[str, tuple[int, list[Any]]] = {}
        # The step in which each event happens. Steps 10, 20 and so on begin an epoch.
        self._plan: list[tuple[int, str, Callable[[], None]]] = [
            (7, "7 workers join", self._grow),
            (15, "w7 is killed -9", lambda: self._kill("w7")),
            (19, "the aggregator is killed -9, and another one started", self._restart),
            (24, "w6 is drained by basinctl", lambda: self._drain("w6")),
            (32, "w5 gets the notice of its machine", lambda: self._notify("w5")),
            (37, "w0, the first one, is killed -9", lambda: self._kill("w0")),
            (45, "w4 is killed -9", lambda: self._kill("w4")),
        ]

    def start(self, name: str, *, run_is_new: bool) -> None:
        variables = {
            "BASIN_LIBRARY": str(self._options.library),
            "BASIN_ADDRESS": self._address,
            "BASIN_JOB": JOB,
            "BASIN_WORKER_ID": name,
            "BASIN_FRESH": str(run_is_new).lower(),
            "BASIN_START_WORKERS": "1",
            "BASIN_MIN_WORKERS": "1",
            "BASIN_MAX_WORKERS": str(MOST),
        }
        mine, theirs = self._context.Pipe()
        arguments = (variables, self._folder, theirs)
        process = self._context.Process(target=work, args=arguments, daemon=True)
        process.start()
        theirs.close()
        self.processes[name] = process
        self._connections[mine] = name
        self.expected_codes[name] = 0

    def run(self) -> None:
        """Returns when all workers have ended."""
        self.start("w0", run_is_new=True)
        while self._connections:
            ready = wait(list(self._connections), jobs.PATIENCE)
            if not ready:
                living = ", ".join(self._connections.values())
                raise AssertionError(f"nothing within {jobs.PATIENCE} s of {living}")
            for each in ready:
                assert isinstance(each, Connection)
                self._hear(each, self._connections[each])
        for process in self.processes.values():
            process.join(jobs.PATIENCE)

    def _hear(self, connection: Connection, name: str) -> None:
        try:
            kind, number, told = connection.recv()
        except (EOFError, ConnectionResetError):
            del self._connections[connection]
            return
        if kind == "at":
            if self.rows and number > self.rows[-1].step:
                self.rows[-1].workers = told
            while self._plan and self._plan[0][0] <= number:
                _, event, happens = self._plan.pop(0)
                self._note(event, number, told)
                happens()
            connection.send(self._answers.pop(name, GO))
        elif kind == "again":
            self.rows[-1].again[name] += 1
        elif kind == "used":
            self.used.update((number, index) for index in told)
        elif kind == "ended":
            if not self.ended:
                self._note("the training ends", number, len(self._connections))
            self.ended[name] = number, told

    def _note(self, event: str, step: int, workers: int) -> None:
        self.rows.append(Row(time.monotonic() - self._began, event, step, workers))

    def _grow(self) -> None:
        names = [f"w{i}" for i in range(1, MOST)]
        for name in names:
            self.start(name, run_is_new=False)
        for name in names:
            self.aggregator.wait_for("worker_ready", name)

    def _kill(self, name: str) -> None:
        self._answers[name] = DIE
        self.expected_codes[name] = -signal.SIGKILL

    def _restart(self) -> None:
        self.aggregator.close()
        self.aggregator = jobs.Aggregator(
            self._options.basind, listen=self._address, admin="127.0.0.1:0"
        )

    def _drain(self, name: str) -> None:
        command = [self._options.basinctl, "drain", "worker", JOB, name]
        command.append(f"--address={self.aggregator.admin}")
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def _notify(self, name: str) -> None:
        (Path(self._folder) / f"notice-{name}").touch()
        self._answers[name] = AWAIT_NOTICE

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.join()
        self.aggregator.close()


# ---- the end


def table(rows: list[Row]) -> str:
    lines = [("time", "event", "step", "workers then", "steps made again")]
    lines += [
        (f"{r.seconds:.1f} s", r.event, str(r.step), str(r.workers), str(r.cost)) for r in rows
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines
    )


def check(driver: Driver) -> str:
    """Raises AssertionError, or returns what is shown."""
    codes = {name: process.exitcode for name, process in driver.processes.items()}
    assert codes == driver.expected_codes, codes
    assert sorted(driver.ended) == ["w1", "w2", "w3"], sorted(driver.ended)
    assert {steps for steps, _ in driver.ended.values()} == {STEPS}, driver.ended
    once = {(epoch, index): 1 for epoch in range(EPOCHS) for index in range(SAMPLES)}
    wrong = {each: n for each in {*once, *driver.used} if (n := driver.used[each]) != 1}
    assert not wrong, f"not once: {wrong}"
    first, *others = (parameters for _, parameters in driver.ended.values())
    for other in others:
        assert all((a == b).all() for a, b in zip(first, other, strict=True)), "they differ"
    largest = max(
        float((a - torch.from_numpy(b)).norm() / a.norm())
        for a, b in zip(alone(), first, strict=True)
    )
    assert largest <= BOUND, largest
    return (
        f"{EPOCHS} epochs of {SAMPLES} samples, each trained once in each epoch; {STEPS} steps of "
        f"{GLOBAL_BATCH} samples; 3 workers end with the same bits, and differ from one process "
        f"without faults by {largest:.1e} of the norm of a parameter (float64)"
    )


def main() -> None:
    build = jobs.ROOT / "build/release"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("basind", nargs="?", type=Path, default=build / "aggregator/basind/basind")
    parser.add_argument("library", nargs="?", type=Path, default=build / "client/c/libbasin.so.2")
    parser.add_argument("basinctl", nargs="?", type=Path, default=build / "aggregator/ctl/basinctl")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(options, folder)
        try:
            driver.run()
        finally:
            driver.close()
            print(table(driver.rows), flush=True)
    print(check(driver))


if __name__ == "__main__":
    main()
