#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Writes the manual pages of basind, basinctl and basin-run from what their --help prints.

Usage:
    scripts/make-man-pages.py [--build FOLDER]            writes docs/man
    scripts/make-man-pages.py [--build FOLDER] --check    changes nothing; fails if a page would
                                                          change

The programs and the library are those of the build folder (build/release). A page has nothing that
is not in the help, so each text is written once.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs/man"

# Headings of the help, and the sections of a manual that they are.
HEADINGS = {
    "commands:": "COMMANDS",
    "flags:": "OPTIONS",
    "options:": "OPTIONS",
    "positional arguments:": "ARGUMENTS",
    "examples:": "EXAMPLES",
}
# "  name   what it does": the text begins after at least two spaces.
ITEM = re.compile(r"^ {2}(\S.*?)(?: {2,}(\S.*))?$")


def help_of(*command: str | Path) -> str:
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
    return done.stdout


def commands_in(text: str) -> list[str]:
    """The first words of the list of commands."""
    return re.findall(r"^  ([a-z-]+)", text.split("commands:\n")[1].split("\n\n")[0], re.M)


def roff(text: str) -> str:
    """Text that troff prints as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return "\\&" + text if text.startswith(".") else text


def blocks(text: str) -> list[list[str]]:
    """The lines between empty ones."""
    return [block.splitlines() for block in re.split(r"\n{2,}", text.strip())]


def verbatim(lines: Iterable[str]) -> list[str]:
    return [".nf", *(roff(line.strip()) for line in lines), ".fi"]


def items(lines: Iterable[str]) -> list[str]:
    """A list of names with descriptions, which may continue on lines that are indented further."""
    out = []
    for line in lines:
        item = ITEM.match(line)
        if item is None:
            out.append(roff(line.strip()))
            continue
        out += [".TP", ".B " + roff(item[1]).replace('"', "\\(dq")]
        if item[2]:
            out.append(roff(item[2]))
    return out


def section(lines: list[str], heading: str = ".SH") -> list[str]:
    """One block of a help as a part of a page."""
    first = lines[0]
    if first.startswith("usage: "):
        return [".SH SYNOPSIS", ".B " + roff(first.removeprefix("usage: "))]
    if first.startswith("exit codes: "):
        codes = " ".join([first.removeprefix("exit codes: "), *lines[1:]]).split(", ")
        out = [".SH EXIT STATUS"]
        for code in codes:
            number, meaning = code.split(" ", 1)
            out += [".TP", f".B {number}", roff(meaning)]
        return out
    if first in HEADINGS:
        body = verbatim(lines[1:]) if first == "examples:" else items(lines[1:])
        return [f"{heading} {HEADINGS[first]}", *body]
    if first.startswith(" "):
        return items(lines)
    if len(lines) > 1 and lines[1].startswith("  "):
        return [".SS " + roff(first.rstrip(":.")), *items(lines[1:])]
    return [".PP", *(roff(line) for line in lines)]


def page(
    name: str, number: int, version: str, summary: str, body: list[str], *others: tuple[str, int]
) -> str:
    head = [
        '.\\" Written by scripts/make-man-pages.py from what --help prints; a test compares them.',
        f'.TH {name.upper().replace("-", chr(92) + "-")} {number} "" "Basin {version}" "Basin"',
        ".SH NAME",
        f"{roff(name)} \\- {roff(summary)}",
    ]
    also = [f".BR {roff(other)} ({volume})" for other, volume in others]
    return "\n".join([*head, *body, ".SH SEE ALSO", ",\n".join(also), ""])


def basind(program: Path, version: str) -> str:
    first, *rest = blocks(help_of(program))
    body = []
    for block in rest:
        if block[0].startswith("`basind COMMAND --help`,"):
            continue
        body += section(block)
    # The options are those of all commands that have a configuration.
    serve = blocks(help_of(program, "serve"))
    body.append(".SH OPTIONS")
    for block in serve[1:]:
        if not block[0].startswith(("usage: ", "examples:")):
            body += section(block)
    for name in commands_in(help_of(program)):
        if name in ("serve", "version"):
            continue
        about, *details = blocks(help_of(program, name))
        body.append(f".SH {roff(name.upper())}")
        body.append(roff(about[0].split(": ", 1)[1].capitalize()) + ".")
        for block in details:
            if block[0].startswith("Every flag below"):
                break
            part = section(block, heading=".SS")
            body += [".PP", *part[1:]] if block[0].startswith("usage: ") else part
    summary = first[0].removeprefix("basind ").rstrip(".")
    return page("basind", 8, version, summary, body, ("basinctl", 1), ("basin-run", 1))


def basinctl(program: Path, version: str) -> str:
    text = help_of(program)
    first, *rest = blocks(text)
    body = []
    for block in rest:
        if block[0].startswith("`basinctl COMMAND --help`,"):
            continue
        body += section(block)
    body.append(".SH DETAILS OF THE COMMANDS")
    for name in commands_in(text):
        about, usage, *details = blocks(help_of(program, name))
        body += [f".SS {roff(name)}", roff(about[0].split(": ", 1)[1].capitalize()) + ".", ".PP"]
        body.append(".B " + roff(usage[0].removeprefix("usage: ")))
        for block in details:
            if block[0] == "flags:":
                continue
            if block[0] == "examples:":
                body += [".PP", *verbatim(block[1:])]
            elif block[0].startswith("to show an answer"):
                body += items(block[1:])
            else:
                body += section(block)
    summary = " ".join(first).removeprefix("basinctl ").rstrip(".")
    return page("basinctl", 1, version, summary, body, ("basind", 8), ("basin-run", 1))


def basin_run(library: Path, version: str) -> str:
    code = "import basin.launch; basin.launch.main(['--help'])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "COLUMNS": "100",
            "PYTHONPATH": str(ROOT / "client/python"),
            "BASIN_LIBRARY": str(library),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    usage, about, *rest = blocks(done.stdout)
    body = [*section(usage), ".SH DESCRIPTION", *(roff(line) for line in about)]
    for block in rest:
        body += section(block)
    summary = about[0].split(". ")[0]
    summary = summary[0].lower() + summary[1:]
    return page("basin-run", 1, version, summary, body, ("basind", 8), ("basinctl", 1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build/release", metavar="FOLDER")
    parser.add_argument("--check", action="store_true", help="only compare")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    (version,) = re.findall(r"^project\(Basin VERSION ([\d.]+)", text, re.M)
    pages = {
        "basind.8": basind(build / "aggregator/basind/basind", version),
        "basinctl.1": basinctl(build / "aggregator/ctl/basinctl", version),
        "basin-run.1": basin_run(build / "client/c/libbasin.so.2", version),
    }
    old = [
        name
        for name, made in pages.items()
        if not (PAGES / name).exists() or (PAGES / name).read_text(encoding="utf-8") != made
    ]
    if arguments.check:
        for name in old:
            print(f"docs/man/{name} is not what --help prints: run scripts/make-man-pages.py")
        return 1 if old else 0
    PAGES.mkdir(exist_ok=True)
    for name in old:
        (PAGES / name).write_text(pages[name], encoding="utf-8")
        print(f"wrote docs/man/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
