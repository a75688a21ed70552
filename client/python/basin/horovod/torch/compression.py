# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""How tensors are made smaller before they are sent."""

from typing import Any

import torch

from basin.horovod.compression import Compressor, NoneCompressor


class FP16Compressor(Compressor):
    """Sends floating numbers as float16. The sum is computed in float32, and rounded once."""

    wire_dtype = "float16"

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return (tensor.half() if tensor.is_floating_point() else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx)


class Compression:
    """The compressions by name: none and fp16."""

    none = NoneCompressor
    fp16 = FP16Compressor
