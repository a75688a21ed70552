# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The names of horovod.tensorflow.keras, which are those of horovod.keras: there is one Keras."""

from basin.horovod.keras import *  # noqa: F403 - the same names
from basin.horovod.tensorflow.keras import (  # type: ignore[no-redef]
    callbacks,  # noqa: F401 - the same names
    elastic,  # noqa: F401
)
