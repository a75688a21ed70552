# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Scripts whose workers would wait forever for each other, or for one that has left. Each wait ends
with its result, or with an error that names what it waited for."""

import re
import signal
import subprocess
import sys
import textwrap
import threading
from typing import IO, Any

import jobs
import numpy as np

jobs.require("torch")

import basin  # noqa: E402  (found where jobs says that it is)
import basin.torch  # noqa: E402
import torch  # noqa: E402

_DEADLOCK_SECONDS = 2


def uneven_calls(rank: int) -> list[str]:
    """Worker 1 has one more step than worker 0, which then reduces a metric. Returns the error of
    each worker, and continues."""
    with basin.connect() as client:
        client.allreduce(np.ones(4), "step", op=basin.Sum)
        try:
            client.allreduce(np.ones(4), "metric" if rank == 0 else "step", op=basin.Sum)
            told = "nothing"
        except basin.RoundAborted as error:
            told = f"{error.abort_cause.name}: {error}"
        total = client.allreduce(np.ones(1), "after", op=basin.Sum)
        return [told, str(total[0])]


def uneven_batches(rank: int) -> str:
    """The same with a training loop that has one more batch on worker 1, followed by a metric."""
    basin.torch.init()
    try:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1)
        optimizer = basin.torch.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
        )
        basin.torch.broadcast_parameters(model)
        try:
            for _ in range(2 + rank):
                optimizer.zero_grad()
                model(torch.ones(2, 3)).sum().backward()
                optimizer.step()
            basin.torch.allreduce(torch.ones(1), name="metric", op=basin.Sum)
        except basin.RoundAborted as error:
            return f"{error.abort_cause.name}: {error}"
        return "nothing"
    finally:
        basin.torch.shutdown()


def broadcasts_last(rank: int, size: int) -> float:
    with basin.connect() as client:
        value = client.broadcast(np.full(size, float(rank)), "weights", root_rank=1)
    return float(value.sum())


def broadcasts_parameters_last(rank: int) -> float:
    basin.torch.init()
    torch.manual_seed(rank)
    model = torch.nn.Linear(100, 100)
    basin.torch.broadcast_parameters(model)
    basin.torch.shutdown()
    return float(model.weight.sum())


# It neither closes nor finishes: it is at its end.
_ENDS = """
import basin, numpy
client = basin.connect()
print(client.broadcast(numpy.full(3, 7.0 + client.rank), "weights", root_rank=0).sum())
"""


# The script of docs/kubernetes-reference.md, with a model.
_MODEL = """
class state:
    step = 0
steps = 1_000_000_000
model = torch.nn.Linear(3, 1)
optimizer = basin.torch.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
)
basin.torch.broadcast_parameters(model)
"""
_STEP = """
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        if state.step == 0:
            print("trains", flush=True)
"""


def _leaving_script() -> str:
    page = (jobs.ROOT / "docs/kubernetes-reference.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    (script,) = [block for block in blocks if "leave_on_sigterm()" in block]
    top, model, loop = re.split(r"^ *\.\.\..*\n", script, flags=re.M)
    imports = "import basin, basin.torch, torch\n"
    return imports + top + textwrap.indent(_MODEL, "    ") + model + _STEP.lstrip("\n") + loop


class WaitsEndTest(jobs.JobsTest):
    OPTIONS = (f"--round-deadlock-timeout={_DEADLOCK_SECONDS}s", "--round-late-warning=1s")

    def _check(self, told: Any, first: str, second: str) -> None:
        for worker in told:
            self.assertRegex(worker, "^DEADLOCK: .*the workers wait for each other")
            self.assertIn(f"worker w0 waits in round {first}", worker)
            self.assertIn(f"worker w1 waits in round {second}", worker)

    def test_fault_w5_calls_that_wait_for_each_other_end_with_both_names(self) -> None:
        results = self.jobs.run(uneven_calls, 2)
        self._check([told for told, _ in results], "1 of lane call/metric", "2 of lane call/step")
        self.assertEqual(["2.0", "2.0"], [after for _, after in results])

    def test_fault_w5_uneven_batches_and_a_metric_end_with_both_names(self) -> None:
        told = self.jobs.run(uneven_batches, 2)
        self._check(told, "1 of lane call/metric", "3 of lane gradients")

    def test_fault_w18_the_last_root_stays_until_all_workers_have_the_value(self) -> None:
        for size in (1, 1 << 20):
            self.assertEqual([float(size)] * 4, self.jobs.run(broadcasts_last, 4, size))

    def test_fault_w18_parameters_that_are_broadcast_last_arrive(self) -> None:
        self.assertEqual(1, len(set(self.jobs.run(broadcasts_parameters_last, 4))))

    def test_fault_w18_a_script_may_simply_end_after_a_broadcast(self) -> None:
        workers = [
            subprocess.Popen(
                [sys.executable, "-c", _ENDS],
                env=self.jobs.environment("ends", rank, 3),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(3)
        ]
        for worker in workers:
            output, errors = worker.communicate(timeout=jobs.PATIENCE)
            self.assertEqual((0, "21.0\n"), (worker.returncode, output), errors)

    def _start_leaving(self, job: str, workers: int) -> list[subprocess.Popen[str]]:
        """Workers of a job that pauses with fewer than two, as its page describes."""
        processes = []
        for rank in range(workers):
            environment = self.jobs.environment(job, rank, 2) | {"BASIN_MIN_WORKERS": "2"}
            process = subprocess.Popen(
                [sys.executable, "-c", _leaving_script()],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)
            processes.append(process)
        return processes

    def _await_training(self, processes: list[subprocess.Popen[str]]) -> None:
        for process in processes:
            self.assertEqual("trains\n", self._line(process, process.stdout))

    def _await_log(self, process: subprocess.Popen[str], text: str) -> None:
        """Waits for a report of the library about what it waits for."""
        while text not in (line := self._line(process, process.stderr)):
            self.assertTrue(line, f"it has ended, without: {text}")

    def _line(self, process: subprocess.Popen[str], stream: IO[str] | None) -> str:
        """Empty if the process ends, or prints none in time, without a line."""
        assert stream is not None
        watchdog = threading.Timer(jobs.PATIENCE, process.kill)
        watchdog.start()
        try:
            return stream.readline()
        finally:
            watchdog.cancel()

    def _expect_leaves(self, process: subprocess.Popen[str]) -> None:
        _, errors = process.communicate(timeout=jobs.PATIENCE)
        self.assertEqual(128 + signal.SIGTERM, process.returncode, errors)
        self.assertNotIn("Traceback", errors)

    def test_fault_w6_the_last_worker_leaves_a_paused_job(self) -> None:
        killed, last = self._start_leaving("paused", 2)
        self._await_training([killed, last])
        killed.kill()
        killed.wait()
        last.terminate()
        self._expect_leaves(last)

    def test_fault_w6_a_pause_that_was_there_before_the_signal_ends_the_wait_too(self) -> None:
        killed, last = self._start_leaving("long-paused", 2)
        self._await_training([killed, last])
        killed.kill()
        self._await_log(last, "is paused: 1 worker is left")
        last.terminate()
        self._expect_leaves(last)

    def test_fault_w6_all_workers_leave_together(self) -> None:
        processes = self._start_leaving("together", 2)
        self._await_training(processes)
        for process in processes:
            process.terminate()
        for process in processes:
            self._expect_leaves(process)

    def test_fault_w6_a_worker_leaves_before_its_job_begins(self) -> None:
        (process,) = self._start_leaving("not-begun", 1)
        self._await_log(process, "starts with 2 workers, and 1 is ready")
        process.terminate()
        self._expect_leaves(process)


if __name__ == "__main__":
    jobs.main()
