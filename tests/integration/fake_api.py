# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""An API server of Kubernetes that has only Leases, for aggregators on this machine.

It compares resourceVersions and tokens. A test can keep it from answering.
"""

import http.server
import json
import ssl
import threading
from pathlib import Path
from typing import Any

Lease = dict[str, Any]

PATH = "/apis/coordination.k8s.io/v1/namespaces/training/leases"


class FakeApi:
    """Serves on 127.0.0.1. `certs` is a folder of `basinctl dev-certs`."""

    def __init__(self, certs: Path, token: str) -> None:
        self.token = token
        self.leases: dict[str, Lease] = {}
        self._versions = 0
        self._lock = threading.Lock()
        self._answers = threading.Event()
        self._answers.set()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certs / "server.crt", certs / "server.key")

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            api = self

            def setup(self) -> None:
                # On the thread of the connection, which alone waits for its handshake.
                self.request = context.wrap_socket(self.request, server_side=True)
                super().setup()

            def handle(self) -> None:
                with self.connection:
                    super().handle()

            def serve(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(length)
                self.api._answers.wait()
                known = self.headers["Authorization"] == f"Bearer {self.api.token}"
                code, answer = self.api._do(self.command, self.path, body) if known else (401, {})
                text = json.dumps(answer).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = serve

            def log_message(self, *_: Any) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                """Connections of aggregators that were killed break."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._answers.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def be_away(self) -> None:
        """Requests wait from now on."""
        self._answers.clear()

    def be_back(self) -> None:
        self._answers.set()

    def lease(self, name: str) -> Lease:
        with self._lock:
            return self.leases[f"{PATH}/{name}"]

    def _do(self, method: str, path: str, body: bytes) -> tuple[int, Lease]:
        with self._lock:
            if method == "GET":
                found = self.leases.get(path)
                return (200, found) if found is not None else (404, {"message": "not found"})
            lease: Lease = json.loads(body)
            if method == "POST":
                path = f"{path}/{lease['metadata']['name']}"
                if path in self.leases:
                    return 409, {"message": "already exists"}
            elif path not in self.leases:
                return 404, {"message": "not found"}
            elif (
                lease["metadata"]["resourceVersion"]
                != self.leases[path]["metadata"]["resourceVersion"]
            ):
                return 409, {"message": "modified"}
            self._versions += 1
            lease["metadata"]["resourceVersion"] = str(self._versions)
            self.leases[path] = lease
            return 200 if method == "PUT" else 201, lease
