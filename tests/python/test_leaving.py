# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""basin.leave_on_sigterm(), and the examples that use it, with real signals.

tests/python/test_waits_end.py has what it does in a paused job.

Usage: test_leaving.py BASIND LIBBASIN [CLASS...]
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import jobs

jobs.require("numpy", "torch", "sklearn")

# It trains until SIGTERM. With "saves" and "forks", it leaves the job before that; with "prepares",
# it is never a member of it.
_SCRIPT = """
import os, signal, sys
import basin, numpy
with basin.leave_on_sigterm() as leaving:
    with basin.connect(ready=sys.argv[1] != "prepares") as client:
        if sys.argv[1] == "prepares":
            print("member" if client.place.is_member else "not a member", flush=True)
            sys.stdin.readline()
        if sys.argv[1] == "trains":
            while not leaving:
                client.allreduce(numpy.ones(4), "step", op=basin.Sum)
                print("trains", flush=True)
        client.close()
        print("closed", flush=True)
        if sys.argv[1] == "saves":
            sys.stdin.readline()
            print("saved", flush=True)
        if sys.argv[1] == "forks":
            ready, told = os.pipe()
            child = os.fork()
            if child == 0:
                os.write(told, b"!")
                while True:  # A wait would not end if the signal came just before it.
                    pass
            os.read(ready, 1)  # Python forgets a signal that comes before its fork() returns.
            os.kill(child, signal.SIGTERM)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
print("after the block", flush=True)
"""


class Leavers(jobs.JobsTest):
    def _start(
        self, job: str, rank: int, workers: int, least: int, *command: str, **variables: str
    ) -> subprocess.Popen[str]:
        environment = self.jobs.environment(job, rank, workers)
        process = subprocess.Popen(
            [sys.executable, "-u", *command],
            env={**environment, "BASIN_MIN_WORKERS": str(least), **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(self._kill, process)
        return process

    def _kill(self, process: subprocess.Popen[str]) -> None:
        """With its children, which have its output."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def _await(
        self, process: subprocess.Popen[str], text: str, stream: IO[str] | None = None
    ) -> str:
        """The next line of its output, or of this stream, that contains the text."""
        stream = stream or process.stdout
        assert stream is not None
        watchdog = threading.Timer(jobs.PATIENCE, self._kill, (process,))
        watchdog.start()
        try:
            for line in stream:
                if text in line:
                    return line
        finally:
            watchdog.cancel()
        self.fail(f"it has ended, without: {text}")

    def _end(self, process: subprocess.Popen[str], code: int) -> str:
        """Its output until it ends with the code."""
        output, errors = process.communicate(timeout=jobs.PATIENCE)
        self.assertEqual(code, process.returncode, output + errors)
        self.assertNotIn("Traceback", errors)
        return output


class Leaving(Leavers):
    def test_leaves_at_the_end_of_its_step(self) -> None:
        first, second = (
            self._start("leaves", rank, 2, 1, "-c", _SCRIPT, "trains") for rank in range(2)
        )
        for process in (first, second):
            self._await(process, "trains")
        first.terminate()
        said = self._end(first, 128 + signal.SIGTERM)
        self.assertTrue(said.endswith("closed\n"), said)
        # The other one continues alone.
        self._await(second, "trains")
        second.terminate()
        self._end(second, 128 + signal.SIGTERM)

    def test_a_late_joiner_that_is_no_member_yet_ends_at_once(self) -> None:
        first = self._start("prepares", 0, 2, 1, "-c", _SCRIPT, "trains", BASIN_START_WORKERS="1")
        self._await(first, "trains")
        late = self._start("prepares", 1, 2, 1, "-c", _SCRIPT, "prepares", BASIN_START_WORKERS="1")
        self._await(late, "not a member")
        late.terminate()
        self.assertEqual("", self._end(late, 128 + signal.SIGTERM))
        self._await(first, "trains")
        first.terminate()
        self._end(first, 128 + signal.SIGTERM)

    def test_a_signal_after_the_end_of_the_work_interrupts_nothing(self) -> None:
        process = self._start("saves", 0, 1, 1, "-c", _SCRIPT, "saves")
        self._await(process, "closed")
        process.terminate()
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        self.assertEqual("saved\nafter the block\n", self._end(process, 0))

    def test_a_forked_child_ends_as_without_it(self) -> None:
        process = self._start("forks", 0, 1, 1, "-c", _SCRIPT, "forks")
        self.assertEqual(
            f"closed\n-{int(signal.SIGTERM)}\nafter the block\n", self._end(process, 0)
        )

    def test_the_handler_of_the_script_is_back_after_the_block(self) -> None:
        import basin

        before = signal.getsignal(signal.SIGTERM)
        with basin.leave_on_sigterm() as leaving:
            self.assertNotEqual(before, signal.getsignal(signal.SIGTERM))
            self.assertFalse(leaving)
        self.assertEqual(before, signal.getsignal(signal.SIGTERM))

    def test_another_thread_is_refused(self) -> None:
        import basin

        told: list[str] = []

        def use() -> None:
            try:
                with basin.leave_on_sigterm():
                    told.append("it was not refused")
            except basin.FailedPrecondition as error:
                told.append(str(error))

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        self.assertIn("Use it on the main thread.", told[0])


class Examples(Leavers):
    def test_digits_resize_while_they_train(self) -> None:
        """Three pods of examples/digits.py become two, and three again."""
        script = str(jobs.ROOT / "examples/digits.py")
        pods = [self._start("digits", rank, 3, 1, script, "--epochs=100000") for rank in range(3)]
        self._await(pods[0], "epoch  1/")
        pods[2].terminate()
        left = self._end(pods[2], 128 + signal.SIGTERM)
        self.assertIn("leaves at step ", left)
        self._await(pods[0], "epoch")
        new = self._start("digits", 2, 3, 1, script, "--epochs=100000")
        self._await(new, "joined at step ")
        # All leave together; whichever is the last has nobody to wait for.
        for pod in (*pods[:2], new):
            pod.terminate()
        for pod in (*pods[:2], new):
            self._end(pod, 128 + signal.SIGTERM)

    def test_fault_a1_a_worker_that_joined_late_survives_a_restart_of_the_aggregator(self) -> None:
        """It does not know the calls with which the others began."""
        first = jobs.Aggregator(Path(sys.argv[1]))
        self.addCleanup(first.close)
        script = str(jobs.ROOT / "examples/digits.py")

        def start(rank: int) -> subprocess.Popen[str]:
            command = (script, "--epochs=100000")
            return self._start("restart", rank, 2, 1, *command, BASIN_ADDRESS=first.address)

        pods = [start(rank) for rank in range(2)]
        self._await(pods[0], "epoch  1/")
        self._kill(pods[1])
        pods[1] = start(1)
        self._await(pods[1], "joined at step ")
        first.close()
        second = jobs.Aggregator(Path(sys.argv[1]), listen=first.address)
        self.addCleanup(second.close)
        for pod in pods:
            self._await(pod, "The aggregator answers again", pod.stderr)
        for pod in pods:
            pod.terminate()
        for pod in pods:
            self.assertIn("leaves at step ", self._end(pod, 128 + signal.SIGTERM))

    def test_the_other_examples_leave(self) -> None:
        """Before their first step; each is one worker of two."""
        names = ("numpy_regression", "pytorch_loop", "pytorch_ddp", "pytorch_tokens")
        processes = [
            self._start(name.replace("_", "-"), 0, 2, 2, str(jobs.ROOT / f"examples/{name}.py"))
            for name in (*names, "pytorch_two_losses")
        ]
        for process in processes:
            self._await(process, "starts with 2 workers, and 1 is ready", process.stderr)
            process.terminate()
            self._end(process, 128 + signal.SIGTERM)


if __name__ == "__main__":
    jobs.main()
