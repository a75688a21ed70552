# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The rendered chart and the manifests of deploy/ have the types of the Kubernetes API."""

import copy
import unittest
from typing import Any

import chart
from chart import VALUE_SETS
from kubernetes_types import complaints
from tools import require
from trainers import DEPLOY, documents, parts_that_kubernetes_knows


def manifests_of_deploy() -> list[dict[str, Any]]:
    return [
        part
        for file in sorted(DEPLOY.rglob("*.yaml"))
        for manifest in documents(file)
        for part in parts_that_kubernetes_knows(manifest)
    ]


class Types(unittest.TestCase):
    def test_chart(self) -> None:
        manifests = []
        for values in VALUE_SETS.values():
            manifests += chart.render("helm-4", values)
        self.assertEqual("", complaints(manifests))

    def test_deploy(self) -> None:
        manifests = manifests_of_deploy()
        kinds = {manifest["kind"] for manifest in manifests}
        self.assertEqual({"Job", "Pod", "PodTemplate", "StatefulSet"}, kinds)
        self.assertEqual("", complaints(manifests))

    def test_planted_mistakes_are_found(self) -> None:
        (whole,) = [
            manifest
            for manifest in chart.render("helm-4", VALUE_SETS["smallest"])
            if manifest["kind"] == "StatefulSet"
        ]
        unknown, another, missing = (copy.deepcopy(whole) for _ in range(3))
        container = unknown["spec"]["template"]["spec"]["containers"][0]
        container["livenesProbe"] = container.pop("livenessProbe")
        another["spec"]["replicas"] = "one"
        del missing["spec"]["selector"]
        found = complaints([unknown, another, missing])
        for part in ("livenesProbe", "'string' is not assignable to type 'number'", "selector"):
            with self.subTest(part):
                self.assertIn(part, found)


if __name__ == "__main__":
    require("helm-4")
    unittest.main(verbosity=2)
