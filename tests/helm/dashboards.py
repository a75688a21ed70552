# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The dashboards' queries to Prometheus."""

import functools
import json
import re
from collections.abc import Iterator
from typing import Any

from tools import CHART, ROOT

FILES = CHART / "files/dashboards"

# The names of basind's metrics are literals in the code that writes them.
_EXPORTERS = (ROOT / "aggregator/telemetry", ROOT / "aggregator/basind")
_METRIC = r"\b(?:basin|process)_[a-z0-9_]+\b"
_OF_A_HISTOGRAM = ("_bucket", "_sum", "_count")


def load() -> dict[str, dict[str, Any]]:
    """By name: fleet, internals, job."""
    return {
        file.stem: json.loads(file.read_text(encoding="utf-8"))
        for file in sorted(FILES.glob("*.json"))
    }


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels with content, in order."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Pairs of panel title and query, with Grafana's variables filled in."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            query = target["expr"].replace("$__rate_interval", "1m")
            yield panel["title"], re.sub(r"\$(training_job|instance)", ".*", query)


def metrics_in(query: str) -> set[str]:
    """The names of Basin's metrics in a query, without labels and their values."""
    return set(re.findall(_METRIC, re.sub(r"\{[^}]*\}|\bby \([^)]*\)", "", query)))


@functools.cache
def exported_metrics() -> frozenset[str]:
    """The names of all of basind's metrics, with those that a histogram adds."""
    names: set[str] = set()
    for source in sorted(file for folder in _EXPORTERS for file in folder.rglob("*.cc")):
        names |= set(re.findall(f'"({_METRIC})"', source.read_text(encoding="utf-8")))
    return frozenset(names | {name + suffix for name in names for suffix in _OF_A_HISTOGRAM})
