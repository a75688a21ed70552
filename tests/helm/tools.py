# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The tools that scripts/setup.sh installs in .cache/tools."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".cache" / "tools"
CHART = ROOT / "helm" / "basin"

# The exit status of a test that cannot run on this machine.
SKIPPED = 77


def tool(name: str) -> str:
    """Path of "helm-3", "helm-4", "promtool" or "prometheus"."""
    return str(TOOLS / "bin" / name)


def load_all(text: str) -> Iterator[Any]:
    """The documents of a YAML file, read by libyaml, which takes a tenth of the time."""
    return yaml.load_all(text, yaml.CSafeLoader)


def require(*names: str) -> None:
    """Ends the program as skipped if one of the tools is missing."""
    missing = [name for name in names if not Path(tool(name)).exists()]
    if missing:
        print(f"skipped: {', '.join(missing)} not in {TOOLS}; scripts/setup.sh installs them")
        sys.exit(SKIPPED)
