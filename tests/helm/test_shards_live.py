# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A shard connects with an aggregator by what the chart writes for both, with real certificates and
tokens in place of the Secrets.

Usage: test_shards_live.py BASIND BASINCTL
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import chart
from chart import SECURED, Manifest, Values
from tools import ROOT, SKIPPED, require

sys.path.insert(0, str(ROOT / "tests/aggregator/basind"))
from programs import PATIENCE, Basind, clean_environment, run

BASIND = Path()
BASINCTL = Path()
# The chart names pods and ports; here all is on this machine.
AGGREGATOR = "demo-basin-0.demo-basin.training.svc"
SHARD = "demo-basin-shard-0.demo-basin-shard.training.svc"


class Connected(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        tls, auth, own = (self.folder / f"basin-{name}" for name in ("tls", "auth", "shard"))
        for folder in (tls, auth, own):
            folder.mkdir()
        certs = self.folder / "certs"
        made = run(BASINCTL, "dev-certs", str(certs))
        self.assertEqual(0, made.returncode, made.stderr)
        # As the commands of docs/kubernetes-reference.md have them.
        for source, target in (
            ("server.crt", tls / "tls.crt"),
            ("server.key", tls / "tls.key"),
            ("ca.crt", tls / "ca.crt"),
            ("client.crt", own / "client.crt"),
            ("client.key", own / "client.key"),
        ):
            target.write_bytes((certs / source).read_bytes())
        self.grants = auth / "grants"
        self.token = own / "token"
        self.give("shard")

    def give(self, role: str) -> None:
        """The only token is one of this role, and the shard has it."""
        made = run(BASINCTL, "token", "new", f"--role={role}", "--jobs=*")
        self.assertEqual(0, made.returncode, made.stderr)
        self.token.write_text(made.stdout)
        self.grants.write_text(made.stderr)

    def start(
        self, manifests: list[Manifest], of_shards: bool, coordinator: str = "", **variables: str
    ) -> Basind:
        find = chart.of_shards if of_shards else chart.one
        text = chart.configuration(manifests, find)
        for port in ("29600", "29601"):
            text = text.replace(f"0.0.0.0:{port}", "127.0.0.1:0")
        text = text.replace(f"{AGGREGATOR}:29600", coordinator)
        text = text.replace("/etc/", f"{self.folder}/")
        text = text.replace("/var/lib/basin/members", str(self.folder / "members"))
        file = self.folder / f"{'shard' if of_shards else 'aggregator'}.yaml"
        file.write_text(text)
        template = find(manifests, "StatefulSet")["spec"]["template"]["spec"]
        command = template["containers"][0]["args"][0]
        arguments = (command, f"--config={file}", "--admin-listen=127.0.0.1:0")
        basind = Basind(BASIND, *arguments, ports=(), before=(), patience=PATIENCE, **variables)
        self.addCleanup(basind.__exit__, None, None, None)
        basind.await_serving()
        return basind

    def connect(self, values: Values) -> tuple[Basind, Basind]:
        manifests = chart.render("helm-4", values)
        aggregator = self.start(manifests, False)
        template = chart.of_shards(manifests, "StatefulSet")["spec"]["template"]["spec"]
        env = {one["name"]: one.get("value", "") for one in template["containers"][0]["env"]}
        env["BASIN_SHARD_NAME"] = "demo-basin-shard-0"
        advertised = env["BASIN_SHARD_ADVERTISE"].replace(
            "$(BASIN_SHARD_NAME)", env["BASIN_SHARD_NAME"]
        )
        self.assertEqual(f"{SHARD}:29600", advertised)
        env["BASIN_SHARD_ADVERTISE"] = advertised
        return aggregator, self.start(manifests, True, coordinator=aggregator.grpc, **env)

    def test_with_certificates_and_a_token(self) -> None:
        values = {**SECURED, "shards": {"count": 1, "existingSecret": "basin-shard"}}
        aggregator, shard = self.connect(values)
        shard.await_event("linked")
        # The address that workers will get.
        aggregator.await_event("shard_up")
        # The aggregator sends it to workers.
        self.assertIn(f"reach it at {SHARD}:29600", shard.lines[0]["reason"])
        self.assertEqual(200, shard.get("/readyz")[0])

    def test_with_a_token_of_another_role(self) -> None:
        self.give("worker")
        values = {
            "tls": {"existingSecret": "basin-tls"},
            "auth": SECURED["auth"],
            "shards": {"count": 1, "existingSecret": "basin-shard"},
        }
        _, shard = self.connect(values)
        self.assertIn("needs the role shard", shard.await_event("coordinator_refused")["reason"])
        # A rollout does not go on.
        self.assertEqual(503, shard.get("/readyz")[0])

    def test_on_a_network_that_is_trusted(self) -> None:
        _, shard = self.connect({"config": chart.TRUSTED, "shards": {"count": 1}})
        shard.await_event("linked")
        asked = subprocess.run(
            [BASIND, "healthcheck", "--ready", f"--http-listen={shard.http}"],
            env=clean_environment(),
            check=False,
        )
        self.assertEqual(0, asked.returncode)


if __name__ == "__main__":
    require("helm-4")
    if len(sys.argv) != 3:
        print("skipped: there is no basind")
        sys.exit(SKIPPED)
    BASIND, BASINCTL = (Path(argument).resolve() for argument in sys.argv[1:])
    unittest.main(argv=sys.argv[:1], verbosity=2)
