#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Line coverage of one folder, from the profiles of a coverage build.

Prints the uncovered lines of each file, then the total. Exits with 1 if the total is below the
minimum or a source file of the folder is in no test binary.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

LLVM_VERSION = "14"


def test_binaries(build: Path) -> list[Path]:
    return sorted(
        path
        for path in (build / "tests").rglob("*")
        if path.is_file() and os.access(path, os.X_OK) and path.suffix not in {".sh", ".py", ".so"}
    )


def export_lcov(build: Path) -> str:
    """The counts of all files in lcov's trace format."""
    profiles = sorted((build / "profiles").glob("*.profraw"))
    if not profiles:
        raise SystemExit(f"coverage: no profiles in {build / 'profiles'}; run the tests first")
    merged = build / "merged.profdata"
    subprocess.run(
        [f"llvm-profdata-{LLVM_VERSION}", "merge", "-sparse", "-o", merged, *profiles], check=True
    )
    binaries = test_binaries(build)
    command: list[str | Path] = [f"llvm-cov-{LLVM_VERSION}", "export", "-format=lcov"]
    command += [f"-instr-profile={merged}", binaries[0]]
    for binary in binaries[1:]:
        command += ["-object", binary]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def line_counts(lcov: str, folder: Path) -> dict[Path, dict[int, int]]:
    """File below `folder` -> line -> how often it ran."""
    counts: dict[Path, dict[int, int]] = {}
    current: dict[int, int] = {}
    for line in lcov.splitlines():
        if line.startswith("SF:"):
            # Compilation uses relative paths, so a file's name has the build folder and "..".
            path = Path(os.path.normpath(line[3:]))
            current = counts.setdefault(path, {}) if path.is_relative_to(folder) else {}
        elif line.startswith("DA:"):
            number, count = line[3:].split(",")[:2]
            current[int(number)] = max(current.get(int(number), 0), int(count))
    return counts


def ranges(numbers: list[int]) -> str:
    """[1, 2, 3, 7] -> "1-3 7"."""
    parts: list[str] = []
    start = previous = None
    for number in [*numbers, None]:
        if previous is not None and number == previous + 1:
            previous = number
            continue
        if start is not None:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = number
    return " ".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", help="folder below the root of the source tree")
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--minimum", type=float, required=True, help="percent of the lines")
    arguments = parser.parse_args()

    root = Path(__file__).resolve().parent.parent
    folder = root / arguments.folder
    sources = sorted(folder.rglob("*.cc"))
    if not sources:
        print(f"coverage: {arguments.folder} has no source files")
        return 1

    counts = line_counts(export_lcov(arguments.build), folder)
    covered = total = 0
    for path, lines in sorted(counts.items()):
        missed = sorted(number for number, count in lines.items() if count == 0)
        hit = len(lines) - len(missed)
        covered += hit
        total += len(lines)
        share = 100.0 * hit / len(lines) if lines else 100.0
        name = str(path.relative_to(root))
        print(f"{share:6.1f} %  {hit:5d}/{len(lines):<5d} {name}  {ranges(missed)}".rstrip())

    absent = [str(path.relative_to(root)) for path in sources if path not in counts]
    for name in absent:
        print(f"coverage: {name} is in no test binary")
    percent = 100.0 * covered / total if total else 0.0
    print(
        f"{arguments.folder}: {percent:.1f} % of {total} lines covered "
        f"(minimum {arguments.minimum:g} %)"
    )
    return 1 if absent or percent < arguments.minimum else 0


if __name__ == "__main__":
    sys.exit(main())
