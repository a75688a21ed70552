# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The options of a worker are the same in C, in Python and on the page that describes them."""

import ast
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Arguments of basin.connect() that are no options of the worker.
OF_THE_CALL = ["timeout", "ready"]


def options() -> list[str]:
    header = (ROOT / "protocol/limits/client_options.h").read_text()
    array = header[header.index("kClientOptions[]") :]
    return re.findall(r'"(\w+)"', array)


def described() -> list[tuple[str, str]]:
    """Each option of the page, with its variable."""
    page = (ROOT / "docs/client.md").read_text()
    table = page[page.index("| key | environment |") :].split("\n\n")[0]
    rows = [row.split("|")[1:3] for row in table.splitlines()[2:]]
    return [
        pair
        for keys, variables in rows
        for pair in zip(
            re.findall(r"`(\w+)`", keys), re.findall(r"`(\w+)`", variables), strict=True
        )
    ]


def arguments() -> list[str]:
    """Those of basin.connect()."""
    tree = ast.parse((ROOT / "client/python/basin/client.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "connect":
            return [each.arg for each in (*node.args.args, *node.args.kwonlyargs)]
    raise AssertionError("client.py has no connect()")


class ClientOptions(unittest.TestCase):
    def test_they_are_found(self) -> None:
        self.assertIn("address", options())
        self.assertGreater(len(options()), 20)

    def test_the_page_describes_each_with_its_variable(self) -> None:
        self.assertEqual([(name, f"BASIN_{name.upper()}") for name in options()], described())

    def test_python_takes_each(self) -> None:
        self.assertEqual(sorted([*options(), *OF_THE_CALL]), sorted(arguments()))


if __name__ == "__main__":
    unittest.main()
