#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What a fault costs a training of four workers: Basin beside TorchElastic, torchft and Horovod.

Each run starts a system anew, waits until all workers train, does one fault, and waits until all
survivors have made a new step: one with a number beyond all before the fault.

  kill         kill -9 of one worker
  stop         SIGSTOP of one worker, which stays stopped
  term         SIGTERM of one worker
  join         one more worker starts while three train
  coordinator  kill -9 of what coordinates the workers, which is started again at once
  storm        kill -9 of one worker every 15 s, of each in turn, which is started again at once

--out gets one line of JSON for each run when it ends, and --continue adds the runs that are missing
in it. --table prints the tables of such a file. README.md beside this says what is measured, and
which settings each system has.

examples:
  peers.py --build build/release --out peers.jsonl
  peers.py --build build/release --out peers.jsonl --continue --runs 20 --settings default,tuned
  peers.py --build build/release --out peers.jsonl --systems basin,torchft --faults kill,stop
  peers.py --table peers.jsonl
"""

import argparse
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType

import results
import table
from faults import FAULTS, DidNotStart, Limits, conditions_of, run
from processes import adopt_orphans
from results import DEFAULT, TUNED, Key
from systems import SYSTEMS, Conditions

STARTS = 3  # Tries to start a system, before it is given up.


def listed(known: Collection[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := set(names) - set(known):
            raise argparse.ArgumentTypeError(
                f"{', '.join(sorted(unknown))} is not known; choose from {', '.join(known)}"
            )
        return names

    return parse


def parser() -> argparse.ArgumentParser:
    assert __doc__ is not None
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = made.add_argument
    add("--build", type=Path, help="the folder of a build of Basin")
    add("--out", type=Path, metavar="FILE", help="the results")
    add("--continue", action="store_true", dest="go_on", help="FILE exists; add what is missing")
    add("--table", type=Path, metavar="FILE", help="print the tables of these results, and end")
    add("--systems", type=listed(SYSTEMS), default=list(SYSTEMS), metavar="NAME,...")
    add("--faults", type=listed(FAULTS), default=list(FAULTS), metavar="NAME,...")
    add("--settings", type=listed((DEFAULT, TUNED)), default=[DEFAULT], metavar="default,tuned")
    add("--tuned", action="store_true", help="each system's best settings: --settings tuned")
    add("--runs", type=int, default=3, help="of each fault (default: 3)")
    add("--minutes", type=float, help="begin no run after this time")
    add("--limit", type=float, default=90, help="seconds until it never recovers (default: 90)")
    add("--storm", type=float, default=300, help="seconds of a storm (default: 300)")
    add("--keep", type=Path, metavar="FOLDER", help="for logs and outputs of all runs")
    add("--step", type=float, default=0.1, help="idle seconds in each step (default: 0.1)")
    return made


def machine(names: Collection[str], build: Path) -> str:
    versions = [SYSTEMS[name].version(build) for name in names]
    return (
        f"{os.cpu_count()} cores, {_processor()}, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}; {'; '.join(versions)}."
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


class Runs:
    """Does the runs that are missing in a file of results, and appends them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._failed: dict[tuple[str, str], int] = {}
        self._limits = Limits(recovery=options.limit, storm=options.storm)

    def do(self) -> None:
        options = self._options
        there = self._there()
        systems = [name for name in options.systems if not SYSTEMS[name].missing()]
        for name in options.systems:
            if (reason := SYSTEMS[name].missing()) and there.left_out.get(name) != reason:
                self._append(results.line_of_left_out(name, reason))
        text = machine(systems, options.build)
        if text not in there.machines:
            self._append(results.line_of_machine(text))
        end = time.monotonic() + (options.minutes or float("inf")) * 60
        missing = there.missing(
            results.plan(systems, options.settings, options.faults, options.runs)
        )
        for key in missing:
            if time.monotonic() > end:
                print("peers: the time is over; go on with --continue", file=sys.stderr)
                return
            self._do(key)

    def _there(self) -> results.Results:
        out: Path = self._options.out
        if not out.exists():
            return results.Results()
        if not self._options.go_on:
            raise SystemExit(f"peers: {out} exists; add --continue, or give another file")
        text = results.whole_lines(out.read_text())
        out.write_text(text)
        there = results.read(text)
        for each in there.runs:
            conditions = conditions_of(self._conditions(each.key), self._limits)
            if each.conditions != conditions:
                raise SystemExit(
                    f"peers: the runs in {out} were made with {each.conditions}, and these would "
                    f"be with {conditions}; give another file, or the same options"
                )
        return there

    def _conditions(self, key: Key) -> Conditions:
        return Conditions(
            build=self._options.build,
            tuned=key.settings == TUNED,
            step=self._options.step,
        )

    def _do(self, key: Key) -> None:
        print(f"peers: {key.fault}, {key.system}, {key.settings}", file=sys.stderr)
        for number in range(1, STARTS + 1):
            try:
                self._append(
                    results.line_of_run(
                        run(key, self._conditions(key), self._limits, self._options.keep)
                    )
                )
                return
            except DidNotStart as failure:
                print(f"peers: start {number} of {key.system} failed: {failure}", file=sys.stderr)
        raise SystemExit(f"peers: {key.system} does not start to train")

    def _append(self, line: str) -> None:
        with self._options.out.open("a") as out:
            out.write(line)
        print(line, end="", file=sys.stderr)


def end(number: int, frame: FrameType | None) -> None:
    """Ends with all that has been started."""
    raise SystemExit(f"peers: ended by {signal.Signals(number).name}")


def main() -> None:
    options = parser().parse_args()
    if options.table:
        print(table.in_markdown(results.read(options.table.read_text())), end="")
        return
    if not options.build or not options.out:
        raise SystemExit("peers: give --build and --out, or --table; see --help")
    options.build = options.build.resolve()
    if options.tuned:
        options.settings = [TUNED]
    signal.signal(signal.SIGTERM, end)
    adopt_orphans()
    Runs(options).do()
    print(table.in_markdown(results.read(options.out.read_text())), end="")


if __name__ == "__main__":
    main()
