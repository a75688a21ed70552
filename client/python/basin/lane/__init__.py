# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""How the gradients of one model take part in rounds, as state machines. Nothing here knows a
framework: basin.torch brings tensors, and a test brings numbers."""
