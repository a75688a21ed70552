# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The tables of results, in Markdown: pure functions."""

import statistics
from collections.abc import Callable, Iterable
from typing import Any

from results import Measured, Results, Run

FAULTS = {
    "kill": "kill -9 of one",
    "stop": "SIGSTOP of one",
    "term": "SIGTERM of one",
    "join": "one joins three",
    "coordinator": "kill -9 of the coordinator",
}
STORM = "storm"
SYSTEMS = {
    "basin": "Basin",
    "torchelastic": "TorchElastic",
    "torchft": "torchft",
    "horovod": "Horovod",
}
FAULT_HEADS = (
    "fault",
    "system",
    "settings",
    "s lost, median",
    "most",
    "s without a step, median",
    "steps made again, most",
    "samples lost, median",
    "never",
)
STORM_HEADS = (
    "system, in a storm of kills",
    "settings",
    "goodput, median",
    "least",
    "steps, median",
    "samples lost, median",
    "never",
)


def in_markdown(results: Results) -> str:
    """All of it: both tables, what is missing, and what was measured where."""
    parts = [
        _table(FAULT_HEADS, (_row_of_fault(*each) for each in _groups(results, tuple(FAULTS)))),
        _table(STORM_HEADS, (_row_of_storm(*each) for each in _groups(results, (STORM,)))),
        "\n".join(
            f"{SYSTEMS.get(system, system)} is missing: {reason}"
            for system, reason in sorted(results.left_out.items())
        ),
        _surroundings(results),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _groups(results: Results, faults: tuple[str, ...]) -> Iterable[tuple[str, str, str, list[Run]]]:
    """Runs of the same fault, settings and system; the settings of a system below each other."""
    keys = {run.key for run in results.runs if run.key.fault in faults}
    systems = tuple(SYSTEMS)
    for key in sorted(
        keys, key=lambda k: (faults.index(k.fault), systems.index(k.system), k.settings)
    ):
        yield key.fault, key.system, key.settings, [r for r in results.runs if r.key == key]


def _row_of_fault(fault: str, system: str, settings: str, runs: list[Run]) -> tuple[str, ...]:
    measured = [run.measured for run in runs]
    return (
        FAULTS[fault],
        SYSTEMS[system],
        settings,
        _of(statistics.median, measured, "delay", ".2f"),
        _of(max, measured, "delay", ".2f"),
        _of(statistics.median, measured, "pause", ".2f"),
        _of(max, measured, "again", "d"),
        _of(statistics.median, measured, "samples", ".0f"),
        _never(measured),
    )


def _row_of_storm(_: str, system: str, settings: str, runs: list[Run]) -> tuple[str, ...]:
    measured = [run.measured for run in runs]
    return (
        SYSTEMS[system],
        settings,
        _of(statistics.median, measured, "goodput", ".2f"),
        _of(min, measured, "goodput", ".2f"),
        _of(statistics.median, measured, "steps", ".0f"),
        _of(statistics.median, measured, "samples", ".0f"),
        _never(measured),
    )


def _of(
    statistic: Callable[[list[Any]], float], measured: list[Measured], name: str, form: str
) -> str:
    values = [getattr(each, name) for each in measured if getattr(each, name) is not None]
    return format(statistic(values), form) if values else "-"


def _never(measured: list[Measured]) -> str:
    """With why, if that is known."""
    failed = [each for each in measured if not each.recovered]
    notes = sorted({each.note for each in failed if each.note})
    return f"{len(failed)} of {len(measured)}" + (f" ({'; '.join(notes)})" if notes else "")


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if not lines:
        return ""
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *lines])


def _surroundings(results: Results) -> str:
    if not results.runs:
        return ""
    loads = [run.load for run in results.runs]
    steps = [run.step * 1e3 for run in results.runs]
    minutes = sum(run.took for run in results.runs) / 60
    lines = [
        *results.machines,
        f"Load before the runs: median {statistics.median(loads):.1f}, most {max(loads):.1f}.",
        f"Undisturbed step: median {statistics.median(steps):.0f} ms, most {max(steps):.0f} ms.",
        f"Runs: {len(results.runs)}, {minutes:.0f} minutes.",
        *sorted({str(run.conditions) for run in results.runs}),
    ]
    return "\n".join(lines)
