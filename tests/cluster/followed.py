# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The events of oracle trainers (../integration/oracle_trainer.cc) in pods, read as they come."""

import contextlib
import datetime
import itertools
import json
import threading
from collections.abc import Iterable
from typing import Any

from cluster import PATIENCE_SECONDS, Cluster

Line = dict[str, Any]


class Followed:
    """Reads the log of a pod from its first line until its container ends.

    Lines that are not JSON are kept as the event "said". Each line has the second of its `time`.
    """

    stopped = False

    def __init__(self, cluster: Cluster, pod: str, uid: str) -> None:
        self.worker = pod
        self.uid = uid
        self._lines: list[Line] = []
        self._changed = threading.Condition()
        self._ended = False
        self._process = cluster.start(
            "kubectl", "--namespace=training", "logs", "--follow", "--timestamps", pod
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            when, _, said = text.rstrip("\n").partition(" ")
            line: Line = {"event": "said", "text": said}
            with contextlib.suppress(ValueError):
                line = json.loads(said)
            with contextlib.suppress(ValueError):
                time = datetime.datetime.fromisoformat(when.rstrip("Z")[:26] + "+00:00")
                line["time"] = time.timestamp()
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def find(self, event: str, **fields: Any) -> list[Line]:
        with self._changed:
            return [
                line
                for line in self._lines
                if line["event"] == event
                and all(line.get(name) == value for name, value in fields.items())
            ]

    def await_more(self, more: int, event: str, **fields: Any) -> None:
        """Waits until there are so many more of these events."""
        with self._changed:
            wanted = len(self.find(event, **fields)) + more
            reached = self._changed.wait_for(
                lambda: self._ended or len(self.find(event, **fields)) >= wanted,
                timeout=PATIENCE_SECONDS,
            )
            if not reached or len(self.find(event, **fields)) < wanted:
                raise AssertionError(
                    f"{self.worker}{' has ended' * self._ended}: not {more} more {event} {fields}; "
                    f"{self._lines[-5:]}"
                )

    def find_said(self, part: str) -> list[str]:
        """The lines with these words that are not JSON."""
        return [line["text"] for line in self.find("said") if part in line["text"]]

    def await_said(self, part: str) -> None:
        with self._changed:
            said = self._changed.wait_for(
                lambda: self._ended or self.find_said(part), timeout=PATIENCE_SECONDS
            )
            if not said or not self.find_said(part):
                raise AssertionError(f"{self.worker} does not say {part!r}; {self._lines[-5:]}")

    def await_end(self) -> None:
        self._reader.join(PATIENCE_SECONDS)
        if self._reader.is_alive():
            raise AssertionError(f"{self.worker} has not ended; {self._lines[-5:]}")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()


def longest_pause(trainer: Followed, since: float) -> float:
    """Seconds between two steps that follow each other, of which the later is after `since`."""
    times = [line["time"] for line in trainer.find("applied")]
    return max(later - earlier for earlier, later in itertools.pairwise(times) if later > since)


def missing_steps(trainers: Iterable[Followed]) -> set[int]:
    """Steps that no trainer has applied, although one has applied a later step."""
    steps = {line["step"] for trainer in trainers for line in trainer.find("applied")}
    return set(range(max(steps, default=0))) - steps
