# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The name horovod.tensorflow.keras.callbacks; see basin.horovod.keras.callbacks."""

from basin.horovod.keras.callbacks import *  # noqa: F403 - the same names
