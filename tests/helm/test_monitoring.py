# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The alert rules fire when they should, and the dashboards query existing metrics."""

import json
import re
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any

import chart
import dashboards
import yaml
from tools import CHART, ROOT, require, tool
from trainers import DEPLOY, documents, trainers_of

RULES = CHART / "files/alerts.yaml"


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tool("promtool"), *arguments], check=False, capture_output=True, text=True
    )


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


class Alerts(unittest.TestCase):
    def test_fire_when_they_should(self) -> None:
        done = promtool("test", "rules", Path(__file__).with_name("alerts_test.yaml"))
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def test_each_has_been_seen_to_fire_and_to_be_silent(self) -> None:
        cases = yaml.safe_load(
            Path(__file__).with_name("alerts_test.yaml").read_text(encoding="utf-8")
        )["tests"]
        seen = {
            (check["alertname"], bool(check["exp_alerts"]))
            for case in cases
            for check in case["alert_rule_test"]
        }
        self.assertEqual(
            {(rule["alert"], fires) for rule in rules() for fires in (False, True)}, seen
        )

    def test_a_rule_that_never_fires_is_found(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            broken = RULES.read_text(encoding="utf-8").replace("== 0 or absent", "== 2 or absent")
            (root / "alerts.yaml").write_text(broken, encoding="utf-8")
            cases = Path(__file__).with_name("alerts_test.yaml").read_text(encoding="utf-8")
            (root / "cases.yaml").write_text(
                cases.replace("../../helm/basin/files/", ""), encoding="utf-8"
            )
            self.assertIn("BasinDown", promtool("test", "rules", root / "cases.yaml").stderr)

    def test_only_the_service_is_critical(self) -> None:
        for rule in rules():
            with self.subTest(rule["alert"]):
                cause, severity = rule["labels"]["cause"], rule["labels"]["severity"]
                self.assertIn(cause, ("service", "tenant"))
                self.assertIn(severity, ("critical", "warning"))
                if severity == "critical":
                    self.assertEqual("service", cause)

    def test_each_says_where_to_read_on(self) -> None:
        for rule in rules():
            with self.subTest(rule["alert"]):
                page, anchor = rule["annotations"]["runbook"].split("#")
                headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(encoding="utf-8"), re.M)
                self.assertIn(anchor, [heading.lower() for heading in headings])
                self.assertEqual(anchor, rule["alert"].lower())

    def test_each_runbook_has_an_alert(self) -> None:
        page = (ROOT / "docs/runbooks.md").read_text(encoding="utf-8")
        runbooks = re.findall(r"^### (Basin\w+)$", page, re.M)
        self.assertEqual([rule["alert"] for rule in rules()], runbooks)

    def test_ask_for_what_is_exported(self) -> None:
        for rule in rules():
            with self.subTest(rule["alert"]):
                self.assertLessEqual(
                    dashboards.metrics_in(rule["expr"]), dashboards.exported_metrics()
                )


def promtool_finds(
    rule: dict[str, Any], series: dict[str, str], expression: str, samples: list[dict[str, Any]]
) -> subprocess.CompletedProcess[str]:
    """Whether promtool finds these samples after a quarter of an hour with these series."""
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": v} for name, v in series.items()],
        "promql_expr_test": [{"expr": expression, "eval_time": "15m", "exp_samples": samples}],
    }
    with tempfile.TemporaryDirectory() as folder:
        rules, cases = Path(folder) / "rules.yaml", Path(folder) / "cases.yaml"
        rules.write_text(yaml.safe_dump(rule["spec"]), encoding="utf-8")
        cases.write_text(
            yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": [case]}), encoding="utf-8"
        )
        return promtool("test", "rules", cases)


class Autoscaling(unittest.TestCase):
    """deploy/trainers-hpa.yaml."""

    rule: dict[str, Any]
    autoscaler: dict[str, Any]

    @classmethod
    def setUpClass(cls) -> None:
        cls.rule, cls.autoscaler = documents(DEPLOY / "trainers-hpa.yaml")

    def evaluated(self, speed: float, members: int) -> subprocess.CompletedProcess[str]:
        """Whether promtool finds that four trainers are wanted, where these members train together
        at this speed, in samples per second, in batches of 32."""
        per_minute = speed * 60 / (32 * members)
        job = 'training_job="training/digits"'
        series = {
            f'basin_members{{{job}, state="member"}}': f"{members}x20",
            f'basin_members{{{job}, state="spare"}}': "1x20",
            f'basin_effective_batch_samples{{{job}, lane="gradients"}}': f"{32 * members}x20",
            f'basin_round{{{job}, lane="gradients"}}': f"0+{per_minute}x20",
            # Calls are no steps.
            f'basin_round{{{job}, lane="call/loss"}}': "0+700x20",
        }
        return promtool_finds(
            self.rule,
            series,
            "round(basin_trainers_wanted)",
            [{"labels": f"{{{job}}}", "value": 4}],
        )

    def test_the_rule_wants_as_many_trainers_as_the_speed_needs(self) -> None:
        # Two trainers make 250 samples per second, and 500 are wanted; so do eight that make 1000.
        for members, speed in ((2, 250.0), (8, 1000.0)):
            done = self.evaluated(speed, members)
            self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertIn("basin_trainers_wanted", self.evaluated(500.0, 2).stderr)

    def test_it_asks_for_what_is_exported(self) -> None:
        (group,) = self.rule["spec"]["groups"]
        (rule,) = group["rules"]
        self.assertLessEqual(dashboards.metrics_in(rule["expr"]), dashboards.exported_metrics())
        (metric,) = self.autoscaler["spec"]["metrics"]
        self.assertEqual(rule["record"], metric["external"]["metric"]["name"])

    def test_the_autoscaler_stays_within_the_numbers_of_the_job(self) -> None:
        trainers = trainers_of(DEPLOY / "trainer-statefulset.yaml")
        (manifest,) = trainers.manifests
        spec = self.autoscaler["spec"]
        target = {"apiVersion": "apps/v1", "kind": "StatefulSet"}
        self.assertEqual(target | {"name": manifest["metadata"]["name"]}, spec["scaleTargetRef"])
        (container,) = trainers.template["spec"]["containers"]
        env = {variable["name"]: variable.get("value") for variable in container["env"]}
        self.assertEqual(int(env["BASIN_START_WORKERS"]), spec["minReplicas"])
        self.assertEqual(int(env["BASIN_MAX_WORKERS"]), spec["maxReplicas"])


class AutoscalingOfShards(unittest.TestCase):
    """deploy/shards-hpa.yaml."""

    rule: dict[str, Any]
    autoscaler: dict[str, Any]

    @classmethod
    def setUpClass(cls) -> None:
        cls.rule, cls.autoscaler = documents(DEPLOY / "shards-hpa.yaml")

    def test_it_wants_as_many_as_keep_each_link_below_its_part(self) -> None:
        # 3 GB per second are four processes with 750 MB, of which the aggregator is one.
        for shards, rate in ((0, 3e9), (1, 1.5e9), (7, 3.75e8)):
            series = {
                'basin_contribution_bytes_total{namespace="training", job="basin"}': rate,
                # Another release, and another job of Prometheus.
                'basin_contribution_bytes_total{namespace="other", job="basin"}': 1e9,
                'basin_contribution_bytes_total{namespace="training", job="other"}': 1e9,
            }
            for index in range(shards):
                labels = f'namespace="training", job="basin-shard", pod="basin-shard-{index}"'
                series[f"basin_contribution_bytes_total{{{labels}}}"] = rate
            wanted = [{"labels": "{}", "value": 3}]
            growing = {name: f"0+{60 * value}x20" for name, value in series.items()}
            rounded = "round(basin_shards_wanted * 100) / 100"
            done = promtool_finds(self.rule, growing, rounded, wanted)
            self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        # Without metrics, nothing is wanted, and the autoscaler changes nothing.
        done = promtool_finds(self.rule, {}, "basin_shards_wanted", [])
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def test_it_asks_for_what_is_exported(self) -> None:
        (group,) = self.rule["spec"]["groups"]
        (rule,) = group["rules"]
        self.assertLessEqual(dashboards.metrics_in(rule["expr"]), dashboards.exported_metrics())
        (metric,) = self.autoscaler["spec"]["metrics"]
        self.assertEqual(rule["record"], metric["external"]["metric"]["name"])

    def test_it_scales_the_shards_of_the_chart(self) -> None:
        spec = self.autoscaler["spec"]
        values = {
            "fullnameOverride": "basin",
            "config": chart.TRUSTED,
            "shards": {"count": spec["minReplicas"], "max": spec["maxReplicas"]},
        }
        found = chart.of_shards(chart.render("helm-4", values), "StatefulSet")
        target = {key: found[key] for key in ("apiVersion", "kind")}
        target["name"] = found["metadata"]["name"]
        self.assertEqual(target, spec["scaleTargetRef"])
        self.assertEqual(self.autoscaler["metadata"]["namespace"], found["metadata"]["namespace"])
        # Nobody else sets the number.
        self.assertNotIn("replicas", found["spec"])

    def test_it_goes_down_slowly(self) -> None:
        down = self.autoscaler["spec"]["behavior"]["scaleDown"]
        self.assertGreaterEqual(down["stabilizationWindowSeconds"], 1800)
        (policy,) = down["policies"]
        self.assertEqual(("Pods", 1), (policy["type"], policy["value"]))


class Dashboards(unittest.TestCase):
    def setUp(self) -> None:
        self.boards = dashboards.load()

    def test_are_the_same_ones_after_an_upgrade(self) -> None:
        self.assertEqual(["fleet", "internals", "job"], list(self.boards))
        for name, board in self.boards.items():
            self.assertEqual(f"basin-{name}", board["uid"])
            self.assertEqual(["basin"], board["tags"], "they link to each other by it")

    def test_panels_explain_themselves(self) -> None:
        for board in self.boards.values():
            for panel in dashboards.panels(board):
                with self.subTest(board["title"], panel=panel["title"]):
                    self.assertTrue(panel["description"].endswith("."))
                    self.assertTrue(panel["fieldConfig"]["defaults"]["unit"])

    def test_work_with_any_data_source(self) -> None:
        for board in self.boards.values():
            with self.subTest(board["title"]):
                text = json.dumps(board["panels"])
                self.assertEqual({"${datasource}"}, set(re.findall(r'"uid": "([^"]+)"', text)))
                variables = {variable["name"] for variable in board["templating"]["list"]}
                self.assertEqual(variables, set(re.findall(r"\$\{?(?!__)(\w+)", text)))

    def test_panels_do_not_overlap(self) -> None:
        for board in self.boards.values():
            taken: set[tuple[int, int]] = set()
            for panel in board["panels"]:
                at = panel["gridPos"]
                cells = {
                    (x, y)
                    for x in range(at["x"], at["x"] + at["w"])
                    for y in range(at["y"], at["y"] + at["h"])
                }
                self.assertFalse(taken & cells, panel["title"])
                self.assertLessEqual(at["x"] + at["w"], 24)
                taken |= cells
            ids = [panel["id"] for panel in board["panels"]]
            self.assertEqual(len(ids), len(set(ids)))

    def test_ask_for_what_is_exported(self) -> None:
        exported = dashboards.exported_metrics()
        self.assertIn("basin_rounds_total", exported)
        for board in self.boards.values():
            for title, query in dashboards.queries(board):
                with self.subTest(board["title"], panel=title, query=query):
                    self.assertLessEqual(dashboards.metrics_in(query), exported)

    def test_a_metric_that_nobody_exports_is_found(self) -> None:
        query = 'rate(basin_surprise_total{training_job=~".*"}[1m])'
        self.assertEqual({"basin_surprise_total"}, dashboards.metrics_in(query))
        self.assertNotIn("basin_surprise_total", dashboards.exported_metrics())

    def test_queries_are_right(self) -> None:
        queries = [q for board in self.boards.values() for _, q in dashboards.queries(board)]
        self.assertGreater(len(queries), 40)
        recorded = [{"record": f"query:{i}", "expr": query} for i, query in enumerate(queries)]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "rules.yaml"
            file.write_text(
                json.dumps({"groups": [{"name": "dashboards", "rules": recorded}]}),
                encoding="utf-8",
            )
            done = promtool("check", "rules", file)
            self.assertEqual(0, done.returncode, done.stdout + done.stderr)


if __name__ == "__main__":
    require("promtool")
    unittest.main(verbosity=2)
