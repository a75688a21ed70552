# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Faults of jobs with shards: links that are cut, processes that are stopped, slow or killed.

Every job must end with the bits of one without shards, and with every step.

Usage: test_shards.py BASIND BASINCTL ORACLE_TRAINER [TURNS]

TURNS: of the fault that is measured.
"""

import json
import signal
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from typing import Any

import namespaces
from oracle import Jobs, Oracle
from programs import Basind, run
from proxy import Link, Proxy

STEPS = 60
# 8 MiB a step, so that each of five processes has more than the least part that is spread.
LARGE = ("--tensors=4", "--elements=524288")
PACED = (str(STEPS), *LARGE, "--pace-ms=20")

# A peer that is cut off or stopped is noticed after two seconds.
SOON = ("--grpc-keepalive-time=1s", "--grpc-keepalive-timeout=1s")
# No worker is lost, because rounds wait for the faults here.
PATIENT = ("--worker-lease=60s", "--worker-closed-lease=60s", "--worker-unreachable-lease=60s")


class WithShards(Jobs):
    basinctl = Path()
    alone: str | None = None

    def expected(self) -> str:
        """The digest of all results of the job with one aggregator."""
        if WithShards.alone is None:
            basind = self.start(*PATIENT)
            trainers = self.train(basind.grpc, 2, str(STEPS), *LARGE)
            self.expect_ends(trainers)
            basind.end()
            WithShards.alone = str(trainers[0].find("end")[0]["history"])
        return WithShards.alone

    def serve(self, *arguments: str, **more: Any) -> Basind:
        return self.start(*PATIENT, *SOON, *arguments, **more)

    def shard(
        self, basind: Basind, name: str, coordinator: str, *arguments: str, **more: Any
    ) -> Basind:
        """A shard that its aggregator uses."""
        flags = (f"--coordinator={coordinator}", f"--name={name}", *SOON, *arguments)
        shard = Basind(Jobs.basind, "shard", *flags, **more)
        self.addCleanup(shard.__exit__, None, None, None)
        shard.await_serving()
        shard.await_event("linked")
        basind.await_event("shard_up")
        return shard

    def expect_same(self, basind: Basind, trainers: list[Oracle]) -> None:
        """The trainers end with every step, and with the bits of a job without shards."""
        self.expect_whole(basind, trainers, STEPS)
        self.assertEqual(self.expected(), str(trainers[0].find("end")[0]["history"]))

    def lost(self, aggregator: Basind) -> list[str]:
        """The shards that it lost before it was to end."""
        reasons = []
        for line in aggregator.lines:
            if line["event"] == "ending":
                break
            if line["event"] == "shard_lost":
                reasons.append(str(line["reason"]))
        return reasons

    def wait(self, seconds: float) -> None:
        """How long a fault lasts."""
        threading.Event().wait(seconds)


class Cut(WithShards):
    """Two workers and two shards, each in a namespace of its own: w0, w1, s-2 and s-3."""

    reason: str | None = None

    def setUp(self) -> None:
        super().setUp()
        if Cut.reason is None:
            Cut.reason = namespaces.missing()
        if Cut.reason:
            self.skipTest(Cut.reason)
        self.expected()
        self.network = namespaces.Network(4)
        self.addCleanup(self.network.close)
        self.network.join()
        self.aggregator = self.serve(
            "--grpc-insecure=true",
            ports=("--grpc-listen=0.0.0.0:0", "--http-listen=none", "--admin-listen=none"),
            before=self.network.at_aggregator(),
        )
        self.port = self.aggregator.grpc.rsplit(":", 1)[1]
        self.shards = {
            end: self.shard(
                self.aggregator,
                f"s-{end}",
                f"10.77.{end}.1:{self.port}",
                "--grpc-insecure=true",
                ports=(f"--grpc-listen=10.77.{end}.2:0", "--http-listen=none"),
                before=self.network.at_worker(end),
            )
            for end in (2, 3)
        }
        self.trainers = [
            self.add(
                f"10.77.{end}.1:{self.port}",
                f"w{end}",
                *PACED,
                first=2,
                before=self.network.at_worker(end),
            )
            for end in (0, 1)
        ]
        self.trainers[0].await_event("applied", step=5)

    def test_a_shard_that_its_aggregator_does_not_reach_is_replaced_by_the_others(self) -> None:
        # The workers reach it all the time.
        self.network.partition_from(2, "10.77.2.1")
        lost = self.aggregator.await_event("shard_lost")
        self.assertIn("s-2", lost["reason"])
        went_on = self.trainers[0].find("applied")[-1]["step"]
        self.trainers[0].await_event("applied", step=went_on + 3)
        self.network.heal(2)
        self.shards[2].await_event("linked")
        self.aggregator.await_event("shard_up")
        self.expect_same(self.aggregator, self.trainers)

    def test_a_shard_that_one_worker_does_not_reach_is_left_out(self) -> None:
        address = "10.77.2.2"
        begun = time.monotonic()
        self.network.partition_from(0, address)
        noticed = self.aggregator.await_event("shard_unreachable")
        self.assertIn("Worker w0", noticed["reason"])
        self.assertIn(address, noticed["reason"])
        left_out = self.aggregator.await_event("shard_unreachable")
        self.assertIn("goes on without shard s-2", left_out["reason"])
        went_on = self.trainers[1].find("applied")[-1]["step"]
        self.trainers[1].await_event("applied", step=went_on + 1)
        print(f"a step without the shard after {time.monotonic() - begun:.1f} s")
        self.network.heal(0)
        self.expect_same(self.aggregator, self.trainers)
        # It was never away.
        self.assertEqual([], self.lost(self.aggregator))


class Processes(WithShards):
    """Two workers and some shards of this machine."""

    turns = 2

    def begin(self, names: list[str]) -> None:
        self.expected()
        self.aggregator = self.serve()
        self.shards = [self.shard(self.aggregator, name, self.aggregator.grpc) for name in names]
        self.trainers = self.train(self.aggregator.grpc, 2, *PACED)
        self.trainers[0].await_event("applied", step=5)

    def shown(self) -> dict[str, dict[str, Any]]:
        """What basinctl shows of each shard; the aggregator's has no name."""
        done = run(self.basinctl, "shards", f"--address={self.aggregator.admin}", "-o", "json")
        self.assertEqual(0, done.returncode, done.stderr)
        return {shard.get("name", ""): shard for shard in json.loads(done.stdout)["shards"]}

    def test_a_shard_that_stands_still_for_a_moment_is_waited_for(self) -> None:
        self.begin(["s-1", "s-2"])
        self.shards[0].process.send_signal(signal.SIGSTOP)
        self.wait(0.5)
        self.shards[0].process.send_signal(signal.SIGCONT)
        self.expect_same(self.aggregator, self.trainers)
        self.assertEqual([], self.lost(self.aggregator))

    def test_a_shard_that_is_stopped_is_lost_and_used_again_when_it_goes_on(self) -> None:
        self.begin(["s-1", "s-2"])
        self.shards[0].process.send_signal(signal.SIGSTOP)
        self.assertIn("s-1", self.aggregator.await_event("shard_lost")["reason"])
        went_on = self.trainers[0].find("applied")[-1]["step"]
        self.trainers[0].await_event("applied", step=went_on + 3)
        self.shards[0].process.send_signal(signal.SIGCONT)
        self.shards[0].await_event("unlinked")
        self.shards[0].await_event("linked")
        self.aggregator.await_event("shard_up")
        self.expect_same(self.aggregator, self.trainers)

    def test_the_next_step_after_a_kill_comes_soon(self) -> None:
        took = []
        for _ in range(self.turns):
            self.begin(["s-1", "s-2", "s-3", "s-4"])
            applied = len(self.trainers[0].find("applied"))
            self.shards[2].process.kill()
            begun = time.monotonic()
            # The first one may have been complete already.
            self.trainers[0].await_more("applied", applied + 2)
            took.append(time.monotonic() - begun)
            self.assertIn("s-3", self.aggregator.await_event("shard_lost")["reason"])
            # A worker says it once.
            self.expect_same(self.aggregator, self.trainers)
            for trainer in self.trainers:
                self.assertLessEqual(trainer.said.count("cannot be reached"), 1, trainer.said)
        print("the second step after the kill, in s:", *(f"{one:.2f}" for one in took))
        self.assertLess(min(took), 1.0, took)

    def test_a_slow_shard_makes_rounds_slower_and_is_named(self) -> None:
        self.expected()
        self.aggregator = self.serve()
        quick = self.shard(self.aggregator, "quick", self.aggregator.grpc)

        def slow_down(link: Link) -> None:
            for direction in (link.up, link.down):
                direction.delay = 0.03
                direction.rate = 50e6

        to_coordinator = Proxy(self.aggregator.grpc, slow_down)
        self.addCleanup(to_coordinator.close)
        slow = self.shard(self.aggregator, "slow", to_coordinator.address)
        self.trainers = self.train(self.aggregator.grpc, 2, *PACED)
        self.trainers[0].await_event("applied", step=20)
        shards = self.shown()
        marks = {name: shard.get("slow", False) for name, shard in shards.items()}
        self.assertEqual({"": False, "quick": False, "slow": True}, marks, shards)
        self.expect_same(self.aggregator, self.trainers)
        for shard in (quick, slow):
            self.assertEqual(0, shard.end())

    def test_a_shard_with_little_memory_is_not_used_and_it_is_said_why(self) -> None:
        self.expected()
        self.aggregator = self.serve("--memory-budget=1GiB")
        self.shard(self.aggregator, "large", self.aggregator.grpc, "--memory-budget=512MiB")
        self.shard(self.aggregator, "small", self.aggregator.grpc, "--memory-budget=256MiB")
        said = self.aggregator.await_event("shard_too_small")
        self.assertIn(
            "Jobs do without shard small: its memory.budget has 268435456", said["reason"]
        )
        self.trainers = self.train(self.aggregator.grpc, 2, *PACED)
        self.trainers[0].await_event("applied", step=20)
        shards = self.shown()
        self.assertEqual(str(256 << 20), shards["small"]["memory_bytes"])
        (job,) = shards["small"]["jobs"]
        self.assertIn("less than half of the 1073741824 of the aggregator", job["left_out"])
        self.assertEqual("0", shards["small"]["contribution_bytes"])
        self.assertEqual("", shards["large"]["jobs"][0]["left_out"])
        self.assertNotEqual("0", shards["large"]["contribution_bytes"])
        self.expect_same(self.aggregator, self.trainers)


class Secured(WithShards):
    """TLS and tokens between workers, shard and aggregator."""

    def test_tls_and_tokens(self) -> None:
        self.expected()
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        certificates = folder / "certificates"
        made = run(self.basinctl, "dev-certs", str(certificates))
        self.assertEqual(0, made.returncode, made.stderr)
        ca = certificates / "ca.crt"
        lines, tokens = "", {}
        for role, jobs in (("worker", "*"), ("shard", "*")):
            made = run(self.basinctl, "token", "new", f"--role={role}", f"--jobs={jobs}")
            self.assertEqual(0, made.returncode, made.stderr)
            tokens[role] = folder / role
            tokens[role].write_text(made.stdout.splitlines()[0], encoding="utf-8")
            lines += made.stderr
        grants = folder / "grants"
        grants.write_text(lines, encoding="utf-8")
        secured = (
            f"--tls-cert={certificates / 'server.crt'}",
            f"--tls-key={certificates / 'server.key'}",
            f"--auth-file={grants}",
        )
        basind = self.serve(*secured)
        for name in ("s-1", "s-2"):
            self.shard(
                basind,
                name,
                basind.grpc,
                *secured,
                f"--shard-ca={ca}",
                f"--shard-token-file={tokens['shard']}",
            )
        trainers = self.train(
            basind.grpc,
            2,
            *PACED,
            BASIN_TLS_CA=str(ca),
            BASIN_TOKEN_FILE=str(tokens["worker"]),
        )
        self.expect_same(basind, trainers)
        self.assertEqual([], self.events(basind, "shard_unreachable"))
        refusals = [line["reason"] for line in basind.lines if line["event"] == "peer_refused"]
        # A trainer that ends may leave a connection that has had no call yet.
        self.assertEqual([], [why for why in refusals if "left before its first call" not in why])


if __name__ == "__main__":
    if sys.argv[-1].isdigit():
        Processes.turns = int(sys.argv.pop())
    Jobs.trainer = Path(sys.argv.pop(3)).resolve()
    WithShards.basinctl = Path(sys.argv.pop(2)).resolve()
    Jobs.basind = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
