# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The name horovod.keras.elastic; see basin.horovod.elastic."""

from basin.horovod.elastic import *  # noqa: F403 - the same names
