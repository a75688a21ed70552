# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""How arrays are made smaller before they are sent."""

from typing import Any

import numpy as np

from basin.horovod.compression import Compressor, NoneCompressor


class FP16Compressor(Compressor):
    """Sends floating numbers as float16. The sum is computed in float32, and rounded once."""

    wire_dtype = "float16"

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        is_floating = np.dtype(tensor.dtype).kind == "f"
        return (tensor.astype("float16") if is_floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor.astype(ctx)


class Compression:
    """The compressions by name: none and fp16."""

    none = NoneCompressor
    fp16 = FP16Compressor
