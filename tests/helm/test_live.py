# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes a live basind while a job trains, and every query has an answer.

Usage: test_live.py BASIND LIBBASIN BASINCTL
"""

import importlib.util
import json
import re
import subprocess
import sys
import unittest

import dashboards
from live import Watched, await_that
from tools import CHART, ROOT, SKIPPED, require

BASIND = ""
BASINCTL = ""
WORKER = ROOT / "examples/plain_python/worker.py"


class Live(Watched):
    def setUp(self) -> None:
        super().setUp()
        self.certs = self.folder / "certs"
        subprocess.run([BASINCTL, "dev-certs", self.certs], check=True, stdout=subprocess.DEVNULL)
        grpc, http = self.start_basind("serve", "--local-listen=none", "--admin-listen=127.0.0.1:0")
        _, shard = self.start_basind("shard", f"--coordinator={grpc}", "--name=shard-1")
        for worker in ("a", "b"):
            self.start(
                worker,
                sys.executable,
                WORKER,
                *("--fresh", "--job=digits", "--workers=2", "--rounds=1000000", "--elements=1000"),
                *(f"--address={grpc}", f"--worker={worker}"),
            )
        self.watch(http, ca=self.certs / "ca.crt", shards=[shard])

    def start_basind(self, command: str, *arguments: str) -> tuple[str, str]:
        """The addresses for workers and for Prometheus."""
        ports = [f"--{name}-listen=127.0.0.1:0" for name in ("grpc", "http")]
        # The time until a certificate expires is on a dashboard.
        tls = [
            f"--http-tls-cert={self.certs / 'server.crt'}",
            f"--http-tls-key={self.certs / 'server.key'}",
        ]
        process = self.start(command, BASIND, command, *arguments, *ports, *tls)
        log = self.log_of(command)
        await_that(lambda: '"event":"serving"' in log.read_text(), process, log)
        (line,) = [line for line in log.read_text().splitlines() if '"event":"serving"' in line]
        addresses = json.loads(line)["addresses"]
        return addresses["grpc"], addresses["http"]

    def test_every_query_of_the_dashboards_has_series(self) -> None:
        # The job trains: the number of its rounds increases with each scrape. A rate needs two
        # scrapes, and the shard has its own.
        trains = 'rate(basin_rounds_total{training_job="digits", outcome="committed"}[1m]) > 0'
        shard = 'rate(basin_contribution_bytes_total{job="basin-shard"}[1m])'
        self.await_scraped(lambda: self.has_series(trains) and self.has_series(shard))
        for board in dashboards.load().values():
            for title, query in dashboards.queries(board):
                with self.subTest(board["title"], panel=title, query=query):
                    self.assertTrue(self.has_series(query))
        with self.subTest("a query for what is not there"):
            self.assertFalse(self.has_series("basin_surprise_total"))
        with self.subTest("the jobs to choose from"):
            data = self.ask("label/training_job/values", **{"match[]": "basin_job_state"})
            self.assertEqual(["digits"], data)

        names = re.findall(r"- alert: (\w+)", (CHART / "files/alerts.yaml").read_text())
        self.assertGreater(len(names), 10)
        rules = [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]
        self.assertEqual(
            {(name, "ok") for name in names},
            {(rule["name"], rule["health"]) for rule in rules},
        )
        self.assertNotIn("firing", [rule["state"] for rule in rules])


if __name__ == "__main__":
    require("prometheus")
    if len(sys.argv) > 1:
        BASIND, _, BASINCTL = sys.argv[1:]
    missing = [name for name in ("grpc", "xxhash") if importlib.util.find_spec(name) is None]
    if missing or not BASIND:
        print(f"skipped: there is no {', '.join(missing) or 'basind'}")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1], verbosity=2)
