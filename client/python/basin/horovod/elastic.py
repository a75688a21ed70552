# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""horovod.tensorflow.elastic and horovod.keras.elastic are not there. Each name raises Unsupported
with the way out."""

from basin.horovod.ops import Unoffered

_WHY = (
    "Basin restarts nothing when a worker is lost: the others go on without it, so omit the call. "
    "A worker cannot join a training of TensorFlow or Keras that runs: end the job, and start all "
    "workers from a checkpoint."
)

run = Unoffered("elastic.run()", _WHY)
ObjectState = Unoffered("elastic.ObjectState()", _WHY)
TensorFlowState = Unoffered("elastic.TensorFlowState()", _WHY)
TensorFlowKerasState = Unoffered("elastic.TensorFlowKerasState()", _WHY)
KerasState = Unoffered("elastic.KerasState()", _WHY)
CommitStateCallback = Unoffered("elastic.CommitStateCallback()", _WHY)
UpdateBatchStateCallback = Unoffered("elastic.UpdateBatchStateCallback()", _WHY)
UpdateEpochStateCallback = Unoffered("elastic.UpdateEpochStateCallback()", _WHY)

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "ObjectState",
    "TensorFlowKerasState",
    "TensorFlowState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]
