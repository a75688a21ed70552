# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The schema of the chart's values matches the option table of basind.

Usage: test_schema.py [BASIND]
"""

import json
import subprocess
import sys
import unittest

from tools import CHART, ROOT

BASIND = ""
SCRIPT = ROOT / "scripts" / "make-chart-schema.py"


def made_from(options: str) -> str:
    """The output of the script, run as its usage describes."""
    done = subprocess.run(
        [sys.executable, "-B", SCRIPT], check=True, capture_output=True, text=True, input=options
    )
    return done.stdout


class Schema(unittest.TestCase):
    maxDiff = None

    def test_is_up_to_date(self) -> None:
        if not BASIND:
            self.skipTest("this build has no basind")
        options = subprocess.run(
            [BASIND, "config-schema"], check=True, capture_output=True, text=True
        ).stdout
        committed = (CHART / "values.schema.json").read_text(encoding="utf-8")
        self.assertEqual(
            committed, made_from(options), "run: basind config-schema | " + SCRIPT.name
        )

    def test_an_option_more_is_a_schema_more(self) -> None:
        owned = {
            "grpc": {"properties": {"listen": {}, "insecure": {"type": "boolean"}}},
            "http": {
                "properties": {"listen": {}, "tls_cert": {}, "tls_key": {}, "tls_client_ca": {}}
            },
            "standby": {
                "properties": {
                    "authority": {},
                    "address": {},
                    "etcd_ca": {},
                    "etcd_cert": {},
                    "etcd_key": {},
                    "etcd_user_file": {},
                }
            },
            "shard": {
                "properties": {
                    **{"coordinator": {}, "name": {}, "advertise": {}},
                    **{"ca": {}, "cert": {}, "key": {}, "token_file": {}},
                }
            },
            "state": {"properties": {"file": {}}},
            "drain": {"properties": {"grace": {}, "surprise": {"type": "string"}}},
            "tls": {"properties": {"cert": {}, "key": {}, "client_ca": {}}},
            "auth": {"properties": {"file": {}}},
        }
        schema = json.loads(made_from(json.dumps({"properties": owned})))
        config = schema["properties"]["config"]
        self.assertFalse(config["additionalProperties"])
        self.assertEqual(
            {
                "grpc": {"properties": {"insecure": {"type": "boolean"}}},
                "drain": {"properties": {"surprise": {"type": "string"}}},
            },
            config["properties"],
        )

    def test_an_option_that_the_chart_sets_has_to_exist(self) -> None:
        with self.assertRaises(subprocess.CalledProcessError):
            made_from(json.dumps({"properties": {"grpc": {"properties": {}}}}))


if __name__ == "__main__":
    BASIND = sys.argv[1] if len(sys.argv) > 1 else ""
    unittest.main(argv=sys.argv[:1], verbosity=2)
