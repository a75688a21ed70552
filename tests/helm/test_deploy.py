# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The manifests of deploy/ match the chart and the client.

Usage: test_deploy.py [BASIND LIBBASIN BASINCTL]

With them, the walk-through makes Secrets, and workers run with the variables of the manifests.
"""

import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import chart
import yaml
from chart import VALUE_SETS
from tools import CHART, ROOT, require
from trainers import (
    DEPLOY,
    Manifest,
    Trainers,
    all_trainers,
    at,
    documents,
    has_models,
    kind_of,
    trainers_of,
)

PROGRAMS: list[str] = []

# The client's options; each has an environment variable.
CLIENT_OPTIONS = ROOT / "client/c/options.cc"
PAGES = [
    ROOT / "docs" / name for name in ("kubernetes.md", "kubernetes-reference.md", "runbooks.md")
]

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
# It sums until worker 4 takes part in place of worker 3, prints every sum that differs from the one
# before, and leaves after SIGTERM as docs/kubernetes-reference.md describes.
ELASTIC_TRAINER = """
import os, signal, sys
import basin
import numpy
leaving = []
signal.signal(signal.SIGTERM, lambda number, frame: leaving.append(number))
mine = numpy.full(4, 2.0 ** int(os.environ["JOB_COMPLETION_INDEX"]), numpy.float32)
total = 0.0
with basin.connect() as client:
    while total != 23.0 and not leaving:
        before, total = total, client.allreduce(mine, "g", op=basin.Sum)[0]
        if total != before:
            print(total)
sys.exit(128 + leaving[0] if leaving else 0)
"""
PATIENCE_SECONDS = 60

# In place of kubectl: it copies the files of a Secret that is created, each to SECRET/KEY.
KUBECTL = """\
import os, pathlib, shutil, sys
arguments = sys.argv[1:]
if arguments[:4] == ["--namespace", "training", "create", "secret"]:
    kind, name = arguments[4:6]
    assert kind == "generic", kind
    os.makedirs(os.environ["SECRETS"] + "/" + name)
    for one in arguments[6:]:
        option, _, value = one.removeprefix("--").partition("=")
        if option == "type":
            continue
        assert option == "from-file", option
        key, _, file = value.rpartition("=")
        key = key or pathlib.Path(file).name
        shutil.copy(file, os.environ["SECRETS"] + "/" + name + "/" + key)
"""

# The manifests whose pods come from a Job of Kubernetes.
JOBS = (
    "trainer-job-elastic.yaml",
    "trainer-job.yaml",
    "trainer-jobset.yaml",
    "trainer-trainjob.yaml",
)

# The number of pods in the last object of each manifest.
SIZES: dict[str, Callable[[Manifest], int]] = {
    "trainer-job-elastic.yaml": lambda job: same(job["spec"]),
    "trainer-job.yaml": lambda job: same(job["spec"]),
    "trainer-jobset.yaml": lambda set_: same(set_["spec"]["replicatedJobs"][0]["template"]["spec"]),
    "trainer-pytorchjob.yaml": lambda job: job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"],
    "trainer-statefulset.yaml": lambda set_: set_["spec"]["replicas"],
    "trainer-trainjob.yaml": lambda job: job["spec"]["trainer"]["numNodes"],
    "trainer-volcano.yaml": lambda job: job["spec"]["tasks"][0]["replicas"],
}


def same(spec: Manifest) -> int:
    """The number of pods of an indexed Job, which Kubernetes resizes only if both are equal."""
    if spec["completionMode"] != "Indexed" or spec["completions"] != spec["parallelism"]:
        raise AssertionError(f"not elastic: {spec}")
    size: int = spec["completions"]
    return size


def policies(document: Any) -> list[Manifest]:
    """Every podFailurePolicy in it."""
    if isinstance(document, list):
        return [one for part in document for one in policies(part)]
    if not isinstance(document, dict):
        return []
    own = [document["podFailurePolicy"]] if "podFailurePolicy" in document else []
    return own + [one for part in document.values() for one in policies(part)]


class EveryTrainer(unittest.TestCase):
    """What holds for each manifest of trainers."""

    def setUp(self) -> None:
        self.trainers = all_trainers()
        self.aggregator = chart.render("helm-4", VALUE_SETS["smallest"])

    def test_there_is_one_for_each_kind(self) -> None:
        kinds = {kind_of(manifest) for one in self.trainers.values() for manifest in one.manifests}
        self.assertEqual(
            {
                ("batch/v1", "Job"),
                ("apps/v1", "StatefulSet"),
                ("jobset.x-k8s.io/v1alpha2", "JobSet"),
                ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"),
                ("trainer.kubeflow.org/v1alpha1", "TrainJob"),
                ("kubeflow.org/v1", "PyTorchJob"),
                ("batch.volcano.sh/v1alpha1", "Job"),
            },
            kinds,
        )

    def test_address_is_the_one_of_the_chart(self) -> None:
        service = chart.one(self.aggregator, "Service")
        pod = chart.one(self.aggregator, "StatefulSet")["metadata"]["name"] + "-0"
        port = {port["name"]: port["port"] for port in service["spec"]["ports"]}["grpc"]
        expected = f"{pod}.{service['metadata']['name']}.{chart.NAMESPACE}.svc:{port}"
        # The same for a release that is called basin, like the chart.
        expected = expected.replace(f"{chart.RELEASE}-basin", "basin")
        for name, trainers in self.trainers.items():
            with self.subTest(name):
                self.assertEqual(expected, trainers.env["BASIN_ADDRESS"]["value"])
                for manifest in trainers.manifests:
                    self.assertEqual(chart.NAMESPACE, manifest["metadata"]["namespace"])

    def test_variables_are_ones_that_clients_have(self) -> None:
        options = re.findall(r'Option\{"(\w+)"', CLIENT_OPTIONS.read_text(encoding="utf-8"))
        known = {f"BASIN_{option.upper()}" for option in options}
        needed = {
            *("ADDRESS", "TLS_CA", "TOKEN_FILE", "JOB", "RUN_ID", "WORKER_ID"),
            *("MAX_WORKERS", "MIN_WORKERS"),
        }
        for name, trainers in self.trainers.items():
            with self.subTest(name):
                self.assertLessEqual({f"BASIN_{key}" for key in needed}, trainers.env.keys())
                # Controllers set the others, such as JOB_COMPLETION_INDEX; a manifest that also
                # sets one would override that.
                self.assertLessEqual(trainers.env.keys(), known)

    def test_credentials_are_files_of_the_secret(self) -> None:
        doctor = documents(DEPLOY / "doctor.yaml")[0]["spec"]
        pods = {name: trainers.pod for name, trainers in self.trainers.items()}
        for name, pod in {**pods, "doctor.yaml": doctor}.items():
            with self.subTest(name):
                (container,) = pod["containers"]
                values = {one["name"]: one.get("value") for one in container["env"]}
                (volume,) = [
                    one["name"]
                    for one in pod["volumes"]
                    if one.get("secret", {}).get("secretName") == "basin-client"
                ]
                (mount,) = [one for one in container["volumeMounts"] if one["name"] == volume]
                self.assertTrue(mount["readOnly"])
                for variable, file in (("BASIN_TLS_CA", "ca.crt"), ("BASIN_TOKEN_FILE", "token")):
                    self.assertEqual(f"{mount['mountPath']}/{file}", values[variable])

    def test_worker_is_the_pod(self) -> None:
        for name, trainers in self.trainers.items():
            with self.subTest(name):
                self.assertEqual(
                    "metadata.name",
                    trainers.env["BASIN_WORKER_ID"]["valueFrom"]["fieldRef"]["fieldPath"],
                )

    def test_run_is_the_job_where_pods_have_its_uid(self) -> None:
        for name, trainers in self.trainers.items():
            # Their pods come from a Job of Kubernetes, which writes its uid into a label.
            of_a_job = name in JOBS
            with self.subTest(name):
                run = trainers.env["BASIN_RUN_ID"]
                if of_a_job:
                    self.assertEqual(
                        "metadata.labels['batch.kubernetes.io/controller-uid']",
                        run["valueFrom"]["fieldRef"]["fieldPath"],
                    )
                else:
                    self.assertEqual("1", run["value"])

    def test_numbers_of_workers_fit_together(self) -> None:
        for name, trainers in self.trainers.items():
            with self.subTest(name):
                most, least = (trainers.number(f"BASIN_{key}_WORKERS") for key in ("MAX", "MIN"))
                size = SIZES[name](trainers.manifests[-1])
                self.assertLess(least, size)
                if "BASIN_START_WORKERS" in trainers.env:
                    # A training that grows: it starts with the pods of the manifest.
                    self.assertEqual(size, trainers.number("BASIN_START_WORKERS"))
                    self.assertLess(size, most)
                else:
                    self.assertEqual(size, most)

    def test_script_gets_sigterm_and_has_time_to_leave(self) -> None:
        aggregator = chart.one(self.aggregator, "StatefulSet")["spec"]["template"]["spec"]
        probe = aggregator["containers"][0]["startupProbe"]
        # If both are on a node that is drained, the trainer must see the next aggregator, which
        # gives its round a verdict.
        move = (
            aggregator["terminationGracePeriodSeconds"]
            + probe["periodSeconds"] * probe["failureThreshold"]
        )
        for name, trainers in self.trainers.items():
            with self.subTest(name):
                self.assertGreater(trainers.pod["terminationGracePeriodSeconds"], move)
                # A shell would be process 1 in place of the script, and would not forward it.
                job = trainers.manifests[-1]
                image = job["spec"]["trainer"] if job["kind"] == "TrainJob" else trainers.container
                self.assertEqual("python3", image["command"][0])

    def test_meets_the_restricted_standard(self) -> None:
        for name, trainers in self.trainers.items():
            pod, container = trainers.pod, trainers.container
            with self.subTest(name):
                self.assertTrue(pod["securityContext"]["runAsNonRoot"])
                self.assertEqual("RuntimeDefault", pod["securityContext"]["seccompProfile"]["type"])
                self.assertFalse(container["securityContext"]["allowPrivilegeEscalation"])
                self.assertEqual({"drop": ["ALL"]}, container["securityContext"]["capabilities"])
                self.assertFalse(pod["automountServiceAccountToken"])

    def test_a_job_distinguishes_failures(self) -> None:
        for name in JOBS:
            with self.subTest(name):
                text = (DEPLOY / name).read_text(encoding="utf-8")
                (policy,) = policies(list(yaml.safe_load_all(text)))
                codes = {
                    "containerName": self.trainers[name].container["name"],
                    "operator": "In",
                }
                # The first rule that matches decides: a pod that its node has ended may have any
                # exit code.
                self.assertEqual(
                    [
                        {
                            "action": "Ignore",
                            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                        },
                        {"action": "FailJob", "onExitCodes": codes | {"values": [os.EX_CONFIG]}},
                        {"action": "Ignore", "onExitCodes": codes | {"values": [os.EX_TEMPFAIL]}},
                    ],
                    policy["rules"],
                )


class Image(unittest.TestCase):
    """deploy/trainer.Dockerfile builds what the manifests and compose.yaml run."""

    def setUp(self) -> None:
        text = (DEPLOY / "trainer.Dockerfile").read_text(encoding="utf-8")
        self.comment = "\n".join(line[4:] for line in text.splitlines() if line.startswith("#   "))
        self.lines = [line for line in text.splitlines() if not line.startswith("#")]

    def commands(self) -> dict[str, list[str]]:
        compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
        commands = {"compose.yaml": compose["services"]["trainer"]["command"]}
        for name, trainers in all_trainers().items():
            job = trainers.manifests[-1]
            own = job["spec"]["trainer"] if job["kind"] == "TrainJob" else trainers.container
            commands[name] = own["command"]
        return commands

    def test_manifests_have_its_name(self) -> None:
        (name,) = re.findall(r"--tag=(\S+)", self.comment)
        for file in sorted(DEPLOY.glob("trainer-*.yaml")):
            images = re.findall(r"^ *image: (.*)$", file.read_text(encoding="utf-8"), re.M)
            self.assertEqual({name}, set(images), file.name)
        page = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
        self.assertIn(f"docker push {name}\n", page)

    def test_it_has_the_script_of_each_command(self) -> None:
        scripts = {one for line in self.lines for one in re.findall(r"^COPY (\S+\.py) \.$", line)}
        self.assertIn("WORKDIR /trainer", self.lines)
        for name, (python, script, *options) in self.commands().items():
            with self.subTest(name):
                self.assertEqual("python3", python)
                self.assertIn(script, scripts)
                source = ROOT / "examples" / script
                self.assertIn(f"cp examples/{script} build/trainer", self.comment)
                text = source.read_text(encoding="utf-8")
                for option in options:
                    self.assertIn(f'add_argument("{option.partition("=")[0]}"', text)
                # A resize ends pods with SIGTERM.
                self.assertIn("with basin.leave_on_sigterm() as leaving:", text)

    def test_it_installs_what_the_script_imports(self) -> None:
        self.assertEqual(1, sum(line.endswith(" torch") for line in self.lines))
        (others,) = [line for line in self.lines if line.endswith("/*.whl")]
        self.assertIn("scikit-learn", others)
        text = (ROOT / "examples/digits.py").read_text(encoding="utf-8")
        imports = set(re.findall(r"^(?:import|from) (\w+)", text, re.M)) - sys.stdlib_module_names
        self.assertEqual({"basin", "torch", "sklearn"}, imports)

    def test_it_has_the_user_of_the_pods(self) -> None:
        for name, trainers in all_trainers().items():
            context = trainers.pod["securityContext"]
            user = f"{context['runAsUser']}:{context['runAsGroup']}"
            self.assertIn(f"USER {user}", self.lines, name)


class WalkThrough(unittest.TestCase):
    """Its commands that change the manifests, on a copy of them."""

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def test_every_image_comes_from_the_registry_of_the_user(self) -> None:
        deploy = changed_manifests(self.folder, "YOUR-REGISTRY")
        for name, before in images(DEPLOY).items():
            with self.subTest(name):
                expected = [one.replace("registry.example/", "YOUR-REGISTRY/") for one in before]
                self.assertEqual(expected, images(deploy)[name])
        ours = [one for found in images(deploy).values() for one in found]
        self.assertIn("YOUR-REGISTRY/basin:0.1.0", ours)
        # The page names the one that the manifests of trainers have.
        self.assertIn("YOUR-REGISTRY/digits-trainer:0.1.0", ours)
        self.assertFalse([one for one in ours if "registry.example" in one])

    def test_every_team_has_room_under_the_limits(self) -> None:
        """Those of the page, which the chart accepts."""
        page = (ROOT / "docs/kubernetes-reference.md").read_text(encoding="utf-8")
        (found,) = re.findall(r"```yaml\n# teams.yaml\n(.*?)```", page, re.S)
        values = yaml.safe_load(found)
        values["config"]["grpc"] = {"insecure": True}
        rendered = chart.render("helm-4", values)
        limits = yaml.safe_load(chart.one(rendered, "ConfigMap")["data"]["basind.yaml"])["limits"]
        self.assertEqual(values["config"]["limits"], limits)
        teams = 30
        self.assertIn("for thirty teams", page)
        self.assertGreaterEqual(limits["jobs"], teams * limits["team_jobs"])
        (container,) = chart.one(rendered, "StatefulSet")["spec"]["template"]["spec"]["containers"]
        memory = container["resources"]["limits"]["memory"]
        budget_mib = int(memory.removesuffix("Gi")) * 1024 * 4 // 10
        job_mib = int(limits["job_memory"].removesuffix("MiB"))
        self.assertLessEqual(teams * limits["team_jobs"] * job_mib, budget_mib)
        # And where people look first.
        example = (CHART / "values.yaml").read_text(encoding="utf-8")
        (comment,) = re.findall(r"^#     limits: (\{.*\})$", example, re.M)
        self.assertLessEqual(yaml.safe_load(comment).items(), limits.items())

    def test_client_certificates_are_files_of_the_secret(self) -> None:
        deploy = changed_manifests(self.folder, "- name: BASIN_TLS_")
        certificate = {
            "BASIN_TLS_CERT": "/etc/basin/client.crt",
            "BASIN_TLS_KEY": "/etc/basin/client.key",
        }
        without_pods = ("kueue.yaml", "progress.yaml", "shards-hpa.yaml", "trainers-hpa.yaml")
        for file in sorted(DEPLOY.glob("*.yaml")):
            if file.name in without_pods:
                continue
            (changed,) = with_pods(deploy / file.name)
            (before,) = with_pods(file)
            with self.subTest(file.name):
                self.assertFalse(certificate.keys() & before.env.keys())
                new = {name: one for name, one in changed.env.items() if name not in before.env}
                self.assertEqual(certificate, {name: one["value"] for name, one in new.items()})
                self.assertEqual("/etc/basin/ca.crt", changed.env["BASIN_TLS_CA"]["value"])
                self.assertLessEqual(before.env.items(), changed.env.items())


class Resizing(unittest.TestCase):
    """The commands that resize: each is in the manifest and in both tables."""

    def commands(self, name: str) -> list[str]:
        """The commands in the comment at the top of a manifest, each on one line."""
        text = (DEPLOY / name).read_text(encoding="utf-8")
        head = text[: text.index("apiVersion")]
        lines = "\n".join(line[4:] for line in head.splitlines() if line.startswith("#   "))
        joined = re.sub(r"\\\n +", "", lines)
        joined = re.sub(r"\n +", " ", joined).replace("[ ", "[")
        return [line for line in joined.splitlines() if line.startswith("kubectl")]

    def test_each_patch_changes_what_the_manifest_has(self) -> None:
        patched = []
        for name, trainers in all_trainers().items():
            for command in self.commands(name):
                found = re.search(r"--patch='(.*)'", command)
                if found is None:
                    continue
                patched.append(name)
                patch = json.loads(found[1])
                with self.subTest(name):
                    if "--type=merge" in command:
                        spec = trainers.manifests[0]["spec"]
                        self.assertLessEqual(patch["spec"].keys(), spec.keys())
                        self.assertEqual(1, len(set(patch["spec"].values())))
                        continue
                    for step in patch:
                        keys = step["path"].strip("/").split("/")
                        path = tuple(int(key) if key.isdigit() else key for key in keys)
                        self.assertEqual("replace", step["op"])
                        self.assertEqual(4, at(trainers.manifests[0], path))
        self.assertEqual(
            ["trainer-job-elastic.yaml", "trainer-jobset.yaml", "trainer-volcano.yaml"], patched
        )

    def test_new_size_has_room(self) -> None:
        for name, trainers in all_trainers().items():
            for command in self.commands(name):
                sizes = re.findall(r'--replicas=(\d+)|ism": (\d+)|"value": (\d+)', command)
                with self.subTest(name):
                    self.assertTrue(sizes)
                    for size in sizes:
                        new = int("".join(size))
                        self.assertLessEqual(new, trainers.number("BASIN_MAX_WORKERS"))

    def test_volcano_lets_the_training_shrink_to_its_minimum(self) -> None:
        """It refuses fewer replicas than minAvailable, of the Job and of its task. Without that of
        the task, it takes its replicas."""
        trainers = all_trainers()["trainer-volcano.yaml"]
        job = trainers.manifests[0]["spec"]
        least = trainers.number("BASIN_MIN_WORKERS")
        self.assertEqual(least, job["minAvailable"])
        self.assertEqual([least], [task["minAvailable"] for task in job["tasks"]])

    def test_tables_have_every_manifest_and_command(self) -> None:
        for page in (ROOT / "deploy/README.md", ROOT / "docs/kubernetes-reference.md"):
            rows = [
                line for line in page.read_text(encoding="utf-8").splitlines() if line[:1] == "|"
            ]
            for name in all_trainers():
                with self.subTest(name, page=page.name):
                    (row,) = [row for row in rows if f"`{name}`" in row and "resize" not in row]
                    for command in self.commands(name):
                        self.assertIn(f"`{command.replace(' --namespace training', '')}`", row)
                    self.assertEqual(not self.commands(name), "kubectl" not in row)


class OtherProjects(unittest.TestCase):
    """Kinds that Kubernetes itself does not have, and for which no types are published: only fields
    that their documentation has. test_kubeflow_models.py checks the others.

    What they contain of Kubernetes, pods and Jobs, is checked with its types.
    """

    FIELDS: ClassVar[dict[str, dict[tuple[str | int, ...], set[str]]]] = {
        "PyTorchJob": {
            (): {"runPolicy", "pytorchReplicaSpecs"},
            ("runPolicy",): {"cleanPodPolicy", "ttlSecondsAfterFinished"},
            ("pytorchReplicaSpecs", "Worker"): {"replicas", "restartPolicy", "template"},
        },
        "Job": {
            (): {
                *("schedulerName", "queue", "minAvailable", "maxRetry"),
                *("ttlSecondsAfterFinished", "tasks"),
            },
            ("tasks", 0): {"name", "replicas", "minAvailable", "template"},
        },
    }

    def test_fields(self) -> None:
        checked = set()
        for name, trainers in all_trainers().items():
            for manifest in trainers.manifests:
                if "." not in manifest["apiVersion"] or has_models(manifest):
                    continue  # A kind of Kubernetes, or one with types.
                checked.add(manifest["kind"])
                for path, fields in self.FIELDS[manifest["kind"]].items():
                    with self.subTest(name, path=path):
                        self.assertLessEqual(at(manifest["spec"], path).keys(), fields)
        self.assertEqual(self.FIELDS.keys(), checked)

    def test_job_of_kubeflow_uses_its_runtime(self) -> None:
        runtime, job = all_trainers()["trainer-trainjob.yaml"].manifests
        self.assertEqual(
            {
                "apiGroup": runtime["apiVersion"].split("/")[0],
                "kind": runtime["kind"],
                "name": runtime["metadata"]["name"],
            },
            job["spec"]["runtimeRef"],
        )
        (replicated,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        # By the label and the name of the container, Kubeflow finds what the TrainJob sets.
        labels = replicated["template"]["metadata"]["labels"]
        self.assertEqual({"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}, labels)
        (container,) = replicated["template"]["spec"]["template"]["spec"]["containers"]
        self.assertEqual("node", container["name"])

    def test_operator_finds_the_container_by_its_name(self) -> None:
        self.assertEqual("pytorch", all_trainers()["trainer-pytorchjob.yaml"].container["name"])


class NodesOfGpus(unittest.TestCase):
    """Pods of several workers, one for each GPU."""

    def setUp(self) -> None:
        self.trainers = trainers_of(DEPLOY / "gpu-trainers.yaml")
        self.one_worker = all_trainers()["trainer-job.yaml"]

    def ranks(self) -> int:
        (option,) = [
            one for one in self.trainers.container["command"] if "--nproc-per-node=" in one
        ]
        return int(option.split("=")[1])

    def test_a_rank_for_each_gpu(self) -> None:
        limits = self.trainers.container["resources"]["limits"]
        self.assertEqual(self.ranks(), limits["nvidia.com/gpu"])

    def test_numbers_of_workers_are_those_of_whole_nodes(self) -> None:
        nodes = same(self.trainers.manifests[0]["spec"])
        self.assertEqual(nodes * self.ranks(), self.trainers.number("BASIN_MAX_WORKERS"))
        least = self.trainers.number("BASIN_MIN_WORKERS")
        self.assertEqual((nodes - 1) * self.ranks(), least)
        # Two groups of pods must not train apart.
        self.assertGreater(2 * least, nodes * self.ranks())

    def test_pods_are_those_of_other_jobs_but_for_the_gpus(self) -> None:
        own = {
            *("POD_NAME", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "BASIN_LOCAL_GROUP"),
            *("BASIN_MAX_WORKERS", "BASIN_MIN_WORKERS"),
        }
        others = {"BASIN_MAX_WORKERS", "BASIN_MIN_WORKERS", "BASIN_WORKER_ID"}
        self.assertEqual(
            {name: one for name, one in self.one_worker.env.items() if name not in others},
            {name: one for name, one in self.trainers.env.items() if name not in own},
        )
        for part in ("securityContext", "volumeMounts"):
            self.assertEqual(self.one_worker.container[part], self.trainers.container[part])
        same_pod = {*self.one_worker.pod} - {"containers", "volumes"}
        for part in same_pod:
            self.assertEqual(self.one_worker.pod[part], self.trainers.pod[part], part)
        labels = self.trainers.template["metadata"]["labels"]
        self.assertEqual(self.one_worker.template["metadata"]["labels"], labels)

    def test_ranks_have_time_to_leave_and_torchrun_to_end(self) -> None:
        grace = self.trainers.pod["terminationGracePeriodSeconds"]
        ranks = self.trainers.number("TORCH_ELASTIC_SHUTDOWN_TIMEOUT")
        self.assertLess(ranks, grace)
        self.assertGreater(ranks, grace - 30)

    def test_its_page_names_it(self) -> None:
        for page in ("deploy/README.md", "docs/gpu.md"):
            text = (ROOT / page).read_text(encoding="utf-8")
            for file in ("gpu-trainers.yaml", "gpu-trainers.sbatch"):
                self.assertIn(file, text, page)


class Kueue(unittest.TestCase):
    def test_names_are_those_of_kueue(self) -> None:
        text = "".join(file.read_text(encoding="utf-8") for file in (DEPLOY / "kueue.yaml", *PAGES))
        names = set(re.findall(r"kueue\.x-k8s\.io/([-\w]+)", text))
        self.assertEqual({"queue-name", "elastic-job", "v1beta1", "v1beta2"}, names)
        gates = set(re.findall(r"Elastic\w+Slices", text))
        self.assertEqual({"ElasticJobsViaWorkloadSlices"}, gates)

    def test_queue_has_room_for_the_trainers(self) -> None:
        queue = {one["kind"]: one for one in documents(DEPLOY / "kueue.yaml")}
        self.assertEqual({"kueue.x-k8s.io/v1beta2"}, {one["apiVersion"] for one in queue.values()})
        cluster, local = queue["ClusterQueue"], queue["LocalQueue"]
        self.assertEqual(cluster["metadata"]["name"], local["spec"]["clusterQueue"])
        self.assertEqual(chart.NAMESPACE, local["metadata"]["namespace"])
        (group,) = cluster["spec"]["resourceGroups"]
        (flavor,) = group["flavors"]
        self.assertEqual(queue["ResourceFlavor"]["metadata"]["name"], flavor["name"])
        quota = {one["name"]: one["nominalQuota"] for one in flavor["resources"]}
        self.assertEqual(group["coveredResources"], list(quota))
        for name, trainers in all_trainers().items():
            with self.subTest(name):
                requests = trainers.container["resources"]["requests"]
                # Kueue does not start pods that request what the queue does not cover.
                self.assertEqual(requests.keys(), quota.keys())
                most = trainers.number("BASIN_MAX_WORKERS")
                self.assertLessEqual(most * int(requests["cpu"]), int(quota["cpu"]))
                gibibytes = [
                    int(one.removesuffix("Gi")) for one in (requests["memory"], quota["memory"])
                ]
                self.assertLessEqual(most * gibibytes[0], gibibytes[1])


def of_the_pages(sought: str) -> str:
    """The block of the pages about Kubernetes with these words."""
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    (block,) = [one for one in re.findall(r"```sh\n(.*?)```", pages, re.S) if sought in one]
    return str(block)


def changed_manifests(folder: Path, sought: str) -> Path:
    """A copy of deploy/ in the folder, after the commands of the pages with these words."""
    shutil.copytree(DEPLOY, folder / "deploy")
    subprocess.run(["bash", "-euc", of_the_pages(sought)], check=True, cwd=folder)
    return folder / "deploy"


def images(deploy: Path) -> dict[str, list[str]]:
    """Those of each manifest."""
    return {
        file.name: re.findall(r"^ *image: (.*)$", file.read_text(encoding="utf-8"), re.M)
        for file in sorted(deploy.glob("*.yaml"))
    }


def with_pods(file: Path) -> list[Trainers]:
    """Those of a manifest of trainers, or the pod of the doctor, which has their environment."""
    if file.name != "doctor.yaml":
        return [trainers_of(file)]
    return [Trainers(file, [manifest], manifest) for manifest in documents(file)]


def make_secrets(folder: Path) -> Path:
    """Runs the commands of the walk-through, with kubectl replaced. Returns a folder with the files
    of each Secret."""
    block = of_the_pages("dev-certs certs")
    programs = folder / "programs"
    programs.mkdir()
    (programs / "basinctl").symlink_to(PROGRAMS[2])
    (programs / "kubectl").write_text(f"#!{sys.executable}\n{KUBECTL}", encoding="utf-8")
    (programs / "kubectl").chmod(0o755)
    secrets = folder / "secrets"
    subprocess.run(
        ["bash", "-euc", block],
        check=True,
        capture_output=True,
        cwd=folder,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "SECRETS": str(secrets)},
    )
    return secrets


class RealWorkers(unittest.TestCase):
    def setUp(self) -> None:
        if not PROGRAMS:
            self.skipTest("this build has no basind")
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.secrets = make_secrets(self.folder)

    def in_pod(self, trainers: Trainers, value: str) -> str:
        """The value of a variable; a file of a mounted Secret is where make_secrets() put it."""
        secrets = {
            volume["name"]: volume["secret"]["secretName"]
            for volume in trainers.pod["volumes"]
            if "secret" in volume
        }
        for mount in trainers.container["volumeMounts"]:
            if mount["name"] in secrets and value.startswith(mount["mountPath"] + "/"):
                file = value.removeprefix(mount["mountPath"] + "/")
                return str(self.secrets / secrets[mount["name"]] / file)
        return value

    def environment(self, trainers: Trainers, index: int, uid: str, address: str) -> dict[str, str]:
        """The environment of the pod with this index. Only the address differs: there is no DNS."""
        metadata = {
            "metadata.name": f"digits-{index}-x7k2p",
            "metadata.labels['batch.kubernetes.io/controller-uid']": uid,
        }
        given = {
            name: self.in_pod(trainers, variable["value"])
            if "value" in variable
            else metadata[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            for name, variable in trainers.env.items()
        }
        return {**given, "BASIN_ADDRESS": address, "JOB_COMPLETION_INDEX": str(index)}

    def start_basind(self, *more: str) -> str:
        """The address for workers. It has the certificate and the grants of the walk-through."""
        # Workers of an unknown run do not wait for others to come back.
        flags = ["--grpc-listen=127.0.0.1:0", "--recovery-window=100ms", "--http-listen=none"]
        flags.append("--local-listen=none")  # The walk-through has them on different machines.
        files = [
            f"--tls-cert={self.secrets}/basin-tls/tls.crt",
            f"--tls-key={self.secrets}/basin-tls/tls.key",
            f"--auth-file={self.secrets}/basin-grants/grants",
        ]
        admin = "--admin-listen=127.0.0.1:0"
        process = self.start([PROGRAMS[0], *flags, *files, admin, *more], {})
        assert process.stdout is not None
        for line in process.stdout:
            if addresses := json.loads(line).get("addresses"):
                self.operators = addresses["admin"]
                return str(addresses["grpc"])
        self.fail("basind ended")

    def start(self, command: list[str], variables: dict[str, str]) -> subprocess.Popen[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("BASIN_")}
        process = subprocess.Popen(
            command, env={**kept, **variables}, stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def test_the_doctor_of_deploy_gets_where_trainers_get(self) -> None:
        (manifest,) = documents(DEPLOY / "doctor.yaml")
        doctor = Trainers(DEPLOY / "doctor.yaml", [manifest], manifest)
        trainers = all_trainers()["trainer-job.yaml"]
        for name, variable in doctor.env.items():
            self.assertEqual(trainers.env[name], variable)
        given = {name: self.in_pod(doctor, one["value"]) for name, one in doctor.env.items()}
        program, *arguments = doctor.container["command"]
        self.assertEqual("basinctl", Path(program).name)
        process = self.start(
            [PROGRAMS[2], *arguments], {**given, "BASIN_ADDRESS": self.start_basind()}
        )
        diagnosis, _ = process.communicate(timeout=PATIENCE_SECONDS)
        self.assertEqual(0, process.returncode, diagnosis)
        for step in ("tls", "token", "version"):
            self.assertRegex(diagnosis, f"ok +{step} ")
        self.assertIn("for the job training/digits", diagnosis)

    def test_client_certificates_of_the_walk_through_are_accepted(self) -> None:
        """Those of the doctor, which checks what trainers do at first."""
        address = self.start_basind(f"--tls-client-ca={self.secrets}/basin-tls/ca.crt")
        deploy = changed_manifests(self.folder, "- name: BASIN_TLS_")
        for folder, succeeds in ((deploy, True), (DEPLOY, False)):
            (doctor,) = with_pods(folder / "doctor.yaml")
            given = {name: self.in_pod(doctor, one["value"]) for name, one in doctor.env.items()}
            process = self.start(
                [PROGRAMS[2], *doctor.container["command"][1:]],
                {**given, "BASIN_ADDRESS": address},
            )
            diagnosis, _ = process.communicate(timeout=PATIENCE_SECONDS)
            self.assertEqual(succeeds, process.returncode == 0, diagnosis)
        self.meet(address, all_trainers(deploy)["trainer-job.yaml"])

    def test_meet_under_the_variables_of_the_manifest(self) -> None:
        self.meet(self.start_basind(), all_trainers()["trainer-job.yaml"])

    def meet(self, address: str, trainers: Trainers) -> None:
        """Two runs, each of all workers."""
        workers = trainers.manifests[0]["spec"]["completions"]
        # A recreated Job has another uid, so it is another run of the same training job.
        for uid in (str(uuid.uuid4()), str(uuid.uuid4())):
            package = {"BASIN_LIBRARY": PROGRAMS[1], "PYTHONPATH": str(ROOT / "client/python")}
            processes = [
                self.start(
                    [sys.executable, "-c", TRAINER],
                    {**self.environment(trainers, index, uid, address), **package},
                )
                for index in range(workers)
            ]
            said = [process.communicate(timeout=PATIENCE_SECONDS)[0] for process in processes]
            everybody = float(2**workers - 1)
            self.assertEqual(
                [f"digits-{index}-x7k2p {workers} {everybody}\n" for index in range(workers)], said
            )

    def test_ranks_of_pods_with_gpus_meet_as_different_workers(self) -> None:
        """torchrun, which numbers the ranks of each pod from 0, runs what follows --no-python."""
        address, uid = self.start_basind(), str(uuid.uuid4())
        trainers = trainers_of(DEPLOY / "gpu-trainers.yaml")
        command = trainers.container["command"]
        ranks = 2
        pods = [f"digits-{index}-x7k2p" for index in range(2)]
        programs = self.folder / "of-the-image"
        programs.mkdir()
        (programs / "train").write_text(TRAINER, encoding="utf-8")
        script = f'#!/bin/sh\nexec {sys.executable} "$(dirname "$0")/train"\n'
        (programs / "python3").write_text(script, encoding="utf-8")
        (programs / "python3").chmod(0o755)
        processes = {
            f"{pod}-{rank}": self.start(
                command[command.index("--no-python") + 1 :],
                {
                    **self.environment(trainers, index, uid, address),
                    "POD_NAME": pod,
                    # Fewer than in the manifest.
                    "BASIN_MAX_WORKERS": str(len(pods) * ranks),
                    "BASIN_MIN_WORKERS": "3",
                    # What torchrun sets. The number of the part of the data is for the sum.
                    **{"RANK": str(rank), "WORLD_SIZE": str(ranks), "GROUP_RANK": "0"},
                    **{"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks)},
                    "JOB_COMPLETION_INDEX": str(index * ranks + rank),
                    # There is only one host here; a pod has a name of its own.
                    "BASIN_LOCAL_GROUP": "off",
                    "BASIN_LIBRARY": PROGRAMS[1],
                    "PYTHONPATH": str(ROOT / "client/python"),
                    "PATH": f"{programs}:{os.environ['PATH']}",
                },
            )
            for index, pod in enumerate(pods)
            for rank in range(ranks)
        }
        for worker, process in processes.items():
            said, _ = process.communicate(timeout=PATIENCE_SECONDS)
            self.assertEqual(f"{worker} {len(processes)} 15.0\n", said)

    def test_certificate_is_for_the_address_of_the_manifests(self) -> None:
        address, port = self.start_basind().split(":")
        trust = ssl.create_default_context(cafile=self.secrets / "basin-client/ca.crt")
        trust.set_alpn_protocols(["h2"])
        for name, trainers in all_trainers().items():
            host = trainers.env["BASIN_ADDRESS"]["value"].split(":")[0]
            with (
                self.subTest(name),
                socket.create_connection((address, int(port))) as connection,
                trust.wrap_socket(connection, server_hostname=host) as encrypted,
            ):
                self.assertEqual("h2", encrypted.selected_alpn_protocol())

    def test_operator_connects_with_the_files_of_the_walk_through(self) -> None:
        self.start_basind()
        files = {
            "BASIN_TLS_CA": self.folder / "certs/ca.crt",
            "BASIN_TOKEN_FILE": self.folder / "operator.token",
        }
        done = self.start(
            [PROGRAMS[2], "status", f"--address={self.operators}"],
            {name: str(file) for name, file in files.items()},
        )
        done.communicate(timeout=PATIENCE_SECONDS)
        self.assertEqual(0, done.returncode)

    def test_resize_with_new_pods_of_an_elastic_job(self) -> None:
        self.resize("trainer-job-elastic.yaml", next_pod=4)

    def test_resize_with_a_pod_of_a_stateful_set_that_returns(self) -> None:
        # It has the name of the one that left, and so its worker id.
        self.resize("trainer-statefulset.yaml", next_pod=3)

    def resize(self, manifest: str, next_pod: int) -> None:
        """Four workers, then three after SIGTERM, then four again with `next_pod`."""
        address, uid = self.start_basind(), str(uuid.uuid4())
        trainers = all_trainers()[manifest]
        package = {"BASIN_LIBRARY": PROGRAMS[1], "PYTHONPATH": str(ROOT / "client/python")}

        def launch(pod: int, part: int) -> subprocess.Popen[str]:
            environment = self.environment(trainers, pod, uid, address)
            return self.start(
                [sys.executable, "-u", "-c", ELASTIC_TRAINER],
                {**environment, **package, "JOB_COMPLETION_INDEX": str(part)},
            )

        def next_line(process: subprocess.Popen[str]) -> str:
            assert process.stdout is not None
            return process.stdout.readline()

        processes = [launch(index, index) for index in range(4)]
        for process in processes:
            self.assertEqual("15.0\n", next_line(process))
        processes[3].terminate()
        # It leaves between two steps, so every sum is with its part or without it.
        self.assertEqual("", processes[3].communicate(timeout=PATIENCE_SECONDS)[0])
        self.assertEqual(128 + signal.SIGTERM, processes[3].returncode)
        for process in processes[:3]:
            self.assertEqual("7.0\n", next_line(process))
        processes[3] = launch(next_pod, 4)
        for process in processes:
            self.assertEqual("23.0\n", next_line(process))
            process.communicate(timeout=PATIENCE_SECONDS)
            self.assertEqual(0, process.returncode)


if __name__ == "__main__":
    require("helm-4")
    PROGRAMS = sys.argv[1:]
    unittest.main(argv=sys.argv[:1], verbosity=2)
