# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Where the package finds what is compiled, if it runs from a source tree."""

from pathlib import Path

# That of the release build, and that of scripts/demo.sh.
_FOLDERS = ("build/release", "build/demo")


def built(name: str) -> list[Path]:
    """The places of a file of the build folders in a source tree, best first. Some or all of them
    do not exist."""
    # The package lies two or three folders below the tree.
    ancestors = Path(__file__).resolve().parents[2:4]
    return [ancestor / folder / name for folder in _FOLDERS for ancestor in ancestors]
