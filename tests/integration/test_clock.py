# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Training beside clocks that jump, by libfaketime: only the validity of certificates depends on
the wall clock.

Usage: test_clock.py BASIND BASINCTL TRAINER
"""

import datetime
import http.client
import itertools
import re
import ssl
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

from oracle import Jobs, Oracle
from programs import Basind, run

SKIPPED = 77
LIBRARIES = ("/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime")
BASINCTL = Path()
HOUR = 3600
DAY = 24 * HOUR
# Training has gone on when there are so many more steps.
SOME_STEPS = 40


def library() -> Path | None:
    for folder in LIBRARIES:
        path = Path(folder) / "libfaketimeMT.so.1"
        if path.exists():
            return path
    return None


class Clock:
    """The wall clock of the processes that have its variables. Their monotonic clocks are real."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = folder / name
        self.set(0)
        self.variables: dict[str, Any] = {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, seconds: int) -> None:
        """Puts it so far ahead of the machine's."""
        beside = self._file.with_suffix(".new")
        beside.write_text(f"{seconds:+d}\n", encoding="utf-8")
        beside.rename(self._file)


class ClockTest(Jobs):
    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.clock = Clock(self.folder, "clock")

    def make_certificates(self, name: str, lifetime: str, **variables: str) -> Path:
        folder = self.folder / name
        done = run(BASINCTL, "dev-certs", str(folder), f"--lifetime={lifetime}", **variables)
        self.assertEqual(0, done.returncode, done.stderr)
        return folder

    def serve(self, certificates: Path, *arguments: str) -> Basind:
        """An aggregator with this clock, which requires certificates of its clients."""
        return self.start(
            *arguments,
            f"--tls-cert={certificates / 'server.crt'}",
            f"--tls-key={certificates / 'server.key'}",
            f"--tls-client-ca={certificates / 'ca.crt'}",
            **self.clock.variables,
        )

    def await_steps(self, trainers: list[Oracle]) -> None:
        for trainer in trainers:
            trainer.await_more("applied", len(trainer.find("applied")) + SOME_STEPS)

    def expect_undisturbed(self, basind: Basind, trainers: list[Oracle]) -> None:
        """Nobody was lost, and each step counted every trainer."""
        for trainer in trainers:
            for event in ("aborted", "rejected", "evicted", "failed"):
                self.assertEqual([], trainer.find(event), trainer.worker)
        everyone = 2 ** len(trainers) - 1
        self.assertEqual({everyone}, {mask for each in trainers for mask in self.masks(each)})
        self.expect_one_history(trainers)
        basind.end()
        events = [line["event"] for line in basind.lines]
        self.assertEqual(1, events.count("generation"), events)
        for event in ("worker_lost", "worker_late", "worker_reconnected", "paused", "stalled"):
            self.assertNotIn(event, events)

    def test_fault_s5_clocks_that_jump_an_hour_disturb_no_round(self) -> None:
        certificates = self.make_certificates("certs", "720h")
        basind = self.serve(certificates)
        theirs = Clock(self.folder, "theirs")
        steps = ("1000000", "--pace-ms=5")
        trainers = self.train(basind.grpc, 2, *steps, **tls(certificates), **theirs.variables)
        self.await_steps(trainers)
        for aggregator, trainer in ((HOUR, 0), (HOUR, -HOUR), (-HOUR, -HOUR), (0, HOUR)):
            self.clock.set(aggregator)
            theirs.set(trainer)
            self.await_steps(trainers)
        self.expect_undisturbed(basind, trainers)
        times = [datetime.datetime.fromisoformat(line["time"][:19]) for line in basind.lines]
        jumps = {round((b - a).total_seconds() / HOUR) for a, b in itertools.pairwise(times)}
        self.assertLessEqual({1, -2}, jumps, "the clock of the log has jumped")

    def test_fault_s3_certificates_that_expire_disturb_no_round_and_admit_nobody(self) -> None:
        certificates = self.make_certificates("certs", "192h")
        basind = self.serve(certificates)
        steps = ("1000000", "--pace-ms=5")
        trainers = self.train(basind.grpc, 2, *steps, **tls(certificates))
        self.await_steps(trainers)

        # Seven days ahead, the operator is warned.
        self.clock.set(2 * DAY)
        warned = basind.await_event("certificate")
        self.assertEqual("warning", warned["level"])
        self.assertIn("expires at", warned["reason"])
        self.await_steps(trainers)

        # Expired: nobody else can connect, and whoever has trains on.
        self.clock.set(9 * DAY)
        expired = basind.await_event("certificate")
        self.assertEqual("error", expired["level"])
        late = self.add(basind.grpc, "w7", *steps, **tls(certificates))
        self.assertIn("TLS", basind.await_event("peer_refused")["reason"])
        self.assertGreater(self.counter(basind, "basin_tls_failures_total"), 0)
        late.kill()
        self.await_steps(trainers)
        self.expect_undisturbed(basind, trainers)

    def test_fault_s3_the_metric_keeps_the_time_of_a_certificate_that_has_expired(self) -> None:
        short = self.make_certificates("short", "192h")
        long = self.make_certificates("long", "7200h")
        http = f"--http-tls-cert={long / 'server.crt'}", f"--http-tls-key={long / 'server.key'}"
        basind = self.serve(short, *http)
        before = self.expiry(basind)
        self.assertLess(abs(before - (time.time() + 8 * DAY)), HOUR)
        self.clock.set(9 * DAY)
        self.assertEqual("error", basind.await_event("certificate")["level"])
        self.assertEqual(before, self.expiry(basind))

    def expiry(self, basind: Basind) -> float:
        """What the metric says, by https."""
        trust = ssl.create_default_context()
        trust.check_hostname = False
        trust.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(basind.http, timeout=60, context=trust)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        found = re.search(r"^basin_certificate_expiry_timestamp_seconds (\S+)$", text, re.M)
        assert found is not None
        return float(found[1])

    def test_fault_s3_a_certificate_that_is_not_valid_yet_is_refused(self) -> None:
        self.clock.set(9 * DAY)
        certificates = self.make_certificates("certs", "192h", **self.clock.variables)
        basind = self.serve(certificates)
        status = ("status", f"--address={basind.admin}")
        behind = run(BASINCTL, *status, **tls(certificates))
        self.assertEqual(3, behind.returncode, behind.stdout + behind.stderr)
        self.assertIn("certificate", behind.stderr)
        done = run(BASINCTL, *status, **tls(certificates), **self.clock.variables)
        self.assertEqual(0, done.returncode, done.stderr)

    def counter(self, basind: Basind, name: str) -> float:
        found = re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", basind.get("/metrics")[1], re.M)
        return sum(map(float, found))


def tls(certificates: Path) -> dict[str, Any]:
    """The variables of a worker with these certificates."""
    return {
        "BASIN_TLS_CA": str(certificates / "ca.crt"),
        "BASIN_TLS_CERT": str(certificates / "client.crt"),
        "BASIN_TLS_KEY": str(certificates / "client.key"),
    }


if __name__ == "__main__":
    if library() is None:
        print("skipped: libfaketime is missing")
        sys.exit(SKIPPED)
    arguments = [Path(sys.argv.pop(1)).resolve() for _ in range(3)]
    Jobs.basind, BASINCTL, Jobs.trainer = arguments
    unittest.main(verbosity=2)
