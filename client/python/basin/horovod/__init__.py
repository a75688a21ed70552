# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Horovod's interface over Basin.

basin.horovod.torch, basin.horovod.tensorflow, basin.horovod.keras and basin.horovod.mxnet have the
names of horovod.torch and so on. `basin-run --horovod` lets a script that imports those get them,
without a change of the script.
"""
