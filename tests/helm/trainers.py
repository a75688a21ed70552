# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Reads the manifests of deploy/: where each kind has its pods, its environment and its size."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools import ROOT, load_all

Manifest = dict[str, Any]

DEPLOY = ROOT / "deploy"

# Where the pod template of each kind is. A Job of Volcano is not a Job of Kubernetes.
_TEMPLATES: dict[tuple[str, str], tuple[str | int, ...]] = {
    ("batch/v1", "Job"): ("spec", "template"),
    ("apps/v1", "StatefulSet"): ("spec", "template"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): (
        *("spec", "replicatedJobs", 0, "template"),
        *("spec", "template"),
    ),
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): (
        *("spec", "template"),
        *("spec", "replicatedJobs", 0, "template"),
        *("spec", "template"),
    ),
    ("kubeflow.org/v1", "PyTorchJob"): ("spec", "pytorchReplicaSpecs", "Worker", "template"),
    ("batch.volcano.sh/v1alpha1", "Job"): ("spec", "tasks", 0, "template"),
}


def at(document: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


def documents(file: Path) -> list[Manifest]:
    return list(load_all(file.read_text(encoding="utf-8")))


def kind_of(manifest: Manifest) -> tuple[str, str]:
    return manifest["apiVersion"], manifest["kind"]


def has_models(manifest: Manifest) -> bool:
    """Whether Kubeflow publishes types of this kind; test_kubeflow_models.py compares them."""
    version: str = manifest["apiVersion"]
    return version.startswith(("jobset.x-k8s.io/", "trainer.kubeflow.org/"))


@dataclass
class Trainers:
    """One manifest of trainers."""

    file: Path
    manifests: list[Manifest]
    template: Manifest

    @property
    def pod(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.template["spec"]
        return spec

    @property
    def container(self) -> dict[str, Any]:
        (container,) = self.pod["containers"]
        result: dict[str, Any] = container
        return result

    @property
    def env(self) -> dict[str, dict[str, Any]]:
        """The variables by name, with those that a TrainJob adds to its runtime."""
        added = [
            variable
            for manifest in self.manifests
            if manifest["kind"] == "TrainJob"
            for variable in manifest["spec"]["trainer"]["env"]
        ]
        return {variable["name"]: variable for variable in self.container["env"] + added}

    def number(self, variable: str) -> int:
        return int(self.env[variable]["value"])


def trainers_of(file: Path) -> Trainers:
    """Those of a file with exactly one pod template."""
    manifests = documents(file)
    (template,) = [
        at(manifest, _TEMPLATES[kind_of(manifest)])
        for manifest in manifests
        if kind_of(manifest) in _TEMPLATES
    ]
    return Trainers(file, manifests, template)


def all_trainers(folder: Path = DEPLOY) -> dict[str, Trainers]:
    """Those whose pods are one worker each, by the name of the file."""
    return {file.name: trainers_of(file) for file in sorted(folder.glob("trainer-*.yaml"))}


def parts_that_kubernetes_knows(manifest: Manifest) -> list[Manifest]:
    """The manifest, or what a manifest of another project has in it: Jobs or pod templates."""
    metadata = manifest["metadata"]
    match kind_of(manifest):
        case ("jobset.x-k8s.io/v1alpha2", "JobSet"):
            sets = [manifest["spec"]]
        case ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"):
            sets = [manifest["spec"]["template"]["spec"]]
        case ("kubeflow.org/v1", "PyTorchJob") | ("batch.volcano.sh/v1alpha1", "Job"):
            template = at(manifest, _TEMPLATES[kind_of(manifest)])
            return [
                {
                    "apiVersion": "v1",
                    "kind": "PodTemplate",
                    "metadata": metadata,
                    "template": template,
                }
            ]
        case ("trainer.kubeflow.org/v1alpha1", "TrainJob"):
            env = manifest["spec"]["trainer"]["env"]
            pod = {"containers": [{"name": "node", "env": env}]}
            return [{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}]
        case (version, _) if version.startswith(("kueue.x-k8s.io/", "monitoring.coreos.com/")):
            return []
        case _:
            return [manifest]
    return [
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": one["spec"]}
        for set_ in sets
        for one in (job["template"] for job in set_["replicatedJobs"])
    ]
