# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Whether this process is a fork of the one that made something. A system call would find it out
too, but costs more than the rest of a hook."""

import os

_count = [0]


def count() -> int:
    """How many forks lie between the first process and this one, as far as Python knows."""
    return _count[0]


def _in_child() -> None:
    _count[0] += 1


os.register_at_fork(after_in_child=_in_child)
