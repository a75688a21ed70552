# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Horovod's timeline over Basin's, which is written from the start to the end of a worker."""

import os
from pathlib import Path

from basin import machine
from basin.client import Client
from basin.errors import Unsupported


def wanted() -> str | None:
    """Where HOROVOD_TIMELINE says; each worker has a file of its own. Basin's own variable comes
    first, and DYNAMIC stands for start_timeline()."""
    said = os.environ.get("HOROVOD_TIMELINE", "")
    if os.environ.get("BASIN_TIMELINE") or said in ("", "DYNAMIC"):
        return None
    path = Path(said)
    mine = f"{machine.number()}-{machine.local_rank()}"
    return str(path.with_name(f"{path.stem}.{mine}{path.suffix}"))


def check_written(call: str, client: Client) -> None:
    """Raises Unsupported, with the way out, if no timeline is written."""
    if not client.worker.options["timeline"]:
        raise Unsupported(
            f"{call} found no timeline: Basin writes one from the start of a worker on. Set "
            "BASIN_TIMELINE to a folder, or HOROVOD_TIMELINE to a file, before you start the "
            "workers."
        )
