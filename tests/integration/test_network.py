# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Network faults, by a proxy between some workers and the aggregator.

Usage: test_network.py BASIND ORACLE_TRAINER
"""

import signal
import sys
import threading
import time
import unittest
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from oracle import Jobs, Oracle
from programs import PATIENCE, Basind
from proxy import Link, Proxy

# Eight frames per step.
LARGE = ("--tensors=4", "--elements=524288")


class Network(Jobs):
    def start(self, *arguments: str, **more: Any) -> Basind:
        # These workers live and reconnect at once, but a busy machine may keep them from it.
        return super().start("--worker-closed-lease=4s", *arguments, **more)

    def proxy(self, basind: Basind, on_link: Callable[[Link], None] | None = None) -> Proxy:
        proxy = Proxy(basind.grpc, on_link)
        self.addCleanup(proxy.close)
        return proxy

    def await_true(self, condition: Callable[[], object], what: str) -> None:
        """Polls a condition of the proxy, which sends no events."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            threading.Event().wait(0.01)

    def join(self, basind: Basind, proxy: Proxy, *arguments: str) -> list[Oracle]:
        """Two workers, of which w0 connects through the proxy."""
        return [
            self.add(proxy.address, "w0", *arguments, first=2),
            self.add(basind.grpc, "w1", *arguments, first=2),
        ]

    def test_fault_w7_pushes_whose_acknowledgements_are_lost_are_counted_once(self) -> None:
        basind = self.start()
        proxy = self.proxy(basind)
        trainers = self.join(basind, proxy, "6", *LARGE, "--stepwise")
        for trainer in trainers:
            trainer.await_event("member")
            trainer.tell()
            trainer.tell()
        for trainer in trainers:
            trainer.await_event("applied", step=0)
        before = self.metric(basind, "basin_contribution_bytes_total")
        (session,) = proxy.sessions()
        session.down.hold()
        trainers[0].tell()
        # A frame of step 1 has arrived, but w0 does not know it. Few are on their way without being
        # acknowledged.
        self.await_metric(
            basind, "basin_contribution_bytes_total", lambda arrived: arrived > before
        )
        for stream in proxy.streams():
            stream.cut()
        self.await_metric(
            basind, 'basin_events_total{event="frame_duplicate"}', lambda count: count >= 1
        )
        session.down.release()
        trainers[0].tell("run")
        for _ in range(2):
            trainers[1].tell("run")
        self.expect_whole(basind, trainers, 6)

    def test_fault_n2_data_streams_are_reset_in_the_middle_of_frames(self) -> None:
        basind = self.start()
        resets = 12

        def reset_early(link: Link) -> None:
            # Sessions send much less. Every other link is cut on its way up, the rest on the way
            # down.
            direction = link.up if link.number % 2 == 0 else link.down
            if link.number < resets:
                direction.reset_at = 1500000 + 333333 * link.number

        files = self.metric(basind, "process_open_fds")
        proxy = self.proxy(basind, reset_early)
        trainers = self.join(basind, proxy, "12", *LARGE)
        self.expect_ends(trainers)
        # I6: no connection is left.
        for kind in ("basin_sessions", "basin_streams"):
            self.await_metric(basind, kind, lambda count: count == 0)
        self.await_metric(basind, "process_open_fds", lambda count: count <= files)
        self.assertEqual([3] * 12, self.masks(trainers[0]))
        self.assertGreater(len(proxy.links), 6)
        self.expect_nobody_lost(basind)

    def reset_often(self, of: Callable[[Proxy], Iterable[Link]]) -> Basind:
        """Cuts connections of w0 three times."""
        basind = self.start()
        proxy = self.proxy(basind)
        trainers = self.join(basind, proxy, "40", "--pace-ms=10")
        for step in (5, 15, 25):
            trainers[0].await_event("applied", step=step)
            for link in of(proxy):
                link.cut()
            basind.await_event("worker_reconnected")
        self.expect_whole(basind, trainers, 40)
        return basind

    def test_fault_n2_a_session_that_is_reset_goes_on(self) -> None:
        self.reset_often(Proxy.sessions)

    def test_fault_n2_a_worker_whose_connections_are_all_reset_at_once_stays_a_member(self) -> None:
        basind = self.reset_often(lambda proxy: (*proxy.sessions(), *proxy.streams()))
        self.assertEqual(1, len(self.events(basind, "generation")))

    def test_fault_n7_latency_and_reordering_between_connections(self) -> None:
        basind = self.start()

        def far(link: Link) -> None:
            for direction in (link.up, link.down):
                direction.delay = 0.005
                direction.jitter = 0.03

        proxy = self.proxy(basind, far)
        trainers = self.join(basind, proxy, "6", *LARGE)
        # For a while, one of its two data streams is later than all other connections.
        trainers[0].await_event("applied", step=1)
        held = proxy.streams()[0]
        held.up.hold()
        trainers[1].await_event("pushed", step=3)
        held.up.release()
        self.expect_whole(basind, trainers, 6)

    def test_fault_n8_damaged_bytes_are_sent_again(self) -> None:
        basind = self.start()
        proxy = self.proxy(basind)
        trainers = self.join(basind, proxy, "10", *LARGE, "--stepwise")
        for trainer in trainers:
            trainer.await_event("member")
        for step in range(4):
            self.await_true(proxy.streams, "no data stream")
            for stream in proxy.streams():
                (stream.up if step % 2 == 0 else stream.down).flip_next()
            for trainer in trainers:
                trainer.tell()
                trainer.tell()
            for trainer in trainers:
                trainer.await_event("applied", step=step)
        for trainer in trainers:
            trainer.tell("run")
        self.expect_ends(trainers)
        self.assertEqual([3] * 10, self.masks(trainers[0]))
        self.assertGreaterEqual(self.metric(basind, "basin_checksum_failures_total"), 1)
        self.expect_nobody_lost(basind)

    def test_fault_n9_a_stream_that_ends_in_the_middle_of_a_frame(self) -> None:
        basind = self.start()

        def end_early(link: Link) -> None:
            if link.number < 8:
                link.up.end_at = 1700000 + 250001 * link.number

        proxy = self.proxy(basind, end_early)
        trainers = self.join(basind, proxy, "10", *LARGE)
        self.expect_whole(basind, trainers, 10)
        self.assertGreater(len(proxy.links), 5)

    def test_fault_n1_connections_that_fall_silent_are_replaced(self) -> None:
        basind = self.start("--worker-lease=20s")
        proxy = self.proxy(basind)
        trainers = self.join(basind, proxy, "30", "--pace-ms=10")
        trainers[0].await_event("applied", step=5)
        silent = proxy.open()
        for link in silent:
            link.up.hold()
            link.down.hold()
        # Keepalive detects it on the worker's side.
        self.assertEqual("w0", basind.await_event("worker_reconnected")["worker"])
        self.expect_whole(basind, trainers, 30)

    def test_fault_n13_idle_connections_live_under_a_load_balancer(self) -> None:
        self.idle(5.0, 7.0)

    def test_fault_n13_idle_connections_that_are_cut_come_back(self) -> None:
        self.idle(1.0, 4.0)

    def idle(self, cut_after: float, step: float) -> None:
        """Runs a step of this length while idle connections are cut after this time."""
        basind = self.start()

        def cut_when_idle(link: Link) -> None:
            link.idle_cut = cut_after

        proxy = self.proxy(basind, cut_when_idle)
        trainers = self.join(basind, proxy, "10", "--stepwise")
        for trainer in trainers:
            trainer.await_event("member")
            trainer.tell()
            trainer.tell()
        for trainer in trainers:
            trainer.await_event("applied", step=0)
        # No event may occur meanwhile.
        threading.Event().wait(step)
        for trainer in trainers:
            trainer.tell("run")
        self.expect_ends(trainers)
        self.assertEqual([3] * 10, self.masks(trainers[0]))
        # Keepalive is more frequent than the longer time.
        cut = [link.number for link in proxy.links if link.cut_as_idle]
        self.assertEqual(cut_after < 3, bool(cut), cut)
        for trainer in trainers:
            self.assertNotIn("ENHANCE_YOUR_CALM", trainer.said)
            self.assertNotIn("too_many_pings", trainer.said)
        self.expect_nobody_lost(basind)

    def slow(self, set_rate: Callable[[Link], None]) -> None:
        basind = self.start("--memory-budget=256MiB")
        proxy = self.proxy(basind, set_rate)
        trainers = self.join(basind, proxy, "4", *LARGE)
        trainers[1].await_event("applied", step=2)
        limit = self.metric(basind, "basin_buffer_limit_bytes")
        self.assertLessEqual(self.metric(basind, "basin_reserved_bytes"), limit)
        self.expect_ends(trainers)
        self.assertEqual([3] * 4, self.masks(trainers[0]))
        # gRPC's additional memory stays far below its quota.
        self.assertLess(self.metric(basind, "process_resident_memory_bytes"), 2 * limit)
        self.expect_nobody_lost(basind)

    def test_fault_w13_results_are_read_slowly(self) -> None:
        def slow_down(link: Link) -> None:
            link.down.rate = 8e6

        self.slow(slow_down)

    def test_fault_n6_asymmetric_link_is_waited_for(self) -> None:
        def slow_up(link: Link) -> None:
            link.up.rate = 8e6

        self.slow(slow_up)


class TwoAggregators(Jobs):
    """Workers of one job are led to two aggregators, as by a stale pod that serves on."""

    def setUp(self) -> None:
        super().setUp()
        quick = ("--recovery-window=1s", "--worker-unreachable-lease=5s")
        self.first, self.second = self.start(*quick), self.start(*quick)
        self.proxies = [Proxy(self.first.grpc) for _ in range(3)]
        for proxy in self.proxies:
            self.addCleanup(proxy.close)
        self.trainers = [
            self.add(proxy.address, f"w{i}", "1000000", "--stepwise", least=2, first=3)
            for i, proxy in enumerate(self.proxies)
        ]
        for trainer in self.trainers:
            trainer.await_event("member")
        self.steps = 0

    def lead(self, worker: int, to: Basind) -> None:
        self.proxies[worker].target = to.grpc
        for link in self.proxies[worker].open():
            link.cut()

    def step(self, workers: list[int]) -> set[int]:
        """These make a step. The masks of those that are counted in it."""
        masks = set()
        for i in workers:
            self.trainers[i].tell()
            self.trainers[i].tell()
        for i in workers:
            line = self.trainers[i].await_event("applied", step=self.steps)
            masks.add(line["mask"])
        self.steps += 1
        return masks

    def take_back(self, worker: int, others: list[int]) -> None:
        """The worker was lost, and joins again between two steps of the others."""
        self.trainers[worker].tell("run")
        self.trainers[worker].await_event("evicted")
        while len(self.trainers[worker].find("member")) < 2:
            self.step(others)

    def end(self) -> None:
        """All make the rest of the steps, with one history."""
        for trainer in self.trainers:
            trainer.tell("run")
            trainer.process.send_signal(signal.SIGTERM)
        for trainer in self.trainers:
            trainer.finish()
        self.expect_one_history(self.trainers)

    def test_fault_a5_a_worker_that_is_led_astray_does_not_train_without_the_majority(self) -> None:
        self.assertEqual({7}, self.step([0, 1, 2]))
        self.lead(2, self.second)
        self.second.await_event("halted")
        self.assertEqual({3}, self.step([0, 1]))
        self.lead(2, self.first)
        self.take_back(2, [0, 1])
        self.end()
        self.assertEqual([], self.events(self.second, "round_committed"))

    def test_fault_a5_where_the_majority_has_left_nobody_trains(self) -> None:
        self.assertEqual({7}, self.step([0, 1, 2]))
        self.lead(0, self.second)
        self.lead(1, self.second)
        self.second.await_event("recovered")
        self.assertEqual({3}, self.step([0, 1]))
        self.lead(0, self.first)
        self.first.await_event("halted")
        self.lead(0, self.second)
        self.lead(2, self.second)
        for trainer in self.trainers:
            trainer.tell("run")
        # Whether the second aggregator had lost the first worker meanwhile depends on the machine.
        for trainer in self.trainers:
            trainer.await_more("applied", 2, mask=7)
        self.end()
        committed = [
            line["round"] for line in self.first.lines if line["event"] == "round_committed"
        ]
        self.assertEqual([1], committed)


if __name__ == "__main__":
    Jobs.basind, Jobs.trainer = (Path(sys.argv.pop(1)).resolve() for _ in range(2))
    unittest.main(verbosity=2)
