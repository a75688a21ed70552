# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The output of the programs that basin-run starts, copied by lines to its own."""

import array
import codecs
import contextlib
import fcntl
import io
import os
import select
import sys
import termios
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TextIO

# How long after the end of a program its output may stay open. The processes of its group have been
# killed by then, and need some time to end.
_CLOSING_SECONDS = 0.5
# How long this process waits for a reader of its own output that does not read.
_UNREAD_SECONDS = 10.0
_READ_BYTES = 1 << 16


class Pipe:
    """The lines that a program writes to a pipe: up to the end of the pipe or, because the program
    may leave processes that keep the pipe open, shortly after end()."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._ended, self._end = os.pipe()
        self._lock = threading.Lock()
        self._is_open = True  # Whether processes may have the other side.

    def end(self) -> None:
        """The program has ended. What it has written is still copied. May be called twice."""
        with self._lock:
            if self._end >= 0:
                os.close(self._end)
                self._end = -1

    def lines(self) -> Iterator[str]:
        """Ends with the pipe closed on this side."""
        decoder = io.IncrementalNewlineDecoder(
            codecs.getincrementaldecoder("utf-8")(errors="replace"), translate=True
        )
        begun = ""
        for chunk in self._chunks():
            *whole, begun = (begun + decoder.decode(chunk)).split("\n")
            for line in whole:
                yield line + "\n"
        begun += decoder.decode(b"", final=True)
        if begun:
            yield begun

    def left_with(self) -> list[str]:
        """The processes that still have the other side, by number and name."""
        if not self._is_open:
            return []
        mine = f"pipe:[{os.fstat(self._source.fileno()).st_ino}]"
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            if process.name == str(os.getpid()):
                continue
            with contextlib.suppress(OSError):  # Another user's, or ended.
                if any(os.readlink(each) == mine for each in (process / "fd").iterdir()):
                    found.append(f"{process.name} ({(process / 'comm').read_text().strip()})")
        return sorted(found)

    def close(self) -> None:
        """Closes this side. Only after lines() has ended."""
        self.end()
        os.close(self._ended)
        self._source.close()

    def _chunks(self) -> Iterator[bytes]:
        source = self._source.fileno()
        while self._ended not in (ready := _readable([source, self._ended], None)):
            if source in ready:
                if not (chunk := self._read()):
                    return
                yield chunk
        # All that the program has written is in the pipe now. It is copied, however slowly this
        # process's own output is read.
        owed = _bytes_in(source)
        latest = time.monotonic() + _CLOSING_SECONDS
        while owed > 0 or _readable([source], max(0.0, latest - time.monotonic())):
            if not (chunk := self._read()):
                return
            owed -= len(chunk)
            yield chunk
            if owed <= 0 and time.monotonic() > latest:
                return

    def _read(self) -> bytes:
        chunk = os.read(self._source.fileno(), _READ_BYTES)
        self._is_open = bool(chunk)
        return chunk


def _readable(descriptors: list[int], patience: float | None) -> list[int]:
    """Those that can be read or are at their end, after at most `patience` seconds."""
    waiting = select.poll()
    for each in descriptors:
        waiting.register(each, select.POLLIN)
    return [each for each, _ in waiting.poll(None if patience is None else patience * 1000)]


def _bytes_in(pipe: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


# The lines between the trace of an exception and that of one raised while it was handled.
_CHAINS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


class Errors:
    """The stderr of a worker. Remembers its last line, and omits the traces of a KeyboardInterrupt
    after Ctrl-C has `interrupted` the worker, with those of the exceptions that it was raised in
    the handling of, such as the KeyError of a cache that an import looks into."""

    def __init__(self) -> None:
        self.last = ""
        self.interrupted = threading.Event()
        self._trace: list[str] = []  # Lines of traces that are not shown yet.
        self._is_whole = False  # The last of them has its exception, and a chain may follow.

    def on_line(self, line: str) -> list[str]:
        """Returns the lines to show now."""
        text = line.strip()
        if text:
            self.last = text
        if not self.interrupted.is_set():
            return [line]
        if not text:
            if self._trace:
                self._trace.append(line)
            return []
        shown = self.end() if self._is_whole and text not in _CHAINS else []
        if not self._trace and not line.startswith("Traceback ("):
            return [*shown, line]
        self._trace.append(line)
        self._is_whole = not line.startswith((" ", "\t", "Traceback (", *_CHAINS))
        if self._is_whole and line.startswith("KeyboardInterrupt"):
            self.end()
        return shown

    def end(self) -> list[str]:
        """Returns the lines that are not shown yet."""
        shown, self._trace, self._is_whole = self._trace, [], False
        return shown


@dataclass(frozen=True)
class Relayed:
    """What `who` writes to a pipe, and where its lines go: those that `errors` returns for them to
    a stream of this process, and all of them to a file."""

    who: str
    pipe: Pipe
    to: TextIO
    errors: Errors | None = None
    copy: TextIO | None = None


class Output:
    """Copies lines to this process's output, each with one write. When a stream cannot be written,
    the rest of it is dropped: a worker whose output is not read would block."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._printed: set[str] = set()

    def write(self, to: TextIO, line: str) -> None:
        failure = None
        with self._lock:
            try:
                to.write(line if line.endswith("\n") else line + "\n")
                to.flush()
            except OSError as error:
                failure = error.strerror
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, to.fileno())
                os.close(nowhere)
        if failure is not None and to is not sys.stderr:
            name = "stdout" if to is sys.stdout else to.name
            self.say(f"{name} cannot be written ({failure}); the rest of it is dropped")

    def say(self, text: str) -> None:
        """Writes a line from basin-run itself."""
        self.write(sys.stderr, f"basin-run: {text}")

    def relay(self, prefix: str, source: Relayed) -> None:
        """Copies lines on a thread of its own, those for the stream behind the prefix."""

        def copy() -> None:
            errors = source.errors
            for line in source.pipe.lines():
                if source.copy is not None:
                    self.write(source.copy, line)
                for kept in [line] if errors is None else errors.on_line(line):
                    self.write(source.to, prefix + kept)
            for kept in [] if errors is None else errors.end():
                self.write(source.to, prefix + kept)
            self._say_what_is_left(source.who, source.pipe)
            source.pipe.close()

        thread = threading.Thread(target=copy, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _say_what_is_left(self, who: str, pipe: Pipe) -> None:
        processes = pipe.left_with()
        text = (
            f"{who} has left processes that hold its output: {', '.join(processes)}. They go on, "
            "and basin-run does not wait for them; what they write is dropped"
        )
        with self._lock:
            is_news = bool(processes) and text not in self._printed
            self._printed.add(text)
        if is_news:
            self.say(text)

    def drain(self) -> None:
        """Returns when all output of programs that have ended has been copied, or when nobody reads
        what is copied."""
        for thread in self._threads:
            thread.join(timeout=_UNREAD_SECONDS)
