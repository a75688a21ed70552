# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Two aggregators of which one leads, by a Lease of a pretended Kubernetes. See test_standby.py.

They find the API server and the service account as in a pod: by the environment, and in a folder
that is mounted for them alone.

Usage: test_standby_lease.py BASIND BASINCTL ORACLE_TRAINER
"""

import os
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Any

import test_standby
from fake_api import FakeApi
from programs import Basind, run

SKIPPED = 77

LEASE = 1.0

# In place of /run, which /var/run is: the folder of the service account.
POD = """
mount --make-rprivate / && mount -t tmpfs pod /run && mkdir -p /run/secrets/kubernetes.io &&
ln -s "$1" /run/secrets/kubernetes.io/serviceaccount && shift && exec "$@"
"""
IN_A_POD = ("unshare", "--mount", "sh", "-c", POD, "pod")


def why_not() -> str:
    """Why this machine cannot pretend a pod; empty if it can."""
    if os.geteuid() != 0:
        return "only root can mount a folder for a process alone"
    done = subprocess.run([*IN_A_POD, "/tmp", "true"], check=False, capture_output=True, text=True)
    return done.stderr.strip()


class StandbyByLease(test_standby.Standby):
    def setUp(self) -> None:
        super().setUp()
        self.account = Path(self.enterContext(tempfile.TemporaryDirectory()))
        certs = self.account / "certs"
        made = run(test_standby.BASINCTL, "dev-certs", str(certs), "--host=127.0.0.1")
        self.assertEqual(0, made.returncode, made.stderr)
        self.api = FakeApi(certs, "secret")
        self.addCleanup(self.api.close)
        (self.account / "ca.crt").write_bytes((certs / "ca.crt").read_bytes())
        (self.account / "token").write_text("secret\n", encoding="utf-8")
        (self.account / "namespace").write_text("training", encoding="utf-8")

    def candidate(self, lease: str = f"{LEASE}s", **variables: Any) -> Basind:
        basind = Basind(
            self.basind,
            "--standby-authority=kubernetes:basin",
            f"--standby-lease={lease}",
            before=(*IN_A_POD, str(self.account)),
            KUBERNETES_SERVICE_HOST="127.0.0.1",
            KUBERNETES_SERVICE_PORT=str(self.api.port),
            **variables,
        )
        self.addCleanup(basind.__exit__, None, None, None)
        basind.await_serving()
        return basind

    def test_fault_a5_an_authority_that_loses_its_record_gets_one_leader_again(self) -> None:
        leader, standby = self.pair()
        trainers = self.workers(leader, standby)
        self.await_step(trainers, 20)
        self.api.leases.clear()
        self.assertIn("lost the record", leader.await_event("leads_no_more")["reason"])
        self.await_step(trainers, 20)
        self.expect_every_step(trainers)

    def test_the_lease_names_the_leader(self) -> None:
        leader, standby = self.pair()
        lease = self.api.lease("basin")
        self.assertEqual(leader.grpc, lease["metadata"]["annotations"]["basin/address"])
        self.assertEqual(1, lease["spec"]["leaseDurationSeconds"])
        self.assertIn(lease["spec"]["holderIdentity"], standby.get("/readyz")[1])

    def test_fault_a4_an_authority_that_is_away_stops_the_training_for_that_time(self) -> None:
        leader = self.candidate(lease="4s")
        leader.await_event("leads")
        # They are not done before it must stop.
        steps = 500
        trainers = self.workers(leader, steps=steps)
        self.await_step(trainers, 20)
        self.api.be_away()
        self.assertIn("gives no answer that counts", leader.await_event("authority_away")["reason"])
        # Longer than it may decide, and not so long that it gives up.
        self.await_metric(leader, "basin_leader", lambda value: value == 0)
        self.assertIn("could not renew", leader.get("/readyz")[1])
        applied = len(trainers[0].find("applied"))
        threading.Event().wait(1)
        self.assertLessEqual(len(trainers[0].find("applied")), applied + 1)
        self.api.be_back()
        self.expect_every_step(trainers, steps)
        leader.end()
        events = [line["event"] for line in leader.lines]
        self.assertEqual(1, events.count("leads"))
        self.assertNotIn("worker_lost", events)

    def test_the_token_may_be_replaced(self) -> None:
        leader, standby = self.pair()
        trainers = self.workers(leader, standby)
        self.await_step(trainers, 20)
        (self.account / "token").write_text("another", encoding="utf-8")
        self.api.token = "another"
        done = run(test_standby.BASINCTL, "step-down", f"--address={leader.admin}")
        self.assertEqual(0, done.returncode, done.stderr)
        standby.await_event("leads")
        self.expect_every_step(trainers)

    def test_an_account_without_a_token_is_named(self) -> None:
        (self.account / "token").unlink()
        done = subprocess.run(
            [*IN_A_POD, self.account, self.basind, "--standby-authority=kubernetes:basin"],
            env={"PATH": os.environ["PATH"], "KUBERNETES_SERVICE_HOST": "127.0.0.1",
                 "KUBERNETES_SERVICE_PORT": "1"},
            check=False,
            capture_output=True,
            text=True,
        )  # fmt: skip
        self.assertNotEqual(0, done.returncode)
        self.assertIn("automountServiceAccountToken", done.stderr)


if __name__ == "__main__":
    if reason := why_not():
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    StandbyByLease.basind, test_standby.BASINCTL, StandbyByLease.trainer = (
        Path(argument).resolve() for argument in (sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1))
    )
    unittest.main(verbosity=2)
