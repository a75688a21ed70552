# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Two aggregators of which one leads, by a key of a real etcd. See test_standby.py.

Usage: test_standby_etcd.py BASIND BASINCTL ORACLE_TRAINER
"""

import json
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Any

import test_standby
from etcd import Etcd, find_etcd
from oracle import Oracle
from programs import Basind, run

SKIPPED = 77

KEY = "/basin/leader"


class StandbyByEtcd(test_standby.Standby):
    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.etcd = self.enterContext(Etcd(self.folder))
        self.how: list[str] = []  # Further flags of an aggregator.

    def candidate(self, lease: str = test_standby.LEASE, **variables: Any) -> Basind:
        basind = Basind(
            self.basind,
            f"--standby-authority=etcd:{self.etcd.clients}{KEY}",
            f"--standby-lease={lease}",
            *self.how,
            **variables,
        )
        self.addCleanup(basind.__exit__, None, None, None)
        basind.await_serving()
        return basind

    def test_fault_a5_an_authority_that_loses_its_record_gets_one_leader_again(self) -> None:
        leader, standby = self.pair()
        trainers = self.workers(leader, standby)
        self.await_step(trainers, 20)
        self.etcd.delete(KEY)
        self.assertIn("lost the record", leader.await_event("leads_no_more")["reason"])
        self.await_step(trainers, 20)
        self.expect_every_step(trainers)

    def test_the_key_names_the_leader(self) -> None:
        leader, standby = self.pair()
        record = json.loads(self.etcd.value(KEY) or "")
        self.assertEqual(leader.grpc, record["address"])
        self.assertEqual(self.metric(leader, "basin_leader_fence"), record["fence"])
        self.assertIn(record["holder"], standby.get("/readyz")[1])

    def test_fault_a4_an_etcd_that_is_away_stops_the_training_for_that_time(self) -> None:
        leader = self.candidate(lease="4s")
        leader.await_event("leads")
        # They are not done before it must stop.
        steps = 500
        trainers = self.workers(leader, steps=steps)
        self.await_step(trainers, 20)
        self.etcd.be_away()
        said = leader.await_event("authority_away")["reason"]
        self.assertIn("gives no answer that counts", said)
        self.assertIn(f"the key {KEY} in the etcd of standby.authority", said)
        self.assertIn(self.etcd.clients, said)
        self.await_metric(leader, "basin_leader", lambda value: value == 0)
        self.assertIn("could not renew", leader.get("/readyz")[1])
        applied = len(trainers[0].find("applied"))
        # Longer than it may decide, and not so long that it gives up.
        threading.Event().wait(1)
        self.assertLessEqual(len(trainers[0].find("applied")), applied + 1)
        self.etcd.be_back()
        self.expect_every_step(trainers, steps)
        leader.end()
        events = [line["event"] for line in leader.lines]
        self.assertEqual(1, events.count("leads"))
        self.assertNotIn("worker_lost", events)

    def test_fault_a4_without_etcd_nobody_leads_and_it_is_said_until_it_is_there(self) -> None:
        self.etcd.kill(0)
        first = self.candidate()
        self.assertIn("Nobody can take the lead", first.await_event("authority_away")["reason"])
        status, text = first.get("/readyz")
        self.assertEqual(503, status)
        self.assertIn("it is not known who leads", text)
        self.assertIn(self.etcd.clients, text)
        self.assertEqual(503, first.get("/standbyz")[0])
        self.etcd.start(0)
        first.await_event("leads")

    def test_a_key_of_something_else_is_named_and_left_alone(self) -> None:
        self.etcd.put(KEY, "of another program")
        first = self.candidate()
        said = first.await_event("authority_away")["reason"]
        self.assertIn('"of another program" is no record of a leader', said)
        self.assertEqual("of another program", self.etcd.value(KEY))

    def test_etcd_may_demand_a_user(self) -> None:
        self.etcd.require_login("basin", "secret", KEY)
        stranger = self.candidate()
        self.assertIn("etcd demands a user", stranger.await_event("authority_away")["reason"])
        stranger.end()
        password = self.folder / "password"
        password.write_text("basin:wrong", encoding="utf-8")
        self.how = [f"--standby-etcd-user-file={password}"]
        leader = self.candidate()
        # An etcd on a busy machine may not answer in time at first.
        while "standby.etcd_user_file" not in leader.await_event("authority_away")["reason"]:
            pass
        password.write_text("basin:secret", encoding="utf-8")
        leader.await_event("leads")
        # A start forgets the tokens of logins.
        self.etcd.kill(0)
        self.etcd.start(0)
        trainers = self.workers(leader, steps=60)
        self.expect_every_step(trainers, steps=60)

    def test_etcd_may_demand_certificates(self) -> None:
        certs = self.folder / "certs"
        made = run(test_standby.BASINCTL, "dev-certs", str(certs), "--host=127.0.0.1")
        self.assertEqual(0, made.returncode, made.stderr)
        self.etcd = self.enterContext(Etcd(self.folder / "certs", certs=certs))
        stranger = self.candidate()
        self.assertIn(self.etcd.clients, stranger.await_event("authority_away")["reason"])
        stranger.end()
        self.how = [
            f"--standby-etcd-ca={certs / 'ca.crt'}",
            f"--standby-etcd-cert={certs / 'client.crt'}",
            f"--standby-etcd-key={certs / 'client.key'}",
        ]
        leader, standby = self.pair()
        self.expect_every_step(self.workers(standby, leader, steps=20), steps=20)


class ThreeMembers(test_standby.Jobs):
    """Only what needs several members."""

    def test_fault_a4_a_member_of_etcd_that_dies_disturbs_nobody(self) -> None:
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        etcd = self.enterContext(Etcd(folder, members=3))
        leader = Basind(self.basind, f"--standby-authority=etcd:{etcd.clients}{KEY}")
        self.addCleanup(leader.__exit__, None, None, None)
        leader.await_serving()
        leader.await_event("leads")
        trainers = self.train(leader.grpc, 2, "1000000", "--pace-ms=5", least=2)
        self.await_steps(trainers)
        for member in range(3):
            etcd.kill(member)
            # As long as a renewal takes, so that one is due without the member.
            threading.Event().wait(1)
            self.await_steps(trainers)
            etcd.start(member)
            etcd.await_answer(member)
        self.assertEqual({3}, {mask for each in trainers for mask in self.masks(each)})
        leader.end()
        self.assertNotIn("leads_no_more", [line["event"] for line in leader.lines[:-4]])

    def await_steps(self, trainers: list[Oracle]) -> None:
        for trainer in trainers:
            trainer.await_more("applied", len(trainer.find("applied")) + 40)


if __name__ == "__main__":
    if find_etcd() is None:
        print("skipped: there is no etcd in PATH or in .cache/tools/bin; scripts/setup.sh gets one")
        sys.exit(SKIPPED)
    arguments = [Path(sys.argv.pop(1)).resolve() for _ in range(3)]
    test_standby.Jobs.basind, test_standby.BASINCTL, test_standby.Jobs.trainer = arguments
    unittest.main(verbosity=2)
