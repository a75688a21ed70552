# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A training job on real Kubernetes: installed as in docs/kubernetes.md, then resized, killed,
upgraded, rolled back, given new certificates and drained, without a lost step.

Trainers are pods of deploy/trainer-statefulset.yaml with the trainer of tests/integration, whose
results show which workers were counted, and how often. After each stage every step has the right
result, the same bits in every pod that applied it, and none is missing.

Usage: test_cluster.py BASIND BASINCTL TRAINER [LIBRARY | standby | node | shards]

With LIBRARY, the C library for Python, jobs train in PyTorch instead. With the word "standby",
there are two aggregators, of which one leads; with "node" they are on two nodes, of which one is
lost. With "shards", the aggregator has shards, which come and go.
"""

import contextlib
import copy
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import sysconfig
import threading
import time
import unittest
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helm"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))
import cluster
import image
from cluster import Cluster, Node, condition
from followed import Followed, longest_pause, missing_steps
from oracle import Jobs
from tools import CHART, ROOT, SKIPPED, require, tool
from trainers import DEPLOY, Manifest, Trainers, trainers_of

BASIND, BASINCTL, TRAINER = Path(), Path(), Path()
LIBRARY: Path | None = None
STAGES = ""

PAGES = [
    ROOT / "docs" / name for name in ("kubernetes.md", "kubernetes-reference.md", "runbooks.md")
]
REPOSITORY = "registry.example/basin"
NEXT_IMAGE = "image.tag=0.2.0"
CLIENT_CERTIFICATES = "tls.clientCertificates=true"

# In place of Helm. This Kubernetes is older than those that the chart and Helm 4 support: it drops
# fields that it does not know, which Helm would refuse, and cannot apply a chart itself.
HELM = """\
#!/bin/sh
case $1 in install | upgrade) set -- "$@" --disable-openapi-validation {more} ;; esac
exec {helm} "$@"
"""
MORE = {"helm-3": "", "helm-4": "--server-side=false"}
PACE_MS = 20
# Training has gone on when there are so many more steps.
SOME_STEPS = 20

STANDBY, NODE, SHARDS = "standby", "node", "shards"
TESTS = {
    "": "test_training_goes_on",
    STANDBY: "test_a_standby_takes_over",
    NODE: "test_a_node_is_lost",
    SHARDS: "test_shards_come_and_go",
}
LEASE = "basin-leader"
# Of the chart, by default.
LEASE_SECONDS = 3.0
# From the end of a leader that is killed to the next step: its lease, and some more.
MOST_SECONDS = 5.0
# The same where its node is lost: nobody says that the connections have ended.
MOST_SECONDS_OF_A_NODE = LEASE_SECONDS + 3
# The leader hands over: the median of so many times.
MOST_SECONDS_TO_HAND_OVER, HAND_OVERS = 0.5, 6
# The node has two processors, and trainers and the pod of `helm test` need room, too.
SMALL = "--set resources.requests.cpu=100m"

# A gradient that is large enough for four shards and the aggregator, with 1 MiB for each.
LARGE = ("--tensors=4", "--elements=400000")
MOST_SHARDS = 4
SMALL_SHARDS = f"{SMALL} --set resources.requests.memory=256Mi --set resources.limits.memory=1Gi"
# From the end of a shard that is killed to the next step, at best, of so many times.
MOST_SECONDS_OF_A_SHARD, KILLS = 1.0, 3
# In place of the variables of Kubernetes: the Service of the API server has an address of its own,
# which this node does not route.
API_SERVER = """\
            - name: KUBERNETES_SERVICE_HOST
              value: kubernetes.default.svc
            - name: KUBERNETES_SERVICE_PORT
              value: "6443"
"""

# A disruption budget, in the version that this Kubernetes knows.
OLD_BUDGET = ("policy/v1\n", "policy/v1beta1\n")

FORBIDDEN = "HTTP Error 403: Forbidden"
# Workers that show their progress, and stay until they are told to end.
REPORTER = """
import signal
import basin
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
with basin.connect() as client:
    client.report_progress(0.25, loss=2)
    client.report_progress(1, loss=0.5)
    print("reported", flush=True)
    signal.sigwait([signal.SIGTERM])
"""
# The same to the pod of its argument, without a job.
REPORT = """
import os
import sys
from basin.progress import Progress
os.environ["BASIN_PROGRESS_POD"] = sys.argv[1]
progress = Progress()
progress.report(0.5, {}, send=True)
progress.close()
"""


# With Python, but without the packages of a trainer; see Training.with_packages. Not named
# "python", which is an alias for an image in a registry.
PYTHON = image.Base("interpreter", "extract", "python3,base-files,netbase,tzdata")


def make_images(folder: Path, pause: Path) -> list[Path]:
    """Archives of all images that the node needs. Raises image.CannotMakeBase."""
    context = folder / "context"
    context.mkdir(parents=True)
    images = image.Images(folder)
    images.make_base(image.SHELL)
    images.make_base(image.RUNTIME)
    collect = ROOT / "scripts/image-root.sh"
    subprocess.run([collect, context / "service", BASIND, BASINCTL], check=True)
    subprocess.run([collect, context / "trainer", TRAINER], check=True)
    of_pause = context / "Dockerfile"
    of_pause.write_text('FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n')
    shutil.copy(pause, context)
    images.build("pause:1", of_pause, context, {})
    names = ["pause:1"]
    version = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
    # The image of the upgrade has the same programs.
    made = [
        (f"basin:{version}", image.RUNTIME, "service"),
        ("basin:next", image.RUNTIME, "service"),
        ("trainer:1", image.RUNTIME, "trainer"),
    ]
    if LIBRARY is not None:
        images.make_base(PYTHON)
        subprocess.run([collect, context / "python", LIBRARY], check=True)
        made.append(("python:1", PYTHON, "python"))
    for name, base, root in made:
        arguments = {
            "BUILD_BASE": "localhost/shell",
            "BASE": f"localhost/{base.name}",
            "PREBUILT": root,
        }
        images.build(name, ROOT / "Dockerfile", context, arguments)
        names.append(name)
    archives = [folder / f"{name.replace(':', '-')}.tar" for name in names]
    for name, archive in zip(names, archives):
        images.save(name, archive)
    return archives


class Training(Jobs):
    cluster: ClassVar[Cluster]
    second: ClassVar[Node]  # If there are two nodes.
    folder: ClassVar[Path]

    @classmethod
    def setUpClass(cls) -> None:
        started = time.monotonic()
        try:
            cls.cluster = Cluster()
        except cluster.CannotBuild as error:
            print(f"skipped: Kubernetes cannot be built here:\n{error}")
            sys.exit(SKIPPED)
        cls.addClassCleanup(cls.cluster.close)
        built = time.monotonic()
        # What the walk-through calls, in the folder in which it calls it.
        cls.folder = cls.cluster.folder / "walk"
        shutil.copytree(CHART, cls.folder / "helm/basin")
        shutil.copytree(DEPLOY, cls.folder / "deploy")
        drop_version(cls.folder / "helm/basin/Chart.yaml")
        programs = cls.cluster.folder / "programs"
        programs.mkdir()
        (programs / "basinctl").symlink_to(BASINCTL)
        # Helm 3 installs; Helm 4 does the rest.
        for name, version in (("helm", "helm-3"), ("helm-4", "helm-4")):
            text = HELM.format(helm=tool(version), more=MORE[version])
            (programs / name).write_text(text, encoding="utf-8")
            (programs / name).chmod(0o755)
        try:
            archives = make_images(cls.cluster.folder / "images", cls.cluster.programs / "pause")
        except image.CannotMakeBase as error:
            print(f"skipped: no base image can be made here:\n{error}")
            # The end of the program does not clean up.
            cls.doClassCleanups()
            sys.exit(SKIPPED)
        cls.cluster.await_nodes(1)
        nodes: list[Node] = [cls.cluster]
        if STAGES == NODE:
            cls.second = cls.cluster.add_node()
            cls.cluster.await_nodes(2)
            nodes.append(cls.second)
        for archive in archives:
            for node in nodes:
                node.import_image(archive)
        print(
            f"Kubernetes built in {built - started:.0f} s; "
            f"node ready and images made in {time.monotonic() - built:.0f} s"
        )

    def setUp(self) -> None:
        super().setUp()
        self.followed: list[Followed] = []

    # ---- How the stages look and act ------------------------------------------------------------

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        return self.cluster.kubectl("--namespace=training", *arguments, stdin=stdin)

    def shell(self, commands: str) -> str:
        """Commands of the pages, as a user gives them."""
        path = f"{self.cluster.folder / 'programs'}:{self.cluster.environment()['PATH']}"
        command = ("bash", "-euo", "pipefail", "-c", commands)
        return self.cluster.run(*command, folder=self.folder, env={"PATH": path}).stdout

    def of_the_pages(self, sought: str, language: str = "sh") -> str:
        """The block of the pages with these words, for the images of this test."""
        pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
        blocks = re.findall(rf"```{language}\n(.*?)```", pages, re.S)
        (found,) = [one for one in blocks if sought in one]
        return str(found).replace(REPOSITORY, "localhost/basin")

    def pod(self, name: str, but: str = "") -> Manifest:
        """The pod when it is ready; another one than the one with the uid `but`."""
        return self.cluster.watch(
            "pods",
            lambda pod: pod["metadata"]["uid"] != but and condition(pod, "Ready"),
            "--namespace=training",
            f"--field-selector=metadata.name={name}",
        )

    def follow(self, name: str, but: str = "") -> Followed:
        uid = self.pod(name, but)["metadata"]["uid"]
        followed = Followed(self.cluster, name, uid)
        self.addCleanup(followed.close)
        self.followed.append(followed)
        return followed

    def latest(self, index: int) -> Followed:
        """The latest pod with this index."""
        (*_, latest) = [one for one in self.followed if one.worker == f"digits-{index}"]
        return latest

    def expect_members(self, workers: int) -> None:
        """Only the first trainers are counted in each step from now on."""
        for index in range(workers):
            self.latest(index).await_more(1, "applied", mask=2**workers - 1)
            self.latest(index).await_more(SOME_STEPS, "applied")
            (*_, last) = self.latest(index).find("applied")
            self.assertEqual(2**workers - 1, last["mask"])
        pods = yaml.safe_load(
            self.kubectl("get", "pods", "--selector=app.kubernetes.io/name=digits", "-o", "yaml")
        )["items"]
        present = {pod["metadata"]["uid"]: pod for pod in pods}
        for index in range(workers):
            pod = present[self.latest(index).uid]
            with self.subTest(pod["metadata"]["name"]):
                self.assertEqual(0, pod["status"]["containerStatuses"][0]["restartCount"])
        self.assertEqual(["running", str(workers)], self.state_and_members())

    def state_and_members(self) -> list[str]:
        """The state that `basinctl status` shows."""
        with self.forwarded():
            lines = self.status("certs/ca.crt").stdout.splitlines()
        (job,) = [line.split() for line in lines if line.startswith("training/digits ")]
        return job[1:3]

    def status(
        self, authority: str, check: bool = True, certificate: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """While the port is forwarded."""
        command = (BASINCTL, "status", f"--tls-ca={authority}", "--token-file=operator.token")
        own = ("--tls-cert=certs/client.crt", "--tls-key=certs/client.key") if certificate else ()
        return self.cluster.run(*command, *own, folder=self.folder, check=check)

    @contextlib.contextmanager
    def forwarded(self, pod: str = "basin-0") -> Iterator[None]:
        process = self.cluster.start(
            "kubectl", "--namespace=training", "port-forward", pod, "29602"
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            self.assertIn("Forwarding from 127.0.0.1:29602", line)
            yield
        finally:
            process.kill()
            process.communicate()

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Afterwards no step is missing, and each is right and the same everywhere."""
        began, since = time.monotonic(), time.time()
        yield
        steps = self.expect_all_steps()
        pause = longest_pause(self.latest(0), since)
        print(
            f"{name}: {time.monotonic() - began:.1f} s, {steps} steps so far, "
            f"the longest between two of them {pause:.2f} s",
            flush=True,
        )

    def expect_all_steps(self) -> int:
        """The number of steps so far."""
        self.expect_one_history(self.followed)
        self.assertEqual(set(), missing_steps(self.followed))
        for trainer in self.followed:
            for trouble in ("aborted", "rejected", "failed"):
                self.assertEqual([], trainer.find(trouble), trainer.worker)
        return max(line["step"] for one in self.followed for line in one.find("applied")[-1:])

    # ---- The stages -----------------------------------------------------------------------------

    def test_training_goes_on(self) -> None:
        self.install()
        self.start_trainers()
        with self.stage("a trainer is deleted by force"):
            self.delete_a_trainer()
        with self.stage("scaled to 2"):
            self.scale(3, 2)
        with self.stage("scaled to 8"):
            self.scale(2, 8)
        with self.stage("scaled to 3"):
            self.scale(8, 3)
        with self.stage("the aggregator is deleted by force"):
            self.delete_the_aggregator()
        with self.stage("the aggregator is upgraded, and asks for client certificates"):
            self.upgrade()
        with self.stage("an image that does not exist, and a rollback"):
            self.roll_back()
        with self.stage("certificates and their authority are replaced"):
            self.rotate_certificates()
        with self.stage("scaled to 4 with the new authority"):
            self.scale(3, 4)
        # All trainers reconnect, and by now they trust only the new authority.
        with self.stage("the node is drained of the aggregator"):
            self.drain()
        self.end()
        self.run_a_job()
        self.uninstall()

    def test_pytorch_trains(self) -> None:
        assert LIBRARY is not None
        self.install()
        self.run_a_job_in_pytorch(LIBRARY)
        self.resize_pytorch(LIBRARY)
        self.show_progress(LIBRARY)
        self.uninstall()

    def test_a_standby_takes_over(self) -> None:
        self.start_with_a_standby()
        killed = time.time()
        with self.stage("the process of the leader is killed"):
            gone = self.leader()
            self.kill(self.pod(gone))
            self.expect_takeover(gone)
        self.assertLess(longest_pause(self.latest(0), killed), MOST_SECONDS)
        killed = time.time()
        with self.stage("the pod of the leader is deleted by force"):
            gone = self.leader()
            self.kubectl("delete", "pod", gone, "--force", "--grace-period=0")
            self.expect_takeover(gone)
        self.assertLess(longest_pause(self.latest(0), killed), MOST_SECONDS)
        for index in range(2):
            self.pod(f"basin-{index}")
        pauses = [self.hand_over() for _ in range(HAND_OVERS)]
        print("pauses of hand-overs, in s:", *(f"{pause:.2f}" for pause in sorted(pauses)))
        self.assertLess(statistics.median(pauses), MOST_SECONDS_TO_HAND_OVER)
        with self.stage("both aggregators are upgraded"):
            uids = {name: self.pod(name)["metadata"]["uid"] for name in ("basin-0", "basin-1")}
            self.upgrade_to_next()
            for name, uid in uids.items():
                self.pod(name, but=uid)
            self.expect_steps()
        self.uninstall()

    def test_a_node_is_lost(self) -> None:
        self.start_with_a_standby(node="node-1")
        nodes = {self.pod(f"basin-{i}")["spec"]["nodeName"]: f"basin-{i}" for i in range(2)}
        away = nodes["node-2"]
        if self.leader() != away:
            self.step_down(nodes["node-1"])
            self.expect_takeover(nodes["node-1"])
        lost = time.time()
        with self.stage("the node of the leader is lost"):
            self.cluster.lose_node(self.second)
            self.expect_takeover(away)
        self.assertLess(longest_pause(self.latest(0), lost), MOST_SECONDS_OF_A_NODE)
        self.uninstall()

    def test_shards_come_and_go(self) -> None:
        self.adapt("shards.yaml", *OLD_BUDGET)
        names = [f"basin-shard-{i}" for i in range(MOST_SHARDS)]
        self.install(SMALL_SHARDS, *(f"{name}.basin-shard.training.svc" for name in names))
        self.start_trainers("", *LARGE)
        first = self.aggregator()
        aggregator = Followed(self.cluster, "basin-0", first)
        self.addCleanup(aggregator.close)
        with self.stage("two shards are added"):
            commands, _, _ = self.of_the_pages("--role=shard").partition("basinctl events")
            self.shell(commands.replace("helm ", "helm-4 "))
            self.expect_shards(2)
        for count in (3, 1, 4):
            with self.stage(f"shards.count={count}"):
                self.upgrade_with(f"shards.count={count}")
                self.expect_shards(count)
        # As an autoscaler does.
        for count in (2, 3):
            with self.stage(f"scaled to {count} shards"):
                self.kubectl("scale", "statefulset", "basin-shard", f"--replicas={count}")
                self.expect_shards(count)
        # Each drained, and nothing of it was pushed again.
        self.assertEqual([], aggregator.find("shard_lost"))
        self.assertEqual(2 + 2, len(aggregator.find("shard_drained")))
        pauses = [self.kill_a_shard(names[i % 3], aggregator) for i in range(KILLS)]
        print("pauses after the end of a shard, in s:", *(f"{pause:.2f}" for pause in pauses))
        self.assertLess(min(pauses), MOST_SECONDS_OF_A_SHARD)
        self.assertEqual(first, self.aggregator(), "It is not restarted.")
        self.uninstall()

    def kill_a_shard(self, name: str, aggregator: Followed) -> float:
        """Seconds without a step; the shard is used again afterwards."""
        began = time.time()
        lost = len(aggregator.find("shard_lost"))
        with self.stage(f"the process of {name} is killed"):
            self.kill(self.pod(name))
            self.expect_members(3)
            self.assertEqual(lost + 1, len(aggregator.find("shard_lost")))
        pause = longest_pause(self.latest(0), began)
        self.expect_shards(3)
        return pause

    def expect_shards(self, count: int) -> None:
        """So many shards, each with a part of the gradients, and then more steps."""
        expected = {"", *(f"basin-shard-{i}" for i in range(count))}
        deadline = time.monotonic() + cluster.PATIENCE_SECONDS
        with self.forwarded():
            while (found := self.shards_with_bytes()) != expected:
                self.assertLess(time.monotonic(), deadline, found)
                threading.Event().wait(0.25)
        self.expect_members(3)

    def shards_with_bytes(self) -> set[str]:
        """While the port is forwarded. The aggregator has no name."""
        secured = ("--tls-ca=certs/ca.crt", "--token-file=operator.token")
        command = (BASINCTL, "shards", "-o", "json", *secured)
        said = json.loads(self.cluster.run(*command, folder=self.folder).stdout)
        return {
            shard.get("name", "")
            for shard in said["shards"]
            if any(int(job.get("bytes", 0)) > 0 for job in shard.get("jobs", []))
        }

    def start_with_a_standby(self, node: str = "") -> None:
        """`node`: the one of the trainers."""
        self.adapt_standbys()
        self.install(f"--set replicaCount=2 {SMALL}", "basin-1.basin.training.svc")
        hosts = [f"basin-{i}.basin.training.svc:29600" for i in range(2)]
        self.start_trainers(",".join(hosts), node=node)

    def step_down(self, leader: str) -> None:
        with self.forwarded(leader):
            command = (BASINCTL, "step-down", "--tls-ca=certs/ca.crt")
            self.cluster.run(*command, "--token-file=operator.token", folder=self.folder)

    def hand_over(self) -> float:
        """Seconds without a step while the leader changes, of which it prints the parts."""
        before = self.leader()
        after = "basin-1" if before == "basin-0" else "basin-0"
        logs = []
        for name in (before, after):
            logs.append(Followed(self.cluster, name, self.pod(name)["metadata"]["uid"]))
            self.addCleanup(logs[-1].close)
        began = time.time()
        with self.stage("the leader is asked to step down"):
            self.step_down(before)
            self.expect_takeover(before)
        steps = [line["time"] for line in self.latest(0).find("applied")]
        logs[0].await_more(0, "leads_no_more")
        (*_, leads) = [line["time"] for line in logs[1].find("leads")]
        (*_, ended) = [line["time"] for line in logs[0].find("leads_no_more")]
        last, following = max(t for t in steps if t < leads), min(t for t in steps if t > leads)
        print(
            f"from the last step to the lead {leads - last:.2f} s, to the end of the sessions "
            f"{ended - leads:.2f} s, to the next step {following - ended:.2f} s"
        )
        for log in logs:
            log.close()
        return longest_pause(self.latest(0), began)

    def upgrade_with(self, value: str) -> None:
        command = "helm-4 upgrade basin helm/basin --namespace training --reuse-values --set"
        self.shell(f"{command} {value}")

    def upgrade_to_next(self) -> None:
        self.upgrade_with(NEXT_IMAGE.replace("0.2.0", "next"))

    def adapt_standbys(self) -> None:
        """Changes the copy of the chart so that this Kubernetes can have standbys."""
        self.adapt("statefulset.yaml", "          env:\n", f"          env:\n{API_SERVER}")
        self.adapt("standby.yaml", *OLD_BUDGET)

    def adapt(self, template: str, old: str, new: str) -> None:
        """Changes a file of the copy of the chart."""
        file = self.folder / "helm/basin/templates" / template
        text = file.read_text(encoding="utf-8")
        self.assertEqual(1, text.count(old), template)
        file.write_text(text.replace(old, new), encoding="utf-8")

    def leader(self, but: str = "") -> str:
        """The pod that leads, when another one than `but` does."""

        def pod_of(lease: Manifest) -> str:
            address: str = lease["metadata"].get("annotations", {}).get("basin/address", "")
            return address.partition(".")[0]

        found = self.cluster.watch(
            "leases",
            lambda lease: pod_of(lease) not in ("", but),
            "--namespace=training",
            f"--field-selector=metadata.name={LEASE}",
        )
        return pod_of(found)

    def kill(self, pod: Manifest) -> None:
        """Kills basind in its container, which Kubernetes then starts again."""
        (container,) = pod["status"]["containerStatuses"]
        name = container["containerID"].rpartition("/")[2]
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if name not in (process / "cgroup").read_text(encoding="utf-8"):
                    continue
                if (process / "comm").read_text(encoding="utf-8").strip() == "basind":
                    os.kill(int(process.name), signal.SIGKILL)
                    return
        self.fail(f"no basind runs in {name}")

    def expect_takeover(self, before: str) -> None:
        print(f"{self.leader(but=before)} leads after {before}")
        self.expect_steps()

    def expect_steps(self) -> None:
        """All three trainers are counted in more steps."""
        for index in range(3):
            self.latest(index).await_more(SOME_STEPS, "applied", mask=0b111)

    def install(self, more: str = "", *other_hosts: str) -> None:
        """`more`: arguments of Helm; `other_hosts`: more names for the certificate."""
        began = time.monotonic()
        hosts = "".join(f"--host={host} " for host in other_hosts)
        made = self.of_the_pages("dev-certs certs").replace(
            "dev-certs certs ", f"dev-certs certs {hosts}"
        )
        self.shell(made)
        # Trainers have client certificates before the aggregator asks for them.
        self.shell(self.of_the_pages("- name: BASIN_TLS_"))
        installs = self.of_the_pages("helm install")
        said = self.shell(installs.replace("helm install basin ", f"helm install {more} basin "))
        self.assertRegex(said, r"Phase: +Succeeded")
        print(f"installed with certificates and tokens: {time.monotonic() - began:.1f} s")

    def uninstall(self) -> None:
        self.shell("helm-4 uninstall basin --namespace training")

    def trainers(self, name: str) -> Trainers:
        """Those of a manifest, as the walk-through has changed it."""
        return trainers_of(self.folder / "deploy" / name)

    def adapted(self, trainers: Trainers, size: int, *arguments: str) -> Manifest:
        """The manifest with the trainer of this test, for a small node."""
        trainers = copy.deepcopy(trainers)
        (manifest,) = trainers.manifests
        container = manifest["spec"]["template"]["spec"]["containers"][0]
        container["image"] = "localhost/trainer:1"
        container["command"] = [f"/usr/bin/{TRAINER.name}", *arguments]
        container["resources"] = {"requests": {"cpu": "10m"}, "limits": {"memory": "256Mi"}}
        env = {variable["name"]: variable for variable in container["env"]}
        if "BASIN_START_WORKERS" in env:
            env["BASIN_START_WORKERS"]["value"] = str(size)
        else:
            env["BASIN_MAX_WORKERS"]["value"] = str(size)
        return dict(manifest)

    def start_trainers(self, addresses: str = "", *more: str, node: str = "") -> None:
        """`addresses`: those of several aggregators; `more`: arguments of the trainer; `node`: the
        one for its pods."""
        began = time.monotonic()
        trainers = self.trainers("trainer-statefulset.yaml")
        manifest = self.adapted(trainers, 3, "1000000000", f"--pace-ms={PACE_MS}", *more)
        manifest["spec"]["replicas"] = 3
        if node:
            manifest["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        if addresses:
            env = manifest["spec"]["template"]["spec"]["containers"][0]["env"]
            (one,) = [variable for variable in env if variable["name"] == "BASIN_ADDRESS"]
            one["value"] = addresses
        self.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(manifest))
        for index in range(3):
            self.follow(f"digits-{index}")
        if addresses:
            self.expect_steps()
        else:
            self.expect_members(3)
        print(f"three trainers train: {time.monotonic() - began:.1f} s")

    def scale(self, before: int, after: int) -> None:
        self.kubectl("scale", "statefulset", "digits", f"--replicas={after}")
        for index in range(before, after):
            self.follow(f"digits-{index}")
        # Trainers that are no longer wanted leave at the end of a step.
        for index in range(after, before):
            self.expect_leaves(self.latest(index))
        self.expect_members(after)

    def expect_leaves(self, trainer: Followed) -> None:
        trainer.await_end()
        self.assertEqual(1, len(trainer.find("end")), trainer.worker)

    def delete_a_trainer(self) -> None:
        gone = self.latest(1)
        self.kubectl("delete", "pod", gone.worker, "--force", "--grace-period=0")
        self.follow(gone.worker, but=gone.uid)
        self.expect_members(3)

    def aggregator(self, but: str = "") -> str:
        uid: str = self.pod("basin-0", but)["metadata"]["uid"]
        return uid

    def delete_the_aggregator(self) -> None:
        before = self.aggregator()
        self.kubectl("delete", "pod", "basin-0", "--force", "--grace-period=0")
        self.aggregator(but=before)
        self.expect_members(3)

    def change(self, block: str, *values: str) -> None:
        """Runs a block of the pages with Helm 4, and with these values in place of `block`."""
        commands = self.of_the_pages(block).replace("helm ", "helm-4 ")
        self.shell(commands.replace(block, ",".join(values)) if values else commands)

    @contextlib.contextmanager
    def leaving_aggregator(self) -> Iterator[str]:
        """The uid of the pod, which afterwards has ended at the end of a round, and reported it."""
        uid = self.aggregator()
        leaving = Followed(self.cluster, "basin-0", uid)
        self.addCleanup(leaving.close)
        yield uid
        leaving.await_end()
        (begin,), (end,) = leaving.find("ending"), leaving.find("ended")
        print(f"the aggregator drains in {end['time'] - begin['time']:.2f} s")

    def upgrade(self) -> None:
        with self.leaving_aggregator() as before:
            more = ("image.tag=next", "tls.http.enabled=true")
            self.change(CLIENT_CERTIFICATES, CLIENT_CERTIFICATES, *more)
        self.expect_next(but=before)
        self.expect_members(3)
        with self.forwarded():
            stranger = self.status("certs/ca.crt", check=False, certificate=False)
        self.assertNotEqual(0, stranger.returncode, stranger.stdout)

    def expect_next(self, but: str) -> None:
        """A pod of the upgrade is ready, after probes with TLS."""
        pod = self.pod("basin-0", but)
        self.assertEqual("localhost/basin:next", pod["spec"]["containers"][0]["image"])
        self.assertEqual({"HTTPS"}, schemes(pod))

    def roll_back(self) -> None:
        with self.leaving_aggregator() as before:
            self.change(NEXT_IMAGE, "image.tag=absent")
        self.cluster.watch(
            "pods",
            lambda pod: pod["metadata"]["uid"] != before and cannot_pull(pod),
            "--namespace=training",
            "--field-selector=metadata.name=basin-0",
        )
        self.change("helm rollback")
        self.expect_next(but=before)
        self.expect_members(3)

    def rotate_certificates(self) -> None:
        before = self.aggregator()
        function = self.of_the_pages("write_secrets() {")
        self.shell(function + self.of_the_pages("dev-certs new"))
        self.await_files("both.crt", "certs")
        self.shell(function + self.of_the_pages("write_secrets both.crt new"))
        self.await_files("both.crt", "new")
        with self.forwarded():
            self.poll(partial(self.status, "new/ca.crt", check=False))
        self.shell(function + self.of_the_pages("mv new certs"))
        self.await_files("certs/ca.crt", "certs")
        self.assertEqual(before, self.aggregator())
        self.expect_members(3)

    def await_files(self, authorities: str, own: str) -> None:
        """Waits until the kubelet has given the pods these files."""
        trainers = [("basin", self.latest(index).uid, "client.crt") for index in range(3)]
        for volume, uid, certificate in [*trainers, ("tls", self.aggregator(), "tls.crt")]:
            folder = f"/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~secret/{volume}"
            made = "server.crt" if certificate == "tls.crt" else certificate
            for given, file in (("ca.crt", authorities), (certificate, f"{own}/{made}")):
                command = ("cmp", f"{folder}/{given}", self.folder / file)
                self.poll(partial(self.cluster.inside, *command))

    def drain(self) -> None:
        # Other nodes would take the pod. Here is only one, so it waits for this one.
        with self.leaving_aggregator() as before:
            self.shell(self.of_the_pages("kubectl drain"))
        self.aggregator(but=before)
        self.expect_members(4)

    def poll(self, command: Callable[[], subprocess.CompletedProcess[str]]) -> None:
        """Runs it until it succeeds, for changes that are not reported."""
        deadline = time.monotonic() + cluster.PATIENCE_SECONDS
        while (done := command()).returncode != 0:
            self.assertLess(time.monotonic(), deadline, done.stdout + done.stderr)
            threading.Event().wait(0.25)

    def end(self) -> None:
        """All leave, after the same steps."""
        self.kubectl("delete", "statefulset", "digits", "--wait=false")
        for index in range(4):
            self.expect_leaves(self.latest(index))
        print(f"{self.expect_all_steps()} steps, each with the right result")

    def run_a_job(self) -> None:
        """A Job ends by itself, and all its trainers have the same parameters."""
        began = time.monotonic()
        manifest = self.adapted(self.trainers("trainer-job.yaml"), 3, "300")
        ends = [log.splitlines()[-1] for log in self.logs_of_a_job("digits", manifest)]
        self.assertEqual(1, len(set(ends)), ends)
        self.assertIn('"step":300', ends[0])
        print(f"a Job of three trainers: {time.monotonic() - began:.1f} s")

    def run_a_job_in_pytorch(self, library: Path) -> None:
        """The same, with the digits example as it is."""
        began = time.monotonic()
        manifest = self.adapted(self.trainers("trainer-job.yaml"), 3)
        manifest["metadata"]["name"] = "pytorch"
        self.with_packages(manifest["spec"]["template"]["spec"], library)
        logs = self.logs_of_a_job("pytorch", manifest)
        lines = [line for log in logs for line in log.splitlines()]
        # Only the first rank prints it, after it has compared the parameters of all.
        self.assertEqual(1, lines.count("all workers hold the same parameters"), logs)
        (said,) = [line for line in lines if "steps in" in line]
        self.assertTrue(said.startswith("3 workers, "), said)
        print(f"a Job of three trainers in PyTorch: {time.monotonic() - began:.1f} s; {said}")

    def resize_pytorch(self, library: Path) -> None:
        """The digits example trains while its pods come and go."""
        manifest = self.adapted(self.trainers("trainer-statefulset.yaml"), 3)
        self.with_packages(manifest["spec"]["template"]["spec"], library)
        (container,) = manifest["spec"]["template"]["spec"]["containers"]
        container["command"].append("--epochs=100000")
        manifest["spec"]["replicas"] = 3
        self.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(manifest))
        first, gone, _ = (self.follow(f"digits-{index}") for index in range(3))
        with self.pytorch_stage("three trainers in PyTorch", 3):
            first.await_more(1, "said")
        with self.pytorch_stage("one is deleted by force", 3):
            self.kubectl("delete", "pod", gone.worker, "--force", "--grace-period=0")
            self.follow(gone.worker, but=gone.uid).await_said("joined at step ")
        for before, after in ((3, 2), (2, 8), (8, 3)):
            with self.pytorch_stage(f"scaled to {after}", after):
                self.kubectl("scale", "statefulset", "digits", f"--replicas={after}")
                for index in range(before, after):
                    name = f"digits-{index}"
                    # The pod of that name before may not be gone yet.
                    had = [one.uid for one in self.followed if one.worker == name]
                    self.follow(name, but=had[-1] if had else "").await_said("joined at step ")
                for index in range(after, before):
                    self.latest(index).await_said("leaves at step ")
        with self.pytorch_stage("the aggregator is deleted by force", 3):
            uid = self.aggregator()
            self.kubectl("delete", "pod", "basin-0", "--force", "--grace-period=0")
            self.aggregator(but=uid)
        self.kubectl("delete", "statefulset", "digits", "--wait=false")
        for index in range(3):
            self.latest(index).await_said("leaves at step ")
        (*_, last) = first.find_said("test accuracy")
        self.assertGreater(float(last.split()[-2]), 90, last)

    def show_progress(self, library: Path) -> None:
        """Rank 0 shows in the annotations of its pod how far the training is, with the account of
        deploy/progress.yaml."""
        began = time.monotonic()
        self.shell("kubectl apply --filename deploy/progress.yaml")
        manifest = self.adapted(self.trainers("trainer-statefulset.yaml"), 2)
        manifest["metadata"]["name"] = "progress"
        manifest["spec"]["replicas"] = 2
        self.with_account(manifest["spec"]["template"]["spec"], library)
        self.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(manifest))
        for index in range(2):
            followed = self.follow(f"progress-{index}")
            followed.await_said("reported")
            self.assertEqual([], followed.find_said("cannot be reported"))
        # The first report is sent at once, and the last one of them some seconds later.
        self.cluster.watch(
            "pods",
            lambda pod: shown_progress(pod).get("basin/progress-percentage") == "100",
            "--namespace=training",
            "--field-selector=metadata.name=progress-0",
        )
        annotations = self.progress_of("progress-0")
        self.assertEqual("workers=2 loss=0.5", annotations["basin/metrics"])
        self.assertEqual("0", annotations["basin/estimated-remaining-seconds"])
        self.assertEqual({}, self.progress_of("progress-1"))
        table = self.shell(self.of_the_pages("custom-columns=POD:"))
        self.assertRegex(table, r"(?m)^progress-0 +100$")
        self.assertRegex(table, r"(?m)^progress-1 +<none>$")
        self.restrict_progress()
        self.kubectl("delete", "statefulset", "progress", "--wait=false")
        print(f"progress in annotations: {time.monotonic() - began:.1f} s", flush=True)

    def restrict_progress(self) -> None:
        """The account may change no pod of another namespace, and with names of pods in its role
        also no other pod of its own."""
        self.cluster.kubectl("create", "namespace", "other")
        pause = ("--image=localhost/pause:1", "--restart=Never")
        self.cluster.kubectl("--namespace=other", "run", "progress-0", *pause)
        self.assertIn(FORBIDDEN, self.report_to("other/progress-0"))
        self.assertEqual({}, self.progress_of("progress-0", namespace="other"))

        self.assertEqual("", self.report_to("training/progress-1"))
        before = self.progress_of("progress-1")
        self.assertEqual("50", before["basin/progress-percentage"])
        names = [{"op": "add", "path": "/rules/0/resourceNames", "value": ["progress-0"]}]
        patch = f"--patch={json.dumps(names)}"
        self.kubectl("patch", "role", "report-progress", "--type=json", patch)
        account = "--as=system:serviceaccount:training:trainer"
        may = f"kubectl --namespace=training auth can-i patch pods/progress-1 {account}"
        self.poll(partial(self.cluster.run, "sh", "-c", f"! {may}", check=False))
        self.assertIn(FORBIDDEN, self.report_to("training/progress-1"))
        self.assertEqual(before, self.progress_of("progress-1"))
        self.assertEqual("", self.report_to("training/progress-0"))
        self.assertEqual("50", self.progress_of("progress-0")["basin/progress-percentage"])

    def with_account(self, pod: Manifest, library: Path) -> None:
        """Lets trainers report their progress as docs/kubernetes-reference.md says."""
        self.with_packages(pod, library)
        (container,) = pod["containers"]
        container["command"] = ["python3", "-Buc", REPORTER]
        of_the_page = yaml.safe_load(self.of_the_pages("BASIN_PROGRESS_POD", "yaml"))
        (of_its_container,) = of_the_page.pop("containers")
        pod.update(of_the_page)
        env = {variable["name"]: variable for variable in container["env"]}
        env |= {variable["name"]: variable for variable in of_its_container["env"]}
        changed = {
            "BASIN_JOB": "training/progress",
            # The Service of the server has an address of its own, which this node does not route.
            "KUBERNETES_SERVICE_HOST": "kubernetes.default.svc",
            "KUBERNETES_SERVICE_PORT": "6443",
        }
        env |= {name: {"name": name, "value": value} for name, value in changed.items()}
        container["env"] = list(env.values())

    def progress_of(self, pod: str, namespace: str = "training") -> dict[str, str]:
        found = self.cluster.kubectl(f"--namespace={namespace}", "get", "pod", pod, "--output=yaml")
        return shown_progress(yaml.safe_load(found))

    def report_to(self, pod: str) -> str:
        """What the client says when a process in progress-0 reports to this pod."""
        kubectl = ("kubectl", "--namespace=training", "exec", "progress-0", "--")
        return self.cluster.run(*kubectl, "python3", "-Bc", REPORT, pod).stderr

    @contextlib.contextmanager
    def pytorch_stage(self, name: str, workers: int) -> Iterator[None]:
        """Afterwards so many train, and the first one has trained for some more epochs."""
        began = time.monotonic()
        yield
        self.latest(0).await_more(3, "said")
        self.assertEqual(["running", str(workers)], self.state_and_members())
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)

    def with_packages(self, pod: Manifest, library: Path) -> None:
        """Adds Python packages from the environment of the tests, by volumes of the node: an image
        with them would have 1.4 GB."""
        (container,) = pod["containers"]
        folders = {
            "packages": Path(sysconfig.get_paths()["purelib"]),
            "client": ROOT / "client/python",
            "examples": ROOT / "examples",
        }
        for name, folder in folders.items():
            pod["volumes"].append({"name": name, "hostPath": {"path": str(folder)}})
            container["volumeMounts"].append(
                {"name": name, "mountPath": f"/opt/{name}", "readOnly": True}
            )
        container["image"] = "localhost/python:1"
        container["command"] = ["python3", "-Bu", "/opt/examples/digits.py"]
        container["resources"] = {"requests": {"cpu": "10m"}, "limits": {"memory": "2Gi"}}
        container["env"] += [
            {"name": "PYTHONPATH", "value": "/opt/packages:/opt/client"},
            {"name": "BASIN_LIBRARY", "value": f"/usr/bin/{library.name}"},
            # The pods share the processors of one machine.
            {"name": "OMP_NUM_THREADS", "value": "1"},
        ]

    def logs_of_a_job(self, name: str, manifest: Manifest) -> list[str]:
        """What each of its three pods has printed when it is complete."""
        manifest["spec"].update(completions=3, parallelism=3)
        # This Kubernetes has no indexed Jobs, drops the fields of one, and has another label.
        container = manifest["spec"]["template"]["spec"]["containers"][0]
        for variable in container["env"]:
            if variable["name"] == "BASIN_RUN_ID":
                variable["valueFrom"]["fieldRef"]["fieldPath"] = "metadata.labels['controller-uid']"
        self.kubectl("apply", "--validate=false", "--filename=-", stdin=yaml.safe_dump(manifest))
        wait = f"--timeout={cluster.PATIENCE_SECONDS}s"
        self.kubectl("wait", "--for=condition=Complete", f"job/{name}", wait)
        pods = self.kubectl("get", "pods", f"--selector=job-name={name}", "--output=name").split()
        self.assertEqual(3, len(pods))
        return [self.kubectl("logs", pod) for pod in pods]


def schemes(pod: Manifest) -> set[str]:
    """Those of the probes of its container; it has all three."""
    (container,) = pod["spec"]["containers"]
    probes = [container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")]
    return {probe["httpGet"]["scheme"] for probe in probes}


def shown_progress(pod: Manifest) -> dict[str, str]:
    annotations: dict[str, str] = pod["metadata"].get("annotations", {})
    return {name: value for name, value in annotations.items() if name.startswith("basin/")}


def cannot_pull(pod: Manifest) -> bool:
    states: list[Any] = [one["state"] for one in pod["status"].get("containerStatuses", [])]
    reasons = [state.get("waiting", {}).get("reason") for state in states]
    return bool({"ErrImagePull", "ImagePullBackOff"} & set(reasons))


def drop_version(file: Path) -> None:
    """Helm refuses to install a chart on a Kubernetes that is older than the chart allows."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith("kubeVersion:")]
    assert len(kept) == len(lines) - 1
    file.write_text("".join(kept), encoding="utf-8")


if __name__ == "__main__":
    require("helm-3", "helm-4")
    if len(sys.argv) < 4:
        print("skipped: this build has no programs of a release")
        sys.exit(SKIPPED)
    if reason := image.why_not() or cluster.why_not():
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    BASIND, BASINCTL, TRAINER = (Path(program) for program in sys.argv[1:4])
    STAGES = sys.argv[4] if len(sys.argv) > 4 else ""
    if STAGES and STAGES not in TESTS:
        LIBRARY = Path(STAGES)
    unittest.main(
        argv=[sys.argv[0], f"Training.{TESTS.get(STAGES, 'test_pytorch_trains')}"], verbosity=2
    )
