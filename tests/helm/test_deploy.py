# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The manifests of deploy/ fit the chart and the client that they start."""

import re
import unittest
from typing import Any

import chart
import yaml
from chart import VALUE_SETS
from tools import CHART, ROOT, require

# Where the aggregator lists the variables that belong to clients.
CLIENT_VARIABLES = ROOT / "aggregator/config/given.cc"


def trainer_job() -> dict[str, Any]:
    text = (ROOT / "deploy/trainer-job.yaml").read_text(encoding="utf-8")
    job: dict[str, Any] = yaml.safe_load(text)
    return job


class TrainerJob(unittest.TestCase):
    def setUp(self) -> None:
        self.job = trainer_job()
        self.pod = self.job["spec"]["template"]["spec"]
        (self.container,) = self.pod["containers"]
        self.env = {variable["name"]: variable for variable in self.container["env"]}

    def test_address_is_the_one_of_the_chart(self) -> None:
        aggregator = chart.render("helm-4", VALUE_SETS["smallest"])
        service = chart.one(aggregator, "Service")
        pod = chart.one(aggregator, "StatefulSet")["metadata"]["name"] + "-0"
        port = {port["name"]: port["port"] for port in service["spec"]["ports"]}["grpc"]
        expected = f"{pod}.{service['metadata']['name']}.{chart.NAMESPACE}.svc:{port}"
        # The same for a release that is called basin, like the chart.
        expected = expected.replace(f"{chart.RELEASE}-basin", "basin")
        self.assertEqual(expected, self.env["BASIN_ADDRESS"]["value"])
        self.assertEqual(chart.NAMESPACE, self.job["metadata"]["namespace"])

    def test_variables_are_ones_that_clients_have(self) -> None:
        known = set(re.findall(r'"(BASIN_\w+)"', CLIENT_VARIABLES.read_text(encoding="utf-8")))
        self.assertIn("BASIN_ADDRESS", known)
        self.assertLessEqual({name for name in self.env if name.startswith("BASIN_")}, known)

    def test_run_is_the_job_and_worker_is_the_pod(self) -> None:
        self.assertEqual(
            "metadata.labels['batch.kubernetes.io/controller-uid']",
            self.env["BASIN_RUN_ID"]["valueFrom"]["fieldRef"]["fieldPath"],
        )
        self.assertEqual(
            "metadata.name", self.env["BASIN_WORKER_ID"]["valueFrom"]["fieldRef"]["fieldPath"]
        )

    def test_every_worker_has_an_index(self) -> None:
        spec = self.job["spec"]
        self.assertEqual("Indexed", spec["completionMode"])
        self.assertEqual(spec["completions"], spec["parallelism"])
        self.assertEqual(spec["completions"], int(self.env["BASIN_MAX_WORKERS"]["value"]))
        # The Job's controller sets it; a manifest that does so too would win over it.
        self.assertNotIn("JOB_COMPLETION_INDEX", self.env)

    def test_meets_the_restricted_standard(self) -> None:
        self.assertTrue(self.pod["securityContext"]["runAsNonRoot"])
        self.assertEqual("RuntimeDefault", self.pod["securityContext"]["seccompProfile"]["type"])
        self.assertFalse(self.container["securityContext"]["allowPrivilegeEscalation"])
        self.assertEqual({"drop": ["ALL"]}, self.container["securityContext"]["capabilities"])
        self.assertFalse(self.pod["automountServiceAccountToken"])


class Notes(unittest.TestCase):
    def test_address_is_made_of_the_same_names(self) -> None:
        notes = (CHART / "templates/NOTES.txt").read_text(encoding="utf-8")
        name = r'{{ include "basin.fullname" . }}'
        self.assertIn(f"BASIN_ADDRESS={name}-0.{name}.{{{{ .Release.Namespace }}}}.svc:", notes)


if __name__ == "__main__":
    require("helm-4")
    unittest.main(verbosity=2)
