# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Reports of progress reach the controller of a TrainJob or the annotations of a pod, whatever they
cost these.

Usage: test_progress.py BASIND LIBBASIN
"""

import http.server
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock
from pathlib import Path
from queue import Queue
from typing import Any, ClassVar

from jobs import PATIENCE, ROOT, Aggregator, environment, require

sys.path.insert(0, str(ROOT / "tests/helm"))

TRAINER = """
import sys
import basin
with basin.connect(max_workers=2) as client:
    for line in sys.stdin:
        done, loss = map(float, line.split())
        client.report_progress(done, loss=loss)
        print("reported", flush=True)
"""


class Controller(http.server.BaseHTTPRequestHandler):
    """Puts each report into the queue of its server."""

    server: "Server"

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        self.server.reports.put((self.headers["Authorization"], json.loads(self.rfile.read(size))))
        self.send_response(self.server.answer)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    answer = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Controller)
        self.reports: Queue[tuple[str, dict[str, Any]]] = Queue()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/status"


class Reports(unittest.TestCase):
    aggregator: ClassVar[Aggregator]

    @classmethod
    def setUpClass(cls) -> None:
        cls.aggregator = Aggregator(Path(sys.argv[1]))
        cls.addClassCleanup(cls.aggregator.close)

    def setUp(self) -> None:
        self.server = Server()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "token").write_text("first\n", encoding="utf-8")

    def start(self, worker: str, url: str | None = None) -> "subprocess.Popen[str]":
        job = self.id().rpartition(".")[2].replace("_", "-")
        process = subprocess.Popen(
            [sys.executable, "-c", TRAINER],
            env=environment(
                BASIN_ADDRESS=self.aggregator.address, BASIN_JOB=job, BASIN_WORKER_ID=worker,
                KUBEFLOW_TRAINER_SERVER_URL=self.server.url if url is None else url,
                KUBEFLOW_TRAINER_SERVER_TOKEN=str(self.folder / "token"),
            ),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def tell(self, process: "subprocess.Popen[str]", line: str) -> None:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()
        self.assertEqual("reported\n", process.stdout.readline())

    def end(self, process: "subprocess.Popen[str]") -> str:
        _, said = process.communicate(timeout=PATIENCE)
        self.assertEqual(0, process.returncode, said)
        return said

    def test_rank_0_reports_and_the_last_report_arrives(self) -> None:
        from kubeflow_models import REPORT, complaints

        first, second = self.start("w0"), self.start("w1")
        self.tell(second, "0.1 9")
        self.tell(first, "0.25 0.5")
        token, report = self.server.reports.get(timeout=PATIENCE)
        self.assertEqual("Bearer first", token)
        self.assertEqual([], complaints(report, REPORT))
        status = report["trainerStatus"]
        self.assertEqual(25, status["progressPercentage"])
        self.assertIn({"name": "loss", "value": "0.5"}, status["metrics"])
        self.assertIn({"name": "workers", "value": "2"}, status["metrics"])
        self.assertRegex(status["lastUpdatedTime"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertNotIn("estimatedRemainingSeconds", status)
        # The token is replaced while the pod runs. What is reported meanwhile is not sent.
        (self.folder / "token").write_text("second\n", encoding="utf-8")
        self.tell(first, "0.5 0.4")
        self.tell(first, "1 0.3")
        self.end(second)
        self.end(first)
        token, report = self.server.reports.get(timeout=PATIENCE)
        self.assertEqual("Bearer second", token)
        self.assertEqual([], complaints(report, REPORT))
        self.assertEqual(100, report["trainerStatus"]["progressPercentage"])
        self.assertEqual(0, report["trainerStatus"]["estimatedRemainingSeconds"])
        self.assertTrue(self.server.reports.empty())

    def test_a_controller_that_refuses_is_told_once_and_disturbs_nobody(self) -> None:
        self.server.answer = 500
        first, second = self.start("w0"), self.start("w1")
        self.tell(first, "0.5 1")
        self.server.reports.get(timeout=PATIENCE)
        self.tell(first, "1 1")
        self.end(second)
        said = self.end(first)
        self.assertEqual(1, said.count("the progress cannot be reported"), said)
        self.assertIn("KUBEFLOW_TRAINER_SERVER_URL", said)

    def test_elsewhere_nothing_is_sent(self) -> None:
        first = self.start("w0", url="")
        second = self.start("w1")
        self.tell(first, "0.5 1")
        self.end(first)
        self.end(second)
        self.assertTrue(self.server.reports.empty())

    def test_a_share_that_is_none_is_refused(self) -> None:
        import basin

        with basin.connect(self.aggregator.address, "refused", "w0", max_workers=1) as client:
            for wrong in (1.5, -0.1, float("nan"), "half"):
                with self.assertRaisesRegex(basin.InvalidArgument, "progress cannot be"):
                    client.report_progress(wrong)  # type: ignore[arg-type]


class ApiServer(http.server.BaseHTTPRequestHandler):
    """Puts each change of an object into the queue of its server."""

    server: "TlsServer"

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.changes.put((self.path, dict(self.headers), body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class TlsServer(http.server.ThreadingHTTPServer):
    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), ApiServer)
        self.changes: Queue[tuple[str, dict[str, str], dict[str, Any]]] = Queue()
        key, authority = folder / "key.pem", folder / "ca.crt"
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=api"),
                *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", authority),
            ],
            check=True,
            capture_output=True,
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Annotations(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.server = TlsServer(self.folder)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        (self.folder / "token").write_text("first\n", encoding="utf-8")

    def variables(self, pod: str, **more: str) -> None:
        values = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.server.server_port),
            "BASIN_PROGRESS_POD": pod,
        }
        self.enterContext(unittest.mock.patch.dict(os.environ, values | more))

    def test_the_pod_has_the_latest_report(self) -> None:
        from basin.progress import Progress

        self.variables("training/digits-0")
        progress = Progress(account=self.folder)
        progress.report(0.25, {"workers": 2, "loss": 0.5}, send=True)
        path, headers, change = self.server.changes.get(timeout=PATIENCE)
        self.assertEqual("/api/v1/namespaces/training/pods/digits-0", path)
        self.assertEqual("application/merge-patch+json", headers["Content-Type"])
        self.assertEqual("Bearer first", headers["Authorization"])
        annotations = change["metadata"]["annotations"]
        self.assertEqual("25", annotations["basin/progress-percentage"])
        self.assertEqual("workers=2 loss=0.5", annotations["basin/metrics"])
        self.assertIsNone(annotations["basin/estimated-remaining-seconds"])
        (self.folder / "token").write_text("second\n", encoding="utf-8")
        progress.report(1, {}, send=True)
        progress.close()
        _, headers, change = self.server.changes.get(timeout=PATIENCE)
        self.assertEqual("Bearer second", headers["Authorization"])
        annotations = change["metadata"]["annotations"]
        self.assertEqual("100", annotations["basin/progress-percentage"])
        self.assertEqual("0", annotations["basin/estimated-remaining-seconds"])

    def test_a_server_of_another_authority_gets_no_token(self) -> None:
        from basin.progress import Progress

        other = Path(self.enterContext(tempfile.TemporaryDirectory()))
        TlsServer(other).server_close()
        (other / "token").write_text("secret", encoding="utf-8")
        self.variables("training/digits-0")
        progress = Progress(account=other)
        with self.assertLogs("basin", "WARNING") as logs:
            progress.report(0.5, {}, send=True)
            progress.close()
        self.assertIn("certificate verify failed", logs.output[0])
        self.assertIn("BASIN_PROGRESS_POD", logs.output[0])
        self.assertTrue(self.server.changes.empty())

    def test_a_trainjob_is_told_instead(self) -> None:
        from basin.progress import Progress

        server = Server()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        token = str(self.folder / "token")
        controller = {
            "KUBEFLOW_TRAINER_SERVER_URL": server.url, "KUBEFLOW_TRAINER_SERVER_TOKEN": token
        }  # fmt: skip
        self.variables("training/digits-0", **controller)
        progress = Progress(account=self.folder)
        progress.report(0.5, {}, send=True)
        progress.close()
        self.assertEqual("Bearer first", server.reports.get(timeout=PATIENCE)[0])
        self.assertTrue(self.server.changes.empty())

    def test_a_name_that_is_none_is_refused_on_all_workers(self) -> None:
        import basin
        from basin.progress import Progress

        for wrong in ("digits-0", "/digits-0", "training/", "training/pods/digits-0"):
            self.variables(wrong)
            for send in (True, False):
                with self.assertRaisesRegex(basin.InvalidArgument, "BASIN_PROGRESS_POD cannot be"):
                    Progress(account=self.folder).report(0.5, {}, send=send)


if __name__ == "__main__":
    require("numpy", "kubeflow_trainer_api")
    os.environ["BASIN_LIBRARY"] = sys.argv[2]
    unittest.main(argv=sys.argv[:1], verbosity=2)
