# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Summarizes the aggregator's log for the user who started the job: one line per event."""

from typing import Any

# Events after which a worker is no longer a member.
_DEPARTURES = ("worker_lost", "worker_left", "worker_finished")
# How the reason ends when a worker is lost because its process has ended.
_ENDED = ("has exited.", "did not reconnect in time.")


class Story:
    """The events of one job. Decides which are worth a line, and prints nothing.

    Entries about other jobs change nothing: a process group of torch.distributed is a job of its
    own, whose workers have other ids.

    finished: the workers that have called finished()
    waits:    whether the first workers wait for the job to begin
    paused:   why the job is paused; empty if it is not
    over:     whether all workers have finished, and no others have begun since
    evicted:  the workers that the aggregator has lost since they were started, and not because
              their processes had ended
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self.finished: set[str] = set()
        self.paused = ""
        self.over = False
        self.evicted: set[str] = set()
        # Those that have been members since they were started, and were not lost.
        self._members: set[str] = set()
        self._ready: set[str] = set()
        self._size = 0
        self._begun = False
        self._refusals: dict[str, list[str]] = {}  # The words of the last one of each worker.
        self._departures: dict[str, str] = {}  # Since the last generation, with the reasons.

    @property
    def ready(self) -> int:
        """How many workers are ready but not yet members."""
        return len(self._ready)

    @property
    def waits(self) -> bool:
        return not self._begun and bool(self._ready)

    def started(self, worker: str) -> None:
        """A process of this worker begins."""
        self.evicted.discard(worker)
        self._members.discard(worker)

    def is_late(self, worker: str) -> bool:
        """Whether a worker is none of those that have finished the job, and can no longer join."""
        return self.over and worker not in self._members

    def on_entry(self, entry: dict[str, Any]) -> str | None:
        """Returns the line for an entry of the log, or None."""
        if entry.get("job", self._job) != self._job:
            return None
        event, worker = entry["event"], entry.get("worker", "")
        reason = entry.get("reason", "")
        if event == "worker_ready":
            self._ready.add(worker)
        elif event in _DEPARTURES:
            if event == "worker_finished":
                self.finished.add(worker)
            self._departures.setdefault(worker, reason.rstrip("."))
            if event == "worker_lost":
                self._on_loss(worker, reason)
        elif event == "worker_reconnected":
            return f"worker {_short(worker)} has reconnected"
        elif event == "paused":
            self.paused = reason
            return f"paused: {reason}"
        elif event == "resumed":
            self.paused = ""
            return "resumed"
        elif event == "new_lineage":
            # Otherwise all that had the state were lost, and the next workers begin alone.
            self.over = reason.startswith("All workers have finished")
        elif event == "generation":
            return self._on_members(entry["members"])
        return None

    def warns(self, entry: dict[str, Any]) -> bool:
        """Whether an entry without a line of its own is a warning to be shown."""
        event = entry["event"]
        if entry["level"] not in ("warning", "error"):
            return False
        if event == "worker_lost":  # It is reported together with its consequence.
            return False
        if event != "worker_refused":
            return True
        # A refused worker tries again and again, and only the time that is left differs.
        worker, words = entry["worker"], _words(entry["reason"])
        seen, self._refusals[worker] = self._refusals.get(worker), words
        return seen != words

    def _on_loss(self, worker: str, reason: str) -> None:
        self._members.discard(worker)
        if not self._begun:
            self._ready.discard(worker)
        if not reason.endswith(_ENDED):
            self.evicted.add(worker)

    def _on_members(self, size: int) -> str | None:
        before, self._size = self._size, size
        departures, self._departures = self._departures, {}
        joined, self._ready = self._ready, set()
        self._members |= joined
        self.over = self.over and size == 0
        if not self._begun:
            self._begun = True
            return "1 worker has joined" if self._size == 1 else f"{self._size} workers have joined"
        why = [f"worker {_short(each)} has joined" for each in sorted(joined)]
        why += [
            text.replace(f"Worker {each}", f"worker {_short(each)}")
            for each, text in departures.items()
            if each not in self.finished
        ]
        # At the end of a job, when workers finish one after the other, there is nothing to report.
        if not why:
            return None
        return f"resized {before} -> {self._size}: {'; '.join(why)}"


def _short(worker: str) -> str:
    return worker.removeprefix("worker-")


def _words(reason: str) -> list[str]:
    """Without numbers and times."""
    return [word for word in reason.split() if not word[0].isdigit()]
