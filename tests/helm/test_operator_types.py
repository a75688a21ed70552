# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The rendered chart has the types of the Prometheus operator."""

import copy
import unittest

import chart
from chart import VALUE_SETS
from operator_types import VERSION, complaints
from tools import require


def manifests() -> list[chart.Manifest]:
    return [
        manifest
        for values in VALUE_SETS.values()
        for manifest in chart.render("helm-4", values)
        if manifest["apiVersion"] == VERSION
    ]


class Types(unittest.TestCase):
    def test_chart(self) -> None:
        found = manifests()
        kinds = {manifest["kind"] for manifest in found}
        self.assertEqual({"PodMonitor", "PrometheusRule", "ServiceMonitor"}, kinds)
        self.assertEqual("", complaints(found))

    def test_planted_mistakes_are_found(self) -> None:
        whole = chart.one(chart.render("helm-4", VALUE_SETS["monitored"]), "ServiceMonitor")
        unknown, another, missing = (copy.deepcopy(whole) for _ in range(3))
        unknown["spec"]["endpoint"] = unknown["spec"]["endpoints"]
        another["spec"]["jobLabel"] = 1
        del missing["spec"]["selector"]
        found = complaints([unknown, another, missing])
        for part in ('"endpoint"', "'number' is not assignable to type 'string'", "selector"):
            with self.subTest(part):
                self.assertIn(part, found)


if __name__ == "__main__":
    require("helm-4")
    unittest.main(verbosity=2)
