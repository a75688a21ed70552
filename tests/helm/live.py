# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A real Prometheus that scrapes a live basind."""

import contextlib
import json
import socket
import subprocess
import tempfile
import unittest
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tools import CHART, tool

# Prometheus scrapes once a second; a rate needs two scrapes.
ATTEMPTS = 240
PAUSE_SECONDS = 0.25

CONFIGURATION = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: basin
    scheme: {scheme}
    tls_config: {{ca_file: "{ca}"}}
    static_configs: [{{targets: ["{target}"]}}]
  - job_name: basin-shard
    scheme: {scheme}
    tls_config: {{ca_file: "{ca}"}}
    static_configs: [{{targets: [{shards}]}}]
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


class Watched(unittest.TestCase):
    """Each test has a folder for logs; `watch` starts Prometheus."""

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def log_of(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def start(self, name: str, *command: str | Path) -> subprocess.Popen[bytes]:
        return self.enterContext(program(*command, log=self.log_of(name)))

    def watch(
        self,
        target: str,
        rules: Path = CHART / "files/alerts.yaml",
        ca: Path | None = None,
        shards: Sequence[str] = (),
    ) -> None:
        """`ca`: the CA of the certificates of the targets; without it, there is no TLS."""
        self.prometheus = f"http://127.0.0.1:{free_port()}"
        configuration = self.folder / "prometheus.yaml"
        scheme = "http" if ca is None else "https"
        configuration.write_text(
            CONFIGURATION.format(
                rules=rules,
                target=target,
                scheme=scheme,
                ca=ca or "",
                shards=", ".join(f'"{shard}"' for shard in shards),
            ),
            encoding="utf-8",
        )
        self.scraper = self.start(
            "prometheus",
            tool("prometheus"),
            f"--config.file={configuration}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address={self.prometheus.removeprefix('http://')}",
        )

    def await_scraped(self, holds: Callable[[], bool]) -> None:
        await_that(holds, self.scraper, self.log_of("prometheus"))

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

    def firing(self) -> set[str] | None:
        """The names of the alerts that fire."""
        data = self.ask("alerts")
        if data is None:
            return None
        return {
            alert["labels"]["alertname"] for alert in data["alerts"] if alert["state"] == "firing"
        }
