# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Checks manifests of the Prometheus operator's kinds against their types.

Each manifest becomes a TypeScript literal with the type of its kind, which the compiler checks.
This finds fields of a wrong type, missing fields, and fields that the operator does not know.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools import TOOLS

VERSION = "monitoring.coreos.com/v1"
_MODULE = f"@kubernetes-models/prometheus-operator/{VERSION}"

_OPTIONS = {
    "compilerOptions": {
        "noEmit": True,
        "strict": True,
        "skipLibCheck": True,
        "module": "nodenext",
        "moduleResolution": "nodenext",
        "target": "es2022",
        "types": [],
    },
    "files": ["manifests.mts"],
}


def _source(manifests: Iterable[dict[str, Any]]) -> str:
    lines = []
    for number, manifest in enumerate(manifests):
        kind = manifest["kind"]
        lines.append(f'import type {{ I{kind} as T{number} }} from "{_MODULE}/{kind}";')
        literal = json.dumps(manifest, indent=1)
        lines.append(f"export const m{number}: T{number} = {literal};")
    return "\n".join(lines) + "\n"


def complaints(manifests: Iterable[dict[str, Any]]) -> str:
    """The compiler's errors; empty if every manifest has the type of its kind."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "node_modules").symlink_to(TOOLS / "node_modules")
        (root / "package.json").write_text('{"type": "module"}', encoding="utf-8")
        (root / "tsconfig.json").write_text(json.dumps(_OPTIONS), encoding="utf-8")
        (root / "manifests.mts").write_text(_source(manifests), encoding="utf-8")
        compiler = TOOLS / "node_modules/typescript/bin/tsc"
        done = subprocess.run(
            ["node", compiler, "--project", root, "--preserveSymlinks"],
            check=False,
            capture_output=True,
            text=True,
        )
        return done.stdout + done.stderr
