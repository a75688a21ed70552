# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Traces of a real job: two workers with BASIN_TIMELINE, the aggregator's rounds, and all joined.

Usage: test_timeline.py BASIND BASINCTL TRAINER
"""

import itertools
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "aggregator/basind"))
from programs import PATIENCE, Basind, clean_environment, run

BASIND = Path()
BASINCTL = Path()
TRAINER = Path()

Event = dict[str, Any]

STEPS = 12
PACE_MS = 20
# The parts of a round on a worker's track. A phase without duration has no slice.
PHASES = {"push", "wait", "result", "verdict", "copy"}


def events(text: str) -> list[Event]:
    """A trace, whose array need not be closed."""
    text = text.rstrip()
    return json.loads(text if text.endswith("]") else text.rstrip(",") + "]")


def slices(trace: list[Event]) -> list[Event]:
    return [event for event in trace if event["ph"] == "X"]


def end(event: Event) -> int:
    return event["ts"] + event["dur"]


def names(trace: list[Event], kind: str) -> dict[tuple[int, int], str]:
    return {
        (event["pid"], event.get("tid", 0)): event["args"]["name"]
        for event in trace
        if event["ph"] == "M" and event["name"] == kind
    }


class Traces(unittest.TestCase):
    maxDiff = None

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def start(self) -> Basind:
        basind = Basind(BASIND)
        self.addCleanup(basind.__exit__, None, None, None)
        basind.await_serving()
        return basind

    def train(
        self, basind: Basind, worker: str, workers: int, steps: int, **variables: str
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [TRAINER, str(steps), str(PACE_MS)],
            env=clean_environment(
                BASIN_ADDRESS=basind.grpc,
                BASIN_JOB="team/vision",
                BASIN_WORKER_ID=worker,
                BASIN_MAX_WORKERS=str(workers),
                BASIN_FRESH="true",
                BASIN_RUN_ID="run",
                **variables,
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

        def cleanup() -> None:
            process.kill()
            process.communicate()

        self.addCleanup(cleanup)
        return process

    def finish(self, process: subprocess.Popen[str]) -> str:
        _, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual(0, process.returncode, errors)
        return errors

    def await_text(self, path: Path, text: str) -> None:
        """Returns when the file has the text, which its writer adds about once a second."""
        until = time.monotonic() + PATIENCE
        while not path.exists() or text not in path.read_text():
            self.assertLess(time.monotonic(), until, f"{path} never had {text}")
            threading.Event().wait(0.05)

    def assert_nests(self, trace: list[Event]) -> None:
        tracks: dict[tuple[int, int], list[Event]] = defaultdict(list)
        for event in slices(trace):
            self.assertGreater(event["dur"], 0, event)
            stack = tracks[event["pid"], event["tid"]]
            stack.append(event)
        for track in tracks.values():
            enclosing: list[Event] = []
            for event in sorted(track, key=lambda event: event["ts"]):
                while enclosing and end(enclosing[-1]) <= event["ts"]:
                    enclosing.pop()
                if enclosing:
                    self.assertLessEqual(end(event), end(enclosing[-1]), (event, enclosing[-1]))
                enclosing.append(event)

    def assert_arrows_touch_slices(self, trace: list[Event]) -> None:
        for arrow in (event for event in trace if event["ph"] in "stf"):
            touched = [
                event
                for event in slices(trace)
                if (event["pid"], event["tid"]) == (arrow["pid"], arrow["tid"])
                and event["ts"] <= arrow["ts"] < end(event)
            ]
            self.assertTrue(touched, arrow)

    def test_workers_and_aggregator_and_all_joined(self) -> None:
        basind = self.start()
        workers = [
            self.train(basind, f"w{rank}", 2, STEPS, BASIN_TIMELINE=str(self.folder))
            for rank in range(2)
        ]
        for worker in workers:
            self.finish(worker)
        files = sorted(self.folder.glob("*.json"))
        self.assertEqual(
            ["team_vision.w0", "team_vision.w1"], [file.name.split(".2")[0] for file in files]
        )
        traces = [json.loads(file.read_text()) for file in files]
        arrows = set()
        for rank, trace in enumerate(traces):
            self.check_worker(trace, f"w{rank}")
            arrows |= {event["id"] for event in trace if event["ph"] == "s"}
        self.assertEqual(2 * STEPS, len(arrows), "one of each worker and round")

        asked = run(BASINCTL, "timeline", "--job=team/vision", f"--address={basind.admin}")
        self.assertEqual(0, asked.returncode, asked.stderr)
        job = json.loads(asked.stdout)
        self.check_job(job)
        self.assertEqual(arrows, {event["id"] for event in job if event["ph"] == "t"})

        joined = self.folder / "joined"
        merged = run(
            BASINCTL,
            "timeline",
            "--merge",
            *map(str, files),
            "--job=team/vision",
            f"--address={basind.admin}",
            f"--file={joined}",
        )
        self.assertEqual(0, merged.returncode, merged.stderr)
        self.assertIn("ui.perfetto.dev", merged.stderr)
        self.check_joined(json.loads(joined.read_text()), arrows)
        self.assertEqual(
            len(job) + sum(map(len, traces)), len(json.loads(joined.read_text())), "nothing is lost"
        )

    def check_worker(self, trace: list[Event], worker: str) -> None:
        self.assert_nests(trace)
        self.assert_arrows_touch_slices(trace)
        self.assertEqual(
            [f"worker {worker} of job team/vision"], list(names(trace, "process_name").values())
        )
        tracks = names(trace, "thread_name").values()
        self.assertEqual({"connection", "model", "model: results arrive"}, set(tracks))
        rounds = [event for event in slices(trace) if event["name"].startswith("round ")]
        self.assertEqual(
            [f"round {number}" for number in range(1, STEPS + 1)],
            [event["name"] for event in rounds],
        )
        for event in rounds:
            self.assertEqual("COMMITTED", event["args"]["outcome"])
            self.assertEqual((2, 2), (event["args"]["contributors"], event["args"]["world_size"]))
            parts = [
                part
                for part in slices(trace)
                if part["tid"] == event["tid"]
                and part["name"] in PHASES
                and event["ts"] <= part["ts"] < end(event)
            ]
            self.assertEqual("push", parts[0]["name"])
            self.assertIn("bytes", parts[0]["args"])
            # Without gaps, but before the copies, when the trainer has the result.
            for before, after in itertools.pairwise(parts):
                if after["name"] != "copy":
                    self.assertEqual(end(before), after["ts"])
        compute = [event["dur"] for event in slices(trace) if event["name"] == "compute"]
        self.assertEqual(STEPS - 1, len(compute))
        self.assertGreaterEqual(min(compute), PACE_MS * 1000 * 0.9)
        begins = [event["id"] for event in trace if event["ph"] == "s"]
        self.assertEqual(begins, [event["id"] for event in trace if event["ph"] == "f"])
        instants = [event["name"] for event in trace if event["ph"] == "i"]
        self.assertEqual("timeline ends", instants[-1])
        self.assertTrue(any(name.startswith("generation ") for name in instants), instants)

    def check_job(self, job: list[Event]) -> None:
        self.assert_nests(job)
        self.assert_arrows_touch_slices(job)
        self.assertEqual(
            ["aggregator of job team/vision"], list(names(job, "process_name").values())
        )
        self.assertEqual(
            {"model", "model: w0", "model: w1"}, set(names(job, "thread_name").values())
        )
        found = [event["name"] for event in slices(job)]
        self.assertEqual(STEPS, found.count("reduced"))
        for number in range(1, STEPS + 1):
            self.assertEqual(1, found.count(f"round {number}"))
            self.assertEqual(2, found.count(f"contribution to round {number}"))

    def check_joined(self, joined: list[Event], arrows: set[int]) -> None:
        self.assert_nests(joined)
        self.assert_arrows_touch_slices(joined)
        processes = names(joined, "process_name")
        self.assertEqual(
            [
                "aggregator of job team/vision",
                "worker w0 of job team/vision",
                "worker w1 of job team/vision",
            ],
            list(processes.values()),
        )
        owners: dict[int, set[int]] = defaultdict(set)
        for event in joined:
            if "tid" in event:
                owners[event["tid"]].add(event["pid"])
        self.assertTrue(all(len(owner) == 1 for owner in owners.values()), owners)
        aggregator = next(pid for pid, _ in processes)
        for arrow in arrows:
            path = sorted(
                (event for event in joined if event.get("id") == arrow),
                key=lambda event: event["ts"],
            )
            # One machine has one clock, so the moments are in order.
            self.assertEqual("stf", "".join(event["ph"] for event in path), path)
            self.assertEqual(aggregator, path[1]["pid"])
            self.assertEqual(path[0]["pid"], path[2]["pid"])

    def test_every_nth_round_the_same_of_all_workers(self) -> None:
        basind = self.start()
        variables = {"BASIN_TIMELINE": str(self.folder), "BASIN_TIMELINE_EVERY": "5"}
        workers = [self.train(basind, f"w{rank}", 2, STEPS, **variables) for rank in range(2)]
        for worker in workers:
            self.finish(worker)
        for file in self.folder.glob("*.json"):
            found = [event["name"] for event in slices(json.loads(file.read_text()))]
            rounds = [name for name in found if name.startswith("round ")]
            self.assertEqual(["round 5", "round 10"], rounds)

    def test_the_trace_of_a_killed_worker_can_be_read_and_joined(self) -> None:
        basind = self.start()
        trace = self.folder / "trace.json"
        worker = self.train(basind, "w0", 1, 100000, BASIN_TIMELINE=str(trace))
        self.await_text(trace, '"name":"round 20"')
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        self.assertFalse(trace.read_text().rstrip().endswith("]"))
        found = events(trace.read_text())
        self.assert_nests(found)
        joined = run(BASINCTL, "timeline", "--merge", str(trace), str(trace))
        self.assertEqual(0, joined.returncode, joined.stderr)
        self.assertEqual(2 * len(found), len(json.loads(joined.stdout)))


if __name__ == "__main__":
    TRAINER = Path(sys.argv.pop()).resolve()
    BASINCTL = Path(sys.argv.pop()).resolve()
    BASIND = Path(sys.argv.pop()).resolve()
    unittest.main()
