# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""How far a training is, for the controller that runs it.

Kubeflow Trainer shows it in status.trainerStatus of a TrainJob. With its feature gate
TrainJobStatus it gives each pod an address to send it to, a token and the certificate of its
authority, in the environment; elsewhere nothing is sent. A report that fails is logged once, and
never disturbs the training.

Threads. One at a time reports; a thread of this module sends.
"""

import json
import math
import os
import ssl
import threading
import time
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from basin.arguments import number_of
from basin.errors import InvalidArgument
from basin.worker import logger

_URL = "KUBEFLOW_TRAINER_SERVER_URL"
_AUTHORITY = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
_TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"
# The controller asks its clients not to report more often.
_LEAST_SECONDS = 5.0
_TIMEOUT_SECONDS = 5.0


class Progress:
    """Reports of one process, to the controller that its environment names, if any."""

    def __init__(self) -> None:
        self._url = os.environ.get(_URL) or None
        self._began: tuple[float, float] | None = None  # The first report: when, and how far.
        self._waiting: dict[str, Any] | None = None  # The latest report that was not sent.
        self._changed = threading.Condition()
        self._closed = self._failed = False
        self._thread: threading.Thread | None = None

    def report(self, done: float, metrics: Mapping[str, float], *, send: bool) -> None:
        """`done`: of the whole training, from 0 to 1. Without `send` it is only checked."""
        share = number_of(done)
        if not 0 <= share <= 1:
            raise InvalidArgument(
                f"The progress cannot be {done!r}. Use the share of the training that is done, "
                "from 0 to 1."
            )
        numbers = {name: number_of(value) for name, value in metrics.items()}
        if self._url is None or not send:
            return
        with self._changed:
            self._waiting = self._status(share, numbers)
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_all, name="basin-progress")
                self._thread.daemon = True
                self._thread.start()

    def close(self) -> None:
        """Sends the last report, if it was not sent yet."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _status(self, done: float, metrics: Mapping[str, float]) -> dict[str, Any]:
        now = time.monotonic()
        if self._began is None:
            self._began = (now, done)
        then, before = self._began
        status: dict[str, Any] = {
            "progressPercentage": math.floor(100 * done),
            "metrics": [{"name": name, "value": f"{value:g}"} for name, value in metrics.items()],
            "lastUpdatedTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        if done > before:
            status["estimatedRemainingSeconds"] = round((now - then) / (done - before) * (1 - done))
        return status

    def _send_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting is not None or self._closed)
                status, self._waiting = self._waiting, None
                if status is None:
                    return
            self._send(status)
            with self._changed:
                self._changed.wait_for(lambda: self._closed, _LEAST_SECONDS)

    def _send(self, status: Mapping[str, Any]) -> None:
        assert self._url is not None
        try:
            # The token is replaced while the pod runs.
            token = Path(os.environ[_TOKEN]).read_text(encoding="utf-8").strip()
            request = urllib.request.Request(
                self._url,
                json.dumps({"trainerStatus": status}).encode(),
                {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
                method="POST",
            )
            authority = ssl.create_default_context(cafile=os.environ.get(_AUTHORITY))
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS, context=authority):
                pass
        except Exception as error:  # Also what is no HTTP. Training goes on whatever it is.
            if not self._failed:
                logger.warning(
                    "the progress cannot be reported to %s (%s): %s", self._url, _URL, error
                )
            self._failed = True
