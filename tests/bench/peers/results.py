# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The file of results and the tables made from it: pure functions of its text.

The file has one JSON object in each line. Lines with "left_out" say why a system is missing, lines
with "machine" on what was measured, and all others are runs.
"""

import dataclasses
import itertools
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

DEFAULT, TUNED = "default", "tuned"


@dataclass(frozen=True)
class Key:
    fault: str
    settings: str  # DEFAULT or TUNED.
    system: str


@dataclass(frozen=True)
class Measured:
    """What a fault did to a training.

    recovered: whether all workers that had to make a step after it did so, within the limit
    pause:     seconds; see Cost
    delay:     seconds; see Cost
    again:     the attempts at a step that a survivor lost, at most
    samples:   those of the attempts that all workers lost
    goodput:   of a storm; see Goodput
    steps:     of a storm
    note:      why there is no number
    """

    recovered: bool
    pause: float | None = None
    delay: float | None = None
    again: int | None = None
    samples: int | None = None
    goodput: float | None = None
    steps: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Run:
    """
    conditions: what must be equal in runs that are compared
    step:       seconds of an undisturbed step
    load:       the machine's, in the minute before
    took:       seconds of all of it
    """

    key: Key
    conditions: dict[str, float]
    measured: Measured
    step: float
    load: float
    took: float


@dataclass
class Results:
    runs: list[Run] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    machines: list[str] = field(default_factory=list)

    def missing(self, plan: Iterable[Key]) -> Iterator[Key]:
        """The runs of the plan that are not there yet, in its order."""
        there: dict[Key, int] = defaultdict(int)
        for run in self.runs:
            there[run.key] += 1
        for key in plan:
            if there[key]:
                there[key] -= 1
            else:
                yield key


def line_of_run(run: Run) -> str:
    return json.dumps(_rounded({**dataclasses.asdict(run.key), **_without_key(run)})) + "\n"


def line_of_left_out(system: str, reason: str) -> str:
    return json.dumps({"left_out": system, "reason": reason}) + "\n"


def line_of_machine(text: str) -> str:
    return json.dumps({"machine": text}) + "\n"


def _without_key(run: Run) -> dict[str, Any]:
    values = dataclasses.asdict(run)
    del values["key"]
    return values


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return round(value, 4) if isinstance(value, float) else value


def whole_lines(text: str) -> str:
    """Without a last line that was cut."""
    return text[: text.rfind("\n") + 1]


def read(text: str) -> Results:
    results = Results()
    for line in whole_lines(text).splitlines():
        values = json.loads(line)
        if "left_out" in values:
            results.left_out[values["left_out"]] = values["reason"]
        elif "machine" in values:
            if values["machine"] not in results.machines:
                results.machines.append(values["machine"])
        else:
            key = Key(*(values.pop(each.name) for each in dataclasses.fields(Key)))
            measured = Measured(**values.pop("measured"))
            results.runs.append(Run(key=key, measured=measured, **values))
    return results


def plan(
    systems: Collection[str], settings: Collection[str], faults: Collection[str], runs: int
) -> list[Key]:
    """In rounds, so that what is there when it is cut compares all systems, and so that what else
    the machine does meets all of them."""
    return [
        Key(fault, setting, system)
        for _, fault, setting, system in itertools.product(range(runs), faults, settings, systems)
    ]
