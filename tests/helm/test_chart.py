# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What the chart renders for its values, and what it refuses.

Usage: test_chart.py [BASIND]   with it, every configuration that the chart writes is checked
"""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import chart
import dashboards
import yaml
from chart import HELMS, SECURED, TRUSTED, VALUE_SETS, Manifest, Values
from tools import CHART, ROOT, require
from trainers import all_trainers

BASIND = ""


def replicas(name: str) -> int:
    """The aggregators of a set of values."""
    return int(VALUE_SETS[name].get("replicaCount", 1))


def shards(name: str) -> int:
    """The shards of a set of values."""
    return int(VALUE_SETS[name].get("shards", {"count": 0})["count"])


SHARDED = [name for name in VALUE_SETS if shards(name) > 0]


class EveryValueSet(unittest.TestCase):
    rendered: dict[str, list[Manifest]]

    @classmethod
    def setUpClass(cls) -> None:
        cls.rendered = {name: chart.render("helm-4", values) for name, values in VALUE_SETS.items()}

    def stateful_sets(self) -> list[tuple[str, Manifest]]:
        return [(name, chart.one(found, "StatefulSet")) for name, found in self.rendered.items()]

    def pods(self) -> list[tuple[str, dict[str, Any]]]:
        """Those of the aggregator, of shards and of `helm test`."""
        of_shards = {
            name: chart.of_shards(self.rendered[name], "StatefulSet")["spec"] for name in SHARDED
        }
        return [
            *((f"{name}, shards", spec["template"]["spec"]) for name, spec in of_shards.items()),
            *((name, found["spec"]["template"]["spec"]) for name, found in self.stateful_sets()),
            *(
                (f"{name}, test", chart.one(found, "Pod")["spec"])
                for name, found in self.rendered.items()
            ),
        ]

    def test_passes_strict_lint(self) -> None:
        for version in HELMS:
            for name, values in VALUE_SETS.items():
                with self.subTest(name, helm=version):
                    done = chart.helm(version, ["lint", "--strict", str(CHART)], values)
                    self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def test_is_the_same_from_old_and_new_helm(self) -> None:
        for name, values in VALUE_SETS.items():
            with self.subTest(name):
                self.assertEqual(self.rendered[name], chart.render("helm-3", values))

    def test_pods_meet_the_restricted_standard(self) -> None:
        for name, pod in self.pods():
            with self.subTest(name):
                security = pod["securityContext"]
                self.assertTrue(security["runAsNonRoot"])
                self.assertEqual(65532, security["runAsUser"])
                self.assertEqual("RuntimeDefault", security["seccompProfile"]["type"])
                # Only an aggregator that may have to take over, by a Lease, calls the API server.
                by_etcd = VALUE_SETS.get(name, {}).get("standby", {}).get("authority") == "etcd"
                calls = name in VALUE_SETS and replicas(name) > 1 and not by_etcd
                self.assertIs(calls, pod["automountServiceAccountToken"])
                for forbidden in ("hostNetwork", "hostPID", "hostIPC"):
                    self.assertNotIn(forbidden, pod)
                for container in pod["containers"] + pod.get("initContainers", []):
                    own = container["securityContext"]
                    self.assertTrue(own["readOnlyRootFilesystem"])
                    self.assertFalse(own["allowPrivilegeEscalation"])
                    self.assertEqual({"drop": ["ALL"]}, own["capabilities"])
                volumes = pod.get("volumes", [])
                kinds = {kind for volume in volumes for kind in volume} - {"name"}
                self.assertLessEqual(kinds, {"configMap", "emptyDir", "secret"})

    def test_memory_and_disk_are_limited(self) -> None:
        for name, pod in self.pods():
            with self.subTest(name):
                limits = pod["containers"][0]["resources"]["limits"]
                self.assertLessEqual({"memory", "ephemeral-storage"}, limits.keys())

    def test_every_object_has_the_recommended_labels(self) -> None:
        recommended = {"name", "instance", "component", "part-of", "version", "managed-by"}
        expected = {f"app.kubernetes.io/{label}" for label in recommended} | {"helm.sh/chart"}
        for name, manifests in self.rendered.items():
            for manifest in manifests:
                with self.subTest(name, kind=manifest["kind"]):
                    self.assertLessEqual(expected, manifest["metadata"]["labels"].keys())

    def test_account_has_no_token(self) -> None:
        for name, manifests in self.rendered.items():
            accounts = [one for one in manifests if one["kind"] == "ServiceAccount"]
            with self.subTest(name):
                for account in accounts:
                    self.assertFalse(account["automountServiceAccountToken"])
                names = [account["metadata"]["name"] for account in accounts] or ["trainers"]
                used = {pod["serviceAccountName"] for where, pod in self.pods() if where == name}
                self.assertEqual(set(names), used)

    def test_test_pod_asks_under_the_name_that_workers_use(self) -> None:
        for name, manifests in self.rendered.items():
            with self.subTest(name):
                pod = chart.one(manifests, "Pod")
                self.assertEqual("test", pod["metadata"]["annotations"]["helm.sh/hook"])
                containers = pod["spec"]["containers"][: replicas(name)]
                names = {one["name"] for one in pod["spec"]["containers"]}
                self.assertEqual(replicas(name) + shards(name), len(names))
                service = chart.one(manifests, "Service")
                host = service["metadata"]["name"]
                port = {one["name"]: one["port"] for one in service["spec"]["ports"]}["http"]
                configuration = yaml.safe_load(chart.configuration(manifests))
                found = chart.one(manifests, "StatefulSet")["spec"]["template"]["spec"]
                for index, container in enumerate(containers):
                    self.assertEqual(
                        [
                            *("healthcheck", "--ready" if len(containers) == 1 else "--standby"),
                            f"--http-listen={host}-{index}.{host}.{chart.NAMESPACE}.svc:{port}",
                            *(["--https"] if "tls_cert" in configuration["http"] else []),
                        ],
                        container["args"],
                    )
                    self.assertEqual(found["containers"][0]["image"], container["image"])
                # Else it would be an endpoint of the Service, and workers would connect to it.
                labels = pod["metadata"]["labels"]
                self.assertFalse(service["spec"]["selector"].items() <= labels.items())

    def test_selector_never_changes(self) -> None:
        for name, found in self.stateful_sets():
            with self.subTest(name):
                selector = found["spec"]["selector"]["matchLabels"]
                chart_name = VALUE_SETS[name].get("nameOverride", "basin")[:63].rstrip("-")
                self.assertEqual(
                    {"app.kubernetes.io/name": chart_name, "app.kubernetes.io/instance": "demo"},
                    selector,
                )
                labels = found["spec"]["template"]["metadata"]["labels"]
                self.assertLessEqual(selector.items(), labels.items())
                self.assertEqual(
                    selector, chart.one(self.rendered[name], "Service")["spec"]["selector"]
                )

    def test_one_pod_has_nothing_that_blocks_its_node(self) -> None:
        for name, manifests in self.rendered.items():
            with self.subTest(name):
                spec = chart.one(manifests, "StatefulSet")["spec"]
                self.assertEqual(replicas(name), spec["replicas"])
                # A pod that never becomes ready is replaced by the next upgrade or rollback.
                self.assertEqual("Parallel", spec["podManagementPolicy"])
                liveness = spec["template"]["spec"]["containers"][0]["livenessProbe"]
                self.assertLessEqual(liveness["terminationGracePeriodSeconds"], 10)
                kinds = {one["kind"] for one in chart.without_shards(manifests)}
                of_lease = {"Lease", "Role", "RoleBinding"}
                of_standbys = {"PodDisruptionBudget"}
                if VALUE_SETS[name].get("standby", {}).get("authority") != "etcd":
                    of_standbys |= of_lease
                self.assertEqual(
                    of_standbys if spec["replicas"] > 1 else set(),
                    kinds & (of_lease | {"PodDisruptionBudget"}),
                )

    def test_pod_outlives_the_drain(self) -> None:
        for name, manifests in self.rendered.items():
            with self.subTest(name):
                configuration = yaml.safe_load(chart.configuration(manifests))
                grace = int(configuration["drain"]["grace"].removesuffix("s"))
                pod = chart.one(manifests, "StatefulSet")["spec"]["template"]["spec"]
                self.assertGreater(pod["terminationGracePeriodSeconds"], grace)

    def test_ports_agree(self) -> None:
        for name, manifests in self.rendered.items():
            with self.subTest(name):
                configuration = yaml.safe_load(chart.configuration(manifests))
                container = chart.one(manifests, "StatefulSet")["spec"]["template"]["spec"][
                    "containers"
                ][0]
                ports = {port["name"]: port["containerPort"] for port in container["ports"]}
                service = chart.one(manifests, "Service")["spec"]
                for port in service["ports"]:
                    self.assertEqual(port["port"], ports[port["targetPort"]])
                    listen = configuration[port["name"]]["listen"]
                    self.assertTrue(listen.endswith(f":{port['port']}"), listen)
                # A rollout waits for each pod, and only one leads.
                ready = "/readyz" if replicas(name) == 1 else "/standbyz"
                for probe, path in (
                    ("startupProbe", "/livez"),
                    ("livenessProbe", "/livez"),
                    ("readinessProbe", ready),
                ):
                    encrypted = "tls_cert" in configuration["http"]
                    expected = {"path": path, "port": "http"}
                    if encrypted:
                        expected["scheme"] = "HTTPS"
                    self.assertEqual(expected, container[probe]["httpGet"])
                protocols = {port["name"]: port["appProtocol"] for port in service["ports"]}
                self.assertEqual("https" if encrypted else "http", protocols["http"])

    def test_pod_has_a_name_of_its_own_in_the_dns(self) -> None:
        for name, manifests in self.rendered.items():
            with self.subTest(name):
                service = chart.one(manifests, "Service")
                self.assertEqual("None", service["spec"]["clusterIP"])
                self.assertTrue(service["spec"]["publishNotReadyAddresses"])
                self.assertEqual(
                    service["metadata"]["name"],
                    chart.one(manifests, "StatefulSet")["spec"]["serviceName"],
                )

    def test_state_is_where_it_can_be_written(self) -> None:
        for name, manifests in self.rendered.items():
            with self.subTest(name):
                file = yaml.safe_load(chart.configuration(manifests))["state"]["file"]
                container = chart.one(manifests, "StatefulSet")["spec"]["template"]["spec"][
                    "containers"
                ][0]
                writable = [
                    mount["mountPath"]
                    for mount in container["volumeMounts"]
                    if not mount.get("readOnly", False)
                ]
                self.assertEqual([] if file == "none" else [str(Path(file).parent)], writable)
                self.assertEqual(replicas(name) > 1, file == "none")

    def test_configuration_is_what_basind_accepts(self) -> None:
        if not BASIND:
            self.skipTest("this build has no basind")
        checked = 0
        for name, manifests in self.rendered.items():
            # The files of certificates and grants are only in a pod.
            if "tls" in VALUE_SETS[name]:
                continue
            finders = (chart.one, chart.of_shards) if shards(name) > 0 else (chart.one,)
            for find in finders:
                checked += 1
                with self.subTest(name, of=find), tempfile.TemporaryDirectory() as folder:
                    file = Path(folder) / "basind.yaml"
                    file.write_text(chart.configuration(manifests, find), encoding="utf-8")
                    done = subprocess.run(
                        [BASIND, "check-config", f"--config={file}"],
                        check=False,
                        capture_output=True,
                        text=True,
                    )
                    self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertGreater(checked, 5)


class SingleValues(unittest.TestCase):
    def pod_template(self, values: Values) -> dict[str, Any]:
        found = chart.one(chart.render("helm-4", values), "StatefulSet")
        result: dict[str, Any] = found["spec"]["template"]
        return result

    def test_options_reach_the_file(self) -> None:
        rendered = chart.render("helm-4", VALUE_SETS["options of each kind"])
        configuration = yaml.safe_load(chart.configuration(rendered))
        self.assertEqual({"lease": "10s", "heartbeat": "1.5s"}, configuration["worker"])
        self.assertEqual({"values": 1000000}, configuration["limits"])
        self.assertEqual({"grace": "120s"}, configuration["drain"])
        self.assertIn("values: 1000000\n", chart.configuration(rendered))

    def test_standbys_agree_on_a_leader_by_a_lease_that_is_theirs_alone(self) -> None:
        manifests = chart.render("helm-4", VALUE_SETS["standby"])
        lease = chart.one(manifests, "Lease")
        # A spec would take the lead from the leader at each upgrade.
        self.assertEqual({"apiVersion", "kind", "metadata"}, lease.keys())
        name, space = lease["metadata"]["name"], lease["metadata"]["namespace"]
        options = yaml.safe_load(chart.configuration(manifests))["standby"]
        self.assertEqual({"authority": f"kubernetes:{space}/{name}", "lease": "5s"}, options)
        role = chart.one(manifests, "Role")
        self.assertEqual(
            [
                {
                    "apiGroups": ["coordination.k8s.io"],
                    "resources": ["leases"],
                    "resourceNames": [name],
                    "verbs": ["get", "update"],
                }
            ],
            role["rules"],
        )
        binding = chart.one(manifests, "RoleBinding")
        self.assertEqual(role["metadata"]["name"], binding["roleRef"]["name"])
        pod = chart.one(manifests, "StatefulSet")["spec"]["template"]["spec"]
        (subject,) = binding["subjects"]
        self.assertEqual(
            {"kind": "ServiceAccount", "name": pod["serviceAccountName"], "namespace": space},
            subject,
        )

    def test_standbys_are_known_by_names_of_their_own(self) -> None:
        manifests = chart.render("helm-4", VALUE_SETS["standby"])
        pod = chart.one(manifests, "StatefulSet")["spec"]["template"]["spec"]
        own, address = pod["containers"][0]["env"]
        self.assertEqual("metadata.name", own["valueFrom"]["fieldRef"]["fieldPath"])
        self.assertEqual("BASIN_STANDBY_ADDRESS", address["name"])
        domain = "demo-basin.training.svc"
        self.assertEqual(f"$({own['name']}).{domain}:29600", address["value"])
        issued = {**VALUE_SETS["issued certificate"], "replicaCount": 2}
        names = chart.one(chart.render("helm-4", issued), "Certificate")["spec"]["dnsNames"]
        self.assertEqual([f"demo-basin-{i}.{domain}" for i in range(2)], names)

    def test_standbys_are_moved_one_after_the_other_and_kept_apart(self) -> None:
        manifests = chart.render("helm-4", VALUE_SETS["standby"])
        spec = chart.one(manifests, "StatefulSet")["spec"]
        budget = chart.one(manifests, "PodDisruptionBudget")["spec"]
        self.assertEqual(1, budget["maxUnavailable"])
        self.assertEqual(spec["selector"], budget["selector"])
        affinity = spec["template"]["spec"]["affinity"]["podAntiAffinity"]
        (term,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
        self.assertEqual(spec["selector"], term["podAffinityTerm"]["labelSelector"])
        self.assertEqual("kubernetes.io/hostname", term["podAffinityTerm"]["topologyKey"])
        own: Values = {"nodeAffinity": {}}
        pod = self.pod_template({**VALUE_SETS["standby"], "affinity": own})["spec"]
        self.assertEqual(own, pod["affinity"])

    def test_standbys_may_reach_the_api_server_and_nothing_else(self) -> None:
        manifests = chart.render("helm-4", VALUE_SETS["standby"])
        (rule,) = chart.one(manifests, "NetworkPolicy")["spec"]["egress"]
        self.assertEqual({443, 6443}, {port["port"] for port in rule["ports"]})
        self.assertEqual({"ports"}, rule.keys())

    def test_standbys_agree_by_a_key_of_etcd_that_is_theirs_alone(self) -> None:
        manifests = chart.render("helm-4", VALUE_SETS["standby with etcd"])
        authority = "etcd:etcd-0:2379,etcd-1:2379/basin/training/demo-basin/leader"
        options = yaml.safe_load(chart.configuration(manifests))["standby"]
        self.assertEqual({"authority": authority}, options)
        pod = chart.one(manifests, "StatefulSet")["spec"]["template"]["spec"]
        # It calls no API of Kubernetes.
        self.assertIs(False, pod["automountServiceAccountToken"])
        (rule,) = chart.one(manifests, "NetworkPolicy")["spec"]["egress"]
        self.assertEqual(
            [(53, "UDP"), (53, "TCP"), (2379, "TCP")],
            [(port["port"], port["protocol"]) for port in rule["ports"]],
        )

    def test_an_etcd_is_reached_with_the_files_of_its_secret(self) -> None:
        manifests = chart.render("helm-4", VALUE_SETS["standby with a secured etcd"])
        options = yaml.safe_load(chart.configuration(manifests))["standby"]
        self.assertEqual("etcd:etcd.example:2379/training/leader", options.pop("authority"))
        self.assertEqual("east.demo", options.pop("deployment"))
        pod = chart.one(manifests, "StatefulSet")["spec"]["template"]["spec"]
        (mount,) = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "etcd"]
        self.assertEqual(
            {
                option: f"{mount['mountPath']}/{key}"
                for option, key in (
                    ("etcd_ca", "ca.crt"),
                    ("etcd_cert", "tls.crt"),
                    ("etcd_key", "tls.key"),
                    ("etcd_user_file", "user"),
                )
            },
            options,
        )
        (volume,) = [one for one in pod["volumes"] if one["name"] == "etcd"]
        self.assertEqual({"secretName": "basin-etcd"}, volume["secret"])

    def test_gpus(self) -> None:
        values = VALUE_SETS["with gpus"]
        pod = self.pod_template(values)["spec"]
        self.assertEqual(2, pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
        self.assertEqual("basin:0.1.0-cuda", pod["containers"][0]["image"])
        self.assertEqual("nvidia", pod["runtimeClassName"])
        self.assertIn("nvidia.com/gpu", [one["key"] for one in pod["tolerations"]])
        device = {"reduce": {"device": "auto"}}
        for config, expected in ((TRUSTED, "cuda"), (TRUSTED | device, "auto")):
            rendered = chart.render("helm-4", values | {"config": config})
            options = yaml.safe_load(chart.configuration(rendered))
            self.assertEqual(expected, options["reduce"]["device"])
        shared = {"enabled": True, "resource": "nvidia.com/mig-1g.10gb"}
        edge = {"config": TRUSTED, "gpu": shared, "image": {"tag": "edge"}}
        pod = self.pod_template(edge)["spec"]
        self.assertEqual(1, pod["containers"][0]["resources"]["limits"][shared["resource"]])
        self.assertEqual("basin:edge", pod["containers"][0]["image"])
        self.assertNotIn("runtimeClassName", pod)

    def test_no_gpus_unless_asked(self) -> None:
        pod = self.pod_template({"config": TRUSTED})["spec"]
        self.assertNotIn("nvidia.com/gpu", pod["containers"][0]["resources"]["limits"])
        self.assertNotIn("tolerations", pod)

    def test_another_configuration_is_another_pod(self) -> None:
        before = self.pod_template({"config": TRUSTED})
        again = self.pod_template({"config": TRUSTED})
        after = self.pod_template({"config": TRUSTED | {"log": {"level": "debug"}}})
        self.assertEqual(before, again)
        self.assertNotEqual(before["metadata"]["annotations"], after["metadata"]["annotations"])

    def test_image(self) -> None:
        for image, expected in (
            ({}, "basin:0.1.0"),
            ({"tag": "edge"}, "basin:edge"),
            (
                {"tag": "edge", "digest": "sha256:" + "1" * 64},
                "basin@sha256:" + "1" * 64,
            ),
        ):
            with self.subTest(expected):
                template = self.pod_template({"config": TRUSTED, "image": image})
                self.assertEqual(expected, template["spec"]["containers"][0]["image"])

    def test_certificates_and_grants_are_mounted_from_secrets(self) -> None:
        for version in HELMS:
            manifests = chart.render(version, chart.SECURED)
            options = yaml.safe_load(chart.configuration(manifests))
            self.assertEqual(
                {
                    "cert": "/etc/basin-tls/tls.crt",
                    "key": "/etc/basin-tls/tls.key",
                    "client_ca": "/etc/basin-tls/ca.crt",
                },
                options["tls"],
            )
            self.assertEqual({"file": "/etc/basin-auth/grants"}, options["auth"])
            pod = chart.one(manifests, "StatefulSet")["spec"]["template"]["spec"]
            secrets = {
                volume["name"]: volume["secret"]["secretName"]
                for volume in pod["volumes"]
                if "secret" in volume
            }
            self.assertEqual({"tls": "basin-tls", "auth": "basin-grants"}, secrets)
            # Not as single files, which Kubernetes would not update.
            mounts = {
                mount["name"]: mount["mountPath"]
                for mount in pod["containers"][0]["volumeMounts"]
                if "subPath" not in mount
            }
            self.assertEqual("/etc/basin-tls", mounts["tls"])
            self.assertEqual("/etc/basin-auth", mounts["auth"])

    def test_scrapers_are_encrypted_and_known(self) -> None:
        rendered = chart.render("helm-4", VALUE_SETS["everything"])
        options = yaml.safe_load(chart.configuration(rendered))["http"]
        self.assertEqual(
            {"tls_cert": "/etc/basin-tls/tls.crt", "tls_key": "/etc/basin-tls/tls.key"},
            {key: value for key, value in options.items() if key != "listen"},
        )
        (endpoint,) = chart.one(rendered, "PodMonitor")["spec"]["podMetricsEndpoints"]
        self.assertEqual("https", endpoint["scheme"])
        # The address of a pod is not in its certificate, but its name is.
        (name,) = chart.one(rendered, "Certificate")["spec"]["dnsNames"]
        secret = chart.one(rendered, "Certificate")["spec"]["secretName"]
        self.assertEqual(
            {"ca": {"secret": {"name": secret, "key": "ca.crt"}}, "serverName": name},
            endpoint["tlsConfig"],
        )
        values = VALUE_SETS["scraped with certificates"]
        rendered = chart.render("helm-4", values)
        options = yaml.safe_load(chart.configuration(rendered))["http"]
        self.assertEqual("/etc/basin-tls/ca.crt", options["tls_client_ca"])
        (endpoint,) = chart.one(rendered, "ServiceMonitor")["spec"]["endpoints"]
        self.assertEqual(values["serviceMonitor"]["tlsConfig"], endpoint["tlsConfig"])

    def test_issued_certificate(self) -> None:
        for name, kind in (("issued certificate", "ClusterIssuer"), ("everything", "Issuer")):
            with self.subTest(name):
                manifests = chart.render("helm-4", VALUE_SETS[name])
                certificate = chart.one(manifests, "Certificate")
                self.assertEqual("cert-manager.io/v1", certificate["apiVersion"])
                spec = certificate["spec"]
                self.assertEqual(
                    {"name": "training-ca", "kind": kind, "group": "cert-manager.io"},
                    spec["issuerRef"],
                )
                service = chart.one(manifests, "Service")["metadata"]["name"]
                self.assertEqual([f"{service}-0.{service}.training.svc"], spec["dnsNames"])
                self.assertEqual(["127.0.0.1"], spec["ipAddresses"])
                pod = chart.one(manifests, "StatefulSet")["spec"]["template"]["spec"]
                (volume,) = [one for one in pod["volumes"] if one["name"] == "tls"]
                self.assertEqual(spec["secretName"], volume["secret"]["secretName"])
                options = yaml.safe_load(chart.configuration(manifests))
                self.assertEqual("/etc/basin-tls/tls.crt", options["tls"]["cert"])
                # cert-manager refuses a field that it does not know.
                self.assertEqual(
                    {
                        *("secretName", "dnsNames", "ipAddresses", "usages"),
                        *("privateKey", "issuerRef"),
                    },
                    spec.keys(),
                )
                self.assertEqual({"algorithm", "size", "rotationPolicy"}, spec["privateKey"].keys())

    def test_volume_that_outlives_the_pod(self) -> None:
        found = chart.one(chart.render("helm-4", VALUE_SETS["persistent"]), "StatefulSet")["spec"]
        (claim,) = found["volumeClaimTemplates"]
        self.assertEqual("state", claim["metadata"]["name"])
        self.assertEqual("fast", claim["spec"]["storageClassName"])
        self.assertEqual({"storage": "1Gi"}, claim["spec"]["resources"]["requests"])
        volumes = [volume["name"] for volume in found["template"]["spec"]["volumes"]]
        self.assertEqual(["config"], volumes)

    def test_monitoring_is_opt_in_and_finds_the_service(self) -> None:
        kinds = {one["kind"] for one in chart.render("helm-4", {"config": TRUSTED})}
        self.assertEqual({"ConfigMap", "Pod", "Service", "ServiceAccount", "StatefulSet"}, kinds)

        rendered = chart.render("helm-4", VALUE_SETS["monitored"])
        monitor = chart.one(rendered, "ServiceMonitor")
        service = chart.one(rendered, "Service")
        self.assertLessEqual(
            monitor["spec"]["selector"]["matchLabels"].items(),
            service["metadata"]["labels"].items(),
        )
        # The alert rules select it by this label.
        self.assertEqual("basin", service["metadata"]["labels"][monitor["spec"]["jobLabel"]])
        (endpoint,) = monitor["spec"]["endpoints"]
        self.assertIn(endpoint["port"], [port["name"] for port in service["spec"]["ports"]])
        self.assertEqual("prometheus", monitor["metadata"]["labels"]["release"])

    def test_pod_monitor_finds_the_pod(self) -> None:
        rendered = chart.render("helm-4", VALUE_SETS["closed network"])
        monitor = chart.one(rendered, "PodMonitor")
        template = chart.one(rendered, "StatefulSet")["spec"]["template"]
        labels = template["metadata"]["labels"]
        self.assertLessEqual(monitor["spec"]["selector"]["matchLabels"].items(), labels.items())
        self.assertEqual("basin", labels[monitor["spec"]["jobLabel"]])
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        ports = [port["name"] for port in template["spec"]["containers"][0]["ports"]]
        self.assertIn(endpoint["port"], ports)
        self.assertEqual("prometheus", monitor["metadata"]["labels"]["release"])

    def network_policy(self, policy: Values) -> tuple[Manifest, dict[str, list[Manifest]]]:
        """The spec, and which peers may reach each port."""
        rendered = chart.render(
            "helm-4", {"config": TRUSTED, "networkPolicy": {"enabled": True} | policy}
        )
        spec = chart.one(rendered, "NetworkPolicy")["spec"]
        template = chart.one(rendered, "StatefulSet")["spec"]["template"]
        self.assertLessEqual(
            spec["podSelector"]["matchLabels"].items(), template["metadata"]["labels"].items()
        )
        peers = {rule["ports"][0]["port"]: rule["from"] for rule in spec["ingress"]}
        self.assertEqual(len(peers), len(spec["ingress"]))
        # An empty list would admit all peers.
        self.assertNotIn([], peers.values())
        test, *monitoring = peers["http"]
        self.assertEqual(
            {"app.kubernetes.io/name": "basin-test", "app.kubernetes.io/instance": "demo"},
            test["podSelector"]["matchLabels"],
        )
        labels = chart.one(rendered, "Pod")["metadata"]["labels"]
        self.assertLessEqual(test["podSelector"]["matchLabels"].items(), labels.items())
        return spec, peers | {"http": monitoring}

    def test_network_policy_admits_the_trainers_of_deploy(self) -> None:
        spec, peers = self.network_policy({})
        self.assertEqual(["Ingress", "Egress"], spec["policyTypes"])
        self.assertEqual([], spec["egress"])
        ((_, trainer),) = peers["grpc"][0].items()
        for name, trainers in all_trainers().items():
            with self.subTest(name):
                labels = trainers.template["metadata"]["labels"]
                self.assertLessEqual(trainer["matchLabels"].items(), labels.items())
        self.assertEqual([], peers["http"])

    def test_network_policy_admits_whom_it_names(self) -> None:
        given = VALUE_SETS["closed network"]["networkPolicy"]
        _, peers = self.network_policy(given)
        self.assertEqual({"grpc": given["trainers"], "http": given["monitoring"]}, peers)

    def test_network_policy_without_trainers_admits_none(self) -> None:
        _, peers = self.network_policy({"trainers": []})
        self.assertEqual({"http": []}, peers)

    def test_account(self) -> None:
        for account, expected in (
            ({"create": True}, "demo-basin"),
            ({"create": True, "name": "own"}, "own"),
            ({"create": False}, "default"),
            ({"create": False, "name": "other"}, "other"),
        ):
            with self.subTest(expected):
                manifests = chart.render("helm-4", {"config": TRUSTED, "serviceAccount": account})
                pod = chart.one(manifests, "StatefulSet")["spec"]["template"]["spec"]
                self.assertEqual(expected, pod["serviceAccountName"])
                made = [one for one in manifests if one["kind"] == "ServiceAccount"]
                self.assertEqual(
                    account["create"], [expected] == [m["metadata"]["name"] for m in made]
                )

    def test_alert_rules_and_dashboards_are_the_files(self) -> None:
        rendered = chart.render("helm-4", VALUE_SETS["monitored"])
        rules = yaml.safe_load((CHART / "files/alerts.yaml").read_text(encoding="utf-8"))
        self.assertEqual(rules, chart.one(rendered, "PrometheusRule")["spec"])
        self.assertIn("runbook", rules["groups"][0]["rules"][0]["annotations"])
        (made,) = [one for one in rendered if "basin-job.json" in one.get("data", {})]
        names = {f"basin-{name}.json" for name in dashboards.load()}
        self.assertEqual(names, set(made["data"]))
        for name, board in dashboards.load().items():
            self.assertEqual(board, json.loads(made["data"][f"basin-{name}.json"]))

    def test_alerts_link_to_their_runbooks(self) -> None:
        base = "https://git.example/basin/blob/main/"
        values = VALUE_SETS["monitored"]
        rule = {**values["prometheusRule"], "runbookBase": base}
        rendered = chart.render("helm-4", {**values, "prometheusRule": rule})
        for group in chart.one(rendered, "PrometheusRule")["spec"]["groups"]:
            for alert in group["rules"]:
                with self.subTest(alert["alert"]):
                    annotations = alert["annotations"]
                    self.assertNotIn("runbook", annotations)
                    self.assertEqual(
                        f"{base}docs/runbooks.md#{alert['alert'].lower()}",
                        annotations["runbook_url"],
                    )


class Shards(unittest.TestCase):
    """What there is for processes that hold bytes for the aggregator."""

    rendered: dict[str, list[Manifest]]

    @classmethod
    def setUpClass(cls) -> None:
        cls.rendered = {name: chart.render("helm-4", VALUE_SETS[name]) for name in SHARDED}

    def container(self, name: str) -> dict[str, Any]:
        template = chart.of_shards(self.rendered[name], "StatefulSet")["spec"]["template"]
        (found,) = template["spec"]["containers"]
        result: dict[str, Any] = found
        return result

    def options(self, name: str) -> dict[str, Any]:
        text = chart.configuration(self.rendered[name], chart.of_shards)
        result: dict[str, Any] = yaml.safe_load(text)
        return result

    def names(self, name: str) -> list[str]:
        """In the DNS."""
        stateful_set = chart.of_shards(self.rendered[name], "StatefulSet")
        service = chart.of_shards(self.rendered[name], "Service")["metadata"]["name"]
        self.assertEqual(service, stateful_set["spec"]["serviceName"])
        return [
            f"{stateful_set['metadata']['name']}-{index}.{service}.{chart.NAMESPACE}.svc"
            for index in range(shards(name))
        ]

    def test_none_is_what_there_is_without_the_values(self) -> None:
        values = {name: VALUE_SETS[name] for name in VALUE_SETS if name not in SHARDED}
        for name, without in values.items():
            with self.subTest(name):
                expected = chart.template("helm-4", without).stdout
                for none in ({"count": 0}, {"count": 0, "existingSecret": "a"}, None):
                    done = chart.template("helm-4", {**without, "shards": none})
                    self.assertEqual((0, expected), (done.returncode, done.stdout))

    def test_the_aggregator_is_the_same_pod(self) -> None:
        # Shards that are added to an installation restart no aggregator.
        for name in SHARDED:
            with self.subTest(name):
                alone = {key: value for key, value in VALUE_SETS[name].items() if key != "shards"}
                self.assertEqual(
                    chart.one(chart.render("helm-4", alone), "StatefulSet"),
                    chart.one(self.rendered[name], "StatefulSet"),
                )

    def test_they_are_as_many_as_asked_for(self) -> None:
        for name in SHARDED:
            with self.subTest(name):
                spec = chart.of_shards(self.rendered[name], "StatefulSet")["spec"]
                scaled = "max" in VALUE_SETS[name]["shards"]
                self.assertEqual(None if scaled else shards(name), spec.get("replicas"))
                self.assertEqual("Parallel", spec["podManagementPolicy"])

    def test_the_certificate_has_the_names_of_all_that_an_autoscaler_may_start(self) -> None:
        name = "sharded by an autoscaler"
        certificate = chart.one(self.rendered[name], "Certificate")["spec"]
        first, *_ = self.names(name)
        expected = [first.replace("-0.", f"-{index}.", 1) for index in range(5)]
        self.assertEqual(expected, certificate["dnsNames"][replicas(name) :])

    def test_an_autoscaler_has_a_least_and_a_most(self) -> None:
        for count, most, said in ((3, 2, "is less than shards.count"), (0, 2, "the fewest")):
            with self.subTest(count=count):
                values = {"config": TRUSTED, "shards": {"count": count, "max": most}}
                done = chart.template("helm-4", values)
                self.assertNotEqual(0, done.returncode)
                self.assertIn(said, done.stderr)
        even = chart.render("helm-4", {"config": TRUSTED, "shards": {"count": 2, "max": 2}})
        self.assertNotIn("replicas", chart.of_shards(even, "StatefulSet")["spec"])

    def test_an_upgrade_sets_the_number_of_shards_only_without_an_autoscaler(self) -> None:
        for tool in chart.HELMS:
            for most, expected in ((0, [1, 3]), (4, [None, None])):
                with self.subTest(tool, most=most):
                    sets = [
                        chart.of_shards(
                            chart.render(
                                tool, {"config": TRUSTED, "shards": {"count": count, "max": most}}
                            ),
                            "StatefulSet",
                        )
                        for count in (1, 3)
                    ]
                    self.assertEqual(
                        expected, [found["spec"].pop("replicas", None) for found in sets]
                    )
                    # A new number replaces no pod of those that stay.
                    self.assertEqual(*sets)

    def test_workers_reach_each_by_a_name_of_its_own(self) -> None:
        for name in SHARDED:
            with self.subTest(name):
                own, advertised = self.container(name)["env"]
                self.assertEqual("BASIN_SHARD_NAME", own["name"])
                self.assertEqual("metadata.name", own["valueFrom"]["fieldRef"]["fieldPath"])
                self.assertEqual("BASIN_SHARD_ADVERTISE", advertised["name"])
                pod = chart.of_shards(self.rendered[name], "StatefulSet")["metadata"]["name"] + "-0"
                self.assertEqual(
                    f"{self.names(name)[0]}:29600",
                    advertised["value"].replace("$(BASIN_SHARD_NAME)", pod),
                )
                service = chart.of_shards(self.rendered[name], "Service")["spec"]
                self.assertEqual("None", service["clusterIP"])
                self.assertTrue(service["publishNotReadyAddresses"])

    def test_a_service_leads_to_pods_of_one_kind(self) -> None:
        for name in SHARDED:
            manifests = self.rendered[name]
            for find, other in ((chart.one, chart.of_shards), (chart.of_shards, chart.one)):
                with self.subTest(name, find=find):
                    selector = find(manifests, "Service")["spec"]["selector"].items()
                    own, others = (
                        which(manifests, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
                        for which in (find, other)
                    )
                    self.assertLessEqual(selector, own.items())
                    self.assertFalse(selector <= others.items())
                    match = find(manifests, "StatefulSet")["spec"]["selector"]["matchLabels"]
                    self.assertEqual(dict(selector), match)

    def test_names_fit_into_labels(self) -> None:
        long = {"config": TRUSTED, "shards": {"count": 16}, "fullnameOverride": "a" * 60}
        stateful_set = chart.of_shards(chart.render("helm-4", long), "StatefulSet")
        name = stateful_set["metadata"]["name"]
        # Kubernetes labels the pods with the name of a revision, which has 11 characters more.
        self.assertLessEqual(len(name) + 11, 63)
        label = chart.render("helm-4", {**VALUE_SETS["long name"], "shards": {"count": 1}})
        for text in chart.of_shards(label, "StatefulSet")["metadata"]["labels"].values():
            self.assertLessEqual(len(text), 63)

    def test_they_connect_with_every_aggregator(self) -> None:
        for name in SHARDED:
            with self.subTest(name):
                manifests = self.rendered[name]
                service = chart.one(manifests, "Service")["metadata"]["name"]
                expected = [
                    f"{service}-{index}.{service}.{chart.NAMESPACE}.svc:29600"
                    for index in range(replicas(name))
                ]
                self.assertEqual(",".join(expected), self.options(name)["shard"]["coordinator"])
                self.assertEqual("shard", self.container(name)["args"][0])

    def test_they_have_the_options_of_the_aggregator_but_its_own(self) -> None:
        values = {
            "config": TRUSTED
            | {
                "standby": {"lease": "5s"},
                "admin": {"listen": "none"},
                "limits": {"values": 1000000},
                "reduce": {"threads": 4},
            },
            "replicaCount": 2,
            "shards": {"count": 1},
        }
        text = chart.configuration(chart.render("helm-4", values), chart.of_shards)
        options = yaml.safe_load(text)
        self.assertEqual(
            {"drain", "grpc", "http", "limits", "reduce", "shard"},
            options.keys(),
            "no state, no lead",
        )
        self.assertIn("values: 1000000\n", text)
        self.assertEqual({"threads": 4}, options["reduce"])
        self.assertEqual("cuda", self.options("sharded and issued")["reduce"]["device"])

    def test_they_present_what_the_aggregator_asks_for(self) -> None:
        options = self.options("sharded and secured")
        folder = "/etc/basin-shard"
        self.assertEqual(
            {
                "ca": "/etc/basin-tls/ca.crt",
                "cert": f"{folder}/client.crt",
                "key": f"{folder}/client.key",
                "token_file": f"{folder}/token",
            },
            {key: value for key, value in options["shard"].items() if key != "coordinator"},
        )
        # Workers present their tokens to shards as well.
        own = yaml.safe_load(chart.configuration(self.rendered["sharded and secured"]))
        self.assertEqual((own["tls"], own["auth"]), (options["tls"], options["auth"]))
        mounts = {
            mount["name"]: mount["mountPath"]
            for mount in self.container("sharded and secured")["volumeMounts"]
        }
        self.assertEqual(folder, mounts["shard"])
        spec = chart.of_shards(self.rendered["sharded and secured"], "StatefulSet")["spec"]
        volumes = {one["name"]: one for one in spec["template"]["spec"]["volumes"]}
        self.assertEqual("basin-shard", volumes["shard"]["secret"]["secretName"])
        self.assertEqual(mounts.keys(), volumes.keys())

    def test_an_issued_certificate_is_for_shards_too(self) -> None:
        manifests = self.rendered["sharded and issued"]
        certificate = chart.one(manifests, "Certificate")["spec"]
        names = certificate["dnsNames"]
        self.assertEqual(self.names("sharded and issued"), names[replicas("sharded and issued") :])
        self.assertEqual(["server auth", "client auth"], certificate["usages"])
        options = self.options("sharded and issued")["shard"]
        self.assertEqual(
            ("/etc/basin-tls/tls.crt", "/etc/basin-tls/tls.key"), (options["cert"], options["key"])
        )
        self.assertNotIn("token_file", options)
        values = {**VALUE_SETS["issued certificate"], "shards": {"count": 1, "existingSecret": "s"}}
        usages = chart.one(chart.render("helm-4", values), "Certificate")["spec"]["usages"]
        self.assertEqual(["server auth"], usages)

    def test_they_are_ready_when_they_are_connected(self) -> None:
        for name in SHARDED:
            with self.subTest(name):
                container = self.container(name)
                paths = [
                    container[f"{probe}Probe"]["httpGet"]["path"]
                    for probe in ("startup", "liveness", "readiness")
                ]
                self.assertEqual(["/livez", "/livez", "/readyz"], paths)
                encrypted = "tls_cert" in self.options(name)["http"]
                scheme = container["readinessProbe"]["httpGet"].get("scheme", "HTTP")
                self.assertEqual("HTTPS" if encrypted else "HTTP", scheme)

    def test_the_test_pod_asks_each(self) -> None:
        for name in SHARDED:
            with self.subTest(name):
                pod = chart.one(self.rendered[name], "Pod")["spec"]
                asked = [
                    next(one for one in container["args"] if one.startswith("--http-listen="))
                    for container in pod["containers"][replicas(name) :]
                ]
                expected = [f"--http-listen={host}:29601" for host in self.names(name)]
                self.assertEqual(expected, asked)

    def test_resources_are_their_own_or_those_of_the_aggregator(self) -> None:
        limits = self.container("sharded")["resources"]["limits"]
        self.assertEqual("8Gi", limits["memory"])
        manifests = self.rendered["sharded and issued"]
        aggregator = chart.one(manifests, "StatefulSet")["spec"]["template"]["spec"]
        self.assertEqual(
            aggregator["containers"][0]["resources"],
            self.container("sharded and issued")["resources"],
        )

    def test_they_are_moved_one_after_the_other_and_kept_apart(self) -> None:
        manifests = self.rendered["sharded"]
        spec = chart.of_shards(manifests, "StatefulSet")["spec"]
        budget = chart.of_shards(manifests, "PodDisruptionBudget")["spec"]
        self.assertEqual((1, spec["selector"]), (budget["maxUnavailable"], budget["selector"]))
        terms = spec["template"]["spec"]["affinity"]["podAntiAffinity"][
            "preferredDuringSchedulingIgnoredDuringExecution"
        ]
        apart = [term["podAffinityTerm"]["labelSelector"] for term in terms]
        aggregator = chart.one(manifests, "StatefulSet")["spec"]["selector"]
        self.assertEqual([spec["selector"], aggregator], apart)
        own = chart.of_shards(self.rendered["sharded and secured"], "StatefulSet")["spec"]
        self.assertEqual({"nodeAffinity": {}}, own["template"]["spec"]["affinity"])

    def test_the_network_admits_shards_and_nothing_else_of_theirs(self) -> None:
        manifests = self.rendered["sharded"]
        aggregator = chart.one(manifests, "NetworkPolicy")["spec"]
        shard = chart.of_shards(manifests, "NetworkPolicy")["spec"]
        own = chart.of_shards(manifests, "StatefulSet")["spec"]["selector"]
        self.assertEqual(own, shard["podSelector"])
        self.assertEqual(
            {"from": [{"podSelector": own}], "ports": [{"port": "grpc"}]}, aggregator["ingress"][-1]
        )
        # Trainers, the pod of `helm test` and Prometheus reach both.
        self.assertEqual(aggregator["ingress"][:-1], shard["ingress"])
        to_aggregator, dns = shard["egress"]
        self.assertEqual([{"podSelector": aggregator["podSelector"]}], to_aggregator["to"])
        self.assertEqual([{"port": "grpc"}], to_aggregator["ports"])
        self.assertEqual({53}, {port["port"] for port in dns["ports"]})
        self.assertEqual([], aggregator["egress"])

    def test_monitors_tell_shards_from_aggregators(self) -> None:
        for name, kind, key in (
            ("sharded", "PodMonitor", "podMetricsEndpoints"),
            ("sharded and issued", "ServiceMonitor", "endpoints"),
        ):
            with self.subTest(kind):
                spec = chart.of_shards(self.rendered[name], kind)["spec"]
                labels = chart.of_shards(self.rendered[name], "StatefulSet")["spec"]["selector"]
                self.assertEqual(labels, spec["selector"])
                (endpoint,) = spec[key]
                (relabeling,) = endpoint["relabelings"]
                self.assertEqual({"targetLabel": "job", "replacement": "basin-shard"}, relabeling)
                rules = (CHART / "files/alerts.yaml").read_text(encoding="utf-8")
                self.assertIn(f'job="{relabeling["replacement"]}"', rules)
        tls = chart.of_shards(self.rendered["sharded and issued"], "ServiceMonitor")["spec"]
        (endpoint,) = tls["endpoints"]
        self.assertEqual(self.names("sharded and issued")[0], endpoint["tlsConfig"]["serverName"])


class Documents(unittest.TestCase):
    def test_oldest_kubernetes_is_the_one_of_the_documentation(self) -> None:
        chart_file = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
        page = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
        (version,) = re.findall(r"a cluster of Kubernetes (1\.\d+) or newer", page)
        self.assertEqual(f">={version}.0-0", chart_file["kubeVersion"])


class Refusals(unittest.TestCase):
    def assert_refused(self, values: Values, *parts: str) -> None:
        for version in HELMS:
            with self.subTest(parts, helm=version):
                done = chart.template(version, values)
                self.assertNotEqual(0, done.returncode)
                for part in parts:
                    self.assertIn(part, done.stderr)

    def test_gpus_that_cannot_be(self) -> None:
        for gpu, key in (
            ({"enabled": True, "count": 0}, "count"),
            ({"enabled": True, "resource": "gpu"}, "resource"),
            ({"enabled": True, "number": 2}, "number"),
            ({"count": 2, "enabled": "yes"}, "enabled"),
        ):
            self.assert_refused({"config": TRUSTED, "gpu": gpu}, "gpu", key)

    def test_values_of_an_earlier_chart_are_enough(self) -> None:
        for version in HELMS:
            with self.subTest(helm=version):
                values = {"config": TRUSTED, "tls": {"http": None}, "replicaCount": None}
                done = chart.template(version, values)
                self.assertEqual((0, ""), (done.returncode, done.stderr))

    def test_network_that_nobody_declared_trusted(self) -> None:
        self.assert_refused({}, "tls.existingSecret", "config.grpc.insecure")
        tls = {"existingSecret": "basin-tls"}
        self.assert_refused({"tls": tls}, "auth.existingSecret or tls.clientCertificates")
        self.assert_refused({"auth": {"existingSecret": "grants"}}, "tls.existingSecret")
        self.assert_refused({"config": {"tls": {"cert": "/a"}}}, "tls")
        issuer = {"name": "ca"}
        self.assert_refused({"tls": {"issuer": issuer}}, "auth.existingSecret")
        self.assert_refused(
            {"config": TRUSTED, "tls": {"http": {"enabled": False, "clientCertificates": True}}},
            "tls.http.clientCertificates needs tls.http.enabled",
        )
        both = {"existingSecret": "basin-tls", "issuer": issuer, "clientCertificates": True}
        self.assert_refused({"tls": both}, "only one of them")
        self.assert_refused({"tls": {"issuer": {"nmae": "ca"}}}, "nmae")
        self.assert_refused({"config": {"grpc": {"insecure": False}}}, "config.grpc.insecure")

    def test_unknown_keys_are_named(self) -> None:
        self.assert_refused({"config": TRUSTED, "imgae": {}}, "imgae")
        self.assert_refused({"config": TRUSTED, "persistence": {"enable": True}}, "enable")
        self.assert_refused({"config": TRUSTED | {"worker": {"leese": "10s"}}}, "worker", "leese")
        self.assert_refused({"config": TRUSTED | {"wroker": {}}}, "wroker")

    def test_standbys_that_cannot_be(self) -> None:
        persistent = {"enabled": True, "size": "64Mi"}
        self.assert_refused(
            {"config": TRUSTED, "replicaCount": 2, "persistence": persistent}, "persistence.enabled"
        )
        for count in (0, 17, "2"):
            self.assert_refused({"config": TRUSTED, "replicaCount": count}, "replicaCount")
        authority = {"standby": {"authority": "file:/run/leader"}}
        self.assert_refused({"config": TRUSTED | authority}, "standby")

    def test_etcds_that_cannot_be(self) -> None:
        def refused(message: str, config: Values = TRUSTED, **etcd: Any) -> None:
            standby = {"authority": "etcd", "etcd": etcd}
            self.assert_refused(
                {**SECURED, "config": config, "replicaCount": 2, "standby": standby}, message
            )

        refused("standby.etcd.endpoints")
        refused("endpoints", endpoints=["etcd-0"])
        refused("endpoints", endpoints=["etcd-0:2379/x"])
        refused("key", endpoints=["etcd-0:2379"], key="leader")
        refused("standby.etcd.existingSecret", {}, endpoints=["etcd-0:2379"])
        refused("standby.etcd.existingSecret", endpoints=["etcd-0:2379"], user=True)
        self.assert_refused(
            {"config": TRUSTED, "replicaCount": 2, "standby": {"authority": "file"}}, "authority"
        )

    def test_shards_that_cannot_be(self) -> None:
        for count in (-1, 17, "2", None):
            self.assert_refused({"config": TRUSTED, "shards": {"count": count}}, "shards")
        self.assert_refused({"config": TRUSTED, "shards": {"number": 2}}, "number")
        limits = {"count": 1, "resources": {"limits": {"cpu": 1}}}
        self.assert_refused({"config": TRUSTED, "shards": limits}, "resources")
        for key in ("coordinator", "name", "token_file"):
            options = TRUSTED | {"shard": {key: "a"}}
            self.assert_refused({"config": options, "shards": {"count": 1}}, "shard")

    def test_shards_without_what_the_aggregator_asks_for(self) -> None:
        one = {"shards": {"count": 1}}
        both = "a Secret with token, client.crt and client.key"
        self.assert_refused({**SECURED, **one}, "set shards.existingSecret", both)
        token = {"tls": {"existingSecret": "basin-tls"}, "auth": SECURED["auth"]}
        self.assert_refused({**token, **one}, "shards need a token", "a Secret with token")
        certificate = {"tls": SECURED["tls"]}
        self.assert_refused(
            {**certificate, **one},
            "shards need a certificate",
            "a Secret with client.crt and client.key",
        )

    def test_options_that_the_chart_sets(self) -> None:
        self.assert_refused({"config": TRUSTED | {"http": {"listen": "none"}}}, "http")
        self.assert_refused({"config": TRUSTED | {"drain": {"grace": "10m"}}}, "drain")
        self.assert_refused({"config": TRUSTED | {"state": {"file": "/state"}}}, "state")
        self.assert_refused({"config": {"grpc": {"insecure": True, "listen": "[::]:1"}}}, "listen")

    def test_values_of_another_kind(self) -> None:
        self.assert_refused({"config": TRUSTED | {"worker": {"lease": 10}}}, "lease")
        self.assert_refused({"config": TRUSTED | {"worker": {"lease": "10"}}}, "lease")
        self.assert_refused({"config": TRUSTED | {"memory": {"budget": "1GB"}}}, "budget")
        self.assert_refused({"config": TRUSTED | {"limits": {"jobs": 0}}}, "jobs")
        self.assert_refused({"config": TRUSTED | {"log": {"level": "loud"}}}, "level")
        self.assert_refused({"config": TRUSTED, "ports": {"grpc": "grpc"}}, "grpc")
        self.assert_refused({"config": TRUSTED, "image": {"digest": "sha256:12"}}, "digest")

    def test_addresses_that_cannot_be(self) -> None:
        for ports in ({"grpc": 29601}, {"http": 29600}, {"grpc": 29602}, {"http": 29602}):
            self.assert_refused({"config": TRUSTED, "ports": ports}, "choose different ones")
        listen = {"listen": "127.0.0.1:29600"}
        self.assert_refused({"config": TRUSTED | {"admin": listen}}, "config.admin.listen")
        # A pod does not know its address, and nobody would reach it on another one.
        self.assert_refused({"config": TRUSTED, "listenHost": "127.0.0.1"}, "listenHost")

    def test_names_that_kubernetes_would_refuse(self) -> None:
        for key in ("nameOverride", "fullnameOverride"):
            for name in ("Basin", "my_basin", "-basin", "basin-", "1basin", "basin.io"):
                self.assert_refused({"config": TRUSTED, key: name}, key)

    def test_the_port_of_operators_may_be_unused(self) -> None:
        for listen in ("none", "127.0.0.1:29603"):
            values = {"config": TRUSTED | {"admin": {"listen": listen}}}
            done = chart.template("helm-4", values)
            self.assertEqual((0, ""), (done.returncode, done.stderr))

    def test_peers_and_monitors(self) -> None:
        policy = {"enabled": True, "trainers": [{"podSelectr": {}}]}
        self.assert_refused({"config": TRUSTED, "networkPolicy": policy}, "podSelectr")
        # Kubernetes would refuse it only when it is installed.
        policy = {"enabled": True, "monitoring": [{}]}
        self.assert_refused({"config": TRUSTED, "networkPolicy": policy}, "monitoring")
        both = {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}
        self.assert_refused({"config": TRUSTED, **both}, "enable only one of them")
        encrypted = {"tls": {"http": {"enabled": True}}}
        self.assert_refused({"config": TRUSTED, **encrypted}, "set tls.existingSecret")
        known = {"existingSecret": "a", "http": {"enabled": True, "clientCertificates": True}}
        self.assert_refused(
            {"config": TRUSTED, "tls": known, "podMonitor": {"enabled": True}},
            "podMonitor.tlsConfig",
        )
        account = {"create": True, "name": "Not A Name"}
        self.assert_refused({"config": TRUSTED, "serviceAccount": account}, "name")


class Notes(unittest.TestCase):
    def notes(self, admin: str, **values: Any) -> str:
        """What Helm prints after an installation."""
        command = ["install", chart.RELEASE, str(CHART), f"--namespace={chart.NAMESPACE}"]
        values["config"] = {**values.get("config", {}), "admin": {"listen": admin}}
        done = chart.helm("helm-4", [*command, "--dry-run=client"], values)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout[done.stdout.index("NOTES:") :]

    def test_operators_are_sent_to_the_port_that_is_open(self) -> None:
        self.assertIn(
            "port-forward demo-basin-0 29602:29602 &", self.notes("[::1]:29602", **SECURED)
        )
        moved = self.notes("127.0.0.1:30000", **SECURED)
        self.assertIn("port-forward demo-basin-0 29602:30000 &", moved)
        inside = self.notes("127.0.0.1:30000", config=TRUSTED)
        self.assertIn("-- basinctl --address=127.0.0.1:30000 status\n", inside)
        self.assertIn("-- basinctl status\n", self.notes("127.0.0.1:29602", config=TRUSTED))
        for values in (SECURED, {"config": TRUSTED}):
            none = self.notes("none", **values)
            self.assertIn("config.admin.listen is none", none)
            self.assertNotIn("port-forward", none)
            self.assertNotIn("basinctl status", none)
            self.assertIn("logs demo-basin-0\n", none)

    def test_workers_get_the_names_of_all_aggregators(self) -> None:
        name = "demo-basin-{}.demo-basin.training.svc:29600"
        one = self.notes("none", config=TRUSTED)
        self.assertIn(f"BASIN_ADDRESS={name.format(0)}\n", one)
        self.assertNotIn("shard", one)
        two = self.notes("none", config=TRUSTED, replicaCount=2)
        self.assertIn(f"BASIN_ADDRESS={name.format(0)},{name.format(1)}\n", two)

    def test_the_names_of_shards_are_shown(self) -> None:
        shown = self.notes("none", config=TRUSTED, shards={"count": 2})
        for index in range(2):
            name = f"demo-basin-shard-{index}.demo-basin-shard.training.svc:29600"
            self.assertIn(f"\n  {name}\n", shown)
        without = self.notes("none", config=TRUSTED)
        start = shown.index("The aggregator sends")
        self.assertEqual(without, shown[:start] + shown[shown.index("To test that") :])


if __name__ == "__main__":
    require(*HELMS)
    BASIND = sys.argv[1] if len(sys.argv) > 1 else ""
    unittest.main(argv=sys.argv[:1], verbosity=2)
