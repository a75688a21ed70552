#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What a peer that floods a port of basind costs it, and a job beside.

Two workers make small rounds all the time. A peer with another address opens connections, floods
them, and opens each again that is closed. It is a stranger, or with --worker a worker of another
job, which sends a valid hello first:

  reset         begins calls and resets them at once (rapid reset)
  continuation  headers that do not end
  hpack         headers that refer to a long one again and again (HPACK bomb)
  ping          PING, and reads no answer
  settings      SETTINGS, and reads no answer
  window        windows that are opened and closed, a byte at a time
  message       a message that does not end
  below         as many resets on each connection as a limit of 64 calls allows
  handshakes    with TLS: 2,000 connections per second, with the first message of a handshake each

The table has the longest pause of the job, the most memory that basind held while it was flooded
and what it still held five seconds later, and how often the peer connected. Without a flood
("none") the pause is what the machine itself does. With --port admin the port for operators is
flooded.

With --check the exit status is 1 if the job paused for a second longer than without a flood, or
basind held more than 256 MiB.

examples:
  floods.py --build build/release
  floods.py --build build/release --floods reset --connections 2 --seconds 12
  floods.py --build build/release --tls --floods reset,handshakes
  floods.py --build build/release --worker
  floods.py --build build/release --aggregator build/sid --within .cache/sid/root
"""

import argparse
import collections
import contextlib
import itertools
import multiprocessing
import os
import re
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "allreduce"))
from allreduce import add_aggregator_options, loader_of, running_basind

ELSEWHERE = "127.0.0.2"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTLED = 5.0  # Seconds after the flood.
HANDSHAKES = 2000  # Per second.
MOST_PAUSE = 1.0
MOST_MIB = 256


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    length = len(payload).to_bytes(3, "big")
    return length + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def text(value: bytes) -> bytes:
    """A string of HPACK."""
    if len(value) < 127:
        return bytes([len(value)]) + value
    rest = len(value) - 127
    return bytes([127, 128 | rest % 128, rest // 128]) + value


REMEMBERED, FORGOTTEN = b"\x40", b"\0"  # By the table of HPACK.
CANCEL = struct.pack(">I", 8)
HEADERS = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/basin.v1.Session/Run"),
    (b":authority", b"basin"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
)
CALL = b"".join(REMEMBERED + text(name) + text(value) for name, value in HEADERS)
# The same by their numbers in the table: a byte each.
SAME = bytes(128 | 62 + len(HEADERS) - 1 - i for i in range(len(HEADERS)))


def streams() -> Iterator[int]:
    """After the one of a worker."""
    return itertools.count(3, 2)


def resets() -> Iterator[bytes]:
    """Thousands of calls in 64 KiB."""
    call = CALL
    numbers = streams()
    while True:
        some = []
        for n in itertools.islice(numbers, 1000):
            some.append(frame(1, 4, n, call) + frame(3, 0, n, CANCEL))
            call = SAME
        yield b"".join(some)


def below() -> Iterator[bytes]:
    call = CALL
    for n in itertools.islice(streams(), 60):
        yield frame(1, 4, n, call) + frame(3, 0, n, CANCEL)
        call = SAME


def continuations() -> Iterator[bytes]:
    yield frame(1, 0, 3, CALL)
    while True:
        fields = (FORGOTTEN + text(b"x%d" % i) + text(b"y" * 20) for i in range(400))
        yield frame(9, 0, 3, b"".join(fields)) * 10


def references() -> Iterator[bytes]:
    yield frame(1, 4, 3, CALL + REMEMBERED + text(b"x") + text(b"y" * 3900))
    for n in itertools.islice(streams(), 1, None):
        # The long one has the first number, so the others have one more.
        yield frame(1, 4, n, bytes(index + 1 for index in SAME) + b"\xbe" * 16000)


def pings() -> Iterator[bytes]:
    return itertools.repeat(frame(6, 0, 0, bytes(8)) * 4000)


def settings() -> Iterator[bytes]:
    return itertools.repeat(frame(4, 0, 0, struct.pack(">HI", 4, 1 << 20)) * 4000)


def windows() -> Iterator[bytes]:
    yield b"".join(frame(1, 4, n, SAME if n > 3 else CALL) for n in range(3, 19, 2))
    more = frame(8, 0, 0, struct.pack(">I", 1))
    more += b"".join(frame(8, 0, n, struct.pack(">I", 1)) for n in range(3, 19, 2))
    games = b"".join(frame(4, 0, 0, struct.pack(">HI", 4, size)) + more for size in (0, 1 << 20))
    yield from itertools.repeat(games * 200)


def message() -> Iterator[bytes]:
    yield frame(1, 4, 3, CALL) + frame(0, 0, 3, struct.pack(">BI", 0, 4 << 20))
    yield from itertools.repeat(frame(0, 0, 3, bytes(16384)) * 16)


def hello() -> bytes:
    """The first message of a worker of the job "flood", in a call."""
    settings = b"\x08\x01\x10\x10"
    message = b"\x0d" + struct.pack("<I", 0x4E534142) + b"\x10\x01\x18\x01\x2a\x05flood"
    message += b"\x3a\x06" + b"f%05d" % (os.getpid() % 100000) + b"\x41" + os.urandom(8)
    message += b"\x52" + bytes([len(settings)]) + settings
    message = b"\x0a" + bytes([len(message)]) + message
    return frame(1, 4, 1, CALL) + frame(0, 0, 1, struct.pack(">BI", 0, len(message)) + message)


FLOODS: dict[str, Callable[[], Iterator[bytes]]] = {
    "reset": resets,
    "below": below,
    "continuation": continuations,
    "hpack": references,
    "ping": pings,
    "settings": settings,
    "window": windows,
    "message": message,
}


@dataclass(frozen=True)
class Peer:
    kind: str
    address: str
    tls: bool
    worker: bool  # It says hello first.
    until: float

    def left(self) -> float:
        return max(0.1, self.until - time.monotonic())

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        return context

    def connect(self) -> socket.socket:
        host, port = self.address.rsplit(":", 1)
        peer = socket.create_connection((host, int(port)), min(10, self.left()), (ELSEWHERE, 0))
        return self.context().wrap_socket(peer) if self.tls else peer

    def flood(self, connected: "Synchronized[int]") -> None:
        while time.monotonic() < self.until:
            try:
                peer = self.connect()
            except OSError:
                continue
            with connected.get_lock():
                connected.value += 1
            peer.settimeout(self.left())
            try:
                peer.sendall(PREFACE + frame(4, 0, 0, b""))
                if self.worker:
                    peer.sendall(hello())
                    wait_for_welcome(peer)
                for part in FLOODS[self.kind]():
                    if time.monotonic() > self.until:
                        break
                    peer.sendall(part)
            except OSError:
                pass  # It was closed, or nothing more is read.
            peer.close()

    def shake_hands(self, connected: "Synchronized[int]") -> None:
        """Sends a ClientHello, and nothing more."""
        out = ssl.MemoryBIO()
        with contextlib.suppress(ssl.SSLWantReadError):
            self.context().wrap_bio(ssl.MemoryBIO(), out).do_handshake()
        hello = out.read()
        host, port = self.address.rsplit(":", 1)
        open_ones: collections.deque[socket.socket] = collections.deque(maxlen=4096)
        clock = threading.Event()  # Nobody sets it.
        begin = time.monotonic()
        while time.monotonic() < self.until:
            due = (time.monotonic() - begin) * HANDSHAKES
            while connected.value < due:
                try:
                    peer = socket.create_connection((host, int(port)), 1, (ELSEWHERE, 0))
                    peer.sendall(hello)
                    open_ones.append(peer)
                except OSError:
                    pass
                connected.value += 1
            clock.wait(0.005)


def wait_for_welcome(peer: socket.socket) -> None:
    """Until there are data of the first call."""
    arrived = b""
    while True:
        more = peer.recv(65536)
        if not more:
            raise ConnectionError
        arrived += more
        while len(arrived) >= 9 and len(arrived) >= 9 + int.from_bytes(arrived[:3], "big"):
            if arrived[3] == 0:
                return
            arrived = arrived[9 + int.from_bytes(arrived[:3], "big") :]


def train(address: str, rank: int, until: float, longest: "Synchronized[float]") -> None:
    import basin
    import numpy

    array = numpy.ones(256, numpy.float32)
    with basin.connect(
        address=address, worker_id=f"w{rank}", min_workers=2, max_workers=2, fresh=True
    ) as client:
        client.allreduce(array, "begin", op=basin.Op.SUM)
        last = time.monotonic()
        while True:
            # Both end after the same round.
            over = numpy.array([time.monotonic() > until], numpy.int64)
            try:
                if client.allreduce(over, "over", op=basin.Op.MAX)[0]:
                    return
            except basin.Error:  # It was evicted, because it had paused for so long.
                longest.value = max(longest.value, time.monotonic() - last)
                raise
            now = time.monotonic()
            longest.value = max(longest.value, now - last)
            last = now


def resident(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) << 10 if found else 0


@dataclass(frozen=True)
class Basind:
    build: Path
    within: tuple[str, ...]
    flags: list[str]
    port: str  # "grpc" or "admin": which is flooded.


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@dataclass(frozen=True)
class Cost:
    pause: float
    failed: bool  # A worker.
    mib: int

    def within(self, usual: float) -> bool:
        return not self.failed and self.pause <= MOST_PAUSE + usual and self.mib <= MOST_MIB


def measure(
    basind: Basind, kind: str, connections: int, seconds: float, tls: bool, worker: bool
) -> Cost:
    """Prints a row."""
    admin = f"127.0.0.1:{free_port()}" if basind.port == "admin" else "none"
    with running_basind(basind.build, *basind.flags, within=basind.within, admin=admin) as (
        process,
        address,
    ):
        clock = threading.Event()  # Nobody sets it.
        start: Any = multiprocessing.get_context("fork").Process
        begin = time.monotonic() + 3
        until = begin + seconds
        pauses = [multiprocessing.Value("d", 0.0) for _ in range(2)]
        connected = multiprocessing.Value("i", 0)
        over = until + SETTLED
        jobs = [start(target=train, args=(address, rank, over, pauses[rank])) for rank in range(2)]
        for job in jobs:
            job.start()
        clock.wait(max(0.0, begin - time.monotonic()))
        for value in pauses:
            value.value = 0.0
        flooded = admin if basind.port == "admin" else address
        peer = Peer(kind, flooded, tls, worker, until)
        act, count = peer.flood, connections
        if kind == "handshakes":
            act, count = peer.shake_hands, 1
        peers = [
            start(target=act, args=(connected,)) for _ in range(count if kind != "none" else 0)
        ]
        for each in peers:
            each.start()
        most = 0
        while time.monotonic() < over:
            most = max(most, resident(process.pid))
            clock.wait(0.05)
        left = resident(process.pid)
        for each in [*peers, *jobs]:
            each.join(SETTLED)
            each.kill()  # A worker may wait for the other one, which has failed.
            each.join()
        failed = any(job.exitcode for job in jobs)
        longest = max(pause.value for pause in pauses)
        pause = f"{longest:.2f}, then a worker failed" if failed else f"{longest:.2f}"
        row = f"| {kind} | {pause} | {most >> 20} | {left >> 20} | {connected.value} |"
        print(row, flush=True)
        return Cost(longest, failed, most >> 20)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=Path("build/release"))
    add_aggregator_options(parser)
    parser.add_argument("--floods", default="", help="by commas; all by default")
    parser.add_argument("--connections", type=int, default=2, help="that flood at the same time")
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--tls", action="store_true", help="basind has a certificate")
    parser.add_argument("--port", choices=("grpc", "admin"), default="grpc")
    parser.add_argument("--worker", action="store_true", help="the peer says hello first")
    parser.add_argument("--basind", default="", help="more flags for it, by spaces")
    parser.add_argument("--check", action="store_true", help="fail beyond the bounds")
    options = parser.parse_args()
    if options.worker and options.port == "admin":
        parser.error("--worker: workers call the other port. Leave out --port=admin")
    known = ["none", *FLOODS, *(["handshakes"] if options.tls and not options.worker else [])]
    kinds = options.floods.split(",") if options.floods else known
    if unknown := set(kinds) - set(known):
        parser.error(f"--floods: unknown: {', '.join(sorted(unknown))}")
    os.environ["BASIN_LIBRARY"] = str((options.build / "client/c/libbasin.so.2").resolve())
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "client" / "python"))
    flags = options.basind.split()
    with tempfile.TemporaryDirectory() as folder:
        if options.tls:
            certificates = Path(folder) / "certs"
            basinctl = options.build / "aggregator/ctl/basinctl"
            subprocess.run([basinctl, "dev-certs", certificates], check=True, capture_output=True)
            flags.append(f"--tls-cert={certificates}/server.crt")
            flags.append(f"--tls-key={certificates}/server.key")
            os.environ["BASIN_TLS_CA"] = f"{certificates}/ca.crt"
        loader = loader_of(options.within)
        basind = Basind(options.aggregator or options.build, loader, flags, options.port)
        print("| flood | longest pause, s | most MiB | MiB afterwards | connections |")
        print("|---|---|---|---|---|")
        costs = {
            kind: measure(
                basind, kind, options.connections, options.seconds, options.tls, options.worker
            )
            for kind in kinds
        }
    usual = costs["none"].pause if "none" in costs else 0.0
    within = all(cost.within(usual) for cost in costs.values())
    return 0 if within or not options.check else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.SubprocessError as error:
        sys.exit(f"floods: {error}")
