# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A script that ends with an error of Basin has the exit code of the error, so that whatever
restarts it can distinguish the kinds of errors. A paused job's wait that ended because the worker
has to leave ends with 0. Python itself ends with 1 for every exception.
"""

import sys
from types import TracebackType

from basin import client
from basin.errors import Error


def _end(kind: type[BaseException], exception: BaseException, trace: TracebackType | None) -> None:
    if client.ends_well_with(exception):
        raise SystemExit(0)
    sys.__excepthook__(kind, exception, trace)
    # An exit would end an interactive session, which continues after an exception.
    interactive = hasattr(sys, "ps1") or sys.flags.inspect
    if isinstance(exception, Error) and exception.exit_code != 1 and not interactive:
        # Python takes this from a hook like one from the script.
        raise SystemExit(exception.exit_code)


def install() -> None:
    """Does nothing if the script has an excepthook of its own."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _end
