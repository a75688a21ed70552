# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""How far a training is, for what runs it and for those who look at it.

Kubeflow Trainer shows it in status.trainerStatus of a TrainJob. With its feature gate
TrainJobStatus it gives each pod an address to send it to, a token and the certificate of its
authority, in the environment. Otherwise BASIN_PROGRESS_POD may name the pod of this process, whose
annotations then have it. Elsewhere nothing is sent. A report that fails is logged once, and never
disturbs the training.

Threads. One at a time reports; a thread of this module sends.
"""

import functools
import json
import math
import os
import ssl
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from basin.arguments import number_of
from basin.errors import InvalidArgument
from basin.worker import logger

# What the API server lets a pod reach it with, wherever a service account is mounted.
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# The controller asks its clients not to report more often.
_LEAST_SECONDS = 5.0
_TIMEOUT_SECONDS = 5.0


class _TrainJob:
    """The status of the TrainJob to which this process belongs."""

    variable = "KUBEFLOW_TRAINER_SERVER_URL"
    method, content_type = "POST", "application/json"

    def __init__(self, url: str) -> None:
        self.url = url
        self.authority = os.environ.get("KUBEFLOW_TRAINER_SERVER_CA_CERT")

    @property
    def token(self) -> Path:
        return Path(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"])

    def body(self, status: Mapping[str, Any]) -> dict[str, Any]:
        return {"trainerStatus": status}


class _Pod:
    """The annotations of a pod, NAMESPACE/NAME."""

    variable = "BASIN_PROGRESS_POD"
    method, content_type = "PATCH", "application/merge-patch+json"

    def __init__(self, pod: str, account: Path) -> None:
        namespace, found, name = pod.partition("/")
        if not (namespace and found and name) or "/" in name:
            raise InvalidArgument(
                f"{self.variable} cannot be {pod!r}. Use NAMESPACE/NAME of the pod, which "
                "Kubernetes inserts for $(NAMESPACE)/$(NAME) from metadata.namespace and "
                "metadata.name, or remove the variable."
            )
        host = os.environ.get("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc")
        port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        host = f"[{host}]" if ":" in host else host
        path = "/".join(urllib.parse.quote(each) for each in (namespace, "pods", name))
        self.url = f"https://{host}:{port}/api/v1/namespaces/{path}"
        self.authority = str(account / "ca.crt")
        self.token = account / "token"

    def body(self, status: Mapping[str, Any]) -> dict[str, Any]:
        remaining = status.get("estimatedRemainingSeconds")
        metrics = (f"{each['name']}={each['value']}" for each in status["metrics"])
        annotations = {
            "basin/progress-percentage": str(status["progressPercentage"]),
            # None removes it.
            "basin/estimated-remaining-seconds": None if remaining is None else str(remaining),
            "basin/metrics": " ".join(metrics),
            "basin/last-updated-time": status["lastUpdatedTime"],
        }
        return {"metadata": {"annotations": annotations}}


class Progress:
    """Reports of one process, to the place that its environment names, if any."""

    def __init__(self, account: Path = _ACCOUNT) -> None:
        self._account = account
        self._began: tuple[float, float] | None = None  # The first report: when, and how far.
        self._waiting: dict[str, Any] | None = None  # The latest report that was not sent.
        self._changed = threading.Condition()
        self._closed = self._failed = False
        self._thread: threading.Thread | None = None

    @functools.cached_property
    def _place(self) -> _TrainJob | _Pod | None:
        if url := os.environ.get(_TrainJob.variable):
            return _TrainJob(url)
        if pod := os.environ.get(_Pod.variable):
            return _Pod(pod, self._account)
        return None

    def report(self, done: float, metrics: Mapping[str, float], *, send: bool) -> None:
        """`done`: of the whole training, from 0 to 1. Without `send` it is only checked."""
        share = number_of(done)
        if not 0 <= share <= 1:
            raise InvalidArgument(
                f"The progress cannot be {done!r}. Use the share of the training that is done, "
                "from 0 to 1."
            )
        numbers = {name: number_of(value) for name, value in metrics.items()}
        # All workers look for the place, so that all of them fail if it cannot be one.
        if self._place is None or not send:
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
        place = self._place
        assert place is not None
        try:
            # The token is replaced while the pod runs.
            token = place.token.read_text(encoding="utf-8").strip()
            request = urllib.request.Request(
                place.url,
                json.dumps(place.body(status)).encode(),
                {"Authorization": f"Bearer {token}", "Content-Type": place.content_type},
                method=place.method,
            )
            authority = ssl.create_default_context(cafile=place.authority)
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS, context=authority):
                pass
        except Exception as error:  # Also what is no HTTP. Training goes on whatever it is.
            if not self._failed:
                logger.warning(
                    "the progress cannot be reported to %s (%s): %s",
                    place.url,
                    place.variable,
                    error,
                )
            self._failed = True
