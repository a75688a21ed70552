# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A TCP proxy that acts as a faulty network: it delays, holds, cuts, truncates and damages.

Each connection that is made through it is a Link with two Directions, `up` to the aggregator and
`down` from it. A test gets a link when it is created (`on_link`), or later (`links`), and sets
its faults from its own thread. Within a connection the order of bytes is kept, as TCP keeps it;
connections are independent, so delays that differ change the order between them.
"""

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable

_READ = 1 << 16
# The limit of delayed bytes in one direction.
_QUEUE = 256


class Direction:
    """Bytes in flight. Offsets count the bytes read from the sender, from 0."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.delay = 0.0  # Seconds, and up to `jitter` more, for each piece that is read.
        self.jitter = 0.0
        self.rate = 0.0  # Bytes a second; 0 is no limit.
        self.flip_at: list[int] = []  # One bit of the byte at each of these offsets.
        self.end_at: int | None = None  # Later bytes are lost, and the stream ends.
        self.reset_at: int | None = None  # The same, but the connection is reset.
        self.read = 0
        self.first = b""  # The first bytes.
        self._loop = loop
        self._open = asyncio.Event()
        self._open.set()

    def flip_next(self) -> None:
        """Damages the next bytes after the first headers."""
        self.flip_at.append(self.read + 20000)

    def hold(self) -> None:
        """Silently drops everything from now on."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def release(self) -> None:
        self._loop.call_soon_threadsafe(self._open.set)

    async def opened(self) -> None:
        await self._open.wait()

    def damage(self, data: bytes) -> bytes:
        """Returns `data`, which begins at offset `read`, as the receiver gets it, and counts it."""
        damaged = bytearray(data)
        for offset in [at for at in self.flip_at if at < self.read + len(data)]:
            self.flip_at.remove(offset)
            if offset >= self.read:
                damaged[offset - self.read] ^= 0x10
        self.read += len(data)
        return bytes(damaged)


class Link:
    """A connection through the proxy."""

    def __init__(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        self.number = number
        self.up = Direction(loop)
        self.down = Direction(loop)
        self.idle_cut = 0.0  # It is cut after so many seconds without a byte; 0 is never.
        self.cut_as_idle = False
        self.over = False
        self.last_byte = loop.time()
        self.writers: list[asyncio.StreamWriter] = []
        self._loop = loop

    @property
    def session(self) -> bool:
        return b"basin.v1.Session" in self.up.first

    @property
    def data(self) -> bool:
        return b"basin.v1.Exchange" in self.up.first

    def cut(self) -> None:
        """Sends RST to both ends."""
        self._loop.call_soon_threadsafe(self.reset)

    def reset(self) -> None:
        for writer in self.writers:
            endpoint = writer.get_extra_info("socket")
            if endpoint is not None and not writer.transport.is_closing():
                endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Proxy:
    """A proxy for `target`, host:port, which runs on its own thread until close()."""

    def __init__(self, target: str, on_link: Callable[[Link], None] | None = None) -> None:
        """`on_link` is called on the proxy's thread, before the first byte goes through."""
        self.target = target
        self.links: list[Link] = []
        self.address = ""
        self._on_link = on_link
        self._random = random.Random(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        listening = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(listening,))
        self._thread.start()
        listening.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def open(self) -> list[Link]:
        return [link for link in list(self.links) if not link.over]

    def sessions(self) -> list[Link]:
        return [link for link in self.open() if link.session]

    def streams(self) -> list[Link]:
        return [link for link in self.open() if link.data]

    def _run(self, listening: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_READ)
        )
        self.address = "{}:{}".format(*server.sockets[0].getsockname())
        self._loop.call_soon(listening.set)
        self._loop.run_forever()
        server.close()
        for link in self.links:
            link.reset()
        for task in list(self._tasks):
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(self._loop, len(self.links))
        link.writers.append(writer)
        self.links.append(link)
        if self._on_link is not None:
            self._on_link(link)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            host, port = self.target.rsplit(":", 1)
            to_server = await asyncio.open_connection(host, int(port), limit=_READ)
            link.writers.append(to_server[1])
            await asyncio.gather(
                self._pump(link, link.up, reader, to_server[1]),
                self._pump(link, link.down, to_server[0], writer),
                self._watch(link),
            )
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            link.over = True
            link.reset()
            self._tasks.discard(task)

    async def _watch(self, link: Link) -> None:
        """Cuts it when it is idle, as load balancers do."""
        while not link.over:
            await asyncio.sleep(0.05)
            if 0 < link.idle_cut < self._loop.time() - link.last_byte:
                link.cut_as_idle = True
                link.reset()
            if all(writer.transport.is_closing() for writer in link.writers):
                return

    async def _pump(
        self,
        link: Link,
        direction: Direction,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_QUEUE)
        sender = asyncio.create_task(self._send(direction, waiting, writer))
        try:
            while data := await reader.read(_READ):
                link.last_byte = self._loop.time()
                if len(direction.first) < 4096:
                    direction.first += data
                begin = direction.read
                damaged = direction.damage(data)
                if direction.reset_at is not None and direction.read > direction.reset_at:
                    link.reset()
                    return
                if direction.end_at is not None and direction.read > direction.end_at:
                    damaged = damaged[: max(0, direction.end_at - begin)]
                if damaged:
                    late = direction.delay + self._random.random() * direction.jitter
                    await waiting.put((self._loop.time() + late, damaged))
                if direction.end_at is not None and direction.read > direction.end_at:
                    break
        except OSError:
            link.reset()
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                await waiting.put((0.0, b""))
                await sender

    async def _send(
        self,
        direction: Direction,
        waiting: "asyncio.Queue[tuple[float, bytes]]",
        writer: asyncio.StreamWriter,
    ) -> None:
        with contextlib.suppress(OSError):
            while (item := await waiting.get())[1]:
                due, data = item
                await asyncio.sleep(max(0.0, due - self._loop.time()))
                await direction.opened()
                writer.write(data)
                await writer.drain()
                if direction.rate > 0:
                    await asyncio.sleep(len(data) / direction.rate)
            await direction.opened()
            if writer.can_write_eof() and not writer.transport.is_closing():
                writer.write_eof()
