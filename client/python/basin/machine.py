# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The place of this process among the workers of its machine, from its launcher: basin-run, or one
that sets the variables of torchrun."""

import os


def local_rank() -> int:
    return _number("BASIN_RUN_RANK", "LOCAL_RANK", 0)


def local_size() -> int:
    return _number("BASIN_RUN_SIZE", "LOCAL_WORLD_SIZE", 1)


def number() -> int:
    """The number of this machine among those of the workers."""
    return _number("BASIN_RUN_MACHINE", "GROUP_RANK", 0)


def machines() -> int:
    return _number("BASIN_RUN_MACHINES", "GROUP_WORLD_SIZE", 1)


def _number(of_basin_run: str, of_others: str, default: int) -> int:
    return int(os.environ.get(of_basin_run) or os.environ.get(of_others) or default)
