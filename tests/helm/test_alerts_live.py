# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Alerts fire and resolve in a real Prometheus, beside an aggregator whose trainers misbehave.

Usage: test_alerts_live.py BASIND TRAINER

The rules are the shipped ones with seconds in place of their minutes, so that the test need not
wait for as long as an operator would.
"""

import re
import subprocess
import sys
import unittest
from pathlib import Path

from live import Watched, await_that, free_port
from tools import CHART, ROOT, SKIPPED, require

sys.path.insert(0, str(ROOT / "tests/aggregator/basind"))
from programs import Trainer

BASIND = ""
TRAINER = Path()


def impatient(rules: str) -> str:
    """The rules with waits of a second, over the last few seconds."""
    rules, waits = re.subn(r"for: \w+", "for: 1s", rules)
    rules, ranges = re.subn(r"\[\d+[mh]\]", "[5s]", rules)
    assert waits > 5 and ranges > 5, "the rules are written in another way"
    return rules


class Alerts(Watched):
    def setUp(self) -> None:
        super().setUp()
        self.grpc, self.http = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.basind = self.start_basind()
        self.shard_grpc, self.shard_http = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.shard = self.start_shard()
        rules = self.folder / "alerts.yaml"
        rules.write_text(
            impatient((CHART / "files/alerts.yaml").read_text(encoding="utf-8")), encoding="utf-8"
        )
        self.watch(self.http, rules, shards=[self.shard_http])
        self.a, self.b = self.trainer("a"), self.trainer("b")
        for trainer in (self.a, self.b):
            trainer.say("join")
        for trainer in (self.a, self.b):
            self.assertIn("of 2", trainer.answer())
        self.await_scraped(lambda: self.has_series('basin_job_state{state="running"}'))
        self.await_firing()

    def start_basind(self) -> subprocess.Popen[bytes]:
        process = self.start(
            "basind",
            BASIND,
            "serve",
            f"--grpc-listen={self.grpc}",
            f"--http-listen={self.http}",
            "--admin-listen=none",
            "--local-listen=none",
        )
        log = self.log_of("basind")
        await_that(lambda: '"event":"serving"' in log.read_text(), process, log)
        return process

    def start_shard(self) -> subprocess.Popen[bytes]:
        process = self.start(
            "shard",
            BASIND,
            "shard",
            f"--coordinator={self.grpc}",
            "--name=shard-1",
            f"--grpc-listen={self.shard_grpc}",
            f"--http-listen={self.shard_http}",
        )
        log = self.log_of("shard")
        await_that(lambda: '"event":"linked"' in log.read_text(), process, log)
        return process

    def trainer(self, name: str) -> Trainer:
        trainer = Trainer(TRAINER, self.grpc, "vision", name, 2, 2)
        self.addCleanup(trainer.kill)
        return trainer

    def await_firing(self, *names: str) -> None:
        """Waits until just these alerts fire, not counting that of goodput: it is about the last
        quarter of an hour, of which these jobs train a moment. alerts_test.yaml tests it."""

        def fire() -> bool:
            firing = self.firing()
            return firing is not None and firing - {"BasinGoodputLow"} == set(names)

        self.await_scraped(fire)

    def test_a_stalled_round(self) -> None:
        self.assertEqual("begun", self.a.ask("begin 1"))
        self.await_firing("BasinRoundStalled")
        self.assertEqual("begun", self.b.ask("begin 2"))
        for trainer in (self.a, self.b):
            trainer.say("finish")
        for trainer in (self.a, self.b):
            self.assertIn("COMMITTED", trainer.answer())
        self.await_firing()

    def test_a_paused_job(self) -> None:
        self.b.kill()
        self.await_firing("BasinJobPaused")
        self.assertIn("of 2", self.trainer("b").ask("join"))
        self.await_firing()

    def test_a_lost_shard(self) -> None:
        self.shard.kill()
        self.await_firing("BasinShardLost")
        self.start_shard()
        self.await_firing()

    def test_an_aggregator_that_is_gone(self) -> None:
        self.basind.kill()
        # Its shard runs, and is connected with nobody.
        self.await_firing("BasinDown", "BasinShardLost")
        self.start_basind()
        self.await_firing()


if __name__ == "__main__":
    require("prometheus")
    if len(sys.argv) != 3:
        print("skipped: there is no basind")
        sys.exit(SKIPPED)
    BASIND, TRAINER = sys.argv[1], Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1], verbosity=2)
