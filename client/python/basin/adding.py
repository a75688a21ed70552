# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""`basin-run add`: asks a basin-run of this machine for one more worker, and finds its process:
users of a wrapper do not know the number."""

import argparse
import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path


def runs() -> dict[int, str]:
    """The processes of this user's basin-runs, with the name of the job of each: their workers have
    both in their environment."""
    found: dict[int, str] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # Another user's, or ended.
            variables = dict(
                each.partition("=")[::2]
                for each in (process / "environ").read_text(errors="replace").split("\0")
            )
            run = variables.get("BASIN_RUN_PROCESS", "")
            if run.isdecimal() and _is_running(int(run)):
                found[int(run)] = variables.get("BASIN_JOB", "")
    return found


def _is_running(process: int) -> bool:
    """Whether the process is a basin-run, and not one that has got its number since."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        return any(word.endswith((b"basin-run", b"basin.launch", b"launch.py")) for word in words)
    return False


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="basin-run add",
        description="Asks a running basin-run for one more worker. It needs --max-workers.",
    )
    parser.add_argument(
        "process",
        nargs="?",
        type=int,
        metavar="PROCESS",
        help="the number of its process (default: the one that runs on this machine)",
    )
    process = parser.parse_args(arguments).process
    found = runs()
    if process is None and len(found) != 1:
        names = ", ".join(f"{each} (job {job})" for each, job in sorted(found.items()))
        raise SystemExit(
            f"basin-run add: several run here: {names}. Name the process of one."
            if found
            else "basin-run add: no basin-run of this user with workers runs here."
        )
    process = next(iter(found)) if process is None else process
    if process not in found:
        raise SystemExit(
            f"basin-run add: process {process} is no basin-run of this user with workers."
        )
    try:
        os.kill(process, signal.SIGRTMIN)
    except ProcessLookupError:
        raise SystemExit(
            f"basin-run add: job {found[process]} of process {process} has just ended."
        ) from None
    print(f"basin-run add: asked process {process} for one more worker of job {found[process]}")
    return 0
