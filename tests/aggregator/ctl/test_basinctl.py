# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""basinctl from an operator's view: doctor, bench, plan, top, formats, timeline,
completion.

Usage: test_basinctl.py BASIND BASINCTL TRAINER
"""

import contextlib
import json
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "basind"))
from programs import PATIENCE, Basind, Trainer, clean_environment, run

BASIND = Path()
BASINCTL = Path()
TRAINER = Path()


def nobody() -> str:
    """An address on which nothing listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{closed.getsockname()[1]}"


class WithFolder(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def start(self, *arguments: str) -> Basind:
        basind = Basind(BASIND, *arguments)
        self.addCleanup(basind.__exit__, None, None, None)
        basind.await_serving()
        return basind

    def train(self, basind: Basind, job: str) -> Trainer:
        """A job of one worker, with one round."""
        trainer = Trainer(TRAINER, basind.grpc, job, "a", 1, 1)
        self.addCleanup(trainer.kill)
        self.assertEqual("member 0 of 1", trainer.ask("join"))
        self.assertEqual("begun", trainer.ask("begin 1"))
        self.assertIn("COMMITTED", trainer.ask("finish"))
        return trainer


class Doctor(WithFolder):
    def diagnose(self, *arguments: str, **variables: str) -> tuple[int, dict[str, dict[str, Any]]]:
        """The exit code, and the findings of the one address that is checked, by step."""
        done = run(BASINCTL, "doctor", "-o", "json", "--timeout=5s", *arguments, **variables)
        diagnoses = json.loads(done.stdout)["diagnoses"]
        self.assertEqual(1, len(diagnoses))
        return done.returncode, {finding["step"]: finding for finding in diagnoses[0]["findings"]}

    def failure(self, code: int, step: str, words: str, *arguments: str, **variables: str) -> None:
        """One failure, which is the last step, and names what to do."""
        ended, findings = self.diagnose(*arguments, **variables)
        self.assertEqual(code, ended, findings)
        self.assertEqual(step, list(findings)[-1], findings)
        self.assertEqual("failed", findings[step]["verdict"])
        self.assertIn(words, findings[step]["what"] + findings[step]["fix"])

    def test_a_healthy_aggregator_has_a_verdict_for_each_step(self) -> None:
        basind = self.start()
        done = run(
            BASINCTL,
            "doctor",
            f"--address={basind.admin}",
            f"--workers-address={basind.grpc}",
        )
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertIn(f"operators at {basind.admin}", done.stdout)
        self.assertIn(f"workers at {basind.grpc}", done.stdout)
        for step in ("name", "tcp", "mtu", "tls", "token", "round trip", "clock", "version"):
            self.assertEqual(2, len(re.findall(rf"^  (?:ok|skipped) +{step} ", done.stdout, re.M)))
        self.assertNotIn("fix:", done.stdout)

    def test_only_the_given_address_is_checked(self) -> None:
        basind = self.start()
        for flag in (f"--address={basind.admin}", f"--workers-address={basind.grpc}"):
            code, findings = self.diagnose(flag)
            self.assertEqual(0, code)
            self.assertEqual("ok", findings["version"]["verdict"])
        code, _ = self.diagnose(BASIN_ADDRESS=basind.grpc)
        self.assertEqual(0, code)

    def test_what_cannot_be_reached(self) -> None:
        self.failure(3, "name", "name server", "--address=no-such-host.invalid:1")
        self.failure(3, "tcp", "Check that the aggregator runs", f"--address={nobody()}")
        self.failure(3, "tcp", "log has a line", f"--workers-address={nobody()}")
        self.failure(2, "name", "HOST:PORT", BASIN_ADDRESS="basin-0")

    def test_something_else_listens_there(self) -> None:
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            address = f"--address=127.0.0.1:{silent.getsockname()[1]}"
            self.failure(7, "answer", "", address, "--timeout=1s")

    def test_the_doctor_leaves_no_trace(self) -> None:
        basind = self.start()
        self.diagnose(f"--workers-address={basind.grpc}")
        self.diagnose(f"--address={basind.admin}")
        _, metrics = basind.get("/metrics")
        for counter in ("malformed_messages", "silent_calls", "foreign_connections", "floods"):
            self.assertIn(f"basin_{counter}_total 0", metrics)
        self.assertIn("basin_jobs 0", metrics)
        basind.end()
        self.assertNotIn("peer_refused", [line["event"] for line in basind.lines])

    def test_tls_and_tokens(self) -> None:
        certs = self.folder / "certs"
        self.assertEqual(0, run(BASINCTL, "dev-certs", str(certs)).returncode)
        made = run(BASINCTL, "token", "new", "--jobs=vision")
        (self.folder / "grants").write_text(made.stderr)
        worker = self.folder / "worker"
        worker.write_text(made.stdout)
        stranger = self.folder / "stranger"
        stranger.write_text(run(BASINCTL, "token", "new", "--jobs=*").stdout)
        basind = self.start(
            f"--tls-cert={certs}/server.crt",
            f"--tls-key={certs}/server.key",
            f"--auth-file={self.folder}/grants",
        )
        workers = f"--workers-address={basind.grpc}"
        operators = f"--address={basind.admin}"
        ca = f"{certs}/ca.crt"
        code, findings = self.diagnose(workers, BASIN_TLS_CA=ca, BASIN_TOKEN_FILE=str(worker))
        self.assertEqual(0, code, findings)
        for step in ("tls", "token", "clock", "version"):
            self.assertEqual("ok", findings[step]["verdict"], findings)

        self.failure(3, "answer", "BASIN_TLS_CA", workers)
        others = self.folder / "others"
        self.assertEqual(0, run(BASINCTL, "dev-certs", str(others)).returncode)
        self.failure(3, "tls", "does not trust", workers, BASIN_TLS_CA=f"{others}/ca.crt")
        name = f"--workers-address=localhost.localdomain:{basind.grpc.split(':')[1]}"
        with contextlib.suppress(socket.gaierror):
            socket.getaddrinfo("localhost.localdomain", 0)
            self.failure(3, "tls", "certificate", name, BASIN_TLS_CA=ca)
        self.failure(2, "tls", "No such file", workers, BASIN_TLS_CA="/is/not/there")
        self.failure(4, "token", "BASIN_TOKEN_FILE", workers, BASIN_TLS_CA=ca)
        self.failure(
            4, "token", "auth.file", workers, BASIN_TLS_CA=ca, BASIN_TOKEN_FILE=str(stranger)
        )
        # The token is of one job.
        held = {"BASIN_TLS_CA": ca, "BASIN_TOKEN_FILE": str(worker)}
        self.assertIn("for which jobs was not checked", findings["token"]["what"])
        for given in (("--job=vision",), ()):
            named = {} if given else {"BASIN_JOB": "vision"}
            code, findings = self.diagnose(workers, *given, **held, **named)
            self.assertEqual((0, "ok"), (code, findings["token"]["verdict"]), findings)
            self.assertEqual("valid, for the job vision", findings["token"]["what"])
        self.failure(4, "token", "for the job text", workers, "--job=text", **held)
        self.failure(4, "token", "for the job text", workers, BASIN_JOB="text", **held)
        refused = basind.await_event("peer_refused")["reason"]
        while "wrong_job" not in refused:
            refused = basind.await_event("peer_refused")["reason"]
        self.assertIn("Session for job text was refused (wrong_job)", refused)
        wrong = run(BASINCTL, "doctor", workers, "--job=a b")
        self.assertEqual(2, wrong.returncode)
        self.assertIn("--job", wrong.stderr)
        # The role of a worker does not suffice for the operators' address.
        self.failure(
            4,
            "token",
            "role of operators",
            operators,
            BASIN_TLS_CA=ca,
            BASIN_TOKEN_FILE=str(worker),
        )
        made = run(
            BASINCTL,
            *("token", "new", "--jobs=vision", "--role=admin"),
            f"--grants={self.folder}/grants",
        )
        self.assertEqual((0, ""), (made.returncode, made.stderr))
        (self.folder / "admin").write_text(made.stdout)
        held["BASIN_TOKEN_FILE"] = str(self.folder / "admin")
        basind.await_event("auth_file_changed")
        code, findings = self.diagnose(operators, "--job=vision", **held)
        self.assertEqual((0, "ok"), (code, findings["token"]["verdict"]), findings)
        self.assertEqual("valid, for the job vision", findings["token"]["what"])
        self.failure(4, "token", "for the job text", operators, "--job=text", **held)
        # A stranger learns no version.
        _, findings = self.diagnose(workers, BASIN_TLS_CA=ca, BASIN_TOKEN_FILE=str(stranger))
        self.assertNotIn("version", findings)


class Bench(WithFolder):
    def test_it_measures_and_leaves(self) -> None:
        basind = self.start()
        done = run(
            BASINCTL,
            "bench",
            f"--address={basind.admin}",
            f"--workers-address={basind.grpc}",
            "--model=1MiB",
            "--rounds=3",
            "-o",
            "json",
        )
        self.assertEqual(0, done.returncode, done.stderr)
        measured = json.loads(done.stdout)
        self.assertEqual((2, 3, 1 << 20), tuple(
            measured[key] for key in ("workers", "rounds", "model_bytes")
        ))  # fmt: skip
        for times in (measured["small_round"], measured["round"]):
            self.assertGreater(times["median_seconds"], 0)
            self.assertGreaterEqual(times["slowest_seconds"], times["median_seconds"])
        members = json.loads(
            run(BASINCTL, "status", f"--address={basind.admin}", "-o", "json").stdout
        )
        self.assertEqual(0, members["service"]["workers"])
        self.assertEqual([], members["jobs"])
        # Another bench can therefore run.
        again = run(
            BASINCTL,
            "bench",
            f"--address={basind.admin}",
            f"--workers-address={basind.grpc}",
            "--model=64KiB",
            "--rounds=1",
        )
        self.assertEqual(0, again.returncode, again.stderr)
        self.assertIn("GB/s on the wire", again.stdout)

    def test_it_does_not_disturb_another_job(self) -> None:
        basind = self.start()
        trainer = self.train(basind, "vision")
        places = (f"--address={basind.admin}", f"--workers-address={basind.grpc}")
        refused = run(BASINCTL, "bench", *places, "--model=64KiB", "--rounds=1")
        self.assertEqual(6, refused.returncode)
        self.assertIn("has the job vision (running)", refused.stderr)
        beside = run(BASINCTL, "bench", *places, "--model=64KiB", "--rounds=1", "--beside-others")
        self.assertEqual(0, beside.returncode, beside.stderr)
        self.assertEqual("begun", trainer.ask("begin 2"))
        self.assertIn("COMMITTED over 1", trainer.ask("finish"))

    def test_it_refuses_what_it_cannot_see(self) -> None:
        basind = self.start()
        refused = run(
            BASINCTL, "bench", f"--address={nobody()}", f"--workers-address={basind.grpc}"
        )
        self.assertEqual(3, refused.returncode)
        self.assertIn("--beside-others", refused.stderr)
        self.assertEqual(2, run(BASINCTL, "bench", "--workers=65").returncode)
        self.assertEqual(2, run(BASINCTL, "bench", "--rounds=0").returncode)


class Plan(unittest.TestCase):
    def test_it_needs_no_aggregator(self) -> None:
        flags = ("--workers=8", "--model=100MiB", "--nic=10Gbit", "--round-trip=2ms")
        shown = run(BASINCTL, "plan", *flags, "--memory=64MiB")
        self.assertEqual(0, shown.returncode, shown.stderr)
        self.assertIn("time of a round", shown.stdout)
        self.assertIn("with smaller windows", shown.stdout)
        plan = json.loads(run(BASINCTL, "plan", *flags, "-o", "json").stdout)
        expected = 8 * (100 << 20) * 8 / 10e9 + 2 * 0.002
        self.assertAlmostEqual(expected, plan["round_seconds"], places=6)
        self.assertLess(plan["ring_seconds"], plan["round_seconds"])

    def test_mistakes(self) -> None:
        for wrong, words in (
            (("--model=1MiB", "--nic=10Gbit"), "--workers is missing"),
            (("--workers=8", "--nic=10Gbit"), "--model is missing"),
            (("--workers=8", "--model=1MiB"), "--nic is missing"),
            (("--workers=0",), "at least 1"),
            (("--workers=8", "--model=1MiB", "--nic=10"), "2.5Gbit/s"),
            (("--workers=8", "--model=1MiB", "--nic=nanGbit"), "2.5Gbit/s"),
            (("--model=100",), "--model is"),
        ):
            refused = run(BASINCTL, "plan", *wrong)
            self.assertEqual(2, refused.returncode, wrong)
            self.assertIn(words, refused.stderr)

    def test_one_worker_needs_no_aggregation(self) -> None:
        flags = ("--model=100MiB", "--nic=10Gbit")
        alone = run(BASINCTL, "plan", "--workers=1", *flags)
        self.assertEqual(0, alone.returncode, alone.stderr)
        self.assertIn("One worker needs no aggregation", alone.stdout)
        self.assertNotIn("the same in a ring", alone.stdout)
        self.assertNotIn("break-even", alone.stdout)
        two = run(BASINCTL, "plan", "--workers=2", *flags).stdout
        self.assertNotIn("needs no aggregation", two)
        self.assertIn("the ring is faster with a model of any size", two)
        self.assertNotIn("0.0KiB", two)

    def test_shards(self) -> None:
        flags = ("--workers=8", "--model=800MiB", "--nic=10Gbit", "--round-trip=1ms")
        shown = run(BASINCTL, "plan", *flags, "--within=2s", "--shards=5").stdout
        for number in (0, 1, 2, 3, 5, 7):
            self.assertRegex(shown, rf"\n{number} +\S+ +\d+\.\d\d x ")
        self.assertIn("More than 7 shards do not help", shown)
        self.assertIn("A round within 2s needs 2 shards.", shown)
        self.assertIn("No number of shards", run(BASINCTL, "plan", *flags, "--within=100ms").stdout)
        plan = json.loads(run(BASINCTL, "plan", *flags, "--within=2s", "-o", "json").stdout)
        self.assertEqual(2, plan["shards"])
        self.assertEqual(7, plan["most_useful_shards"])
        self.assertEqual([0, 1, 2, 3, 7], [round["shards"] for round in plan["with_shards"]])
        self.assertEqual(plan["round_seconds"], plan["with_shards"][0]["round_seconds"])
        fast = run(BASINCTL, "plan", *flags, "--shard-nic=100Gbit/s").stdout
        self.assertIn("Shards do not make a round of this job shorter.", fast)

    def test_it_takes_what_it_prints(self) -> None:
        def estimates(*flags: str) -> dict[str, str]:
            shown = run(BASINCTL, "plan", *flags)
            self.assertEqual(0, shown.returncode, shown.stderr)
            rows = [re.split(" {2,}", line) for line in shown.stdout.splitlines()[1:]]
            return {row[0]: row[1] for row in rows if len(row) == 3}

        # In turn: a small model and a slow network, and 10 GiB for which nothing is fast enough.
        for workers, model, nic in ((8, "1.5MiB", "2.5Gbit/s"), (32, "10GiB", "100Gbit")):
            flags = (f"--workers={workers}", f"--model={model}", f"--nic={nic}")
            first = estimates(*flags)
            # As the network, the model, the budget and the round trip of another plan.
            estimates(
                f"--workers={workers}",
                f"--nic={first['break-even: network of the aggregator']}",
                f"--model={first['break-even: model']}",
                f"--memory={first['memory of the aggregator']}",
                f"--round-trip={first['time of a round']}",
            )


class WithoutAnAggregator(unittest.TestCase):
    """Commands that ask no aggregator have no flags for one."""

    COMMANDS = (
        ("plan", "--workers=8", "--model=1MiB", "--nic=10Gbit"),
        ("token", "new", "--jobs=x"),
        ("dev-certs", "/nonexistent/certs"),
        ("completion", "bash"),
        ("version",),
    )
    FOR_AN_AGGREGATOR = (
        "--address=127.0.0.1:1",
        "--tls-ca=ca",
        "--tls-cert=cert",
        "--tls-key=key",
        "--token-file=token",
        "--timeout=1s",
    )

    def test_flags_for_an_aggregator_are_refused(self) -> None:
        for command in self.COMMANDS:
            shown = run(BASINCTL, command[0], "--help").stdout
            self.assertIn("Needs no aggregator", " ".join(shown.split()))
            offered = run(BASINCTL, "completion", "bash").stdout
            words = re.search(rf"^    {command[0]}\) words='(.*)' ;;", offered, re.M)
            assert words is not None
            for flag in self.FOR_AN_AGGREGATOR:
                with self.subTest(command=command[0], flag=flag):
                    name = flag.split("=")[0]
                    refused = run(BASINCTL, *command, flag)
                    self.assertEqual(2, refused.returncode)
                    self.assertEqual("", refused.stdout)
                    self.assertIn(f"{command[0]} takes no {name}; write `", refused.stderr)
                    self.assertNotIn(name, shown)
                    self.assertNotIn(name, words[1])
            for flag in ("--help", "-h"):
                self.assertEqual(0, run(BASINCTL, *command, flag).returncode)

    def test_only_answers_have_formats(self) -> None:
        for command in self.COMMANDS:
            with self.subTest(command[0]):
                formats = command[0] in ("plan", "version")
                done = run(BASINCTL, *command, "-o", "json")
                self.assertEqual(0 if formats else 2, done.returncode)
                self.assertEqual(
                    formats, "-o, --output" in run(BASINCTL, "help", command[0]).stdout
                )

    def test_their_settings_in_the_environment_do_not_matter(self) -> None:
        environment = {**os.environ, "BASIN_TOKEN_FILE": "/nonexistent", "BASIN_TLS_CA": "none"}
        done = subprocess.run(
            [BASINCTL, "version"], capture_output=True, text=True, env=environment, check=True
        )
        self.assertEqual("", done.stderr)

    def test_version(self) -> None:
        about = json.loads(run(BASIND, "version", "--json").stdout)
        shown = run(BASINCTL, "version")
        self.assertEqual(
            f"basinctl {about['version']} (protocol {about['protocol']}, "
            f"arithmetic contract {about['contract']})\n",
            shown.stdout,
        )
        same = {name: about[name] for name in ("version", "protocol", "contract")}
        self.assertEqual(same, json.loads(run(BASINCTL, "version", "-o", "json").stdout))
        self.assertEqual(2, run(BASINCTL, "version", "--watch").returncode)
        self.assertEqual(2, run(BASINCTL, "version", "more").returncode)


class Answers(WithFolder):
    def ctl(self, basind: Basind, *arguments: str) -> str:
        done = run(BASINCTL, *arguments, f"--address={basind.admin}")
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout

    def test_yaml_says_what_json_says(self) -> None:
        try:
            import yaml
        except ImportError:
            self.skipTest("PyYAML is not installed")
        basind = self.start()
        self.train(basind, "vision")
        for command in (
            ("status",),
            ("jobs",),
            ("members", "vision"),
            ("goodput", "vision"),
            ("rounds", "vision"),
            ("limits",),
            ("shards",),
        ):
            as_json = json.loads(self.ctl(basind, *command, "-o", "json"))
            as_yaml = yaml.safe_load(self.ctl(basind, *command, "-o", "yaml"))
            for told in (as_json, as_yaml):  # What changes from one call to the next.
                told.get("service", {}).pop("uptime_ns", None)
                for memory in told.get("memory", []):
                    memory.pop("bytes")
                for shard in told.get("shards", []):
                    shard.pop("up_ns")
                if command[0] == "rounds":
                    told.pop("time_unix_ns")
                    for lane in told["lanes"]:
                        for past in lane["recent"]:
                            past.pop("age_ns")
                for member in told.get("members", []):
                    member.pop("last_seen_ns")
                    member.pop("progress")
                goodputs = [job["goodput"] for job in told.get("jobs", [])]
                if command[0] == "goodput":
                    goodputs.append(told)
                for goodput in goodputs:
                    goodput.pop("ratio")
                    for use in goodput["uses"]:
                        use.pop("time_ns", None)
                        use.pop("open_ns", None)
            self.assertEqual(as_json, as_yaml, command)
        events = list(yaml.safe_load_all(self.ctl(basind, "events", "-o", "yaml")))
        self.assertGreater(len(events), 3)
        self.assertEqual({"jobs": []}, yaml.safe_load(self.ctl(self.start(), "jobs", "-o", "yaml")))

    def test_jobs_and_limits(self) -> None:
        basind = self.start("--limits-jobs=7")
        self.assertEqual(1, self.ctl(basind, "jobs").count("\n"))
        self.train(basind, "vision")
        self.assertRegex(self.ctl(basind, "jobs"), r"\nvision +running ")
        self.assertRegex(self.ctl(basind, "limits"), r"\nlimits.jobs +- +1 +7 +jobs\n")
        self.assertRegex(self.ctl(basind, "limits"), r"\nlimits.workers +vision +1 ")

    def test_members_marks_the_worker_that_runs_other_versions(self) -> None:
        basind = self.start()
        software = {"a": "torch 2.13.0", "b": "torch 2.12.0", "c": "torch 2.13.0"}
        trainers = [
            Trainer(TRAINER, basind.grpc, "vision", worker, 3, 3, BASIN_SOFTWARE=runs)
            for worker, runs in software.items()
        ]
        for trainer in trainers:
            self.addCleanup(trainer.kill)
            trainer.say("join")
        for trainer in trainers:
            self.assertIn("member", trainer.answer())
        members = self.ctl(basind, "members", "vision")
        self.assertRegex(members, r"\na .* torch 2.13.0\n")
        self.assertRegex(members, r"\nb .* torch 2.12.0 \(most differ\)\n")
        self.assertRegex(members, r"\nc .* torch 2.13.0\n")

    def test_goodput_names_the_worker_that_is_late(self) -> None:
        basind = self.start()
        trainers = [Trainer(TRAINER, basind.grpc, "vision", worker, 2, 2) for worker in "ab"]
        for trainer in trainers:
            self.addCleanup(trainer.kill)
            trainer.say("join")
        for trainer in trainers:
            self.assertRegex(trainer.answer(), "^member [01] of 2$")
        late = 0.3
        for value in range(1, 4):
            for trainer in trainers:
                if trainer is trainers[1]:
                    threading.Event().wait(late)  # It computes for longer.
                self.assertEqual("begun", trainer.ask(f"begin {value}"))
                trainer.say("finish")
            for trainer in trainers:
                self.assertIn("COMMITTED", trainer.answer())
        seconds, opened, goodput = self.goodput(basind, "vision")
        settled = {use: seconds[use] - opened[use] for use in seconds}
        self.assertGreater(settled["waiting"], 3 * late - 0.05)
        self.assertGreater(settled["worked"], 3 * late - 0.05)
        self.assertEqual(0, settled["paused"] + settled["discarded"] + settled["detecting"])
        self.assertAlmostEqual(goodput["ratio"], seconds["worked"] / sum(seconds.values()), 5)
        self.assertEqual("b", goodput["waited_for"][0]["worker"])
        shown = self.ctl(basind, "goodput", "vision")
        self.assertRegex(shown, r"\nwaiting +\S+ +\d+\.\d% +\S+\n")
        self.assertRegex(shown, r"\nWAITED FOR +IN ALL +SHARE\nb +")
        rounds = self.ctl(basind, "rounds", "vision", "--last=3")
        self.assertEqual(3, len(re.findall(r" b +\S+ +begin +\S+ ago +a 0, b \+", rounds)), rounds)
        failed = run(BASINCTL, "goodput", "nobody", f"--address={basind.admin}")
        self.assertEqual(5, failed.returncode, "not found")
        self.assertIn('there is no job "nobody"', failed.stderr)

    def goodput(
        self, basind: Basind, job: str
    ) -> tuple[dict[str, float], dict[str, float], dict[str, Any]]:
        """The seconds of each use, those of them since the last verdict, and all that is told."""
        goodput = json.loads(self.ctl(basind, "goodput", job, "-o", "json"))
        seconds, opened = (
            {use["use"]: int(use.get(field, 0)) / 1e9 for use in goodput["uses"]}
            for field in ("time_ns", "open_ns")
        )
        return seconds, opened, goodput

    def test_goodput_counts_a_round_that_is_stalled(self) -> None:
        basind = self.start("--round-late-warning=100ms")
        a, b = (Trainer(TRAINER, basind.grpc, "vision", worker, 2, 2) for worker in "ab")
        for trainer in (a, b):
            self.addCleanup(trainer.kill)
            trainer.say("join")
        for trainer in (a, b):
            self.assertRegex(trainer.answer(), "^member [01] of 2$")
        for trainer in (a, b):
            self.assertEqual("begun", trainer.ask("begin 1"))
            trainer.say("finish")
        for trainer in (a, b):
            self.assertIn("COMMITTED", trainer.answer())
        # `a` contributes to the next round, and `b` hangs until the aggregator has named it.
        self.assertEqual("begun", a.ask("begin 2"))
        a.say("finish")
        basind.await_event("worker_late")
        before, opened, _ = self.goodput(basind, "vision")
        self.assertGreater(opened["waiting"] + opened["detecting"], 0.09)
        self.assertEqual(0, opened["worked"] + opened["discarded"] + opened["paused"])
        after, still_open, _ = self.goodput(basind, "vision")
        self.assertGreater(sum(after.values()), sum(before.values()), "the round is still open")
        for use in ("worked", "discarded", "settling"):
            self.assertEqual(before[use] - opened[use], after[use] - still_open[use], use)
        # Its verdict settles what was open, once.
        self.assertEqual("begun", b.ask("begin 2"))
        b.say("finish")
        for trainer in (a, b):
            self.assertIn("COMMITTED", trainer.answer())
        ended, newly_open, goodput = self.goodput(basind, "vision")
        self.assertGreaterEqual(ended["waiting"] - newly_open["waiting"], after["waiting"])
        self.assertGreater(sum(ended.values()), sum(after.values()))
        self.assertIn("b", [waited["worker"] for waited in goodput["waited_for"]])

    def test_watch_repeats(self) -> None:
        basind = self.start()
        shown = self.ctl(basind, "status", "-w", "--times=3", "--interval=10ms")
        self.assertEqual(3, shown.count("basind "))
        self.assertNotIn("\x1b", shown)
        failed = run(BASINCTL, "members", "nobody", "--watch", f"--address={basind.admin}")
        self.assertEqual(5, failed.returncode)

    def test_top_prints_lines_for_programs_and_a_screen_for_people(self) -> None:
        basind = self.start()
        trainer = self.train(basind, "vision")
        lines = self.ctl(basind, "top", "--times=2", "--interval=10ms").splitlines()
        self.assertEqual(2, len(lines))
        self.assertRegex(
            lines[0],
            r"^\S+Z job=vision state=running members=1 rounds=1 rounds_per_second=- ",
        )
        self.assertIn(" rounds_per_second=0.00 ", lines[1])
        looks = self.ctl(basind, "top", "--times=2", "--interval=10ms", "-o", "json").splitlines()
        self.assertNotIn("rounds_per_second", json.loads(looks[0])["jobs"][0])
        self.assertEqual(0, json.loads(looks[1])["jobs"][0]["rounds_per_second"])

        master, slave = pty.openpty()
        with subprocess.Popen(
            [BASINCTL, "top", "--interval=10ms", f"--address={basind.admin}"],
            stdout=slave,
            env=clean_environment(),
        ) as top:
            os.close(slave)
            shown = b""
            # It is live: a round that ends appears.
            while not re.search(rb"vision +running +1 +1 ", shown):
                shown += os.read(master, 4096)
            self.assertEqual("begun", trainer.ask("begin 1"))
            self.assertIn("COMMITTED", trainer.ask("finish"))
            while not re.search(rb"vision +running +1 +2 ", shown):
                shown += os.read(master, 4096)
            top.kill()
        os.close(master)
        self.assertIn(b"\x1b[2J", shown)
        self.assertIn(b"WAITS FOR", shown)


class Changes(WithFolder):
    def ctl(self, basind: Basind, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run(BASINCTL, *arguments, f"--address={basind.admin}")

    def settings(self, basind: Basind) -> dict[str, Any]:
        (job,) = json.loads(self.ctl(basind, "jobs", "-o", "json").stdout)["jobs"]
        settings: dict[str, Any] = {
            **job["settings"],
            "loss_policy": job["loss_policy"],
            "late_policy": job["late_policy"],
        }
        return settings

    def test_job_set_changes_a_running_job(self) -> None:
        basind = self.start()
        trainer = self.train(basind, "vision")
        self.assertEqual("LOSS_POLICY_SHRINK", self.settings(basind)["loss_policy"])
        done = self.ctl(basind, "job", "set", "vision", "--max=5", "--loss-policy=abort")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("vision", done.stdout)
        after = self.settings(basind)
        self.assertEqual(5, after["max_workers"])
        self.assertEqual(1, after["min_workers"])
        self.assertEqual("LOSS_POLICY_ABORT", after["loss_policy"])
        self.assertEqual("LATE_POLICY_WAIT", after["late_policy"])
        # The job goes on.
        self.assertEqual("begun", trainer.ask("begin 2"))
        self.assertIn("COMMITTED over 1", trainer.ask("finish"))

    def test_job_set_refuses(self) -> None:
        basind = self.start("--limits-workers=8")
        self.train(basind, "vision")
        before = self.settings(basind)
        for code, words, arguments in (
            (2, "nothing to set", ("set", "vision")),
            (2, "write `basinctl job set", ("get", "vision")),
            (2, "shrink or abort", ("set", "vision", "--loss-policy=ignore")),
            (2, "at least 1", ("set", "vision", "--min=0")),
            (5, "no job nobody", ("set", "nobody", "--min=1")),
            (6, "limits.workers", ("set", "vision", "--max=9")),
            (6, "min_workers", ("set", "vision", "--min=2")),
            (6, "round.evict_late_after", ("set", "vision", "--late-policy=evict")),
        ):
            refused = self.ctl(basind, "job", *arguments)
            self.assertEqual(code, refused.returncode, refused.stderr)
            self.assertIn(words, refused.stderr)
        self.assertEqual(before, self.settings(basind))

    def test_dump_shows_the_state(self) -> None:
        basind = self.start()
        self.train(basind, "vision")
        everything = self.ctl(basind, "dump")
        self.assertEqual(0, everything.returncode, everything.stderr)
        self.assertGreater(everything.stdout.count("\n"), 3)
        self.assertIn("vision", everything.stdout)
        self.assertIn("vision", self.ctl(basind, "dump", "vision").stdout)
        self.assertIn("text", json.loads(self.ctl(basind, "dump", "-o", "json").stdout))
        self.assertEqual(5, self.ctl(basind, "dump", "nobody").returncode)


class Timelines(WithFolder):
    def write(self, name: str, *events: str, end: str = "\n]\n") -> Path:
        path = self.folder / name
        path.write_text("[\n" + ",\n".join(events) + end)
        return path

    def refused(self, words: str, *arguments: str, code: int = 2) -> None:
        done = run(BASINCTL, "timeline", *arguments)
        self.assertEqual(code, done.returncode, done.stderr)
        self.assertIn(words, done.stderr)
        self.assertEqual("", done.stdout)

    def test_a_job_with_a_round(self) -> None:
        basind = self.start()
        self.train(basind, "vision")
        path = self.folder / "job.json"
        where = ("--job=vision", f"--address={basind.admin}")
        done = run(BASINCTL, "timeline", *where, f"--file={path}")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual("", done.stdout)
        events = json.loads(path.read_text())
        names = [event["name"] for event in events if event["ph"] == "X"]
        self.assertIn("round 1", names)
        self.assertIn("contribution to round 1", names)
        printed = run(BASINCTL, "timeline", *where, "--rounds=1", "-o", "json")
        self.assertEqual(
            [event["name"] for event in events],
            [event["name"] for event in json.loads(printed.stdout)],
        )

    def test_merge_needs_no_aggregator(self) -> None:
        a = self.write("a", '{"ph":"X","name":"push","pid":7,"tid":2,"ts":5,"dur":1}')
        b = self.write("b", '{"ph":"X","name":"wait","pid":7,"tid":2,"ts":5,"dur":1}', end=",\n")
        done = run(BASINCTL, "timeline", "--merge", str(a), str(b))
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(
            [("push", 1, 100002), ("wait", 2, 200002)],
            [(event["name"], event["pid"], event["tid"]) for event in json.loads(done.stdout)],
        )

    def test_mistakes(self) -> None:
        event = self.write("a", '{"ph":"X","name":"push","pid":7,"tid":2,"ts":5,"dur":1}')
        self.refused("--job is missing")
        self.refused("--merge needs the files", "--merge")
        self.refused("files are joined with --merge", str(event))
        self.refused("a timeline is JSON", "--job=vision", "-o", "yaml")
        self.refused("which is to be read", "--merge", str(event), f"--file={event}")
        self.refused("nothing answers", "--job=vision", f"--address={nobody()}", code=3)
        none = str(self.folder / "none")
        self.refused(f"{none} cannot be read: No such file", "--merge", none)
        self.refused("cannot be written", "--merge", str(event), f"--file={none}/x", code=6)
        basind = self.start()
        self.refused("no job vision", "--job=vision", f"--address={basind.admin}", code=5)
        kept = self.write("kept", "{}")
        self.refused(
            "no job vision",
            "--job=vision",
            f"--address={basind.admin}",
            f"--file={kept}",
            code=5,
        )
        self.assertIn("{}", kept.read_text())


class Completion(unittest.TestCase):
    def script(self, shell: str) -> str:
        made = run(BASINCTL, "completion", shell)
        self.assertEqual(0, made.returncode, made.stderr)
        return made.stdout

    def complete(self, *words: str) -> list[str]:
        """What bash offers for the last word."""
        line = " ".join(f"'{word}'" for word in words)
        probe = (
            f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _basinctl; "
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            ["bash", "--norc", "-c", f"{self.script('bash')}\n{probe}"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        self.assertEqual("", done.stderr)
        return done.stdout.split()

    def commands(self) -> set[str]:
        listed = run(BASINCTL, "--help").stdout.split("commands:")[1].split("flags:")[0]
        return set(re.findall(r"^  ([a-z-]+) ", listed, re.M))

    def test_bash_completes_commands_flags_and_words(self) -> None:
        self.assertEqual(self.commands() | {"--help"}, set(self.complete("basinctl", "")))
        self.assertEqual(["drain"], self.complete("basinctl", "dr"))
        self.assertEqual(
            ["--lane=", "--last="], sorted(self.complete("basinctl", "rounds", "--la"))
        )
        self.assertEqual(["--beside-others"], self.complete("basinctl", "bench", "--b"))
        self.assertEqual([], self.complete("basinctl", "status", "--lane"))
        self.assertLessEqual({"worker", "service"}, set(self.complete("basinctl", "drain", "")))
        self.assertEqual(["zsh"], self.complete("basinctl", "completion", "z"))
        self.assertIn("--job=", self.complete("basinctl", "-o=json", "events", "--j"))

    def test_each_shell_knows_every_command(self) -> None:
        for shell in ("bash", "zsh", "fish"):
            with self.subTest(shell):
                script = self.script(shell)
                for command in self.commands():
                    self.assertIn(command, script)
                found = shutil.which(shell)
                if found is None:
                    self.skipTest(f"{shell} is not installed, so its syntax is not checked")
                subprocess.run([found, "-n"], input=script, text=True, check=True)

    def test_another_shell_is_refused(self) -> None:
        refused = run(BASINCTL, "completion", "tcsh")
        self.assertEqual(2, refused.returncode)
        self.assertIn("bash, zsh or fish", refused.stderr)


if __name__ == "__main__":
    TRAINER = Path(sys.argv.pop()).resolve()
    BASINCTL = Path(sys.argv.pop()).resolve()
    BASIND = Path(sys.argv.pop()).resolve()
    unittest.main(verbosity=2)
