# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""State machines that decide how the gradients of one model take part in rounds. They depend on no
framework: basin.torch uses them with tensors, and a test with numbers."""
