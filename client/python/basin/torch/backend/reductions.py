# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The reductions of torch.distributed that Basin has, and the dtypes that they take."""

from typing import Any

import torch
from torch.distributed import ReduceOp

from basin.errors import Unsupported
from basin.spec import Op, RoundSpec
from basin.torch import tensors
from basin.torch.backend import calls

_OPS = {
    ReduceOp.SUM: Op.SUM,
    ReduceOp.AVG: Op.AVERAGE,
    ReduceOp.MIN: Op.MIN,
    ReduceOp.MAX: Op.MAX,
    ReduceOp.PRODUCT: Op.PRODUCT,
}
# They are reduced as wider numbers. A sum or a product then wraps around as that of torch does.
_WIDER = {torch.bool: torch.int32, torch.int8: torch.int32, torch.int16: torch.int32}


def spec_of(call: str, options: Any) -> RoundSpec:
    """The spec for the options of a `call`, or for the op itself. Raises Unsupported for others."""
    given = getattr(options, "reduceOp", options)
    for op, ours in _OPS.items():
        if given == op:
            return RoundSpec(ours)
    name = getattr(given, "name", None) or str(getattr(given, "op", given)).rpartition(".")[2]
    raise Unsupported(
        f"{call} was given op {name}, which the backend basin does not have. Use SUM, AVG, MIN, "
        "MAX or PRODUCT."
    )


def given(call: str, tensor: torch.Tensor) -> torch.Tensor:
    """The numbers of a tensor on the host, in a dtype that can be reduced."""
    numbers = calls.on_host(call, tensor)
    numbers = numbers.to(_WIDER.get(numbers.dtype, numbers.dtype))
    tensors.check_dtype(f"of {call}", numbers.dtype)
    return numbers
