# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""TLS, tokens and roles from a user's view: basind, basinctl and a trainer as processes.

Usage: test_access.py BASIND BASINCTL TRAINER
"""

import contextlib
import http.client
import os
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from programs import PATIENCE, Basind, Trainer, run

BASIND = Path()
BASINCTL = Path()
TRAINER = Path()

DENIED = 4


class Access(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.certs = self.folder / "certs"
        self.grants = self.folder / "grants"

    def make_certs(self) -> None:
        made = run(BASINCTL, "dev-certs", str(self.certs))
        self.assertEqual(0, made.returncode, made.stderr)

    def client_tls(self) -> dict[str, str]:
        return {
            "BASIN_TLS_CA": str(self.certs / "ca.crt"),
            "BASIN_TLS_CERT": str(self.certs / "client.crt"),
            "BASIN_TLS_KEY": str(self.certs / "client.key"),
        }

    def token(self, role: str, jobs: str) -> Path:
        """Grants a new token, and writes it to a file."""
        made = run(BASINCTL, "token", "new", f"--jobs={jobs}", f"--role={role}", "--name=a test")
        self.assertEqual(0, made.returncode, made.stderr)
        with self.grants.open("a") as grants:
            grants.write(made.stderr)
        file = self.folder / f"token-{role}"
        file.write_text(made.stdout)
        return file

    def start(self, *arguments: str) -> Basind:
        basind = Basind(BASIND, f"--auth-file={self.grants}", *arguments)
        self.addCleanup(basind.__exit__, None, None, None)
        basind.await_serving()
        return basind

    def ctl(self, basind: Basind, *arguments: str, token: Path | None, **tls: str) -> int:
        held = {} if token is None else {"BASIN_TOKEN_FILE": str(token)}
        done = run(BASINCTL, *arguments, f"--address={basind.admin}", **held, **tls)
        if done.returncode == DENIED:
            self.assertIn("oken", done.stderr)
        return done.returncode

    def test_a_new_token_and_its_line(self) -> None:
        made = run(BASINCTL, "token", "new", "--jobs=team-a/*", "--name=team a")
        self.assertEqual(0, made.returncode, made.stderr)
        self.assertRegex(made.stdout, r"^basin_[A-Za-z0-9_-]{43}\n$")
        self.assertRegex(made.stderr, r"^worker team-a/\* sha256:[0-9a-f]{64} team a\n$")
        for wrong, word in (
            ("--jobs=", "--jobs is missing"),
            ("--jobs=A", "neither the name of a job"),
            ("--role=root", "is no role"),
        ):
            refused = run(BASINCTL, "token", "new", "--jobs=a", wrong)
            self.assertEqual(2, refused.returncode, wrong)
            self.assertIn(word, refused.stderr)
            self.assertEqual("", refused.stdout)

    def test_a_line_is_appended_to_the_file_of_grants(self) -> None:
        option = f"--grants={self.grants}"
        for number in (1, 2):
            made = run(BASINCTL, "token", "new", "--jobs=a", f"--name={number}", option)
            self.assertEqual((0, ""), (made.returncode, made.stderr))
            self.assertRegex(made.stdout, r"^basin_[A-Za-z0-9_-]{43}\n$")
        line = r"worker a sha256:[0-9a-f]{64} "
        self.assertRegex(self.grants.read_text(), f"^{line}1\n{line}2\n$")
        self.assertEqual(0o600, stat.S_IMODE(self.grants.stat().st_mode))
        # Behind a line without its end.
        self.grants.write_text(self.grants.read_text().rstrip())
        self.assertEqual(0, run(BASINCTL, "token", "new", "--jobs=b", option).returncode)
        self.assertEqual(3, len(self.grants.read_text().splitlines()))
        # A mistake changes nothing, and prints no token.
        before = self.grants.read_text()
        for wrong in (("--jbos=a", option), ("--jobs=a", "--grants=/is/not/there"),
                      ("--jobs=A", option)):  # fmt: skip
            refused = run(BASINCTL, "token", "new", *wrong)
            self.assertNotEqual(0, refused.returncode, wrong)
            self.assertEqual("", refused.stdout)
            self.assertEqual(before, self.grants.read_text())
        self.grants.write_text("nonsense\n")
        refused = run(BASINCTL, "token", "new", "--jobs=a", option)
        self.assertEqual((6, ""), (refused.returncode, refused.stdout))
        self.assertIn("line 1", refused.stderr)
        self.assertEqual("nonsense\n", self.grants.read_text())

    def test_certificates_are_made_once_and_for_their_owner(self) -> None:
        self.make_certs()
        for file in self.certs.iterdir():
            self.assertEqual(0o600, stat.S_IMODE(file.stat().st_mode), file)
        again = run(BASINCTL, "dev-certs", str(self.certs))
        self.assertEqual(6, again.returncode)
        self.assertIn("name a new folder", again.stderr)
        wrong = run(BASINCTL, "dev-certs", str(self.folder / "b"), "--host=a,DNS:b")
        self.assertEqual(2, wrong.returncode)

    def test_mistakes_are_named_before_a_port_opens(self) -> None:
        self.make_certs()
        cert, key = self.certs / "server.crt", self.certs / "server.key"
        self.grants.write_text("worker a sha256:12\n")
        for arguments, words in (
            ([f"--tls-cert={cert}"], ["tls.cert is", "tls.key is none"]),
            ([f"--tls-cert={cert}", "--tls-key=/is/not/there"], ["tls.key", "No such file"]),
            ([f"--tls-cert={cert}", f"--tls-key={self.certs}/client.key"], ["not the key of"]),
            ([f"--tls-cert={self.certs}/client.crt", f"--tls-key={self.certs}/client.key"],
             ["tls.cert", "not for servers"]),
            ([f"--http-tls-key={key}"], ["http.tls_key is", "http.tls_cert is none"]),
            ([f"--http-tls-client-ca={cert}"], ["http.tls_client_ca is", "http.tls_cert is none"]),
            ([f"--http-tls-cert={cert}", f"--http-tls-key={self.certs}/client.key"],
             ["http.tls_key", "not the key of the certificate in http.tls_cert"]),
            (["--auth-file=/is/not/there"], ["auth.file is /is/not/there", "No such file"]),
            ([f"--auth-file={self.grants}"], ["auth.file", "line 1", "sha256:"]),
            ([f"--tls-cert={cert}", f"--tls-key={key}", "--grpc-listen=0.0.0.0:0"],
             ["0.0.0.0:0", "auth.file or tls.client_ca"]),
        ):  # fmt: skip
            for command in ("serve", "check-config"):
                with self.subTest(arguments, command=command):
                    ended = run(BASIND, command, *arguments)
                    self.assertEqual(2, ended.returncode, ended.stderr)
                    self.assertEqual("", ended.stdout)
                    self.assertEqual(1, ended.stderr.count("\n"))
                    for word in words:
                        self.assertIn(word, ended.stderr)

    def https(self, basind: Basind, path: str, *authorities: Path, client: bool) -> tuple[int, str]:
        """The status of a page, and the serial number of the certificate of its server."""
        trust = ssl.create_default_context()
        for authority in authorities:
            trust.load_verify_locations(authority)
        if client:
            trust.load_cert_chain(self.certs / "client.crt", self.certs / "client.key")
        connection = http.client.HTTPSConnection(basind.http, timeout=PATIENCE, context=trust)
        with contextlib.closing(connection):
            connection.request("GET", path)
            presented = connection.sock.getpeercert()
            assert presented is not None
            response = connection.getresponse()
            response.read()
            return response.status, str(presented["serialNumber"])

    def test_s4_no_scrape_fails_while_certificates_of_the_http_port_are_replaced(self) -> None:
        self.make_certs()
        basind = self.start_with_https()
        first = self.certs / "ca.crt"
        status, before = self.https(basind, "/metrics", first, client=True)
        self.assertEqual(200, status)
        for client in (True, False):  # A kubelet has no certificate.
            self.assertEqual(200, self.https(basind, "/livez", first, client=client)[0])
        for path in ("/metrics", "/statusz"):
            self.assertEqual(403, self.https(basind, path, first, client=False)[0])
        self.assertEqual(200, self.https(basind, "/statusz", first, client=True)[0])
        ports = (f"--http-listen={basind.http}", "--grpc-listen=127.0.0.1:0")
        for ask in (["--https"], [f"--http-tls-{one}" for one in self.http_files()]):
            asked = run(BASIND, "healthcheck", "--ready", *ports, *ask)
            self.assertEqual((0, "ok\n"), (asked.returncode, asked.stdout), asked.stderr)
        self.assertEqual(3, run(BASIND, "healthcheck", *ports).returncode)
        # Files with a certificate of another authority, one after the other.
        new = self.folder / "new"
        self.assertEqual(0, run(BASINCTL, "dev-certs", str(new)).returncode)
        for name in ("server.crt", "server.key"):
            (new / name).rename(self.certs / name)
        serials = [before]
        while serials[-1] == before:
            status, serial = self.https(basind, "/metrics", first, new / "ca.crt", client=True)
            self.assertEqual(200, status)
            serials.append(serial)
        self.assertGreater(len(serials), 2)
        # A file that is damaged is named, and changes nothing.
        (self.certs / "server.key").write_text("nothing")
        while "no private key" not in (reason := basind.await_event("certificate")["reason"]):
            pass
        self.assertIn("http.tls_key is", reason)
        self.assertEqual(serials[-1], self.https(basind, "/livez", new / "ca.crt", client=False)[1])

    def test_s4_a_pair_that_does_not_fit_changes_nothing_for_grpc(self) -> None:
        self.make_certs()
        observer = self.token("observer", "*")
        basind = self.start(
            f"--tls-cert={self.certs}/server.crt",
            f"--tls-key={self.certs}/server.key",
            f"--tls-client-ca={self.certs}/ca.crt",
        )
        tls = self.client_tls()
        self.assertEqual(0, self.ctl(basind, "status", token=observer, **tls))
        new = self.folder / "new"
        self.assertEqual(0, run(BASINCTL, "dev-certs", str(new)).returncode)
        (self.certs / "server.crt").rename(self.folder / "old.crt")
        (new / "server.crt").rename(self.certs / "server.crt")
        line = basind.await_event("certificate")
        self.assertEqual("error", line["level"])
        self.assertIn("not the key of the certificate in tls.cert", line["reason"])
        self.assertIn("get the earlier certificate", line["reason"])
        # Longer than gRPC needs to read files itself: certificates are looked at once a second.
        looks = time.monotonic() + 3
        while time.monotonic() < looks:
            self.assertEqual(0, self.ctl(basind, "status", token=observer, **tls))
        # The key follows: from then on the new certificate is presented.
        (new / "server.key").rename(self.certs / "server.key")
        self.assertIn("valid again", basind.await_event("certificate")["reason"])
        trusting = {**tls, "BASIN_TLS_CA": str(new / "ca.crt")}
        while self.ctl(basind, "status", token=observer, **trusting) != 0:
            pass

    def http_files(self) -> tuple[str, ...]:
        certs = self.certs
        return (f"cert={certs}/server.crt", f"key={certs}/server.key", f"client-ca={certs}/ca.crt")

    def start_with_https(self) -> Basind:
        self.token("admin", "unused")
        return self.start(*(f"--http-tls-{file}" for file in self.http_files()))

    def test_s1_the_http_port_refuses_strangers_and_counts_them(self) -> None:
        self.make_certs()
        basind = self.start_with_https()
        with self.assertRaises((http.client.HTTPException, OSError)):
            basind.get("/livez")  # Without TLS.
        self.assertIn("use https", basind.await_event("peer_refused")["reason"])
        foreign = self.folder / "foreign"
        self.assertEqual(0, run(BASINCTL, "dev-certs", str(foreign)).returncode)
        authority = self.certs / "ca.crt"
        with self.assertRaises(ssl.SSLCertVerificationError):
            self.https(basind, "/livez", foreign / "ca.crt", client=False)
        self.https(basind, "/metrics", authority, client=False)
        self.certs, mine = foreign, self.certs
        with self.assertRaises((ssl.SSLError, OSError, http.client.HTTPException)):
            self.https(basind, "/metrics", authority, client=True)
        self.certs = mine
        text = self.metrics(basind, authority)
        self.assertIn("basin_http_tls_failures_total 3\n", text)
        self.assertIn("basin_http_uncertified_requests_total 1\n", text)
        self.assertIn("basin_certificate_expiry_timestamp_seconds ", text)

    def test_s6_workers_from_one_address_are_bounded(self) -> None:
        token = self.token("worker", "*")
        basind = self.start("--limits-address-sessions=1")

        def start(job: str) -> Trainer:
            trainer = Trainer(TRAINER, basind.grpc, job, "a", 1, 1, BASIN_TOKEN_FILE=str(token))
            self.addCleanup(trainer.kill)
            return trainer

        first = start("vision")
        self.assertEqual("member 0 of 1", first.ask("join"))
        second = start("text")  # Connects by itself, so it comes when the other one is there.
        second.say("join")
        refused = basind.await_event("address_refused")
        self.assertEqual(
            ("warning", "text", "a"), (refused["level"], refused["job"], refused["worker"])
        )
        self.assertIn("from 127.0.0.1, which has 1 sessions", refused["reason"])
        _, metrics = basind.get("/metrics")
        self.assertRegex(metrics, r'basin_events_total\{event="address_refused"\} [1-9]')
        # It tries again by itself.
        first.kill()
        self.assertEqual("member 0 of 1", second.answer())

    def metrics(self, basind: Basind, authority: Path) -> str:
        trust = ssl.create_default_context(cafile=str(authority))
        trust.load_cert_chain(self.certs / "client.crt", self.certs / "client.key")
        connection = http.client.HTTPSConnection(basind.http, timeout=PATIENCE, context=trust)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()

    def test_a_job_trains_with_certificates_and_tokens(self) -> None:
        self.make_certs()
        worker = self.token("worker", "vision*")
        observer = self.token("observer", "*")
        admin = self.token("admin", "vision")
        basind = self.start(
            f"--tls-cert={self.certs}/server.crt",
            f"--tls-key={self.certs}/server.key",
            f"--tls-client-ca={self.certs}/ca.crt",
        )
        tls = self.client_tls()
        trainer = Trainer(
            TRAINER, basind.grpc, "vision", "a", 1, 1, BASIN_TOKEN_FILE=str(worker), **tls
        )
        self.addCleanup(trainer.kill)
        self.assertEqual("member 0 of 1", trainer.ask("join"))
        self.assertEqual("begun", trainer.ask("begin 3"))
        self.assertEqual("round 1: COMMITTED over 1, 3", trainer.ask("finish"))
        for token, arguments, code in (
            (observer, ["members", "vision"], 0),
            (observer, ["events"], 0),
            (observer, ["evict", "vision", "a"], DENIED),
            (worker, ["status"], DENIED),
            (worker, ["evict", "vision", "a"], DENIED),
            (admin, ["status"], 0),
            (admin, ["pause", "vision"], 0),
            (admin, ["resume", "vision"], 0),
            (admin, ["members", "text"], DENIED),
            (admin, ["events"], DENIED),  # The events of all jobs.
            (admin, ["events", "--job=vision"], 0),
            (admin, ["drain", "service"], DENIED),
            (None, ["status"], DENIED),  # Only with a certificate that nothing is granted to.
            (worker, ["report-exit", "text", "a"], DENIED),
            (worker, ["report-exit", "vision", "a"], 0),
        ):
            with self.subTest(arguments, token=token):
                self.assertEqual(code, self.ctl(basind, *arguments, token=token, **tls))
        self.assertEqual(3, self.ctl(basind, "status", token=admin))  # Without TLS.
        _, page = basind.get("/metrics")
        for sample in (
            'basin_auth_refusals_total{reason="wrong_role"} 3',
            'basin_auth_refusals_total{reason="wrong_job"} 4',
            'basin_auth_refusals_total{reason="unknown_credential"} 1',
            "basin_certificate_expiry_timestamp_seconds ",
        ):
            self.assertIn(sample, page)
        self.assertEqual(0, basind.end())
        log = str(basind.lines)
        self.assertIn("a test has role observer", log)
        changes = [line for line in basind.lines if line["event"] == "operator_change"]
        self.assertEqual(2, len(changes), changes)
        for line, what in zip(changes, ("Job vision is suspended", "Job vision continues")):
            self.assertEqual("vision", line["job"])
            self.assertIn("a test at 127.0.0.1: ", line["reason"])
            self.assertIn(what, line["reason"])
            # `log.level=warning` keeps it, as it keeps the refusals.
            self.assertEqual("warning", line["level"])
        refusals = {line["level"] for line in basind.lines if line["event"] == "peer_refused"}
        self.assertEqual({"warning"}, refusals)
        for token in (worker, observer, admin):
            self.assertNotIn(token.read_text().strip(), log)

    def test_a_stranger_is_counted_and_fills_no_log(self) -> None:
        self.make_certs()
        self.token("admin", "unused")
        basind = self.start(
            f"--tls-cert={self.certs}/server.crt",
            f"--tls-key={self.certs}/server.key",
            f"--tls-client-ca={self.certs}/ca.crt",
        )
        context = ssl.create_default_context(cafile=str(self.certs / "ca.crt"))
        for address, where in ((basind.grpc, "127.0.0.1: Its"), (basind.admin, "At admin.listen")):
            host, port = address.rsplit(":", 1)
            for _ in range(20):
                with (
                    socket.create_connection((host, int(port))) as plain,
                    context.wrap_socket(plain, server_hostname=host) as stranger,
                    contextlib.suppress(OSError),  # The connection may be reset.
                ):
                    self.assertEqual(b"", stranger.recv(1))  # It has no certificate.
            line = basind.await_event("peer_refused")
            self.assertIn("TLS handshake failed", line["reason"])
            self.assertIn(where, line["reason"])
        self.assertRegex(basind.get("/metrics")[1], r"basin_tls_failures_total [1-9]")
        self.assertEqual(0, basind.end())
        self.assertEqual(2, sum(line["event"] == "peer_refused" for line in basind.lines))
        self.assertEqual("", basind.stderr())

    def test_a_harmless_refusal_hides_no_attempt_to_change_something(self) -> None:
        observer = self.token("observer", "*")
        basind = self.start()
        for _ in range(5):
            self.assertEqual(DENIED, self.ctl(basind, "status", token=None))
        for _ in range(5):
            self.assertEqual(DENIED, self.ctl(basind, "evict", "j", "w", token=observer))
        self.assertEqual(0, basind.end())
        refused = [line["reason"] for line in basind.lines if line["event"] == "peer_refused"]
        self.assertEqual(2, len(refused), refused)
        self.assertIn("GetStatus was refused (no_credential)", refused[0])
        self.assertIn("Evict for job j was refused (wrong_role): a test", refused[1])

    def test_the_file_of_grants_is_read_again(self) -> None:
        observer = self.token("observer", "*")
        basind = self.start()
        self.assertEqual(0, self.ctl(basind, "status", token=observer))
        good = self.grants.read_text()
        self.grants.write_text(good + "nonsense\n")
        line = basind.await_event("auth_file_broken")
        self.assertIn("line 2", line["reason"])
        self.assertEqual(0, self.ctl(basind, "status", token=observer))
        self.grants.write_text(good.replace("observer", "worker"))
        basind.await_event("auth_file_changed")
        self.assertEqual(DENIED, self.ctl(basind, "status", token=observer))
        self.grants.write_text(good)
        basind.await_event("auth_file_changed")
        self.assertEqual(0, self.ctl(basind, "status", token=observer))

    def test_Fault_S2_a_file_of_grants_that_was_cut_off_changes_nothing(self) -> None:
        observer = self.token("observer", "*")
        good = self.grants.read_text()
        basind = self.start()
        folder = self.folder / "folder"
        folder.mkdir()
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        # The same reason twice is logged once, so another one is between them.
        cut = ("cut in a hash", good[: good.index("sha256:") + 20] + "\n", "64 hexadecimal digits")
        for name, text, reason in (
            ("empty", "", "it grants nothing"),
            cut,
            ("comment", "# ROLE JOBS CREDENTIAL\n", "it grants nothing"),
            (
                "cut in a name",
                "observer * san:spiffe://cluster.local/n",
                "its last line has no end",
            ),
            ("device", Path("/dev/null"), "not a regular file"),
            cut,
            ("pipe", pipe, "not a regular file"),
            cut,
            ("folder", folder, "not a regular file"),
        ):
            with self.subTest(name):
                # As Kubernetes replaces a file of a Secret: at once.
                beside = self.folder / "beside"
                if isinstance(text, Path):
                    beside.symlink_to(text)
                else:
                    beside.write_text(text)
                beside.rename(self.grants)
                line = basind.await_event("auth_file_broken")
                self.assertEqual("error", line["level"])
                self.assertIn(reason, line["reason"])
                self.assertIn("stay in force", line["reason"])
                self.assertEqual(0, self.ctl(basind, "status", token=observer))
                refused = run(BASIND, f"--auth-file={self.grants}")
                self.assertEqual(2, refused.returncode, refused.stderr)
                self.assertIn(reason, refused.stderr)
        beside.write_text(good.replace("observer", "admin"))
        beside.rename(self.grants)
        self.assertEqual(
            "1 grant", " ".join(basind.await_event("auth_file_changed")["reason"].split()[-2:])[:-1]
        )

    def test_a_grant_that_the_limit_of_a_team_does_not_bound_is_reported(self) -> None:
        for jobs in ("vision*", "team/*", "alone", "text*", "vision*"):
            self.token("worker", jobs)
        self.token("admin", "*")
        basind = self.start("--limits-team-jobs=2")
        self.assertEqual(0, basind.end())
        said = [line["reason"] for line in basind.lines if line["event"] == "grant_unbounded"]
        self.assertEqual(1, len(said), said)
        self.assertIn("workers with text*, vision* in", said[0])
        # Without the limit there is nothing to tell.
        basind = self.start()
        self.assertEqual(0, basind.end())
        self.assertNotIn("grant_unbounded", [line["event"] for line in basind.lines])

    def test_a_watcher_of_events_ends_when_its_grant_is_removed(self) -> None:
        worker, observer = self.token("worker", "*"), self.token("observer", "*")
        basind = self.start()
        trainer = Trainer(TRAINER, basind.grpc, "j", "a", 1, 1, BASIN_TOKEN_FILE=str(worker))
        self.addCleanup(trainer.kill)
        self.assertEqual("member 0 of 1", trainer.ask("join"))
        with subprocess.Popen(
            [BASINCTL, "events", "--follow", f"--address={basind.admin}"],
            env={**os.environ, "BASIN_TOKEN_FILE": str(observer)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as watcher:
            self.addCleanup(watcher.kill)
            assert watcher.stdout is not None
            self.assertIn("job_admitted", watcher.stdout.readline())
            self.grants.write_text(self.grants.read_text().splitlines(keepends=True)[0])
            _, error = watcher.communicate(timeout=PATIENCE)
        self.assertEqual(DENIED, watcher.returncode)
        self.assertIn("not valid here any more", error)

    def test_a_token_leaves_this_machine_only_encrypted(self) -> None:
        token = str(self.token("observer", "*"))
        plain = run(BASINCTL, "status", "--address=192.0.2.1:29602", BASIN_TOKEN_FILE=token)
        self.assertEqual(2, plain.returncode, plain.stderr)
        self.assertIn("without encryption. Set tls_ca", plain.stderr)

    def test_a_token_in_place_of_its_path_is_not_shown(self) -> None:
        done = run(BASINCTL, "status", BASIN_TOKEN_FILE="basin_secret")
        self.assertEqual(2, done.returncode, done.stderr)
        self.assertIn("instead of the path of a file", done.stderr)
        self.assertNotIn("secret", done.stderr)

    def test_an_observer_of_one_job_sees_only_that_one(self) -> None:
        worker = self.token("worker", "*")
        observer = self.token("observer", "text")
        basind = self.start()
        for job in ("vision", "text"):
            trainer = Trainer(TRAINER, basind.grpc, job, "a", 1, 1, BASIN_TOKEN_FILE=str(worker))
            self.addCleanup(trainer.kill)
            self.assertEqual("member 0 of 1", trainer.ask("join"))
        status = run(
            BASINCTL, "status", f"--address={basind.admin}", BASIN_TOKEN_FILE=str(observer)
        )
        self.assertEqual(0, status.returncode, status.stderr)
        self.assertIn("text", status.stdout)
        self.assertNotIn("vision", status.stdout)


if __name__ == "__main__":
    BASIND, BASINCTL, TRAINER = (Path(argument) for argument in sys.argv[1:4])
    unittest.main(argv=sys.argv[:1], verbosity=2)
