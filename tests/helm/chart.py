# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Renders the chart with the real Helm."""

import functools
import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools import CHART, load_all, tool

Values = dict[str, Any]
Manifest = dict[str, Any]

# The oldest supported version and the current one.
HELMS = ("helm-3", "helm-4")
RELEASE = "demo"
NAMESPACE = "training"

TRUSTED = {"grpc": {"insecure": True}}

SECURED: Values = {
    "tls": {"existingSecret": "basin-tls", "clientCertificates": True},
    "auth": {"existingSecret": "basin-grants"},
}

# Typical user values, one set for each part of the templates.
VALUE_SETS: dict[str, Values] = {
    "smallest": {"config": TRUSTED},
    "secured": SECURED,
    "client certificates only": {
        "tls": {"existingSecret": "basin-tls", "clientCertificates": True},
    },
    "issued certificate": {
        "tls": {"issuer": {"name": "training-ca", "kind": "ClusterIssuer"}},
        "auth": {"existingSecret": "basin-grants"},
    },
    "everything": {
        "config": {"memory": {"budget": "4GiB"}},
        "tls": {
            "issuer": {"name": "training-ca"},
            "clientCertificates": True,
            "http": {"enabled": True},
        },
        "auth": {"existingSecret": "basin-grants"},
        "image": {"repository": "mirror/basin", "digest": "sha256:" + "1" * 64},
        "persistence": {"enabled": True, "size": "64Mi"},
        "networkPolicy": {"enabled": True},
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "grafanaDashboard": {"enabled": True, "labels": {"grafana_dashboard": "1", "team": "ml"}},
        "resources": {
            "requests": {"cpu": "4", "memory": "16Gi", "ephemeral-storage": "128Mi"},
            "limits": {"memory": "16Gi", "ephemeral-storage": "512Mi"},
        },
    },
    "scraped with certificates": {
        "tls": {
            "existingSecret": "basin-tls",
            "http": {"enabled": True, "clientCertificates": True},
        },
        "auth": {"existingSecret": "basin-grants"},
        "serviceMonitor": {
            "enabled": True,
            "tlsConfig": {
                "ca": {"secret": {"name": "basin-tls", "key": "ca.crt"}},
                "cert": {"secret": {"name": "prometheus-client", "key": "tls.crt"}},
                "keySecret": {"name": "prometheus-client", "key": "tls.key"},
                "serverName": "basin-0.basin.training.svc",
            },
        },
    },
    "long name": {
        "config": TRUSTED,
        "nameOverride": "aggregator-of-gradients-" * 2 + "aggregator-of-gradients",
    },
    "options of each kind": {
        "config": {
            "grpc": {"insecure": True, "window": "1MiB"},
            "admin": {"listen": "none"},
            "worker": {"lease": "10s", "heartbeat": "1.5s"},
            "round": {"late_policy": "evict", "evict_late_after": "2m"},
            "job": {"pause_timeout": "none"},
            "memory": {"budget": "512MiB"},
            "limits": {"values": 1000000},
            "reduce": {"threads": "auto"},
            "log": {"level": "debug"},
        },
        "drainSeconds": 120,
    },
    "persistent": {
        "config": TRUSTED,
        "persistence": {"enabled": True, "size": "1Gi", "storageClassName": "fast"},
    },
    "monitored": {
        "config": TRUSTED,
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "grafanaDashboard": {"enabled": True},
    },
    "closed network": {
        "config": TRUSTED,
        "networkPolicy": {
            "enabled": True,
            "trainers": [
                {
                    "podSelector": {"matchLabels": {"app.kubernetes.io/component": "trainer"}},
                    "namespaceSelector": {"matchLabels": {"team": "vision"}},
                },
                {"ipBlock": {"cidr": "10.0.0.0/8"}},
            ],
            "monitoring": [
                {
                    "namespaceSelector": {
                        "matchLabels": {"kubernetes.io/metadata.name": "monitoring"}
                    }
                }
            ],
        },
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "serviceAccount": {"create": True, "annotations": {"example.com/team": "vision"}},
    },
    "other ports and names": {
        "config": TRUSTED,
        "listenHost": "[::]",
        "ports": {"grpc": 30000, "http": 30001},
        "fullnameOverride": "averager",
        "serviceAccount": {"create": False, "name": "trainers"},
    },
    "standby": {
        "config": TRUSTED | {"standby": {"lease": "5s"}},
        "replicaCount": 3,
        "networkPolicy": {"enabled": True},
    },
    "standby with etcd": {
        "config": TRUSTED,
        "replicaCount": 2,
        "standby": {"authority": "etcd", "etcd": {"endpoints": ["etcd-0:2379", "etcd-1:2379"]}},
        "networkPolicy": {"enabled": True},
    },
    "standby with a secured etcd": {
        **SECURED,
        "config": {"standby": {"deployment": "east.demo"}},
        "replicaCount": 2,
        "standby": {
            "authority": "etcd",
            "etcd": {
                "endpoints": ["etcd.example:2379"],
                "key": "/training/leader",
                "existingSecret": "basin-etcd",
                "clientCertificate": True,
                "user": True,
            },
        },
    },
    "sharded": {
        "config": TRUSTED | {"limits": {"values": 1000000}, "worker": {"lease": "10s"}},
        "shards": {
            "count": 2,
            "resources": {"limits": {"memory": "8Gi", "ephemeral-storage": "512Mi"}},
        },
        "networkPolicy": {"enabled": True},
        "podMonitor": {"enabled": True},
    },
    "sharded and secured": {
        **SECURED,
        "shards": {
            "count": 3,
            "existingSecret": "basin-shard",
            "affinity": {"nodeAffinity": {}},
        },
    },
    "sharded and issued": {
        "tls": {
            "issuer": {"name": "training-ca"},
            "clientCertificates": True,
            "http": {"enabled": True},
        },
        "shards": {"count": 1},
        "replicaCount": 2,
        "gpu": {"enabled": True},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    },
    "sharded by an autoscaler": {
        "tls": {"issuer": {"name": "training-ca"}, "clientCertificates": True},
        "shards": {"count": 2, "max": 5},
    },
    "with gpus": {
        "config": TRUSTED,
        "gpu": {"enabled": True, "count": 2, "runtimeClassName": "nvidia"},
    },
    "pinned and placed": {
        "config": TRUSTED,
        "image": {"repository": "mirror/basin", "digest": "sha256:" + "0" * 64},
        "imagePullSecrets": [{"name": "mirror"}],
        "podAnnotations": {"example.com/team": "vision"},
        "nodeSelector": {"pool": "network"},
        "tolerations": [{"key": "network", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system",
        "enabled": True,
        "resources": {"requests": {"cpu": 0.5}, "limits": {"memory": "16Gi", "cpu": "4"}},
    },
}


def helm(version: str, command: list[str], values: Values) -> subprocess.CompletedProcess[str]:
    """Runs one command of Helm, with `values` as a file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "values.yaml"
        file.write_text(json.dumps(values), encoding="utf-8")
        return subprocess.run(
            [tool(version), *command, f"--values={file}"],
            check=False,
            capture_output=True,
            text=True,
        )


@functools.cache
def _template(version: str, values: str) -> subprocess.CompletedProcess[str]:
    command = ["template", RELEASE, str(CHART), f"--namespace={NAMESPACE}"]
    # Helm 3.10 would assume a cluster of its own age.
    return helm(version, [*command, "--kube-version=1.31.0"], json.loads(values))


def template(version: str, values: Values) -> subprocess.CompletedProcess[str]:
    """What `helm template` prints. Tests of one program that need it for the same values share it,
    because it does not depend on anything else."""
    return _template(version, json.dumps(values))


def render(version: str, values: Values) -> list[Manifest]:
    """The manifests, which the caller may change."""
    done = template(version, values)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return [document for document in load_all(done.stdout) if document is not None]


def shards(manifests: list[Manifest]) -> list[Manifest]:
    """Those of shards."""
    label = "app.kubernetes.io/component"
    return [one for one in manifests if one["metadata"]["labels"][label] == "shard"]


def without_shards(manifests: list[Manifest]) -> list[Manifest]:
    of_shards = shards(manifests)
    return [manifest for manifest in manifests if manifest not in of_shards]


def one(manifests: list[Manifest], kind: str) -> Manifest:
    """The one that is not of shards."""
    (found,) = [it for it in without_shards(manifests) if it["kind"] == kind]
    return found


def of_shards(manifests: list[Manifest], kind: str) -> Manifest:
    (found,) = [it for it in shards(manifests) if it["kind"] == kind]
    return found


def configuration(manifests: list[Manifest], find: Callable[..., Manifest] = one) -> str:
    """The configuration file of the aggregator, or with of_shards that of shards."""
    name = find(manifests, "StatefulSet")["metadata"]["name"]
    (found,) = [
        manifest
        for manifest in manifests
        if manifest["kind"] == "ConfigMap" and manifest["metadata"]["name"] == name
    ]
    text: str = found["data"]["basind.yaml"]
    return text
