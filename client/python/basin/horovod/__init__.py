# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Horovod's interface over Basin.

basin.horovod.torch has the names of horovod.torch. `basin-run --horovod` lets a script that imports
horovod.torch get it, without a change of the script.
"""
