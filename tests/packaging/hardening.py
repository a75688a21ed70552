# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Finds which protections of a release an ELF file lacks."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path


def _readelf(path: Path) -> str:
    command: list[str | Path] = ["readelf", "--wide", "--file-header", "--program-headers"]
    command += ["--dynamic", "--dyn-syms", path]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def missing_protections(path: Path) -> Iterator[str]:
    """Yields the name of each protection that the executable at `path` lacks."""
    text = _readelf(path)
    if not re.search(r"^\s*Type:\s+DYN\b", text, re.M):
        yield "position independent (PIE)"
    if "GNU_RELRO" not in text or not re.search(r"\bBIND_NOW\b|\bNOW\b", text):
        yield "full RELRO"
    if not re.search(r"GNU_STACK.*\bRW\b", text):
        yield "stack that is not executable"
    if "__stack_chk_fail" not in text:
        yield "stack protector"
    if re.search(r"\((RPATH|RUNPATH)\)", text):
        yield "no run path"
