# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The backend "basin" of torch.distributed.

import basin.torch.backend
torch.distributed.init_process_group("basin")

The import registers the backend. Ranks and the number of workers are those of torch; the aggregator
is that of Basin's settings, such as BASIN_ADDRESS. A lost member is an error: workers that come and
go are for basin.torch.init(), which does not need this module.
"""

from torch import distributed

from basin.torch.backend.group import BasinGroup, create

NAME = "basin"

distributed.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu"])

__all__ = ["NAME", "BasinGroup"]
