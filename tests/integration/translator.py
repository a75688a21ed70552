# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Stands between programs and an aggregator of this version, and makes one look to the other as if
it were of another version."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc
import xxhash

# A change of one message of a call: its method, its place among those of its direction, its bytes.
Change = Callable[[str, int, bytes], bytes]

SESSION = "/basin.v1.Session/Run"
DATA = "/basin.v1.Exchange/Run"

# Field 120 with the number 1, which no message of this version has.
LATER_FIELD = b"\xc0\x07\x01"
# In every request of operators, the first field is a message whose second field is the version of
# the protocol. protobuf merges a message that comes twice.
PROTOCOL_2 = b"\x0a\x02\x10\x02"

# The checksum at the end of a message of a session, as session.proto describes it.
_SEAL_TAG = b"\x89\x06"
_SEAL_BYTES = 10


def as_it_is(_method: str, _number: int, message: bytes) -> bytes:
    return message


def unsealed(message: bytes) -> bytes:
    """A message of a session without its checksum, if it has one."""
    sealed = message[-_SEAL_BYTES:].startswith(_SEAL_TAG)
    return message[:-_SEAL_BYTES] if sealed else message


def sealed(message: bytes) -> bytes:
    return message + _SEAL_TAG + xxhash.xxh3_64_intdigest(message).to_bytes(8, "little")


def of_later(method: str, _number: int, message: bytes) -> bytes:
    """As from a program that knows one field more."""
    if method == SESSION:
        return sealed(unsealed(message) + LATER_FIELD)
    return message + LATER_FIELD


class Translator(grpc.GenericRpcHandler):
    """Passes every call on to the aggregator, with these changes of its messages."""

    def __init__(self, target: str, up: Change = as_it_is, down: Change = as_it_is) -> None:
        self._up, self._down = up, down
        self.calls: list[str] = []  # The methods, in order.
        self._lock = threading.Lock()
        whole = [("grpc.max_receive_message_length", -1)]
        self._channel = grpc.insecure_channel(target, whole)
        # The library sends pings more often than this server allows by default.
        pings = [
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_ping_strikes", 0),
        ]
        self._server = grpc.server(ThreadPoolExecutor(16), [self], options=[*whole, *pings])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def close(self) -> None:
        self._server.stop(None).wait()
        self._channel.close()

    def service(self, details: Any) -> Any:
        with self._lock:
            self.calls.append(details.method)
        return grpc.stream_stream_rpc_method_handler(partial(self._pass_on, details.method))

    def _pass_on(self, method: str, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        changed = (self._up(method, number, one) for number, one in enumerate(requests))
        call = self._channel.stream_stream(method)(changed, metadata=context.invocation_metadata())
        context.add_callback(call.cancel)
        try:
            for number, answer in enumerate(call):
                yield self._down(method, number, answer)
        except grpc.RpcError:
            context.set_trailing_metadata(call.trailing_metadata())
            context.abort(call.code(), call.details())
