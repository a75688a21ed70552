# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Every supported version of Kubernetes accepts the rendered chart and the manifests of deploy/."""

import copy
import importlib.util
import sys
import unittest
from typing import Any

import chart
import yaml
from chart import VALUE_SETS
from tools import CHART, SKIPPED, require
from trainers import DEPLOY, documents, parts_that_kubernetes_knows

if importlib.util.find_spec("kubernetes_validate") is None:
    print("skipped: kubernetes-validate not installed; scripts/setup.sh installs it")
    sys.exit(SKIPPED)

from kubernetes_schemas import OLDEST, VERSIONS, complaints

# Have no schema here. test_operator_types.py and test_chart.py check them.
OTHER_PROJECTS = ("monitoring.coreos.com/", "cert-manager.io/")


def manifests_of_chart() -> list[dict[str, Any]]:
    return [
        manifest
        for values in VALUE_SETS.values()
        for manifest in chart.render("helm-4", values)
        if not manifest["apiVersion"].startswith(OTHER_PROJECTS)
    ]


def manifests_of_deploy() -> list[dict[str, Any]]:
    return [
        part
        for file in sorted(DEPLOY.rglob("*.yaml"))
        for manifest in documents(file)
        for part in parts_that_kubernetes_knows(manifest)
    ]


class Schemas(unittest.TestCase):
    def test_oldest_version_is_the_one_of_the_chart(self) -> None:
        chart_file = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
        self.assertEqual(f">=1.{OLDEST}.0-0", chart_file["kubeVersion"])

    def test_chart(self) -> None:
        manifests = manifests_of_chart()
        for version in VERSIONS:
            with self.subTest(version):
                self.assertEqual([], complaints(manifests, version))

    def test_deploy(self) -> None:
        manifests = manifests_of_deploy()
        kinds = {manifest["kind"] for manifest in manifests}
        of_accounts = {"Role", "RoleBinding", "ServiceAccount"}
        of_pods = {"HorizontalPodAutoscaler", "Job", "Pod", "PodTemplate", "StatefulSet"}
        self.assertEqual(of_pods | of_accounts, kinds)
        for version in VERSIONS:
            with self.subTest(version):
                self.assertEqual([], complaints(manifests, version))

    def test_planted_mistakes_are_found(self) -> None:
        whole = chart.one(chart.render("helm-4", VALUE_SETS["smallest"]), "StatefulSet")
        unknown, another, missing = (copy.deepcopy(whole) for _ in range(3))
        container = unknown["spec"]["template"]["spec"]["containers"][0]
        container["livenesProbe"] = container.pop("livenessProbe")
        another["spec"]["replicas"] = "one"
        del missing["spec"]["selector"]
        for version in VERSIONS:
            with self.subTest(version):
                found = "\n".join(complaints([unknown, another, missing], version))
                self.assertIn("livenesProbe", found)
                self.assertIn("'one' is not of type", found)
                self.assertIn("'selector' is a required property", found)

    def test_a_field_of_a_newer_version_is_found(self) -> None:
        # Kubernetes has it since 1.29.
        pod = chart.one(chart.render("helm-4", VALUE_SETS["smallest"]), "Pod")
        pod["spec"]["containers"][0]["lifecycle"] = {"preStop": {"sleep": {"seconds": 1}}}
        self.assertIn("sleep", "".join(complaints([pod], "1.27")))
        self.assertEqual([], complaints([pod], "1.29"))

    def test_a_version_without_a_schema_is_found(self) -> None:
        self.assertIn("no schema", complaints([], "1.99")[0])


if __name__ == "__main__":
    require("helm-4")
    unittest.main(verbosity=2)
