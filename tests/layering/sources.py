# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Reading the source tree: which files there are, and C++ without its comments and literals."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

# Made by builds and tools, never committed.
GENERATED = {".git", ".venv", ".cache", ".mypy_cache", ".ruff_cache", "__pycache__", "build"}

CPP_SUFFIXES = {".h", ".cc", ".cu", ".cuh"}

_COMMENT_OR_LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-zA-Z])'(?:\\.|[^'\\\n])*'",
    re.S,
)


def files(root: Path, folders: Iterable[str] = (".",)) -> Iterator[str]:
    """Paths of the files below `folders`, relative to `root`, in sorted order."""
    for folder in folders:
        for directory, names, filenames in os.walk(root / folder):
            names[:] = sorted(set(names) - GENERATED)
            for filename in sorted(filenames):
                yield os.path.relpath(Path(directory, filename), root)


def cpp_files(root: Path, folders: Iterable[str]) -> Iterator[str]:
    return (path for path in files(root, folders) if Path(path).suffix in CPP_SUFFIXES)


def read_text(path: Path) -> str | None:
    """The text of a file, or None if it is binary."""
    data = path.read_bytes()
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def blank_comments_and_literals(text: str) -> str:
    """C++ with comments and the insides of literals blanked, every line where it was.

    The paths of include lines stay, because they are read from what this returns.
    """

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        if found.startswith('"'):
            start = text.rfind("\n", 0, match.start()) + 1
            if re.match(r"\s*#\s*include\b", text[start : match.start()]):
                return found
        kept = "".join(c if c == "\n" else " " for c in found[1:-1])
        return found[0] + kept + found[-1] if found[0] in "\"'" else " " + kept + " "

    return _COMMENT_OR_LITERAL.sub(blank, text)
