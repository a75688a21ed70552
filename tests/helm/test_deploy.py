# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The manifests of deploy/ match the chart and the client.

Usage: test_deploy.py [BASIND LIBBASIN]   with them, workers run with the variables of the manifest
"""

import json
import os
import re
import subprocess
import sys
import unittest
import uuid
from typing import Any

import chart
import yaml
from chart import VALUE_SETS
from tools import CHART, ROOT, require

PROGRAMS: list[str] = []

# The client's options; each has an environment variable.
CLIENT_OPTIONS = ROOT / "client/c/options.cc"

# The first actions of a trainer: it prints its identity and the contributors of a sum.
TRAINER = """
import os
import basin
import numpy
with basin.connect() as client:
    mine = numpy.full(4, 2.0 ** int(os.environ["JOB_COMPLETION_INDEX"]), numpy.float32)
    print(client.worker_id, client.world_size, client.allreduce(mine, "g", op=basin.Sum)[0])
    client.finished()
"""
PATIENCE_SECONDS = 60


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
        options = re.findall(r'Option\{"(\w+)"', CLIENT_OPTIONS.read_text(encoding="utf-8"))
        known = {f"BASIN_{option.upper()}" for option in options}
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
        # The Job's controller sets it; a manifest that also sets it would override that.
        self.assertNotIn("JOB_COMPLETION_INDEX", self.env)

    def test_meets_the_restricted_standard(self) -> None:
        self.assertTrue(self.pod["securityContext"]["runAsNonRoot"])
        self.assertEqual("RuntimeDefault", self.pod["securityContext"]["seccompProfile"]["type"])
        self.assertFalse(self.container["securityContext"]["allowPrivilegeEscalation"])
        self.assertEqual({"drop": ["ALL"]}, self.container["securityContext"]["capabilities"])
        self.assertFalse(self.pod["automountServiceAccountToken"])


class RealWorkers(unittest.TestCase):
    def environment(self, index: int, uid: str, address: str) -> dict[str, str]:
        """The environment of the pod with this index. Only the address differs: there is no DNS."""
        metadata = {
            "metadata.name": f"digits-{index}-x7k2p",
            "metadata.labels['batch.kubernetes.io/controller-uid']": uid,
        }
        (container,) = trainer_job()["spec"]["template"]["spec"]["containers"]
        given = {
            variable["name"]: variable["value"]
            if "value" in variable
            else metadata[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            for variable in container["env"]
        }
        return {**given, "BASIN_ADDRESS": address, "JOB_COMPLETION_INDEX": str(index)}

    def start_basind(self) -> str:
        """The address for workers."""
        # Workers of an unknown run do not wait for others to come back.
        flags = ["--grpc-listen=127.0.0.1:0", "--recovery-window=100ms"]
        nothing_else = ["--http-listen=none", "--admin-listen=none"]
        process = self.start([PROGRAMS[0], *flags, *nothing_else], {})
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"workers on ([\d.:]+)", json.loads(line)["reason"]):
                return found[1]
        self.fail("basind ended")

    def start(self, command: list[str], variables: dict[str, str]) -> subprocess.Popen[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("BASIN_")}
        process = subprocess.Popen(
            command, env={**kept, **variables}, stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def test_meet_under_the_variables_of_the_manifest(self) -> None:
        if not PROGRAMS:
            self.skipTest("this build has no basind")
        address = self.start_basind()
        workers = trainer_job()["spec"]["completions"]
        # A recreated Job has another uid, so it is another run of the same training job.
        for uid in (str(uuid.uuid4()), str(uuid.uuid4())):
            package = {"BASIN_LIBRARY": PROGRAMS[1], "PYTHONPATH": str(ROOT / "client/python")}
            trainers = [
                self.start(
                    [sys.executable, "-c", TRAINER],
                    {**self.environment(index, uid, address), **package},
                )
                for index in range(workers)
            ]
            said = [trainer.communicate(timeout=PATIENCE_SECONDS)[0] for trainer in trainers]
            everybody = float(2**workers - 1)
            self.assertEqual(
                [f"digits-{index}-x7k2p {workers} {everybody}\n" for index in range(workers)], said
            )


class Notes(unittest.TestCase):
    def test_address_is_made_of_the_same_names(self) -> None:
        notes = (CHART / "templates/NOTES.txt").read_text(encoding="utf-8")
        name = r'{{ include "basin.fullname" . }}'
        self.assertIn(f"BASIN_ADDRESS={name}-0.{name}.{{{{ .Release.Namespace }}}}.svc:", notes)


if __name__ == "__main__":
    require("helm-4")
    PROGRAMS = sys.argv[1:]
    unittest.main(argv=sys.argv[:1], verbosity=2)
