# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What a job with a large layout costs the job beside it.

Usage: test_neighbour.py BASIND COMMANDED_TRAINER
"""

import random
import sys
import threading
import unittest
from collections.abc import Iterator
from pathlib import Path

import grpc
from commanded import Trainer, job, read_log, resident
from programs import Basind

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "proto"))
session_pb, _ = grpc.protos_and_services("basin/v1/session.proto")

BASIND = Path()

MIB = 1 << 20
MAGIC = 0x4E534142
BUDGET = 384 * MIB
BESIDE = 128 * MIB
LANES = 3
TENSORS = 65536
NAME_BYTES = 200
HELLOS = 30

# The healthy job trains so long, and may pause so long, in seconds.
SECONDS = 20
LONGEST = 1.0


class Caller:
    """A worker that only sends a hello. It reads what it gets, or never reads anything."""

    def __init__(self, basind: Basind, number: int, reads: bool) -> None:
        hello = session_pb.ToAggregator()
        hello.hello.magic = MAGIC
        hello.hello.protocol_version = hello.hello.contract_version = 1
        hello.hello.job = "large"
        hello.hello.worker = f"caller{number}"
        hello.hello.nonce = random.getrandbits(63) | 1
        hello.hello.fresh = True
        hello.hello.settings.min_workers = hello.hello.settings.start_workers = 1
        hello.hello.settings.max_workers = HELLOS + 1
        self._ended = threading.Event()
        self._channel = grpc.insecure_channel(
            basind.grpc,
            options=[
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.max_receive_message_length", -1),
            ],
        )
        self.received = 0
        self._call = self._channel.stream_stream("/basin.v1.Session/Run")(
            self._messages(hello.SerializeToString())
        )
        self._reader = threading.Thread(target=self._read if reads else self._ended.wait)
        self._reader.start()

    def _messages(self, hello: bytes) -> Iterator[bytes]:
        yield hello
        self._ended.wait()

    def _read(self) -> None:
        try:
            for message in self._call:
                self.received += len(message)
        except grpc.RpcError:
            pass

    def end(self) -> None:
        self._ended.set()
        self._call.cancel()
        self._reader.join()
        self._channel.close()


class Neighbour(unittest.TestCase):
    def test_a_large_layout_of_another_job_is_no_pause(self) -> None:
        basind = Basind(
            BASIND,
            f"--memory-budget={BUDGET // MIB}MiB",
            "--log-level=info",
        )
        self.addCleanup(basind.__exit__, None, None, None)
        basind.await_serving()
        self.addCleanup(read_log(basind).join)
        self.addCleanup(basind.process.kill)
        most = 0
        with (
            job(basind, "healthy", 2) as healthy,
            job(basind, "large", 1, most=HELLOS + 1) as large,
        ):
            healthy.all("register small 2 100 10")
            quiet = self.rounds(healthy, 3)
            for trainer in healthy:
                trainer.say(f"rounds small {1000 * SECONDS}")
            for lane in range(LANES):
                large.all(f"register lane{lane} {TENSORS} 1 {NAME_BYTES}")
                most = max(most, sum(resident(basind).values()))
            callers = [Caller(basind, i, reads=i % 2 == 0) for i in range(HELLOS)]
            while healthy[0].process.poll() is None and self.unread(callers):
                most = max(most, sum(resident(basind).values()))
                threading.Event().wait(0.05)
            longest = max(float(trainer.expect()) / 1000 for trainer in healthy)
            most = max(most, sum(resident(basind).values()))
            for caller in callers:
                caller.end()
        print(
            f"longest pause {longest:.3f} s, alone {quiet:.3f} s; at most {most / MIB:.0f} MiB; "
            f"{sum(caller.received for caller in callers) / MIB:.0f} MiB of layouts read",
            flush=True,
        )
        lost = [
            line
            for line in basind.lines
            if line["event"] == "worker_lost" and line.get("job") == "healthy"
        ]
        self.assertEqual([], lost)
        # A machine that is busy with other things pauses both alike.
        self.assertLess(longest, LONGEST + quiet)
        self.assertLess(most, BUDGET + BESIDE)

    def unread(self, callers: list[Caller]) -> bool:
        """Whether some caller that reads has not got its welcome."""
        whole = LANES * TENSORS * NAME_BYTES
        return any(caller.received < whole for caller in callers[::2])

    def rounds(self, workers: list[Trainer], seconds: int) -> float:
        """Rounds for this time: the longest pause, in seconds."""
        for trainer in workers:
            trainer.say(f"rounds small {1000 * seconds}")
        return max(float(trainer.expect()) / 1000 for trainer in workers)


if __name__ == "__main__":
    BASIND, Trainer.program = (Path(sys.argv.pop(1)).resolve() for _ in range(2))
    unittest.main(verbosity=2)
