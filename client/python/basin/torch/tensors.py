# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Torch tensors as the C interface wants them: by dtype, shape and address."""

import torch

from basin import _abi
from basin.errors import Unsupported
from basin.worker import TensorSpec

DTYPES = {
    torch.float64: _abi.F64,
    torch.float32: _abi.F32,
    torch.float16: _abi.F16,
    torch.bfloat16: _abi.BF16,
    torch.int64: _abi.I64,
    torch.int32: _abi.I32,
    torch.uint8: _abi.U8,
}


def check(name: str, tensor: torch.Tensor) -> None:
    """Raises Unsupported for what cannot be reduced, with the way out."""
    if tensor.device.type != "cpu":
        raise Unsupported(
            f"Tensor {name} is on {tensor.device}, and Basin takes tensors of the CPU only. Keep "
            "the model on the CPU, or average within the machine first."
        )
    if type(tensor).__name__ == "DTensor":
        raise Unsupported(
            f"Tensor {name} is a DTensor, one shard of several. Basin takes whole tensors: use it "
            "without FSDP or tensor parallelism."
        )
    if tensor.layout != torch.strided:
        raise Unsupported(
            f"Tensor {name} is sparse ({tensor.layout}). Make it dense: Embedding(sparse=False)."
        )
    if tensor.dtype not in DTYPES:
        known = ", ".join(str(each).removeprefix("torch.") for each in DTYPES)
        raise Unsupported(
            f"Tensor {name} has dtype {tensor.dtype}, which Basin cannot reduce. Convert it to one "
            f"of {known}."
        )


def spec_of(name: str, tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(name, DTYPES[tensor.dtype], tuple(tensor.shape))


def bytes_of(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
