# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""compose.yaml and compose.shards.yaml match basind, the client and the image. Nothing is started.

Usage: test_compose.py [BASIND]
"""

import json
import re
import subprocess
import sys
import unittest
from typing import Any

import yaml
from tools import ROOT

BASIND = ""
CLIENT_OPTIONS = ROOT / "client/c/options.cc"

# The keys of a service, of those that the Compose specification has, that are used here. Tools
# refuse or ignore others.
KEYS = {
    *("image", "build", "command", "ports", "environment", "healthcheck", "depends_on"),
    *("stop_grace_period", "restart", "mem_limit", "scale", "shm_size", "tmpfs"),
    *("read_only", "cap_drop", "security_opt"),
}


def seconds(text: str) -> int:
    units = {"s": 1, "m": 60}
    return int(text[:-1]) * units[text[-1]]


def basind(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BASIND, *arguments], check=False, capture_output=True, text=True)


class Compose(unittest.TestCase):
    def setUp(self) -> None:
        whole = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
        self.assertEqual({"services"}, whole.keys())
        self.aggregator: dict[str, Any] = whole["services"]["aggregator"]
        self.trainer: dict[str, Any] = whole["services"]["trainer"]

    def test_keys(self) -> None:
        self.assertLessEqual(self.aggregator.keys() | self.trainer.keys(), KEYS)

    def test_options_are_ones_of_basind(self) -> None:
        if not BASIND:
            self.skipTest("this build has no basind")
        serve, *flags = self.aggregator["command"]
        self.assertEqual("serve", serve)
        done = basind("check-config", *flags)
        self.assertEqual(0, done.returncode, done.stderr)
        # basind refuses such an address without this option, so the file must have it.
        flags.remove("--grpc-insecure")
        self.assertEqual(2, basind("check-config", *flags).returncode)

    def test_health_is_asked_where_the_aggregator_answers(self) -> None:
        how, program, *arguments = self.aggregator["healthcheck"]["test"]
        dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
        self.assertEqual("CMD", how)  # Without a shell, which the image does not have.
        self.assertIn(f'ENTRYPOINT ["{program}"]', dockerfile)
        self.assertEqual(["healthcheck", "--ready"], arguments)
        if not BASIND:
            self.skipTest("this build has no basind")
        options = json.loads(basind("config-schema").stdout)["properties"]
        default = options["http"]["properties"]["listen"]["default"]
        self.assertIn(f"--http-listen=0.0.0.0:{default.split(':')[1]}", self.aggregator["command"])

    def test_rounds_have_time_to_end(self) -> None:
        if not BASIND:
            self.skipTest("this build has no basind")
        options = json.loads(basind("config-schema").stdout)["properties"]
        grace = options["drain"]["properties"]["grace"]["default"]
        self.assertGreater(seconds(self.aggregator["stop_grace_period"]), seconds(grace))

    def test_ports_are_open_only_on_this_machine(self) -> None:
        for port in self.aggregator["ports"]:
            with self.subTest(port):
                address, outside, inside = port.split(":")
                self.assertEqual(("127.0.0.1", outside), (address, inside))
                self.assertTrue(
                    any(one.endswith(f":{inside}") for one in self.aggregator["command"])
                )

    def test_variables_are_ones_that_clients_have(self) -> None:
        options = re.findall(r'Option\{"(\w+)"', CLIENT_OPTIONS.read_text(encoding="utf-8"))
        variables = self.trainer["environment"]
        self.assertLessEqual(variables.keys(), {f"BASIN_{option.upper()}" for option in options})
        host, port = variables["BASIN_ADDRESS"].split(":")
        self.assertEqual("aggregator", host)
        self.assertIn(f"--grpc-listen=0.0.0.0:{port}", self.aggregator["command"])
        least, start, most = (
            int(variables[f"BASIN_{name}_WORKERS"]) for name in ("MIN", "START", "MAX")
        )
        self.assertEqual(start, self.trainer["scale"])
        self.assertLess(least, start)
        self.assertLess(start, most)
        # Each container is a worker of its own: its id comes from its host name and process.
        self.assertNotIn("BASIN_WORKER_ID", variables)

    def test_services_have_no_rights(self) -> None:
        for service in (self.aggregator, self.trainer):
            self.assertTrue(service["read_only"])
            self.assertEqual(["ALL"], service["cap_drop"])
            self.assertEqual(["no-new-privileges:true"], service["security_opt"])


class Shards(unittest.TestCase):
    """compose.shards.yaml, which is used together with compose.yaml."""

    def setUp(self) -> None:
        base, whole = (
            yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))["services"]
            for name in ("compose.yaml", "compose.shards.yaml")
        )
        self.aggregator: dict[str, Any] = base["aggregator"]
        self.base_trainer: list[str] = base["trainer"]["command"]
        self.trainer: dict[str, Any] = whole.pop("trainer")
        self.shards: dict[str, dict[str, Any]] = whole

    def test_keys(self) -> None:
        for shard in self.shards.values():
            self.assertLessEqual(shard.keys(), KEYS)
        self.assertEqual({"command"}, self.trainer.keys())

    def test_there_are_two_that_differ_only_in_their_name(self) -> None:
        self.assertEqual(["shard-1", "shard-2"], list(self.shards))
        first, second = (
            json.dumps(shard).replace(name, "NAME") for name, shard in self.shards.items()
        )
        self.assertEqual(first, second)

    def test_workers_and_shards_find_each_other_by_the_names_of_services(self) -> None:
        port = ":29600"
        self.assertIn(f"--grpc-listen=0.0.0.0{port}", self.aggregator["command"])
        for name, shard in self.shards.items():
            with self.subTest(name):
                command = shard["command"]
                self.assertEqual("shard", command[0])
                for flag in (
                    f"--coordinator=aggregator{port}",
                    f"--name={name}",
                    f"--advertise={name}{port}",
                    f"--grpc-listen=0.0.0.0{port}",
                ):
                    self.assertIn(flag, command)
                # Nothing outside of the network needs them.
                self.assertNotIn("ports", shard)

    def test_options_are_ones_of_basind(self) -> None:
        if not BASIND:
            self.skipTest("this build has no basind")
        for shard in self.shards.values():
            # check-config has no short names for the options of shards.
            flags = [
                re.sub(r"^--(coordinator|name|advertise)=", r"--shard-\1=", flag)
                for flag in shard["command"][1:]
            ]
            done = basind("check-config", *flags)
            self.assertEqual(0, done.returncode, done.stderr)
            flags.remove("--grpc-insecure")
            self.assertEqual(2, basind("check-config", *flags).returncode)

    def test_they_are_what_the_aggregator_is(self) -> None:
        for key in ("image", "build", "healthcheck", "restart", "mem_limit", "read_only"):
            for shard in self.shards.values():
                self.assertEqual(self.aggregator[key], shard[key], key)
        for shard in self.shards.values():
            self.assertEqual(["ALL"], shard["cap_drop"])
            self.assertEqual(["no-new-privileges:true"], shard["security_opt"])

    def test_the_training_is_large_enough_to_use_them(self) -> None:
        *command, width = self.trainer["command"]
        self.assertEqual(self.base_trainer, command)
        (units,) = re.findall(r"^--width=(\d+)$", width)
        parameters = 512 * int(units)
        least = re.findall(
            r"kLeastShare = uint64_t\{1\} << (\d+);",
            (ROOT / "protocol/placement.h").read_text(encoding="utf-8"),
        )
        self.assertGreater(4 * parameters, (len(self.shards) + 1) * 2 ** int(least[0]))
        script = (ROOT / "examples/digits.py").read_text(encoding="utf-8")
        self.assertIn("nn.Linear(512, width)", script)


if __name__ == "__main__":
    BASIND = sys.argv[1] if len(sys.argv) > 1 else ""
    unittest.main(argv=sys.argv[:1], verbosity=2)
