# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Misbehaving peers do not affect others, which continue to train.

Usage: test_peers.py BASIND BASINCTL ORACLE_TRAINER
"""

import collections
import json
import os
import re
import signal
import socket
import struct
import sys
import tempfile
import threading
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oracle import Jobs, Oracle
from programs import PATIENCE, Basind, run

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
LATE = 'basin_workers_late_total{training_job="default"}'
NO_MESSAGE = 0  # gRPC's flag of an uncompressed message.


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """An HTTP/2 frame."""
    length = len(payload).to_bytes(3, "big")
    return length + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def headers(stream: int) -> bytes:
    """Begins a call of Session/Run."""

    def literal(name: bytes, value: bytes) -> bytes:
        return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value

    block = literal(b":method", b"POST") + literal(b":scheme", b"http")
    block += literal(b":path", b"/basin.v1.Session/Run") + literal(b":authority", b"basin")
    block += literal(b"content-type", b"application/grpc") + literal(b"te", b"trailers")
    return frame(1, 4, stream, block)


class Peers(Jobs):
    basinctl = Path()

    def connect(self, basind: Basind, source: str = "127.0.0.1") -> socket.socket:
        host, port = basind.grpc.rsplit(":", 1)
        peer = socket.create_connection((host, int(port)), PATIENCE, (source, 0))
        self.addCleanup(peer.close)
        return peer

    def connect_newcomer(self, basind: Basind, source: str) -> socket.socket:
        """A peer that speaks gRPC and begins no call."""
        peer = self.connect(basind, source)
        peer.sendall(PREFACE + frame(4, 0, 0, b""))
        return peer

    def read_to_end(self, peer: socket.socket) -> None:
        """Waits until the aggregator has closed the connection."""
        try:
            while peer.recv(1 << 16):
                pass
        except ConnectionError:
            pass

    def expect_undisturbed(self, trouble: Callable[[Basind], None]) -> Basind:
        """Two workers train while another peer misbehaves."""
        basind = self.start("--memory-budget=64MiB")
        trainers = self.train(basind.grpc, 2, "40", "--pace-ms=5")
        for trainer in trainers:
            trainer.await_event("applied", step=3)
        trouble(basind)
        self.expect_ends(trainers)
        self.assertEqual([3] * 40, self.masks(trainers[0]))
        # gRPC may take twice the budget and 256 MiB.
        self.assertLess(self.metric(basind, "process_resident_memory_bytes"), 512 << 20)
        return basind

    def test_fault_n10_peers_that_do_not_speak_http2(self) -> None:
        def trouble(basind: Basind) -> None:
            for _ in range(50):
                peer = self.connect(basind)
                peer.sendall(os.urandom(4096))
                self.read_to_end(peer)

        self.expect_undisturbed(trouble)

    def test_fault_n10_what_protobuf_prints_is_in_the_log(self) -> None:
        basind = self.start()
        peer = self.connect(basind)
        hello = b"\x0a\x03\x2a\x01\xff"  # A job name that is not UTF-8.
        begin = PREFACE + frame(4, 0, 0, b"") + headers(1)
        peer.sendall(begin + frame(0, 0, 1, struct.pack(">BI", NO_MESSAGE, len(hello)) + hello))
        self.assertIn("basin.v1.Hello.job", basind.await_event("protobuf")["reason"])
        self.assertIn("not a basin.v1.ToAggregator", basind.await_event("peer_refused")["reason"])

    def test_fault_n11_message_that_claims_four_gibibytes(self) -> None:
        def trouble(basind: Basind) -> None:
            peer = self.connect(basind)
            peer.sendall(PREFACE + frame(4, 0, 0, b"") + headers(1))
            peer.sendall(frame(0, 0, 1, struct.pack(">BI", NO_MESSAGE, 0xFFFFFFFF)))
            sent = 0
            try:
                peer.settimeout(1)
                while sent < 1 << 30:
                    sent += peer.send(frame(0, 0, 1, bytes(16384)))
            except OSError:
                pass  # The data are refused, or not read.
            self.assertLess(sent, 64 << 20)

        self.expect_undisturbed(trouble)

    def test_fault_n12_streams_that_are_opened_and_reset(self) -> None:
        resets = 20000

        def trouble(basind: Basind) -> None:
            peer = self.connect(basind)
            peer.sendall(PREFACE + frame(4, 0, 0, b""))
            try:
                for i in range(0, resets, 100):
                    streams = range(2 * i + 1, 2 * i + 201, 2)
                    peer.sendall(
                        b"".join(headers(n) + frame(3, 0, n, struct.pack(">I", 8)) for n in streams)
                    )
            except OSError:
                pass  # The peer was disconnected.

        self.expect_undisturbed(trouble)

    def test_fault_a10_without_file_descriptors_it_waits_for_some(self) -> None:
        files = 64
        basind = self.start(before=("prlimit", f"--nofile={files}"))
        trainers = self.train(basind.grpc, 2, "1500", "--pace-ms=5")
        for trainer in trainers:
            trainer.await_event("applied", step=3)
        # If all were of one address, the oldest would be closed.
        crowd = [self.connect_newcomer(basind, f"127.0.1.{i}") for i in range(1, 2 * files)]
        refused = "basin_accept_failures_total"
        short = basind.await_event("descriptors_short")
        self.assertIn("64 file descriptors", short["reason"])
        before = self.ticks(basind)
        trainers[0].await_event("applied", step=len(trainers[0].find("applied")) + 50)
        # Training is not affected, and the loop does not spin: it tries every 100 ms.
        self.assertLess(self.ticks(basind) - before, 100)
        # Operators, probes and scrapers have reserved descriptors.
        status = ("status", f"--address={basind.admin}")
        answered = run(self.basinctl, *status)
        self.assertEqual(0, answered.returncode, answered.stderr)
        self.assertGreaterEqual(self.metric(basind, refused), 1)
        events = ("events", f"--address={basind.admin}")
        self.assertIn(short["reason"], run(self.basinctl, *events).stdout)
        for peer in crowd:
            peer.close()
        basind.await_event("descriptors_free")
        self.assertIn("descriptors_free", run(self.basinctl, *events).stdout)
        late = self.add(basind.grpc, "w2", "1500", "--pace-ms=5", first=2)
        self.expect_ends([*trainers, late])
        self.assertGreaterEqual(self.metric(basind, refused), 1)

    def test_fault_s6_one_address_does_not_take_all_file_descriptors(self) -> None:
        files, most = 512, 42
        basind = self.start(before=("prlimit", f"--nofile={files}"))
        for connect, source in (
            (self.connect_newcomer, "127.0.1.1"),
            (self.connect, "127.0.1.2"),
        ):
            crowd = [connect(basind, source) for _ in range(files)]
            refused = basind.await_event("peer_refused")["reason"]
            self.assertRegex(
                refused, f"^From {source}: (It had {most}|More than {most}) connections"
            )
            for peer in crowd[:-most]:
                self.read_to_end(peer)
            # gRPC closes its own a moment later.
            self.await_metric(basind, "process_open_fds", lambda value: value < files / 2)
        self.expect_ends(self.train(basind.grpc, 2, "40"))

    def test_fault_s6_workers_join_and_train_during_a_flood_of_connections(self) -> None:
        basind = self.start(before=("prlimit", "--nofile=512"))
        host, port = basind.grpc.rsplit(":", 1)
        over, refused = threading.Event(), "basin_floods_total"
        made = 0

        def flood() -> None:
            nonlocal made
            crowd: collections.deque[socket.socket] = collections.deque()
            while not over.is_set():
                try:
                    source = ("127.0.1.1", 0)
                    peer = socket.create_connection((host, int(port)), PATIENCE, source)
                    peer.sendall(PREFACE + frame(4, 0, 0, b""))
                except OSError:
                    continue  # It was closed at once.
                made += 1
                crowd.append(peer)
                # More than the aggregator allows.
                if len(crowd) > 256:
                    crowd.popleft().close()
            for peer in crowd:
                peer.close()

        thread = threading.Thread(target=flood)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(over.set)
        self.await_metric(basind, refused, lambda value: value > 100)
        before = self.metric(basind, refused)
        trainers = self.train(basind.grpc, 2, "300", "--pace-ms=5")
        trainers[0].await_event("applied", step=3)
        late = self.add(basind.grpc, "w2", "300", "--pace-ms=5", first=2)
        self.expect_ends([*trainers, late])
        # It went on until then.
        self.assertGreater(self.metric(basind, refused), before)
        basind.end()
        self.assertEqual([], self.events(basind, "worker_lost"))

    def ticks(self, basind: Basind) -> int:
        """The processor time of the process, in hundredths of a second."""
        fields = Path(f"/proc/{basind.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    # ---- workers

    def hang(self, basind: Basind) -> list[Oracle]:
        """Two workers, of which w0 stops after step 0, except for its library."""
        trainers = [
            self.add(basind.grpc, "w0", "60", "--stepwise", first=2),
            self.add(basind.grpc, "w1", "60", first=2),
        ]
        for _ in range(2):
            trainers[0].tell()
        trainers[0].await_event("applied", step=0)
        return trainers

    def test_fault_w5_a_trainer_that_hangs_is_named_and_keeps_its_place(self) -> None:
        basind = self.start(
            "--worker-lease=1s", "--worker-heartbeat=200ms", "--round-late-warning=1500ms"
        )
        trainers = self.hang(basind)
        late = basind.await_event("worker_late")
        self.assertEqual("w0", late["worker"])
        self.assertEqual(1, self.metric(basind, LATE))
        trainers[0].tell("run")
        self.expect_whole(basind, trainers, 60)

    def test_fault_w14_a_straggler_is_evicted_where_that_is_the_policy(self) -> None:
        basind = self.start("--round-late-policy=evict", "--round-evict-late-after=500ms")
        trainers = self.hang(basind)
        self.assertEqual("w0", basind.await_event("worker_lost")["worker"])
        self.assertEqual(0, trainers[1].finish())
        trainers[0].tell("run")
        trainers[0].await_event("evicted")
        self.expect_one_history(trainers[1:])
        self.assertEqual([3] + [2] * 59, self.masks(trainers[1]))

    def test_fault_a1_what_an_operator_has_set_outlives_the_aggregator(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            state = f"--state-file={folder}/state"
            basind = self.start(state)
            trainers = self.train(basind.grpc, 2, "1000000", "--pace-ms=5", least=2)
            for trainer in trainers:
                trainer.await_more("applied", 20)

            def job() -> dict[str, Any]:
                command = ("jobs", "--output=json", f"--address={basind.admin}")
                jobs: list[dict[str, Any]] = json.loads(run(self.basinctl, *command).stdout)["jobs"]
                return jobs[0]

            change = ("job", "set", "default", "--min=1", "--loss-policy=abort")
            done = run(self.basinctl, *change, f"--address={basind.admin}")
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertIn("until another run begins", done.stdout)
            before = job()
            self.assertEqual(1, before["settings"]["min_workers"])
            # At once: the answer came after the file was written.
            basind.process.kill()
            basind = self.restart(basind, state)
            self.assertIn("holds again", basind.await_event("job_set")["reason"])
            for trainer in trainers:
                trainer.await_more("applied", len(trainer.find("applied")) + 20)
            self.assertEqual(
                [before[name] for name in ("settings", "loss_policy", "late_policy")],
                [job()[name] for name in ("settings", "loss_policy", "late_policy")],
            )
            # It is in force: training goes on with one of two.
            trainers[1].kill()
            trainers[0].await_more("applied", len(trainers[0].find("applied")) + 20)
            self.expect_one_history(trainers)

    def test_fault_w16_workers_that_come_and_go_leave_nothing(self) -> None:
        basind = self.start()
        files = self.metric(basind, "process_open_fds")
        trainers = self.train(basind.grpc, 2, "1500", "--pace-ms=2")
        trainers[0].await_event("applied", step=3)
        guests = []
        for i in range(2, 12):
            guest = self.add(basind.grpc, f"w{i}", "1500", "--pace-ms=2", first=2)
            guests.append(guest)
            guest.await_event("applied")
            # Every other worker exits without leaving.
            guest.send(signal.SIGKILL if i % 2 == 0 else signal.SIGTERM)
            guest.finish()
        self.expect_ends(trainers)
        self.expect_one_history([*trainers, *guests])
        for kind in ("basin_sessions", "basin_streams"):
            self.await_metric(basind, kind, lambda count: count == 0)
        self.await_metric(basind, "process_open_fds", lambda count: count <= files)
        basind.end()
        generations = [
            tuple(map(int, re.findall(r"(\d+)\.(\d+)", line["reason"])[0]))
            for line in basind.lines
            if line["event"] == "generation"
        ]
        self.assertGreater(len(generations), 10)
        self.assertEqual(sorted(set(generations)), generations)

    def mismatch(self, *arguments: str) -> str:
        """The error of a third worker with different tensors."""
        basind = self.start()
        trainers = self.train(basind.grpc, 2, "60", "--pace-ms=10")
        trainers[0].await_event("applied", step=3)
        offender = self.add(basind.grpc, "w2", "60", *arguments, first=2)
        self.assertNotEqual(0, offender.finish())
        self.expect_ends(trainers)
        self.assertEqual({3}, set(self.masks(trainers[0])))
        text: str = offender.find("failed")[0]["text"]
        self.assertIn("tensor0", text)
        self.assertIn("w2", text)
        return text

    def test_fault_w10_another_shape_is_refused_and_named_with_both(self) -> None:
        text = self.mismatch("--shape-off")
        self.assertIn("4096", text)
        self.assertIn("4097", text)

    def test_fault_w10_another_dtype_is_refused_and_named_with_both(self) -> None:
        text = self.mismatch("--f64")
        self.assertIn("f32", text)
        self.assertIn("f64", text)

    def test_fault_w12_nan_reaches_all_alike_and_names_its_worker(self) -> None:
        basind = self.start()
        trainers = [
            self.add(basind.grpc, "w0", "10", first=3),
            self.add(basind.grpc, "w1", "10", "--nan-at=5", first=3),
            self.add(basind.grpc, "w2", "10", first=3),
        ]
        self.expect_ends(trainers)
        self.assertEqual([7] * 10, self.masks(trainers[0]))
        for trainer in trainers:
            for line in trainer.find("applied"):
                self.assertEqual(1 if line["step"] == 5 else 0, line["nan"], line)
                self.assertEqual("w1" if line["step"] == 5 else None, line.get("nonfinite"))
        self.assertEqual(1, self.metric(basind, "basin_nonfinite_total"))


if __name__ == "__main__":
    Jobs.basind, Peers.basinctl, Jobs.trainer = (Path(sys.argv.pop(1)).resolve() for _ in range(3))
    unittest.main(verbosity=2)
