# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Writes the schema of the Helm chart's values.

The values of the chart itself come from helm/values.schema.part.json. The `config` section comes
from the option table of basind, without the options that the chart sets itself.

usage: basind config-schema | python3 scripts/make-chart-schema.py > helm/basin/values.schema.json
"""

import json
import sys
from pathlib import Path
from typing import Any

PART = Path(__file__).resolve().parents[1] / "helm" / "values.schema.part.json"

# helm/basin/templates/_helpers.tpl sets these, and overrides the user's values.
SET_BY_THE_CHART = (
    "grpc.listen",
    "http.listen",
    "http.tls_cert",
    "http.tls_key",
    "http.tls_client_ca",
    "state.file",
    "drain.grace",
    "tls.cert",
    "tls.key",
    "tls.client_ca",
    "auth.file",
    "standby.authority",
    "standby.address",
    "standby.etcd_ca",
    "standby.etcd_cert",
    "standby.etcd_key",
    "standby.etcd_user_file",
    "shard.coordinator",
    "shard.name",
    "shard.advertise",
    "shard.ca",
    "shard.cert",
    "shard.key",
    "shard.token_file",
)


def chart_schema(options: dict[str, Any]) -> dict[str, Any]:
    """The schema of the values, from the schema of basind's configuration file.

    Raises KeyError if basind no longer has an option that the chart sets.
    """
    sections = options["properties"]
    for key in SET_BY_THE_CHART:
        section, name = key.split(".")
        del sections[section]["properties"][name]
        if not sections[section]["properties"]:
            del sections[section]
    schema: dict[str, Any] = json.loads(PART.read_text(encoding="utf-8"))
    schema["properties"]["config"] |= {
        "type": "object",
        "additionalProperties": False,
        "properties": sections,
    }
    return schema


if __name__ == "__main__":
    json.dump(chart_schema(json.load(sys.stdin)), sys.stdout, indent=2)
    print()
