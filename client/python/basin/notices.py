# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What Basin tells the user beside its results: log lines and warnings. None of them ends a
training: a stderr that is closed, broken or full loses them instead, and so does a logging handler
that fails."""

import atexit
import contextlib
import logging
import os
import sys
import warnings
from collections.abc import MutableMapping
from typing import Any


class _Logger(logging.LoggerAdapter[logging.Logger]):
    def log(self, level: int, msg: object, *arguments: Any, **options: Any) -> None:
        options["stacklevel"] = options.get("stacklevel", 1) + 1  # The caller of this.
        with contextlib.suppress(Exception):
            super().log(level, msg, *arguments, **options)

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, kwargs


logger = _Logger(logging.getLogger("basin"))


class ContributorsChanged(UserWarning):
    """Warns of a result that is not over the workers that it should be over."""


def warn(text: str, category: type[Warning]) -> None:
    """Issues a warning that names the user's line: the first one outside this package, torch and
    MXNet. A filter of the user can make it an error."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: sys.stderr was closed.
        warnings.warn(text, category, stacklevel=_levels_to_the_user())


def _levels_to_the_user() -> int:
    """As the stacklevel of the caller's warning."""
    packages = (
        sys.modules[name].__file__ for name in ("basin", "mxnet", "torch") if name in sys.modules
    )
    folders = tuple(os.path.dirname(each) + os.sep for each in packages if each is not None)
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(folders):
        level, frame = level + 1, frame.f_back
    return level


def tell(line: str) -> None:
    """Writes a line to stderr in one piece, among those of other workers."""
    with contextlib.suppress(Exception):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


@atexit.register
def _drop_unwritten() -> None:
    """A line that cannot be written stays in the buffer of stderr, and would make the interpreter
    end with 120."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:
        with contextlib.suppress(Exception):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stderr.fileno())
            os.close(nowhere)
    except ValueError:
        pass  # The script has closed it.
