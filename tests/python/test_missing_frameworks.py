# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A module for a framework that is not installed says what to install, and basin works without it.

Usage: test_missing_frameworks.py BASIND LIBBASIN
"""

import importlib
import os
import sys
import unittest
from unittest import mock

from jobs import require

require("numpy", "torch")
os.environ["BASIN_LIBRARY"] = sys.argv[2]

import basin.torch  # noqa: E402 - needs the library

# Module of this package -> the package that it needs, and the command that installs it.
NEEDED = {
    "basin.accelerate": ("accelerate", "pip install 'accelerate==1.15.*'"),
    "basin.jax": ("jax", "pip install jax optax"),
    "basin.keras": ("keras", "pip install 'keras==3.*'"),
    "basin.lightning": ("lightning", "pip install 'lightning==2.6.*'"),
    "basin.mxnet": ("mxnet", "pip install mxnet==1.9.1 numpy==1.23.5"),
    "basin.tensorflow": ("tensorflow", "pip install tensorflow"),
    "basin.transformers": ("transformers", "pip install 'transformers==5.*' 'accelerate==1.15.*'"),
}


class Missing(unittest.TestCase):
    def test_the_error_names_the_command(self) -> None:
        for module, (package, command) in NEEDED.items():
            with self.subTest(module), mock.patch.dict(sys.modules, {package: None}):
                with self.assertRaises(ModuleNotFoundError) as raised:
                    importlib.import_module(module)
                self.assertIn(f"{module} needs", str(raised.exception))
                self.assertIn(package, str(raised.exception))
                self.assertIn(command, str(raised.exception))

    def test_the_package_itself_imports_none(self) -> None:
        self.assertIn(basin.torch.__name__, sys.modules)
        loaded = {package for package, _ in NEEDED.values()} & sys.modules.keys()
        self.assertEqual(set(), loaded)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
