# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""NumPy, C and C++ jobs at their defaults, in which workers are killed and started again while the
others are in a round: every round ends with all members, and no worker waits forever.

A worker is this program with the argument `worker`, call_worker.cc or call_worker_cpp.cc. It prints
a line per call and continues until one of them has read "stop".
"""

import os
import queue
import signal
import subprocess
import sys
import threading
import unittest
from pathlib import Path

import jobs
import numpy as np

_ARGUMENTS = sys.argv[-4:]
_C_WORKER, _CPP_WORKER, _BASIND, _LIBRARY = (Path(argument) for argument in _ARGUMENTS)
_PYTHON = [sys.executable, __file__, "worker"]
_C = [str(_C_WORKER)]
_CPP = [str(_CPP_WORKER)]


def _work(loop: str) -> None:
    """Repeats the calls of `loop`: a letter is a sum, `.` is one without a name, `|` is a
    barrier."""
    import basin  # Found by the path that jobs sets.

    stop = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    with basin.connect() as client:
        print("member", flush=True)
        while True:
            for call in loop:
                if call == "|":
                    client.barrier()
                    print(f"call {client.world_size}", flush=True)
                    if stop.is_set() and loop == "|":
                        return
                    continue
                mine = np.array([1.0, stop.is_set() and call == loop[0]], np.float32)
                name = None if call == "." else call
                handle = client.allreduce_async(mine, name, op=basin.Sum)
                total = handle.wait()
                assert total[0] == len(handle.info.contributors), handle.info
                print(f"call {int(total[0])}", flush=True)
                if total[1] > 0:
                    return


class _Worker:
    def __init__(
        self, program: list[str], address: str, job: str, name: str, workers: int, loop: str
    ) -> None:
        environment = {
            **os.environ,
            "BASIN_ADDRESS": address,
            "BASIN_JOB": job,
            "BASIN_WORKER_ID": name,
            "BASIN_MAX_WORKERS": str(workers),
            "BASIN_LIBRARY": str(_LIBRARY),
        }
        self.process = subprocess.Popen(
            [*program, loop, *_ARGUMENTS],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: queue.Queue[str] = queue.Queue()
        self.errors: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._read_errors, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put("end")

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors.extend(self.process.stderr)

    def await_line(self, wanted: str, times: int = 1) -> None:
        while times > 0:
            line = self.lines.get(timeout=jobs.PATIENCE)
            if line == "end":
                raise AssertionError("the worker ended: " + "".join(self.errors))
            times -= line == wanted

    def forget_lines(self) -> None:
        while not self.lines.empty():
            if self.lines.get_nowait() == "end":
                self.lines.put("end")
                return

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("stop\n")
        self.process.stdin.flush()


class CallsAfterLossTest(unittest.TestCase):
    aggregator: jobs.Aggregator

    @classmethod
    def setUpClass(cls) -> None:
        cls.aggregator = jobs.Aggregator(_BASIND)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.aggregator.close()

    def _run(
        self, loop: str, workers: int, killed: int, times: int, program: list[str] = _PYTHON
    ) -> None:
        job = self.id().rsplit(".", 1)[-1].replace("_", "-").lower()[:60].strip("-")
        everyone = f"call {workers}"

        def start(name: str) -> _Worker:
            return _Worker(program, self.aggregator.address, job, name, workers, loop)

        alive = {f"w-{i}": start(f"w-{i}") for i in range(workers)}
        try:
            for _ in range(times):
                for worker in alive.values():
                    worker.forget_lines()
                for worker in alive.values():
                    worker.await_line(everyone, 2)
                names = list(alive)[:killed]
                for name in names:
                    alive[name].kill()
                for name in names:
                    alive[name] = start(name)
                for name in names:
                    alive[name].await_line("member")
            for worker in alive.values():
                worker.forget_lines()
            for worker in alive.values():
                worker.await_line(everyone, 2)
            for worker in alive.values():
                worker.stop()
            for name, worker in alive.items():
                self.assertEqual(worker.process.wait(jobs.PATIENCE), 0, (name, worker.errors))
        finally:
            for worker in alive.values():
                worker.kill()

    def test_fault_w19_a_call_goes_on_with_the_worker_that_replaces_one(self) -> None:
        self._run("a", workers=2, killed=1, times=5)

    def test_fault_w19_several_are_replaced_at_once(self) -> None:
        self._run("a", workers=3, killed=2, times=2)

    def test_fault_w19_a_script_that_starts_again_at_another_call_catches_up(self) -> None:
        self._run("abc", workers=2, killed=1, times=4)

    def test_fault_w19_several_start_again_at_another_call(self) -> None:
        self._run("ab", workers=3, killed=2, times=2)

    def test_fault_w19_a_call_and_a_barrier(self) -> None:
        self._run("a|", workers=2, killed=1, times=4)

    def test_fault_w19_a_call_without_a_name_goes_on(self) -> None:
        self._run(".", workers=3, killed=2, times=3)

    def test_fault_w19_calls_with_a_name_and_without(self) -> None:
        self._run("a.|", workers=2, killed=1, times=4)

    def test_fault_w19_in_c_too(self) -> None:
        self._run("ab|", workers=2, killed=1, times=4, program=_C)

    def test_fault_w19_in_cpp_too(self) -> None:
        self._run("ab|", workers=2, killed=1, times=4, program=_CPP)

    def test_fault_w19_several_workers_of_a_gradient_lane_are_replaced(self) -> None:
        self._run("A", workers=3, killed=2, times=2, program=_CPP)

    def test_fault_w19_a_gradient_lane_and_a_call(self) -> None:
        self._run("Aa|", workers=3, killed=1, times=3, program=_CPP)

    def test_fault_w19_a_barrier_goes_on_too(self) -> None:
        self._run("|", workers=2, killed=1, times=3)


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        _work(sys.argv[2])
    else:
        unittest.main(argv=sys.argv[:1])
