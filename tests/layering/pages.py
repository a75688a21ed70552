# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Links between pages, and the pages that other files name: each leads to a file and a heading.
Tests that a page names exist.
"""

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from sources import files, read_text

# Its planted trees name pages that do not exist.
_SELF = "tests/layering"
_FENCE = re.compile(r"^ *```.*?^ *```", re.M | re.S)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_NAMED = re.compile(r"(?<![\w./-])docs/[\w-]+\.md(?:#[\w-]+)?")

# The tests of a criterion or of a fault.
_TEST = re.compile(r"\b(?:Criterion_\d+_\d+|Fault_[A-Z]\d+)_\w+")


def _anchor(heading: str) -> str:
    """The anchor that GitHub and GitLab give to a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-")


@cache
def _anchors(page: Path) -> frozenset[str]:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return frozenset(_anchor(heading) for heading in re.findall(r"^#+ +(.*?) *$", text, re.M))


def _targets(path: str, text: str) -> Iterator[tuple[int, str, str]]:
    """Line, target as written, and the path of the target from the root."""
    for match in _NAMED.finditer(text):
        yield match.start(), match[0], match[0]
    if path.endswith(".md"):
        for match in _LINK.finditer(text):
            target = match[1]
            if re.match(r"[a-z]+:", target):
                continue
            name, hash_sign, anchor = target.partition("#")
            page = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
            yield match.start(1), target, page + hash_sign + anchor


def _tests(root: Path) -> set[str]:
    """The names of all tests of a criterion or of a fault."""
    names: set[str] = set()
    for path in files(root):
        if path.startswith("tests/") and not path.startswith(_SELF):
            names.update(_TEST.findall(read_text(root / path) or ""))
    return names


def violations(root: Path) -> list[str]:
    """Each line with a link or a name that leads nowhere."""
    found = set()
    tests = _tests(root)
    for path in files(root):
        text = None if path.startswith(_SELF) else read_text(root / path)
        for match in _TEST.finditer(text or "") if path.endswith(".md") else ():
            if match[0] not in tests:
                number = (text or "").count("\n", 0, match.start()) + 1
                found.add(f"{path}:{number}: there is no test {match[0]}")
        for start, written, target in _targets(path, text or ""):
            name, _, anchor = target.partition("#")
            page = root / name
            line = f"{path}:{(text or '').count(chr(10), 0, start) + 1}: {written}"
            if not page.exists():
                found.add(f"{line}: there is no {name}")
            elif anchor and anchor not in _anchors(page):
                found.add(f"{line}: {name} has no heading with this anchor")
    return sorted(found)
