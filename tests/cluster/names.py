# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A name server for the headless Services of a cluster: the names of their pods, as IPv4 addresses.

Debian has no package of the usual server. This one asks Kubernetes for each question, so an answer
is never old.

Usage: names.py SERVER ADDRESS CA TOKENS      TOKENS is the server's own file of tokens
"""

import json
import socket
import socketserver
import ssl
import struct
import sys
import urllib.error
import urllib.request
from pathlib import Path

DOMAIN = ["svc", "cluster", "local"]
TYPE_A = 1
NO_ERROR, SERVER_FAILED, NO_SUCH_NAME = 0, 2, 3
# Flags of a response: it is one, and with authority.
RESPONSE = 0x8400
TTL_SECONDS = 1


class Endpoints:
    """Asks Kubernetes which pods belong to a Service."""

    def __init__(self, server: str, ca: str, token: str) -> None:
        self._server = server
        self._trust = ssl.create_default_context(cafile=ca)
        self._token = token

    def addresses(self, name: str) -> list[str]:
        """The pods with this name, or all of its Service; OSError if Kubernetes does not answer."""
        labels = name.lower().rstrip(".").split(".")
        if labels[-3:] != DOMAIN or len(labels) not in (5, 6):
            return []
        *host, service, namespace = labels[:-3]
        path = f"/api/v1/namespaces/{namespace}/endpoints/{service}"
        request = urllib.request.Request(
            self._server + path, headers={"Authorization": f"Bearer {self._token}"}
        )
        try:
            with urllib.request.urlopen(request, context=self._trust, timeout=5) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return []
            raise
        return [
            address["ip"]
            for subset in found.get("subsets") or []
            for address in subset.get("addresses") or []
            if not host or address.get("hostname") == host[0]
        ]


def question(message: bytes) -> tuple[str, int, int]:
    """The name, the type, and where the question ends; IndexError or struct.error if damaged."""
    labels, at = [], 12
    while (length := message[at]) > 0:
        labels.append(message[at + 1 : at + 1 + length].decode("ascii", "replace"))
        at += 1 + length
    (kind,) = struct.unpack_from(">H", message, at + 1)
    return ".".join(labels), kind, at + 5


def answer(message: bytes, endpoints: Endpoints) -> bytes:
    name, kind, end = question(message)
    try:
        addresses = endpoints.addresses(name)
        code = NO_ERROR if addresses else NO_SUCH_NAME
    except OSError as error:
        print(f"{name}: {error}", flush=True)
        addresses, code = [], SERVER_FAILED
    # Each record refers to the name in the question.
    records = [
        b"\xc0\x0c" + struct.pack(">HHIH", TYPE_A, 1, TTL_SECONDS, 4) + socket.inet_aton(address)
        for address in addresses
        if kind == TYPE_A
    ]
    head = message[:2] + struct.pack(">HHHHH", RESPONSE | code, 1, len(records), 0, 0)
    return head + message[12:end] + b"".join(records)


class Handler(socketserver.BaseRequestHandler):
    endpoints: Endpoints

    def handle(self) -> None:
        message, answers_from = self.request
        answers_from.sendto(answer(message, self.endpoints), self.client_address)


def main(server: str, address: str, ca: str, tokens: str) -> None:
    token = Path(tokens).read_text(encoding="ascii").split(",")[0]
    Handler.endpoints = Endpoints(server, ca, token)
    with socketserver.ThreadingUDPServer((address, 53), Handler) as names:
        names.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
