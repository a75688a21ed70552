# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""basin-run with real processes, and the example that it runs.

Usage: test_launch.py BASIND LIBBASIN BASINCTL [CLASS...]
"""

import contextlib
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path

from jobs import PATIENCE, ROOT, Aggregator, environment, require

# The script of a test's worker.
SAY_WHO = (
    "import os; print(*(os.environ[k] for k in "
    "('BASIN_RUN_RANK', 'BASIN_RUN_SIZE', 'BASIN_WORKER_ID', 'MALLOC_MMAP_THRESHOLD_')),"
    "*(k for k in os.environ if 'RANK' in k or k.startswith('MASTER_')))"
)
SAYS_TORCHRUN = (
    "import os; print(*(os.environ[k] for k in "
    "('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'GROUP_RANK', 'MASTER_ADDR')),"
    "int(os.environ['MASTER_PORT']) > 0)"
)
SAYS_CREDENTIALS = "import os; print(os.environ.get('BASIN_TLS_CA'))"
RANK_1_FAILS = """
import os, signal, sys
if os.environ["BASIN_RUN_RANK"] == "1":
    print("fails", file=sys.stderr)
    sys.exit(5)
signal.pause()
"""
# More than a pipe holds.
WRITES_MUCH = """
import sys
for stream in (sys.stdout, sys.stderr):
    stream.write("a line of the worker\\n" * 50000)
    stream.flush()
open(sys.argv[1], "w").write("written")
"""
RANK_1_FAILS_AFTER_0 = """
import os, signal, sys
if os.environ["BASIN_RUN_RANK"] == "1":
    open(sys.argv[1]).read()
    sys.exit(5)
print(os.getpid(), flush=True)
open(sys.argv[1], "w").close()
signal.pause()
"""
HAS_A_CHILD = """
import signal, subprocess
print(subprocess.Popen(["sleep", "1000"]).pid, flush=True)
signal.pause()
"""
RANK_0_IS_KILLED = """
import os, signal
import basin, numpy
with basin.connect() as client:
    client.barrier()
    if client.worker_id == "worker-0":
        os.kill(os.getpid(), signal.SIGKILL)
    print(client.allreduce(numpy.ones(1), "x", op=basin.Sum)[0])
    client.barrier("end")
"""
# Rank 1 is killed between two rounds, and its next life takes part in the second.
ENDS_ONCE = """
import os, signal, sys
import basin, numpy
mark = os.path.join(sys.argv[1], "died")
with basin.connect() as client:
    if not os.path.exists(mark):
        client.barrier("all")
        if client.worker_id == "worker-1":
            open(mark, "w").close()
            print("first life", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    print(client.allreduce(numpy.ones(1), "x", op=basin.Sum)[0])
    client.barrier("end")
"""
# Rank 0 evicts rank 1 between two rounds, and the next life of rank 1 takes part in the second.
EVICTED_ONCE = """
import json, os, subprocess, sys
import basin, numpy
folder, ctl = sys.argv[1:]
mark = os.path.join(folder, "evicted")
client = basin.connect()
if not os.path.exists(mark):
    client.barrier("all")
    if client.worker_id == "worker-0":
        open(mark, "w").close()
        with open(os.path.join(folder, "logs/basind.log")) as log:
            admin = json.loads(log.readline())["addresses"]["admin"]
        subprocess.run([ctl, "evict", "local", "worker-1", "--address=" + admin],
                       check=True, capture_output=True)
print(client.allreduce(numpy.ones(1), "x", op=basin.Sum)[0])
client.close()
"""
# Rank 1 fails when both have finished.
FAILS_LATE = """
import os, sys
import basin
client = basin.connect()
client.barrier("all")
client.close()
if os.environ["BASIN_RUN_RANK"] == "1":
    open(sys.argv[1]).read()
    os._exit(3)
open(sys.argv[1], "w").close()
"""
# Rank 0 adds rank 2, which is killed when it is a member, before a round has counted it. The others
# train until the file exists.
DIES_AS_IT_JOINS = """
import os, signal, sys
import basin, numpy
rank = os.environ["BASIN_RUN_RANK"]
client = basin.connect()
if rank == "2":
    os.kill(os.getpid(), signal.SIGKILL)
told = numpy.zeros(1)
while client.allreduce(told, "told", op=basin.Sum)[0] == 0:
    if rank == "0":
        os.kill(int(os.environ["BASIN_RUN_PROCESS"]), signal.SIGRTMIN)
        rank = ""
    told[0] = os.path.exists(sys.argv[1])
client.close()
"""
# Asks for another worker when both have finished.
ADDS_LATE = """
import os, signal, sys
import basin
client = basin.connect()
client.barrier("all")
client.close()
rank = os.environ["BASIN_RUN_RANK"]
if rank == "1":
    open(sys.argv[1], "w").close()
else:
    open(sys.argv[1]).read()
    os.kill(int(os.environ["BASIN_RUN_PROCESS"]), signal.SIGRTMIN)
"""
# Rank 0 dies by a signal in the middle of a round, then rank 1 with a code; rank 2 continues alone.
TWO_DIE = """
import os, signal
import basin, numpy
client = basin.connect()
client.barrier("all")
if client.worker_id == "worker-0":
    os.kill(os.getpid(), signal.SIGKILL)
print(client.allreduce(numpy.ones(1), "x", op=basin.Sum)[0])
if client.worker_id == "worker-1":
    os._exit(3)
print(client.allreduce(numpy.ones(1), "x", op=basin.Sum)[0])
client.close()
"""
ENDS_EARLY = """
import sys
import basin, numpy
if sys.argv[1] == "before" and basin.client.os.environ["BASIN_RUN_RANK"] == "0":
    sys.exit(0)
client = basin.connect()
while True:
    client.allreduce(numpy.ones(1), "x", op=basin.Sum)
    if client.worker_id == "worker-0":
        sys.exit(0)
"""
GIVES_AND_ENDS = """
import basin.torch as bt
bt.init()
rank = bt.rank()
ranks = bt.allgather_object(rank)
print(ranks, bt.broadcast_object([rank] * 9, root_rank=1), flush=True)
bt.allgather_object("x" * 1000 * rank)
if bt.rank() != 2:
    bt.shutdown()
"""
# The daemon has its own session, so that the end of the worker's group does not end it. It holds
# the worker's output, and writes to it all the time.
LEAVES_A_DAEMON = '''
import os, subprocess, sys
loop = """
import threading
interval = threading.Event()
for _ in range(10**4): print('daemon', flush=True); interval.wait(0.01)
"""
daemon = subprocess.Popen([sys.executable, "-c", loop], start_new_session=True)
with open(os.path.join(sys.argv[1], os.environ["BASIN_RUN_RANK"]), "w") as file:
    file.write(str(daemon.pid))
print("x" * 60000)
print("the end")
'''
# Rank 0 starts on request.
ONE_IS_LATE = """
import os, sys
import basin
if os.environ["BASIN_RUN_RANK"] == "0":
    open(sys.argv[1]).read()
basin.connect().close()
"""
WAITS_IN_A_ROUND = """
import basin, numpy
client = basin.connect()
client.allreduce(numpy.ones(1), "x", op=basin.Sum)
print("waits", flush=True)
while True:
    client.allreduce(numpy.ones(1), "x", op=basin.Sum)
"""
SAVES_AT_SIGTERM = (
    """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
"""
    + WAITS_IN_A_ROUND
)
# The aggregator ends when both workers have finished, and they then go on, such as to save a model.
FINISHED_BEFORE_IT_ENDS = """
import os, select, signal, sys
import basin
basind = int(os.popen("pgrep -x basind -P " + os.environ["BASIN_RUN_PROCESS"]).read())
ended = os.pidfd_open(basind)
basin.connect().close()
if os.environ["BASIN_RUN_RANK"] == "0":
    open(sys.argv[1]).read()
    os.kill(basind, signal.SIGTERM)
else:
    open(sys.argv[1], "w").close()
select.select([ended], [], [])
print("saved", flush=True)
"""
NUMBER_OF_WORKER = 'rank = int(os.environ["BASIN_WORKER_ID"].removeprefix("worker-"))'
ADDS_TWO = """
import os, signal, sys
rank = int(os.environ["BASIN_RUN_RANK"])
if rank == 0:
    for _ in range(2):
        os.kill(int(os.environ["BASIN_RUN_PROCESS"]), signal.SIGRTMIN)
    print(*(open(sys.argv[1] + each).read() for each in "12"))
else:
    open(sys.argv[1] + str(rank), "w").write(f"worker {rank}")
"""
ARE_ADDED = """
import os, sys
rank = int(os.environ["BASIN_RUN_RANK"])
if rank == 0:
    print(os.environ["BASIN_RUN_PROCESS"], flush=True)
    for each in "12":
        print(open(sys.argv[1] + each).read(), flush=True)
else:
    open(sys.argv[1] + str(rank), "w").write(f"worker {rank}")
"""
ADDS_ONE = """
import os, signal, sys
if os.environ["BASIN_RUN_RANK"] == "0":
    os.kill(int(os.environ["BASIN_RUN_PROCESS"]), signal.SIGUSR1)
    print(open(sys.argv[1]).read())
else:
    names = ("BASIN_RUN_RANK", "BASIN_RUN_SIZE", "BASIN_WORKER_ID")
    open(sys.argv[1], "w").write("{} of {} {}".format(*(os.environ[n] for n in names)))
"""
# Handles SIGTERM and SIGINT, and ends normally.
SAYS_SIGNALS = """
import signal, sys
def on_signal(number, _):
    print(signal.Signals(number).name, flush=True)
    sys.exit(0 if number == signal.SIGHUP else 9)
for number in (signal.SIGHUP, signal.SIGTERM):
    signal.signal(number, on_signal)
print("ready", flush=True)
while True:
    signal.pause()
"""
SAYS_PLACE = """
import os, sys
names = ("BASIN_WORKER_ID", "BASIN_RUN_RANK", "BASIN_RUN_SIZE", "GROUP_RANK", "LOCAL_RANK", "ASKED",
         "BASIN_RUN_PROCESS", "NOT_ASKED")
print(*(os.environ.get(name, "-") for name in names), os.getcwd(), repr(sys.argv[1]))
"""
SAYS_PROCESS = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
signal.pause()
"""
# In place of ssh. As on another machine, nothing that is done to the group of ssh is done to the
# worker. Notes the host.
FAKE_SSH = """#!/bin/sh
echo "$1" >> "$0.hosts"
[ "$1" = away ] && exit 255
shift
exec env -i PATH=/usr/bin:/bin setsid --wait sh -c "$*"
"""
IGNORES_SIGNALS = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True:
    signal.pause()
"""


SEES_SOCKET = """
import pathlib, sys
print(any(path.is_socket() for path in pathlib.Path(sys.argv[1]).glob("*/*/*")))
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "basin.launch", *arguments]


def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
        check=False,
    )


def state_of(process: int) -> str:
    """The state in /proc: R, S, Z and so on; empty if there is no such process."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return text.rpartition(")")[2].split()[0]


def is_basind(process: int) -> bool:
    return Path(f"/proc/{process}/comm").read_text() == "basind\n"


def children_of(process: int) -> list[int]:
    children: list[int] = []
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            children += [int(word) for word in (task / "children").read_text().split()]
    return children


class Told(unittest.TestCase):
    """The lines about the aggregator's log."""

    def test_each_change_is_a_line(self) -> None:
        from basin.story import Story

        def entry(
            event: str, worker: str = "", reason: str = "", members: int | None = None
        ) -> dict[str, str | int | None]:
            return {"event": event, "worker": worker, "reason": reason, "members": members}

        story = Story("default")
        log = [
            (entry("worker_ready", "worker-0"), None),
            (entry("worker_ready", "worker-1"), None),
            (
                entry("generation", members=2),
                "2 workers have joined",
            ),
            (entry("worker_reconnected", "worker-1"), "worker 1 has reconnected"),
            (entry("round_committed"), None),
            (entry("paused", reason="Too few."), "paused: Too few."),
            (entry("resumed", reason="The job continues."), "resumed"),
            (entry("worker_ready", "worker-2"), None),
            (entry("worker_lost", "worker-1", "Worker worker-1 has exited."), None),
            (
                entry("generation", members=2),
                "resized 2 -> 2: worker 2 has joined; worker 1 has exited",
            ),
            (entry("worker_finished", "worker-0", "It has run out of data."), None),
            (entry("generation", members=1), None),
        ]
        for each, line in log:
            self.assertEqual(line, story.on_entry(each), each)
        self.assertEqual({"worker-0"}, story.finished)

    def test_a_worker_that_never_joined_is_late_when_the_job_is_over(self) -> None:
        from basin.story import Story

        story = Story("default")
        story.on_entry({"event": "worker_ready", "worker": "worker-0"})
        story.on_entry({"event": "worker_ready", "worker": "worker-1"})
        story.on_entry({"event": "generation", "members": 2})
        story.on_entry({"event": "worker_lost", "worker": "worker-1", "reason": "It is silent."})
        self.assertFalse(story.is_late("worker-1"))
        done = {"event": "worker_finished", "worker": "worker-0", "reason": "It has finished."}
        story.on_entry(done)
        story.on_entry({"event": "new_lineage", "reason": "All workers have finished."})
        self.assertFalse(story.is_late("worker-0"))
        self.assertTrue(story.is_late("worker-1"))  # It may be refused, and say nothing more.
        self.assertTrue(story.is_late("worker-2"))

    def test_other_jobs_are_none_of_it(self) -> None:
        from basin.story import Story

        story = Story("default")
        # As of a process group of torch.distributed, whose members end one after the other.
        for each in (
            {"event": "worker_ready", "worker": "rank-00000"},
            {"event": "generation", "members": 1},
            {"event": "paused", "reason": "Too few."},
            {"event": "worker_finished", "worker": "rank-00000", "reason": "It has finished."},
            {"event": "new_lineage", "reason": "All workers have finished."},
        ):
            self.assertIsNone(story.on_entry(each | {"job": "default-group-1"}), each)
        self.assertFalse(story.is_late("worker-0"))
        self.assertEqual(("", set()), (story.paused, story.finished))
        over = {"event": "new_lineage", "reason": "All workers have finished.", "job": "default"}
        story.on_entry(over)
        self.assertTrue(story.is_late("worker-0"))

    def test_a_refusal_is_told_again_only_if_its_words_change(self) -> None:
        from basin.story import Story

        def refused(worker: str, reason: str) -> dict[str, str]:
            return {
                "level": "warning",
                "event": "worker_refused",
                "worker": worker,
                "reason": reason,
            }

        story = Story("default")
        self.assertTrue(story.warns(refused("worker-1", "It is refused for 10m.")))
        self.assertFalse(story.warns(refused("worker-1", "It is refused for 9m59s.")))
        self.assertTrue(story.warns(refused("worker-2", "It is refused for 9m59s.")))
        self.assertTrue(story.warns(refused("worker-1", "Its contract differs.")))
        late = refused("worker-1", "It is late by 5s.") | {"event": "late"}
        self.assertTrue(story.warns(late))
        self.assertTrue(story.warns(late))
        self.assertFalse(story.warns(late | {"level": "info"}))
        self.assertFalse(story.warns(late | {"event": "worker_lost"}))

    def test_a_crash_is_no_eviction(self) -> None:
        from basin.story import Story

        story = Story("default")
        for reason in ("has exited", "did not reconnect in time"):
            lost = {"event": "worker_lost", "worker": "worker-1", "reason": f"Worker {reason}."}
            story.on_entry(lost)
            self.assertEqual(set(), story.evicted)
        story.on_entry(lost | {"reason": "Worker worker-1 was silent for longer than its lease."})
        self.assertEqual({"worker-1"}, story.evicted)
        story.started("worker-1")
        self.assertEqual(set(), story.evicted)


class Interrupted(unittest.TestCase):
    """The stderr of a worker after Ctrl-C."""

    TRACE = ("Traceback (most recent call last):", '  File "x.py", line 1, in <module>', "    f()")
    CHAIN = ("", "During handling of the above exception, another exception occurred:", "")

    def shown(self, lines: list[str]) -> list[str]:
        from basin.output import Errors

        errors = Errors()
        errors.interrupted.set()
        return [shown for line in lines for shown in errors.on_line(line)] + errors.end()

    def test_a_trace_of_it_is_omitted(self) -> None:
        self.assertEqual(
            ["before", "after"], self.shown(["before", *self.TRACE, "KeyboardInterrupt", "after"])
        )

    def test_so_are_those_of_the_exceptions_that_were_being_handled(self) -> None:
        chained = [*self.TRACE, "KeyError: 1", *self.CHAIN, *self.TRACE, "KeyboardInterrupt: 2"]
        self.assertEqual([], self.shown(chained))

    def test_a_trace_of_something_else_is_shown(self) -> None:
        self.assertEqual(
            [*self.TRACE, "KeyError: 1", "after"],
            self.shown([*self.TRACE, "KeyError: 1", "after"]),
        )
        chained = [*self.TRACE, "KeyError: 1", *self.CHAIN, *self.TRACE, "ValueError: 2"]
        self.assertEqual(chained, self.shown(chained))
        self.assertEqual([*self.TRACE], self.shown([*self.TRACE]))


class Launch(unittest.TestCase):
    def test_workers_know_who_they_are_and_lines_have_their_rank(self) -> None:
        done = run("-n", "3", "--", sys.executable, "-c", SAY_WHO)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(
            [f"[{i}] {i} 3 worker-{i} 33554432 BASIN_RUN_RANK" for i in range(3)],
            sorted(done.stdout.splitlines()),
        )

    def test_libraries_that_look_for_torchrun_see_it_only_with_the_option(self) -> None:
        script = ("--", sys.executable, "-c", SAYS_TORCHRUN)
        done = run("-n", "2", "--torchrun-variables", *script)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(
            [f"[{i}] {i} 2 {i} 2 0 127.0.0.1 True" for i in range(2)],
            sorted(done.stdout.splitlines()),
        )

    def test_processes_that_a_worker_leaves_behind_are_named_and_not_waited_for(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            script = ("--", sys.executable, "-c", LEAVES_A_DAEMON, folder)
            began = time.monotonic()
            done = run("-n", "2", *script)
            took = time.monotonic() - began
            daemons = [int((Path(folder) / str(rank)).read_text()) for rank in range(2)]
            for each in daemons:
                os.kill(each, signal.SIGKILL)  # They run, or this fails.
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertLess(took, PATIENCE / 2, "a daemon runs for longer")
        for rank, daemon in enumerate(daemons):
            self.assertRegex(
                done.stderr, rf"worker {rank} has left processes .*output: {daemon} \(\S+\)\."
            )
            # All that the worker wrote is there.
            self.assertIn(f"[{rank}] {'x' * 60000}\n", done.stdout)
            self.assertIn(f"[{rank}] the end\n", done.stdout)

    def test_the_first_failure_ends_the_others_and_gives_its_code(self) -> None:
        done = run("-n", "3", "--", sys.executable, "-c", RANK_1_FAILS)
        self.assertEqual(5, done.returncode)
        self.assertIn("[1] fails", done.stderr)
        self.assertIn("worker 1 ended with 5", done.stderr)
        self.assertIn("was ended by SIGTERM", done.stderr)
        self.assertEqual(
            "basin-run: the job has failed: worker 1 ended with 5. "
            "The last line of its stderr: fails",
            done.stderr.splitlines()[-1],
        )

    def test_a_signal_without_a_name_has_its_number(self) -> None:
        number = signal.SIGRTMIN + 3
        script = f"import os; os.kill(os.getpid(), {number})"
        done = run("-n", "1", "--", sys.executable, "-c", script)
        self.assertEqual(128 + number, done.returncode)
        self.assertIn(f"worker 0 was ended by signal {number}", done.stderr)

    def test_a_worker_that_fails_is_started_again(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            script = ("--", sys.executable, "-c", ENDS_ONCE, folder)
            done = run("-n", "3", "--max-restarts", "2", "--log-dir", f"{folder}/logs", *script)
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertIn(
                "worker 1 was ended by SIGKILL; it is started again (restart 1 of 2)", done.stderr
            )
            self.assertEqual([f"[{i}] 3.0" for i in range(3)], sorted(done.stdout.splitlines()))
            logs = {each.name: each.read_text() for each in Path(folder, "logs").iterdir()}
            self.assertEqual({"basind.log", *(f"worker-{i}.log" for i in range(3))}, set(logs))
            self.assertIn("first life\n", logs["worker-1.log"])
            self.assertIn("3.0\n", logs["worker-1.log"])
            self.assertIn('"event":"worker_lost"', logs["basind.log"])

    def test_restarts_are_limited(self) -> None:
        done = run("-n", "2", "--max-restarts", "2", "--", sys.executable, "-c", RANK_1_FAILS)
        self.assertEqual(5, done.returncode)
        self.assertIn("it is started again (restart 2 of 2)", done.stderr)
        self.assertEqual(3, done.stderr.count("[1] fails"))
        self.assertIn("the job has failed: worker 1 ended with 5", done.stderr.splitlines()[-1])

    def test_a_worker_that_was_evicted_comes_back_and_is_counted_apart(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            logs = ("--log-dir", f"{folder}/logs")
            script = ("--", sys.executable, "-c", EVICTED_ONCE, folder, sys.argv[3])
            done = run("-n", "2", *logs, *script)
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertIn(
                "worker 1 ended with 1; it is started again (it was evicted; rejoin 1 of 10)",
                done.stderr,
            )
            self.assertEqual(["[0] 2.0", "[1] 2.0"], sorted(done.stdout.splitlines()))
            Path(folder, "evicted").unlink()
            done = run("-n", "2", "--max-rejoins", "0", *logs, *script)
            self.assertEqual(1, done.returncode, done.stderr)
            self.assertIn("the job has failed: worker 1 ended with 1", done.stderr.splitlines()[-1])

    def test_a_worker_that_comes_when_the_others_have_finished_is_ended(self) -> None:
        nothing_left = "the workers of the job have just finished, so there is nothing left to join"
        with tempfile.TemporaryDirectory() as folder:
            pipe = folder + "/pipe"
            os.mkfifo(pipe)
            script = ("--", sys.executable, "-c", FAILS_LATE, pipe)
            done = run("-n", "2", "--max-restarts", "1", *script)
            self.assertNotEqual(0, done.returncode)
            self.assertIn(f"worker 1 is ended: {nothing_left}", done.stderr)
            script = ("--", sys.executable, "-c", ADDS_LATE, pipe)
            done = run("-n", "2", "--max-workers", "3", *script)
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertIn(nothing_left, done.stderr)

    def test_a_worker_that_is_refused_is_ended_when_the_others_have_finished(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            script = ("--", sys.executable, "-c", DIES_AS_IT_JOINS, f"{folder}/told")
            process = self.start(
                *("-n", "2", "--max-workers", "3", "--max-restarts", "1", *script),
                stderr=subprocess.PIPE,
                BASIN_WORKER_FRUITLESS_JOINS="1",
            )
            assert process.stderr is not None
            said = ""
            # The refusal lasts ten minutes, and this worker tries again until then.
            while "worker_refused" not in said:
                line = process.stderr.readline()
                self.assertNotEqual("", line, said)
                said += line
            self.assertIn("it is started again (restart 1 of 1)", said)
            Path(folder, "told").touch()
            said += process.communicate(timeout=PATIENCE)[1]
        self.assertEqual(1, said.count("worker 2 is ended: the workers of the job have just"), said)
        # The others have finished, were not ended, and are enough.
        self.assertEqual(0, process.returncode, said)
        self.assertNotIn("worker 0", said)
        self.assertNotIn("worker 1", said)

    def test_a_log_folder_that_cannot_be_made_is_named(self) -> None:
        done = run("-n", "1", "--log-dir", "/proc/logs", "--", "true")
        self.assertEqual(1, done.returncode)
        self.assertIn("basin-run: --log-dir: /proc/logs/basind.log: ", done.stderr)

    def test_workers_go_on_while_enough_are_left(self) -> None:
        done = run("-n", "3", "--min-workers", "2", "--", sys.executable, "-c", RANK_0_IS_KILLED)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("worker 0 was ended by SIGKILL", done.stderr)
        self.assertEqual(["[1] 2.0", "[2] 2.0"], sorted(done.stdout.splitlines()))
        lines = done.stderr.splitlines()
        self.assertIn("basin-run: 3 workers have joined", lines)
        self.assertIn("basin-run: resized 3 -> 2: worker 0 has exited", lines)
        own = [line for line in lines if line.startswith("basin-run: ")]
        self.assertEqual(3, len(own), "the end of a worker is not reported")
        self.assertNotIn("worker_lost", done.stderr)

    def test_a_script_that_ends_without_shutdown_ends_the_job_with_the_reason(self) -> None:
        for early in ("begun", "before"):
            done = run("-n", "3", "--", sys.executable, "-c", ENDS_EARLY, early)
            self.assertEqual(1, done.returncode, done.stderr)
            self.assertRegex(
                done.stderr.splitlines()[-1],
                r"worker 0 ended with 0 without basin.torch.shutdown\(\).* 2 that are left wait",
            )

    def test_waiting_for_the_first_workers_reports_their_number(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            pipe = folder + "/pipe"
            os.mkfifo(pipe)
            given = ("-n", "2", "--", sys.executable, "-c", ONE_IS_LATE, pipe)
            process = self.start(*given, stderr=subprocess.PIPE)
            assert process.stderr is not None
            waited_for = {
                "basin-run: 1 of 2 workers are ready; the job waits",
                (
                    "[1] worker worker-1 of job local: Job local starts with 2 workers, and 1 is "
                    "ready: worker-1."
                ),
            }
            while waited_for:
                line = process.stderr.readline()
                self.assertNotEqual("", line, waited_for)
                waited_for -= {each for each in waited_for if line.startswith(each)}
            Path(pipe).write_text("come")
            process.communicate(timeout=PATIENCE)
            self.assertEqual(0, process.returncode)

    def test_objects_outlive_their_owner(self) -> None:
        """The last contributor may end at once, and the others still get its result."""
        done = run("-n", "3", "--", sys.executable, "-c", GIVES_AND_ENDS)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(
            [f"[{i}] [0, 1, 2] {[1] * 9}" for i in range(3)], sorted(done.stdout.splitlines())
        )

    def test_a_dead_worker_is_reported_so_that_its_lease_ends(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            # An aggregator whose lease is an hour.
            patient = Path(folder) / "basind"
            given = """$(printf "%s\\n" "$@" | sed s/lease=.*/lease=1h/)"""
            patient.write_text(f'#!/bin/sh\nexec "{sys.argv[1]}" {given}\n')
            patient.chmod(0o755)
            (Path(folder) / "basinctl").symlink_to(Path(sys.argv[3]).resolve())
            done = run(
                *("-n", "3", "--min-workers", "1", "--verbose"),
                *("--", sys.executable, "-c", TWO_DIE),
                BASIN_BASIND=str(patient),
            )
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(["[1] 2.0", "[2] 1.0", "[2] 2.0"], sorted(done.stdout.splitlines()))
        self.assertIn("worker 0 was ended by SIGKILL", done.stderr)
        self.assertIn("worker 1 ended with 3", done.stderr)
        self.assertEqual(2, done.stderr.count("worker_lost"), done.stderr)
        self.assertEqual(2, done.stderr.count("has exited"), done.stderr)

    def test_without_basinctl_it_says_that_the_others_wait(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(sys.argv[1], folder)
            done = run(
                *("-n", "3", "--min-workers", "2", "--", sys.executable, "-c", RANK_0_IS_KILLED),
                BASIN_BASIND=f"{folder}/basind",
                PATH="/usr/bin:/bin",
            )
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("there is no basinctl beside basind", done.stderr)
        self.assertEqual(["[1] 2.0", "[2] 2.0"], sorted(done.stdout.splitlines()))

    def test_workers_go_on_when_the_output_cannot_be_written(self) -> None:
        with tempfile.TemporaryDirectory() as folder, open("/dev/full", "w") as full:
            reader, broken = os.pipe()
            os.close(reader)
            self.addCleanup(os.close, broken)
            cases = (
                (broken, subprocess.PIPE, "stdout cannot be written (Broken pipe)"),
                (full.fileno(), subprocess.PIPE, "stdout cannot be written (No space left on dev"),
                (subprocess.PIPE, broken, None),
                (broken, broken, None),
            )
            for case, (stdout, stderr, reason) in enumerate(cases):
                written = Path(folder) / str(case)
                done = subprocess.run(
                    command("-n", "1", "--", sys.executable, "-c", WRITES_MUCH, str(written)),
                    env=environment(),
                    stdout=stdout,
                    stderr=stderr,
                    text=True,
                    timeout=PATIENCE,
                    check=False,
                )
                with self.subTest(case):
                    self.assertEqual("written", written.read_text())
                    self.assertEqual(0, done.returncode)
                    if reason is not None:
                        self.assertIn(reason, done.stderr)
                        self.assertEqual(50000, done.stderr.count("[0] a line of the worker\n"))

    def test_no_process_is_left_without_a_stderr(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            pipe = str(Path(folder) / "pipe")
            os.mkfifo(pipe)
            reader, broken = os.pipe()
            os.close(reader)
            for how in (lambda: os.close(2), lambda: os.dup2(broken, 2)):
                given = ("-n", "2", "--", sys.executable, "-c", RANK_1_FAILS_AFTER_0, pipe)
                process = self.start(*given, before=how)
                said, _ = process.communicate(timeout=PATIENCE)
                self.assertEqual(5, process.returncode)
                self.assertIn(state_of(int(said.split()[1])), ("", "Z"))
            os.close(broken)

    def test_signals_are_passed_on(self) -> None:
        process = self.start("-n", "2", "--", sys.executable, "-c", SAYS_SIGNALS)
        assert process.stdout is not None
        for _ in range(2):
            self.assertIn("ready", process.stdout.readline())
        process.send_signal(signal.SIGHUP)
        said, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual(["[0] SIGHUP", "[1] SIGHUP"], sorted(said.splitlines()))
        self.assertEqual(0, process.returncode, "all have succeeded")

    def test_the_second_signal_kills(self) -> None:
        process = self.start("-n", "1", "--", sys.executable, "-c", IGNORES_SIGNALS)
        assert process.stdout is not None
        self.assertIn("ready", process.stdout.readline())
        family = children_of(process.pid)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=PATIENCE)
        self.assertIn(process.returncode, (128 + signal.SIGTERM, 128 + signal.SIGHUP))
        for each in family:
            self.assertIn(state_of(each), ("", "Z"), each)

    def test_it_leaves_no_file(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            done = run("-n", "1", "--", sys.executable, "-c", SEES_SOCKET, folder, TMPDIR=folder)
            self.assertEqual("[0] True\n", done.stdout, done.stderr)
            self.assertEqual([], os.listdir(folder))

    def test_a_signal_before_there_are_workers_leaves_no_process(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            never_serves = Path(folder) / "basind"
            never_serves.write_text("#!/bin/sh\necho waits >&2\nexec sleep 1000\n")
            never_serves.chmod(0o755)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                given = ("-n", "1", "--basind", str(never_serves), "--", "true")
                process = self.start(*given, stderr=subprocess.PIPE)
                assert process.stderr is not None
                self.assertEqual("[basind] waits\n", process.stderr.readline())
                (aggregator,) = children_of(process.pid)
                process.send_signal(number)
                process.communicate(timeout=PATIENCE)
                self.assertEqual(128 + number, process.returncode)
                self.assertIn(state_of(aggregator), ("", "Z"))

    def start(
        self,
        *arguments: str,
        stderr: int = subprocess.DEVNULL,
        before: Callable[[], object] | None = None,
        **more: str,
    ) -> "subprocess.Popen[str]":
        """`before` runs in the new process, before basin-run does; `more`: variables."""
        process = subprocess.Popen(
            command(*arguments),
            env=environment(**more),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            preexec_fn=before,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def end_aggregator(self, number: int, script: str = WAITS_IN_A_ROUND) -> tuple[int, list[str]]:
        """Ends the aggregator of two workers in a round. Returns what basin-run then ends with, and
        the lines of its stderr."""
        process = self.start("-n", "2", "--", sys.executable, "-c", script, stderr=subprocess.PIPE)
        assert process.stdout is not None
        for _ in range(2):
            self.assertIn("waits", process.stdout.readline())
        family = children_of(process.pid)
        (aggregator,) = [each for each in family if is_basind(each)]
        os.kill(aggregator, number)
        _, said = process.communicate(timeout=PATIENCE)
        for each in family:
            self.assertIn(state_of(each), ("", "Z"), each)
        return process.returncode, said.splitlines()

    def test_fault_a1_an_aggregator_that_is_killed_ends_the_job_with_the_reason(self) -> None:
        code, lines = self.end_aggregator(signal.SIGKILL)
        self.assertEqual(128 + signal.SIGKILL, code)
        self.assertEqual(
            "basin-run: the job has failed: the aggregator was ended by SIGKILL, and its workers "
            "cannot continue without it",
            lines[-1],
        )

    def test_an_aggregator_that_ends_by_itself_ends_the_job_with_the_reason(self) -> None:
        """Its exit code is 0, and the job has failed."""
        code, lines = self.end_aggregator(signal.SIGTERM)
        self.assertEqual(1, code)
        self.assertIn("the job has failed: the aggregator ended with 0", lines[-1])

    def test_workers_that_end_with_0_do_not_hide_that_the_job_has_failed(self) -> None:
        code, lines = self.end_aggregator(signal.SIGKILL, SAVES_AT_SIGTERM)
        self.assertEqual(128 + signal.SIGKILL, code)
        self.assertIn("the job has failed: the aggregator was ended by SIGKILL", lines[-1])

    def test_workers_that_have_finished_need_no_aggregator(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            pipe = folder + "/pipe"
            os.mkfifo(pipe)
            done = run("-n", "2", "--", sys.executable, "-c", FINISHED_BEFORE_IT_ENDS, pipe)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(["[0] saved", "[1] saved"], sorted(done.stdout.splitlines()))

    def test_ctrl_c_leaves_no_process(self) -> None:
        process = self.start("-n", "2", "--", sys.executable, "-c", HAS_A_CHILD)
        assert process.stdout is not None
        grandchildren = [int(process.stdout.readline().split()[1]) for _ in range(2)]
        family = [*children_of(process.pid), *grandchildren]
        self.assertEqual(5, len(family))  # This includes the aggregator.
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        self.assertEqual(128 + signal.SIGINT, process.returncode)
        for each in family:
            self.assertIn(state_of(each), ("", "Z"), each)

    def test_ctrl_c_ends_in_a_line_for_each_worker(self) -> None:
        process = self.start(
            "-n", "3", "--", sys.executable, "-c", WAITS_IN_A_ROUND, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        for _ in range(3):
            self.assertIn("waits", process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE)
        self.assertEqual(128 + signal.SIGINT, process.returncode)
        lines = [line for line in said.splitlines() if "joined" not in line]
        ended = [f"basin-run: worker {i} was ended by SIGINT" for i in range(3)]
        self.assertEqual(ended, sorted(lines))

    def test_add_starts_one_more_of_a_run_that_it_finds_or_is_given(self) -> None:
        """Through a wrapper, whose number is not that of basin-run."""
        with tempfile.TemporaryDirectory() as folder:
            pipe = folder + "/pipe"
            for rank in "12":
                os.mkfifo(pipe + rank)
            wrapped = shlex.join(
                command(
                    "-n", "1", "--max-workers", "3", "--job", f"added-{os.getpid()}",
                    "--", sys.executable, "-c", ARE_ADDED, pipe,
                )
            )  # fmt: skip
            process = subprocess.Popen(
                ["sh", "-c", wrapped + "; exit $?"], env=environment(), stdout=subprocess.PIPE,
                text=True,
            )  # fmt: skip
            assert process.stdout is not None
            number = process.stdout.readline().split()[1]
            asked = run("add", number)
            self.assertIn(f"asked process {number} for one more worker", asked.stdout)
            self.assertIn("worker 1", process.stdout.readline())
            found = run("add")
            if "several run here" in found.stderr:  # Those of other tests.
                self.assertIn(f"{number} (job added-{os.getpid()})", found.stderr)
                run("add", number)
            else:
                self.assertIn(f"asked process {number} for", found.stdout)
            self.assertIn("worker 2", process.stdout.readline())
            process.communicate(timeout=PATIENCE)
            self.assertEqual(0, process.returncode)
        refused = run("add", str(os.getpid()))
        self.assertEqual(1, refused.returncode)
        self.assertIn(f"process {os.getpid()} is no basin-run", refused.stderr)

    def test_signals_of_real_time_start_one_each(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            pipe = folder + "/pipe"
            for rank in "12":
                os.mkfifo(pipe + rank)
            done = run("-n", "1", "--max-workers", "3", "--", sys.executable, "-c", ADDS_TWO, pipe)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual("[0] worker 1 worker 2\n", done.stdout)

    def test_a_signal_starts_one_more_where_there_is_room(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            pipe = folder + "/pipe"
            os.mkfifo(pipe)
            done = run("-n", "1", "--max-workers", "2", "--", sys.executable, "-c", ADDS_ONE, pipe)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual("[0] 1 of 2 worker-1\n", done.stdout)

    def test_usage(self) -> None:
        for arguments, text in (
            (("-n", "2"), "no command"),
            (("-n", "0", "--", "true"), "at least 1"),
            (("-n", "2", "--min-workers", "3", "--", "true"), "from 1 to 2"),
        ):
            done = run(*arguments)
            self.assertEqual(2, done.returncode)
            self.assertIn(text, done.stderr)
        done = run("-n", "1", "--", "/no/such/program")
        self.assertEqual(1, done.returncode)
        self.assertIn("/no/such/program cannot be started", done.stderr)
        done = run("-n", "1", "--basind", "/no/basind", "--", "true")
        self.assertEqual(1, done.returncode)
        self.assertIn("/no/basind cannot be started", done.stderr)


class Hosts(unittest.TestCase):
    """With --hosts, and a program in place of ssh."""

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.ssh = self.folder / "ssh"
        self.ssh.write_text(FAKE_SSH)
        self.ssh.chmod(0o755)

    def given(self, hosts: str, *more: str) -> tuple[str, ...]:
        own = ("--hosts", hosts, "--listen", "127.0.0.1", "--ssh", str(self.ssh))
        return (*own, *more, "--", sys.executable, "-c")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command(*arguments), env=environment(), stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def test_a_list_is_given_or_a_file(self) -> None:
        from basin.hosts import Host, parse, used

        whole = [Host("localhost", 2), Host("me@gpu-1", 8), Host("::1", 1)]
        self.assertEqual(whole, parse("localhost:2,me@gpu-1:8,[::1]"))
        file = self.folder / "hosts"
        file.write_text("# ours\nlocalhost slots=2\n\nme@gpu-1:8  # fast\n[::1]\n")
        self.assertEqual(whole, parse(str(file)))
        for bad in ("", "a:0", "a:b", "a,,b", "-oProxyCommand=x:1"):
            self.assertRaisesRegex(ValueError, "is not HOST:SLOTS", parse, bad)
        self.assertRaisesRegex(ValueError, "a is named twice", parse, "a:1,a:2")
        self.assertEqual([0, 1, 1, 2, 2, 3], [used(whole, each) for each in (0, 1, 2, 3, 10, 11)])

    def test_workers_fill_the_hosts_and_know_their_place(self) -> None:
        text = "it's\ntwo $lines"
        done = run(
            *self.given("a:2,localhost:1,b:2", "--torchrun-variables", "--pass", "ASKED"),
            *(SAYS_PLACE, text),
            ASKED="an answer",
            NOT_ASKED="x",
            BASIN_RUN_PROCESS="",
        )
        self.assertEqual(0, done.returncode, done.stderr)
        lines = dict(line.split("] ", 1) for line in done.stdout.splitlines())
        here = lines.pop("[2")
        self.assertRegex(here, "^worker-2 0 1 1 0 an answer [0-9]+ x ")
        places = {"[0": "0 2 0 0", "[1": "1 2 0 1", "[3": "0 2 2 0", "[4": "1 2 2 1"}
        expected = {
            rank: f"worker-{rank[1]} {place} an answer - - {os.getcwd()} {text!r}"
            for rank, place in places.items()
        }
        self.assertEqual(expected, lines)
        noted = Path(f"{self.ssh}.hosts").read_text().split()
        self.assertEqual(["a", "a", "b", "b"], sorted(noted))

    def test_they_train_and_go_on_without_one(self) -> None:
        done = run(*self.given("a:2,b:1", "--min-workers", "2"), RANK_0_IS_KILLED)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("worker 0 on a was ended by SIGKILL", done.stderr)
        self.assertEqual(["[1] 2.0", "[2] 2.0"], sorted(done.stdout.splitlines()))

    def test_the_first_failure_ends_the_others_and_gives_its_code(self) -> None:
        done = run(*self.given("a:2,b:1"), RANK_1_FAILS)
        self.assertEqual(5, done.returncode, done.stderr)
        self.assertIn("worker 2 on b was ended by SIGTERM", done.stderr)
        self.assertEqual(
            "basin-run: the job has failed: worker 1 on a ended with 5. "
            "The last line of its stderr: fails",
            done.stderr.splitlines()[-1],
        )

    def test_a_host_that_is_not_reached_is_named(self) -> None:
        done = run(*self.given("a:1,away:1"), "import signal; signal.pause()")
        self.assertEqual(255, done.returncode)
        self.assertIn("worker 1 on away ended with 255, as ssh does when it can", done.stderr)

    def test_signals_are_passed_on(self) -> None:
        process = self.start(*self.given("a:1,b:1"), SAYS_SIGNALS)
        assert process.stdout is not None
        for _ in range(2):
            self.assertIn("ready", process.stdout.readline())
        process.send_signal(signal.SIGHUP)
        said, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual(["[0] SIGHUP", "[1] SIGHUP"], sorted(said.splitlines()))
        self.assertEqual(0, process.returncode)

    def test_no_worker_outlives_a_killed_basin_run_or_a_second_signal(self) -> None:
        for kill in (
            lambda process: process.kill(),
            lambda process: [process.send_signal(each) for each in (signal.SIGINT, signal.SIGTERM)],
        ):
            process = self.start(*self.given("a:1,b:1"), SAYS_PROCESS)
            assert process.stdout is not None
            ends = [os.pidfd_open(int(process.stdout.readline().split()[1])) for _ in range(2)]
            kill(process)
            for end in ends:
                self.assertTrue(select.select([end], [], [], PATIENCE)[0], "a worker goes on")
                os.close(end)

    def test_an_added_worker_gets_a_free_slot(self) -> None:
        pipe = str(self.folder / "pipe")
        for rank in "12":
            os.mkfifo(pipe + rank)
        script = ADDS_TWO.replace('rank = int(os.environ["BASIN_RUN_RANK"])', NUMBER_OF_WORKER)
        given = self.given("localhost:1,b:2", "-n", "1", "--max-workers", "3")
        done = run(*given, script, pipe)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual("[0] worker 1 worker 2\n", done.stdout)
        self.assertEqual(["b", "b"], Path(f"{self.ssh}.hosts").read_text().split())

    def test_usage(self) -> None:
        for arguments, text in (
            (("--hosts", "a:2", "--", "true"), "a cannot reach an aggregator that is open to this"),
            (("--hosts", "a:0", "--", "true"), "'a:0' is not HOST:SLOTS"),
            (("--hosts", "hosts/none.txt", "--", "true"), "there is no file hosts/none.txt"),
            (("--hosts", "localhost:2", "-n", "3", "--", "true"), "2 slots, and 3 workers need"),
            (("-n", "2", "--listen", "127.0.0.1", "--", "true"), "--listen is for --hosts"),
            (("--", "true"), "-n or --hosts is needed"),
        ):
            done = run(*arguments)
            self.assertEqual(2, done.returncode)
            self.assertIn(text, " ".join(done.stderr.split()))


class Elsewhere(unittest.TestCase):
    """With --aggregator."""

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def ctl(self, *arguments: str) -> tuple[str, str]:
        done = subprocess.run(
            [sys.argv[3], *arguments], cwd=self.folder, check=True, capture_output=True, text=True
        )
        return done.stdout, done.stderr

    def test_workers_get_the_certificate_and_the_token(self) -> None:
        self.ctl("dev-certs", "certs")
        token, grant = self.ctl("token", "new", "--jobs=team/*", "--name=trainers")
        (self.folder / "token").write_text(token)
        (self.folder / "grants").write_text(grant)
        certs = self.folder / "certs"
        aggregator = Aggregator(
            Path(sys.argv[1]),
            f"--tls-cert={certs / 'server.crt'}",
            f"--tls-key={certs / 'server.key'}",
            f"--auth-file={self.folder / 'grants'}",
        )
        self.addCleanup(aggregator.close)
        done = run(
            *("-n", "3", "--min-workers", "2", "--aggregator", aggregator.address),
            *("--", sys.executable, "-c", RANK_0_IS_KILLED),
            BASIN_JOB="team/vision",
            BASIN_TLS_CA=str(certs / "ca.crt"),
            BASIN_TOKEN_FILE=str(self.folder / "token"),
        )
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("worker 0 was ended by SIGKILL", done.stderr)
        self.assertEqual(["[1] 2.0", "[2] 2.0"], sorted(done.stdout.splitlines()))
        self.assertIn('"team/vision"', "".join(aggregator.lines))
        self.assertIsNone(aggregator.process.poll())

    def test_a_worker_that_is_started_again_does_not_say_that_the_run_is_new(self) -> None:
        """An aggregator that is restarted at the same time would take it for new."""
        script = f'echo $BASIN_FRESH; [ "$BASIN_FRESH" = false ] || exit {os.EX_TEMPFAIL}'
        options = ("-n", "1", "--aggregator", "127.0.0.1:1", "--max-restarts", "1")
        done = run(*options, "--", "sh", "-c", script)
        self.assertEqual((0, "[0] true\n[0] false\n"), (done.returncode, done.stdout), done.stderr)

    def test_its_own_aggregator_says_that_it_ignores_them(self) -> None:
        done = run("-n", "1", "--", sys.executable, "-c", SAYS_CREDENTIALS, BASIN_TLS_CA="/no/ca")
        self.assertEqual((0, "[0] None\n"), (done.returncode, done.stdout), done.stderr)
        self.assertIn("basin-run: BASIN_TLS_CA ignored: ", done.stderr)
        self.assertIn("--aggregator=HOST:PORT uses another one", done.stderr)

    def test_its_own_aggregator_has_the_options_of_the_environment(self) -> None:
        done = run("-n", "1", "--", "true", BASIN_WORKER_LEASE="never")
        self.assertNotEqual(0, done.returncode)
        self.assertIn("BASIN_WORKER_LEASE", done.stderr)
        options = {"BASIN_WORKER_LEASE": "7s", "BASIN_WORKER_CLOSED_LEASE": "3s"}
        done = run("-n", "1", "--", "true", **options)
        self.assertEqual(0, done.returncode, done.stderr)

    def test_options_of_its_own_aggregator_are_refused(self) -> None:
        done = run("-n", "1", "--aggregator", "127.0.0.1:1", "--verbose", "--", "true")
        self.assertEqual(2, done.returncode)
        self.assertIn("--verbose are for an aggregator that basin-run starts", done.stderr)

    def test_the_help_says_what_is_passed_on(self) -> None:
        words = " ".join(run("--help").stdout.split())
        self.assertIn("BASIN_TOKEN_FILE are not passed to the workers. With --aggregator", words)


class Examples(unittest.TestCase):
    def test_four_workers_learn_what_one_process_learns(self) -> None:
        script = str(ROOT / "examples/digits.py")
        done = run("-n", "4", "--", sys.executable, script, "--epochs", "12", "--check")
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertIn("all workers hold the same parameters", done.stdout)
        self.assertRegex(done.stdout, r"float64 after 264 steps: largest difference.*e-1[0-9]")
        self.assertRegex(done.stdout, r"float32 after 20 steps")

    def test_regression_with_numpy(self) -> None:
        done = run("-n", "3", "--", sys.executable, str(ROOT / "examples/numpy_regression.py"))
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        weights = {line.partition("] ")[2] for line in done.stdout.splitlines()}
        self.assertEqual(1, len(weights), done.stdout)
        self.assertIn("[1.000, -2.000, 3.000]", weights.pop())

    def test_training_goes_on_when_a_worker_is_killed(self) -> None:
        script = str(ROOT / "examples/digits.py")
        done = run("-n", "4", "--min-workers", "3", "--", sys.executable, script, "--kill")
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertIn("worker 3 was ended by SIGKILL", done.stderr)
        self.assertIn("3 workers, 330 steps", done.stdout)
        self.assertIn("all workers hold the same parameters", done.stdout)

    def test_a_worker_that_is_added_ends_with_the_same_parameters(self) -> None:
        script = str(ROOT / "examples/digits.py")
        added = ("--max-workers", "3", "--", sys.executable, script, "--add", "--epochs", "6")
        done = run("-n", "2", *added)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"\[2\] joined at step \d+ with parameters [0-9a-f]{16}")
        self.assertIn("3 workers", done.stdout)
        self.assertIn("all workers hold the same parameters", done.stdout)

    def test_a_worker_that_is_added_takes_the_place_of_one_that_is_killed(self) -> None:
        script = str(ROOT / "examples/digits.py")
        room = ("--min-workers", "3", "--max-workers", "5")
        done = run("-n", "4", *room, "--", sys.executable, script, "--add", "--kill")
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertIn("worker 3 was ended by SIGKILL", done.stderr)
        self.assertRegex(done.stdout, r"\[4\] joined at step \d+ with parameters [0-9a-f]{16}")
        self.assertIn("4 workers", done.stdout)
        self.assertIn("all workers hold the same parameters", done.stdout)


if __name__ == "__main__":
    require("numpy", "torch", "sklearn")
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
