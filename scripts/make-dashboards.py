#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Writes Grafana's dashboards of the chart: for a fleet of aggregators, for a job, for internals.

Usage:
    scripts/make-dashboards.py             writes helm/basin/files/dashboards/*.json
    scripts/make-dashboards.py --check     changes nothing; fails if a file would change

A dashboard is a list of sections here, and its JSON has nothing that is not in this file.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "helm/basin/files/dashboards"

PANELS_IN_A_ROW = 3
WIDTH = 24 // PANELS_IN_A_ROW
HEIGHT = 8

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
JOB = 'training_job=~"$training_job"'
INSTANCE = 'instance=~"$instance"'


@dataclass(frozen=True)
class Panel:
    """A plot. `queries`: pairs of a query to Prometheus and the name of its lines."""

    title: str
    description: str
    unit: str
    queries: list[tuple[str, str]]


@dataclass(frozen=True)
class Variable:
    """What a reader chooses at the top: the values of a label of a metric."""

    name: str
    label: str
    metric: str


@dataclass(frozen=True)
class Dashboard:
    name: str
    title: str
    description: str
    sections: dict[str, list[Panel]]
    variables: list[Variable]


def rate(metric: str, labels: str = "") -> str:
    return f"rate({metric}{{{labels}}}[$__rate_interval])"


def quantile(fraction: float, histogram: str) -> str:
    buckets = f"sum by (training_job, le) ({rate(histogram + '_bucket', JOB)})"
    return f"histogram_quantile({fraction}, {buckets})"


def ratio(part: str, whole: str) -> str:
    return f"sum by (instance) ({part}) / sum by (instance) ({whole})"


def of_job(metric: str) -> str:
    return f"{metric}{{{JOB}}}"


def lately(metric: str, labels: str = "") -> str:
    return f"increase({metric}{{{labels}}}[5m])"


def counts(*metrics: tuple[str, str]) -> list[tuple[str, str]]:
    """How much counters of an aggregator have increased lately."""
    return [(lately(metric, INSTANCE), f"{{{{instance}}}} {name}") for metric, name in metrics]


FLEET = Dashboard(
    name="fleet",
    title="Basin: fleet",
    description="All aggregators and their training jobs.",
    variables=[],
    sections={
        "Training jobs": [
            Panel(
                "Jobs by state",
                "Paused, halted and recovering jobs make no progress; basinctl jobs says why.",
                "short",
                [("sum by (state) (basin_job_state)", "{{state}}")],
            ),
            Panel(
                "Rounds per second",
                "The ten jobs with the most rounds. A job that trains and has none is stuck.",
                "ops",
                [
                    (
                        f"topk(10, sum by (training_job) ({rate('basin_rounds_total')}))",
                        "{{training_job}}",
                    )
                ],
            ),
            Panel(
                "Workers",
                "The ten jobs with the most workers, whatever their state.",
                "short",
                [("topk(10, sum by (training_job) (basin_members))", "{{training_job}}")],
            ),
            Panel(
                "Lost workers",
                "The ten jobs that lost the most workers in the last five minutes.",
                "short",
                [
                    (
                        f"topk(10, sum by (training_job) ({lately('basin_evictions_total')}))",
                        "{{training_job}}",
                    )
                ],
            ),
            Panel(
                "Late workers",
                "The ten jobs whose rounds waited longer than round.late_warning most often in the "
                "last five minutes.",
                "short",
                [
                    (
                        f"topk(10, sum by (training_job) ({lately('basin_workers_late_total')}))",
                        "{{training_job}}",
                    )
                ],
            ),
            Panel(
                "Aborted rounds",
                "The ten jobs with the most rounds that were not applied, in the last five "
                "minutes.",
                "short",
                [
                    (
                        "topk(10, sum by (training_job) ("
                        + lately("basin_rounds_total", 'outcome="aborted"')
                        + "))",
                        "{{training_job}}",
                    )
                ],
            ),
        ],
        "Aggregators": [
            Panel(
                "Reachable",
                "1 while Prometheus can scrape the aggregator.",
                "short",
                [('up{job="basin"}', "{{instance}}")],
            ),
            Panel(
                "Versions",
                "The number of aggregators of each version.",
                "short",
                [("count by (version) (basin_build_info)", "{{version}}")],
            ),
            Panel(
                "Memory budget in use",
                "The part of memory.budget that is reserved. At 100 %, new tensors are refused.",
                "percentunit",
                [
                    (
                        ratio('basin_buffer_bytes{kind="reserved"}', "basin_buffer_limit_bytes"),
                        "{{instance}}",
                    )
                ],
            ),
            Panel(
                "Payload",
                "Received gradients and sent results.",
                "Bps",
                [
                    (rate("basin_contribution_bytes_total"), "{{instance}} in"),
                    (rate("basin_result_bytes_total"), "{{instance}} out"),
                ],
            ),
            Panel(
                "Processors",
                "Processor time per second.",
                "short",
                [(rate("process_cpu_seconds_total", 'job="basin"'), "{{instance}}")],
            ),
            Panel(
                "Refused peers",
                "Connections, streams and calls that were refused in the last five minutes. The "
                "log names the peers (peer_refused).",
                "short",
                [
                    (lately("basin_auth_refusals_total"), "{{instance}} {{reason}}"),
                    (lately("basin_tls_failures_total"), "{{instance}} TLS"),
                    (lately("basin_foreign_connections_total"), "{{instance}} not gRPC"),
                    (lately("basin_unknown_tokens_total"), "{{instance}} unknown session"),
                    (lately("basin_floods_total"), "{{instance}} flood"),
                ],
            ),
            Panel(
                "Refused workers",
                "Hellos that were refused in the last five minutes: for a limit, because of other "
                "settings than the job has, or for another run. The events have the reasons.",
                "short",
                [
                    (
                        lately(
                            "basin_events_total",
                            'event=~"job_refused|worker_refused|address_refused"',
                        ),
                        "{{instance}} {{event}}",
                    )
                ],
            ),
            Panel(
                "Time until a certificate expires",
                "That of the first one. After that, no worker can connect.",
                "s",
                [("basin_certificate_expiry_timestamp_seconds - time()", "{{instance}}")],
            ),
        ],
    },
)

JOB_BOARD = Dashboard(
    name="job",
    title="Basin: training job",
    description="The rounds, workers and results of training jobs.",
    variables=[Variable("training_job", "Job", "basin_job_state")],
    sections={
        "Rounds": [
            Panel(
                "Rounds per second",
                "Rounds with a verdict. A training step is one round of each optimizer.",
                "ops",
                [
                    (
                        f"sum by (training_job, outcome) ({rate('basin_rounds_total', JOB)})",
                        "{{training_job}} {{outcome}}",
                    )
                ],
            ),
            Panel(
                "Time of a round",
                "From the first begin of the round to its verdict. It includes the backward pass, "
                "which overlaps it.",
                "s",
                [
                    (quantile(0.5, "basin_round_duration_seconds"), "{{training_job}} median"),
                    (quantile(0.99, "basin_round_duration_seconds"), "{{training_job}} 99 %"),
                ],
            ),
            Panel(
                "Wait for the last worker",
                "How long a round waited only for its last worker; basinctl rounds names it.",
                "s",
                [
                    (quantile(0.5, "basin_straggler_wait_seconds"), "{{training_job}} median"),
                    (quantile(0.99, "basin_straggler_wait_seconds"), "{{training_job}} 99 %"),
                ],
            ),
        ],
        "Workers": [
            Panel(
                "Workers",
                "Workers of each job by state.",
                "short",
                [
                    (
                        f"sum by (training_job, state) ({of_job('basin_members')})",
                        "{{training_job}} {{state}}",
                    )
                ],
            ),
            Panel(
                "Late and lost workers",
                "Waits longer than round.late_warning; workers that were lost or replaced; rounds "
                "that were reduced again because of that. In the last five minutes.",
                "short",
                [
                    (
                        f"sum by (training_job) ({lately('basin_workers_late_total', JOB)})",
                        "{{training_job}} late",
                    ),
                    (
                        f"sum by (training_job, reason) ({lately('basin_evictions_total', JOB)})",
                        "{{training_job}} {{reason}}",
                    ),
                    (
                        f"sum by (training_job) ({lately('basin_attempts_restarted_total', JOB)})",
                        "{{training_job}} reduced again",
                    ),
                ],
            ),
            Panel(
                "Silence",
                "The five workers that have been silent for the longest time. After worker.lease a "
                "worker counts as lost.",
                "s",
                [
                    (
                        f"topk(5, {of_job('basin_worker_last_seen_seconds')})",
                        "{{training_job}} {{worker}}",
                    )
                ],
            ),
            Panel(
                "Contributions that were not counted",
                "Rejected, withdrawn by the trainer, or dropped with a lost worker. In the last "
                "five minutes.",
                "short",
                [
                    (
                        "sum by (training_job, result) ("
                        + lately("basin_contributions_total", f'{JOB}, result!~"accepted|carried"')
                        + ")",
                        "{{training_job}} {{result}}",
                    )
                ],
            ),
            Panel(
                "Contributions with an unusual norm",
                "In the last five minutes. They were counted; the log names the workers. Check "
                "their data and hardware.",
                "short",
                [
                    (
                        "sum by (training_job) ("
                        + lately("basin_contributions_unusual_total", JOB)
                        + ")",
                        "{{training_job}}",
                    )
                ],
            ),
            Panel(
                "Workers without window",
                "Workers that must wait before they send more to the open round. If it stays above "
                "0 while rounds are slow, raise memory.window.",
                "short",
                [(of_job("basin_workers_without_credit"), "{{training_job}} {{lane}}")],
            ),
            Panel(
                "Waits for window",
                "How often a worker had to wait for memory.window before it could send more, in "
                "the last five minutes.",
                "short",
                [
                    (
                        f"sum by (training_job) ({lately('basin_credit_stalls_total', JOB)})",
                        "{{training_job}}",
                    )
                ],
            ),
            Panel(
                "Frames without effect",
                "Duplicate after a lost acknowledgement, stale of a round that has its verdict or "
                "of an earlier life of the worker, or refused. In the last five minutes.",
                "short",
                [
                    (
                        "sum by (training_job, result) ("
                        + lately("basin_contribution_frames_total", JOB)
                        + ")",
                        "{{training_job}} {{result}}",
                    )
                ],
            ),
        ],
        "Results": [
            Panel(
                "Gradient norm",
                "2-norm of the last result of each lane.",
                "short",
                [(of_job("basin_gradient_norm"), "{{training_job}} {{lane}}")],
            ),
            Panel(
                "Contributors",
                "Trainers that were counted in the last result, and those of the job then.",
                "short",
                [
                    (of_job("basin_contributors"), "{{training_job}} {{lane}} counted"),
                    (of_job("basin_world_size"), "{{training_job}} {{lane}} of the job"),
                ],
            ),
            Panel(
                "Divisor",
                "What the sum of the last result was divided by: the number of trainers, or the "
                "sum of the weights.",
                "short",
                [(of_job("basin_divisor"), "{{training_job}} {{lane}}")],
            ),
            Panel(
                "Effective batch",
                "Samples, tokens and micro-batches of the last result, where all contributors "
                "reported them.",
                "short",
                [
                    (of_job(f"basin_effective_batch_{what}"), f"{{{{training_job}}}} {words}")
                    for what, words in (
                        ("samples", "samples"),
                        ("tokens", "tokens"),
                        ("micro_batches", "micro-batches"),
                    )
                ],
            ),
        ],
    },
)

INTERNALS = Dashboard(
    name="internals",
    title="Basin: internals",
    description="How an aggregator spends its time, memory and connections.",
    variables=[Variable("instance", "Aggregator", "basin_jobs")],
    sections={
        "Work": [
            Panel(
                "Delay of the event loop",
                "How long the oldest event has waited. Seconds mean that the processors are too "
                "few or too busy.",
                "s",
                [(f"basin_loop_delay_seconds{{{INSTANCE}}}", "{{instance}}")],
            ),
            Panel(
                "Reduction",
                "Time that reductions took per second, summed over all reduce threads.",
                "short",
                [
                    (
                        "sum by (instance, device) ("
                        + rate("basin_reduce_seconds_total", INSTANCE)
                        + ")",
                        "{{instance}} {{device}}",
                    )
                ],
            ),
            Panel(
                "Time of a reduction",
                "The mean time of reducing one range of chunks.",
                "s",
                [
                    (
                        ratio(
                            rate("basin_reduce_seconds_total", INSTANCE),
                            rate("basin_reductions_total", INSTANCE),
                        ),
                        "{{instance}}",
                    )
                ],
            ),
            Panel(
                "Processors",
                "Processor time per second.",
                "short",
                [(rate("process_cpu_seconds_total", INSTANCE), "{{instance}}")],
            ),
            Panel(
                "Traffic",
                "Bytes of all messages.",
                "Bps",
                [
                    (rate("basin_received_bytes_total", INSTANCE), "{{instance}} in"),
                    (rate("basin_sent_bytes_total", INSTANCE), "{{instance}} out"),
                ],
            ),
            Panel(
                "Events",
                "Events of each kind per second, as in the log and basinctl events.",
                "ops",
                [
                    (
                        f"sum by (event) ({rate('basin_events_total', INSTANCE)})",
                        "{{event}}",
                    )
                ],
            ),
        ],
        "Memory": [
            Panel(
                "Memory",
                "Memory that is reserved for gradients and results, its limit memory.budget, and "
                "the resident memory of the process.",
                "bytes",
                [
                    (f"basin_buffer_bytes{{{INSTANCE}}}", "{{instance}} {{kind}}"),
                    (f"basin_buffer_limit_bytes{{{INSTANCE}}}", "{{instance}} budget"),
                    (f"process_resident_memory_bytes{{{INSTANCE}}}", "{{instance}} resident"),
                ],
            ),
            Panel(
                "Connections",
                "Jobs, session streams and data streams.",
                "short",
                [
                    (f"basin_jobs{{{INSTANCE}}}", "{{instance}} jobs"),
                    (f"basin_sessions{{{INSTANCE}}}", "{{instance}} sessions"),
                    (f"basin_streams{{{INSTANCE}}}", "{{instance}} data streams"),
                ],
            ),
            Panel(
                "File descriptors",
                "Open ones, and the most that the process may have open.",
                "short",
                [
                    (f"process_open_fds{{{INSTANCE}}}", "{{instance}} open"),
                    (f"process_max_fds{{{INSTANCE}}}", "{{instance}} limit"),
                ],
            ),
        ],
        "Trouble in the last five minutes": [
            Panel(
                "Damaged and invalid input",
                "Frames with wrong bytes, and messages that break the protocol.",
                "short",
                counts(
                    ("basin_checksum_failures_total", "wrong digest"),
                    ("basin_damaged_frames_total", "wrong checksum"),
                    ("basin_malformed_frames_total", "invalid frame"),
                    ("basin_malformed_messages_total", "invalid message"),
                ),
            ),
            Panel(
                "Slow and silent peers",
                "Streams that ended because the peer did not read, or sent nothing; results that "
                "were sent again after a lost stream.",
                "short",
                counts(
                    ("basin_slow_readers_total", "did not read"),
                    ("basin_silent_calls_total", "sent nothing"),
                    ("basin_results_resent_total", "sent again"),
                ),
            ),
            Panel(
                "Failures of the host",
                "Failed writes of the state file, and connections for which no file descriptor was "
                "free.",
                "short",
                counts(
                    ("basin_state_file_failures_total", "not written"),
                    ("basin_accept_failures_total", "not accepted"),
                ),
            ),
        ],
    },
)


def variables_of(dashboard: Dashboard) -> list[dict[str, Any]]:
    source = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
        "refresh": 1,
    }
    return [source] + [
        {
            "name": variable.name,
            "label": variable.label,
            "type": "query",
            "datasource": SOURCE,
            "query": {
                "query": f"label_values({variable.metric}, {variable.name})",
                "refId": "A",
            },
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }
        for variable in dashboard.variables
    ]


def row(title: str, number: int, top: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": "row",
        "title": title,
        "collapsed": False,
        "gridPos": {"h": 1, "w": 24, "x": 0, "y": top},
        "panels": [],
    }


def plot(panel: Panel, number: int, left: int, top: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": left, "y": top},
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "custom": {"lineWidth": 1, "fillOpacity": 8, "showPoints": "never"},
            },
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": query, "legendFormat": name}
            for i, (query, name) in enumerate(panel.queries)
        ],
    }


def panels_of(dashboard: Dashboard) -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, section in dashboard.sections.items():
        panels.append(row(title, len(panels) + 1, top))
        top += 1
        for i, panel in enumerate(section):
            left = i % PANELS_IN_A_ROW * WIDTH
            panels.append(plot(panel, len(panels) + 1, left, top + i // PANELS_IN_A_ROW * HEIGHT))
        top += -(-len(section) // PANELS_IN_A_ROW) * HEIGHT
    return panels


def text_of(dashboard: Dashboard) -> str:
    board = {
        "uid": f"basin-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["basin"],
        "schemaVersion": 38,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "graphTooltip": 1,
        "templating": {"list": variables_of(dashboard)},
        "annotations": {"list": []},
        "links": [
            {
                "type": "dashboards",
                "title": "Basin",
                "tags": ["basin"],
                "asDropdown": False,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "panels": panels_of(dashboard),
    }
    return json.dumps(board, indent=2) + "\n"


def main() -> int:
    assert __doc__ is not None
    summary, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail on a difference")
    check = parser.parse_args().check
    texts = {FOLDER / f"{one.name}.json": text_of(one) for one in (FLEET, JOB_BOARD, INTERNALS)}
    stale = [
        file
        for file, text in texts.items()
        if not file.exists() or file.read_text(encoding="utf-8") != text
    ]
    if check and stale:
        names = ", ".join(file.name for file in stale)
        print(f"{names}: not what this script writes; run scripts/make-dashboards.py")
        return 1
    for file in stale:
        file.write_text(texts[file], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
