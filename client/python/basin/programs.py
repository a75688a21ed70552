# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The programs of this package's release: basind, the aggregator, and basinctl, for operators. Each
is a command of the environment in which the package is installed."""

import os
import sys
from pathlib import Path
from typing import NoReturn

_BUILT = {"basind": "aggregator/basind/basind", "basinctl": "aggregator/ctl/basinctl"}


def find(name: str) -> Path | None:
    """The program in the package or, in a source tree, in its build folder."""
    here = Path(__file__).resolve()
    built = [parent / "build/release" / _BUILT[name] for parent in here.parents[2:4]]
    return next((path for path in (here.parent / "bin" / name, *built) if path.exists()), None)


def _become(name: str) -> NoReturn:
    """Replaces this process by the program, so that it gets signals and sets the exit code."""
    program = find(name)
    if program is None:
        raise SystemExit(f"{name}: it is not built. In the source tree, build the target {name}.")
    os.execv(program, sys.argv)


def basind() -> NoReturn:
    _become("basind")


def basinctl() -> NoReturn:
    _become("basinctl")
