# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes a live basind while a job trains, and every query has an answer.

Usage: test_live.py BASIND
"""

import contextlib
import importlib.util
import json
import re
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dashboards
from tools import CHART, ROOT, SKIPPED, require, tool

BASIND = ""
WORKER = ROOT / "examples/plain_python/worker.py"

# Prometheus scrapes once a second; a rate needs two scrapes.
ATTEMPTS = 240
PAUSE_SECONDS = 0.25

CONFIGURATION = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: basin
    static_configs: [{{targets: ["{target}"]}}]
"""


@contextlib.contextmanager
def program(*command: str | Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs until the end of the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def await_that(holds: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Waits until it holds; AssertionError if `process` ends before that, or it never holds."""
    for _ in range(ATTEMPTS):
        if holds():
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=PAUSE_SECONDS)
            break
    raise AssertionError(f"{process.args!r}: what was waited for did not come:\n{log.read_text()}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Live(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        grpc, http = self.start_basind()
        for worker in ("a", "b"):
            self.start(
                worker,
                sys.executable,
                WORKER,
                *("--fresh", "--job=digits", "--workers=2", "--rounds=1000000", "--elements=1000"),
                *(f"--address={grpc}", f"--worker={worker}"),
            )
        self.prometheus = f"http://127.0.0.1:{free_port()}"
        configuration = self.folder / "prometheus.yaml"
        configuration.write_text(
            CONFIGURATION.format(rules=CHART / "files/alerts.yaml", target=http), encoding="utf-8"
        )
        self.scraper = self.start(
            "prometheus",
            tool("prometheus"),
            f"--config.file={configuration}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address={self.prometheus.removeprefix('http://')}",
        )

    def log_of(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def start(self, name: str, *command: str | Path) -> subprocess.Popen[bytes]:
        return self.enterContext(program(*command, log=self.log_of(name)))

    def start_basind(self) -> tuple[str, str]:
        """The addresses for workers and for Prometheus."""
        ports = [f"--{name}-listen=127.0.0.1:0" for name in ("grpc", "http", "admin")]
        process = self.start("basind", BASIND, "serve", *ports)
        log = self.log_of("basind")
        await_that(lambda: '"event":"serving"' in log.read_text(), process, log)
        found = re.search(r"workers on ([\d.:]+),.* metrics on ([\d.:]+);", log.read_text())
        assert found is not None
        return found[1], found[2]

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of the answer; None while Prometheus does not answer."""
        url = f"{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def has_series(self, query: str) -> bool:
        data = self.ask("query", query=query)
        return data is not None and len(data["result"]) > 0

    def test_every_query_of_the_dashboards_has_series(self) -> None:
        log = self.log_of("prometheus")
        # The job trains: the number of its rounds increases with each scrape.
        trains = 'rate(basin_rounds_total{training_job="digits", outcome="committed"}[1m]) > 0'
        await_that(lambda: self.has_series(trains), self.scraper, log)
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
    BASIND = sys.argv[1] if len(sys.argv) > 1 else ""
    missing = [name for name in ("grpc", "xxhash") if importlib.util.find_spec(name) is None]
    if missing or not BASIND:
        print(f"skipped: there is no {', '.join(missing) or 'basind'}")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1], verbosity=2)
