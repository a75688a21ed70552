# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Loads a program of scripts/ as a module, whatever its name."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def load(script: str) -> ModuleType:
    """The module of a file such as "make-sbom.py"."""
    name = script.removesuffix(".py").replace("-", "_")
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
