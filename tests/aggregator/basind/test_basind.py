# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""basind and basinctl from a user's view: start, queries, wrong configuration, and end.

Usage: test_basind.py BASIND BASINCTL SOURCE_FOLDER
"""

import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "helm"))
from programs import ANY_PORTS, Basind, run
from tools import tool

BASIND = Path()
BASINCTL = Path()
SOURCE = Path()

SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?P<labels>\{.*\})? (?P<value>[-+.0-9eEInfNa]+)$"
)


def samples_of(test: unittest.TestCase, text: str) -> dict[str, float]:
    """The samples of a page of metrics; each family must have help and type."""
    announced: dict[str, set[str]] = {"HELP": set(), "TYPE": set()}
    samples: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("# "):
            _, kind, name, rest = line.split(" ", 3)
            test.assertTrue(rest, line)
            test.assertNotIn(name, announced[kind], line)
            announced[kind].add(name)
            continue
        match = SAMPLE.match(line)
        assert match is not None, line
        family = re.sub(r"_(bucket|sum|count)$", "", match["name"])
        test.assertTrue({family, match["name"]} & announced["HELP"] & announced["TYPE"], line)
        series = match["name"] + (match["labels"] or "")
        test.assertNotIn(series, samples)
        samples[series] = float(match["value"])
    return samples


def variables_of_clients() -> dict[str, Any]:
    """The variables that clients, basin-run and basinctl read or set, from their sources, each with
    a value."""
    options = (SOURCE / "client/c/options.cc").read_text()
    names = {f"BASIN_{key.upper()}" for key in re.findall(r'Option\{"(\w+)"', options)}
    sources = [
        *(SOURCE / "client").rglob("*.cc"),
        *(SOURCE / "client/python").rglob("*.py"),
        *(SOURCE / "aggregator/ctl").rglob("*.cc"),
    ]
    for source in sources:
        names.update(re.findall(r'"(BASIN_[A-Z_]+)[="]', source.read_text()))
    # basind has these, too. It reads the files.
    names -= {"BASIN_TLS_CERT", "BASIN_TLS_KEY"}
    return {name: "info" if name == "BASIN_LOG_LEVEL" else "1" for name in names}


class Start(unittest.TestCase):
    def test_without_arguments_it_serves_this_machine_and_says_what_to_do_next(self) -> None:
        for port in (29600, 29601, 29602):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    self.skipTest(f"another program has port {port}")
        with Basind(BASIND, ports=()) as basind:
            basind.await_serving()
            self.assertEqual("127.0.0.1:29600", basind.grpc)
            self.assertEqual("127.0.0.1:29601", basind.http)
            said = basind.stderr()
            for words in ("serves this machine", "BASIN_ADDRESS=127.0.0.1:29600", "basinctl "):
                self.assertIn(words, said)
            self.assertEqual(0, basind.end())

    def test_probes_and_metrics_answer(self) -> None:
        with Basind(BASIND) as basind:
            basind.await_serving()
            self.assertEqual((200, "ok\n"), basind.get("/livez"))
            self.assertEqual((200, "ok\n"), basind.get("/readyz"))
            self.assertEqual(404, basind.get("/")[0])
            status, text = basind.get("/metrics")
            self.assertEqual(200, status)
            samples = samples_of(self, text)
            self.assertEqual(0, samples["basin_jobs"])
            self.assertEqual(0, samples["basin_draining"])
            self.assertEqual(0, samples["basin_state_file_failures_total"])
            self.assertGreater(samples["process_resident_memory_bytes"], 1e6)
            self.assertIn('basin_build_info{version="', text)

    def test_workers_of_its_user_find_a_socket_that_others_cannot_reach(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            with Basind(BASIND, "--local-listen=auto", TMPDIR=folder) as basind:
                basind.await_serving()
                [directory] = Path(folder).iterdir()
                self.assertEqual(0o700, stat.S_IMODE(directory.stat().st_mode))
                [place] = directory.iterdir()
                self.assertTrue(place.is_socket())
                self.assertEqual(0, basind.end())
            self.assertEqual([], list(Path(folder).iterdir()))

    def test_the_socket_of_a_killed_process_goes_at_the_next_start(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            with Basind(BASIND, "--local-listen=auto", TMPDIR=folder) as killed:
                killed.await_serving()
                [abandoned] = Path(folder).iterdir()
                killed.process.kill()
                killed.process.wait()
            self.assertEqual([abandoned], list(Path(folder).iterdir()))
            with Basind(BASIND, "--local-listen=auto", TMPDIR=folder) as first:
                first.await_serving()
                [used] = Path(folder).iterdir()
                self.assertNotEqual(abandoned, used)
                with Basind(BASIND, "--local-listen=auto", TMPDIR=folder) as second:
                    second.await_serving()
                    self.assertIn(used, Path(folder).iterdir())
                    self.assertEqual(2, len(list(Path(folder).iterdir())))
                    self.assertEqual(0, second.end())
                self.assertEqual([used], list(Path(folder).iterdir()))
                self.assertEqual(0, first.end())
            self.assertEqual([], list(Path(folder).iterdir()))

    def test_a_stranger_at_the_socket_is_logged_by_a_name_of_its_own(self) -> None:
        with (
            tempfile.TemporaryDirectory() as folder,
            Basind(BASIND, "--local-listen=auto", TMPDIR=folder) as basind,
        ):
            basind.await_serving()
            [directory] = Path(folder).iterdir()
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
                stranger.connect(str(directory / "workers"))
                stranger.send(b"no message of Basin")
                line = basind.await_event("local_socket_refused")
            self.assertEqual("warning", line["level"])
            self.assertEqual(0, basind.end())

    def test_without_room_for_the_socket_workers_use_the_network(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name in ("missing", "long" * 40):
                parent = Path(folder, name)
                if name != "missing":
                    parent.mkdir()
                with Basind(BASIND, "--local-listen=auto", TMPDIR=str(parent)) as basind:
                    reason = basind.await_event("local_socket_failed")["reason"]
                    self.assertIn("Workers on this machine use the network instead.", reason)
                    basind.await_serving()
                    self.assertEqual(0, basind.end())
                if name != "missing":
                    self.assertEqual([], list(parent.iterdir()))

    def test_other_machines_are_served_without_the_socket(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ports = ("--grpc-listen=0.0.0.0:0", "--grpc-insecure", *ANY_PORTS[1:])
            with Basind(BASIND, "--local-listen=auto", ports=ports, TMPDIR=folder) as basind:
                basind.await_serving()
                self.assertEqual([], list(Path(folder).iterdir()))

    def test_metrics_are_what_promtool_wants(self) -> None:
        promtool = tool("promtool")
        if not Path(promtool).exists():
            self.skipTest(f"{promtool} is not there; scripts/setup.sh installs it")
        with Basind(BASIND) as basind:
            basind.await_serving()
            page = basind.get("/metrics")[1]
        checked = subprocess.run(
            [promtool, "check", "metrics"], input=page, capture_output=True, text=True, check=False
        )
        self.assertEqual(0, checked.returncode, checked.stdout + checked.stderr)

    def test_a_port_in_use_is_reported(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            for option in ("grpc", "http", "admin"):
                with self.subTest(option):
                    ports = [port for port in ANY_PORTS if not port.startswith(f"--{option}")]
                    ended = run(BASIND, f"--{option}-listen={address}", *ports)
                    self.assertEqual(1, ended.returncode)
                    self.assertIn(address, ended.stderr)

    def test_it_continues_without_a_reader_of_its_log(self) -> None:
        with Basind(BASIND, "--log-level=debug") as basind:
            basind.await_serving()
            assert basind.process.stdout is not None
            basind.process.stdout.close()
            basind.process.stdout = None
            self.assertEqual(0, run(BASINCTL, "status", f"--address={basind.admin}").returncode)
            basind.process.send_signal(signal.SIGTERM)
            self.assertEqual(0, basind.process.wait())


class Files(unittest.TestCase):
    def test_Fault_A10_400_workers_have_descriptors_where_a_shell_gives_1024(self) -> None:
        workers = 400
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # This process needs as many.
        for limit in ("1024:4096", "1024:1024"):
            with Basind(BASIND, before=("prlimit", f"--nofile={limit}")) as basind:
                hard = int(limit.split(":")[1])
                reason = basind.await_serving()["reason"]
                self.assertIn(f"{hard} file descriptors", reason)
                samples = samples_of(self, basind.get("/metrics")[1])
                self.assertEqual(hard, samples["process_max_fds"])
                # The oldest connections of one address would be closed.
                for i in range(3 * workers):
                    self.connect(basind, f"127.0.1.{1 + i % 100}")
                if hard == 1024:
                    # Connections without a descriptor wait, but probes do not.
                    self.assertIn("ulimit -Hn", basind.await_event("descriptors_short")["reason"])
                else:
                    deadline = time.monotonic() + 60
                    while self.open_files(basind) < 3 * workers:
                        self.assertLess(time.monotonic(), deadline)
                self.assertEqual(200, basind.get("/readyz")[0])

    def connect(self, basind: Basind, source: str) -> None:
        """A peer that speaks gRPC and begins no call."""
        host, port = basind.grpc.rsplit(":", 1)
        peer = socket.create_connection((host, int(port)), source_address=(source, 0))
        self.addCleanup(peer.close)
        settings = bytes(3) + b"\4" + bytes(5)
        peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings)

    def open_files(self, basind: Basind) -> int:
        return len(list(Path(f"/proc/{basind.process.pid}/fd").iterdir()))


class End(unittest.TestCase):
    def test_it_ends_in_order_at_the_first_signal(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number.name), Basind(BASIND) as basind:
                basind.await_serving()
                self.assertEqual(0, basind.end(number))
                events = [line["event"] for line in basind.lines]
                self.assertEqual(["serving", "ending", "draining", "ended"], events)
                self.assertIn(number.name, basind.lines[1]["reason"])

    def test_it_ends_though_the_reader_of_the_log_has_stopped_reading(self) -> None:
        with Basind(BASIND) as basind:
            basind.await_serving()
            # The pipe is full, so the next line of the log blocks.
            pipe = os.open(f"/proc/{basind.process.pid}/fd/1", os.O_WRONLY | os.O_NONBLOCK)
            with self.assertRaises(BlockingIOError):
                while True:
                    os.write(pipe, bytes(select.PIPE_BUF))
            os.close(pipe)
            basind.process.send_signal(signal.SIGTERM)
            self.assertEqual(0, basind.process.wait(timeout=10))

    def test_an_operator_can_end_it(self) -> None:
        with Basind(BASIND) as basind:
            basind.await_serving()
            drained = run(BASINCTL, "drain", "service", f"--address={basind.admin}")
            self.assertEqual(0, drained.returncode, drained.stderr)
            basind.await_event("ended")
            self.assertEqual(0, basind.process.wait())


class Configuration(unittest.TestCase):
    def test_mistakes_are_named_with_the_way_out(self) -> None:
        for arguments, words in (
            (["--worker-leese=5s"], ["--worker-leese", "did you mean --worker-lease?"]),
            (["--worker-lease=5"], ["worker.lease", '"5"', "5s"]),
            (["--log-level=loud"], ["log.level", "debug, info, warning, error"]),
            (["--memory-frame=300KiB"], ["memory.frame", "multiple of 256KiB"]),
            (["--grpc-listen=0.0.0.0:0"], ["0.0.0.0:0", "grpc.insecure"]),
            (["--reduce-device=gpu"], ["reduce.device", '"gpu"', "cuda:0"]),
            (["sreve"], ["did you mean serve?"]),
            (["--config=/is/not/there"], ["/is/not/there", "No such file"]),
        ):
            with self.subTest(arguments):
                ended = run(BASIND, *arguments)
                self.assertEqual(2, ended.returncode, ended.stderr)
                self.assertEqual("", ended.stdout)
                for word in words:
                    self.assertIn(word, ended.stderr)

    def test_an_unknown_variable_is_named(self) -> None:
        ended = run(BASIND, "check-config", BASIN_WORKER_LEES="5s")
        self.assertEqual(2, ended.returncode)
        self.assertIn("BASIN_WORKER_LEASE", ended.stderr)

    def test_every_variable_of_clients_is_accepted(self) -> None:
        variables = variables_of_clients()
        self.assertLessEqual(
            {"BASIN_LOCAL_GROUP", "BASIN_RANKS", "BASIN_RUN_PROCESS", "BASIN_LIBRARY"},
            variables.keys(),
        )
        with Basind(BASIND, **variables) as basind:
            basind.await_serving()
            self.assertEqual("", basind.stderr())

    def test_a_variable_that_is_like_no_option_is_named_in_a_warning(self) -> None:
        with Basind(BASIND, BASIN_OF_OUR_OWN="1", BASIN_LOCAL_GROUP="auto") as basind:
            basind.await_serving()
            self.assertEqual(
                'basind: environment: "BASIN_OF_OUR_OWN" is not an option, and is ignored\n',
                basind.stderr(),
            )

    def test_flag_before_environment_before_file(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "basind.yaml"
            file.write_text("worker: {lease: 6s, heartbeat: 600ms}\nround: {late_warning: 6s}\n")
            printed = run(
                BASIND,
                "print-config",
                "--sources",
                "--worker-lease=8s",
                BASIN_CONFIG=str(file),
                BASIN_WORKER_LEASE="7s",
                BASIN_WORKER_HEARTBEAT="700ms",
            )
            self.assertEqual(0, printed.returncode, printed.stderr)
            self.assertIn("  lease: 8s  # flag: --worker-lease\n", printed.stdout)
            self.assertIn(
                "  heartbeat: 700ms  # environment: BASIN_WORKER_HEARTBEAT\n", printed.stdout
            )
            self.assertIn(f"  late_warning: 6s  # file: {file}:2\n", printed.stdout)
            self.assertIn("  late_policy: wait  # default\n", printed.stdout)

    def test_what_is_printed_is_a_configuration(self) -> None:
        printed = run(BASIND, "print-config")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "complete.yaml"
            file.write_text(printed.stdout)
            checked = run(BASIND, "check-config", f"--config={file}")
            self.assertEqual(0, checked.returncode, checked.stderr)

    def test_the_schema_is_json_and_has_every_option(self) -> None:
        schema = json.loads(run(BASIND, "config-schema").stdout)
        printed = run(BASIND, "print-config").stdout
        section = ""
        for line in printed.splitlines():
            if not line.startswith(" "):
                section = line.rstrip(":")
            else:
                name = line.strip().split(":")[0]
                self.assertIn(name, schema["properties"][section]["properties"])

    def test_versions(self) -> None:
        version = json.loads(run(BASIND, "version", "--json").stdout)
        self.assertEqual(
            {"version", "protocol", "contract", "cpu", "cuda", "cuda_devices"}, set(version)
        )
        shown = run(BASIND, "version").stdout
        for part in ("version", "cpu", "cuda", "cuda_devices"):
            self.assertIn(version[part], shown)
        self.assertEqual(not version["cuda"], "built without CUDA" in shown)
        # The GPUs of this machine, or why there are none.
        devices = shown.splitlines()[1]
        self.assertRegex(devices, r"^(CUDA devices: 0 \(.*sm_\d+\)|no CUDA device: CUDA: .+)")
        self.assertEqual(version["cuda_devices"], devices)
        self.assertEqual(2, run(BASIND, "version", "--jsn").returncode)

    def test_help_has_examples_for_every_command(self) -> None:
        overview = run(BASIND, "--help").stdout
        commands = re.findall(r"^  ([a-z-]+)  +\S", overview.split("examples:")[0], re.M)
        self.assertIn("serve", commands)
        for command in commands:
            with self.subTest(command):
                helped = run(BASIND, command, "--help")
                self.assertEqual(0, helped.returncode)
                self.assertIn("examples:\n  basind", helped.stdout)

    def test_help_of_each_command_of_basinctl(self) -> None:
        listed = run(BASINCTL, "--help").stdout.split("commands:")[1].split("flags:")[0]
        commands = re.findall(r"^  ([a-z-]+) ", listed, re.M)
        self.assertIn("report-exit", commands)
        for command in commands:
            with self.subTest(command):
                helped = run(BASINCTL, command, "--help")
                self.assertEqual(0, helped.returncode)
                self.assertIn(f"usage: basinctl {command}", helped.stdout)
                for example in helped.stdout.split("examples:\n")[1].splitlines():
                    self.assertTrue(example.startswith("  basinctl "), example)

    def test_help_is_also_a_command(self) -> None:
        for program, name in ((BASIND, "print-config"), (BASINCTL, "evict")):
            with self.subTest(program.name):
                for asked, flag in (((), ()), ((name,), (name,))):
                    described = run(program, *flag, "--help")
                    self.assertEqual(0, described.returncode)
                    self.assertEqual(described.stdout, run(program, "help", *asked).stdout)
                self.assertIn(f"`{program.name} help COMMAND`", run(program, "help").stdout)
                mistaken = run(program, "help", name[:-1])
                self.assertEqual(2, mistaken.returncode)
                self.assertIn(f"did you mean {name}?", mistaken.stderr)

    def test_title_of_a_help_is_the_whole_command(self) -> None:
        titles = {
            name: run(BASINCTL, name, "--help").stdout.split(":")[0]
            for name in ("job", "token", "drain", "completion", "evict")
        }
        self.assertEqual(
            {
                "job": "basinctl job set",
                "token": "basinctl token new",
                "drain": "basinctl drain",
                "completion": "basinctl completion",
                "evict": "basinctl evict",
            },
            titles,
        )

    def test_basinctl_refuses_a_flag_of_another_command(self) -> None:
        refused = run(BASINCTL, "evict", "vision", "w-7", "--lane=gradients")
        self.assertEqual(2, refused.returncode)
        self.assertIn("evict takes no --lane; write `basinctl evict JOB WORKER", refused.stderr)


class ReduceDevice(unittest.TestCase):
    """A machine without a GPU. tests/aggregator/engine has the reductions themselves."""

    def setUp(self) -> None:
        if Path("/dev/nvidiactl").exists():
            self.skipTest("this machine has a GPU")

    def test_Fault_A13_cuda_without_a_device_is_refused_before_a_port_opens(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            # The taken port would be the error if it were opened first.
            listen = f"--grpc-listen=127.0.0.1:{taken.getsockname()[1]}"
            for value in ("cuda", "cuda:3"):
                with self.subTest(value):
                    ended = run(BASIND, f"--reduce-device={value}", listen)
                    self.assertEqual(1, ended.returncode)
                    self.assertEqual("", ended.stdout)
                    self.assertRegex(
                        ended.stderr,
                        f"^basind: reduce.device is {value}: CUDA.*; correct this, or set "
                        "reduce.device to cpu or auto\n$",
                    )

    def test_auto_takes_the_cpu_and_says_why(self) -> None:
        with Basind(BASIND, "--reduce-device=auto") as basind:
            basind.await_serving()
            said = [line for line in basind.lines if line["event"] == "reduce_device"]
            self.assertEqual(1, len(said))
            self.assertIn("auto: the CPU reduces, because CUDA", said[0]["reason"])


class Healthcheck(unittest.TestCase):
    def test_it_reports_the_health_of_the_aggregator(self) -> None:
        with Basind(BASIND) as basind:
            basind.await_serving()
            asked = f"--http-listen={basind.http}"
            for flags in ([], ["--ready"]):
                checked = run(BASIND, "healthcheck", asked, *flags)
                self.assertEqual((0, "ok\n"), (checked.returncode, checked.stdout))
            basind.end()
            self.assertEqual(3, run(BASIND, "healthcheck", asked).returncode)

    def test_an_aggregator_that_hangs_is_not_well(self) -> None:
        with Basind(BASIND) as basind:
            basind.await_serving()
            basind.process.send_signal(signal.SIGSTOP)
            checked = run(BASIND, "healthcheck", f"--http-listen={basind.http}")
            self.assertEqual(7, checked.returncode, checked.stderr)
            basind.process.send_signal(signal.SIGCONT)
            checked = run(BASIND, "healthcheck", f"--http-listen={basind.http}")
            self.assertIn(checked.returncode, (0, 6, 7))


class StateFile(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.file = self.folder / "state"

    def term_of(self, basind: Basind) -> int:
        match = re.search(r"term (\d+)", basind.await_serving()["reason"])
        assert match is not None
        return int(match[1])

    def test_the_term_goes_up(self) -> None:
        with Basind(BASIND, f"--state-file={self.file}") as first:
            term = self.term_of(first)
            self.assertEqual(0, first.end())
        self.assertIn(f"term {term}\n", self.file.read_text())
        with Basind(BASIND, f"--state-file={self.file}") as second:
            self.assertGreater(self.term_of(second), term)

    def test_two_that_start_together_have_two_terms(self) -> None:
        with Basind(BASIND) as first, Basind(BASIND) as second:
            self.assertNotEqual(self.term_of(first), self.term_of(second))

    def test_Fault_A9_a_damaged_file_is_refused_and_reported(self) -> None:
        self.file.write_text("basin-state 1\nchecksum 0000000000000000\nterm 1\n")
        with Basind(BASIND, f"--state-file={self.file}") as basind:
            line = basind.await_event("state_file_damaged")
            self.assertEqual("error", line["level"])
            for word in (str(self.file), "checksum", "new term", "state.damaged"):
                self.assertIn(word, line["reason"])
            basind.await_serving()
            self.assertEqual((200, "ok\n"), basind.get("/readyz"))
        self.assertTrue((self.folder / "state.damaged").exists())

    def test_Fault_A9_a_second_aggregator_with_the_same_file_does_not_start(self) -> None:
        with Basind(BASIND, f"--state-file={self.file}") as first:
            self.term_of(first)
            second = run(BASIND, f"--state-file={self.file}", *ANY_PORTS)
            self.assertEqual(1, second.returncode, second.stderr)
            self.assertEqual("", second.stdout)
            for word in (str(self.file), "another basind", "choose another file"):
                self.assertIn(word, second.stderr)
            self.assertEqual((200, "ok\n"), first.get("/readyz"))
        with Basind(BASIND, f"--state-file={self.file}") as third:  # The first was killed.
            third.await_serving()

    def test_Fault_A9_an_older_copy_of_the_file_is_refused(self) -> None:
        with Basind(BASIND, f"--state-file={self.file}") as first:
            self.term_of(first)
        old = self.file.read_text()
        with Basind(BASIND, f"--state-file={self.file}") as second:
            term = self.term_of(second)
        self.file.write_text(old)
        with Basind(BASIND, f"--state-file={self.file}") as third:
            line = third.await_event("state_file_damaged")
            self.assertIn("older copy", line["reason"])
            self.assertGreater(self.term_of(third), term)

    def test_Fault_A8_a_file_that_cannot_be_written_is_reported_and_survived(self) -> None:
        with Basind(BASIND, f"--state-file={self.folder}/is/not/there") as basind:
            line = basind.await_event("state_file_broken")
            self.assertIn("No such file", line["reason"])
            basind.await_serving()
            self.assertEqual((200, "ok\n"), basind.get("/readyz"))
            samples = samples_of(self, basind.get("/metrics")[1])
            self.assertEqual(1, samples["basin_state_file_failures_total"])


class Basinctl(unittest.TestCase):
    def test_an_aggregator_without_jobs(self) -> None:
        with Basind(BASIND) as basind:
            basind.await_serving()
            address = f"--address={basind.admin}"
            status = run(BASINCTL, "status", address)
            self.assertEqual(0, status.returncode, status.stderr)
            self.assertIn("serving", status.stdout)
            shown = json.loads(run(BASINCTL, "status", "-o", "json", address).stdout)
            self.assertEqual([], shown["jobs"])
            self.assertTrue(shown["service"]["serving"])
            self.assertEqual(0, run(BASINCTL, "events", address).returncode)
            for command in (
                ["members", "a"],
                ["rounds", "a"],
                ["evict", "a", "w"],
                ["report-exit", "a", "w", "--status=-9"],
                ["drain", "worker", "a", "w"],
                ["recover", "a"],
                ["pause", "a"],
                ["resume", "a"],
            ):
                with self.subTest(command):
                    answered = run(BASINCTL, *command, address)
                    self.assertEqual(5, answered.returncode, answered.stderr)
                    self.assertIn("There is no job a", answered.stderr)

    def test_the_address_may_come_from_the_environment(self) -> None:
        with Basind(BASIND) as basind:
            basind.await_serving()
            status = run(BASINCTL, "status", BASIN_ADMIN_ADDRESS=basind.admin)
            self.assertEqual(0, status.returncode, status.stderr)

    def test_exit_codes(self) -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            nobody = f"--address=127.0.0.1:{closed.getsockname()[1]}"
            self.assertEqual(3, run(BASINCTL, "status", nobody).returncode)
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            address = f"--address=127.0.0.1:{silent.getsockname()[1]}"
            self.assertEqual(7, run(BASINCTL, "status", address, "--timeout=300ms").returncode)
        for wrong in (
            [],
            ["stats"],
            ["members"],
            ["drain", "worker", "a"],
            ["status", "--timeout=3"],
            ["status", "-o", "xml"],
            ["status", "--adress=x"],
        ):
            with self.subTest(wrong):
                refused = run(BASINCTL, *wrong)
                self.assertEqual(2, refused.returncode)
                self.assertTrue(refused.stderr.startswith("basinctl: "), refused.stderr)


class Documentation(unittest.TestCase):
    def test_the_page_of_the_options_is_that_of_the_table(self) -> None:
        page = run(BASIND, "config-schema", "--format=markdown").stdout
        self.assertEqual(page, (SOURCE / "docs/configuration.md").read_text(encoding="utf-8"))

    def test_the_metrics_in_the_documentation_are_those_there_are(self) -> None:
        sources = [
            *(SOURCE / "aggregator/telemetry").glob("*.cc"),
            *(SOURCE / "aggregator/basind").glob("*.cc"),
        ]
        code = "".join(path.read_text(encoding="utf-8") for path in sources)
        there = set(re.findall(r'"((?:basin|process)_[a-z_]+)"', code))
        page = (SOURCE / "docs/monitoring.md").read_text(encoding="utf-8")
        told = set(re.findall(r"^\| `((?:basin|process)_[a-z_]+)`", page, re.M))
        self.assertGreater(len(there), 20)
        self.assertEqual(there, told)

    def test_the_table_of_calls_in_the_documentation_is_the_one_there_is(self) -> None:
        """Each call is in one row, with the roles that may make it."""
        code = (SOURCE / "aggregator/auth/access.cc").read_text(encoding="utf-8")
        there = {
            name: tuple(role.strip() == "true" for role in roles.split(","))
            for name, roles in re.findall(r'\{Rpc::k\w+, "(\w+)", Scope::k\w+, \{([^}]+)\}\}', code)
        }
        page = (SOURCE / "docs/operations.md").read_text(encoding="utf-8")
        _, table = page.split("| call | worker | observer | admin | shard |\n", 1)
        told: dict[str, tuple[bool, ...]] = {}
        for row in table.split("\n\n", 1)[0].splitlines()[1:]:
            calls, *roles = (cell.strip() for cell in row.strip("|").split("|"))
            for name in re.findall(r"`(\w+)`", calls):
                self.assertNotIn(name, told)
                # WatchEvents without a job, in the row of DrainService, has no name of its own.
                told[name] = tuple(role not in ("", "events only") for role in roles)
        self.assertGreater(len(there), 10)
        self.assertEqual(there, told)

    def test_the_events_in_the_documentation_are_those_there_are(self) -> None:
        notes = (SOURCE / "aggregator/core/note.cc").read_text(encoding="utf-8")
        basind = (SOURCE / "aggregator/basind").glob("*.cc")
        serve = "".join(path.read_text(encoding="utf-8") for path in basind)
        log = (SOURCE / "aggregator/telemetry/log.cc").read_text(encoding="utf-8")
        kept = set(re.findall(r'return "([a-z_]+)";', notes)) - {"unknown"}
        there = set(kept)
        there |= set(re.findall(r'LogLevel::k\w+, "([a-z_]+)"', serve))
        there |= set(re.findall(r'event = "([a-z_]+)"', serve)) | {"peer_refused"}
        there |= set(re.findall(r'event = "([a-z_]+)"', log))
        page = (SOURCE / "docs/monitoring.md").read_text(encoding="utf-8")
        section = page.split("## Events", 1)[1].split("\n## ", 1)[0]
        told = set(re.findall(r"`([a-z_]+)`", section))
        self.assertEqual(set(), there - told)
        # `basinctl events` has what the core notes.
        _, only = section.split("Only in the log,", 1)
        only_in_the_log = set(re.findall(r"`([a-z_]+)`", only.split("\n\n", 1)[0]))
        self.assertEqual(told - kept, only_in_the_log)

    def test_the_error_texts_of_the_page_are_in_the_code(self) -> None:
        sources = [
            *(SOURCE / "accelerator").rglob("*.cc"),
            *(SOURCE / "aggregator").rglob("*.cc"),
            *(SOURCE / "client").rglob("*.cc"),
            *(SOURCE / "kernels").rglob("*.cc"),
            *(SOURCE / "protocol").rglob("*.cc"),
            *(SOURCE / "client/python").rglob("*.py"),
            *(SOURCE / "runtime").rglob("*.cc"),
        ]
        # Adjacent literals are one text.
        code = "".join(re.sub(r'"\s*"', "", path.read_text(encoding="utf-8")) for path in sources)
        page = (SOURCE / "docs/troubleshooting.md").read_text(encoding="utf-8")
        texts = re.findall(r"^\| `(.+?)` \|", page, re.M)
        self.assertGreater(len(texts), 30)
        self.assertEqual([], [text for text in texts if text not in code])


if __name__ == "__main__":
    SOURCE = Path(sys.argv.pop()).resolve()
    BASINCTL = Path(sys.argv.pop()).resolve()
    BASIND = Path(sys.argv.pop()).resolve()
    unittest.main(verbosity=2)
