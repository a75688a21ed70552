# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Two teams on one aggregator, with TLS and a token each: neither sees, stops or joins the other's
training.

Usage: test_teams.py BASIND BASINCTL TRAINER
"""

import json
import re
import signal
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

from oracle import Jobs, Oracle
from programs import Basind, run

BASINCTL = Path()
DENIED = 4
STEPS = ("1000000", "--pace-ms=5")
# Training has gone on when there are so many more steps.
SOME_STEPS = 40


class Team:
    """A job, and files with the tokens of its trainers and its operators."""

    def __init__(self, folder: Path, name: str, first: int) -> None:
        self.job = f"{name}/digits"
        self.first = first  # The number of its first worker.
        self.lines = ""  # The lines of auth.file.
        self.tokens: dict[str, Path] = {}
        for role in ("worker", "observer", "admin"):
            made = run(BASINCTL, "token", "new", f"--jobs={name}/*", f"--role={role}")
            assert made.returncode == 0, made.stderr
            self.lines += made.stderr
            self.tokens[role] = folder / f"{name}-{role}"
            self.tokens[role].write_text(made.stdout, encoding="utf-8")


class Teams(Jobs):
    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        made = run(BASINCTL, "dev-certs", str(self.folder / "certs"))
        self.assertEqual(0, made.returncode, made.stderr)
        self.ca = {"BASIN_TLS_CA": str(self.folder / "certs/ca.crt")}
        self.a, self.b = Team(self.folder, "team-a", 0), Team(self.folder, "team-b", 2)
        grants = self.folder / "grants"
        grants.write_text(self.a.lines + self.b.lines, encoding="utf-8")
        self.aggregator = self.start(
            f"--tls-cert={self.folder / 'certs/server.crt'}",
            f"--tls-key={self.folder / 'certs/server.key'}",
            f"--auth-file={grants}",
            "--limits-team-jobs=1",
        )

    def join(self, job: str, worker: int, token: Path, run_id: str = "run") -> Oracle:
        more: dict[str, Any] = {**self.ca, "BASIN_TOKEN_FILE": str(token), "BASIN_JOB": job}
        more["BASIN_RUN_ID"] = run_id
        return self.add(self.aggregator.grpc, f"w{worker}", *STEPS, first=2, **more)

    def expect_refused(
        self, text: str, worker: int, token: Path, run_id: str = "run", job: str = ""
    ) -> None:
        """A trainer of the first team's job, or of `job`, warns or fails with this text, and trains
        nothing."""
        trainer = self.join(job or self.a.job, worker, token, run_id)
        trainer.await_said(text)
        self.assertEqual([], trainer.find("applied"))
        trainer.kill()

    def train_as(self, team: Team) -> list[Oracle]:
        return [self.join(team.job, team.first + i, team.tokens["worker"]) for i in range(2)]

    def ctl(self, team: Team, role: str, *arguments: str) -> tuple[int, str]:
        """The exit code and the output of an operator of this team."""
        address = f"--address={self.aggregator.admin}"
        token = str(team.tokens[role])
        done = run(BASINCTL, *arguments, address, **self.ca, BASIN_TOKEN_FILE=token)
        return done.returncode, done.stdout + done.stderr

    def await_steps(self, trainers: list[Oracle]) -> None:
        for trainer in trainers:
            trainer.await_more("applied", len(trainer.find("applied")) + SOME_STEPS)

    def refusals(self, basind: Basind) -> dict[str, float]:
        text = basind.get("/metrics")[1]
        found = re.findall(r'^basin_auth_refusals_total\{.*reason="(\w+)".*\} (\S+)$', text, re.M)
        return {reason: float(count) for reason, count in found}

    def test_fault_a6_teams_do_not_meet(self) -> None:
        trainers = {team.job: self.train_as(team) for team in (self.a, self.b)}
        everyone = [trainer for each in trainers.values() for trainer in each]
        self.await_steps(everyone)

        # A token of the other team is refused, also for the id of a worker that is in use.
        self.assertEqual({}, {k: v for k, v in self.refusals(self.aggregator).items() if v})
        for worker in (7, self.a.first):
            self.expect_refused("PERMISSION_DENIED", worker, self.b.tokens["worker"])
        self.assertGreaterEqual(sum(self.refusals(self.aggregator).values()), 2)

        # A second run under the name of one in progress is refused, with the right token too.
        self.expect_refused("run run is in progress", 6, self.a.tokens["worker"], run_id="another")

        # A team has as many jobs as it may, whatever the others have.
        for team in (self.a, self.b):
            second = team.job + "-2"
            said = f"team {team.job.split('/')[0]} has 1 jobs, which is the limit"
            self.expect_refused(said, 8, team.tokens["worker"], job=second)
            code, limits = self.ctl(team, "observer", "limits")
            self.assertEqual(0, code, limits)
            shown = re.findall(r"^limits.team_jobs +(\S+) +(\d+) +(\d+) +jobs$", limits, re.M)
            self.assertEqual([(team.job.split("/")[0] + "/*", "1", "1")], shown, limits)

        # Operators see and change what is theirs.
        for team, other in ((self.a, self.b), (self.b, self.a)):
            code, listed = self.ctl(team, "observer", "jobs", "--output=json")
            self.assertEqual(0, code, listed)
            self.assertEqual([team.job], [job["job"] for job in json.loads(listed)["jobs"]])
            theirs = f"w{other.first}"
            for role, *command in (
                ("observer", "members", other.job),
                ("observer", "rounds", other.job),
                ("admin", "evict", other.job, theirs),
                ("admin", "pause", other.job),
                ("admin", "job", "set", other.job, "--min=2"),
                ("admin", "drain", "service"),
                ("observer", "pause", team.job),
                ("worker", "members", team.job),
            ):
                code, said = self.ctl(team, role, *command)
                self.assertEqual(DENIED, code, (role, command, said))
                self.assertNotIn(theirs, said)

        # Nothing of this has touched a round, and a pause of one team is not one of the other.
        self.await_steps(everyone)
        self.assertEqual(0, self.ctl(self.a, "admin", "pause", self.a.job)[0])
        self.await_steps(trainers[self.b.job])
        self.assertEqual(0, self.ctl(self.a, "admin", "resume", self.a.job)[0])
        self.await_steps(everyone)
        for team in (self.a, self.b):
            mask = 0b11 << team.first
            for trainer in trainers[team.job]:
                self.assertEqual({mask}, set(self.masks(trainer)), trainer.worker)
                for event in ("aborted", "rejected", "evicted", "failed"):
                    self.assertEqual([], trainer.find(event), trainer.worker)
            self.expect_one_history(trainers[team.job])
        for trainer in everyone:
            trainer.send(signal.SIGTERM)
        for trainer in everyone:
            trainer.finish()
        self.aggregator.end()
        events = [line["event"] for line in self.aggregator.lines]
        for event in ("worker_lost", "worker_superseded", "attempt_restarted", "round_aborted"):
            self.assertNotIn(event, events)
        self.assertIn("peer_refused", events)


if __name__ == "__main__":
    arguments = [Path(sys.argv.pop(1)).resolve() for _ in range(3)]
    Jobs.basind, BASINCTL, Jobs.trainer = arguments
    unittest.main(verbosity=2)
