# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""How tensors are made smaller before they are sent."""

from typing import Any

import torch


class Compressor:
    """What a compression of allreduce() and the like has to have."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Returns what to send, and what decompress() needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:
        """Makes the result from what was received."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends the tensor as it is."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:
        return tensor


class FP16Compressor(Compressor):
    """Sends floating numbers as float16. The sum is computed in float32, and rounded once."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return (tensor.half() if tensor.is_floating_point() else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:
        return tensor.to(context)


class Compression:
    """The compressions by name: none and fp16."""

    none = NoneCompressor
    fp16 = FP16Compressor
