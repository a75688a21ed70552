#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A worker that uses only the .proto files, grpcio and xxhash, and no code of Basin.

It is a model for clients in other languages. It is short because it omits much of the client
library: it does not reconnect, and it pushes its results from one thread. The comments of
proto/basin/v1 are the reference for every step.

  pip install grpcio grpcio-tools xxhash
  basind &
  python3 worker.py --fresh --worker a --workers 2 --value 1 &
  python3 worker.py --fresh --worker b --workers 2 --value 3

Each worker prints the outcome of each round:

  round 1: COMMITTED over a, b; divisor 2; weight = 2.0
"""

import argparse
import queue
import random
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import xxhash

PROTO = Path(__file__).resolve().parents[2] / "proto"
sys.path.insert(0, str(PROTO))
# The modules that protoc would generate, created at run time.
session_pb, session_grpc = grpc.protos_and_services("basin/v1/session.proto")
exchange_pb, exchange_grpc = grpc.protos_and_services("basin/v1/exchange.proto")
types_pb = grpc.protos("basin/v1/types.proto")

MAGIC = 0x4E534142
CHUNK_BYTES = 256 * 1024
FRAME_CHUNKS = 4
MASK = 2**64 - 1


def chunks_of(data: bytes) -> list[bytes]:
    """Splits the bytes of a tensor into chunks."""
    return [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]


def chunk_digest(tensor: str, index: int, chunk: bytes) -> int:
    """The summand of a chunk in the digest of its round; see FrameHeader.chunk_digests."""

    def words(data: bytes) -> tuple[int, int]:
        digest = xxhash.xxh3_128_intdigest(data)
        return digest & MASK, digest >> 64

    key = struct.pack("<5Q", *words(tensor.encode()), index, *words(chunk))
    return xxhash.xxh3_128_intdigest(key) & MASK


class Stream:
    """One direction of a gRPC stream as a queue."""

    def __init__(self) -> None:
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def send(self, message: Any) -> None:
        self._messages.put(message)

    def close(self) -> None:
        self._messages.put(None)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._messages.get, None)


class Worker:
    """One worker with one lane "model" of float32 tensors.

    All received messages pass through one queue to `handle`, so no lock is needed.
    """

    def __init__(
        self,
        address: str,
        job: str,
        run: str,
        worker: str,
        workers: int,
        fresh: bool = False,
        least: int = 0,
    ) -> None:
        """least: with fewer workers the job pauses; 0: it pauses without all"""
        self.channel = grpc.insecure_channel(address)
        self.inbox: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.control = Stream()
        self.data = Stream()
        self.sequence = 0
        self.stop = threading.Event()
        self.lane = 0
        self.names: list[str] = []
        self.unacknowledged = 0
        self.window = 0
        self.is_member = False
        self.contribution: dict[tuple[int, int], bytes] = {}
        self.to_push: list[tuple[int, int]] = []
        self.results: dict[tuple[int, int], tuple[tuple[int, int], bytes]] = {}
        self.prepared: Any = None
        self.verdict: Any = None

        self._listen("control", session_grpc.SessionStub(self.channel).Run(iter(self.control)))
        hello = session_pb.Hello(
            magic=MAGIC,
            protocol_version=1,
            contract_version=1,
            job=job,
            run=run,
            worker=worker,
            nonce=random.getrandbits(64) | 1,
            fresh=fresh,
            settings=session_pb.JobSettings(min_workers=least, max_workers=workers),
        )
        self.control.send(session_pb.ToAggregator(hello=hello))
        welcome = self._await("welcome")
        self._beat(welcome.heartbeat_ns / 1e9)

        self._listen("data", exchange_grpc.ExchangeStub(self.channel).Run(iter(self.data)))
        bind = exchange_pb.Bind(magic=MAGIC, protocol_version=1, token=welcome.token)
        self._send_frame(exchange_pb.FrameHeader(bind=bind), b"", sequence=0)
        self._await("bound")

    # ---- calls of the trainer

    def register(self, tensors: dict[str, int]) -> None:
        """Registers the tensors with their lengths, and waits until this worker is a member."""
        specs = [
            types_pb.TensorSpec(name=name, dtype=types_pb.DTYPE_F32, shape=[length])
            for name, length in tensors.items()
        ]
        register = session_pb.Register(
            lane="model", kind=types_pb.LANE_KIND_GRADIENT, tensors=specs
        )
        self.control.send(session_pb.ToAggregator(register=register))
        layout = self._await("lane_layout")
        while len(self.names) < len(tensors):
            layout = self._await("lane_layout")
        self.control.send(session_pb.ToAggregator(ready=session_pb.Ready()))
        while not self.is_member:
            self._handle_next()
        self.round = layout.round or 1

    def allreduce(self, tensors: dict[str, bytes], op: int) -> Any:
        """Runs one round and returns its VerdictRecord; result_of() has the results."""
        index = {name: i for i, name in enumerate(self.names)}
        self.contribution = {
            (index[name], i): chunk
            for name, data in tensors.items()
            for i, chunk in enumerate(chunks_of(data))
        }
        self.to_push = list(self.contribution)
        self.unacknowledged = 0
        self.results = {}
        self.prepared = self.verdict = None
        spec = types_pb.RoundSpec(
            op=op,
            prescale=1,
            postscale=1,
            predivide=1,
            kind=types_pb.CONTRIBUTION_KIND_MEAN,
            weight_by=types_pb.WEIGHT_BY_NONE,
            denominator=types_pb.DENOMINATOR_ALL,
            loss_scale=1,
        )
        here = {"lane": self.lane, "round": self.round}
        # What the contribution stands for; the aggregator reports the sums as the effective batch.
        counts = types_pb.Counts(samples=32, tokens=4096, micro_batches=1)
        begin = session_pb.Begin(spec=spec, counts=counts, **here)
        self.control.send(session_pb.ToAggregator(begin=begin))
        present = bytearray((len(self.names) + 7) // 8)
        for name in tensors:
            present[index[name] // 8] |= 1 << index[name] % 8
        commit = session_pb.Commit(
            layout_version=len(self.names),
            present=types_pb.Bitmap(size=len(self.names), bits=bytes(present)),
            chunks=len(self.contribution),
            bytes=sum(map(len, tensors.values())),
            digest=sum(
                chunk_digest(self.names[tensor], i, chunk)
                for (tensor, i), chunk in self.contribution.items()
            )
            & MASK,
            **here,
        )
        # Commit is a claim, and may come before the frames that it counts.
        self.control.send(session_pb.ToAggregator(commit=commit))
        while self.verdict is None:
            self._push()
            self._stage()
            self._handle_next()
        self.round += 1
        return self.verdict

    def result_of(self, name: str) -> bytes:
        """The bytes of a tensor's result in the last round."""
        tensor = self.names.index(name)
        parts = sorted((i, part) for (t, i), (_, part) in self.results.items() if t == tensor)
        return b"".join(part for _, part in parts)

    def leave(self) -> None:
        self.control.send(session_pb.ToAggregator(leave=session_pb.Leave()))
        self.stop.set()
        # The aggregator ends the session and closes the data stream, in either order.
        while self._handle_next()[0] not in ("ended", "lost"):
            pass
        self.control.close()
        self.data.close()
        self.channel.close()

    # ---- sending

    def _send_frame(self, header: Any, payload: bytes, sequence: int) -> None:
        header.payload_bytes = len(payload)
        encoded = header.SerializeToString()
        frame = exchange_pb.Frame(
            sequence=sequence,
            header=encoded,
            checksum=xxhash.xxh3_64_intdigest(encoded + payload),
        )
        if payload:
            frame.inline = payload
        self.data.send(frame)

    def _push(self) -> None:
        """Sends as much as the window of unacknowledged bytes allows."""
        while self.to_push:
            tensor, first = self.to_push[0]
            count = 1
            while count < FRAME_CHUNKS and self.to_push[count : count + 1] == [
                (tensor, first + count)
            ]:
                count += 1
            payload = b"".join(self.contribution[tensor, first + i] for i in range(count))
            if self.unacknowledged > 0 and self.unacknowledged + len(payload) > self.window:
                return
            del self.to_push[:count]
            self.unacknowledged += len(payload)
            self.sequence += 1
            header = exchange_pb.ContributionHeader(
                lane=self.lane,
                round=self.round,
                range=types_pb.ChunkRange(tensor=tensor, first=first, count=count),
            )
            self._send_frame(exchange_pb.FrameHeader(contribution=header), payload, self.sequence)

    def _stage(self) -> None:
        """Sends STAGED when every chunk of the prepared value has arrived."""
        if self.prepared is None:
            return
        value = self.prepared.value
        ballot = (self.prepared.value_ballot.term, self.prepared.value_ballot.attempt)
        digest = 0
        for (tensor, i), (at, chunk) in self.results.items():
            if at == ballot:
                digest += chunk_digest(self.names[tensor], i, chunk)
        if digest & MASK != value.digest:
            return  # Some chunks have not arrived yet.
        staged = session_pb.Staged(lane=self.lane, round=self.round, ballot=self.prepared.ballot)
        self.control.send(session_pb.ToAggregator(staged=staged))
        self.prepared = None

    def _beat(self, seconds: float) -> None:
        def beat() -> None:
            while not self.stop.wait(seconds):
                self.control.send(session_pb.ToAggregator(heartbeat=session_pb.Heartbeat()))

        threading.Thread(target=beat, daemon=True).start()

    # ---- receiving

    def _listen(self, stream: str, responses: Any) -> None:
        def listen() -> None:
            try:
                for message in responses:
                    self.inbox.put((stream, message))
                self.inbox.put(("lost", "the aggregator closed the stream"))
            except grpc.RpcError as error:
                self.inbox.put(("lost", f"{error.code().name}: {error.details()}"))

        threading.Thread(target=listen, daemon=True).start()

    def _await(self, kind: str) -> Any:
        while True:
            got, message = self._handle_next()
            if got == kind:
                return message

    def _handle_next(self) -> tuple[str, Any]:
        stream, message = self.inbox.get()
        if stream == "lost":
            if self.stop.is_set():
                return "lost", message
            raise SystemExit(f"worker: {message}")
        if stream == "data":
            header = exchange_pb.FrameHeader.FromString(message.header)
            kind = header.WhichOneof("kind")
            if kind == "result":
                self._take_result(header.result, message.inline)
            return kind, header
        kind = message.WhichOneof("message")
        body = getattr(message, kind)
        self._take_control(kind, body)
        return kind, body

    def _take_control(self, kind: str, body: Any) -> None:
        if kind == "lane_layout":
            self.lane = body.lane
            self.window = body.window
            self.names[body.first :] = [spec.name for spec in body.tensors]
            seen = session_pb.LayoutSeen(lane=body.lane, version=len(self.names))
            self.control.send(session_pb.ToAggregator(layout_seen=seen))
        elif kind == "membership_changed":
            self.is_member = body.role == session_pb.ROLE_MEMBER
        elif kind == "credit":
            self.window = body.window
            self.unacknowledged -= self._bytes_in(body.acked) + self._bytes_in(body.refused)
            self._push_again(body.refused)
        elif kind == "pull":
            # Pull mode names the chunks to push, which this worker still holds.
            self.window = body.window
            self._push_again(body.discarded)
        elif kind == "attempt_restarted":
            self.window = body.window
            self._push_again(body.redo)
        elif kind == "prepared":
            self.prepared = body
        elif kind == "verdict":
            self.verdict = body.record
        elif kind == "rejected":
            print(f"worker: rejected: {body.error.text}", file=sys.stderr)
        elif kind == "ended" and not self.stop.is_set() and body.error.code:
            raise SystemExit(f"worker: {body.error.text}")

    def _take_result(self, result: Any, payload: bytes) -> None:
        ballot = (result.ballot.term, result.ballot.attempt)
        for i, chunk in enumerate(chunks_of(payload)):
            key = (result.range.tensor, result.range.first + i)
            if key not in self.results or self.results[key][0] <= ballot:
                self.results[key] = (ballot, chunk)
        ack = session_pb.ResultAck(
            lane=result.lane, round=result.round, ballot=result.ballot, ranges=[result.range]
        )
        self.control.send(session_pb.ToAggregator(result_ack=ack))

    def _chunks_in(self, ranges: Any) -> list[tuple[int, int]]:
        return [
            (r.tensor, r.first + i)
            for r in ranges
            for i in range(r.count)
            if (r.tensor, r.first + i) in self.contribution
        ]

    def _bytes_in(self, ranges: Any) -> int:
        return sum(len(self.contribution[key]) for key in self._chunks_in(ranges))

    def _push_again(self, ranges: Any) -> None:
        self.to_push += [key for key in self._chunks_in(ranges) if key not in self.to_push]


def main() -> None:
    parser = argparse.ArgumentParser(
        description="A worker made from the .proto files alone.",
        epilog="example: worker.py --fresh --worker a --workers 2 --value 1",
    )
    parser.add_argument("--address", default="127.0.0.1:29600")
    parser.add_argument("--job", default="default")
    parser.add_argument("--run", default="", help="empty: the run in progress")
    parser.add_argument("--worker", required=True, help="this worker's id, unique in the job")
    parser.add_argument("--workers", type=int, default=1, help="how many workers the job has")
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="the run is new: an aggregator that has just started need not ask who remembers it",
    )
    parser.add_argument("--value", type=float, default=1, help="every element of its gradient")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--elements", type=int, default=200_000, help="of tensor `weight`")
    options = parser.parse_args()

    worker = Worker(
        options.address, options.job, options.run, options.worker, options.workers, options.fresh
    )
    worker.register({"weight": options.elements, "bias": 3})
    for _ in range(options.rounds):
        record = worker.allreduce(
            {
                "weight": struct.pack("<f", options.value) * options.elements,
                "bias": struct.pack("<f", options.value) * 3,
            },
            types_pb.REDUCE_OP_AVERAGE,
        )
        values = {x for (x,) in struct.iter_unpack("<f", worker.result_of("weight"))}
        print(
            f"round {record.round}: {types_pb.Outcome.Name(record.value.outcome)[8:]} over "
            f"{', '.join(c.worker for c in record.value.contributors)}; "
            f"divisor {record.value.divisor}; "
            f"weight = {' '.join(map(str, sorted(values)))}",
            flush=True,
        )
    worker.leave()


if __name__ == "__main__":
    main()
