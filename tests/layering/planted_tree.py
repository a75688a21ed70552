# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A tree of planted files, for tests that show that a check finds violations."""

import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class PlantedTree(unittest.TestCase):
    """Each test has an empty tree at `self.root`."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()

    def plant(self, path: str, text: str) -> None:
        """Writes a file, with folders as needed."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(text.encode())

    def assert_found(self, found: list[str], path: str, part: str) -> None:
        """Exactly one violation was found, at `path`, and its text has `part`."""
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(path), found)
        self.assertIn(part, found[0])
