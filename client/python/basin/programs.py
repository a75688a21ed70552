# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The programs of this package's release: basind, the aggregator, and basinctl, for operators. Each
is a command of the environment in which the package is installed."""

import os
import sys
from pathlib import Path
from typing import NoReturn

from basin._built import built

_BUILT = {"basind": "aggregator/basind/basind", "basinctl": "aggregator/ctl/basinctl"}


def find(name: str) -> Path | None:
    """The program in the package or, in a source tree, in a build folder."""
    candidates = (Path(__file__).resolve().parent / "bin" / name, *built(_BUILT[name]))
    return next((path for path in candidates if path.exists()), None)


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
