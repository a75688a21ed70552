# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Workers of basin.torch that leave after a signal, a notice, a call, or an operator's command.

Usage: test_torch_leaving.py BASIND LIBBASIN BASINCTL [CLASS...]
"""

import contextlib
import http.server
import os
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Any, Self, cast

import jobs

jobs.require("numpy", "torch")
os.environ["BASIN_LIBRARY"] = sys.argv[2]  # For what is tested in this process.
from basin.torch.leave import Leave  # noqa: E402 - ends above when there is no torch
from test_leaving import Leavers  # noqa: E402

# It trains until it is to leave. Its arguments: what init() gets, and what it does at step 3 when
# the file has that name.
_SCRIPT = """
import os, signal, sys, time
import basin.torch as bt, torch

options, does, event = eval(sys.argv[1]), sys.argv[2], sys.argv[3]
bt.init(**options)
torch.set_num_threads(1)
net = torch.nn.Linear(4, 2)
optimizer = bt.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1))
state = bt.State(net, optimizer)
while not state.leaving:
    assert not bt.leaving()
    optimizer.zero_grad()
    if state.step == 3 and does in ("blocks", "computes"):
        print("at step 3", flush=True)
        if does == "blocks":
            open(event, "rb", buffering=0).read(1)
        while does == "computes":
            pass
    if state.step == 3 and does == "calls":
        bt.will_leave(by=4)
    net(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    state.step += 1
    print("trains", state.step, len(optimizer.last_round().contributors), flush=True)
print("leaves", flush=True)
bt.shutdown()
print("has left", flush=True)
"""
Process = subprocess.Popen[str]
_ON_SIGTERM = "dict(leave_on=(signal.SIGTERM,), notice_seconds=4)"


class TorchLeavers(Leavers):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.job = 0
        self.kept = self.enterContext(contextlib.ExitStack())

    def start(self, rank: int, options: str = "{}", does: str = "") -> Process:
        event = self.folder / "event"
        job = self.id().split(".")[2].split()[0].replace("_", "-")
        return self._start(
            f"{job}-{self.job}", rank, 2, 1, "-c", _SCRIPT, options, does, str(event)
        )

    def assert_leaves_after_its_step(self, leaver: Process, other: Process) -> None:
        said = self._end(leaver, 0)
        self.assertTrue(said.endswith("leaves\nhas left\n"), said)
        self.assert_trains_alone(other)

    def assert_trains_alone(self, other: Process) -> None:
        while not self._await(other, "trains").endswith(" 1\n"):
            pass


class LeavingTest(TorchLeavers):
    def test_a_signal(self) -> None:
        pair = [self.start(rank, _ON_SIGTERM) for rank in range(2)]
        for each in pair:
            self._await(each, "trains")
        pair[0].terminate()
        self.assert_leaves_after_its_step(*pair)
        pair[1].terminate()
        self._end(pair[1], 0)

    def test_a_url(self) -> None:
        status, text = 404, b"FALSE"
        asked = threading.Semaphore(0)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.release()
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/preempted"
        pair = [self.start(0, f"dict(notice={url!r}, notice_seconds=60)"), self.start(1)]
        for status in (404, 200):  # noqa: B007 - the handler has it; neither is a notice yet
            for _ in range(2):
                self.assertTrue(asked.acquire(timeout=jobs.PATIENCE))
            self._await(pair[0], "trains")
        text = b'{"action": "terminate"}'
        self.assert_leaves_after_its_step(*pair)

    def test_a_notice_shorter_than_a_wait_withdraws_the_open_round(self) -> None:
        """The other worker does not contribute before this one has ended."""
        for how in ("calls", "signal"):
            self.job += 1
            with self.subTest(how):
                event = self.folder / "event"
                event.unlink(missing_ok=True)
                jobs.make_events(str(self.folder), ["event"], self.kept)
                leaver = self.start(0, _ON_SIGTERM, "calls" if how == "calls" else "")
                other = self.start(1, does="blocks")
                self._await(other, "at step 3")
                self._await(leaver, "trains 3")
                if how == "signal":
                    leaver.terminate()
                said = self._end(leaver, 0)
                self.assertNotIn("leaves", said)
                jobs.say(event)
                self.assert_trains_alone(other)
                other.kill()


class OtherWaysToLeave(TorchLeavers):
    """test_torch_everything.py has a notice in a file and an operator, too."""

    def test_a_file(self) -> None:
        notice = self.folder / "notice"
        pair = [self.start(0, f"dict(notice={str(notice)!r})"), self.start(1)]
        for each in pair:
            self._await(each, "trains")
        notice.touch()
        self.assert_leaves_after_its_step(*pair)

    def test_an_operator(self) -> None:
        """It drains the worker."""
        aggregator = jobs.Aggregator(Path(sys.argv[1]), admin="127.0.0.1:0")
        self.addCleanup(aggregator.close)
        command = ("-c", _SCRIPT, "{}", "", "")
        pair = [
            self._start("drained", rank, 2, 1, *command, BASIN_ADDRESS=aggregator.address)
            for rank in range(2)
        ]
        for each in pair:
            self._await(each, "trains")
        drain = [sys.argv[3], "drain", "worker", "drained", "w0", f"--address={aggregator.admin}"]
        subprocess.run(drain, check=True, stdout=subprocess.DEVNULL)
        self.assert_leaves_after_its_step(*pair)

    def test_a_notice_shorter_than_a_computation_ends_it(self) -> None:
        for options in (_ON_SIGTERM, "dict(notice={!r}, notice_seconds=2)"):
            self.job += 1
            with self.subTest(options):
                notice = self.folder / "notice"
                leaver = self.start(0, options.format(str(notice)), "computes")
                other = self.start(1)
                self._await(leaver, "at step 3")
                if options == _ON_SIGTERM:
                    leaver.terminate()
                else:
                    notice.touch()
                self.assertNotIn("leaves", self._end(leaver, 0))
                self.assert_trains_alone(other)
                other.kill()

    def test_a_notice_in_a_paused_job_ends_with_0(self) -> None:
        options = "dict(leave_on=(signal.SIGTERM,), notice_seconds=60)"
        leaver = self._start("paused", 0, 2, 2, "-c", _SCRIPT, options, "", "")
        killed = self._start("paused", 1, 2, 2, "-c", _SCRIPT, "{}", "", "")
        for each in (leaver, killed):
            self._await(each, "trains")
        killed.kill()
        leaver.terminate()
        self._end(leaver, 0)

    def test_a_signal_before_the_job_begins_ends_with_0(self) -> None:
        leaver = self._start("early", 0, 2, 2, "-c", _SCRIPT, _ON_SIGTERM, "", "")
        self._await(leaver, "starts with 2 workers, and 1 is ready", leaver.stderr)
        leaver.terminate()
        self.assertEqual("", self._end(leaver, 0))


class _Member:
    """A worker that nobody drains. While it is asked so, another thread hears of the notice."""

    draining = False

    def __init__(self, leave: Leave) -> None:
        self._leave = leave
        self.worker = self

    def place(self) -> Self:
        self._leave.will_leave(None)
        return self

    def will_leave(self, *, ends_well: bool) -> None:
        pass


class AnswerTest(unittest.TestCase):
    def test_a_notice_that_comes_with_the_question_stays(self) -> None:
        leave = Leave((), None, None)
        leave.begin(cast(Any, _Member(leave)))
        self.addCleanup(leave.close)
        self.assertTrue(leave)
        self.assertTrue(leave)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
