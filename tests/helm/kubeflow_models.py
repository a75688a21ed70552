# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Checks objects of JobSet and Kubeflow Trainer with the models that Kubeflow publishes for them.

A model refuses values of another type and misses fields that are required. It drops fields that it
does not know, so that an object with one differs from what the model makes of it.
"""

import json
from collections.abc import Iterator
from typing import Any

from kubeflow_trainer_api import models

# By apiVersion and kind.
KINDS = {
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): models.JobsetV1alpha2JobSet,
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): models.TrainerV1alpha1TrainingRuntime,
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): models.TrainerV1alpha1TrainJob,
}
# What a pod sends to the controller of its TrainJob.
REPORT = models.TrainerV1alpha1UpdateTrainJobStatusRequest


def _differences(given: Any, made: Any, path: str = "") -> Iterator[str]:
    if isinstance(given, dict) and isinstance(made, dict):
        for key in given.keys() | made.keys():
            if key not in made:
                yield f"{path}.{key} is unknown"
            elif key not in given:
                yield f"{path}.{key} is missing"
            else:
                yield from _differences(given[key], made[key], f"{path}.{key}")
    elif isinstance(given, list) and isinstance(made, list) and len(given) == len(made):
        for number, pair in enumerate(zip(given, made)):
            yield from _differences(*pair, f"{path}[{number}]")
    elif given != made:
        yield f"{path} is {given!r}, and not {made!r}"


def complaints(given: dict[str, Any], model: Any) -> list[str]:
    """Why the object is not one of this model; empty if it is."""
    try:
        made = model.from_dict(given)
    except ValueError as error:  # Those of pydantic are such.
        return [str(error)]
    # Times are text again.
    return sorted(_differences(given, json.loads(json.dumps(made.to_dict(), default=_time))))


def _time(value: Any) -> str:
    return str(value.strftime("%Y-%m-%dT%H:%M:%SZ"))
