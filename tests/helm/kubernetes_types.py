# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Checks manifests against the types of the Kubernetes API.

Each manifest becomes a TypeScript literal with the type of its kind, which the compiler checks.
This finds fields of a wrong type, missing fields, and fields that Kubernetes does not know,
which an ordinary schema accepts.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools import TOOLS

_MODULES = {
    "monitoring.coreos.com/v1": "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1",
}

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
        version, kind = manifest["apiVersion"], manifest["kind"]
        module = _MODULES.get(version, f"kubernetes-models/{version}")
        lines.append(f'import type {{ I{kind} as T{number} }} from "{module}/{kind}";')
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
