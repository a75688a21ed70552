#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy 14 on files of a build, and only on those that changed since it last found
nothing in them, in this tree or in another: cltcache remembers the preprocessed files, in
~/.cache/basin/tidy.

Usage:
    scripts/run-clang-tidy.py --build build/release '/kernels/.*\\.cc$'
    scripts/run-clang-tidy.py --build build/release --checks='-clang-analyzer-*' '.*'
    scripts/run-clang-tidy.py --build build/release --commits 100 '.*'

Prints the findings, and ends with 1 if there is one.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# cltcache keeps its files in a folder of the home that it is told.
CACHE = Path.home() / ".cache" / "basin" / "tidy"

# Without marks of files and lines, which differ between trees, in what is compared with the cache.
PORTABLE = ("-P", "-Wno-unused-command-line-argument")

# What a unit of several sources includes, and how many of them are checked faster one by one.
UNIT_SOURCE = re.compile(r'^#include "(.*)"$', re.MULTILINE)
FEW = 3

# What clang-tidy says about itself.
NOISE = re.compile(r"\d+ warnings? (generated|treated as errors?)\.?|")


def command_for(entry: dict[str, str], checks: str) -> list[str]:
    """clang-tidy for a file of compile_commands.json, with the arguments of its compilation."""
    arguments = shlex.split(entry["command"])[1:]
    output = arguments.index("-o")
    del arguments[output : output + 2]
    return [
        str(Path(sys.executable).parent / "cltcache"), "clang-tidy-14", "--quiet",
        *([f"--checks={checks}"] if checks else []), entry["file"],
        "--", "-Wno-unknown-warning-option", *PORTABLE, *arguments,
    ]  # fmt: skip


def git(*arguments: str) -> list[str]:
    return subprocess.run(
        ["git", *arguments], capture_output=True, text=True, check=True
    ).stdout.splitlines()


def changed_in(commits: int) -> set[str] | None:
    """The paths that the last commits, or what is not committed, changed, without their suffixes:
    a source is checked when its own header changed, too. None if the history is shorter."""
    if int(git("rev-list", "--count", "HEAD")[0]) <= commits:
        return None
    root = Path(git("rev-parse", "--show-toplevel")[0])
    names = git("diff", "--name-only", f"HEAD~{commits}", "--", str(root))
    names += git("ls-files", "--others", "--exclude-standard", "--full-name", str(root))
    return {str((root / name).with_suffix("")) for name in names}


def only_changed(entry: dict[str, str], changed: set[str]) -> list[dict[str, str]]:
    """What to check of an entry: a unit of several sources is checked as a whole if many of them
    changed; few are checked alone, with its arguments."""
    sources = [entry["file"]]
    if entry["file"].endswith(".cxx"):
        sources = UNIT_SOURCE.findall(Path(entry["file"]).read_text())
    chosen = [source for source in sources if str(Path(source).with_suffix("")) in changed]
    if len(chosen) > FEW:
        return [entry]
    command = entry["command"]
    return [
        {**entry, "file": source, "command": command.replace(entry["file"], source)}
        for source in chosen
    ]


def check(entry: dict[str, str], checks: str) -> bool:
    ended = subprocess.run(
        command_for(entry, checks), cwd=entry["directory"], env={**os.environ, "HOME": str(CACHE)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = (ended.stdout + ended.stderr).splitlines()
    found = [line for line in said if not NOISE.fullmatch(line)]
    if ended.returncode != 0:
        print(f"{entry['file']}: clang-tidy ended with {ended.returncode}", *found, sep="\n")
    return ended.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, metavar="FOLDER", required=True)
    parser.add_argument("--checks", default="", help="added to those of .clang-tidy")
    parser.add_argument(
        "--commits", type=int, metavar="N", help="only files that the last N commits changed"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N")
    parser.add_argument("files", help="a regular expression for the paths of the files")
    arguments = parser.parse_args()

    settings = CACHE / ".cltcache" / "cltcache.cfg"
    settings.parent.mkdir(parents=True, exist_ok=True)
    # Findings say lines, which may be others in the next file with the same content.
    settings.write_text("[behavior]\ncache_failure = false\n")
    entries = json.loads((arguments.build / "compile_commands.json").read_text())
    files = re.compile(arguments.files)
    chosen = [entry for entry in entries if files.search(entry["file"])]
    if not chosen:
        parser.error(f"no file of {arguments.build} matches {arguments.files}")
    changed = changed_in(arguments.commits) if arguments.commits else None
    if changed is not None:
        chosen = [part for entry in chosen for part in only_changed(entry, changed)]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        passed = list(pool.map(lambda entry: check(entry, arguments.checks), chosen))
    print(f"{len(passed)} files, {passed.count(False)} with findings")
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
