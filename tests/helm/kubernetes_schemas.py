# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Checks manifests of Kubernetes' own kinds against the schemas of every supported version.

The check is strict, as of `kubectl --validate=strict`: it also finds fields that a version does not
know. Kinds of other projects have no schema here.
"""

import json
from collections.abc import Iterable
from typing import Any

import kubernetes_validate
from kubernetes_validate import utils

OLDEST, NEWEST = 27, 37
VERSIONS = [f"1.{minor}" for minor in range(OLDEST, NEWEST + 1)]

# The schemas of these versions require `onPodConditions` in every rule. Their servers do not.
_WRONG_ABOUT_RULES = ("1.27", "1.28")


def _with_pod_conditions(part: Any) -> Any:
    """A copy in which every rule of a podFailurePolicy has `onPodConditions`."""
    if isinstance(part, list):
        return [_with_pod_conditions(one) for one in part]
    if not isinstance(part, dict):
        return part
    own: dict[str, Any] = {"onPodConditions": []} if "onExitCodes" in part else {}
    return own | {key: _with_pod_conditions(value) for key, value in part.items()}


def complaints(manifests: Iterable[dict[str, Any]], version: str) -> list[str]:
    """What this version of Kubernetes would refuse; empty if it accepts every manifest."""
    if version not in {utils.major_minor(one) for one in utils.all_versions()}:
        return [f"there is no schema of Kubernetes {version}"]
    found = []
    # Sets of values have many manifests in common.
    for text in sorted({json.dumps(manifest, sort_keys=True) for manifest in manifests}):
        manifest = json.loads(text)
        if version in _WRONG_ABOUT_RULES:
            manifest = _with_pod_conditions(manifest)
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(f"{name}, {'.'.join(map(str, error.path))}: {error.message}")
        except kubernetes_validate.SchemaNotFoundError as error:
            found.append(f"{name}: {error.message}")
    return found
