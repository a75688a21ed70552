# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The programs of the same release as this package: basind, the aggregator, and basinctl, for
operators. Each is a command of the environment that the package is installed in."""

import os
import sys
from pathlib import Path
from typing import NoReturn

_BUILT = {"basind": "aggregator/basind/basind", "basinctl": "aggregator/ctl/basinctl"}


def find(name: str) -> Path | None:
    """The program that came with the package or, in a source tree, that was built in it."""
    here = Path(__file__).resolve()
    built = [parent / "build/release" / _BUILT[name] for parent in here.parents[2:4]]
    return next((path for path in (here.parent / "bin" / name, *built) if path.exists()), None)


def _become(name: str) -> NoReturn:
    """Runs the program in the place of this process, so that signals and its code are its own."""
    program = find(name)
    if program is None:
        raise SystemExit(f"{name}: it is not built. In the source tree, build the target {name}.")
    os.execv(program, sys.argv)


def basind() -> NoReturn:
    _become("basind")


def basinctl() -> NoReturn:
    _become("basinctl")
