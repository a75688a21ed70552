# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The manifests for JobSet and Kubeflow Trainer, and reports of progress, are what these accept."""

import copy
import importlib.util
import sys
import unittest
from collections.abc import Callable
from typing import Any

from tools import SKIPPED
from trainers import DEPLOY, Manifest, at, documents, has_models, kind_of

if importlib.util.find_spec("kubeflow_trainer_api") is None:
    print("skipped: kubeflow-trainer-api not installed; scripts/setup.sh installs it")
    sys.exit(SKIPPED)

from kubeflow_models import KINDS, complaints


def manifests() -> list[Manifest]:
    """Those of deploy/ that have models."""
    found = [one for file in sorted(DEPLOY.glob("*.yaml")) for one in documents(file)]
    return [one for one in found if has_models(one)]


def planted(manifest: Manifest, path: tuple[str | int, ...], change: Callable[[Any], None]) -> str:
    """What is complained of after a change of the part at this path."""
    wrong = copy.deepcopy(manifest)
    change(at(wrong, path))
    return "\n".join(complaints(wrong, KINDS[kind_of(wrong)]))


class Models(unittest.TestCase):
    def test_every_manifest_is_what_its_kind_takes(self) -> None:
        found = manifests()
        self.assertEqual(KINDS.keys(), {kind_of(manifest) for manifest in found})
        for manifest in found:
            with self.subTest(kind=manifest["kind"]):
                self.assertEqual([], complaints(manifest, KINDS[kind_of(manifest)]))

    def test_planted_mistakes_are_found(self) -> None:
        kinds = {manifest["kind"]: manifest for manifest in manifests()}
        set_, runtime, job = (kinds[kind] for kind in ("JobSet", "TrainingRuntime", "TrainJob"))
        job_of_set = ("spec", "replicatedJobs", 0, "template", "spec")
        pod = ("template", "spec", "containers", 0)
        of_runtime = ("spec", "template", *job_of_set)
        policy = (*job_of_set, "podFailurePolicy", "rules", 0)
        cases: list[tuple[Manifest, tuple[str | int, ...], Callable[[Any], Any], str]] = [
            (
                set_,
                ("spec",),
                lambda spec: spec.update(ttlSeconds=1),
                ".spec.ttlSeconds is unknown",
            ),
            (set_, policy, lambda rule: rule.update(action="Forget"), "must be one of enum values"),
            (set_, ("spec", "replicatedJobs", 0), lambda one: one.pop("name"), ".name is missing"),
            (runtime, (*of_runtime, *pod), lambda one: one.update(imagee=""), ".imagee is unknown"),
            (
                runtime,
                ("spec", "mlPolicy"),
                lambda one: one.update(torch={"x": 1}),
                ".x is unknown",
            ),
            (job, ("spec", "trainer"), lambda one: one.update(numNodes="4"), "a valid integer"),
            (job, ("spec", "trainer"), lambda one: one.update(nodes=4), ".nodes is unknown"),
            (job, ("spec", "runtimeRef"), lambda one: one.pop("name"), "a valid string"),
        ]
        for manifest, path, change, text in cases:
            with self.subTest(text, kind=manifest["kind"]):
                self.assertIn(text, planted(manifest, path, change))


if __name__ == "__main__":
    unittest.main(verbosity=2)
