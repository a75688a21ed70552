# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Lets `import horovod.torch` import basin.horovod.torch, and so all modules below horovod."""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_ALIAS = "horovod"


class _Loader:
    """Puts the module of Basin in the place of the one that is imported."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(f"basin.{module.__name__}")


class _Finder:
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != _ALIAS:
            return None
        if importlib.util.find_spec(f"basin.{name}") is None:
            raise ModuleNotFoundError(
                f"Basin has no {name}: of Horovod's frameworks it has horovod.torch, "
                "horovod.tensorflow, horovod.keras and horovod.mxnet. Import what you need from "
                "these, or run this script with Horovod.",
                name=name,
            )
        return importlib.util.spec_from_loader(name, _Loader())  # type: ignore[arg-type]


def install() -> None:
    """From now on, imports of horovod in this process are of Basin. A second call does nothing."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    sys.modules[_ALIAS] = importlib.import_module(f"basin.{_ALIAS}")
