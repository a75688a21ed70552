# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Training with shards: an aggregator, processes that hold bytes for it, and trainers.

Usage: test_shard.py BASIND BASINCTL TRAINER
"""

import json
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

from programs import PATIENCE, Basind, Trainer, run

BASIND = Path()
BASINCTL = Path()
TRAINER = Path()

# 24 MiB: enough for equal parts, of which the larger one has at most one chunk more.
ELEMENTS = 6 << 20
BYTES = 4 * ELEMENTS
WORKERS = ("a", "b", "c")


class Shards(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def start(self, *arguments: str) -> Basind:
        basind = Basind(BASIND, *arguments)
        self.addCleanup(basind.__exit__, None, None, None)
        basind.await_serving()
        return basind

    def shard(self, basind: Basind, name: str, *arguments: str) -> Basind:
        """A shard that is connected with its aggregator."""
        shard = self.start("shard", f"--coordinator={basind.grpc}", f"--name={name}", *arguments)
        shard.await_event("linked")
        basind.await_event("shard_up")
        return shard

    def join(self, basind: Basind, workers: tuple[str, ...] = WORKERS) -> list[Trainer]:
        trainers = [
            Trainer(
                TRAINER,
                basind.grpc,
                "vision",
                worker,
                len(workers),
                len(workers),
                TRAINER_ELEMENTS=str(ELEMENTS),
            )
            for worker in workers
        ]
        for trainer in trainers:
            self.addCleanup(trainer.kill)
            trainer.say("join")
        for trainer in trainers:
            self.assertRegex(trainer.answer(), rf"member \d of {len(workers)}")
        return trainers

    def begin(self, trainers: list[Trainer], number: int) -> None:
        for place, trainer in enumerate(trainers):
            self.assertEqual("begun", trainer.ask(f"begin {number + place / 7:.6f}"))

    def finish(self, trainers: list[Trainer], number: int) -> str:
        """The digest of the round's result, which all of them have."""
        for trainer in trainers:
            trainer.say("finish")
        for trainer in trainers:
            self.assertRegex(
                trainer.answer(), rf"^round {number}: COMMITTED over {len(trainers)}, "
            )
        digests = {trainer.ask("digest") for trainer in trainers}
        self.assertEqual(1, len(digests))
        return digests.pop()

    def round(self, trainers: list[Trainer], number: int) -> str:
        self.begin(trainers, number)
        return self.finish(trainers, number)

    def alone(self, rounds: int) -> list[str]:
        """The digests of these rounds with one aggregator and no shard."""
        basind = self.start()
        trainers = self.join(basind)
        digests = [self.round(trainers, number) for number in range(1, rounds + 1)]
        for trainer in trainers:
            trainer.kill()
        return digests

    def sample(self, process: Basind, name: str) -> int:
        _, page = process.get("/metrics")
        found = re.search(rf"^{name}(?:{{[^}}]*}})? (\d+)", page, re.MULTILINE)
        assert found is not None, page
        return int(found[1])

    def test_two_shards_give_the_same_bits_and_hold_equal_parts(self) -> None:
        expected = self.alone(3)
        basind = self.start()
        shards = [self.shard(basind, name) for name in ("s-1", "s-2")]
        trainers = self.join(basind)
        self.assertEqual(expected, [self.round(trainers, number) for number in (1, 2, 3)])
        parts = [self.sample(shard, "basin_contribution_bytes_total") for shard in shards]
        parts.append(self.sample(basind, "basin_contribution_bytes_total"))
        self.assertEqual(3 * len(WORKERS) * BYTES, sum(parts))
        used = [part for part in parts if part > 0]
        self.assertGreaterEqual(len(used), 2, parts)
        self.assertLessEqual(max(used) / (sum(used) / len(used)), 1.04, parts)
        for shard in shards:
            self.assertEqual(200, shard.get("/readyz")[0])

    def test_basinctl_shows_the_shards_and_their_parts(self) -> None:
        basind = self.start()
        for name in ("s-1", "s-2"):
            self.shard(basind, name)
        trainers = self.join(basind)
        for number in (1, 2):
            self.round(trainers, number)
        # A shard reports what it has done within a second.
        deadline = time.monotonic() + PATIENCE
        while True:
            done = run(BASINCTL, "shards", f"--address={basind.admin}", "-o", "json")
            self.assertEqual(0, done.returncode, done.stderr)
            shards = json.loads(done.stdout)["shards"]
            received = sum(int(shard.get("contribution_bytes", 0)) for shard in shards)
            if received == 2 * len(WORKERS) * BYTES:
                break
            self.assertLess(time.monotonic(), deadline, shards)
            # There is no event for what a shard reports.
            threading.Event().wait(0.1)
        self.assertEqual(["", "s-1", "s-2"], [shard.get("name", "") for shard in shards])
        for shard in shards:
            self.assertGreater(int(shard["up_ns"]), 0)
            self.assertGreater(int(shard["reduce_ns"]), 0)
            self.assertGreater(int(shard["result_bytes"]), 0)
            (part,) = shard["jobs"]
            self.assertEqual("vision", part["job"])
            self.assertEqual(BYTES, int(part["job_bytes"]))
            self.assertAlmostEqual(BYTES / 3, int(part["bytes"]), delta=256 << 10)
        self.assertEqual(BYTES, sum(int(shard["jobs"][0]["bytes"]) for shard in shards))
        table = run(BASINCTL, "shards", f"--address={basind.admin}").stdout
        self.assertRegex(table, r"\ns-1 +127\.0\.0\.1:\d+ +")
        self.assertRegex(table, r"\nvision +aggregator +8\.\dMiB +33\.\d%")
        status, page = basind.get("/statusz")
        self.assertEqual(200, status)
        self.assertIn("<h2>Shards</h2>", page)

    def test_a_shard_that_is_killed_in_a_round_costs_no_round_and_no_bit(self) -> None:
        expected = self.alone(4)
        basind = self.start()
        shards = [self.shard(basind, name) for name in ("s-1", "s-2")]
        trainers = self.join(basind)
        digests = [self.round(trainers, 1)]
        # Two of three have pushed.
        self.begin(trainers[:2], 2)
        shards[0].process.kill()
        basind.await_event("shard_lost")
        self.assertEqual("begun", trainers[2].ask(f"begin {2 + 2 / 7:.6f}"))
        digests.append(self.finish(trainers, 2))
        digests += [self.round(trainers, number) for number in (3, 4)]
        self.assertEqual(expected, digests)

    def test_a_shard_that_drains_in_a_round_costs_no_push(self) -> None:
        expected = self.alone(4)
        basind = self.start()
        shards = [self.shard(basind, name) for name in ("s-1", "s-2")]
        trainers = self.join(basind)
        digests = [self.round(trainers, number) for number in (1, 2)]
        self.begin(trainers[:1], 3)
        shards[1].process.send_signal(signal.SIGTERM)
        basind.await_event("shard_draining")
        shards[1].await_event("ending")
        status, text = shards[1].get("/readyz")
        self.assertEqual(503, status)
        self.assertIn("drain", text)
        for place, trainer in enumerate(trainers[1:], 1):
            self.assertEqual("begun", trainer.ask(f"begin {3 + place / 7:.6f}"))
        digests.append(self.finish(trainers, 3))
        self.assertIn("no round needed it", basind.await_event("shard_drained")["reason"])
        shards[1].await_event("ended")
        self.assertEqual(0, shards[1].process.wait(timeout=60))
        digests.append(self.round(trainers, 4))
        self.assertEqual(expected, digests)
        self.assertEqual([], [one for one in basind.lines if one["event"] == "shard_lost"])
        # What it had received is known of the others: all bytes were pushed once.
        others = [basind, shards[0]]
        received = [self.sample(one, "basin_contribution_bytes_total") for one in others]
        third, half = BYTES * len(WORKERS) / 3, BYTES * len(WORKERS) / 2
        for bytes_ in received:
            self.assertAlmostEqual(3 * third + half, bytes_, delta=0.02 * BYTES * len(WORKERS))

    def test_a_shard_whose_drain_is_over_is_replaced(self) -> None:
        expected = self.alone(2)
        basind = self.start()
        shard = self.shard(basind, "s-1", "--drain-grace=200ms")
        trainers = self.join(basind)
        digests = [self.round(trainers, 1)]
        self.begin(trainers[:1], 2)
        self.assertEqual(0, shard.end(signal.SIGTERM))
        self.assertIn("time of the drain is over", shard.lines[-1]["reason"])
        self.assertIn("while rounds needed it", basind.await_event("shard_drained")["reason"])
        for place, trainer in enumerate(trainers[1:], 1):
            self.assertEqual("begun", trainer.ask(f"begin {2 + place / 7:.6f}"))
        digests.append(self.finish(trainers, 2))
        self.assertEqual(expected, digests)

    def test_a_coordinator_without_a_share_receives_no_gradients(self) -> None:
        expected = self.alone(3)
        basind = self.start("--shards-coordinator-share=false")
        shards = [self.shard(basind, name) for name in ("s-1", "s-2")]
        trainers = self.join(basind)
        digests = [self.round(trainers, number) for number in (1, 2)]
        self.assertEqual(0, self.sample(basind, "basin_contribution_bytes_total"))
        for shard in shards:
            shard.process.kill()
            basind.await_event("shard_lost")
        digests.append(self.round(trainers, 3))
        self.assertEqual(expected, digests)
        self.assertGreater(self.sample(basind, "basin_contribution_bytes_total"), 0)

    def test_a_shard_that_comes_is_used(self) -> None:
        expected = self.alone(4)
        basind = self.start()
        trainers = self.join(basind)
        digests = [self.round(trainers, 1)]
        shard = self.shard(basind, "s-1")
        digests += [self.round(trainers, number) for number in (2, 3, 4)]
        self.assertEqual(expected, digests)
        self.assertGreater(self.sample(shard, "basin_contribution_bytes_total"), 0)

    def test_an_aggregator_that_starts_again_is_found_again(self) -> None:
        expected = self.alone(3)
        basind = self.start()
        shard = self.shard(basind, "s-1")
        trainers = self.join(basind)
        digests = [self.round(trainers, 1), self.round(trainers, 2)]
        address = basind.grpc
        basind.process.kill()
        basind.process.wait()
        shard.await_event("unlinked")
        self.assertEqual(503, shard.get("/readyz")[0])
        again = Basind(
            BASIND,
            ports=(
                f"--grpc-listen={address}",
                "--http-listen=127.0.0.1:0",
                "--admin-listen=127.0.0.1:0",
            ),
        )
        self.addCleanup(again.__exit__, None, None, None)
        again.await_serving()
        shard.await_event("linked")
        digests.append(self.round(trainers, 3))
        self.assertEqual(expected, digests)

    def test_a_second_shard_with_a_name_says_so(self) -> None:
        basind = self.start()
        first = self.shard(basind, "s-1")
        second = self.start("shard", f"--coordinator={basind.grpc}", "--name=s-1")
        refused = second.await_event("coordinator_refused")
        self.assertIn(first.grpc, refused["reason"])
        self.assertIn(second.grpc, refused["reason"])
        status, text = second.get("/readyz")
        self.assertEqual(503, status)
        self.assertIn("Give each shard a name of its own", text)
        self.assertEqual(0, second.end())

    def test_a_shard_without_an_aggregator_waits_for_it(self) -> None:
        shard = self.start("shard", "--coordinator=127.0.0.1:1", "--name=s-1")
        refused = shard.await_event("coordinator_refused")
        self.assertIn("127.0.0.1:1", refused["reason"])
        self.assertEqual(503, shard.get("/readyz")[0])
        self.assertEqual(200, shard.get("/livez")[0])
        self.assertEqual(0, self.sample(shard, "basin_shard_linked"))
        self.assertEqual(0, shard.end(signal.SIGINT))

    def test_a_token_with_the_role_is_needed(self) -> None:
        tokens, lines = {}, []
        for role in ("shard", "worker"):
            made = run(BASINCTL, "token", "new", f"--role={role}", "--jobs=*")
            self.assertEqual(0, made.returncode, made.stderr)
            tokens[role] = self.folder / role
            tokens[role].write_text(made.stdout.splitlines()[0])
            lines.append(made.stderr)
        grants = self.folder / "grants"
        grants.write_text("".join(lines))
        basind = self.start(f"--auth-file={grants}")
        self.shard(basind, "s-1", f"--shard-token-file={tokens['shard']}", f"--auth-file={grants}")
        wrong = self.start(
            "shard",
            f"--coordinator={basind.grpc}",
            "--name=s-2",
            f"--shard-token-file={tokens['worker']}",
        )
        refused = wrong.await_event("coordinator_refused")["reason"]
        self.assertIn("has the role worker, and Shard needs the role shard", refused)
        self.assertIn("auth.file", refused)
        seen = basind.await_event("peer_refused")["reason"]
        self.assertIn("worker", seen)
        self.assertIn("Shard", seen)

    def test_a_shard_needs_an_aggregator_to_ask(self) -> None:
        done = run(BASIND, "shard")
        self.assertEqual(2, done.returncode)
        self.assertIn("--coordinator=HOST:PORT", done.stderr)
        for name in ("--coordinator", "--name", "--advertise", "examples:"):
            self.assertIn(name, run(BASIND, "shard", "--help").stdout)


if __name__ == "__main__":
    TRAINER = Path(sys.argv.pop()).resolve()
    BASINCTL = Path(sys.argv.pop()).resolve()
    BASIND = Path(sys.argv.pop()).resolve()
    unittest.main(verbosity=2)
